"""Pass 6, chunk_exchanges: which exchanges go in chunks, and the mode orders that make it possible.

The modes that cut the tensors into chunks come first in all that the chains right before read and write and
in what the chains right after do; behind them, in the exchanged tensor, those that are moved, so that a chunk
goes from rank to rank as one range. A chain reads and writes in any order. Knows predicted times, not
buffers: what may really run at once is settled when they have their places (pass 9).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import product, takewhile
from math import inf, prod

from tnplan.planner.hardware.chunked_overlap import MOST_CHUNKS, exposed_s
from tnplan.planner.hardware.fusion_tile import fused_tile
from tnplan.planner.passes.fuse import Chain, Fusion
from tnplan.planner.passes.sharding.sharded_tree import ShardedTree
from tnplan.planner.passes.sharding.states import ExchangeTraffic
from tnplan.planner.passes.tree.build import Orders

Modes = tuple[int, ...]
Row = tuple[Chain, ...]
"""Chains each of which takes what the one before made, where it lies."""

LEAST_SHARE_HIDDEN = 0.1
"""ChunkedExchange are made where they hide at least this share of it."""
LEAST_SHARE_PER_CHAIN = 0.01
"""A chain more goes in chunks where that hides at least this share of an exchange."""


@dataclass(frozen=True)
class ChunkedExchange:
    """An exchange in chunks: the order of its result, the chains `before` and `after` it that can be cut
    likewise, and the seconds of the exchange, of one chunk of it and of a launch. `slower_s` is what the
    changed orders cost the chains."""

    chunks: int
    out_modes: Modes
    before: Row
    after: Row
    whole_s: float
    chunk_s: float
    launch_s: float
    slower_s: float = 0.0

    @property
    def chains(self) -> Row:
        """All chains that it may overlap with."""
        return (*self.before, *self.after)

    def exposed_s(self, before: int, after: int) -> float:
        """Seconds that the exchange adds to the chains, so many of which it overlaps with."""
        if not (before or after):
            return self.whole_s + self.slower_s
        sides = []
        for chains in (self.before[len(self.before) - before :], self.after[:after]):
            whole_s = sum(sum(chain.times_s) - self.launch_s for chain in chains)
            sides.append([whole_s / self.chunks + len(chains) * self.launch_s] * self.chunks)
        launches = (self.chunks - 1) * (before + after)
        waited_s = exposed_s(sides[0], [self.chunk_s] * self.chunks, sides[1])
        return waited_s + launches * self.launch_s + self.slower_s


@dataclass(frozen=True)
class ChunkedExchanges:
    """The storage orders of all nodes, and by node the exchanges of their tensors that go in chunks."""

    orders: Orders = ()
    by_node: Mapping[int, ChunkedExchange] = field(default_factory=dict)


def chunk_exchanges(sharded: ShardedTree, fusion: Fusion) -> ChunkedExchanges:
    """Choose the exchanges of one program that go in chunks, the longest first."""
    chooser = _Chooser(sharded, fusion)
    # Longest first: the chains between two exchanges overlap with one of them only, and orders that one has
    # settled bind the others.
    exchanges = [item for item in map(chooser.exchange_of, fusion.chains) if item is not None]
    for before, after, exchange in sorted(exchanges, key=lambda item: -sharded.space.exchange_s(item[2])):
        chooser.choose(before, after, exchange)
    return ChunkedExchanges(tuple(chooser.orders), chooser.by_node)


class _Chooser:
    def __init__(self, sharded: ShardedTree, fusion: Fusion) -> None:
        self.sharded, self.tree, self.space = sharded, sharded.tree, sharded.space
        self.placement, self.fusion = sharded.placement, fusion
        self.orders = list(sharded.orders)
        self.by_node: dict[int, ChunkedExchange] = {}
        self.settled: set[int] = set()
        self.cuts: dict[int, Modes] = {}  # by the last node of a chain that goes in chunks

    def exchange_of(self, after: Chain) -> tuple[Chain, Chain, ExchangeTraffic] | None:
        """The chain that makes the stem of another, and what moves between them."""
        tree, stem, first = self.tree, after.stem, after.nodes[0]
        before = self.fusion.ends_at(stem)
        level = tree.loop_nest.level_of
        if before is None or level[stem] != level[first] or self.sharded.is_taken_as_produced(stem):
            return None
        exchange = self.sharded.exchange_before(first, stem)
        if exchange is None or not exchange.received_bytes or self.space.compressed(exchange):
            return None
        return before, after, exchange

    def choose(self, before: Chain, after: Chain, exchange: ExchangeTraffic) -> None:
        """Take the number of chunks and the overlapped chains that hide most, if they hide enough."""
        node = after.stem
        if node in self.settled:
            return
        whole_s = self.space.exchange_s(exchange)
        # Ways are sorted by a bound on their seconds, so that the first beyond the best ends the search; only
        # for promising ones are orders and tiles worked out.
        best_s, best = whole_s * (1 - LEAST_SHARE_HIDDEN), None
        for least_s, timed, cut in sorted(self._ways(before, after, exchange), key=lambda way: way[0]):
            if least_s >= best_s:
                break
            orders = self._orders(after, timed, cut)
            timed = replace(timed, out_modes=orders.pop(-1))
            slower_s = self._slower_s(before, after, orders, timed, cut)
            if least_s + slower_s < best_s:
                best_s, best = least_s + slower_s, (replace(timed, slower_s=slower_s), orders, cut)
        if best is not None:
            self.by_node[node], orders, cut = best
            for chain in self.by_node[node].chains:
                self.cuts[chain.nodes[-1]] = cut
            for changed, modes in orders.items():
                self.orders[changed] = modes
            # Invariant: an order in `settled` changes no more; a chunked exchange relies on those of all its
            # chains.
            self.settled.update(orders)

    def _ways(
        self, before: Chain, after: Chain, exchange: ExchangeTraffic
    ) -> Iterator[tuple[float, ChunkedExchange, Modes]]:
        """Every number of chunks overlapped with every number of chains: the seconds exposed where no order
        costs anything, with those that the chains must be worth; what it is, without orders; and the cut."""
        whole_s, launch_s = self.space.exchange_s(exchange), self.space.model.profile.launch_s
        # A mode that is spread differs from rank to rank: it cuts no equal ranges of all shards.
        spread = self._radix(before).keys() | self._radix(after).keys()
        row_before, row_after = self._row_before(before), self._row_after(after)
        for n_before, n_after in product(range(len(row_before) + 1), range(len(row_after) + 1)):
            chains, chains_after = row_before[len(row_before) - n_before :], row_after[:n_after]
            chunks = 1
            cutting = self._cutting(chains, chains_after, spread)
            for number, mode in enumerate(cutting, 1):
                if chunks >= MOST_CHUNKS:
                    break
                chunks *= self.tree.modes[mode].extent
                timed = ChunkedExchange(
                    chunks, (), chains, chains_after, whole_s, self._chunk_s(exchange, chunks), launch_s
                )
                worth_s = (n_before + n_after) * LEAST_SHARE_PER_CHAIN * whole_s
                yield timed.exposed_s(n_before, n_after) + worth_s, timed, cutting[:number]

    def _row_before(self, last: Chain) -> Row:
        """The chains up to this one that follow each other and are in no chunks yet."""
        row: list[Chain] = []
        chain: Chain | None = last
        while chain is not None and chain.nodes[-1] not in self.cuts:
            row.insert(0, chain)
            follows = self.sharded.is_taken_as_produced(chain.stem)
            chain = self.fusion.ends_at(chain.stem) if follows else None
        return tuple(row)

    def _row_after(self, first: Chain) -> Row:
        """The chains from this one on that follow each other and are in no chunks yet."""
        row: list[Chain] = []
        chain: Chain | None = first
        while chain is not None and chain.nodes[-1] not in self.cuts:
            row.append(chain)
            chain = self._chain_from(chain.nodes[-1])
            if chain is not None and not self.sharded.is_taken_as_produced(chain.stem):
                break
        return tuple(row)

    def _chain_from(self, node: int) -> Chain | None:
        """The chain whose stem is a node's tensor."""
        chain = self._chain_with(self.tree.parents[node])
        return chain if chain is not None and chain.stem == node else None

    def _chunk_s(self, exchange: ExchangeTraffic, chunks: int) -> float:
        moved = [size / chunks for size in exchange.bytes_by_tier]
        return self.space.model.exchange_s(moved, exchange.messages_by_tier, exchange.out_bytes / chunks)

    def _radix(self, chain: Chain) -> dict[int, int]:
        """The radix of every mode that a chain spreads; its branches may bring some of them."""
        return {
            mode: digit.radix
            for node in chain.nodes
            for mode, digit in zip(self.placement.steps[node] or (), self.sharded.grid, strict=True)
            if mode is not None
        }

    def _cutting(self, before: Row, after: Row, spread: Set[int]) -> Modes:
        """The modes that can stand first wherever they must, in one order; some first ones of them may cut.

        Those `spread` by the exchange cannot.
        """
        chains = (*before, *after)
        nodes = [*(chain.stem for chain in before), *(chain.end for chain in after)]
        if not nodes or not all(map(self._closes_in_chunks, chains)):
            return ()
        # Each chunk goes through all chains of the row by itself: a cutting mode must be in every tensor of
        # the row, and is summed and brought by none.
        usable = set.intersection(*map(self._kept, nodes)) - spread
        usable -= {mode for chain in chains for mode in self._radix(chain)}
        usable = usable.intersection(*(self.tree.legs[chain.stem] for chain in chains))
        usable = usable.intersection(*(self.tree.legs[chain.end] for chain in chains))
        fixed = []
        for node, chain in zip(nodes, chains, strict=True):
            if not self._movable(node):
                local = [mode for mode in self.orders[node] if mode not in self._radix(chain)]
                fixed.append(tuple(takewhile(usable.__contains__, local)))
        # All orders may change: the cutting modes in the order of the last tensor. Otherwise the common first
        # modes of those that cannot change.
        if not fixed:
            return tuple(mode for mode in self.orders[nodes[-1]] if mode in usable)
        same = takewhile(lambda modes: len(set(modes)) == 1, zip(*fixed, strict=False))
        return tuple(modes[0] for modes in same)

    def _closes_in_chunks(self, chain: Chain) -> bool:
        """Whether what closes a chain, if anything does, is there as it was made."""
        closing, placement = chain.closing, self.placement
        return closing is None or placement.needed[closing] == placement.produced[closing]

    def _movable(self, node: int) -> bool:
        """Whether a tensor may be stored with any of the modes in front that its reader keeps, at no cost.

        Chains read and write in any order. A product that writes its result in another order than its own may
        as well write it in any, and read an operand with its kept modes in any order.
        """
        n_leaves = self.tree.n_leaves
        parent = self.tree.parents[node]
        if node in self.settled or node < n_leaves or parent is None:
            return False
        writes_any = self.fusion.ends_at(node) is not None or self.sharded.step(node).permuted
        reader = self.sharded.step(parent)
        permuted = reader.permuted and not reader.batch_mask
        return writes_any and (self.fusion.chain_of[reader.node] is not None or permuted)

    def _kept(self, node: int) -> set[int]:
        """The modes of a tensor that may stand first for its reader: a product sums the last ones."""
        parent = self.tree.parents[node]
        modes = set(self.tree.legs[node])
        if parent is None or self.fusion.chain_of[parent] is not None:
            return modes
        return modes & set(self.tree.legs[parent])

    def _orders(self, after: Chain, timed: ChunkedExchange, cut: Modes) -> dict[int, Modes]:
        """The orders of the nodes that change theirs; under -1 that of the exchanged tensor as it arrives."""
        node = after.stem
        old = [mode for mode in self.placement.produced[node] if mode is not None]
        new = [mode for mode in self.placement.needed[node] if mode is not None]
        leaving = [mode for mode in self.orders[node] if mode in old and mode not in new]
        coming = [mode for mode in self.orders[node] if mode in new and mode not in old]
        orders = {
            # As it is made, then as it arrives: first what cuts; behind it the mode that becomes spread, so
            # that what goes to one rank is one range; after the exchange the mode that was spread comes first
            # likewise.
            node: with_first((*cut, *coming, *leaving), self.orders[node]),
            -1: with_first((*cut, *leaving, *coming), self.orders[node]),
        }
        ends = [*(chain.stem for chain in timed.before), *(chain.end for chain in timed.after)]
        for end in ends:
            orders[end] = with_first(cut, self.orders[end]) if self._movable(end) else self.orders[end]
        return orders

    def _slower_s(
        self, before: Chain, after: Chain, orders: dict[int, Modes], timed: ChunkedExchange, cut: Modes
    ) -> float:
        """What shorter runs in memory cost the chains that meet changed orders; infinite without tiles."""
        first, *_ = row_before = timed.before or (before,)
        *_, last = row_after = timed.after or (after,)
        beyond = self._chain_with(self.tree.parents[last.nodes[-1]])
        if last.closing is not None:
            beyond = self.fusion.ends_at(last.closing)
        outside = self.fusion.ends_at(first.stem), beyond
        chains = [*row_before, *row_after]
        chains += [chain for chain in outside if chain is not None and chain not in chains]
        slower_s = 0.0
        for chain in chains:
            arriving = timed.out_modes if chain is after else None
            whole_s = self._memory_s(chain, {}, None, ())
            chain_cut = cut if chain in timed.chains else self.cuts.get(chain.nodes[-1], ())
            changed_s = self._memory_s(chain, orders, arriving, chain_cut)
            slower_s += max(0.0, changed_s - whole_s)
        return slower_s

    def _chain_with(self, node: int | None) -> Chain | None:
        number = None if node is None else self.fusion.chain_of[node]
        return None if number is None else self.fusion.chains[number]

    def _memory_s(self, chain: Chain, orders: dict[int, Modes], arriving: Modes | None, cut: Modes) -> float:
        """Seconds in which a chain reads its stem and writes its result; infinite where it has no tile, or
        chunks of it have none or too few to fill the device."""
        radix, model = self._radix(chain), self.space.model
        known = self.by_node.get(chain.stem)
        if arriving is None and known is not None:
            arriving = known.out_modes
        nodes = (chain.stem, *chain.branches, chain.end)
        stored = [orders.get(node, self.orders[node]) for node in nodes]
        stored[0] = arriving or stored[0]
        # The steps of a chain spread the same modes, evenly.
        stem, *branches, result = (
            tuple((mode, self.tree.modes[mode].extent // radix.get(mode, 1)) for mode in modes)
            for modes in stored
        )
        sizes = [prod(extent for _, extent in modes) * model.item_bytes for modes in (stem, result)]
        tile = fused_tile(stem, branches, result, model.fused_elements)
        if tile is None:
            return inf
        # A chunk is a stem without the cutting modes: it needs a tile too, and tiles enough to fill the
        # device.
        if cut:
            stem, result = (tuple(item for item in modes if item[0] not in cut) for modes in (stem, result))
            tile = fused_tile(stem, branches, result, model.fused_elements)
            if tile is None:
                return inf
            tiles = prod(extent for mode, extent in stem if mode not in tile.modes)
            if tiles < model.profile.fused_tiles:
                return inf
        return sum(
            model.run_s(size, run * model.item_bytes) for size, run in zip(sizes, tile.runs, strict=True)
        )


def with_first(leading: Modes, modes: Modes) -> Modes:
    """The modes with some in front."""
    return (*leading, *(mode for mode in modes if mode not in leading))
