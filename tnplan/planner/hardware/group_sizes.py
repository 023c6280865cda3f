"""Sizes of groups: how many ranks may share a slice where so many devices are at hand."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt


def group_sizes(devices: int, n_slices: int) -> list[int]:
    """Group sizes worth planning for some devices, smallest first: the powers of two and the divisors.

    A size is left out where one of its multiples still leaves a group for every slice.
    """
    sizes = divisors_and_powers([devices])
    enough = [size for size in sizes if devices // size >= n_slices]
    return sorted(size for size in sizes if not any(more > size and more % size == 0 for more in enough))


def divisors_and_powers(counts: Sequence[int]) -> list[int]:
    """Every divisor of every count and every power of two up to the largest, smallest first."""
    sizes = {1 << exponent for exponent in range(max(counts).bit_length())}
    for count in counts:
        for low in range(1, isqrt(count) + 1):
            if count % low == 0:
                sizes |= {low, count // low}
    return sorted(sizes)
