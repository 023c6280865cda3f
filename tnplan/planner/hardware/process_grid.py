"""Layouts on the process grid: which part of a tensor a rank holds. Pure index arithmetic; no communicator.

The ranks of a group are numbered 0 .. P-1 and written in mixed radix with the prime digits of P, the most
significant digit first. Consecutive ranks share a node, so leading digits cross nodes and trailing ones do
not. A layout gives every digit one mode of the tensor, or None (the tensor is replicated over that digit).
Modes have prime extents (the planner splits composite ones), so a mode takes at most one digit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt, prod


def group_sizes(devices: int, n_slices: int) -> list[int]:
    """Group sizes worth planning for some devices, smallest first: the powers of two and the divisors.

    A size is left out where one of its multiples still leaves a group for every slice.
    """
    # With a group for every slice, more ranks a group use more devices: a size is worth nothing where a
    # multiple of it leaves as many groups as there are slices.
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


Layout = tuple[int | None, ...]


@dataclass(frozen=True)
class Digit:
    """One digit of the process grid: `radix` parts, exchanged over interconnect tier `tier` (0: fastest)."""

    radix: int
    tier: int


Grid = tuple[Digit, ...]


@lru_cache(1 << 14)
def prime_factors(number: int) -> tuple[int, ...]:
    """The prime factors of a positive integer, largest first: 12 -> (3, 2, 2)."""
    factors = []
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    if number > 1:
        factors.append(number)
    return tuple(sorted(factors, reverse=True))


def grid_size(grid: Grid) -> int:
    """The number of ranks of a grid."""
    return prod(digit.radix for digit in grid)


def rank_digits(rank: int, grid: Grid) -> tuple[int, ...]:
    """The digits of a rank, most significant first."""
    digits = []
    for digit in reversed(grid):
        rank, value = divmod(rank, digit.radix)
        digits.append(value)
    return tuple(reversed(digits))


def slowest_tier(rank: int, peer: int, grid: Grid) -> int:
    """The slowest tier between two ranks: that of the digits in which they differ."""
    pairs = zip(grid, rank_digits(rank, grid), rank_digits(peer, grid), strict=True)
    return max(digit.tier for digit, here, there in pairs if here != there)


def rank_of(digits: Sequence[int], grid: Grid) -> int:
    """The rank with the given digits: the inverse of `rank_digits`."""
    rank = 0
    for value, digit in zip(digits, grid, strict=True):
        rank = rank * digit.radix + value
    return rank


def part(extent: int, radix: int, value: int) -> tuple[int, int]:
    """Start and stop of part `value` of `radix` of a mode; parts differ by at most one element."""
    # Invariant: parts of all values tile the mode without gaps, in order.
    return extent * value // radix, extent * (value + 1) // radix


def largest_part(extent: int, radix: int) -> int:
    """The extent of the largest part."""
    return -(-extent // radix)


Box = tuple[tuple[int, int], ...]


def box(
    modes: Sequence[int], layout: Layout, extents: Mapping[int, int], digits: Sequence[int], grid: Grid
) -> Box:
    """Start and stop in each of `modes` of the part that the rank with `digits` holds."""
    split = {mode: position for position, mode in enumerate(layout) if mode is not None}
    bounds = []
    for mode in modes:
        position = split.get(mode)
        if position is None:
            bounds.append((0, extents[mode]))
        else:
            bounds.append(part(extents[mode], grid[position].radix, digits[position]))
    return tuple(bounds)


def box_shape(bounds: Box) -> tuple[int, ...]:
    """The extents of a box."""
    return tuple(stop - start for start, stop in bounds)


def intersect(first: Box, second: Box) -> Box | None:
    """The common part of two boxes over the same modes, or None where they do not meet."""
    common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(first, second, strict=True))
    return common if all(start < stop for start, stop in common) else None


def largest_shard(modes: Sequence[int], layout: Layout, extents: Mapping[int, int], grid: Grid) -> int:
    """The number of elements of the largest shard over all ranks."""
    if not layout:
        return prod([extents[mode] for mode in modes])
    split = {mode: grid[position].radix for position, mode in enumerate(layout) if mode is not None}
    return prod(largest_part(extents[mode], split.get(mode, 1)) for mode in modes)
