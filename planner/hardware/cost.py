"""The cost model: predicted seconds of one rank for products, permutations and exchanges (paper, Eqs. 5-7).

Every policy is evaluated with it. docs/cost-model.md states each term and where it departs from the paper.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import gcd

from planner.checks import is_number
from planner.errors import InputError
from planner.hardware.layout import Digit, Grid, prime_factors
from planner.hardware.profile import DEFAULT_PRECISION, Profile

ITEM_BYTES = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
FLOPS_PER_PRODUCT = {"float32": 2, "float64": 2, "complex64": 8, "complex128": 8}


def make_grid(ranks: int, profile: Profile) -> Grid:
    """The process grid of consecutive ranks: the prime factors of `ranks`, slowest tier first.

    Inside a domain of a fast tier work as many ranks as divide both the group and the domain, so that
    every domain holds whole blocks.
    """
    digits: list[Digit] = []
    left = ranks
    for number, tier in enumerate(profile.tiers):
        last = number == len(profile.tiers) - 1
        done = ranks // left
        if tier.devices == 0 or last or ranks <= tier.devices:
            inner = left
        else:
            inner = gcd(left, max(tier.devices // done, 1))
        digits = [Digit(radix, number) for radix in prime_factors(inner)] + digits
        left //= inner
    return tuple(digits)


class CostModel:
    """Predicts seconds for one profile, dtype and precision. Sizes are a rank's, in bytes."""

    def __init__(self, profile: Profile, dtype: str, precision: str | None) -> None:
        self.profile = profile
        self.dtype = dtype
        self.precision = DEFAULT_PRECISION[dtype] if precision is None else precision
        self.item_bytes = ITEM_BYTES[dtype]
        self.flops_per_product = FLOPS_PER_PRODUCT[dtype]
        self._rate = profile.rate(dtype, self.precision)
        self._curve = profile.gemm_curves.get(dtype, {}).get(self.precision)
        self._memory = profile.memory_bytes_per_s
        self._permute = profile.permute_bytes_per_s
        self._launch = profile.launch_s
        self._tiers = profile.tiers

    def contract_s(self, moved_bytes: float, flops: float, k: float) -> float:
        """Eq. 6: the larger of the bytes read and written over bandwidth and the operations over rate."""
        rate = self._rate if self._curve is None else _interpolate(k, self._curve.k, self._curve.flop_per_s)
        return self._launch + max(moved_bytes / self._memory, flops / rate)

    def permute_s(self, size_bytes: float) -> float:
        """One read and one write of `size_bytes`."""
        return 2 * size_bytes / self._permute

    def exchange_s(self, bytes_by_tier: Sequence[float], messages_by_tier: Sequence[float]) -> float:
        """Eq. 7, summed over tiers: received bytes over bandwidth, and a granule or latency a message."""
        time_s = 0.0
        for tier, size_bytes, messages in zip(self._tiers, bytes_by_tier, messages_by_tier, strict=True):
            if size_bytes:
                rate = tier.bytes_per_s
                if tier.curve_bytes:
                    rate = _interpolate(size_bytes, tier.curve_bytes, tier.curve_bytes_per_s)
                time_s += size_bytes / rate + messages * max(tier.latency_s, tier.granule_bytes / rate)
        return time_s

    def copy_s(self, source_bytes: float, out_bytes: float) -> float:
        """Packing `source_bytes` for an exchange and unpacking `out_bytes`, each read and written once."""
        return self._launch + self.permute_s((source_bytes + out_bytes) / 2) * 2


def memory_limit(profile: Profile, memory_bytes: float | None) -> float:
    """The bytes that a rank may hold: the given limit, or the device's less what its libraries take."""
    if memory_bytes is None:
        return profile.memory_bytes - profile.reserved_bytes
    if not is_number(memory_bytes) or not memory_bytes > 0:
        raise InputError(
            "--memory", f"is {memory_bytes!r}", "give a positive size such as 1GiB, or 'unlimited'"
        )
    return memory_bytes


def _interpolate(x: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """Piecewise linear between the points, constant beyond them."""
    place = bisect_left(xs, x)
    if place == 0:
        return ys[0]
    if place == len(xs):
        return ys[-1]
    share = (x - xs[place - 1]) / (xs[place] - xs[place - 1])
    return ys[place - 1] + share * (ys[place] - ys[place - 1])
