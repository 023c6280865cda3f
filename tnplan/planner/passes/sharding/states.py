"""Distribution states and what it costs to change them: the algebra that the distribution passes search in.

A state says which modes a tensor is spread over, for every class of digits (equal tier and radix), as one
bit mask a class of the modes' slots in the tree, slowest tier first. Which digit of its class a mode takes
does not change any cost; pass 4 (`assign_digits`) settles it. Knows the tree's sizes and the cost model, not
the tree's shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, prod
from typing import NamedTuple

from tnplan.planner.hardware.cost import CostModel, compressing_bytes
from tnplan.planner.hardware.process_grid import Grid, largest_part
from tnplan.planner.passes.tree.build import Tree

ShardingState = tuple[int, ...]


@dataclass(frozen=True)
class DigitClass:
    """Digits of equal radix and tier; `positions` are their positions in the grid."""

    tier: int
    radix: int
    positions: tuple[int, ...]


class ExchangeTraffic(NamedTuple):
    """What one rank, the busiest, receives: bytes and messages by tier, and the shards before and after.

    What is `summed` goes as it is; anything else may be compressed.
    """

    bytes_by_tier: tuple[float, ...]
    messages_by_tier: tuple[float, ...]
    source_bytes: float
    out_bytes: float
    summed: bool = False

    @property
    def received_bytes(self) -> float:
        """Bytes received over all tiers."""
        return sum(self.bytes_by_tier)


class StateSpace:
    """All states over one grid, with the cost model applied to them.

    With `whole_exchange` every redistribution shuffles the whole shard, (P-1)/P of it (the paper's Eq. 7),
    where otherwise modes that stay on their digits do not move.

    With `tier` the states are those over the digits of this tier and slower ones. Digits of faster tiers are
    taken to split everything evenly, and digits of slower tiers are settled: `fill` leaves them as they are.
    """

    def __init__(
        self,
        tree: Tree,
        grid: Grid,
        model: CostModel,
        limit_bytes: float,
        whole_exchange: bool = False,
        tier: int | None = None,
    ):
        self.model = model
        self.limit_bytes = limit_bytes
        self.whole_exchange = whole_exchange
        self.n_tiers = len(model.profile.tiers)
        # Digits of one tier and radix are alike in every cost: a state holds a set of modes for each class
        # and not a mode for each digit, which leaves far fewer states.
        # Invariant: classes are sorted from the slowest tier to the fastest, and so are the masks of every
        # state.
        groups: dict[tuple[int, int], list[int]] = {}
        for position, digit in enumerate(grid):
            if tier is None or digit.tier >= tier:
                groups.setdefault((-digit.tier, -digit.radix), []).append(position)
        self.classes = tuple(
            DigitClass(-t, -r, tuple(positions)) for (t, r), positions in sorted(groups.items())
        )
        self.local: ShardingState = (0,) * len(self.classes)
        # Invariant: settled classes, of slower tiers than `tier`, are the first `n_settled`.
        self.n_settled = 0 if tier is None else sum(item.tier > tier for item in self.classes)
        self._even_share = 1 / prod(digit.radix for digit in grid if tier is not None and digit.tier < tier)
        by_extent: dict[int, int] = {}
        for slot, extent in enumerate(tree.slot_extents):
            by_extent[extent] = by_extent.get(extent, 0) | 1 << slot
        # A mode takes a digit only if every part gets an element at least.
        self.eligible = tuple(
            sum(mask for extent, mask in by_extent.items() if extent >= item.radix) for item in self.classes
        )
        # For every class: (modes of one extent, share of the largest part, share of the smallest part).
        self._shares = tuple(
            tuple(
                (mask, largest_part(extent, item.radix) / extent, extent // item.radix / extent)
                for extent, mask in by_extent.items()
                if extent >= item.radix
            )
            for item in self.classes
        )
        self._share_of: dict[tuple[ShardingState, int], float] = {}
        self._compresses = model.compression is not None and model.compression.exchange is not None
        self._moves: dict[tuple[int, ShardingState, ShardingState], float] = {}
        self.size_bytes = tuple(size * model.item_bytes for size in tree.sizes)

    def share(self, state: ShardingState, modes: int = -1) -> float:
        """The largest shard's share of a tensor, counting only the digits spread over `modes`."""
        key = state, modes
        known = self._share_of.get(key)
        if known is None:
            known = self._share_of[key] = self._counted_share(state, modes)
        return known

    def _counted_share(self, state: ShardingState, modes: int) -> float:
        share = self._even_share
        for position, spread in enumerate(state):
            spread &= modes
            if spread:
                # Modes of one extent have one share: a power of it, in place of a product over modes.
                for mask, largest, _ in self._shares[position]:
                    count = (spread & mask).bit_count()
                    if count:
                        share *= largest**count
        return share

    def fill(
        self, state: ShardingState, bits: Iterable[int], capacity: Iterable[int] | None = None
    ) -> ShardingState:
        """Spread further modes, in the order of `bits`, over free digits (or `capacity`) of each class."""
        if capacity is None:
            free = [
                len(item.positions) - modes.bit_count()
                for item, modes in zip(self.classes, state, strict=True)
            ]
            free[: self.n_settled] = [0] * self.n_settled
        else:
            free = list(capacity)
        if not any(free):
            return state
        used = 0
        for modes in state:
            used |= modes
        order = tuple(bits)
        filled = list(state)
        for position, eligible in enumerate(self.eligible):
            for bit in order:
                if not free[position]:
                    break
                # The paper's Eq. 4 takes the leading prefix of modes whose extents reach P: here, the first
                # of `bits` that fit, class by class, slowest tier first, so that the longest-lived modes have
                # the slow digits.
                if bit & eligible and not bit & used:
                    filled[position] |= bit
                    used |= bit
                    free[position] -= 1
        return tuple(filled)

    def widen(self, state: ShardingState) -> ShardingState:
        """A state over the settled digits as one over all digits."""
        return (*state, *self.local[len(state) :])

    def settle(self, settled: ShardingState, state: ShardingState) -> ShardingState:
        """A state with the settled digits of another one, and without that one's modes on the others."""
        count = self.n_settled
        if not count:
            return state
        taken = 0
        for modes in settled[:count]:
            taken |= modes
        return (*settled[:count], *(modes & ~taken for modes in state[count:]))

    def shard_bytes(self, node: int, state: ShardingState) -> float:
        """The bytes of the largest shard of a node's tensor."""
        return self.size_bytes[node] * self.share(state)

    def exchange(self, node: int, source: ShardingState, target: ShardingState) -> ExchangeTraffic:
        """What moves when a node's tensor goes from one state to another.

        A rank keeps what it already holds: with j of d binary modes replaced, 1 - 2^-j of the shard moves,
        inside sub-groups of 2^j ranks. What is missing because of a slow digit comes over the slow tier.
        """
        # Eq. 7 has all of the shard, (P - 1) / P of it, on the move. Here a rank keeps the part that it needs
        # of what it has: only digits whose mode changes move anything.
        target_bytes = self.shard_bytes(node, target)
        spread_after = 0
        for modes in target:
            spread_after |= modes
        replace_all = self.whole_exchange and any(s & ~t for s, t in zip(source, target, strict=True))
        size_by_tier = [0.0] * self.n_tiers
        peers_by_tier = [1] * self.n_tiers
        missing_from_here = target_bytes
        for position, item in enumerate(self.classes):
            removed = source[position] if replace_all else source[position] & ~target[position]
            if not removed:
                continue
            kept_share = 1.0
            if removed & spread_after and not replace_all:
                # The mode goes on to another digit: its shard on this rank is, at worst, not what it needs
                # now.
                kept_share = 0.0
            else:
                for mask, _, smallest in self._shares[position]:
                    kept_share *= smallest ** (removed & mask).bit_count()
            size_by_tier[item.tier] += missing_from_here * (1 - kept_share)
            # What is missing because of a slow digit comes over its tier; of the rest, faster digits account
            # for what is missing within a domain.
            missing_from_here *= kept_share
            peers_by_tier[item.tier] *= item.radix ** removed.bit_count()
        return ExchangeTraffic(
            tuple(size_by_tier), messages_by_tier(peers_by_tier), self.shard_bytes(node, source), target_bytes
        )

    def exchange_buffers(self, exchange: ExchangeTraffic) -> float:
        """Bytes of the send and receive buffers of an exchange."""
        size = min(2 * exchange.received_bytes, self.model.profile.exchange_bytes)
        return max(size, compressing_bytes(exchange.messages_by_tier)) if self.compressed(exchange) else size

    def compressed(self, exchange: ExchangeTraffic) -> tuple[int, ...]:
        """The tiers on which an exchange is compressed."""
        if exchange.summed or not self._compresses:
            return ()
        return self.model.compressed_tiers(
            exchange.bytes_by_tier, exchange.messages_by_tier, self.model.profile.exchange_bytes
        )

    def exchange_s(self, exchange: ExchangeTraffic) -> float:
        """Predicted seconds of an exchange, packing, unpacking and compressing included."""
        return self.model.exchange_s(
            exchange.bytes_by_tier, exchange.messages_by_tier, exchange.out_bytes, self.compressed(exchange)
        )

    def moved_bytes(self, exchange: ExchangeTraffic) -> tuple[float, ...]:
        """Predicted bytes that pass over each tier."""
        tiers, ratio = self.compressed(exchange), self.model.exchange_ratio
        return tuple(
            size / ratio if number in tiers else size for number, size in enumerate(exchange.bytes_by_tier)
        )

    def move_s(self, node: int, source: ShardingState, target: ShardingState) -> float:
        """Predicted seconds from one state to another; infinite where it does not fit the memory."""
        if source == target:
            return 0.0
        # By size and not by node: the cost of a move depends on nothing else of a tensor.
        key = self.size_bytes[node], source, target
        known = self._moves.get(key)
        if known is None:
            exchange = self.exchange(node, source, target)
            size_bytes = exchange.source_bytes + exchange.out_bytes + self.exchange_buffers(exchange)
            known = inf if size_bytes > self.limit_bytes else self.exchange_s(exchange)
            self._moves[key] = known
        return known

    def reduction(
        self, node: int, partial: ShardingState, base: ShardingState, target: ShardingState
    ) -> ExchangeTraffic:
        """What moves when shards in state `base`, partial over the digits of `partial`, become `target`."""
        target_bytes = self.shard_bytes(node, target)
        peers_by_tier = [1] * self.n_tiers
        for position, item in enumerate(self.classes):
            peers_by_tier[item.tier] *= item.radix ** partial[position].bit_count()
        messages = messages_by_tier(peers_by_tier)
        return ExchangeTraffic(
            tuple(count * target_bytes for count in messages), messages, self.shard_bytes(node, base),
            prod(peers_by_tier) * target_bytes, summed=True,
        )  # fmt: skip


def messages_by_tier(peers_by_tier: Iterable[int]) -> tuple[int, ...]:
    """Peers of a rank by tier: those that differ in a digit of the tier, and in none of a slower one."""
    messages = []
    # A peer differs in a digit of this tier, (peers - 1) ways, and in any faster ones, `faster` ways.
    faster = 1
    for peers in peers_by_tier:
        messages.append((peers - 1) * faster)
        faster *= peers
    return tuple(messages)
