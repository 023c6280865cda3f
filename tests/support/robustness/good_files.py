"""One good file of every input format, interrupted jobs' checkpoints among them."""

from __future__ import annotations

import atexit
import io
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.support.bad_input import make_folder
from tests.support.engines.sbd import fcidump_text, lines_of, random_integrals, some_strings
from tnplan.calls.diagonalize import diagonalize
from tnplan.calls.execute import execute
from tnplan.cli.main import run
from tnplan.executor.sbd.selected_ci.growth import GrowthCheckpoint
from tnplan.executor.sbd.solver import solve as solver_checkpoint
from tnplan.jobs import pauli_sampling as sampling
from tnplan.jobs.progress import Progress
from tnplan.planner.search.checkpoint import SearchCheckpoint
from tnplan.questions.engines import task_list

N_ORBITALS = 6
QASM = """OPENQASM 3.0;
include "stdgates.inc";
qubit[3] q; bit[2] c; int[8] i = 3; float f = pi/4;
def turn(qubit t, float a) -> int[8] { rx(a) t; return 1; }
gate pair(a) s, t { h s; ctrl @ rz(a) s, t; }
h q[0]; pair(f) q[0], q[1]; ctrl(2) @ x q[0], q[1], q[2];
for int k in [0:2] { rz(f * k) q[k]; }
if (i > 2) { x q[1]; }
while (i > 0) { i = i - turn(q[2], 0.3); }
c[0] = measure q[0];
"""
QSIM = "3\n0 h 0\n0 x_1_2 1\n1 cz 0 1\n2 rz 1 0.5\n3 fs 1 2 0.3 0.2\n4 y 2\n"
WORDS = "# H of three qubits\nX0 X1\n-0.5 Z0\n0.25*Y1 Y2\n1e-1 Z0 Z2\n"
OBSERVABLES = "Z0\n0.5*X0 X1 - Z2\nY1\n"
CPU = "--device cpu --threads 1"
INTERRUPTED = 130

ANSWER = f"expectation c.qsim --file o.txt --method pauli {CPU} -o e.json"
SAMPLED = f"pauli c.qsim --observable Z2 --max-terms 1 --repetitions 5 {CPU} -o m.json"
GROWTH = f"sbd h.fcidump --grow {CPU} -o g.npz"
QUBITS = f"sbd-qubits w.txt b.txt {CPU} -o k.npz"
SEARCH = "search lattice.json --max-tensor 2^2 --minimize flops --time 0.01 --resume -o p.json"
"""With --resume: a search from the beginning keeps nothing while its kernels are compiled."""


@cache
def good_files() -> Path:
    """A folder of `make_files`, made once a process."""
    made = TemporaryDirectory()
    atexit.register(made.cleanup)
    make_files(Path(made.name))
    return Path(made.name)


def make_files(folder: Path) -> None:
    """One good file of every format."""
    make_folder(folder)
    (folder / "old").unlink()
    (folder / "c.qsim").write_text(QSIM)
    (folder / "c.qasm").write_text(QASM)
    np.save(folder / "a.npy", np.linspace(0, 1, 600).reshape(20, 30))
    _files_of_determinants(folder)
    (folder / "w.txt").write_text(WORDS)
    (folder / "w.json").write_text(json.dumps({"XXI": 1.0, "ZII": -0.5, "IYY": [0.25, 0.0], "ZIZ": 0.1}))
    (folder / "b.txt").write_text("# strings\n000 3\n011\n101 2.5\n110\n111 1\n")
    (folder / "o.txt").write_text(OBSERVABLES)
    (folder / "o.json").write_text(json.dumps(OBSERVABLES.splitlines()))
    (folder / "x.txt").write_text("000\n101\n111\n")
    np.save(folder / "x.npy", np.array([[0, 0, 0], [1, 0, 1]], np.uint8))
    for line in (
        "compress a.npy --bound 1e-3 -o a.tnz",
        "statevector c.qasm --shots 1 --device cpu --threads 1 --save v.json",
        "workload lattice --rows 3 --columns 3 --layers 4 -o lattice.json",
    ):
        assert done_in(folder, line) == 0, line
    _interrupted_jobs(folder)


def _files_of_determinants(folder: Path) -> None:
    integrals = random_integrals(N_ORBITALS, 3, 3, 5)
    (folder / "h.fcidump").write_text(fcidump_text(integrals))
    lines = lines_of(some_strings(N_ORBITALS, 3, 14, 1), N_ORBITALS)
    strings = lines.split()
    (folder / "a.txt").write_text(lines)
    (folder / "counts.json").write_text(json.dumps({text: k + 1 for k, text in enumerate(strings)}))
    bits = np.array([[bit == "1" for bit in text] for text in strings])
    np.savez(folder / "weights.npz", bitstrings=bits, weights=np.arange(1.0, len(strings) + 1))
    (folder / "d.txt").write_text("".join(_interleaved(a, b) for a in strings[:4] for b in strings[:3]))
    turn, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(N_ORBITALS, N_ORBITALS)))
    np.save(folder / "turn.npy", turn)


def _interleaved(alpha: str, beta: str) -> str:
    """A line of a determinant: bits of alpha and beta in turn."""
    return "".join(b + a for a, b in zip(alpha, beta, strict=True)) + "\n"


def _interrupted_jobs(folder: Path) -> None:
    """A checkpoint of every kind, each of a job that breaks on its way."""

    def stop(at: Progress) -> None:
        if at.done:
            raise KeyboardInterrupt

    with _stops():
        execute(folder / "one.json", device="cpu", threads=1, output=folder / "kept.npy", progress=stop)
    given = folder / "h.fcidump", folder / "a.txt"
    with _stops():
        diagonalize(*given, device="cpu", threads=1, output=folder / "s.npz", progress=stop)
    for line, owner, count in (
        (ANSWER, task_list.TaskCheckpoint, 1), (SAMPLED, sampling.SampleCheckpoint, 2),
        (GROWTH, GrowthCheckpoint, 2), (QUBITS, solver_checkpoint.SolveCheckpoint, 1),
        (SEARCH, SearchCheckpoint, 1),
    ):  # fmt: skip
        with _broken_after(owner, count):
            assert done_in(folder, line) == INTERRUPTED, line
        assert (folder / f"{line.split()[-1]}.ckpt").is_file()
    assert (folder / "kept.npy.ckpt" / "rank0.0.1.npy").is_file()
    assert (folder / "s.npz.ckpt").is_file()


@contextmanager
def _stops() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        return
    raise AssertionError("the job came to its end")


@contextmanager
def _broken_after(owner: type, count: int) -> Iterator[None]:
    """Jobs write checkpoints whenever they can, and break off after so many of the owner's."""
    write, written = owner.write, []  # type: ignore[attr-defined]

    def counted(self: Any, *content: Any) -> None:
        write(self, *content)
        written.append(self)
        if len(written) == count:
            raise KeyboardInterrupt

    with patch.object(owner, "write", counted), patch.object(task_list, "MEETING_S", 0.0), \
            patch.object(solver_checkpoint.SolveCheckpoint, "INTERVAL", 0):  # fmt: skip
        yield


def done_in(folder: Path, line: str) -> int:
    """The status of a command that runs in a folder; what it prints is not shown."""
    return ended_in(folder, line)[0]


def ended_in(folder: Path, line: str) -> tuple[int, str]:
    """The status of a command that runs in a folder, and its lines of errors."""
    before, error = Path.cwd(), io.StringIO()
    os.chdir(folder)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(error):
            return run(shlex.split(line)), error.getvalue()
    finally:
        os.chdir(before)
