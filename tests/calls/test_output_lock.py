"""The lock of an output: held by one run alone, and gone with the process that held it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from socket import gethostname
from typing import Any

import pytest

from tests.support.root import ROOT
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.jobs import outputs
from tnplan.jobs.outputs import Writes, check_outputs, lock_file, locked, locks_reach_hosts

HOLD = """
import sys, time
from pathlib import Path
from tnplan.jobs.outputs import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_run_is_refused_and_a_killed_one_forgotten(tmp_path: Path) -> None:
    output = tmp_path / "r.npy"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(output)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(InputError, match=f"is used by another run .process {holder.pid} on"), locked(output):
        pass
    holder.kill()
    holder.communicate()
    assert lock_file(output).exists()
    with locked(output):
        time.sleep(0)
    assert list(tmp_path.iterdir()) == []


def test_a_run_in_this_process_is_another_one(tmp_path: Path) -> None:
    with locked(tmp_path / "r"), pytest.raises(InputError, match="used by another"), locked(tmp_path / "r"):
        pass
    with locked(tmp_path / "r"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_outputs_without_room_are_refused_by_all_ranks(tmp_path: Path) -> None:
    writes = Writes(tmp_path / "r.npy", by_all=True, size_bytes=1 << 60)
    for asked, fits in ((writes, False), (Writes(tmp_path / "r.npy", by_all=True, size_bytes=1), True)):

        def refusal(world, asked=asked):  # type: ignore[no-untyped-def]
            try:
                check_outputs(world, asked)
            except InputError as error:
                return str(error)
            return ""

        said = run_ranks(3, refusal)
        assert len({*said}) == 1
        assert fits == (said[0] == ""), said
        assert fits or "are to be written" in said[0]
        assert list(tmp_path.iterdir()) == []


CALLS = ("open", "ftruncate", "pwrite", "fstat", "flock")
ERRORS = (
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG, errno.ESTALE,
    errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENOENT, errno.ENAMETOOLONG,
)  # fmt: skip
MOST_CALLS = 1000
"""A lock that calls the system more often goes on for ever."""


class EndlessError(BaseException):
    """A call that is made again and again."""


@pytest.mark.parametrize("number", range(len(CALLS) * len(ERRORS)))
def test_a_file_system_that_fails_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """From some moment on every call of one kind fails, whatever was there before."""
    random, output = Random(number), tmp_path / "r"
    name, code = CALLS[number % len(CALLS)], ERRORS[number // len(CALLS)]
    module: Any = fcntl if name == "flock" else os
    call, calls, good = getattr(module, name), 0, random.choice((0, 0, 1))

    def failing(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > MOST_CALLS:
            raise EndlessError
        if calls > good:
            raise OSError(code, os.strerror(code))
        return call(*arguments, **named)

    if random.random() < 0.5:
        lock_file(output).write_bytes(random.choice((b"", b'{"host": "gone", "pid": 1}')))
    before = lock_file(output).exists()
    held, said = False, ""
    with monkeypatch.context() as patch:
        patch.setattr(module, name, failing)
        try:
            with locked(output):
                held = True
        except InputError as refusal:
            said = str(refusal)
    assert held or said.startswith(f"{lock_file(output)}: "), said
    assert ("free space" in said) <= (code in (errno.ENOSPC, errno.EDQUOT)), said
    # Nothing is left but what was there before and could not be locked.
    left = [path.name for path in tmp_path.iterdir()]
    assert left in ([], [lock_file(output).name] if before and not held else []), left
    if not left:
        with locked(output):
            pass
        assert list(tmp_path.iterdir()) == []


def test_a_full_disk_ends_a_command_in_one_line(tmp_path: Path) -> None:
    """Of any file here the first byte is one too many, as on a full disk."""
    (tmp_path / "c.qsim").write_text("2\n0 h 0\n1 cz 0 1\n")
    line = "statevector c.qsim --observable Z1 --device cpu -o r.json"
    done = subprocess.run(
        ["sh", "-c", f"ulimit -f 0; exec {sys.executable} -m tnplan {line}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert said.startswith("tnplan: error: .r.json.lock: cannot be written (File too large); ")
    assert [path.name for path in tmp_path.iterdir()] == ["c.qsim"]


def test_without_locks_of_the_file_system_the_file_is_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(handle: int, what: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(fcntl, "flock", none)
    output = tmp_path / "r"
    mine = f"no locks .process {os.getpid()} on"
    with locked(output), pytest.raises(InputError, match=mine), locked(output):
        pass
    lock_file(output).write_text('{"host": "gone", "pid": 7}')
    left = r"left by a killed run.*process 7 on gone.*delete it"
    with pytest.raises(InputError, match=left), locked(output):
        pass
    lock_file(output).unlink()
    with locked(output):
        pass
    assert list(tmp_path.iterdir()) == []


MOUNT = "36 35 0:53 / /data rw,noatime shared:1 - {} server:/data rw,{}\n"
REACH = {
    ("nfs4", "vers=4.2,local_lock=none"): True, ("nfs", "vers=3,nolock"): False,
    ("nfs", "local_lock=all"): False,
    ("nfs", "local_lock=posix"): True, ("lustre", "flock,lazystatfs"): True, ("lustre", "localflock"): False,
    ("beegfs", "cfgFile=x"): False, ("fuse.sshfs", "user_id=0"): False, ("fuseblk", "user_id=0"): True,
    ("ext4", "errors=continue"): True, ("gpfs", "dev=x"): True,
}  # fmt: skip
"""Kinds of file systems with options, and whether their locks are those of all hosts."""


@pytest.mark.parametrize(("kind", "options"), REACH)
def test_file_systems_whose_locks_end_at_a_host_are_known(kind: str, options: str) -> None:
    other = MOUNT.replace("0:53", "0:5").format("nfs", "nolock")
    mounts = other + MOUNT.format(kind, options) + other.replace("0:5 ", "1:53 ")
    assert locks_reach_hosts(mounts, os.makedev(0, 53)) == REACH[kind, options]
    assert locks_reach_hosts(mounts, os.makedev(7, 7))


def test_a_run_on_another_host_is_not_overwritten_where_locks_end_at_a_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, output = lock_file(tmp_path / "r"), tmp_path / "r"
    left = '{"host": "other", "pid": 7}'
    for reach in (False, True):
        monkeypatch.setattr(outputs, "locks_reach_hosts", lambda *mounts, reach=reach: reach)
        path.write_text(left)
        if reach:
            with locked(output):
                pass
            assert not path.exists()
        else:
            says = r"locks that work on one host only .process 7 on other.; delete it if that run has ended"
            with pytest.raises(InputError, match=says), locked(output):
                pass
            assert path.read_text() == left
        path.write_text(json.dumps({"host": gethostname(), "pid": 7}))
        with locked(output):
            pass


def planted(kind: str, place: Path, precious: Path) -> None:
    """Put something at the place of a lock."""
    if kind == "link":
        place.symlink_to(precious.name)
    elif kind == "link to nothing":
        place.symlink_to("nothing")
    elif kind == "hard link":
        os.link(precious, place)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "file of others":
        place.write_text('{"host": "gone", "pid": 1}')
        os.chown(place, 65534, -1)
    else:
        place.write_text("notes of mine")


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("link", "is a link"), ("link to nothing", "is a link"), ("hard link", "has a second name"),
        ("pipe", "is not a file"), ("folder", "Is a directory"), ("file", "is not a lock of a run"),
        pytest.param(
            "file of others", "belongs to another user",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away"),
        ),
    ],
)  # fmt: skip
def test_what_is_no_own_lock_is_left_as_it_is(tmp_path: Path, kind: str, says: str) -> None:
    precious, output = tmp_path / "precious", tmp_path / "r"
    precious.write_text("precious")
    planted(kind, lock_file(output), precious)
    before = sorted((path.name, path.lstat()) for path in tmp_path.iterdir())
    with pytest.raises(InputError, match=says), locked(output):
        pass
    assert precious.read_text() == "precious"
    after = sorted((path.name, path.lstat()) for path in tmp_path.iterdir())
    assert [(name, s.st_ino, s.st_size, s.st_mtime_ns) for name, s in after] == [
        (name, s.st_ino, s.st_size, s.st_mtime_ns) for name, s in before
    ]
