"""Independent repetitions of a propagation that resamples its terms, each on a thread or a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tnplan.circuits.pauli_sum import PauliSum
from tnplan.common.arrays import Array
from tnplan.common.checks import check_choice, check_count
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra.expectation import overlap, value_in
from tnplan.executor.pauli.algebra.gates import Clifford, PauliStep, Rotation, simple_steps
from tnplan.executor.pauli.algebra.states import ProductState, State, after_first_steps
from tnplan.executor.pauli.cuda.terms import GpuTerms
from tnplan.executor.pauli.estimate import EchoParts
from tnplan.executor.pauli.propagate import Propagator, prepared
from tnplan.executor.pauli.terms.protocol import Terms
from tnplan.executor.pauli.terms.sharded import ShardedTerms
from tnplan.executor.pauli.terms.truncation import Truncation

# Fewer terms with the same mean: threshold resampling with stratified draws. Knows magnitudes alone.
#
# Terms of at least the threshold stay as they are. Each other one stays with a probability in proportion to
# its magnitude, and then has the threshold's. So every coefficient keeps its mean, and what is linear in them
# is unbiased. In proportion to squares, the mean of every square stays instead, and so the norm of the sum.
#
# In proportion to magnitudes times factors, which depend on words, it is unbiased as well. Words that are
# likely to count at the end then stay more often, with smaller magnitudes.
#
# Arrays are NumPy's or CuPy's, as `xp` says. Sums are of integers: a GPU adds up floating-point numbers in
# another order in every run, and then a seed would not give the same draws.


KEPT_SHARE = 0.6
"""The share of the allowed terms that resampling leaves: the next steps may add some."""
LETTER_SHARE, LEAST_FACTOR, MOST_FACTOR = 0.6, 0.05, 0.5
"""By how much of a sine a letter X or Y multiplies the weight of a word, which had the least noise
(benchmarks/notes/pauli.md), and its bounds."""
SUM_BITS = 62
"""Of integers that stand for weights: their sum stays below 2 to this power."""
HALVES = tuple((1 << k, (2**64 - 1) // (2 ** (1 << k) + 1)) for k in range(6))
"""Widths of 1 to 32 bits, and the masks of every other group of so many."""


@dataclass
class StratifiedResampler:
    """Draws by magnitudes to `power` 1 or 2; `events` counts the draws.

    `letter_factor` multiplies the weight of a word for each of its letters X and Y.
    """

    random: np.random.Generator
    power: int = 1
    letter_factor: float = 1.0
    events: int = 0

    def importance(self, keys: Array) -> Array | float:
        """By what the magnitudes of packed words are multiplied before they are drawn from."""
        if self.letter_factor == 1:
            return 1.0
        return self.letter_factor ** xy_letters(keys).astype(np.float64)

    def n_left(self, max_terms: int) -> int:
        """How many terms a draw leaves where there may be `max_terms`."""
        return max(1, int(KEPT_SHARE * max_terms))

    def draw(self, sizes: Array, max_terms: int, xp: Any = np) -> tuple[Array, Array]:
        """The numbers of the terms that stay, rising, and their new magnitudes, times importance as given."""
        # Threshold sampling with a fixed number: term k stays with probability min(1, w_k / t),
        # and then has the weight max(w_k, t), so that its mean is w_k. t is chosen so that the
        # probabilities add to `count`.
        weights = sizes**self.power
        count = self.n_left(max_terms)
        if int(xp.count_nonzero(weights)) <= count:
            numbers = xp.flatnonzero(weights)
            return numbers, sizes[numbers]
        self.events += 1
        level = threshold(weights, count, xp)
        # Those above the threshold stay as they are, without noise.
        large = xp.flatnonzero(weights >= level)
        small = xp.flatnonzero(weights < level)
        n_draws = count - len(large)
        # A term of weight below the share is drawn at most twice, at the ends of two strata; it
        # then has the share for each draw.
        draws, share = stratified(weights[small], n_draws, self.random, xp)
        new = xp.zeros(len(weights), np.float64)
        new[small] = (draws * share) ** (1 / self.power)
        new[large] = sizes[large]
        numbers = xp.flatnonzero(new)
        return numbers, new[numbers]


def letter_factor(angles: Array) -> float:
    """By what a letter X or Y multiplies the weight of a word, from the angles of all rotations.

    A letter that a rotation may make a Z is worth the sine of its angle.
    """
    if not len(angles):
        return MOST_FACTOR
    sine = float(np.sqrt(np.mean(np.sin(angles) ** 2)))
    return min(MOST_FACTOR, max(LEAST_FACTOR, LETTER_SHARE * sine))


def threshold(weights: Array, count: int, xp: Any = np) -> float:
    """The t with sum of min(1, weight / t) = count; there are more than `count` weights that are not 0.

    The k largest weights stay where the mean of the others' sum over count - k places is not above the
    smallest of them.
    """
    # With the k largest kept, the others have t_k = (sum of others) / (count - k). The right k is
    # the first where the next weight is not above t_k; t falls with k until then.
    falling = xp.sort(weights)[::-1]
    integers, unit = as_integers(falling)
    sums = xp.cumsum(integers)
    tail_sums = (sums[-1] - sums[:count] + integers[:count]).astype(np.float64) * unit
    levels = tail_sums / (count - xp.arange(count))
    return float(levels[int(xp.argmax(falling[:count] <= levels))])


def stratified(weights: Array, count: int, random: np.random.Generator, xp: Any = np) -> tuple[Array, float]:
    """How often each is drawn, int64: a uniform point in each of `count` equal parts of the sum.

    Also the sum of the weights over `count`.
    """
    if count == 0 or not len(weights):
        return xp.zeros(len(weights), np.int64), 0.0
    # Systematic strata: point j is uniform in [j, j + 1) total / count. It has the mean of
    # independent draws and a smaller variance, as neighbours in the list are not drawn together.
    integers, unit = as_integers(weights)
    ends = xp.cumsum(integers)
    total = int(ends[-1])
    points = (xp.arange(count) + uniforms(random, count, xp)) * (total / count)
    drawn = xp.minimum(xp.searchsorted(ends, points.astype(np.int64), side="right"), len(weights) - 1)
    return xp.bincount(drawn, minlength=len(weights)), total * unit / count


def as_integers(weights: Array) -> tuple[Array, float]:
    """Weights as int64, and their unit: so small a fraction of the largest that the sum fits."""
    largest, units = float(weights.max()), 2.0 ** (SUM_BITS - len(weights).bit_length())
    return (weights / largest * units).astype(np.int64), largest / units


def uniforms(random: np.random.Generator, count: int, xp: Any) -> Array:
    """Numbers in [0, 1), float64; on a GPU it makes them itself, by SplitMix64 (Steele et al. 2014)."""
    if xp is np:
        return random.random(count)
    state = xp.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state += random.integers(2**64, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    state ^= state >> np.uint64(31)
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def xy_letters(keys: Array) -> Array:
    """How many letters X and Y packed words have, int64; by halves of bits, since CuPy counts none."""
    x = keys[:, : keys.shape[1] // 2]
    for width, mask in HALVES:
        x = (x & np.uint64(mask)) + ((x >> np.uint64(width)) & np.uint64(mask))
    return x.astype(np.int64).sum(axis=1)


BY = {"magnitude": 1, "letters": 1, "square": 2}
"""In proportion to what terms stay: the power of magnitudes."""
MOST_SEED = 2**63 - 1
Value = TypeVar("Value")
"""What is read from the terms at the end."""


@dataclass(frozen=True)
class MonteCarlo:
    """Resample the terms where they would pass `Truncation.max_terms`, in independent repetitions.

    Parameters
    ----------
    repetitions : int
        How many, 2 or more; their mean is the estimate.
    seed : int
        Repetition r depends on the seed and r alone.
    by : {"magnitude", "letters", "square"}
        In proportion to what small terms stay. By magnitude every value is unbiased, echoes too. By letters
        too: every letter X or Y takes most of a word's weight, which has less noise in states of 0 and 1. By
        square is for echoes (docs/explanation/pauli.md): the noise is far smaller, and the value is biased,
        since words that are resampled apart do not interfere.

    Raises
    ------
    InputError
        For values that cannot be.

    Examples
    --------
    >>> tnplan.MonteCarlo(repetitions=8, seed=3).by
    'magnitude'
    """

    repetitions: int = 16
    seed: int = 0
    by: str = "magnitude"

    def __post_init__(self) -> None:
        object.__setattr__(self, "repetitions", check_count("--repetitions", self.repetitions, 2))
        object.__setattr__(self, "seed", check_count("--seed", self.seed, 0, MOST_SEED))
        check_choice("--resample-by", self.by, BY)


class Repetition(NamedTuple):
    """One repetition: its value, how often terms were resampled, and the most terms at any time."""

    value: float
    resampled: int
    largest: int


class LinearTask(NamedTuple):
    """The value of one sum after steps, which is linear in the coefficients."""

    steps: Sequence[PauliStep]
    start: PauliSum
    state: str | State | None
    device: str = "cpu"

    @property
    def letter_factor(self) -> float:
        """By what a letter X or Y multiplies the weight of a word, where letters are looked at."""
        return letter_factor(np.array([step.angle for step in self.steps if isinstance(step, Rotation)]))

    def run(self, max_terms: int, resampler: StratifiedResampler) -> Repetition:
        """One repetition with at most so many terms."""

        def value(terms: Terms) -> complex:
            if self.state is None or isinstance(self.state, str):
                return terms.in_bits(self.state)
            if isinstance(self.state, ProductState):
                return terms.in_product(self.state.bloch)
            return value_in(terms.local_terms(), self.state)

        measured, largest = _resampled(self.steps, self.start, max_terms, resampler, self.device, value)
        return Repetition(float(measured.real), resampler.events, largest)


class EchoTask(NamedTuple):
    """tr(A V^dagger A V) / 2^n: `back` gives A, and the middle V is linear in the second A.

    By magnitudes the two are independent samples, and the value is unbiased. By squares they are the same.
    """

    back: Sequence[PauliStep]
    start: PauliSum
    middle: Sequence[PauliStep]
    device: str = "cpu"

    def run(self, max_terms: int, resampler: StratifiedResampler) -> Repetition:
        """One repetition with at most so many terms."""
        half, largest = _resampled(self.back, self.start, max_terms, resampler, self.device, local_terms)
        independent, linear = half, StratifiedResampler(resampler.random)
        if resampler.events and resampler.power == 1:
            independent, grown = _resampled(
                self.back, self.start, max_terms, resampler, self.device, local_terms
            )
            largest = max(largest, grown)
        max_terms = max(max_terms, independent.n_terms)
        turned, grown = _resampled(self.middle, independent, max_terms, linear, self.device, local_terms)
        value = overlap(half, turned)
        return Repetition(float(value.real), resampler.events + linear.events, max(largest, grown))


def linear_task(
    steps: Sequence[PauliStep], observable: PauliSum, state: str | State | None, device: str = "cpu",
    *, keep_cliffords: bool = False,
) -> LinearTask:  # fmt: skip
    """What each repetition does for a value that is linear in the coefficients.

    Where letters are looked at, `keep_cliffords`: words are then those of the circuit's own qubits. First
    steps on one qubit each go into the state: what the last terms would be split for is then exact.
    """
    remaining, rotated_state = after_first_steps(simple_steps(steps), state, observable.n_qubits)
    return LinearTask(*prepared(remaining, observable, keep_cliffords), rotated_state, device)


def echo_task(parts: EchoParts, observable: PauliSum, device: str = "cpu") -> EchoTask:
    """What each repetition does for an echo of `observable`."""
    back, start = prepared(parts.back, observable, keep_cliffords=False)
    keep = any(isinstance(step, Clifford) for step in parts.middle)
    middle, _ = prepared(parts.middle, observable, keep_cliffords=True) if keep else (parts.middle, None)
    return EchoTask(back, start, middle, device)


def repetition(task: LinearTask | EchoTask, plan: MonteCarlo, max_terms: int, number: int) -> Repetition:
    """Repetition `number`; the same wherever and with whatever others it runs."""
    random = np.random.default_rng(np.random.SeedSequence(plan.seed, spawn_key=(number,)))
    factor = task.letter_factor if isinstance(task, LinearTask) and plan.by == "letters" else 1.0
    return task.run(max_terms, StratifiedResampler(random, BY[plan.by], factor))


def check_sampling(observable: PauliSum, truncation: Truncation) -> int:
    """The terms that a repetition may have; refuses what resampling cannot do."""
    if truncation.max_terms is None:
        raise InputError("--repetitions", "need a limit of terms", "give --max-terms")
    if Truncation(max_terms=truncation.max_terms, every=truncation.every) != truncation:
        raise InputError("--repetitions", "resample terms instead of cutting them", "leave the cuts out")
    if np.iscomplexobj(observable.coefficients):
        raise InputError("--repetitions", "take real coefficients", "give the two parts one by one")
    return truncation.max_terms


def local_terms(terms: Terms) -> PauliSum:
    """The terms themselves, of a lone rank."""
    return terms.local_terms()


def _resampled(
    steps: Sequence[PauliStep], start: PauliSum, max_terms: int, resampler: StratifiedResampler, device: str,
    read: Callable[[Terms], Value],
) -> tuple[Value, int]:  # fmt: skip
    """What is read from at most `max_terms` terms after steps, and the most terms that there were."""
    terms = GpuTerms(start) if device == "gpu" else ShardedTerms(start)
    try:
        Propagator(terms, Truncation(max_terms=max_terms), resampler=resampler).run(steps)
        grown = terms.ledger.record().grown
        return read(terms), max((start.n_terms, *grown))
    finally:
        terms.close()
