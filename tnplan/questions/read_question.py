"""What is asked, as a user gives it, becomes a question once the number of qubits is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.compose import composed
from tnplan.circuits.inputs import given_bits, given_observables, given_pattern, given_qubits
from tnplan.circuits.load import load_circuit
from tnplan.circuits.pauli_sum import PauliSum, given_sum
from tnplan.circuits.program import CircuitProgram
from tnplan.common.checks import check_choice, check_count, is_number
from tnplan.common.errors import InputError
from tnplan.executor.statevector.measurement import LARGEST_SHOTS
from tnplan.executor.statevector.simulator import LARGEST_MARGINAL
from tnplan.questions.questions import (
    Amplitudes,
    ExpectationValues,
    OpenAmplitudes,
    Overlap,
    Probabilities,
    Question,
    ReducedDensityMatrix,
    Sample,
    Trace,
    checked_shots,
)

Reader = Callable[[int], Question]
"""The question for a number of qubits; raises InputError for what does not fit it."""
HOW_TO_SAMPLE = ("sampling", "open_qubits", "fidelity", "xeb")
SAMPLING = ("auto", "chain", "gates", "rejection")
"""How a contraction draws samples."""
BARRIERS = "barriers"
"""What stands for the numbers of operations before each barrier, and that of all."""
LARGEST_DENSITY = 13
"""Qubits of a density matrix."""


def read_amplitudes(bitstrings: Any, open_qubits: Sequence[int] | None = None) -> Reader:
    """Amplitudes of bit strings, or of all values of some open qubits."""

    def read(n_qubits: int) -> Question:
        if open_qubits is not None:
            return OpenAmplitudes(*given_pattern(bitstrings, open_qubits, n_qubits, LARGEST_MARGINAL))
        if bitstrings is None:
            raise InputError("--bitstrings", "are missing", "give bit strings or open qubits")
        return Amplitudes(*given_bits(bitstrings, n_qubits))

    return read


def read_sample(
    shots: Any, sampling: str = "auto", open_qubits: int = 0, fidelity: float = 1.0, xeb: float | None = None
) -> Reader:
    """Outcomes of so many shots, and how a contraction draws them."""

    def read(n_qubits: int) -> Question:
        check_choice("--sampling", sampling, SAMPLING)
        check_count("--open-qubits", open_qubits, 0)
        if not is_number(fidelity) or not 0 < fidelity <= 1:
            raise InputError("--fidelity", f"is {fidelity!r}", "give more than 0 and at most 1")
        if xeb is None and sampling != "rejection" and (open_qubits or fidelity < 1):
            place = "--open-qubits" if open_qubits else "--fidelity"
            raise InputError(place, "is for samples by rejection", "leave it out, or sample by rejection")
        if xeb is None:
            return Sample(checked_shots(shots, LARGEST_SHOTS), sampling, open_qubits, fidelity)
        if not is_number(xeb) or not 0 < xeb <= 1:
            raise InputError("--xeb", f"is {xeb!r}", "give more than 0 and at most 1")
        if sampling in ("chain", "gates") or open_qubits or fidelity < 1:
            raise InputError(
                "--xeb", "chooses how samples are drawn, their bunches and their fidelity",
                "leave out sampling, open qubits and fidelity, or xeb",
            )  # fmt: skip
        return Sample(checked_shots(shots, LARGEST_SHOTS), "rejection", xeb=float(xeb))

    return read


def read_expectation(observables: Any, names: Sequence[str] = ()) -> Reader:
    """Expectation values of one observable or several, with their derivatives by parameters."""

    def read(n_qubits: int) -> Question:
        sums, is_single = given_observables(observables, n_qubits)
        for number, observable in enumerate(sums):
            # The derivative rules take twice a real part, which is right for Hermitian observables alone.
            if names and np.any(np.imag(observable.coefficients)):
                raise InputError(
                    f"observable {number}", "has complex coefficients, and gradients are of real values",
                    "give real ones",
                )  # fmt: skip
        return ExpectationValues(sums, is_single, tuple(names))

    return read


def read_after(
    after: Sequence[int] | str, program: CircuitProgram, names: Sequence[str] = ()
) -> tuple[int, ...]:
    """The numbers of operations after which values, and no derivatives, are asked for."""
    count = len(program.operations)
    if names:
        raise InputError("--after", "is given together with --gradient", "leave one of them out")
    if isinstance(after, str) and after == BARRIERS:
        if not program.barriers:
            raise InputError(
                "--after", "names barriers, and the circuit has none", "give numbers of operations"
            )
        return tuple(sorted({*program.barriers, count}))
    if isinstance(after, str) or not isinstance(after, Sequence | np.ndarray) or not len(after):
        remedy = f"give a list of numbers of operations, or {BARRIERS}"
        raise InputError("--after", f"is {after!r}"[:60], remedy)
    numbers = [check_count("--after", number, 0, count) for number in after]
    for before, number in pairwise(numbers):
        if number <= before:
            raise InputError("--after", f"has {number} after {before}", "give rising numbers, each once")
    return tuple(numbers)


def read_probabilities(qubits: Any) -> Reader:
    """Probabilities of the values of some qubits; None: of all."""

    def read(n_qubits: int) -> Question:
        chosen = range(n_qubits) if qubits is None else qubits
        return Probabilities(given_qubits("--qubits", chosen, n_qubits, LARGEST_MARGINAL))

    return read


def read_density(qubits: Any) -> Reader:
    """The density matrix of some qubits."""
    return lambda n_qubits: ReducedDensityMatrix(given_qubits("--qubits", qubits, n_qubits, LARGEST_DENSITY))


def read_overlap(other: Any) -> Reader:
    """The overlap with the state of another circuit."""

    def read(n_qubits: int) -> Question:
        second = load_circuit(other)
        composed(GateSequence(n_qubits, ()), second)
        return Overlap(second)

    return read


def read_trace(a: Any, b: Any) -> Reader:
    """The trace of two operators, one taken through the circuit."""
    return lambda n: Trace(_operator("--a", a, n), _operator("--b", b, n))


def _operator(place: str, operator: Any, n_qubits: int) -> PauliSum:
    try:
        return given_sum(operator, n_qubits)
    except InputError as error:
        raise InputError(place, error.problem, error.remedy, error.page) from None


def read_named(questions: dict[str, Any], names: Sequence[str] = ()) -> Reader:
    """One question by its name and what is asked, such as {"expectation": "Z0"} and names of derivatives.

    Beside "sample" stand its `sampling`, `open_qubits`, `fidelity` and `xeb`.
    """
    how: dict[str, Any] = {}
    # How to sample stands beside the question in one call, and is taken out before the question is counted.
    if "sample" in questions:
        how = {name: questions[name] for name in HOW_TO_SAMPLE if name in questions}
        questions = {name: argument for name, argument in questions.items() if name not in how}
    readers: dict[str, Callable[[Any], Reader]] = {
        "amplitudes": read_amplitudes,
        "open_qubits": lambda qubits: read_amplitudes(None, qubits),
        "sample": lambda shots: read_sample(shots, **how),
        "expectation": lambda observables: read_expectation(observables, names),
        "probabilities": read_probabilities,
        "reduced_density_matrix": read_density,
        "overlap": read_overlap,
        "trace": lambda operators: read_trace(*_pair(operators)),
    }
    unknown = [name for name in questions if name not in readers]
    if unknown:
        raise InputError("question", f"{unknown[0]!r} is unknown", f"choose from {', '.join(readers)}")
    if len(questions) != 1:
        problem = f"is given {len(questions)} times" if questions else "is missing"
        raise InputError("question", problem, f"choose from {', '.join(readers)}")
    ((name, argument),) = questions.items()
    return readers[name](argument)


def _pair(operators: Any) -> tuple[Any, Any]:
    if not isinstance(operators, list | tuple) or len(operators) != 2:
        raise InputError("trace", f"is of {operators!r}"[:60], "give a pair of operators, (a, b)")
    return operators[0], operators[1]
