"""Signals end a command at once, whatever it does, and leave no temporary file, no lock and no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest

from tests.support.engines.sbd import fcidump_text, random_integrals
from tests.support.heeded_signals import heeded
from tests.support.robustness.campaign import MARK, marked
from tests.support.root import ROOT
from tests.support.slow import slow_after
from tnplan.calls import diagonalize as diagonalize_job
from tnplan.calls.diagonalize import diagonalize
from tnplan.cli.main import ENDING
from tnplan.executor.sbd.selected_ci import grow
from tnplan.executor.sbd.selected_ci.growth import Growth

LIMIT_S = 60.0
"""Of what takes milliseconds where the machine is idle."""
WRITE = """
from pathlib import Path
from tests.support.robustness.blocked import block
from tnplan.jobs.outputs import locked
from tnplan.cli.main import end_by_signals
from tnplan.common.files import write_file

def half(stream):
    stream.write(b"half")
    stream.flush()
    block()

end_by_signals()
with locked(Path("r")):
    write_file("r", half)
"""
LISTEN = """
import sys
from contextlib import nullcontext
from pathlib import Path
from time import sleep
from tests.support.robustness.blocked import block
from tnplan.cli.main import end_by_signals
from tnplan.executor.device.protocols.stop_signal import asked, keeping, listening

end_by_signals()
with listening(Path("r.ckpt")):
    if sys.argv[1] == "keeping":
        with keeping():
            print("blocked", flush=True)
            while not asked():
                sleep(0.01)
            Path("r.ckpt").touch()
            print("kept", flush=True)
    block()
"""
PARENT = """
import os, signal, sys
from tnplan.common.kernels.ahead import python
print(python("tests.support.robustness.child").pid, flush=True)
sys.stdin.readline()
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    with heeded(signal.SIGINT, *ENDING):
        yield


def started(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    """Python in the folder, once it says that it is blocked."""
    begun = subprocess.Popen(
        [sys.executable, *map(str, arguments)], cwd=folder, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert begun.stdout is not None
    for line in begun.stdout:
        if line == "blocked\n":
            return begun
    raise AssertionError(begun.communicate()[1])


def ended(begun: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str, str]:
    """The status, what is printed and what is said as an error after a signal."""
    begun.send_signal(number)
    try:
        out, err = begun.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        begun.kill()
        out, err = begun.communicate()
    return begun.returncode, out, err


@pytest.mark.parametrize("number", slow_after(2, [signal.SIGINT, *ENDING]))
def test_a_command_that_writes_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    begun = started(tmp_path, "-c", WRITE)
    assert len([*tmp_path.iterdir()]) == 2, "a lock and a temporary file"
    # Python itself ends by an interrupt that comes before the kernel begins.
    assert ended(begun, number)[0] in (128 + number, -number)
    assert [*tmp_path.iterdir()] == []


def test_what_a_starter_has_a_command_ignore_is_ignored(tmp_path: Path) -> None:
    ignored = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    begun = started(tmp_path, "-c", ignored + WRITE)
    begun.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert begun.poll() is None
    assert ended(begun, signal.SIGTERM)[0] == 143


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_job_that_has_nothing_to_keep_stops_at_once(
    tmp_path: Path, number: signal.Signals, has_checkpoint: bool
) -> None:
    if has_checkpoint:
        (tmp_path / "r.ckpt").touch()
    status, _, err = ended(started(tmp_path, "-c", LISTEN, "blocked"), number)
    how = "with a checkpoint; continue with --resume" if has_checkpoint else "before it had a checkpoint"
    assert (status, err) == (143, f"tnplan: error: stopped for {number.name}, {how}\n")


def test_a_signal_while_files_are_made_is_heard(tmp_path: Path) -> None:
    """Its handler may interrupt Python anywhere, also where it holds the lock of unfinished files."""
    files = "from tnplan.common.files import unfinished\n"
    loop = "    print('blocked', flush=True)\n    while True:\n        unfinished.forget(Path('x'))\n"
    for _ in range(10):
        begun = started(tmp_path, "-c", files + LISTEN.replace("    block()\n", loop), "busy")
        status, _, err = ended(begun, signal.SIGTERM)
        assert (status, err) == (143, "tnplan: error: stopped for SIGTERM, before it had a checkpoint\n")


def test_a_job_that_keeps_what_it_has_stops_after_that(tmp_path: Path) -> None:
    status, out, err = ended(started(tmp_path, "-c", LISTEN, "keeping"), signal.SIGUSR1)
    assert (status, out) == (143, "kept\n")
    assert "with a checkpoint" in err


PHASES = (
    (grow, "select", True), (grow, "solve", False), (grow, "select", False), (grow, "second_order", False),
    (grow, "second_order", True), (grow, "solve", True), (grow, "set_up_solve", True),
    (diagonalize_job, "_hand_over", True),
)  # fmt: skip
"""Functions that a growth calls, and whether it is stopped in the last call, or in the first."""


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float, dict[str, int]]:
    """Integrals, the energy that a growth comes to, and how often it calls the functions of `PHASES`."""
    folder = tmp_path_factory.mktemp("grown")
    (folder / "h.fcidump").write_text(fcidump_text(random_integrals(6, 3, 3, 5)))
    with ExitStack() as patches:
        counted = {
            name: patches.enter_context(patch.object(module, name, wraps=getattr(module, name)))
            for module, name in {(module, name) for module, name, _ in PHASES}
        }
        whole = diagonalize(
            folder / "h.fcidump", grow=Growth(), device="cpu", threads=1, output=folder / "g.npz"
        )
        calls = {name: of.call_count for name, of in counted.items()}
    return folder / "h.fcidump", float(whole.energies[0]), calls


@pytest.mark.parametrize("phase", slow_after(2, PHASES))
def test_a_growth_stops_in_every_phase_and_goes_on(
    tmp_path: Path, grown: tuple[Path, float, dict[str, int]], phase: tuple[ModuleType, str, bool]
) -> None:
    """In its first calls a growth tries starts, and has no checkpoint."""
    (integrals, energy, calls), (module, name, is_last) = grown, phase
    place = (module.__name__, name, str(calls[name] - 1 if is_last else 0))
    line = ["sbd", integrals, "--grow", *["--device", "cpu", "--threads", "1", "-o", "g.npz"]]
    begun = started(tmp_path, ROOT / "tests/support/robustness/blocked.py", *place, *line)
    status, _, err = ended(begun, signal.SIGUSR1)
    is_kept = (tmp_path / "g.npz.ckpt").exists()
    assert is_kept == is_last
    assert status == 143
    assert ("continue with --resume" if is_kept else "before it had a checkpoint") in err
    assert {path.name for path in tmp_path.iterdir()} <= {"g.npz.ckpt"}
    resumed = diagonalize(
        integrals, grow=Growth(), device="cpu", threads=1, output=tmp_path / "g.npz", resume=True
    )
    assert resumed.energies[0] == pytest.approx(energy, abs=1e-8)


def is_alive(process: int) -> bool:
    """Whether a process runs; one that waits to be counted has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("how", ["killed", "done"])
def test_processes_that_compile_end_with_a_parent_that_is_killed(tmp_path: Path, how: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(1.0)
    assert is_alive(child)
    parent.communicate("\n")
    end_s = time.monotonic() + (LIMIT_S if how == "killed" else 2.0)
    while is_alive(child) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert is_alive(child) == (how == "done")
    if how == "done":
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_warmup_takes_its_processes_along(tmp_path: Path, number: signal.Signals) -> None:
    mark = tmp_path.name + number.name
    begun = subprocess.Popen(
        [sys.executable, "-m", "tnplan", "warmup", "--device", "cpu"], stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TNPLAN_CACHE_DIR": str(tmp_path), MARK: mark},
    )  # fmt: skip
    end_s = time.monotonic() + LIMIT_S
    while len(begun_by := marked(mark)) < 2 and time.monotonic() < end_s:
        time.sleep(0.05)
    assert len(begun_by) >= 2
    begun.send_signal(number)
    assert begun.wait(LIMIT_S) == 128 + number
    end_s = time.monotonic() + LIMIT_S
    while marked(mark) and time.monotonic() < end_s:
        time.sleep(0.05)
    left = marked(mark)
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert left == []
