"""Which method answers which question, and the refusals that name another one."""

from __future__ import annotations

from tnplan.circuits.derivatives.dual_number import VariedGate
from tnplan.circuits.program import (
    BitAssignment,
    Channel,
    Conditional,
    WhileLoop,
)
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra.gates import MOST_QUBITS, gate_steps, named_rotations
from tnplan.executor.statevector.gates.multiplexed_gate import LARGEST_TARGETS, from_gate
from tnplan.executor.statevector.memory_estimate import LARGEST
from tnplan.executor.statevector.simulator import LARGEST_MARGINAL
from tnplan.questions.engines import mps, stabilizer
from tnplan.questions.options import METHODS, QuestionOptions
from tnplan.questions.questions import CircuitQuery, ExpectationValues, Sample, Trace

ANSWERS = {
    "amplitudes": ("statevector", "contraction", "mps"),
    "sample": ("statevector", "contraction", "mps", "stabilizer", "peps"),
    "expectation": ("statevector", "contraction", "pauli", "mps", "stabilizer", "peps", "mpo"),
    "probabilities": ("statevector", "contraction", "pauli", "mps", "stabilizer"),
    "reduced_density_matrix": ("statevector", "contraction", "pauli", "mps", "stabilizer"),
    "overlap": ("statevector", "contraction", "mps"),
    "trace": ("statevector", "contraction", "pauli", "mpo"),
}
"""The methods that answer each question about a circuit of gates."""
ON_REQUEST = ("peps", "mpo")
"""The methods that are taken only where they are named: their cost or their error is not known before."""
ON_ONE_RANK = ("mps", "stabilizer", "mpo")
"""The methods that answer on one rank alone."""
TRUNCATING = ("mps", "peps", "mpo")
"""The methods that take `max_bond` and `cutoff`."""
ANSWERS_RANDOM = {
    "sample": ("statevector", "contraction", "stabilizer"),
    "expectation": ("statevector", "pauli", "contraction"),
    "probabilities": ("statevector", "contraction", "pauli"),
    "reduced_density_matrix": ("statevector", "contraction", "pauli"),
    "trace": ("pauli",),
}
"""The same for a program that measures, resets, branches or is noisy on its way."""
MOST_PAULI_QUBITS = {"probabilities": 8, "reduced_density_matrix": 3}
"""Qubits for which all words are propagated: 2^m and 4^m of them."""
MOST_TABLE_QUBITS = {"probabilities": LARGEST_MARGINAL, "reduced_density_matrix": 6}
"""Qubits of a table by a matrix product state or a tableau."""
SMALL = 14
"""Qubits of a state that is simulated before others are looked at."""
LARGEST_OF_SAMPLES = 20
"""Qubits up to which the fidelity of samples is computed from the exact state."""
LARGEST_DOUBLED = LARGEST // 2
"""Qubits of a circuit whose state vector has an input and an output for each of them."""


def why_not(method: str, query: CircuitQuery, options: QuestionOptions) -> tuple[str, str] | None:
    """Why a method cannot answer, as the place and the problem of a refusal; None where it can."""
    name, is_random = query.question.name, query.is_random
    if method not in ANSWERS[name]:
        return "--method", f"{method!r} does not answer {name}"
    if is_random and method not in ANSWERS_RANDOM.get(name, ()):
        if query.is_mixed:
            return "--method", f"{method!r} answers {name} only in pure states, but the input state is mixed"
        return (
            "--method",
            f"{method!r} answers {name} only of gates, but the circuit has measurements or channels",
        )
    if (reason := _why_not_option(method, query, options)) is not None:
        return reason
    # Conditions need outcomes: channels average over them, and only trajectories have them.
    kinds = Conditional | WhileLoop | BitAssignment
    if (reason := _why_not_gates(method, query)) is not None:
        return reason
    if method in ("mps", "stabilizer", "mpo"):
        return _why_not_adapter(method, query)
    if isinstance(query.question, Sample):
        return _why_not_sample(method, query)
    if is_random and method != "statevector" and any(isinstance(x, kinds) for x in query.program.operations):
        return "--method", f"{method!r} does not support conditions, but the circuit has some"
    if method == "peps" and query.has_gradient:
        return "--gradient", "is asked for, but 'peps' has no gradients"
    if query.has_gradient and (reason := _why_no_gradient(method, query)) is not None:
        return reason
    if method == "pauli":
        return _why_not_sampled(query) if options.monte_carlo else _why_not_pauli(query)
    if method == "statevector":
        return _why_not_statevector(query, options)
    return None


def _why_not_option(method: str, query: CircuitQuery, options: QuestionOptions) -> tuple[str, str] | None:
    """An option that is given and that a method does not have."""
    if options.monte_carlo is not None and method != "pauli":
        return "--repetitions", f"are given, but {method!r} does not resample"
    if options.truncation is not None and method != "pauli":
        return "truncation", f"is given, but {method!r} does not truncate"
    for name, value in (("--max-bond", options.max_bond), ("--cutoff", options.cutoff)):
        if value is not None and method not in TRUNCATING:
            return name, f"is given, but {method!r} does not truncate bonds"
    if options.state_fidelity is not None and method != "statevector" and options.method != "auto":
        return "--state-fidelity", f"is given, but {method!r} does not compress amplitudes"
    if options.trajectories is not None and not (query.is_random and method == "statevector"):
        problem = f"{method!r} has none" if query.is_random else "the circuit is not random"
        return "--trajectories", f"is given, but {problem}"
    return None


def is_small(query: CircuitQuery, most_qubits: int = SMALL) -> bool:
    """Whether the state vector has few qubits: so few that it is taken without looking at other methods."""
    return query.n_qubits * (2 if _is_doubled(query) else 1) <= most_qubits


def possible_methods(query: CircuitQuery, options: QuestionOptions) -> list[str]:
    """The methods that can answer, in the order in which they are looked at."""
    known = (ANSWERS_RANDOM if query.is_random else ANSWERS).get(query.question.name, ())
    return [
        method for method in known if method not in ON_REQUEST and why_not(method, query, options) is None
    ]


def check_method(method: str, query: CircuitQuery, options: QuestionOptions) -> None:
    """Refuse a method that cannot answer; the remedy names those that can."""
    reason = why_not(method, query, options)
    if reason is not None:
        others = possible_methods(query, options)
        remedy = f"use {' or '.join(others)}" if others else _way_out(reason[0], query, options)
        if others and reason[0] == "--trajectories" and options.trajectories is None:
            remedy = f"give a number of runs, or {remedy}"
        raise InputError(*reason, remedy)


def check_answerable(query: CircuitQuery, options: QuestionOptions) -> None:
    """Refuse what no method can answer."""
    if not possible_methods(query, options):
        methods = ANSWERS[query.question.name]
        # What pauli lacks says more than that others have no repetitions.
        if options.monte_carlo is not None and "pauli" in methods:
            methods = ("pauli", *methods)
        if options.max_bond is not None or options.cutoff is not None:
            methods = ("mps", *methods) if "mps" in methods else methods
        reasons = [why_not(method, query, options) for method in methods]
        first = next(reason for reason in reasons if reason is not None)
        raise InputError(*first, _way_out(first[0], query, options))


def _why_not_gates(method: str, query: CircuitQuery) -> tuple[str, str] | None:
    """What gate a method does not take: contraction takes every matrix, "stabilizer" says itself."""
    if method in ("contraction", "stabilizer"):
        return None
    if (wrong := query.divided_program.not_unitary) is not None:
        number, gate = wrong
        return f"gate {number} ({gate.name})", "is not unitary"
    if method in ("mps", "mpo"):
        return None
    most = {"statevector": LARGEST_TARGETS, "pauli": MOST_QUBITS, "peps": 2}[method]
    program = query.circuit_program if method == "statevector" else query.divided_program
    for number, gate in program.distinct_gates:
        if len(gate.qubits) <= most:
            continue
        place = f"gate {number} ({gate.name})"
        if method == "peps":
            return place, f"acts on {len(gate.qubits)} qubits, but 'peps' takes at most 2"
        try:
            from_gate(gate, place) if method == "statevector" else gate_steps(gate, place)
        except InputError as error:
            return place, error.problem
    if method == "pauli":
        for number, operation in enumerate(query.circuit_operations):
            if isinstance(operation, Channel) and len(operation.qubits) > MOST_QUBITS:
                problem = f"acts on {len(operation.qubits)} qubits, but 'pauli' takes at most {MOST_QUBITS}"
                return f"operation {number} (channel)", problem
    return None


def _why_not_adapter(method: str, query: CircuitQuery) -> tuple[str, str] | None:
    """Why quimb or Stim does not answer."""
    missing = mps.why_not_installed() if method in ("mps", "mpo") else stabilizer.why_not_installed()
    if missing is not None:
        return "--method", f"{method!r} {missing}"
    if isinstance(query.question, Trace) and query.start is not None:
        return "--state", f"is given, but {method!r} only has traces over all inputs"
    if query.has_gradient:
        return "--gradient", f"is asked for, but {method!r} has no gradients"
    most = MOST_TABLE_QUBITS.get(query.question.name)
    qubits = getattr(query.question, "qubits", ())
    if most is not None and len(qubits) > most:
        return "--qubits", f"has {len(qubits)} qubits, but {method!r} takes at most {most}"
    if isinstance(query.question, Sample) and query.question.sampling == "rejection":
        return _whole_distribution(query.question, method)
    return stabilizer.why_not_clifford(query.program.operations) if method == "stabilizer" else None


def _whole_distribution(question: Sample, method: str) -> tuple[str, str]:
    place, given = ("--sampling", "is 'rejection'") if question.xeb is None else ("--xeb", "is given")
    return place, f"{given}, but {method!r} draws from the whole distribution"


def _why_not_sample(method: str, query: CircuitQuery) -> tuple[str, str] | None:
    assert isinstance(query.question, Sample)
    if method in ("statevector", "peps"):
        if query.question.sampling == "rejection":
            return _whole_distribution(query.question, method)
        return _too_many_qubits(query) if method == "statevector" else None
    try:
        has_gates = query.deferred.gates is not None
    except InputError as error:
        return error.place, error.problem
    sampling = query.question.sampling
    if (sampling == "gates" and not has_gates) or (sampling == "rejection" and query.is_random):
        circuits = "pure states" if query.is_mixed else "circuits of gates"
        if query.question.xeb is not None:
            return "--xeb", f"is only for {circuits}"
        return "--sampling", f"is {sampling!r}, which is only for {circuits}"
    return None


def _why_no_gradient(method: str, query: CircuitQuery) -> tuple[str, str] | None:
    if method == "statevector" and query.is_random:
        return "--gradient", "is asked for, but 'statevector' has no gradients of means over trajectories"
    if method == "pauli":
        for number, operation in enumerate(query.circuit_operations):
            if isinstance(operation, VariedGate) and not named_rotations(operation):
                return "--method", f"'pauli' has no derivatives of gate {number} ({operation.name})"
    return None


def _why_not_pauli(query: CircuitQuery) -> tuple[str, str] | None:
    most = MOST_PAULI_QUBITS.get(query.question.name)
    qubits = getattr(query.question, "qubits", ())
    if most is not None and len(qubits) > most:
        return "--qubits", f"has {len(qubits)} qubits, but 'pauli' takes at most {most}"
    return None


def _why_not_sampled(query: CircuitQuery) -> tuple[str, str] | None:
    """What repetitions of Pauli propagation do not answer."""
    if query.has_gradient:
        return "--repetitions", "are given, but gradients have no repetitions"
    if query.stops:
        return "--repetitions", "are given, but --after has no repetitions"
    is_in_state = isinstance(query.question, Trace) and query.start is not None
    if is_in_state or not isinstance(query.question, ExpectationValues | Trace):
        name = "traces in an input state" if is_in_state else query.question.name
        return "--repetitions", f"are of expectation values and of traces over all inputs, not of {name}"
    return None


def _why_not_statevector(query: CircuitQuery, options: QuestionOptions) -> tuple[str, str] | None:
    if query.is_random and options.trajectories is None:
        why = "the circuit measures, resets or is noisy before its end"
        return "--trajectories", f"is missing, and {'the input state is mixed' if query.is_mixed else why}"
    return _too_many_qubits(query)


def _too_many_qubits(query: CircuitQuery) -> tuple[str, str] | None:
    most = LARGEST_DOUBLED if _is_doubled(query) else LARGEST
    if query.n_qubits > most:
        return "--method", f"'statevector' takes at most {most} qubits, but the circuit has {query.n_qubits}"
    return None


def _is_doubled(query: CircuitQuery) -> bool:
    """Whether the state has an input and an output for each qubit."""
    return isinstance(query.question, Trace) and query.start is None


def _way_out(place: str, query: CircuitQuery, options: QuestionOptions) -> str:
    """What to do where no method answers."""
    if place == "--sampling":
        return "leave it out"
    if place.startswith("gate "):
        return "give unitary gates on few qubits"
    name = query.question.name
    if query.is_random and name not in ANSWERS_RANDOM:
        return f"ask for {', '.join(ANSWERS_RANDOM)} instead"
    if query.is_random and query.n_qubits > LARGEST:
        return f"use {LARGEST} qubits or fewer, or only Clifford gates"
    if query.is_random and options.trajectories is None:
        return "give --trajectories, and use statevector"
    if place == "--repetitions":
        return "leave them out"
    if options.max_bond is not None or options.cutoff is not None:
        return "leave --max-bond and --cutoff out"
    if options.truncation is not None or options.trajectories is not None:
        return "leave it out"
    return "ask for less at once"


assert {method for methods in ANSWERS.values() for method in methods} == set(METHODS)
