"""Fewer terms with the same mean: threshold resampling with stratified draws. Knows magnitudes alone.

Terms of at least the threshold stay as they are. Each other one stays with a probability in proportion to its
magnitude, and then has the threshold's. So every coefficient keeps its mean, and what is linear in them is
unbiased. In proportion to squares, the mean of every square is kept instead, and so the norm of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tnplan.planner.common.arrays import Array

KEPT_SHARE = 0.75
"""Terms that resampling leaves, as a part of those allowed: the next steps have room."""


@dataclass
class StratifiedResampler:
    """Draws by magnitudes to `power` 1 or 2; `events` counts the draws."""

    random: np.random.Generator
    power: int = 1
    events: int = 0

    def draw(self, sizes: Array, most: int) -> tuple[Array, Array]:
        """The numbers of the terms that stay, rising, and their new magnitudes."""
        weights = sizes**self.power
        count = max(1, int(KEPT_SHARE * most))
        if np.count_nonzero(weights) <= count:
            chosen = np.flatnonzero(weights)
            return chosen, sizes[chosen]
        self.events += 1
        level = threshold(weights, count)
        large = np.flatnonzero(weights >= level)
        small = np.flatnonzero(weights < level)
        draws = np.zeros(len(weights), np.int64)
        draws[small] = stratified(weights[small], count - len(large), self.random)
        new = (draws * level) ** (1 / self.power)
        new[large] = sizes[large]
        chosen = np.flatnonzero(new)
        return chosen, new[chosen]


def threshold(weights: Array, count: int) -> float:
    """The t with sum of min(1, weight / t) = count; there are more than `count` weights that are not 0.

    The k largest weights stay where the mean of the others' sum over count - k places is not above the
    smallest of them.
    """
    falling = np.sort(weights)[::-1]
    rest = np.cumsum(falling[::-1])[::-1][:count]
    levels = rest / (count - np.arange(count))
    return float(levels[np.argmax(falling[:count] <= levels)])


def stratified(weights: Array, count: int, random: np.random.Generator) -> Array:
    """How often each is drawn, int64: a uniform point in each of `count` equal parts of the sum."""
    ends = np.cumsum(weights)
    if count == 0 or not len(weights):
        return np.zeros(len(weights), np.int64)
    points = (np.arange(count) + random.random(count)) * (ends[-1] / count)
    drawn = np.minimum(np.searchsorted(ends, points, side="right"), len(weights) - 1)
    return np.bincount(drawn, minlength=len(weights))
