"""Faults of every command at random moments, on one host and on two: how each ends, and what it leaves.

    python -m tests.support.robustness.campaign --seed 1 --count 400 > rows.jsonl

prints a line of JSON for each trial, and a table at the end as an error. The same seed makes the same trials.
`FAULTS` has a row for each kind of fault. Two hosts are namespaces of networks, made by root.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from uuid import uuid4

import numpy as np
import pytest

from tests.support.heeded_signals import heeded
from tests.support.mpirun import MPIRUN
from tests.support.robustness import faults
from tests.support.robustness.commands import COMMANDS, ON_RANKS, make_inputs
from tests.support.robustness.hosts import Cluster, cluster, why_no_hosts
from tests.support.root import ROOT

STOPPING = ("search", "execute", "sbd", "sbd-qubits", "sqd")
"""Commands that keep what they have at SIGTERM and SIGUSR1, and end with 143."""
LONGEST_S, GRACE_S, TIMEOUT_S = 60.0, 3.0, 5.0
"""Of a command beside its own time, of its processes after it, and the --timeout of ranks."""
MARK = "TNPLAN_TEST_TRIAL"
"""The variable that tells the processes of a trial from others."""
EARLY = re.compile(
    r"init_import_site|<frozen (runpy|importlib|site)(?!.*tnplan/cli).*KeyboardInterrupt", re.DOTALL
)
"""What Python says of an interrupt before the command has started."""
SAID = re.compile(r"tnplan: error: |rank \d+: ")
"""How lines of errors begin, those of a rank that ends the others too."""
SECONDS = re.compile(r"\d[\d.e-]* ?[mµ]?s\b")
"""Times in what a command prints, which no two runs share."""
OF_WORK = re.compile(r"/slices/resumed$|/measured/")
"""Places in a report of what the run itself did: less, where it went on from a checkpoint."""
ALWAYS = 1 << 40
ABANDONED = -1000
"""The status of a launcher that waits though no rank is at work."""
CALLS = ("open", "read", "write", "fsync", "rename", "unlink", "mkdir", "flock", "ftruncate", "close", "stat",
         "list")  # fmt: skip
"""The kinds of failing_calls.c, in its order."""


@dataclass(frozen=True)
class Fault:
    """A kind of fault: calls that fail, or what is done to a command, or to a job on two hosts."""

    name: str
    calls: tuple[str, ...] = ()
    code: int = 0
    in_caches: bool = False
    number: int = 0
    """Of a signal."""
    on_hosts: Callable[[Cluster, Random], object] | None = None


def _calls(name: str, *calls: str) -> Fault:
    return Fault(f"{name} in {', '.join(calls)}", calls, getattr(errno, name))


FAULTS = (
    _calls("ENOSPC", "open", "write", "fsync", "mkdir", "rename", "close", "ftruncate"),
    _calls("EDQUOT", "open", "write", "fsync", "mkdir", "close"),
    _calls("EIO", "open", "read", "write", "fsync", "rename", "unlink", "close", "stat", "list", "flock"),
    _calls("EACCES", "open", "rename", "unlink", "mkdir", "stat", "list"),
    _calls("EINTR", "open", "read", "write", "fsync", "flock"),
    _calls("ESTALE", "open", "read", "write", "stat", "flock"),
    _calls("EMFILE", "open", "list"),
    _calls("EROFS", "open", "rename", "unlink", "mkdir"),
    _calls("ENOLCK", "flock"),
    _calls("EOPNOTSUPP", "flock", "fsync"),
    Fault("half of a write", ("write",)),
    *(Fault(f"{name} in the caches", ("open", "read", "write", "rename", "flock", "stat", "mkdir", "close"),
            getattr(errno, name), in_caches=True) for name in ("ENOSPC", "EIO", "EACCES", "ENOLCK")),
    *(Fault(name, number=signal.Signals[name])
      for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGKILL")),
    Fault("kill -9 of a rank", on_hosts=faults.kill_rank),
    Fault("SIGSTOP of a rank", on_hosts=faults.stop_rank),
    Fault("kill -9 of the launcher's daemon", on_hosts=faults.kill_daemon),
    Fault("a link that is down", on_hosts=faults.cut),
    Fault("a host that is lost", on_hosts=faults.lose_host),
    Fault("Ctrl-C at the launcher", on_hosts=faults.interrupt),
    Fault("SIGTERM of the launcher", on_hosts=faults.terminate),
    Fault("SIGTERM of all ranks", on_hosts=faults.stop_ranks),
    Fault("SIGUSR1 of all ranks", on_hosts=faults.warn_ranks),
)  # fmt: skip


@dataclass(frozen=True)
class Whole:
    """What a command does without a fault: its seconds, calls of each rank by kind, and its outputs' content.

    Of outputs and of standard output, what two runs agree on is kept.
    """

    seconds: float
    calls: np.ndarray
    outputs: dict[str, dict[str, object]]
    said: str | None
    files: dict[str, bytes]


@dataclass(frozen=True)
class Outcome:
    """How a command ended with a fault, and what is wrong with it; nothing where `wrong` is empty."""

    number: int
    command: str
    hosts: int
    fault: str
    moment: str
    has_met: bool
    """Whether the command came to the fault."""
    status: int | None
    seconds: float
    said: str
    wrong: list[str] = field(default_factory=list)


@cache
def why_no_calls() -> str:
    """Why no calls can be made to fail here; empty where they can."""
    return "" if sys.platform == "linux" and shutil.which("gcc") else "needs Linux and gcc"


needs_failing_calls = pytest.mark.skipif(bool(why_no_calls()), reason=why_no_calls() or "calls can fail")


def built_failing_calls(folder: Path) -> Path:
    """The library that makes calls fail, built in a folder."""
    source, library = Path(__file__).with_name("failing_calls.c"), folder / "failing.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


class Campaign:
    """Trials by number, all on two hosts or some: `folder` is for inputs, caches and all that is written."""

    def __init__(
        self, folder: Path, seed: int = 0, command: str = "", fault: str = "", two_hosts: bool = False
    ) -> None:
        self.folder, self.seed, self.two_hosts = folder, seed, two_hosts
        self.lines = [line for line in (ON_RANKS if two_hosts else COMMANDS) if command in line]
        self.faults = [row for row in FAULTS if fault in row.name and not (row.calls and why_no_calls())
                       and not (two_hosts and row.number)]  # fmt: skip
        self.has_hosts = MPIRUN is not None and not why_no_hosts()
        self.inputs, self.caches, self.library = folder / "inputs", folder / "caches", folder
        if not self.inputs.exists():
            self.inputs.mkdir()
            make_inputs(self.inputs)
        self.caches.mkdir(mode=0o700, exist_ok=True)
        if not why_no_calls():
            self.library = built_failing_calls(folder)
        self._whole: dict[tuple[str, int], Whole] = {}

    def whole(self, line: str, hosts: int) -> Whole:
        """The command without a fault, on this many hosts."""
        if (line, hosts) not in self._whole:
            runs = []  # the first one compiles kernels
            for _ in range(2):
                run = _Run(self, line, hosts, None)
                status, out, err = run.ended()
                assert status in (0, 1), (line, hosts, status, err)
                made = {name: run.read(name) for name in run.made()}
                runs.append((run.seconds, run.counts(), made, out, run.contents()))
            (_, _, first, out, _), (seconds, counts, second, again, files) = runs
            # What a search comes to depends on its time, and a report searches.
            timed = line.startswith(("search", "report"))
            agreed = {
                name: {key: value for key, value in content.items()
                       if not timed and _equal(value, first[name].get(key))}
                for name, content in second.items() if name in first
            }  # fmt: skip
            said = None if timed or out != again else out
            self._whole[line, hosts] = Whole(seconds, counts, agreed, said, files)
        return self._whole[line, hosts]

    def trial(self, number: int) -> Outcome:
        """One fault of one command: the same for the same seed and number."""
        random = Random(f"{self.seed} {number}")
        line, row = self.lines[number % len(self.lines)], random.choice(self.faults)
        on_ranks = line.replace("one.json", "two.json")
        may_spread, share = self.has_hosts and on_ranks in ON_RANKS, 1.0 if self.two_hosts else 0.5
        if row.on_hosts and not may_spread:
            row = random.choice([row for row in self.faults if not row.on_hosts])
        hosts = 2 if row.on_hosts or (may_spread and not row.number and random.random() < share) else 1
        line = on_ranks if hosts == 2 else line
        whole = self.whole(line, hosts)
        is_there = random.random() < 0.5
        if row.calls:
            rank = random.randrange(hosts)
            kinds = [kind for kind in row.calls if row.in_caches or whole.calls[rank, CALLS.index(kind)]]
            if kinds:
                fault = replace(row, calls=(random.choice(kinds),))
                return self._with_calls(number, line, rank if hosts == 2 else None, fault, random, is_there)
            others = [row for row in self.faults if (row.on_hosts if self.two_hosts else row.number)]
            row = random.choice(others)
            if row.number:
                hosts, line = 1, self.lines[number % len(self.lines)]
        after_s = random.choice((random.uniform(0, 0.1), random.uniform(0, 1), random.uniform(0.9, 1.05)))
        run = _Run(self, line, hosts, None, whole.files if is_there else {})
        job = run.started()
        with suppress(subprocess.TimeoutExpired):
            job.wait(after_s * self.whole(line, hosts).seconds)
        is_met = job.poll() is None
        if row.on_hosts is not None and is_met:
            assert run.hosts is not None
            try:
                row.on_hosts(run.hosts, random)
            except (IndexError, ProcessLookupError, FileNotFoundError):  # no rank is there, yet or any more
                is_met = False
        elif is_met:
            with suppress(ProcessLookupError):
                job.send_signal(row.number)
        return self._outcome(number, row, f"{after_s:.2f}", run, lambda: is_met, is_there)

    def _with_calls(
        self, number: int, line: str, rank: int | None, row: Fault, random: Random, is_there: bool
    ) -> Outcome:
        """The call of `row` fails, on one host or on a rank of two."""
        hosts, (kind,) = 1 if rank is None else 2, row.calls
        most = int(self.whole(line, hosts).calls[rank or 0, CALLS.index(kind)])
        first = random.randint(1, 3 if row.in_caches else most)
        times = random.choice((1, 1, 3 if row.code == errno.EINTR else ALWAYS))
        settings = {
            "FAULT_CALL": kind, "FAULT_ERRNO": str(row.code), "FAULT_FIRST": str(first),
            "FAULT_TIMES": str(times), **({} if rank is None else {"FAULT_RANK": str(rank)}),
        }  # fmt: skip
        files = self.whole(line, hosts).files if is_there else {}
        run = _Run(self, line, hosts, settings, files, random if row.in_caches else None)
        run.started()
        moment = f"{kind} {first} of {most}{'' if times == 1 else ' and after'}"
        moment += "" if rank is None else f" of rank {rank}"
        place = rank or 0, CALLS.index(kind)
        return self._outcome(number, row, moment, run, lambda: run.counts()[place] >= first, is_there)

    def _outcome(
        self, number: int, row: Fault, moment: str, run: _Run, has_met: Callable[[], bool], is_there: bool
    ) -> Outcome:
        whole, begin_s = self.whole(run.line, run.n_hosts), time.monotonic()
        limit_s = LONGEST_S if row.on_hosts is None else LONGEST_S / 3
        status, out, err = run.ended(whole.seconds + limit_s)
        seconds = time.monotonic() - begin_s
        met = bool(has_met())
        wrong = list(_wrong(row, run, whole, (status, out, err), met, is_there))
        # A rank that fails alone has MPI kill the others, which may leave the lock of the output.
        is_killed = row.number == signal.SIGKILL or (run.n_hosts > 1 and bool(run.hidden()))
        if is_killed and not wrong:
            # What a killed command leaves is in nobody's way; from a checkpoint it goes on.
            resumed = " --resume" if any(".ckpt" in name for name in run.made()) else ""
            again = _Run(self, run.line + resumed, run.n_hosts, None, run.contents())
            status_again, _, err_again = again.ended()
            differing = {name: [place for place in again.differs(name, whole) if not OF_WORK.match(place)]
                         for name in whole.outputs}  # fmt: skip
            if status_again not in (0, 1) or any(differing.values()):
                wrong.append(f"does not work afterwards: status {status_again}, {differing}: {err_again}")
        lines = err.strip().splitlines() or [""]
        said = next((text for text in lines if text.startswith("tnplan: error")), lines[-1])
        if wrong:
            said = err[-2000:]
        return Outcome(
            number, run.line, run.n_hosts, row.name, moment, met, status, round(seconds, 2),
            said[-2000:], wrong,
        )  # fmt: skip


class _Run:
    """A command in a folder of its own, on one host or two."""

    def __init__(
        self, campaign: Campaign, line: str, hosts: int, settings: dict[str, str] | None,
        files: dict[str, bytes] | None = None, cold: Random | None = None,
    ) -> None:  # fmt: skip
        self.line, self.n_hosts, self.campaign = line, hosts, campaign
        self._stack = ExitStack()
        made = Path(self._stack.enter_context(TemporaryDirectory(dir=campaign.folder)))
        self.folder, self._counts, self.mark = made / "work", made / "counts", uuid4().hex
        shutil.copytree(campaign.inputs, self.folder, copy_function=os.link)
        self._before = set(self._names())
        for name, content in (files or {}).items():
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_bytes(content)
        self.former = files or {}
        caches = campaign.caches
        if cold is not None:
            caches = made / "caches"
            shutil.copytree(campaign.caches, caches, copy_function=os.link)
            entries = sorted(path for path in caches.rglob("*") if path.is_file())
            for path in cold.sample(entries, min(2, len(entries))):
                path.unlink()
        self._counts.write_bytes(bytes(8 * len(CALLS) * (hosts + 1)))
        below = self.folder if cold is None else caches
        preload = {"LD_PRELOAD": str(campaign.library), "FAULT_COUNTS": str(self._counts),
                   "FAULT_FOLDER": str(below)}  # fmt: skip
        self.environment = {
            "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", "TNPLAN_CACHE_DIR": str(caches), MARK: self.mark,
            **({} if why_no_calls() else preload), **(settings or {}),
        }  # fmt: skip
        self.hosts: Cluster | None = None
        self._job: subprocess.Popen[str] | None = None
        self._begin_s = 0.0
        self.seconds = 0.0
        """From the start to the end, without the making of hosts."""

    def started(self) -> subprocess.Popen[str]:
        """The process of the command, or of its launcher."""
        arguments = ["-m", "tnplan", *self.line.split()]
        if self.n_hosts > 1:
            within = self.folder.parent / "hosts"
            within.mkdir()
            self.hosts = self._stack.enter_context(cluster(self.n_hosts, within))
            self._job = self.hosts.mpirun(
                1, [*arguments, "--timeout", str(TIMEOUT_S)], cwd=self.folder, **self.environment
            )
        else:
            with heeded(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
                self._job = subprocess.Popen(
                    [sys.executable, *arguments], cwd=self.folder, stdout=subprocess.PIPE, text=True,
                    stderr=subprocess.PIPE, start_new_session=True, env={**os.environ, **self.environment},
                )  # fmt: skip
        self._begin_s = time.monotonic()
        return self._job

    def ended(self, limit_s: float = 600.0) -> tuple[int | None, str, str]:
        """Status, output and errors; the status is None where it did not end in time."""
        job = self._job or self.started()
        try:
            out, err = job.communicate(timeout=limit_s)
            status: int | None = job.returncode
            self.seconds = time.monotonic() - self._begin_s
        except subprocess.TimeoutExpired:
            states = [_state(process) for process in marked(self.mark)]
            os.killpg(job.pid, signal.SIGKILL)
            (out, err), status = job.communicate(), None
            # A launcher that waits for a stopped rank or a lost host when the job is done is on its own.
            if not any("python" in state and not state.endswith("T") for state in states):
                status = ABANDONED
            err += f"still there: {' '.join(states)}"
        end_s = time.monotonic() + GRACE_S + (TIMEOUT_S if self.n_hosts > 1 else 0.0)
        while marked(self.mark) and time.monotonic() < end_s:
            time.sleep(0.02)
        left = marked(self.mark)
        # On a host that is out of reach MPICH's own daemon goes on; ranks do not.
        ours = [process for process in left if self.n_hosts == 1 or "python" in _state(process)]
        self.children = 0 if status == ABANDONED else len(ours)
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._files = {name: (self.folder / name).read_bytes() for name in self.made()}
        self._read = {name: _content(self.folder / name) for name in self._files}
        found = np.fromfile(self._counts, np.int64).reshape(-1, len(CALLS))
        self._found = found[:1] if self.n_hosts == 1 else found[1:]
        self._stack.close()
        return status, SECONDS.sub("", out), err

    def _names(self) -> Iterator[str]:
        return (str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file())

    def made(self) -> list[str]:
        """The names of the files that were not among the inputs."""
        if not self.folder.exists():
            return sorted(self._files)
        return sorted(set(self._names()) - self._before)

    def hidden(self) -> list[str]:
        """Those of them that are temporary: with a name, or in a folder, that begins with a point."""
        return [name for name in self.made() if any(part.startswith(".") for part in Path(name).parts)]

    def contents(self) -> dict[str, bytes]:
        """The bytes of these files."""
        return self._files

    def read(self, name: str) -> dict[str, object]:
        """The values of one of them."""
        return self._read[name]

    def differs(self, name: str, whole: Whole) -> list[str]:
        """Where an output is not that of a run without a fault; nowhere: empty."""
        found, expected = self._read.get(name), whole.outputs[name]
        if found is None or "damaged" in found:
            return ["missing" if found is None else "damaged"]
        return [key for key, value in expected.items() if not _equal(found.get(key), value)]

    def counts(self) -> np.ndarray:
        """How often each rank made each kind of call."""
        return self._found


def _wrong(
    row: Fault, run: _Run, whole: Whole, ended: tuple[int | None, str, str], has_met: bool, is_there: bool
) -> Iterator[str]:
    """What is wrong with how a command ended."""
    status, out, err = ended
    if status is None or (status == ABANDONED and not row.on_hosts):
        yield "hangs"
    if "Traceback" in err and not EARLY.search(err):
        yield "a traceback"
    yield from _wrong_status(row, run, status, err, has_met)
    made, is_done = run.made(), status == 0
    hidden = run.hidden()
    # A file that cannot be deleted stays, and nobody is left to delete those of a killed process.
    is_killed = run.n_hosts > 1 and "Abort(" in err and all(name.endswith(".lock") for name in hidden)
    is_killed |= row.number == signal.SIGKILL or row.on_hosts is not None
    if hidden and not is_killed and row.calls[:1] != ("unlink",):
        yield f"leaves {hidden}"
    if run.children:
        yield f"leaves {run.children} processes"
    for name in whole.outputs:
        is_former = is_there and run.contents().get(name) == run.former.get(name)
        places = run.differs(name, whole)
        if places and not (not is_done and (name not in made or is_former)):
            yield f"{name} is not whole: {', '.join(places)}"
    if status == 0 and whole.said is not None and out != whole.said and row.number == 0:
        yield "says something else"


def _wrong_status(row: Fault, run: _Run, status: int | None, err: str, has_met: bool) -> Iterator[str]:
    said = [line for line in err.splitlines() if SAID.match(line)]
    if row.number:
        allowed = {0, -row.number, 128 + row.number}
        if run.line.split()[0] in STOPPING and row.number in (signal.SIGTERM, signal.SIGUSR1):
            allowed.add(143)
        if status not in allowed and not EARLY.search(err):
            yield f"status {status}"
    elif row.on_hosts is None:
        if row.in_caches and status not in (0, 1):
            yield f"status {status} for caches, which are to save time alone"
        # On ranks, each may say what it met, and the launcher that they ended.
        if status and (len(said) != 1 if run.n_hosts == 1 else not said):
            yield f"{len(said)} lines of errors"
        if any("; " not in line for line in said):
            yield "no remedy"
        if status and not has_met:
            yield f"status {status} without a fault"


def _content(path: Path) -> dict[str, object]:
    """The values of a file by name: of arrays and of JSON; of another, its bytes."""
    content = path.read_bytes()
    try:
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                return {name: arrays[name] for name in arrays.files}
        if path.suffix == ".npy":
            return {"": np.load(path)}
        if path.suffix == ".json":
            return dict(_leaves(json.loads(content), ""))
    except (ValueError, OSError, KeyError, EOFError) as error:
        return {"damaged": str(error)}
    return {"": content, "is empty": not content}


def _leaves(value: object, place: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _leaves(entry, f"{place}/{key}")
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _leaves(entry, f"{place}/{number}")
    else:
        yield place, value


def _equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and (
            np.allclose(a, b, 1e-6, 1e-8) if a.dtype.kind in "fc" else np.array_equal(a, b)
        )
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-6 * max(abs(a), abs(b)) + 1e-9
    return type(a) is type(b) and a == b


def _state(process: int) -> str:
    """Name and state of a process."""
    try:
        return " ".join(Path(f"/proc/{process}/stat").read_text().split()[1:3])
    except OSError:
        return ""


def marked(mark: str) -> list[int]:
    """The processes with a mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def table(outcomes: list[Outcome]) -> str:
    """A row for each kind of fault, in Markdown."""
    lines = ["| fault | times | met | on two hosts | refused or ended | done | wrong |", "|" + "---|" * 7]
    for row in FAULTS:
        ours = [outcome for outcome in outcomes if outcome.fault == row.name]
        done = sum(outcome.status == 0 for outcome in ours)
        numbers = (
            len(ours), sum(outcome.has_met for outcome in ours), sum(o.hosts == 2 for o in ours),
            len(ours) - done, done, sum(bool(outcome.wrong) for outcome in ours),
        )  # fmt: skip
        lines.append(f"| {row.name} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first trial")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--command", default="", help="only commands with this in their line")
    parser.add_argument("--fault", default="", help="only kinds of faults with this in their name")
    parser.add_argument("--folder", type=Path, help="keeps inputs and caches for the next campaign")
    parser.add_argument("--two-hosts", action="store_true", help="only commands of ranks, all on two hosts")
    arguments = parser.parse_args()
    outcomes = []
    with nullcontext(arguments.folder) if arguments.folder else TemporaryDirectory() as made:
        options = arguments.seed, arguments.command, arguments.fault, arguments.two_hosts
        campaign = Campaign(Path(made), *options)
        for number in range(arguments.first, arguments.first + arguments.count):
            outcomes.append(campaign.trial(number))
            print(json.dumps(asdict(outcomes[-1])), flush=True)
    print(table(outcomes), Counter(o.command.split()[0] for o in outcomes), file=sys.stderr)


if __name__ == "__main__":
    _main()
