"""Signals to commands at random moments: how each ends, and what it leaves.

As a script: `python -m tests.support.robustness.signals FIRST STOP` prints a line of JSON for each trial with
these numbers.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from uuid import uuid4

import numpy as np

from tests.support.engines.sbd import fcidump_text, lines_of, random_integrals, some_strings
from tests.support.robustness.good_files import make_files
from tests.support.root import ROOT

CPU = "--device cpu --threads 1"
COMMANDS = (
    "network c.qasm -o out.json",
    "workload sycamore --cycles 12 -o out.json",
    "search wide.json --max-tensor 2^20 --time 6 --resume -o out.json",
    "search wide.json --max-tensor 2^20 --method greedy --time 4 -o out.json",
    "plan path.json -o out.json",
    "show one.json --plot out.svg",
    f"execute one.json {CPU} -o out.npy",
    "report path.json --devices 1,2 --hardware h.toml --html out.html",
    f"amplitudes big.qsim --file strings.txt {CPU} -o out.json",
    f"sample big.qsim --shots 100 {CPU} -o out.json",
    f"expectation c.qsim --file o.txt --method pauli {CPU} -o out.json",
    f"probabilities big.qsim --qubits 0,1,2 {CPU} -o out.json",
    f"reduced-density-matrix big.qsim --qubits 0,1 {CPU} -o out.json",
    f"overlap big.qsim big.qsim {CPU} -o out.json",
    f"trace c.qsim --a Z0 --b Z0 {CPU} -o out.json",
    "estimate big.qsim --sample 10",
    f"pauli big.qsim --observable Z0 --max-terms 20000 {CPU} -o out.json",
    f"sbd large.fcidump --alpha large.txt {CPU} --residual 1e-9 -o out.npz",
    f"sbd large.fcidump --grow {CPU} -o out.npz",
    f"sbd-qubits w.txt b.txt {CPU} -o out.npz",
    "compress large.npy -o out.tnz",
    "decompress large.npy.tnz -o out.npy",
    f"statevector big.qsim --observable Z0 {CPU} --save state.json -o out.json",
    "calibrate --base cpu --device cpu --size 1MiB --dtype complex64 -o out.toml",
    "warmup --device cpu",
)
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
STOPPING = ("execute", "sbd", "sbd-qubits")
"""Commands that keep a checkpoint at SIGTERM and SIGUSR1."""
LONGEST_S = 120.0
MARK = "TNPLAN_TEST_TRIAL"
"""The variable that tells the processes of a trial from others."""
BEFORE = "Python itself had not started"
QUBITS = 20


def make_inputs(folder: Path) -> None:
    """The inputs of all commands."""
    make_files(folder)
    random = np.random.default_rng(1)
    gates = [f"{layer} {'cz' if layer % 2 else 'fs'} {q} {q + 1}{'' if layer % 2 else ' 0.3 0.2'}"
             for layer in range(8) for q in range(layer % 2, QUBITS - 1, 2)]  # fmt: skip
    (folder / "big.qsim").write_text("\n".join([str(QUBITS), *gates]) + "\n")
    (folder / "strings.txt").write_text("".join(f"{n:0{QUBITS}b}\n" for n in range(20)))
    integrals = random_integrals(10, 5, 5, 5)
    (folder / "large.fcidump").write_text(fcidump_text(integrals))
    (folder / "large.txt").write_text(lines_of(some_strings(10, 5, 250, 1), 10))
    np.save(folder / "large.npy", random.normal(size=1 << 21).astype(np.float32))
    for line in (
        "compress large.npy",
        "workload sycamore --cycles 12 -o wide.json",
    ):
        subprocess.run(
            [sys.executable, "-m", "tnplan", *line.split()], cwd=folder, check=True, capture_output=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """How a command ended after a signal, and what was left."""

    number: int
    command: str
    signal: str
    after_s: float
    status: int
    seconds: float
    cpu_s: float
    left: list[str]
    children: int
    said: str

    @property
    def wrong(self) -> str:
        """What is wrong with it; empty where nothing is."""
        number = signal.Signals[self.signal].value
        expected = {0, -number, 128 + number}
        if self.command.split()[0] in STOPPING and number in (signal.SIGTERM, signal.SIGUSR1):
            expected.add(143)
        if self.status not in expected and self.said != BEFORE:
            return f"status {self.status}"
        if self.left:
            return f"leaves {self.left}"
        return f"leaves {self.children} processes" if self.children else ""


def trial(number: int, inputs: Path, caches: Path) -> Outcome:
    """One signal to one command."""
    command = COMMANDS[number % len(COMMANDS)]
    random = Random(number)
    is_stopping = command.split()[0] in STOPPING
    chosen = random.choice(SIGNALS if is_stopping else SIGNALS[:3])
    after_s = random.choice((random.uniform(0.0, 1.0), random.uniform(0.5, 2.0), random.uniform(1.0, 6.0)))
    mark = uuid4().hex
    with TemporaryDirectory() as made:
        folder = Path(made) / "work"
        shutil.copytree(inputs, folder, copy_function=os.link)
        before = {path.relative_to(folder) for path in folder.rglob("*")}
        cache = Path(made) / "caches" if command.startswith("warmup") else caches
        cache.mkdir(exist_ok=True)
        begun = subprocess.Popen(
            [sys.executable, "-m", "tnplan", *command.split()], cwd=folder, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TNPLAN_CACHE_DIR": str(cache), MARK: mark},
        )  # fmt: skip
        with suppress(subprocess.TimeoutExpired):
            begun.wait(after_s)
        cpu_s, at_s = _cpu_s(begun.pid), time.monotonic()
        with suppress(ProcessLookupError):
            begun.send_signal(chosen)
        while begun.poll() is None and time.monotonic() - at_s < LONGEST_S:
            used_s = _cpu_s(begun.pid) or cpu_s
            time.sleep(0.02)
        if begun.poll() is None:
            os.killpg(begun.pid, signal.SIGKILL)
        seconds = time.monotonic() - at_s
        used_s = max(used_s, cpu_s) if seconds > 0.03 else cpu_s
        begun.wait()
        end_s = time.monotonic() + 3.0
        while marked(mark) and time.monotonic() < end_s:
            time.sleep(0.1)
        children = len(marked(mark))
        with suppress(ProcessLookupError):
            os.killpg(begun.pid, signal.SIGKILL)
        said = begun.communicate()[1]
        made_here = sorted({path.relative_to(folder) for path in folder.rglob("*")} - before)
        left = [str(path) for path in made_here if not _is_whole(folder, path)]
    last = BEFORE if "init_import_site" in said else (said.strip().splitlines() or [""])[-1]
    return Outcome(
        number, command, chosen.name, round(after_s, 2), begun.returncode, round(seconds, 2),
        round(used_s - cpu_s, 2), left, children, last,
    )  # fmt: skip


def _is_whole(folder: Path, path: Path) -> bool:
    """Whether a file is a whole output or of a checkpoint, and none that is temporary."""
    if any(part.startswith(".") for part in path.parts):
        return False
    if (folder / path).is_dir() or ".ckpt" in path.name:
        return True
    content = (folder / path).read_bytes()
    if path.suffix == ".json":
        try:
            json.loads(content)
        except ValueError:
            return False
    if path.suffix in (".npy", ".npz"):
        try:
            np.load(folder / path)
        except (ValueError, OSError):
            return False
    return bool(content)


def _cpu_s(process: int) -> float:
    """Seconds of processors that a process has taken; 0 where it has ended."""
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def marked(mark: str) -> list[int]:
    """The processes with a mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def _main(first: str, stop: str, caches_at: str = "") -> None:
    with TemporaryDirectory() as made:
        inputs, caches = Path(made) / "inputs", Path(caches_at or f"{made}/caches")
        inputs.mkdir()
        make_inputs(inputs)
        for number in range(int(first), int(stop)):
            outcome = trial(number, inputs, caches)
            print(json.dumps({**asdict(outcome), "wrong": outcome.wrong}), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
