"""Counts of outcomes against exact probabilities."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

FARTHEST = 5.0
"""Standard deviations of a chi-square from its mean that no sample with a fixed seed may exceed."""
LEAST_EXPECTED = 5.0
"""Outcomes that are expected less often are taken together."""


def check_counts(counts: Mapping[str, int], probabilities: np.ndarray) -> None:
    """Assert that counts are those of `probabilities`, of shape [2] * n, by a chi-square."""
    flat = np.asarray(probabilities, float).ravel()
    found = np.zeros(len(flat))
    for text, number in counts.items():
        found[int(text, 2)] = number
    expected = flat * found.sum()
    assert not found[flat < 1e-14].any(), "an outcome of probability zero came"
    rare = expected < LEAST_EXPECTED
    found = np.append(found[~rare], found[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    found, expected = found[expected > 0], expected[expected > 0]
    freedom = max(1, len(expected) - 1)
    statistic = ((found - expected) ** 2 / expected).sum()
    assert statistic < freedom + FARTHEST * np.sqrt(2 * freedom), (statistic, freedom)
