"""What is asked of a program and what comes back: from its one final state, or from trajectories.

A program whose measurements all stand at its end has one final state, from which all shots are drawn. Any
other is run once a shot. Knows programs and a simulator, no file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from tnplan.executor.observables.pauli_sum import PauliSum
from tnplan.executor.statevector.adjoint.segments import derivative_segments
from tnplan.executor.statevector.adjoint.sweep import Derivative, adjoint_gradient
from tnplan.executor.statevector.prepared_program import prepare_program
from tnplan.executor.statevector.simulator import Simulator, check_bits, check_marginal
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.checks import check_count
from tnplan.planner.common.errors import InputError
from tnplan.planner.networks.circuits.circuit import Gate
from tnplan.planner.networks.circuits.program import (
    CircuitProgram,
    final_measurements,
    measures,
    without_final_measurements,
)

LARGEST_SHOTS = 10**9
"""Shots that may be asked for."""
LARGEST_VALUE = 1e100
"""Of an observable: means over all shots and squares of its values stay finite."""


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of a simulation.

    Parameters
    ----------
    shots
        Samples of all qubits or classical bits, or None.
    observable
        A sum of Pauli words whose expectation value is wanted, or None.
    amplitudes
        Bit strings whose amplitudes are wanted; character k is qubit k.
    marginal
        Qubits of a table of probabilities.
    gradient
        Whether the derivatives of the observable's value by all angles are wanted.

    Examples
    --------
    >>> Question(shots=100, amplitudes=("00", "11")).shots
    100
    """

    shots: int | None = None
    observable: PauliSum | None = None
    amplitudes: tuple[str, ...] = ()
    marginal: tuple[int, ...] = ()
    gradient: bool = False


@dataclass(frozen=True, eq=False)
class Answer:
    """What a simulation gives; None for what was not asked for.

    Parameters
    ----------
    counts
        How often each string of the classical bits came, or of all qubits where none of them is measured.
    expectation
        The value of the observable; a float where its coefficients are real.
    deviation
        The standard deviation of a value that is a mean over trajectories, None for a single one, else 0.
    amplitudes
        Complex128, in the order asked for.
    probabilities
        Float64 [2^m], the first qubit most significant.
    norm
        The sum of all probabilities.
    gradient
        A derivative for each angle, in the order of the gates.

    Examples
    --------
    >>> Answer({"00": 3}, None, 0.0, None, None, 1.0).counts
    {'00': 3}
    """

    counts: dict[str, int] | None
    expectation: float | complex | None
    deviation: float | None
    amplitudes: Array | None
    probabilities: Array | None
    norm: float
    gradient: tuple[Derivative, ...] | None = None

    def __repr__(self) -> str:
        given = [name for name, value in vars(self).items() if value is not None]
        return f"Answer({', '.join(given)})"


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
            f"give one on {program.n_qubits}",
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
                "--shots", "is missing, and the program measures, resets or is noisy on its way",
                "say how many times to run it",
            )  # fmt: skip
        if question.amplitudes or question.marginal:
            raise InputError(
                "--amplitudes" if question.amplitudes else "--marginal",
                "is asked of a program that ends in another state in each run",
                "ask for shots or an observable",
            )  # fmt: skip


def _check_gradient(question: Question, program: CircuitProgram) -> None:
    """Refuse a gradient that cannot be computed."""
    if question.observable is None or np.iscomplexobj(question.observable.coefficients):
        problem = "is asked for without an observable of real coefficients"
        raise InputError("--gradient", problem, "give such an observable")
    if final_measurements(program) is None:
        problem = "is asked of a program that ends in another state in each run"
        raise InputError("--gradient", problem, "leave out what measures, resets or is noisy on the way")
    derivative_segments(_gates(program))


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
    counts = None
    if question.shots is not None:
        values, numbers = np.unique(simulator.sample(question.shots), return_counts=True)
        width = program.n_qubits
        texts = [format(value, f"0{width}b") for value in values.tolist()]
        texts = outcomes(texts, program)
        counts = _summed(zip(texts, numbers.tolist(), strict=True))
    return Answer(
        counts,
        None if question.observable is None else simulator.expectation(question.observable),
        0.0,
        simulator.amplitudes(question.amplitudes) if question.amplitudes else None,
        simulator.probabilities(question.marginal) if question.marginal else None,
        simulator.norm(),
        tuple(adjoint_gradient(simulator, gates, question.observable))
        if question.gradient and question.observable is not None
        else None,
    )


def trajectories(simulator: Simulator, program: CircuitProgram, shots: int) -> Iterator[Array]:
    """Run a program, without its final measurements, so many times.

    After each run the state is the simulator's, and the classical bits are what is yielded.
    """
    operations, _ = without_final_measurements(program.operations)
    steps = prepare_program(operations)
    for shot in range(shots):
        bits = np.zeros(program.n_bits, np.uint8)
        bits[: len(program.start)] = program.start
        if shot:
            simulator.restart()
        simulator.run(steps, bits)
        yield bits


def _from_trajectories(
    simulator: Simulator, program: CircuitProgram, question: Question,
    progress: Callable[[int, int], None] | None,
) -> Answer:  # fmt: skip
    """Run a program once a shot. Its final measurements are one draw, and leave the state as it is."""
    assert question.shots is not None
    _, measured = without_final_measurements(program.operations)
    writes = measures(program.operations) and program.n_bits > program.n_scratch
    texts, values = [], []
    for shot, bits in enumerate(trajectories(simulator, program, question.shots)):
        qubits = ""
        if measured or not writes:
            qubits = format(int(simulator.sample(1)[0]), f"0{program.n_qubits}b")
        for bit, qubit in measured.items():
            bits[bit] = int(qubits[qubit])
        texts.append("".join(map(str, bits[: program.n_bits - program.n_scratch])) if writes else qubits)
        if question.observable is not None:
            values.append(simulator.expectation(question.observable))
        if progress is not None:
            progress(shot + 1, question.shots)
    counts = _summed((text, 1) for text in texts)
    if not values:
        return Answer(counts, None, 0.0, None, None, simulator.norm())
    mean = sum(values) / len(values)
    squares = sum(abs(value - mean) ** 2 for value in values)
    deviation = sqrt(squares / (len(values) - 1) / len(values)) if len(values) > 1 else None
    return Answer(counts, mean, deviation, None, None, simulator.norm())


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


def _summed(pairs: Any) -> dict[str, int]:
    total: Counter[str] = Counter()
    for text, number in pairs:
        total[text] += number
    return dict(sorted(total.items()))
