"""The second-order correction with its small terms sampled.

Source: Sharma, Holmes, Jeanmairet, Alavi and Umrigar, J. Chem. Theory Comput. 13, 1595 (2017), equations 10
to 16. Knows sums over what is outside a list; nothing of solves.
"""

from __future__ import annotations

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.sbd.basis.determinants import DeterminantList
from tnplan.executor.sbd.selected_ci.connections import Correction, OutsideSum, limits_of, member_keys
from tnplan.executor.sbd.selected_ci.excitation_tables import ExcitationTables
from tnplan.executor.sbd.selected_ci.shards import Workers

SUMMED = 0.01
"""Terms above so many times a list's threshold are summed for all of its determinants."""
DRAWN = 200
"""Determinants of a sample."""
FIRST_SAMPLES = 10
"""Samples from which the error is estimated first."""
MOST_VISITS = 0.15
"""Determinants drawn in all samples at most, over those of the list. Each is visited for two thresholds and
two sums, so that beyond it summing all terms takes no longer."""


def sampled_second_order(
    basis: DeterminantList, state: Array, energy: float, thresholds: tuple[float, float],
    target: float, tables: ExcitationTables, workers: Workers,
) -> Correction:  # fmt: skip
    """Epstein and Nesbet's second order, of which terms below a threshold are sampled; collective.

    Parameters
    ----------
    basis, state
        The list, and coefficients in its order.
    energy
        E without the core's, in Hartree.
    thresholds
        Terms H_ai c_i above the first are summed for all determinants of the list, those from the second to
        the first for samples. In Hartree.
    target
        The standard error to end with, in Hartree. It is estimated from the samples, which are those of a
        fixed seed. Where that takes more samples than are worth it, all terms are summed.
    """
    members, n_listed, (coarse, fine) = member_keys(basis), len(state), thresholds
    outside = OutsideSum(members, energy, tables, workers)
    if coarse <= fine or not _is_worth(FIRST_SAMPLES, n_listed):
        return outside.of(members, state, limits_of(state, fine))
    summed = outside.of(members, state, limits_of(state, coarse))
    # Determinants are drawn with the chances p_i = |c_i| / sum |c|, with repetitions.
    cumulated = np.cumsum(np.abs(state))
    chances = np.abs(state) / cumulated[-1]
    random, differences = np.random.default_rng(n_listed), list[float]()
    while True:
        drawn = np.searchsorted(cumulated, random.random(DRAWN) * cumulated[-1], side="right")
        numbers, repeats = np.unique(np.minimum(drawn, n_listed - 1), return_counts=True)
        sample = _Sample(members[numbers], state[numbers], chances[numbers], repeats)
        # Both thresholds see the same sample, so that what they have in common does not scatter.
        differences.append(sample.correction(outside, fine) - sample.correction(outside, coarse))
        n = len(differences)
        if n < FIRST_SAMPLES:
            continue
        error = float(np.std(differences, ddof=1) / np.sqrt(n))
        if error <= target:
            return Correction(summed.energy + float(np.mean(differences)), summed.determinants, error)
        # The error falls as the root of their number.
        if not _is_worth(n * (error / target) ** 2, n_listed):
            return outside.of(members, state, limits_of(state, fine))


def _is_worth(n_samples: float, n_listed: int) -> bool:
    """Whether so many samples take less than summing all terms of a list."""
    return n_samples * DRAWN <= MOST_VISITS * n_listed


class _Sample:
    """Determinants of a list that were drawn, with their coefficients, chances and repetitions w."""

    def __init__(self, keys: Array, state: Array, chances: Array, repeats: Array) -> None:
        # sum_a (sum_i H_ai c_i)^2 / (E - H_aa) is the mean of
        # 1 / N (N - 1) sum_a [(sum_i w_i H_ai c_i / p_i)^2
        #                      + sum_i (w_i (N - 1) / p_i - w_i^2 / p_i^2) H_ai^2 c_i^2] / (E - H_aa),
        # since w_i w_j has the mean N (N - 1) p_i p_j for different i and j.
        n, scaled = repeats.sum(), repeats / chances
        self._keys, self._state, self._pairs = keys, state, float(n * (n - 1))
        self._linear = scaled * state
        self._squares = (scaled * (n - 1) - scaled**2) * np.abs(state) ** 2

    def correction(self, outside: OutsideSum, epsilon: float) -> float:
        """An estimate of the correction by terms above epsilon, without bias."""
        limits = limits_of(self._state, epsilon)
        linear = outside.of(self._keys, self._linear, limits)
        squares = outside.of(self._keys, self._squares, limits, of_squares=True)
        return (linear.energy + squares.energy) / self._pairs
