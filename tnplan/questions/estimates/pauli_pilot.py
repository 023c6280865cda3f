"""The cost of Pauli propagation: a short pilot run, and the growth of the sum beyond it.

Words are taken through the last steps of the circuit, twice as many each time, until a run is long enough or
the sum is large. The logarithm of the number of terms then goes on as fast as in the last half of the pilot;
how much that slope differs from the one of the whole pilot is the uncertainty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log
from time import process_time

import numpy as np

from tnplan.circuits.pauli_sum import PauliSum
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra.gates import PauliStep
from tnplan.executor.pauli.gradient import on_cpu_alone
from tnplan.executor.pauli.propagate import Propagation, prepared, propagate
from tnplan.executor.pauli.repetitions import MonteCarlo
from tnplan.executor.pauli.resources import Resources, term_bytes
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.jobs.pauli_sampling import GPU_ABOVE
from tnplan.planner.hardware.profile import Profile
from tnplan.questions.engines.pauli import planned_sums, sampled_values
from tnplan.questions.estimates.cost import GRADIENT_TIME, Cost, is_gpu, slowness
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import CircuitQuery

PILOT_FACTOR = 6.0
"""By how much a time may be off beside the growth: the pilots of some sums stand for all."""
PILOT_S, LEAST_PILOT_S = 0.3, 0.02
"""Seconds of a run after which no longer one is made, at most and at least."""
SHORT_S = PILOT_S / 10
"""Seconds of a run up to which it is made twice, since the least of two is steadier."""
PILOT_BYTES = 128 << 20
"""Memory of a pilot of PILOT_S."""
FIRST_STEPS = 4
MOST_SUMS = 4
"""Sums of which pilots are made; of more, some stand for all."""
START_S = 0.0015
"""Seconds of a sum beside its steps, where `slowness` is 1."""
GPU_VISIT_S, GPU_STEP_S = 4e-11, 4e-6
"""Seconds of a GPU for a term before a step, and for a step (H200, docs/explanation/pauli.md)."""
CPU_VISIT_S, CPU_STEP_S = 7e-9, 7e-6
"""Seconds of a core for a term before a step, and for a step, where a pilot is too short to tell, and where
`slowness` is 1."""
TAPE_BYTES_A_VISIT = 12
"""Of a gradient: half of the terms split, and each of these takes twice as much on the tape."""
TOLD_VISITS = 20_000
"""Visits of a pilot from which on its time is taken."""
RESAMPLED_FACTOR = 2.0
"""By how much more the time of repetitions may be off: terms are drawn too, and threads may help."""
NEARLY = 0.99
"""The share of the terms that a repetition may have from which on a sum is taken to be resampled."""
MOST_LOG_TERMS = 60.0
"""No prediction goes past exp(60) terms."""


@dataclass(frozen=True)
class _Growth:
    """The largest sum, visits, steps, seconds of a core and of preparing, and how far off these may be."""

    terms: float
    visits: float
    steps: int
    cpu_s: float
    start_s: float
    factor: float


def pauli_cost(
    query: CircuitQuery, profile: Profile, options: QuestionOptions, threads: int, pilot_s: float = PILOT_S,
    most_sums: int = MOST_SUMS,
) -> Cost:  # fmt: skip
    """What a question takes on one device; threads share repetitions. No pilot goes on after `pilot_s`.

    Pilots are made of `most_sums` sums.
    """
    precision, truncation = options.precision, options.truncation or Truncation()
    steps_s = inf
    for _ in range(2):  # gates that are prepared once are kept
        begin = process_time()
        planned = planned_sums(query)
        steps_s = min(steps_s, process_time() - begin)
    steps, sums = planned.steps, planned.sums
    step = -(-len(sums) // most_sums)
    chosen = sums[step // 2 :: step]
    share = len(sums) / len(chosen)
    pilot_s = min(max(pilot_s, LEAST_PILOT_S), PILOT_S)
    slow = slowness()
    grown = [_growth(steps, start, precision, truncation, pilot_s, slow) for start in chosen]
    size_bytes = 2 * max(growth.terms for growth in grown) * term_bytes(query.n_qubits, 8)
    factor = max(growth.factor for growth in grown)
    if options.monte_carlo is not None:
        most = sampled_values(query, planned, options)[0].most_terms
        seconds = _repeated_s(grown, options.monte_carlo, most, profile)
        size_bytes *= min(threads, options.monte_carlo.repetitions)
        return Cost(1, size_bytes, steps_s + share * seconds, RESAMPLED_FACTOR * factor)
    is_alone = query.has_gradient and on_cpu_alone(steps, sums, 1)
    if is_gpu(profile) and not is_alone:
        seconds = sum(
            growth.visits * GPU_VISIT_S + growth.steps * GPU_STEP_S + growth.start_s for growth in grown
        )
    else:
        seconds = sum(growth.cpu_s + growth.start_s for growth in grown)
    if query.has_gradient:
        seconds *= GRADIENT_TIME
        size_bytes += max(growth.visits for growth in grown) * TAPE_BYTES_A_VISIT
    return Cost(1, size_bytes, steps_s + share * seconds, factor)


def _repeated_s(grown: Sequence[_Growth], plan: MonteCarlo, most: int, profile: Profile) -> float:
    """The seconds of all repetitions, one after another.

    Threads share them, but wait for each other: 4 took 0.7 to 1.8 times what one takes. A sum that never has
    as many terms as a repetition may is taken once.
    """
    seconds = 0.0
    for growth in grown:
        rounds = plan.repetitions if growth.terms > NEARLY * most else 1
        if is_gpu(profile) and most >= GPU_ABOVE:
            seconds += growth.start_s + rounds * (growth.visits * GPU_VISIT_S + growth.steps * GPU_STEP_S)
        else:
            seconds += growth.start_s + rounds * growth.cpu_s
    return seconds


def _growth(
    steps: tuple[PauliStep, ...], start: PauliSum, precision: str, truncation: Truncation, pilot_s: float,
    slow: float,
) -> _Growth:  # fmt: skip
    """The growth of one sum, from runs over the last steps."""
    todo, start = prepared(steps, start, truncation.needs_letters)
    pilot, count, time_s = _longest_pilot(todo, start, precision, truncation, pilot_s)
    if not todo:
        return _Growth(start.n_terms, 0, 0, 0.0, slow * START_S, PILOT_FACTOR)
    if pilot is None:
        return _Growth(exp(MOST_LOG_TERMS), inf, len(todo), inf, slow * START_S, inf)
    visit_s, step_s = slow * CPU_VISIT_S, slow * CPU_STEP_S
    # Short pilots are mostly overhead, and tell nothing of the time a term takes; constants serve there.
    if pilot.visits > TOLD_VISITS:
        visit_s, step_s = time_s / pilot.visits, 0.0
    if count == len(todo):
        cpu_s = visit_s * pilot.visits + step_s * count
        return _Growth(pilot.largest, pilot.visits, len(todo), cpu_s, slow * START_S, PILOT_FACTOR)
    # There are 4^n words on n qubits, and truncation may allow fewer.
    most = min(MOST_LOG_TERMS, start.n_qubits * log(4), log(truncation.max_terms or inf))
    terms, spread = _extrapolated(np.array(pilot.record.terms, float), len(todo) - count, most)
    visits, cpu_s = float(terms.sum()), visit_s * float(terms.sum()) + step_s * len(todo)
    factor = PILOT_FACTOR * exp(spread)
    return _Growth(float(terms[-1]), visits, len(todo), cpu_s, slow * START_S, factor)


def _longest_pilot(
    todo: Sequence[PauliStep], start: PauliSum, precision: str, truncation: Truncation, pilot_s: float
) -> tuple[Propagation | None, int, float]:
    """The last run over more and more steps: what came of it, its steps, and its seconds."""
    pilot, count, time_s = None, 0, 0.0
    while count < len(todo) and time_s <= pilot_s:
        # Heisenberg picture: the observable goes backwards, so that a pilot takes the last steps.
        # Doubling keeps all earlier pilots together below the last in steps.
        tried, run_s = min(max(FIRST_STEPS, 2 * count), len(todo)), inf
        for _ in range(2):  # the first loads kernels, and what takes little is noisy
            begin = process_time()
            run = _pilot(todo[len(todo) - tried :], start, precision, truncation, pilot_s)
            run_s = min(run_s, process_time() - begin)
            if run is None or (pilot is not None and run_s > min(SHORT_S, pilot_s / 10)):
                break
        if run is None:
            break
        pilot, count, time_s = run, tried, run_s
    return pilot, count, time_s


def _pilot(
    steps: Sequence[PauliStep], start: PauliSum, precision: str, truncation: Truncation, pilot_s: float
) -> Propagation | None:
    """A run over some steps; None where the sum outgrows the memory of a pilot of so many seconds."""
    use = Resources(precision=precision, memory_bytes=int(PILOT_BYTES * pilot_s / PILOT_S))
    try:
        return propagate(steps, start, truncation, use, keep_cliffords=True, keep="none")
    except InputError:
        return None


def _extrapolated(terms: np.ndarray, left: int, most: float) -> tuple[np.ndarray, float]:
    """The terms after each step, and how uncertain their last logarithm is.

    In the steps that are left the logarithm rises as in the pilot, up to `most`.
    """
    logs = np.log(np.maximum(terms, 1.0))
    half = len(logs) // 2
    slope = (logs[-1] - logs[half]) / max(1, len(logs) - 1 - half)
    whole = (logs[-1] - logs[0]) / max(1, len(logs) - 1)
    path = np.minimum(logs[-1] + max(slope, 0.0) * np.arange(1, left + 1), most)
    spread = min(abs(slope - whole) * left + 0.5, MOST_LOG_TERMS)
    return np.concatenate([terms, np.exp(path)]), spread
