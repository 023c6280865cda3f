"""The method that `method="auto"` takes: cheap tests first, then predictions that cost a small share of the
answer.

A state of few qubits and a Clifford circuit are known by themselves. Otherwise the bounds of a state vector
and of a matrix product state come first, which need no search; a contraction and a Pauli propagation are
predicted for a share of the best time so far. What was chosen is kept for questions with the same structure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from math import inf, log2
from time import thread_time

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.program import Channel, Operation, inner_operations
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.launcher import launched_size
from tnplan.jobs.this_machine import this_machine
from tnplan.planner.hardware.profile import Profile
from tnplan.questions.methods import (
    ANSWERS,
    ON_ONE_RANK,
    ON_REQUEST,
    check_answerable,
    check_method,
    is_small,
    possible_methods,
    why_not,
)
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import Amplitudes, CircuitQuery, ExpectationValues, OpenAmplitudes, Sample

CHOOSER_SHARE, CHOOSER_S = 0.1, 0.01
"""What a choice may take: this share of the time of the method that is taken, and these seconds."""
LONGEST_PREDICTION_S, LONGEST_PILOT_S = 1.0, 30.0
"""What a prediction may take at most, and a pilot of a matrix product state."""
LEAST_SEARCHED_S, MOST_SEARCHED_S, SEARCH_S = 2.0, 1e8, 0.5
"""Seconds of a contraction by greedy paths between which paths are searched before a pilot, and those of the
search of each network. An exact method that takes more than the second counts as one that does not answer."""
FEW_QUBITS = 10
"""Qubits up to which a state vector is taken also for a Clifford circuit."""
ORDER: tuple[str, ...] = ("statevector", "mps", "contraction", "pauli")
"""The methods in the order in which they are predicted."""
CHOICES_KEPT = 512
GPU_QUBITS = 15
"""The fewest qubits of a state that a GPU takes where neither is named (H200 and 16 cores beside it)."""
GPU_UPDATES = 2.0**26
"""The fewest amplitudes that all gates of such a state change: the 16 cores take 26 ms for them, and a job on
the GPU takes 30 to 40 ms before its first gate."""
CLIFFORD_WEIGHTS = (0.0, 0.125, 0.25, 0.5, 1.0)
"""|element|^2 of the matrices of Clifford gates on up to three qubits."""

EQUAL, ZERO = 1e-9, 1e-24

choices: OrderedDict[tuple[object, ...], tuple[str, float]] = OrderedDict()
"""What was chosen for a structure, and its predicted seconds, the least recently used first."""


class NoMethodFitsError(InputError):
    """No method that answers fits the memory."""


def chosen_method(query: CircuitQuery, options: QuestionOptions, without: Collection[str] = ()) -> str:
    """The method for a question; raises InputError where none can answer, or the one named cannot.

    "auto" takes none of the methods `without`.
    """
    return chosen_with_time(query, options, without)[0]


def chosen_with_time(
    query: CircuitQuery, options: QuestionOptions, without: Collection[str] = ()
) -> tuple[str, float]:
    """The method for a question, and its predicted seconds: 0 where it is known by itself, and infinity
    where nothing is predicted."""
    is_alone = launched_size() == 1
    if query.stops and not is_alone:
        raise InputError(
            "mpirun", "started more than one rank, and --after is for one", "start one rank", topic="ranks"
        )
    if options.method != "auto":
        check_method(options.method, query, options)
        is_shared = options.method != "contraction" or _is_shared(query)
        if not is_alone and (options.method in ON_ONE_RANK or not is_shared):
            problem = f"started more than one rank, and {options.method!r} answers {_named(query)} on one"
            raise InputError(
                "mpirun", problem, "start it without mpirun, or use another --method",
                topic="ranks",
            )  # fmt: skip
        return options.method, 0.0
    if is_alone and options.memory is None and is_small(query):
        for method in ("statevector",) if query.n_qubits <= FEW_QUBITS else ("stabilizer", "statevector"):
            if method in ANSWERS[query.question.name] and why_not(method, query, options) is None:
                return method, 0.0
    check_answerable(query, options)
    has_contraction = is_alone or _is_shared(query)
    possible = [
        method for method in possible_methods(query, options)
        if (has_contraction or method != "contraction") and (is_alone or method not in ON_ONE_RANK)
    ]  # fmt: skip
    n_ranks = options.ranks or launched_size()
    # States and sums of Pauli words are distributed by bits of their index, so that ranks are a
    # power of two there.
    if n_ranks & (n_ranks - 1) and "contraction" in possible:  # the other methods take powers of two
        return "contraction", inf
    # With one rank contraction would answer, or `check_method` says why it does not.
    if not possible:
        check_method("contraction", query, options)
        raise InputError(
            "mpirun", "started several ranks, but only 'contraction' can answer, on one", "start one rank",
            topic="ranks",
        )  # fmt: skip
    profile = this_machine(options)
    key = (structure(query), *_machine_key(options, profile), tuple(possible))
    possible = [method for method in possible if method not in without]
    known = _known(query, options, possible, profile, n_ranks) if possible else None
    if known is not None:
        return known, inf if len(possible) == 1 else 0.0
    if key in choices and not without:
        choices.move_to_end(key)
        return choices[key]
    fastest, time_s = _fastest(query, options, possible, profile, n_ranks)
    if fastest is None:
        raise NoMethodFitsError(
            "--method", "no method fits the memory", "allow more memory or more ranks, or set a truncation",
            topic="memory",
        )  # fmt: skip
    choices[key] = fastest, time_s
    if len(choices) > CHOICES_KEPT:
        choices.popitem(last=False)
    return fastest, time_s


def unlisted_choice(
    query: CircuitQuery, options: QuestionOptions, possible: list[str], profile: Profile, devices: int
) -> str | None:
    """The method of one question on some hardware; None where none fits. It is not kept."""
    known = _known(query, options, possible, profile, devices)
    return known or _fastest(query, options, possible, profile, devices)[0]


def _known(
    query: CircuitQuery, options: QuestionOptions, possible: list[str], profile: Profile, devices: int
) -> str | None:
    """The method that is known without a prediction."""
    from tnplan.questions.estimates.state_cost import can_share, least_devices

    if len(possible) == 1:
        return possible[0]
    if "stabilizer" in possible and query.n_qubits > FEW_QUBITS:
        return "stabilizer"
    if possible[0] == "statevector" and is_small(query):
        least = least_devices(query, profile, options.precision, options.threads or 1)
        if least is not None and least <= devices and can_share(query.n_qubits, devices):
            return "statevector"
    return "stabilizer" if "stabilizer" in possible else None


def device_of(query: CircuitQuery, method: str, options: QuestionOptions) -> str:
    """The device of a method: the CPU where a GPU would take longer, unless both are named, and of a state
    that fits the host alone, unless the GPU is."""
    if method in (*ON_ONE_RANK, *ON_REQUEST) and "auto" in (options.method, options.device):
        return "cpu"
    if method != "statevector" or options.device != "auto":
        return options.device
    if query.n_qubits < GPU_QUBITS:
        return "cpu"
    from tnplan.questions.estimates.state_cost import profile_of_state, state_work

    n_qubits, gates, runs = state_work(query, options.trajectories or 1)
    if runs * len(gates) * 2.0**n_qubits < GPU_UPDATES:
        return "cpu"
    # Invariant: ranks of one job do not choose apart, and none opens a GPU here that is not its own.
    if (options.ranks or launched_size()) > 1:
        return "auto"
    gpu = this_machine(options)
    return "auto" if profile_of_state(query, gpu, options, 1) is gpu else "cpu"


def _is_shared(query: CircuitQuery) -> bool:
    """Whether ranks of mpirun share a question in a contraction."""
    return isinstance(query.question, Amplitudes | Sample | ExpectationValues) and not query.has_gradient


def _named(query: CircuitQuery) -> str:
    """The question, in a refusal."""
    if query.has_gradient:
        return "gradients"
    return "open qubits" if isinstance(query.question, OpenAmplitudes) else query.question.name


def _fastest(
    query: CircuitQuery, options: QuestionOptions, possible: list[str], profile: Profile, devices: int
) -> tuple[str | None, float]:
    """The method that is predicted to take the least time on so many devices, and that time; None where none
    fits."""
    from tnplan.questions.estimates.chain_cost import LEAST_PILOT_S
    from tnplan.questions.estimates.contraction_cost import MOST_NETWORKS, contraction_cost
    from tnplan.questions.estimates.quick import PILOT, LookBudget, quick_cost

    begin = thread_time()
    best, best_s = None, inf
    spare_s = inf  # of a compressed state, which is taken unasked only where nothing exact answers
    # Invariant: what is predicted later may cost no more than a share of the best time so far; the first two
    # methods need no search.
    candidates = [method for method in ORDER if method in possible]
    if "mps" in candidates:
        candidates.append(PILOT)
    for method in candidates:
        if method == PILOT and best == "mps":
            break
        is_last = method == candidates[-1] != PILOT
        if best is None and is_last and spare_s == inf:  # the engine itself says why it does not fit
            return method, inf
        allowed_s = CHOOSER_SHARE * best_s + CHOOSER_S - (thread_time() - begin)
        if best is not None and allowed_s <= 0 and method != "contraction":  # whose bound costs nothing
            break
        if method == PILOT and best == "contraction" and LEAST_SEARCHED_S < best_s < MOST_SEARCHED_S:
            # Its greedy path may be far too long, and the pilot with it.
            searched, _ = contraction_cost(
                query, profile, options.precision, (devices,), min(SEARCH_S, allowed_s / MOST_NETWORKS)
            )
            if devices in searched:
                best_s = min(best_s, searched[devices].time_s)
            allowed_s = CHOOSER_SHARE * best_s + CHOOSER_S - (thread_time() - begin)
        if method == PILOT and allowed_s < LEAST_PILOT_S:
            break
        if method == "pauli" and PILOT in candidates:  # the rest is for the pilot
            allowed_s /= 2
        longest_s = LONGEST_PILOT_S if method == PILOT else LONGEST_PREDICTION_S
        budget = LookBudget(best_s, min(allowed_s, longest_s))
        cost = quick_cost(method, query, options, profile, devices, budget)
        if cost is not None and cost.fidelity is not None and options.state_fidelity is None:
            spare_s = cost.time_s
        elif cost is not None and cost.time_s < best_s:
            best, best_s = "mps" if method == PILOT else method, cost.time_s
    return ("statevector", spare_s) if best_s > max(spare_s, MOST_SEARCHED_S) else (best, best_s)


def _machine_key(options: QuestionOptions, profile: Profile) -> tuple[object, ...]:
    """What a choice depends on beside the structure; free memory counts by its power of two."""
    free = round(log2(profile.memory_bytes))
    truncation = None if options.truncation is None else str(options.truncation)
    plan = None if options.monte_carlo is None else str(options.monte_carlo)
    return (
        profile.name, free, options.threads, options.ranks, options.precision, options.trajectories,
        truncation, plan, options.max_bond, options.cutoff, options.state_fidelity,
    )  # fmt: skip


def structure(query: CircuitQuery) -> tuple[object, ...]:
    """What a choice depends on: which gates act where, but not by which angles; and what is asked for."""
    question = query.question
    wanted: tuple[object, ...] = (question.name, getattr(question, "qubits", ()), query.has_gradient)
    if isinstance(question, ExpectationValues):
        wanted += tuple(observable.keys.tobytes() for observable in question.sums)
    elif isinstance(question, Amplitudes):
        wanted += (len(question.bits),)
    else:
        wanted += (repr(question),)
    state = None if query.start is None else str(query.start.measured)
    kinds: list[object] = []
    matrices: list[Array] = []
    _collect(query.program.operations, kinds, matrices)
    return query.n_qubits, tuple(kinds), _patterns(matrices), wanted, state


def _collect(operations: Sequence[Operation], kinds: list[object], matrices: list[Array]) -> None:
    """The operations without their matrices, and these."""
    for operation in operations:
        if isinstance(operation, Gate):
            kinds.append(operation.qubits)
            matrices.append(operation.matrix)
        elif isinstance(operation, Channel):
            kinds.append((operation.qubits, len(operation.kraus)))
            matrices += operation.kraus
        else:
            kinds.append(repr(operation))
            _collect(inner_operations(operation), kinds, matrices)


def _patterns(matrices: Sequence[Array]) -> bytes:
    """Where each matrix is not zero, and whether it may be that of a Clifford gate."""
    by_side: dict[int, list[int]] = {}
    for number, matrix in enumerate(matrices):
        by_side.setdefault(len(matrix), []).append(number)
    patterns = [b""] * len(matrices)
    for numbers in by_side.values():
        stacked = np.array([matrices[number] for number in numbers])
        weights = (stacked.real**2 + stacked.imag**2).reshape(len(numbers), -1)
        near = np.abs(weights[..., None] - CLIFFORD_WEIGHTS).min(axis=2).max(axis=1) < EQUAL
        rows = np.packbits(np.column_stack([weights > ZERO, near]), axis=1)
        for number, row in zip(numbers, rows, strict=True):
            patterns[number] = row.tobytes()
    return b"".join(patterns)
