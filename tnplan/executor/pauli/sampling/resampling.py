"""Fewer terms with the same mean: threshold resampling with stratified draws. Knows magnitudes alone.

Terms of at least the threshold stay as they are. Each other one stays with a probability in proportion to its
magnitude, and then has the threshold's. So every coefficient keeps its mean, and what is linear in them is
unbiased. In proportion to squares, the mean of every square is kept instead, and so the norm of the sum.

In proportion to magnitudes times factors, which depend on words, it is unbiased as well. Words that are
likely to count at the end then stay more often, with smaller magnitudes.

Arrays are NumPy's or CuPy's, as `xp` says. Sums are of integers: a GPU adds up floating-point numbers in
another order in every run, and then a seed would not give the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tnplan.common.arrays import Array

KEPT_SHARE = 0.6
"""Terms that resampling leaves, as a part of those allowed: the next steps have room."""
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

    def kept(self, most: int) -> int:
        """How many terms a draw leaves where there may be `most`."""
        return max(1, int(KEPT_SHARE * most))

    def draw(self, sizes: Array, most: int, xp: Any = np) -> tuple[Array, Array]:
        """The numbers of the terms that stay, rising, and their new magnitudes, times importance as given."""
        # Threshold sampling with a fixed number: term k stays with probability min(1, w_k / t),
        # and then has the weight max(w_k, t), so that its mean is w_k. t is chosen so that the
        # probabilities add to `count`.
        weights = sizes**self.power
        count = self.kept(most)
        if int(xp.count_nonzero(weights)) <= count:
            chosen = xp.flatnonzero(weights)
            return chosen, sizes[chosen]
        self.events += 1
        level = threshold(weights, count, xp)
        # Those above the threshold stay as they are, without noise.
        large = xp.flatnonzero(weights >= level)
        small = xp.flatnonzero(weights < level)
        places = count - len(large)
        # A term of weight below the share is drawn at most twice, at the ends of two strata; it
        # then has the share for each draw.
        draws, share = stratified(weights[small], places, self.random, xp)
        new = xp.zeros(len(weights), np.float64)
        new[small] = (draws * share) ** (1 / self.power)
        new[large] = sizes[large]
        chosen = xp.flatnonzero(new)
        return chosen, new[chosen]


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
    whole, unit = as_integers(falling)
    sums = xp.cumsum(whole)
    rest = (sums[-1] - sums[:count] + whole[:count]).astype(np.float64) * unit
    levels = rest / (count - xp.arange(count))
    return float(levels[int(xp.argmax(falling[:count] <= levels))])


def stratified(weights: Array, count: int, random: np.random.Generator, xp: Any = np) -> tuple[Array, float]:
    """How often each is drawn, int64: a uniform point in each of `count` equal parts of the sum.

    Also the sum of the weights over `count`.
    """
    if count == 0 or not len(weights):
        return xp.zeros(len(weights), np.int64), 0.0
    # Systematic strata: point j is uniform in [j, j + 1) total / count. It has the mean of
    # independent draws and a smaller variance, as neighbours in the list are not drawn together.
    whole, unit = as_integers(weights)
    ends = xp.cumsum(whole)
    total = int(ends[-1])
    points = (xp.arange(count) + uniforms(random, count, xp)) * (total / count)
    drawn = xp.minimum(xp.searchsorted(ends, points.astype(np.int64), side="right"), len(weights) - 1)
    return xp.bincount(drawn, minlength=len(weights)), total * unit / count


def as_integers(weights: Array) -> tuple[Array, float]:
    """Weights as int64, and their unit: so small a part of the largest that the sum fits."""
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
