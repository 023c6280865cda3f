"""How fast this host runs Python: what preparing a question takes goes with it."""

from __future__ import annotations

from math import inf
from time import thread_time

import numpy as np

TESTS = 4
REFERENCE_S = 0.0005
"""Seconds of `_work` on the core of the constants of the estimates (AMD EPYC, 2026-11-28)."""
least_s = inf
"""The least seconds of `_work` in this process so far."""


def slowness() -> float:
    """How many times as long as on that core Python takes.

    Each call makes some short tests. The least of this process counts: what else runs on a host slows a test
    down for a second, and seldom a whole process.
    """
    global least_s
    least_s = min(least_s, *(_test_s() for _ in range(TESTS)))
    return least_s / REFERENCE_S


def _test_s() -> float:
    begin = thread_time()
    _work()
    return thread_time() - begin


def _work() -> None:
    """What planning is made of: dictionaries, tuples, sets, sorting, calls of NumPy on small arrays."""
    counts: dict[tuple[int, int], int] = {}
    for number in range(1000):
        key = (number % 97, number % 13)
        counts[key] = counts.get(key, 0) + 1
    sorted(counts.items(), key=lambda item: (item[1], item[0]))
    for number in range(250):
        frozenset((number, number + 1))
    for _ in range(40):
        np.any(np.ascontiguousarray(np.arange(8.0).reshape(2, 4).T) * 2.0 > 3)
