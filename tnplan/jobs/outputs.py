"""Files of results: arrays with their report, whether they can be written on every host, and by one job.

Two runs with one output would destroy each other's files. A lock is the kernel's, on a file beside the
output, and ends with the process that holds it: what a killed run leaves is no lock. Where a file system has
no such locks, or locks of one host alone, the file itself is the lock.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from socket import gethostname
from time import sleep
from typing import Any
from uuid import uuid4

import numpy as np

from tnplan.common.errors import InputError
from tnplan.common.files import unfinished, write_file, write_json
from tnplan.common.system_calls import NO_LINK, lock_file_alone, own_user, read_first
from tnplan.common.units import size_text
from tnplan.executor.device.protocols.communicator import Communicator, agree
from tnplan.jobs.job_options import JobOptions

LOOKS, APART_S = 10, 0.3
"""How often a rank looks for a file of rank 0: file systems of networks show it late."""
ATTEMPTS = 100
"""How often a lock is tried whose file is replaced meanwhile, as by a run that ends just then."""
LONGEST = 4096
BEGINS = b'{"host": '
"""How the content of a lock begins."""
HELD_OR_LEFT = "is used by another run, or was left by a killed run, and its file system"
WHERE_OVER = "delete it if that run has ended, or choose another --output"


def write_arrays(options: JobOptions, arrays: dict[str, Any], report: dict[str, Any]) -> None:
    """Write the arrays to the output and the report beside it; delete the checkpoint of what converged."""
    target, checkpoint = options.output, options.checkpoint_file
    assert target is not None
    write_file(target, lambda stream: np.savez(stream, **arrays))
    write_json(target.with_suffix(".json"), report)
    if checkpoint is not None and report["converged"]:
        checkpoint.unlink(missing_ok=True)


@dataclass(frozen=True)
class Writes:
    """What a job writes: to the folder of `output`, from all ranks or rank 0 alone, bytes of all together."""

    output: Path
    by_all: bool = False
    size_bytes: int = 0


def check_outputs(world: Communicator, writes: Writes) -> None:
    """Refuse, on all ranks alike, a folder that a rank which is to write cannot use; collective."""
    folder, is_first = writes.output.parent, world.rank == 0
    probe = folder / f".{writes.output.name}.{world.broadcast_object(uuid4().hex[:8], 0)}"
    try:
        agree(world, lambda: _write_probe(probe) if is_first else None)
        agree(world, lambda: _check_folder(writes, probe) if is_first or writes.by_all else None)
    finally:
        if is_first:
            probe.unlink(missing_ok=True)
            unfinished.forget(probe)


def _write_probe(probe: Path) -> None:
    try:
        os.close(unfinished.open(probe))
    except OSError as error:
        raise InputError(
            f"{probe.parent} on {gethostname()}", f"cannot be written ({error.strerror})",
            "choose a folder that is writable",
            topic="files that cannot be written",
        ) from None  # fmt: skip


def _check_folder(writes: Writes, probe: Path) -> None:
    folder = f"{probe.parent} on {gethostname()}"
    # Directory entries of network file systems are cached for seconds, so that a file that rank 0
    # just made may not be seen here yet.
    for _ in range(LOOKS):
        if probe.exists():
            break
        sleep(APART_S)
    else:
        raise InputError(
            folder, "is not the folder that rank 0 writes to, and every rank is to write there",
            "choose a folder that all hosts share, or leave out checkpoints (--no-checkpoint) and shards",
            topic="checkpoints",
        )  # fmt: skip
    if not os.access(probe.parent, os.W_OK | os.X_OK):
        raise InputError(
            folder,
            "is not writable",
            "choose a folder that is writable on every host",
            topic="files that cannot be written",
        )
    free_bytes = disk_usage(probe.parent).free
    if free_bytes < writes.size_bytes:
        raise InputError(
            folder, f"has {size_text(free_bytes)} free, and {size_text(writes.size_bytes)} are to be written",
            "make room, or choose another folder",
        )  # fmt: skip


# The lock of an output.
#
# Invariant: the file belongs to this user and has no other name, no link is followed, and nothing but a lock
# is overwritten.


def lock_file(output: Path) -> Path:
    """The file whose lock stands for an output and its checkpoint."""
    return output.with_name(f".{output.name}.lock")


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Hold the lock of an output; InputError, which names the other run, where it is held."""
    path = lock_file(output)
    handle = _locked_file(path)
    try:
        yield
    finally:
        _release(handle, path)


def _locked_file(path: Path) -> int:
    """The open file with the lock."""
    for _ in range(ATTEMPTS):
        try:
            handle = _try_lock(path)
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise InputError(
                str(path), f"cannot be written ({error.strerror})",
                "free space there or choose another place" if is_full else "choose a folder that is writable",
                topic="files that cannot be written",
            ) from None  # fmt: skip
        if handle is not None:
            return handle
    raise InputError(str(path), "is replaced repeatedly by another process", "choose another --output")


def _try_lock(path: Path) -> int | None:
    """The open file with the lock; None where it is replaced or deleted meanwhile, as by a run that ends."""
    try:
        # O_EXCL first: who creates the file may have the lock even where the file system has no flock.
        # Otherwise the file that is there is opened, never through a link and never waiting on a pipe.
        handle, is_new = unfinished.open(path), True
    except FileExistsError:
        try:
            handle, is_new = os.open(path, os.O_RDWR | NO_LINK), False
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _not_a_lock(path, "is a link") from None
            raise
    # Invariant: the file is deleted only by who created or locked it. A refusal on the way closes
    # it and leaves it to its owner.
    mine = is_new
    try:
        if not is_new:
            _check_own(handle, path)
        mine = _is_locked(handle, path, is_new)
        if mine:
            _write_holder(handle)
            return handle
    except BaseException as error:
        if mine and not isinstance(error, InputError):
            _release(handle, path)
        else:
            os.close(handle)
        raise
    os.close(handle)
    return None


def _check_own(handle: int, path: Path) -> None:
    """Refuse what is no lock, or not this user's."""
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        raise _not_a_lock(path, "is not a file")
    if status.st_nlink > 1:
        raise _not_a_lock(path, "has a second name")
    if not own_user(status):
        raise _not_a_lock(path, "belongs to another user")
    if not BEGINS.startswith(read_first(handle, len(BEGINS))):
        raise _not_a_lock(path, "is not a lock of a run")


def _is_locked(handle: int, path: Path, is_new: bool) -> bool:
    """Lock an open file: False where another one is at its path by now, InputError where another run holds
    it."""
    try:
        lock_file_alone(handle)
    except OSError as error:
        has_locks = error.errno == errno.EWOULDBLOCK
        if is_new and not has_locks:
            return True
        unfinished.forget(path)
        holder = read_first(handle, LONGEST).decode(errors="replace")
        if has_locks:
            problem, remedy = "is used by another run", "wait for it, or choose another --output"
        else:
            problem = f"{HELD_OR_LEFT} has no locks"
            remedy = WHERE_OVER
        raise InputError(str(path), f"{problem} ({_holder_text(holder)})", remedy) from None
    if not is_new:
        _check_reach(handle, path)
    with suppress(FileNotFoundError):
        # A run that ended between our `open` and our `flock` deleted the file: the lock is then
        # on a file without a name, and another run may lock a new one at this path. Comparing
        # inodes after the lock shows that.
        if os.path.samestat(os.fstat(handle), os.lstat(path)):
            unfinished.add(path)
            return True
    unfinished.forget(path)
    return False


def _check_reach(handle: int, path: Path) -> None:
    """Refuse the lock of a run on another host, which this host's locks do not show."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    holder = read_first(handle, LONGEST).decode(errors="replace")
    host = _holder_text(holder).partition(" on ")[2]
    if host not in ("", gethostname()) and not locks_reach_hosts(mounts, os.fstat(handle).st_dev):
        problem = f"{HELD_OR_LEFT} has locks that work on one host only"
        raise InputError(str(path), f"{problem} ({_holder_text(holder)})", WHERE_OVER)


def locks_reach_hosts(mounts: str, device: int) -> bool:
    """Whether a lock on a file of this device (`st_dev`) is one on other hosts too.

    `mounts` are the lines of /proc/self/mountinfo. See nfs(5), and the options of Lustre and BeeGFS.
    """
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        head, _, rest = line.partition(" - ")
        if head.split()[2:3] == [number]:
            kind, _, options = rest.split(" ", 2)
            words = set(options.split(","))
            if kind.startswith("nfs"):
                return not words & {"nolock", "local_lock=all", "local_lock=flock"}
            return "flock" in words if kind == "lustre" else not kind.startswith(("fuse.", "9p", "beegfs"))
    return True


def _write_holder(handle: int) -> None:
    content = json.dumps({"host": gethostname(), "pid": os.getpid()}).encode()
    os.ftruncate(handle, 0)
    os.lseek(handle, 0, os.SEEK_SET)
    if os.write(handle, content) < len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _release(handle: int, path: Path) -> None:
    with suppress(OSError):
        path.unlink()
    unfinished.forget(path)
    os.close(handle)
    if sys.platform == "win32":
        # Windows deletes no file that is open. Between closing and deleting, another run may have made the
        # lock its own; then it is open again, and stays.
        with suppress(OSError):
            path.unlink()


def _not_a_lock(path: Path, problem: str) -> InputError:
    """The refusal of what may be another one's: it is left as it is."""
    return InputError(
        str(path), f"{problem}, but this name is needed for the lock of the output",
        "delete it if nobody needs it, or choose another --output",
    )  # fmt: skip


def _holder_text(holder: str) -> str:
    try:
        document = json.loads(holder)
        return f"process {int(document['pid'])} on {str(document['host'])[:80]}"
    except (ValueError, KeyError, TypeError):
        return "of an unknown process"
