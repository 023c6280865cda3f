"""The cost model: predicted seconds of one rank for products, permutations and exchanges (paper, Eqs. 5-7).

Every policy is evaluated with it. docs/explanation/cost-model.md states each term, and where it departs from
the paper.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import gcd, hypot, inf, sqrt

from tnplan.common.arrays import ITEM_BYTES
from tnplan.common.checks import is_number
from tnplan.common.errors import InputError
from tnplan.planner.hardware.compression_options import LEAST_MESSAGE_BYTES, Compression
from tnplan.planner.hardware.fusion_tile import ADJOINT_STAGES, ADJOINT_TILE_BYTES, MOST_STAGES
from tnplan.planner.hardware.process_grid import Digit, Grid, prime_factors
from tnplan.planner.hardware.profile import DEFAULT_PRECISION, EXACTNESS, GemmCurve, Profile, Tier

SAME_TIME = 1.05
"""Up to this ratio two measured times count as equal."""
FLOPS_PER_PRODUCT = {"float32": 2, "float64": 2, "complex64": 8, "complex128": 8}
LONG_SUM, FEW_RESULTS, LONG_SUM_RATE = 4096, 512, 23.0
"""Sums of so many terms with at most so many results run at the rate of products with this n = k (16 x 16 and
16 x 32 on an H200, complex64); fewer results are bound by memory."""

ShortExtents = tuple[float, float]
"""The two lesser of the extents m, n and k of a product, the least first."""


def make_grid(ranks: int, profile: Profile) -> Grid:
    """The process grid of consecutive ranks: the prime factors of `ranks`, slowest tier first.

    Inside a domain of a fast tier work as many ranks as divide both the group and the domain, so that
    every domain holds whole blocks.
    """
    digits: list[Digit] = []
    left = ranks
    # Fastest tier first: inside a domain the common divisor of what is left of the group and of the domain;
    # the rest crosses to slower tiers.
    # Invariant: `digits` ends with the fastest tier, as consecutive ranks share a domain.
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
    """Predicts seconds for one profile, dtype and precision. Sizes are a rank's, in bytes.

    With `goes_back` chains are such that there is a backward pass through them, for gradients.
    """

    def __init__(
        self, profile: Profile, dtype: str, precision: str | None, compression: Compression | None = None,
        goes_back: bool = False,
    ) -> None:  # fmt: skip
        self.profile = profile
        self.dtype = dtype
        self.precision = DEFAULT_PRECISION[dtype] if precision is None else precision
        self.item_bytes = ITEM_BYTES[dtype]
        self.flops_per_product = FLOPS_PER_PRODUCT[dtype]
        # Raises where the profile has no rate for it.
        profile.rate(dtype, self.precision)
        # All precisions from the dtype's own down to the least that is allowed; a step takes the most exact
        # of those that cost it no time.
        own, least = map(EXACTNESS.index, (DEFAULT_PRECISION[dtype], self.precision))
        names = EXACTNESS[own : least + 1]
        rates = profile.flop_per_s[dtype]
        direct, scattered = (
            table.get(dtype, {}) for table in (profile.gemm_curves, profile.scattered_curves)
        )
        self._direct = [(name, _rate(rates[name], direct.get(name))) for name in names if name in rates]
        self._scattered = [(name, _rate(0.0, scattered[name])) for name in names if name in scattered]
        chains, chips = (
            table.get(dtype, {}) for table in (profile.fused_flop_per_s, profile.fused_tile_bytes_per_s)
        )
        self._fused = [(name, chips[name], chains[name]) for name in names if name in chains]
        # A backward pass holds all values between the steps of a chain at once: smaller tiles, shorter
        # chains.
        tile_bytes = min(profile.fused_bytes, ADJOINT_TILE_BYTES) if goes_back else profile.fused_bytes
        self.fused_elements = tile_bytes // self.item_bytes if self._fused else 0
        """Elements of the largest tile of a fused chain; 0 where there is no kernel for the dtype."""
        self.chain_steps = ADJOINT_STAGES if goes_back else MOST_STAGES
        """The most steps of a chain."""
        self.chains_close = not goes_back
        """Whether a chain may end with the tensor that closes the network."""
        self._memory = profile.memory_bytes_per_s
        # The best rate of any product at any extents, for bounds.
        self._peak = max(
            max(direct[name].flop_per_s) if name in direct else rates[name] for name in names if name in rates
        )
        self._permute = profile.permute_bytes_per_s
        self._launch = profile.launch_s
        self._tiers = profile.tiers
        self.compression = compression
        self._codec = None if compression is None else profile.codec(compression.setting)
        exchange = None if compression is None else compression.exchange
        self.exchange_ratio = 1.0 if exchange is None else exchange.ratio
        """How many times smaller what is exchanged becomes where it is compressed."""

    def short_extents(self, products: float, left: float, right: float, out: float) -> ShortExtents:
        """The two lesser of m, n and k of a product of so many multiply-adds, the least first.

        `left`, `right`, `out`: elements of the operands and of the result. Few results of a long sum stay in
        registers, and run at the rate of wider products.
        """
        if out <= FEW_RESULTS and products >= LONG_SUM * out:
            wide = max(products / max(left, right, out), LONG_SUM_RATE)
            return wide, wide
        # With sizes m k, k n, m n, products / size is the extent that is missing: n, m, k. The two largest
        # tensors give the two lesser extents.
        _, second, first = sorted((left, right, out))
        return products / first, products / second

    def contract_s(self, moved_bytes: float, flops: float, extents: ShortExtents) -> float:
        """Eq. 6: the larger of the bytes read and written over bandwidth and the operations over rate.

        The rate of two `extents` is the geometric mean of those measured where both are equal to either.
        """
        # t_gemm = max(D_rw / B_dev, FLOPs / F_dev), the paper's Eq. 6, with a rate that depends on the
        # extents.
        return self._launch + max(moved_bytes / self._memory, flops / _best(self._direct, extents))

    def scatter_s(self, moved_bytes: float, flops: float, extents: ShortExtents, c_bytes: float) -> float:
        """What a product of the same sizes takes more where c, of `c_bytes`, has an order of its own.

        Without measured rates of such products: one read and one write of c.
        """
        if not self._scattered:
            return self.permute_s(c_bytes)
        scattered_s = max(moved_bytes / self._permute, flops / _best(self._scattered, extents))
        return max(0.0, self._launch + scattered_s - self.contract_s(moved_bytes, flops, extents))

    def least_product_s(self, moved_bytes: float, flops: float) -> float:
        """What no product of so many bytes and operations undercuts, whatever its extents."""
        return max(moved_bytes / self._memory, flops / self._peak)

    def least_fused_s(self, out_bytes: float, flops: float) -> float:
        """What no step of a fused chain undercuts: its work on chip, with `out_bytes` of its result there."""
        return min((2 * out_bytes / chip + flops / rate for _, chip, rate in self._fused), default=inf)

    def gemm_precision(self, moved_bytes: float, flops: float, extents: ShortExtents, scattered: bool) -> str:
        """The precision of a product that the seconds count on: the most exact that costs no time."""
        rates = self._scattered if scattered and self._scattered else self._direct
        bound_s = max(moved_bytes / self._memory, flops / _best(rates, extents))
        return next(name for name, rate in rates if flops / _mean(rate, extents) <= SAME_TIME * bound_s)

    def fused_s(self, moved_s: float, tile_bytes: float, flops: float, tiles: float) -> tuple[float, str]:
        """A fused chain: work in memory and work on chip, which overlap in part (the root of their squares).

        `moved_s` as `run_s` gives it; `tile_bytes` are read and written on chip, over all tiles. With few
        `tiles` part of the device idles. The precision comes with it: the most exact that costs no time.
        """
        # Work in memory and on chip overlaps, but not fully: the root of the sum of squares lies between
        # their maximum and their sum.
        busy = min(tiles / self.profile.fused_tiles, 1.0)
        times = [
            (self._launch + hypot(moved_s, (tile_bytes / chip + flops / rate) / busy), name)
            for name, chip, rate in self._fused
        ]
        least_s = min(time_s for time_s, _ in times)
        return next((time_s, name) for time_s, name in times if time_s <= SAME_TIME * least_s)

    def run_s(self, size_bytes: float, run_bytes: float) -> float:
        """Reading or writing memory in runs of so many bytes; with infinite ones at the full rate."""
        # Short runs waste part of what memory moves at once: the loss falls with the square of their length.
        return size_bytes / self._permute * (1 + (self.profile.short_run_bytes / run_bytes) ** 2)

    def permute_s(self, size_bytes: float) -> float:
        """One read and one write of `size_bytes`."""
        return 2 * size_bytes / self._permute

    def add_s(self, size_bytes: float) -> float:
        """Adding a tensor to another: two reads and one write of `size_bytes`."""
        return 3 * size_bytes / self._permute

    def exchange_s(
        self, bytes_by_tier: Sequence[float], messages_by_tier: Sequence[float], out_bytes: float,
        compressed: Sequence[int] = (),
    ) -> float:  # fmt: skip
        """Eq. 7, summed over tiers: received bytes over bandwidth, and a granule or latency a message.

        What of `out_bytes` a rank holds already is copied. What moves is packed and unpacked besides, except
        on a tier with measured rates, which hold for all of that. On the `compressed` tiers (see
        `compressed_tiers`) it is compressed, moved and restored.
        """
        # What a rank keeps is copied to its place in the result.
        time_s = self._launch + self.permute_s(max(out_bytes - sum(bytes_by_tier), 0.0))
        for number, (size_bytes, messages) in enumerate(zip(bytes_by_tier, messages_by_tier, strict=True)):
            if size_bytes:
                tier_s = self._compressed_s if number in compressed else self._plain_s
                time_s += tier_s(self._tiers[number], size_bytes, messages)
        return time_s

    def compressed_tiers(
        self, bytes_by_tier: Sequence[float], messages_by_tier: Sequence[float], workspace_bytes: float
    ) -> tuple[int, ...]:
        """The tiers of an exchange on which compressing what moves pays, in a workspace of so many bytes."""
        if self.compression is None or self.compression.exchange is None:
            return ()
        if workspace_bytes < compressing_bytes(messages_by_tier):
            return ()
        return tuple(
            number
            for number, (tier, size_bytes, messages) in enumerate(
                zip(self._tiers, bytes_by_tier, messages_by_tier, strict=True)
            )
            if messages and size_bytes >= messages * LEAST_MESSAGE_BYTES
            and self._compressed_s(tier, size_bytes, messages) < self._plain_s(tier, size_bytes, messages)
        )  # fmt: skip

    def codec_s(self, size_bytes: float) -> tuple[float, float]:
        """Seconds to compress an array of so many bytes, and to restore it."""
        assert self._codec is not None
        return (
            self._codec.launch_s + size_bytes / self._codec.encode_bytes_per_s,
            self._codec.launch_s + size_bytes / self._codec.decode_bytes_per_s,
        )

    def _plain_s(self, tier: Tier, size_bytes: float, messages: float) -> float:
        # A measured curve includes packing, unpacking and messages; without it the terms of Eq. 7 are added
        # up: bandwidth, two permutations, and the granule or latency of each message.
        if tier.curve_bytes:
            rate = interpolate(size_bytes, tier.curve_bytes, tier.curve_bytes_per_s)
            return max(size_bytes / rate, tier.latency_s)
        return (
            size_bytes / tier.bytes_per_s
            + 2 * self.permute_s(size_bytes)
            + messages * max(tier.latency_s, tier.granule_bytes / tier.bytes_per_s)
        )

    def _compressed_s(self, tier: Tier, size_bytes: float, messages: float) -> float:
        """Packed, compressed, restored and unpacked one message after the other; in between the sizes go,
        for a latency, and then the streams, as any other exchange of their size."""
        whole_s = sum(messages * one_s for one_s in self.codec_s(size_bytes / messages))
        streams_s = self._plain_s(tier, size_bytes / self.exchange_ratio, messages)
        return whole_s + 2 * self.permute_s(size_bytes) + tier.latency_s + streams_s


def compressing_bytes(messages_by_tier: Sequence[float]) -> int:
    """The workspace in which an exchange with so many peers can be compressed: a stream each way for every
    peer and one piece as it was."""
    return int(2 * sum(messages_by_tier) + 1) * LEAST_MESSAGE_BYTES


Rate = Callable[[float], float]
"""Real operations a second of a product over k."""


def _rate(constant: float, curve: GemmCurve | None) -> Rate:
    if curve is None:
        return lambda k: constant
    return lambda k: interpolate(k, curve.k, curve.flop_per_s)


def _mean(rate: Rate, extents: ShortExtents) -> float:
    least, second = map(rate, extents)
    return sqrt(least * second)


def _best(rates: Sequence[tuple[str, Rate]], extents: ShortExtents) -> float:
    """The best of the rates at two extents."""
    return max(_mean(rate, extents) for _, rate in rates)


def memory_limit(profile: Profile, memory_bytes: float | None) -> float:
    """The bytes that a rank may hold: the given limit, or the device's less what its libraries take."""
    if memory_bytes is None:
        return profile.memory_bytes - profile.reserved_bytes
    if not is_number(memory_bytes) or not memory_bytes > 0:
        raise InputError(
            "--memory", f"is {memory_bytes!r}", "give a positive size such as 1GiB, or 'unlimited'",
            topic="memory",
        )
    return memory_bytes


def interpolate(x: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """Piecewise linear between the points, constant beyond them."""
    upper = bisect_left(xs, x)
    if upper == 0:
        return ys[0]
    if upper == len(xs):
        return ys[-1]
    share = (x - xs[upper - 1]) / (xs[upper] - xs[upper - 1])
    return ys[upper - 1] + share * (ys[upper] - ys[upper - 1])
