"""Questions about a program and their answers, from its one final state or from trajectories.

A program whose measurements all stand at its end has one final state, from which all shots are drawn. Any
other is run once a shot. Knows programs and a simulator, no file. Gradients and runs that share states are
imported where they are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, cast

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.circuits.program import CircuitProgram, final_measurements, measures, without_final_measurements
from tnplan.common.arrays import Array
from tnplan.common.checks import check_count
from tnplan.common.errors import InputError
from tnplan.executor.statevector.prepared_program import prepare_program
from tnplan.executor.statevector.simulator import Simulator, check_bits, check_marginal

if TYPE_CHECKING:
    from tnplan.executor.statevector.adjoint_sweep import Derivative
    from tnplan.executor.statevector.trajectories import Batch

LARGEST_SHOTS = 10**9
"""The most shots of a question."""
LARGEST_VALUE = 1e100
"""Of an observable: means over all shots and squares of its values stay finite."""


@dataclass(frozen=True, eq=False)
class Question:
    """A question about a simulation.

    - `shots`: Samples of all qubits or classical bits, or None.
    - `observable`: A sum of Pauli words whose expectation value is wanted, or None.
    - `amplitudes`: Bit strings whose amplitudes are wanted; character k is qubit k.
    - `marginal`: Qubits of a table of probabilities.
    - `gradient`: Whether the derivatives of the observable's value by all angles are wanted.
    """

    shots: int | None = None
    observable: PauliSum | None = None
    amplitudes: tuple[str, ...] = ()
    marginal: tuple[int, ...] = ()
    gradient: bool = False


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer of a simulation; None for each field that the question leaves out.

    - `counts`: How often each string of the classical bits came, or of all qubits where none of them is
      measured.
    - `expectation`: The value of the observable; a float where its coefficients are real.
    - `deviation`: The standard deviation of a value that is a mean over trajectories, None for a single one,
      else 0.
    - `amplitudes`: Complex128, in the order of the question.
    - `probabilities`: Float64 [2^m], the first qubit most significant.
    - `norm`: The sum of all probabilities.
    - `gradient`: A derivative for each angle, in the order of the gates.
    """

    counts: dict[str, int] | None
    expectation: float | complex | None
    deviation: float | None
    amplitudes: Array | None
    probabilities: Array | None
    norm: float
    gradient: tuple[Derivative, ...] | None = None

    def __repr__(self) -> str:
        answered = [name for name, value in vars(self).items() if value is not None]
        return f"Answer({', '.join(answered)})"


def check_question(question: Question, program: CircuitProgram) -> None:
    """Refuse what cannot be answered, before any work is done."""
    if question.shots is not None:
        check_count("--shots", question.shots, 1, LARGEST_SHOTS)
    for qubit in question.marginal:
        check_count("--marginal", qubit, 0)
    check_marginal(question.marginal, program.n_qubits, "--marginal")
    if question.observable is not None and question.observable.n_qubits != program.n_qubits:
        raise InputError(
            "--observable", f"is a sum on {question.observable.n_qubits} qubits",
            f"give a sum on {program.n_qubits} qubits",
        )  # fmt: skip
    if question.observable is not None:
        with np.errstate(over="ignore"):
            total = float(np.sum(np.abs(question.observable.coefficients)))
        if not total <= LARGEST_VALUE:
            raise InputError(
                "--observable", f"has coefficients whose magnitudes sum to {total:.3g}",
                f"give a sum of {LARGEST_VALUE:g} at most",
            )  # fmt: skip
    check_bits(question.amplitudes, program.n_qubits)
    if question.gradient:
        _check_gradient(question, program)
    if final_measurements(program) is None:
        if question.shots is None:
            raise InputError(
                "--shots", "is missing, but the program measures, resets or is noisy before its end",
                "give the number of runs",
            )  # fmt: skip
        if question.amplitudes or question.marginal:
            raise InputError(
                "--amplitudes" if question.amplitudes else "--marginal",
                "is asked for, but the program ends in a different state in each run",
                "ask for shots or an observable",
            )  # fmt: skip


def _check_gradient(question: Question, program: CircuitProgram) -> None:
    """Refuse a gradient that cannot be computed."""
    from tnplan.executor.statevector.derivative_segments import parameter_words

    if question.observable is None or np.iscomplexobj(question.observable.coefficients):
        problem = "is asked for without an observable of real coefficients"
        raise InputError("--gradient", problem, "give such an observable")
    if final_measurements(program) is None:
        problem = "is asked for, but the program ends in a different state in each run"
        raise InputError("--gradient", problem, "leave out what measures, resets or is noisy before the end")
    for number, gate in enumerate(_gates(program)):
        parameter_words(gate, number)


def _gates(program: CircuitProgram) -> list[Gate]:
    return [gate for gate in program.operations if isinstance(gate, Gate)]


def answer(
    simulator: Simulator, program: CircuitProgram, question: Question,
    progress: Callable[[int, int], None] | None = None,
) -> Answer:  # fmt: skip
    """Run a program and answer; collective over the ranks of the simulator's state."""
    measured = final_measurements(program)
    if measured is None:
        return _from_trajectories(simulator, program, question, progress)
    gates = _gates(program)
    steps = prepare_program(gates)
    simulator.run(steps, np.zeros(0, np.uint8))
    return Answer(
        None if question.shots is None else sample_counts(simulator, program, question.shots),
        None if question.observable is None else simulator.expectation(question.observable),
        0.0,
        simulator.amplitudes(question.amplitudes) if question.amplitudes else None,
        simulator.probabilities(question.marginal) if question.marginal else None,
        simulator.norm(),
        _gradient(simulator, gates, question.observable)
        if question.gradient and question.observable is not None
        else None,
    )


def sample_counts(simulator: Simulator, program: CircuitProgram, shots: int) -> dict[str, int]:
    """How often each outcome comes in the final state of a program that measures only there."""
    values, numbers = np.unique(simulator.sample(shots), return_counts=True)
    width, total = program.n_qubits, Counter[str]()
    texts = outcomes([format(value, f"0{width}b") for value in values.tolist()], program)
    for text, number in zip(texts, numbers.tolist(), strict=True):
        total[text] += number
    return dict(sorted(total.items()))


def _gradient(simulator: Simulator, gates: Sequence[Gate], observable: PauliSum) -> tuple[Derivative, ...]:
    from tnplan.executor.statevector.adjoint_sweep import adjoint_gradient

    return tuple(adjoint_gradient(simulator, gates, observable))


@dataclass(frozen=True)
class Runs:
    """Runs of a program whose outcomes were equal on the way.

    - `bits`: The classical bits, uint8, before final measurements.
    - `shots`: How many runs these are.
    """

    bits: Array
    shots: int


def trajectories(simulator: Simulator, program: CircuitProgram, shots: int) -> Iterator[Runs]:
    """Run a program, without its final measurements, so many times.

    After each group of runs with the same outcomes the state is the simulator's, which starts in |0...0>.
    """
    if can_branch(simulator):
        for batch in _branches(simulator, program, shots):
            for row, (own, number) in enumerate(zip(batch.bits, batch.shots.tolist(), strict=True)):
                load_row(simulator, batch, row)
                yield Runs(own, number)
        return
    operations, _ = without_final_measurements(program.operations)
    steps, bits = prepare_program(operations), _first_bits(program)
    for shot in range(shots):
        if shot:
            simulator.restart()
        own = bits.copy()
        simulator.run(steps, own)
        yield Runs(own, 1)


def can_branch(simulator: Simulator) -> bool:
    """Whether runs can share their states: those on one CPU, of which several fit into a batch."""
    from tnplan.executor.statevector.cpu.state import HostState
    from tnplan.executor.statevector.trajectories import most_rows

    state = simulator.state
    if not isinstance(state, HostState) or simulator.mode != "compiled":
        return False
    return most_rows(simulator.n_qubits, state.dtype) > 1


def _branches(simulator: Simulator, program: CircuitProgram, shots: int) -> Iterator[Batch]:
    """The batches of all runs, without final measurements; then the state of the last is the simulator's."""
    from tnplan.executor.statevector.cpu.state import HostState
    from tnplan.executor.statevector.trajectories import BranchingRuns

    operations, _ = without_final_measurements(program.operations)
    state = simulator.state
    assert isinstance(state, HostState)
    runs = BranchingRuns(simulator.n_qubits, state.dtype, state.tile, state.threads, simulator.random)
    for batch in runs.run(prepare_program(operations), _first_bits(program), shots):
        simulator.passes, runs.passes = simulator.passes + runs.passes, 0
        yield batch
        load_row(simulator, batch, batch.rows - 1)


def _first_bits(program: CircuitProgram) -> Array:
    bits = np.zeros(program.n_bits, np.uint8)
    bits[: len(program.start)] = program.start
    return bits


def load_row(simulator: Simulator, batch: Batch, row: int) -> None:
    """Make a row's state the simulator's."""
    simulator.load(batch.amplitudes[row], tuple(range(simulator.n_qubits - 1, -1, -1)))


class _Tally:
    """Counts of outcomes, and the mean of a value, over the runs so far."""

    def __init__(self, program: CircuitProgram) -> None:
        _, self.measured = without_final_measurements(program.operations)
        self.n_qubits, self.n_shown = program.n_qubits, program.n_bits - program.n_scratch
        self.writes = measures(program.operations) and self.n_shown > 0
        self.samples = bool(self.measured) or not self.writes
        """Whether an outcome takes the values of all qubits."""
        self.counts: Counter[str] = Counter()
        self.shots, self.mean, self.squares = 0, cast(complex, 0.0), 0.0

    def add_outcomes(self, bits: Array, qubits: Array, numbers: Array) -> None:
        """Outcomes that came so many times: classical bits, uint8 [outcome, bit], and values of qubits."""
        if self.writes:
            shown = bits[:, : self.n_shown].copy()
            for bit, qubit in self.measured.items():
                if bit < self.n_shown:
                    shown[:, bit] = qubits >> (self.n_qubits - 1 - qubit) & 1
        else:
            shown = (qubits[:, None] >> np.arange(self.n_qubits - 1, -1, -1) & 1).astype(np.uint8)
        packed, width = np.packbits(shown, axis=1), shown.shape[1]
        keys, inverse = np.unique(packed, axis=0, return_inverse=True)
        totals = np.zeros(len(keys), np.int64)
        np.add.at(totals, inverse.reshape(-1), numbers)
        for key, total in zip(np.unpackbits(keys, axis=1, count=width), totals.tolist(), strict=True):
            self.counts["".join(map(str, key.tolist()))] += total

    def add_value(self, value: complex, shots: int) -> None:
        """A value of so many runs."""
        self.shots += shots
        before = value - self.mean
        self.mean = self.mean + before * shots / self.shots
        self.squares += (before * np.conj(value - self.mean)).real * shots

    def answer(self, has_value: bool, norm: float) -> Answer:
        """What is known after the last run."""
        counts = dict(sorted(self.counts.items()))
        if not has_value:
            return Answer(counts, None, 0.0, None, None, norm)
        n = self.shots
        deviation = sqrt(self.squares / (n - 1) / n) if n > 1 else None
        return Answer(counts, self.mean, deviation, None, None, norm)


def _from_trajectories(
    simulator: Simulator, program: CircuitProgram, question: Question,
    progress: Callable[[int, int], None] | None,
) -> Answer:  # fmt: skip
    """Run a program once a shot. Its final measurements are one draw, and leave the state as it is."""
    assert question.shots is not None
    tally, done = _Tally(program), 0
    if can_branch(simulator):
        for batch in _branches(simulator, program, question.shots):
            _tally_batch(tally, simulator, batch, question.observable)
            done += int(batch.shots.sum())
            if progress is not None:
                progress(done, question.shots)
        return tally.answer(question.observable is not None, simulator.norm())
    for runs in trajectories(simulator, program, question.shots):
        qubits = simulator.sample(1) if tally.samples else np.zeros(1, np.int64)
        tally.add_outcomes(runs.bits[None], qubits, np.ones(1, np.int64))
        if question.observable is not None:
            tally.add_value(simulator.expectation(question.observable), 1)
        done += 1
        if progress is not None:
            progress(done, question.shots)
    return tally.answer(question.observable is not None, simulator.norm())


def _tally_batch(tally: _Tally, simulator: Simulator, batch: Batch, observable: PauliSum | None) -> None:
    if tally.samples:
        qubits = batch.sample(simulator.random)
        bits = np.repeat(batch.bits, batch.shots, axis=0)
        tally.add_outcomes(bits, qubits, np.ones(len(qubits), np.int64))
    else:
        tally.add_outcomes(batch.bits, np.zeros(batch.rows, np.int64), batch.shots)
    if observable is None:
        return
    for row, shots in enumerate(batch.shots.tolist()):
        load_row(simulator, batch, row)
        tally.add_value(simulator.expectation(observable), shots)


def outcomes(texts: Sequence[str], program: CircuitProgram) -> list[str]:
    """The outcomes for strings of the values of all qubits at the end of a program that measures only there.

    An outcome has the classical bits, or the qubits where none of them is measured.
    """
    _, measured = without_final_measurements(program.operations)
    n_shown = program.n_bits - program.n_scratch
    if not measured or not n_shown:
        return [*texts]
    start = "".join(map(str, program.start)).ljust(program.n_bits, "0")
    return [
        "".join(text[measured[bit]] if bit in measured else start[bit] for bit in range(n_shown))
        for text in texts
    ]
