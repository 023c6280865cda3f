"""What a method needs for a question on a number of devices."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter, thread_time

import numpy as np

from tnplan.planner.hardware.profile import Profile

# How fast this host runs Python: what preparing a question takes goes with it.


TESTS = 4
REFERENCE_S = 0.0005
"""Seconds of `_work` on the core of the constants of the estimates (AMD EPYC, 2026-11-28)."""
TEST_EVERY_S = 0.2
least_s, tested_at_s = inf, -inf
"""The least seconds of `_work` in this process so far, and the time of the last test."""


def slowness() -> float:
    """How many times as long as on that core Python takes.

    Some short tests, again after `TEST_EVERY_S`. The least of this process counts: what else runs on a host
    slows a test down for a second, and seldom a whole process.
    """
    global least_s, tested_at_s
    if perf_counter() - tested_at_s > TEST_EVERY_S:
        least_s = min(least_s, *(_test_s() for _ in range(TESTS)))
        tested_at_s = perf_counter()
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


EXACT_FACTOR = 3.0
"""By how much a time predicted from rates may be off."""
CONTRACTION_FACTOR = 6.0
"""The same of contractions: the path of a call is another one, and small tensors have other rates."""
GRADIENT_TIME = 5.0
"""The time of values with their derivatives, in times of the values alone, by contraction and by Pauli
propagation. Measured: 2 to 6."""
FIRST_USE = 4.0
"""The first use of memory on a host takes as long as reading or writing its bytes so many times later."""
GPU_TAKE_S = 5.4e-12
"""Seconds to take a byte of a GPU's memory: 0.37 s for the 69 GB of 33 qubits (H200)."""
MEMORY_THREADS = 4
"""Threads of a CPU whose copies take no longer than that of one."""
SAMPLES_FACTOR = 4.0
"""By how much the time of samples by contraction may be off."""


@dataclass(frozen=True)
class Cost:
    """Bytes a device and seconds, and an estimate of the range of the time: within `factor`, each way.

    `fidelity`: what is predicted of a compressed state; None of what is not one.
    """

    devices: int
    memory_bytes: float
    time_s: float
    factor: float = EXACT_FACTOR
    least_s: float | None = field(default=None, repr=False)
    fidelity: float | None = field(default=None, repr=False)

    @property
    def shortest_s(self) -> float:
        """The lower end of the range; `least_s` where the time is a bound that may be far too long."""
        return self.time_s / self.factor if self.least_s is None else self.least_s

    @property
    def longest_s(self) -> float:
        """The upper end of the range."""
        return self.time_s * self.factor

    def of_circuits(self, count: float) -> Cost:
        """That of so many whole circuits, of which others than the last may take far less."""
        return self if count == 1 else replace(self, time_s=count * self.time_s, least_s=self.shortest_s)


def is_gpu(profile: Profile) -> bool:
    """Whether a profile is one of GPUs: these multiply in more than one precision."""
    return any(len(rates) > 1 for rates in profile.flop_per_s.values())


def of_threads(profile: Profile, threads: int) -> Profile:
    """A CPU's profile at the rates of its threads, which share the tiles of a contraction.

    Two threads took 0.53 of the time of one. Memory serves `MEMORY_THREADS` at most.
    """
    if threads == 1 or is_gpu(profile):
        return profile
    memory_threads = min(threads, MEMORY_THREADS)
    return replace(
        profile, memory_bytes_per_s=memory_threads * profile.memory_bytes_per_s,
        permute_bytes_per_s=memory_threads * profile.permute_bytes_per_s,
        flop_per_s={
            dtype: {precision: threads * rate for precision, rate in rates.items()}
            for dtype, rates in profile.flop_per_s.items()
        },
    )  # fmt: skip


def room_bytes(profile: Profile) -> int:
    """The bytes of a device that a job may take."""
    return profile.memory_bytes - profile.reserved_bytes


def first_use_s(size_bytes: float, profile: Profile) -> float:
    """The seconds that memory takes which a job has not used before."""
    return (GPU_TAKE_S if is_gpu(profile) else FIRST_USE / profile.memory_bytes_per_s) * size_bytes
