"""Interrupted jobs of every kind that keeps a checkpoint, in variants that differ in what makes a result."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.support.contraction.executor import make_case
from tests.support.engines.sbd import lines_of, random_integrals, some_strings
from tests.support.robustness.good_files import CPU, QSIM, done_in, ended_in
from tnplan.calls.execute import execute
from tnplan.common.checkpoint import CheckpointFile
from tnplan.common.errors import InputError
from tnplan.executor.contraction.run import checkpoint as run_checkpoint
from tnplan.executor.peps.checkpoint import PepsCheckpoint
from tnplan.executor.sbd.basis.fcidump import write_fcidump
from tnplan.executor.sbd.basis.integrals import Integrals, OrbitalLabels, dense_two, from_arrays
from tnplan.executor.sbd.solver import initial_guess
from tnplan.executor.sbd.solver import solve as solver_checkpoint
from tnplan.jobs.progress import Progress
from tnplan.questions.engines import task_list

INTERRUPTED, REFUSED = 130, 2
LABELS = (1, 2, 1, 3, 4, 1)
"""The representations of orbitals."""
HAS_ADDON = importlib.util.find_spec("qiskit_addon_sqd") is not None


@dataclass(frozen=True)
class Ended:
    """How a resumed job ended: its status, its lines of errors or notes, and what it gave.

    `resumed` is how many slices a contraction did not compute again.
    """

    status: int
    error: str
    values: tuple[np.ndarray, ...] = ()
    resumed: int = 0


@dataclass(frozen=True)
class Variant:
    """A job: of a command line with an output, or of options of `execute`."""

    line: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    is_same: bool = False
    """Whether its checkpoint is one of the first variant too, whose result is then equal to rounding."""


@dataclass(frozen=True)
class Kind:
    """Jobs that keep one kind of checkpoint, the first of which is resumed, and the name of their output.

    `stages` are the points at which they are interrupted, an early one and a late one.
    """

    output: str
    stages: tuple[int, int]
    variants: tuple[Variant, ...]
    values: Callable[[Path], tuple[np.ndarray, ...]]


def _arrays(path: Path) -> tuple[np.ndarray, ...]:
    with np.load(path) as archive:
        return tuple(archive[name] for name in sorted(archive))


def _numbers(*names: str) -> Callable[[Path], tuple[np.ndarray, ...]]:
    def read(path: Path) -> tuple[np.ndarray, ...]:
        document = json.loads(path.read_text())
        return tuple(np.array(json.dumps(document[name])) for name in names)

    return read


def _lines(line: str, *changes: tuple[str, str]) -> tuple[Variant, ...]:
    """A command line, and others with one change each."""
    changed = [line.replace(old, new) for old, new in changes]
    assert line not in changed
    return tuple(map(Variant, (line, *changed)))


SBD = f"sbd h.fcidump --alpha a.txt --symmetry 1 {CPU} --residual 1e-9 -o s.npz"
GROW = f"sbd h.fcidump --grow --epsilon 0.3,0.1,0.05 {CPU} -o g.npz"
QUBITS = f"sbd-qubits w.txt b.txt {CPU} -o k.npz"
SQD = (
    f"sqd counts.json h.fcidump --num-batches 2 --samples-per-batch 5 --max-iterations 4 --seed 7 {CPU} "
    "-o q.npz"
)
ANSWER = f"expectation c.qsim --file o.txt --method pauli {CPU} -o e.json"
STATE = f"expectation c.qsim --file o.txt --method peps --ranks 2 {CPU} -o v.json"
SAMPLED = f"pauli c.qsim --observable Z2 --max-terms 1 --repetitions 5 --seed 1 {CPU} -o m.json"
SEARCH = "search l.json --max-tensor 2^2 --minimize flops --time 0.01 --seed 1 -o p.json"
COMPRESSED = {"compress": "checkpoints"}
KINDS = {
    "partial sums": Kind(
        "r.npy", (3, 6), (
            Variant(), Variant(options={"values": 2}), Variant(options={"schedule": "open"}),
            Variant(options={"slices": "0:12"}), Variant(options={"groups": 2}, is_same=True),
            Variant(options={"groups": 3}, is_same=True), Variant(options=COMPRESSED, is_same=True),
        ), lambda path: (np.load(path),),
    ),
    "compressed partial sums": Kind(
        "r.npy", (3, 6), (
            Variant(options={**COMPRESSED, "groups": 2}),
            Variant(options={**COMPRESSED, "groups": 2, "values": 2}),
            Variant(options=COMPRESSED, is_same=True), Variant(options={"groups": 2}, is_same=True),
        ), lambda path: (np.load(path),),
    ),
    "solve": Kind(
        "s.npz", (1, 3), _lines(
            SBD, ("h.fcidump", "h2.fcidump"), ("a.txt", "a2.txt"), (" -o", " --roots 2 -o"),
            (" -o", " --spin 0 -o"), ("symmetry 1", "symmetry 2"), ("symmetry 1", "symmetry 0"),
        ), _arrays,
    ),
    "solve in all representations": Kind(
        "s.npz", (1, 3), _lines(
            SBD.replace("symmetry 1", "symmetry 0"), *(("symmetry 0", f"symmetry {n}") for n in (1, 2, 3))
        ), _arrays,
    ),
    "growth": Kind(
        "g.npz", (1, 3), _lines(
            GROW, ("h.fcidump", "h2.fcidump"), ("0.05", "0.02"), (" -o", " --roots 2 -o"),
            (" -o", " --grow-to 20 -o"),
        ), _arrays,
    ),
    "qubits": Kind(
        "k.npz", (1, 2), _lines(
            QUBITS, ("w.txt", "w2.txt"), ("b.txt", "b2.txt"), (" -o", " --roots 2 -o")
        ), _arrays,
    ),
    "sqd": Kind(
        "q.npz", (1, 3), _lines(
            SQD, ("counts", "counts2"), ("h.fcidump", "h2.fcidump"), ("seed 7", "seed 8"),
            ("batch 5", "batch 6"), (" -o", " --symmetrize-spin -o"),
        ), _arrays,
    ),
    "answer": Kind(
        "e.json", (1, 2), _lines(
            ANSWER, ("c.qsim", "c2.qsim"), ("o.txt", "o2.txt"), ("pauli", "statevector"),
            (" -o", " --max-terms 2 -o"),
        ), _numbers("value", "error"),
    ),
    "state over ranks": Kind(
        "v.json", (1, 3), (
            *_lines(
                STATE, ("c.qsim", "c2.qsim"), ("o.txt", "o2.txt"), (" -o", " --max-bond 1 -o"),
                (" -o", " --precision fp32 -o"),
            ),
            Variant(STATE.replace("ranks 2", "ranks 1"), is_same=True),
            Variant(STATE.replace("ranks 2", "ranks 3"), is_same=True),
        ), lambda path: (np.array(json.loads(path.read_text())["value"]),),
    ),
    "repetitions": Kind(
        "m.json", (1, 3), _lines(
            SAMPLED, ("c.qsim", "c2.qsim"), ("Z2", "Z1"), ("seed 1", "seed 2"), ("terms 1", "terms 2"),
        ), _numbers("expectation", "estimate"),
    ),
    "search": Kind(
        "p.json", (1, 2), _lines(
            SEARCH, ("l.json", "l2.json"), ("seed 1", "seed 2"), ("2^2", "2^3"),
        ), _numbers("ssa_path", "sliced_inds"),
    ),
}  # fmt: skip


class Workshop:
    """A folder with the inputs of one kind, and the checkpoints of its variants at their stages."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        _inputs(folder)
        self._cases = {
            name: make_case(_made(folder / name), 2, n_sliced=4, n_open=n_open)
            for name, n_open in (("plain", 2), ("open", 1))
        }
        self._checkpoints: dict[tuple[int, int], Path] = {}

    @property
    def checkpoint(self) -> Path:
        """Where the job that is resumed has its checkpoint: a file, or a folder of files."""
        return self.folder / f"{self.kind.output}.ckpt"

    def left_by(self, variant: int, late: bool) -> Path:
        """A copy of what an interrupted job left."""
        number = variant, self.kind.stages[late]
        if number not in self._checkpoints:
            aside, kept = self.folder / "aside", self.folder / f"left{variant}.{number[1]}"
            if is_there := self.checkpoint.exists():
                self.checkpoint.rename(aside)
            self._interrupt(self.kind.variants[variant], number[1])
            self.checkpoint.rename(kept)
            if is_there:
                aside.rename(self.checkpoint)
            self._checkpoints[number] = kept
        return self._checkpoints[number]

    def clear(self) -> None:
        """Remove the checkpoint and the results."""
        if self.checkpoint.is_dir():
            shutil.rmtree(self.checkpoint)
        for path in self.folder.glob(f"{Path(self.kind.output).stem}.*"):
            path.unlink()

    def resumed(self) -> Ended:
        """The first job, resumed from the checkpoint that is there."""
        variant, output = self.kind.variants[0], self.folder / self.kind.output
        if not variant.line:
            said: list[str] = []
            try:
                resumed = self._execute(variant, said, resume=True)
            except InputError as error:
                return Ended(REFUSED, str(error))
            notes = [text for text in said if not text.startswith("slice ")]
            return Ended(0, "\n".join(notes), self.kind.values(output), resumed)
        status, error = ended_in(self.folder, f"{variant.line} --resume")
        return Ended(status, error, self.kind.values(output) if output.exists() else ())

    def _interrupt(self, variant: Variant, stage: int) -> None:
        if not variant.line:
            with suppress(KeyboardInterrupt):
                self._execute(variant, [], stage=stage)
            return
        line = variant.line
        if line.startswith("search"):
            # With --resume: a search from the beginning keeps nothing while its kernels are compiled.
            line = line.replace("--time 0.01", "--time 1 --resume")
        with _broken_after(stage):
            assert done_in(self.folder, line) == INTERRUPTED, line

    def _execute(self, variant: Variant, said: list[str], stage: int = 0, resume: bool = False) -> int:
        options = dict(variant.options)
        case, factor = self._cases[options.pop("schedule", "plain")], options.pop("values", 1)

        def heard(at: Progress) -> None:
            said.append(at.text)
            if stage and at.done == stage:
                raise KeyboardInterrupt

        with patch.object(run_checkpoint, "INTERVAL", 0):
            result = execute(
                case.schedule, [array * factor for array in case.arrays], resume=resume, progress=heard,
                ranks=2 * options.pop("groups", 1), output=self.folder / self.kind.output, device="cpu",
                threads=1, **options,
            )  # fmt: skip
        resumed: int = result.report["slices"]["resumed"]
        return resumed


@contextmanager
def _broken_after(count: int) -> Iterator[None]:
    """Jobs write checkpoints whenever they can, and break off after so many."""
    replace, written = CheckpointFile.replace, []

    def counted(self: Any, *content: Any) -> None:
        replace(self, *content)
        written.append(self)
        if len(written) == count:
            raise KeyboardInterrupt

    with patch.object(CheckpointFile, "replace", counted), patch.object(task_list, "MEETING_S", 0.0), \
            patch.object(solver_checkpoint.SolveCheckpoint, "INTERVAL", 0), \
            patch.multiple(PepsCheckpoint, INTERVAL=0, LEAST_S=0.0), \
            patch.object(initial_guess, "DETERMINANTS", 3), \
            patch.object(initial_guess, "WHOLE", 0):  # fmt: skip
        yield


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _symmetric_integrals(seed: int) -> Integrals:
    """Random integrals of orbitals of several representations."""
    of = np.array(LABELS) - 1
    pairs = of[:, None] ^ of[None, :]
    random = random_integrals(len(LABELS), 3, 3, seed)
    two = dense_two(random) * (pairs[:, :, None, None] == pairs[None, None])
    integrals = from_arrays(random.one * (pairs == 0), two, 3, 3, 0.25)
    return replace(integrals, labels=OrbitalLabels(LABELS, 1))


def _inputs(folder: Path) -> None:
    for name, seed in (("h", 5), ("h2", 6)):
        write_fcidump(folder / f"{name}.fcidump", _symmetric_integrals(seed))
    for name, seed in (("a", 1), ("a2", 2)):
        (folder / f"{name}.txt").write_text(lines_of(some_strings(len(LABELS), 3, 14, seed), len(LABELS)))
    bits = np.random.default_rng(1).random((300, 2 * len(LABELS))) < 0.5
    texts = ["".join("01"[bit] for bit in row) for row in bits.astype(int)]
    for name, first in (("counts", 0), ("counts2", 20)):
        content = {text: texts.count(text) for text in texts[first:]}
        (folder / f"{name}.json").write_text(json.dumps(content))
    words = "X0 X1\n-0.5 Z0\n0.25 Y1 Y2\n0.1 Z0 Z2\n0.3 X2 X3 X4\n-0.7 Z3 Z4\n0.2 X1 Z4\n"
    (folder / "w.txt").write_text(words)
    (folder / "w2.txt").write_text(words.replace("-0.5", "-0.4"))
    strings = [f"{number:05b}\n" for number in range(32)]
    (folder / "b.txt").write_text("".join(strings[:28]))
    (folder / "b2.txt").write_text("".join(strings[4:]))
    (folder / "c.qsim").write_text(QSIM)
    (folder / "c2.qsim").write_text(QSIM.replace("0.5", "0.6"))
    (folder / "o.txt").write_text("Z0\n0.5*X0 X1 - Z2\nY1\n")
    (folder / "o2.txt").write_text("Z1\n0.5*X0 X1 - Z2\nY1\n")
    for name, layers in (("l", 4), ("l2", 5)):
        line = f"workload lattice --rows 3 --columns 3 --layers {layers} -o {name}.json"
        assert done_in(folder, line) == 0
