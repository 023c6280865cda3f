"""Samples that reach a linear cross-entropy: the likeliest string of each bunch, from a share of the slices.

Write r = 2^n |a|^2 for the amplitude a that some of the slices sum up to, and f for its mean, the fidelity
(Markov et al., arXiv 1807.10749). Where the other slices add an independent Gaussian b, whose
2^n E|b|^2 = 1 - f, the exact probability p of a string has 2^n E[p | r] = r + 1 - f. So strings that are
chosen by r alone have

    XEB = 2^n <p> - 1 = <r> - f.

The likeliest of K exponentially distributed values (Porter-Thomas) is H_K = 1 + 1/2 + ... + 1/K times their
mean in the mean, and so XEB = f (H_K - 1): post-selection as in Pan, Chen and Zhang, arXiv 2111.03011.

A slice fixes a qubit somewhere in the circuit. Where few gates follow, f depends on the string: it is
f (1 + c) for one string and f (1 - c) for another. Slices of both values of the index cancel that. So the
slices that are summed differ from each other in as many indices as they can, as words of a code do. Then only
products of many small c are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import product
from math import ceil, inf, prod
from typing import Any

import numpy as np

from tnplan.circuits.circuit import GateSequence
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.search.sparse_state import FIRST_SEARCH_S
from tnplan.questions.tensor_networks.sparse_state import SparseState, largest_batch

BUNCHES = (2, 4, 6, 8, 10, 12)
"""Open qubits of a bunch: it has 2 to their number of strings."""
FEWEST_AT_ONCE = 32
"""Bunches of a contraction, where there are more."""
MOST_LONGER = 8
"""How many times the planned slices are summed at most, where these do not suffice."""
TOLERANCE = 5.0
"""Standard errors by which the prediction for the strings that were drawn may miss the target by chance."""
FAR_SLICES = 8
"""Slices that are summed at least, or all: fewer cannot be far from each other in many indices."""
AGREE = 0.8
"""What two slices add to the spread of f for each index in which they differ, beside one in which they agree:
(1 - c^2) / (1 + c^2) for c = 1/3, that of a qubit that one random gate follows."""
MOST_RANKED, MOST_SPREAD = 1 << 14, 256
"""Slices of which the next one is chosen, and how many are chosen so."""
DISTANCE, DEVIATIONS = 0.02, 1.63
"""The largest distance of the distribution of r from an exponential one, and what chance adds to it, over the
square root of the number of candidates (Kolmogorov's distance exceeds 1.63 / sqrt(N) with a chance of
0.01)."""
ROUNDED = 0.25
"""What rounding changes the cross-entropy by at most, in standard errors of the samples."""
MOMENT_DEVIATIONS = 4.0
"""Standard errors by which the mean of r^2 may differ from that of an exponential distribution."""


@dataclass(frozen=True)
class BunchPlan:
    """How samples of a cross-entropy are drawn.

    `closed` has the bits of the qubits that a bunch shares, uint8 [bunch, qubit]; `state` is planned for the
    first `at_once` bunches; `n_slices` of its slices are summed, which takes `time_s` for all bunches.
    """

    n_open: int
    closed: Array
    at_once: int
    state: SparseState
    n_slices: int
    time_s: float


@dataclass(frozen=True)
class ChosenStrings:
    """The likeliest string of each bunch, uint8 [bunch, qubit], and the cross-entropy predicted of them.

    `fidelity` is the mean of r over all candidates, `share` that of the slices; `error` is one standard
    error. `probabilities` are known where all slices were summed, to single precision.
    """

    bitstrings: Array
    fidelity: float
    share: float
    xeb: float
    error: float
    best_of: int
    probabilities: Array | None
    precision: str


def raised_by(count: int) -> float:
    """H_count - 1: the cross-entropy of the likeliest of so many strings, at fidelity 1."""
    return float((1 / np.arange(2, count + 1)).sum())


def slices_for(share: float, total: int) -> int:
    """How many slices of all are summed for a share."""
    return min(total, max(ceil(share * total), FAR_SLICES))


def plan_bunches(
    circuit: GateSequence, shots: int, xeb: float, generator: np.random.Generator, options: ContractionOptions
) -> BunchPlan | None:
    """The plan of least predicted time that reaches the cross-entropy; None where no size of bunches does.

    Every sample has a bunch of its own, so that samples are as independent as random bunches. "fp64", the
    default, stands for the precision of least predicted time whose estimated rounding does not show.
    """
    is_stated = options.precision not in (None, "fp64")
    if not is_stated:
        options = options.changed(precision="fp32")
    best: BunchPlan | None = None
    for n_open in BUNCHES:
        size, n_closed = 2**n_open, circuit.n_qubits - n_open
        if n_closed < 1 or (n_closed < 63 and shots > 2**n_closed):
            break
        share = xeb / raised_by(size)
        if share > 1:
            continue
        at_once = min(shots, max(1, largest_batch(options) // size))
        closed = _distinct_rows(shots, n_closed, generator)
        while True:
            strings = with_bunches(closed[:at_once], n_open)
            try:
                state = SparseState(circuit, strings, options, FIRST_SEARCH_S, along_one=True)
                break
            except InputError:  # the memory does not hold so many strings at once
                if at_once <= min(shots, FEWEST_AT_ONCE):
                    raise
                at_once = max(min(shots, FEWEST_AT_ONCE), at_once // 4)
        before = best
        for least in (1, ceil(1 / share), ceil(FAR_SLICES / share)):
            if least > 1 and not _sliced(state, least):
                continue
            # Their weights are about equal.
            n_slices = slices_for(share, state.plan.n_slices)
            chosen = spread_slices(state.extents, n_slices)
            rounded = state if is_stated else cheapest_precision(state, chosen, xeb, shots)
            time_s = ceil(shots / at_once) * rounded.seconds_of(chosen)
            if best is None or time_s < best.time_s:
                best = BunchPlan(n_open, closed, at_once, copy(rounded), n_slices, time_s)
        # Larger bunches need fewer slices of more strings: past the least time they only become dearer.
        if best is before:
            break
    return best


def cheapest_precision(state: SparseState, slices: Sequence[int], xeb: float, shots: float) -> SparseState:
    """The plan in the precision of least predicted time whose estimated rounding the samples do not show.

    A relative error e of the amplitudes takes e^2 of the fidelity, and so of the cross-entropy, whose
    standard error is 1 / sqrt(shots) at least. Where all slices are summed, probabilities of the samples are
    known: these keep single precision.
    """
    if state.device == "cpu" or len(slices) == state.plan.n_slices:
        return state
    best = state
    for precision in state.profile.flop_per_s[state.dtype]:
        other = state.in_precision(precision)
        is_faster = other.seconds_of(slices) < best.seconds_of(slices)
        if is_faster and other.rounding**2 * xeb <= ROUNDED / np.sqrt(shots):
            best = other
    return best


def draw_bunches(
    circuit: GateSequence, shots: int, xeb: float, generator: np.random.Generator, options: ContractionOptions
) -> ChosenStrings | None:
    """The likeliest string of each of `shots` random bunches; None where no size of bunches reaches `xeb`."""
    plan = plan_bunches(circuit, shots, xeb, generator, options)
    return None if plan is None else draw_along(plan, circuit, xeb)


def draw_along(plan: BunchPlan, circuit: GateSequence, xeb: float) -> ChosenStrings:
    """The likeliest string of each bunch of a plan.

    Raises InputError where candidates are not distributed as the prediction assumes, and where they do not
    reach the cross-entropy.
    """
    shots = len(plan.closed)
    size, n_slices, total = 2**plan.n_open, plan.n_slices, plan.state.plan.n_slices
    chosen, raised, means = [], [], []
    most = min(total, MOST_LONGER * n_slices)
    order = spread_slices(plan.state.extents, most)
    for first in range(0, shots, plan.at_once):
        closed = plan.closed[first : first + plan.at_once]
        state = plan.state if not first else plan.state.of_strings(with_bunches(closed, plan.n_open))
        values = state.amplitudes(sorted(order[:n_slices]))
        scaled = _scaled(values, circuit.n_qubits)
        # Slices weigh differently, and few of them less than their share: more are added in the first batch
        # until the fidelity, which is the mean over all candidates, suffices, and until they are mixed
        # enough. The others take as many. Where all are summed r is exact, and nothing is assumed of it.
        while not first and n_slices < most:
            reached = float(scaled.mean()) * raised_by(size)
            if reached >= xeb and is_porter_thomas(scaled):
                break
            wanted = 2 * n_slices if reached >= xeb else n_slices * xeb / max(reached, xeb / 2)
            more = min(most, max(n_slices + 1, ceil(wanted)))
            values = values + state.amplitudes(sorted(order[n_slices:more]))
            scaled, n_slices = _scaled(values, circuit.n_qubits), more
        if n_slices < total and not is_porter_thomas(scaled):
            raise InputError(
                "--xeb", f"cannot be predicted: probabilities of {n_slices} of {total} slices are not "
                "exponentially distributed (Porter-Thomas), as those of deep random circuits are",
                "leave it out: exact samples need no such distribution",
            )  # fmt: skip
        rows = np.arange(len(closed)) * size + scaled.reshape(-1, size).argmax(axis=1)
        chosen.append(with_bunches(closed, plan.n_open)[rows])
        raised.append(scaled[rows])
        means.append(np.full(len(closed), scaled.mean()))
    of_chosen = np.concatenate(raised)
    is_whole = n_slices == total
    fidelity = 1.0 if is_whole else min(1.0, float(np.concatenate(means).mean()))
    # In tf32 r is exact to a few parts in a thousand only: too few for a probability that is called known.
    is_known = is_whole and plan.state.precision != "tf32"
    known = of_chosen / 2.0**circuit.n_qubits if is_known else None
    predicted, error = predicted_xeb(of_chosen, fidelity)
    if predicted < xeb - TOLERANCE * error:
        raise InputError(
            "--xeb", f"is {xeb:.3g}, and the likeliest of {size} strings reach {predicted:.3g}",
            "leave it out: their probabilities are too even",
        )  # fmt: skip
    strings, precision = np.concatenate(chosen), plan.state.precision
    return ChosenStrings(strings, fidelity, n_slices / total, predicted, error, size, known, precision)


def predicted_xeb(of_chosen: Array, fidelity: float) -> tuple[float, float]:
    """The linear cross-entropy of strings with these r, and the standard error that exact probabilities of so
    many strings give it."""
    # p = |a + b|^2 has the variance (1 - f)^2 + 2 r (1 - f) for a given r, in units of 2^-n; r varies too.
    lost = 1 - fidelity
    variance = (lost**2 + 2 * of_chosen * lost).mean() + of_chosen.var()
    return float(of_chosen.mean()) - fidelity, float(np.sqrt(variance / len(of_chosen)))


def figures_of(xeb: float, error: float, share: float, best_of: int) -> dict[str, Any]:
    """What an answer says of the prediction."""
    return {
        "predicted_xeb": xeb, "predicted_xeb_error": error, "share_of_slices": share, "best_of": best_of,
    }  # fmt: skip


def with_bunches(closed: Array, n_open: int) -> Array:
    """All strings of bunches, uint8 [string, qubit]: the last qubits take all their values."""
    values = np.array(list(product((0, 1), repeat=n_open)), np.uint8)
    return np.hstack([np.repeat(closed, len(values), axis=0), np.tile(values, (len(closed), 1))])


def spread_slices(extents: Sequence[int], count: int) -> list[int]:
    """So many different slices, each as far from those before it as it can be.

    Of indices with two values, 2, 4, 8 and 16 of them are words of a linear code.

    Parameters
    ----------
    extents
        Of the sliced indices, outer loops first.
    count
        How many, at most all.
    """
    total, random = prod(extents), np.random.default_rng(0)
    numbers = np.arange(min(total, MOST_RANKED))
    if total > MOST_RANKED:
        drawn = random.choice(total, MOST_RANKED, replace=False)
        numbers = np.unique(np.concatenate([[0], drawn, [total - 1]]))
    digits = np.stack(np.unravel_index(numbers, extents), axis=1) if extents else np.zeros((1, 0), int)
    nearness, chosen, last = np.zeros(len(numbers)), list[int](), 0
    for _ in range(min(count, MOST_SPREAD)):
        chosen.append(int(numbers[last]))
        nearness += AGREE ** (digits != digits[last]).sum(axis=1)
        nearness[last] = inf
        last = int(nearness.argmin())
    # Beyond so many, chance mixes them as well.
    before = set(chosen)
    more = random.choice(total, min(total, count + len(chosen)), replace=False) if count > len(chosen) else ()
    return [*chosen, *(int(number) for number in more if int(number) not in before)][:count]


def is_porter_thomas(scaled: Array) -> bool:
    """Whether values are exponentially distributed, by Kolmogorov's distance and the mean of their squares.

    The second sees what the first lets pass in many values: a relative variance v of the means of strings
    raises the mean of r^2 by the factor 1 + v, and changes the cross-entropy by about v.

    Parameters
    ----------
    scaled
        r of all candidates, float64.
    """
    mean = float(scaled.mean())
    distance, excess = 1.0, inf
    if mean > 0:
        ordered, count = np.sort(scaled) / mean, len(scaled)
        below = 1 - np.exp(-ordered)
        steps = np.arange(count + 1) / count
        distance = float(max((steps[1:] - below).max(), (below - steps[:-1]).max()))
        # Invariant: x^2 / 2 - 2 x + 1 of exponential values has the mean 0 and the variance 1.
        excess = abs(float((ordered**2).mean()) / 2 - 1)
    root = np.sqrt(len(scaled))
    return bool(distance <= DISTANCE + DEVIATIONS / root and excess <= MOMENT_DEVIATIONS / root)


def _scaled(values: Array, n_qubits: int) -> Array:
    """r = 2^n |a|^2, float64."""
    return np.abs(values.astype(np.complex128)) ** 2 * 2.0**n_qubits


def _sliced(state: SparseState, least: int) -> bool:
    """Slice further, if there are too few slices and indices for more."""
    if state.plan.n_slices >= least:
        return False
    try:
        state.slice_more(least)
    except InputError:
        return False
    return True


def _distinct_rows(count: int, n_bits: int, generator: np.random.Generator) -> Array:
    """Random distinct rows of bits, uint8 [row, bit], in random order."""
    if n_bits <= 20:
        numbers = generator.permutation(1 << n_bits)[:count]
        rows = (numbers[:, None] >> np.arange(n_bits - 1, -1, -1) & 1).astype(np.uint8)
    else:
        rows = np.zeros((0, n_bits), np.uint8)
        while len(rows) < count:
            drawn = generator.integers(0, 2, (count - len(rows), n_bits), dtype=np.uint8)
            rows = np.unique(np.concatenate([rows, drawn]), axis=0)
        rows = generator.permutation(rows)
    # The plan of the first batch serves the others, since no bit is the same in all of it: with the fewest
    # bunches of a batch that is so but for a chance of n 2^-31, and they are drawn again.
    if count > FEWEST_AT_ONCE and not (rows[:FEWEST_AT_ONCE] != rows[0]).any(axis=0).all():
        return _distinct_rows(count, n_bits, generator)
    return rows
