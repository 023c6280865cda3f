"""Pass 6, overlap: which exchanges between two chains go in parts, and the mode orders that make it possible.

The modes that cut the tensors into parts come first in what the chain before reads and writes and in what
the chain after reads and writes; behind them, in the exchanged tensor, those that are moved, so that a part
goes from rank to rank as one range. A chain reads and writes in any order. Knows predicted times, not
buffers: what may really run at once is settled when they have their places (pass 9).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from math import inf, prod

from planner.hardware.fusion import fused_tile
from planner.hardware.layout import Grid, Layout
from planner.hardware.overlap import MOST_PARTS, exposed_s
from planner.passes.distribute import Distribution, exchange_before
from planner.passes.fuse import Chain, Fusion
from planner.passes.place import Placement, restrict_layout
from planner.passes.reorder import Orders
from planner.passes.states import Exchange, StateSpace
from planner.passes.tree import Tree

Modes = tuple[int, ...]
WORTH_HIDING = 0.1
"""Parts are made where they hide at least this share of an exchange."""


@dataclass(frozen=True)
class Parts:
    """An exchange in parts: the order of its result, the chains that can be cut likewise, and the seconds of
    the exchange, of one part of it, and of the chains before and after it. `slower_s` is what the changed
    orders cost the chains."""

    parts: int
    out_modes: Modes
    before: bool
    after: bool
    whole_s: float
    part_s: float
    before_s: float
    after_s: float
    launch_s: float
    slower_s: float = 0.0

    def exposed_s(self, before: bool, after: bool) -> float:
        """Seconds that the exchange adds to the chains, beside which it may go or not."""
        if not (before or after):
            return self.whole_s + self.slower_s
        sides = []
        for beside, chain_s in ((before, self.before_s), (after, self.after_s)):
            part_s = (chain_s - self.launch_s) / self.parts + self.launch_s if beside else 0.0
            sides.append([part_s] * self.parts)
        launches = (self.parts - 1) * (before + after)
        waited_s = exposed_s(sides[0], [self.part_s] * self.parts, sides[1])
        return waited_s + launches * self.launch_s + self.slower_s


@dataclass(frozen=True)
class Overlaps:
    """The storage orders of all nodes, and by node the exchanges of their tensors that go in parts."""

    orders: Orders
    by_node: dict[int, Parts]


def overlap(
    tree: Tree,
    orders: Orders,
    grid: Grid,
    space: StateSpace,
    chosen: Distribution,
    placed: Placement,
    fusion: Fusion,
) -> Overlaps:
    """Choose the exchanges of one program that go in parts, the longest first."""
    chooser = _Chooser(tree, orders, grid, space, chosen, placed, fusion)
    found = [item for item in map(chooser.exchange_of, fusion.chains) if item is not None]
    for before, after, exchange in sorted(found, key=lambda item: -space.exchange_s(item[2])):
        chooser.choose(before, after, exchange)
    return Overlaps(tuple(chooser.orders), chooser.by_node)


class _Chooser:
    def __init__(
        self,
        tree: Tree,
        orders: Orders,
        grid: Grid,
        space: StateSpace,
        chosen: Distribution,
        placed: Placement,
        fusion: Fusion,
    ) -> None:
        self.tree, self.grid, self.space = tree, grid, space
        self.chosen, self.placed, self.fusion = chosen, placed, fusion
        self.orders = list(orders)
        self.by_node: dict[int, Parts] = {}
        self.settled: set[int] = set()
        self.cuts: dict[int, Modes] = {}  # by the last node of a chain that goes in parts

    def exchange_of(self, after: Chain) -> tuple[Chain, Chain, Exchange] | None:
        """The chain that makes the stem of another, and what moves between them inside one machine."""
        tree, stem, first = self.tree, after.stem, after.nodes[0]
        before = self.fusion.ends_at(stem)
        if before is None or tree.nesting.part[stem] != tree.nesting.part[first]:
            return None
        needed = self._needed(after)
        if needed == self.placed.produced[stem]:
            return None
        choice = self.chosen.choices[first]
        assert choice is not None
        step = self.chosen.steps[first - tree.n_leaves]
        exchange = exchange_before(self.space, step, choice, stem, self.chosen.states[stem])
        if exchange is None or not exchange.received_bytes or any(exchange.bytes_by_tier[1:]):
            return None
        if self.space.compressed(exchange):
            return None
        return before, after, exchange

    def choose(self, before: Chain, after: Chain, exchange: Exchange) -> None:
        """Take the number of parts and the sides that hide most, if they hide enough."""
        space, node = self.space, after.stem
        if node in self.settled:
            return
        whole_s = space.exchange_s(exchange)
        best_s, best = whole_s * (1 - WORTH_HIDING), None
        free = [chain.nodes[-1] not in self.cuts for chain in (before, after)]
        for sides in ((True, True), (True, False), (False, True)):
            if any(beside and not unused for beside, unused in zip(sides, free, strict=True)):
                continue
            modes = self._cutting(before, after, *sides)
            parts, cut = 1, 0
            while cut < len(modes) and parts < MOST_PARTS:
                parts *= self.tree.modes[modes[cut]].extent
                cut += 1
                orders = self._orders(before, after, modes[:cut], *sides)
                timed = Parts(
                    parts, orders.pop(-1), *sides, whole_s, self._part_s(exchange, parts),
                    sum(before.times_s), sum(after.times_s), space.model.profile.launch_s,
                )  # fmt: skip
                if timed.exposed_s(*sides) >= best_s:
                    continue
                slower_s = self._slower_s(before, after, orders, timed, modes[:cut])
                timed = replace(timed, slower_s=slower_s)
                if timed.exposed_s(*sides) < best_s:
                    best_s, best = timed.exposed_s(*sides), (timed, orders, modes[:cut])
        if best is not None:
            timed, orders, cutting = best
            self.by_node[node] = timed
            for chain, beside in ((before, timed.before), (after, timed.after)):
                if beside:
                    self.cuts[chain.nodes[-1]] = cutting
            for changed, modes in orders.items():
                self.orders[changed] = modes
            self.settled.update(orders)

    def _part_s(self, exchange: Exchange, parts: int) -> float:
        moved = [size / parts for size in exchange.bytes_by_tier]
        return self.space.model.exchange_s(moved, exchange.messages_by_tier, exchange.out_bytes / parts)

    def _needed(self, after: Chain) -> Layout:
        layout = self.placed.steps[after.nodes[0]]
        assert layout is not None
        return restrict_layout(layout, frozenset(self.tree.legs[after.stem]))

    def _radix(self, chain: Chain) -> dict[int, int]:
        """The parts of every mode that a chain spreads; its branches may bring some of them."""
        return {
            mode: digit.radix
            for node in chain.nodes
            for mode, digit in zip(self.placed.steps[node] or (), self.grid, strict=True)
            if mode is not None
        }

    def _cutting(self, before: Chain, after: Chain, made: bool, read: bool) -> Modes:
        """The modes that can stand first wherever they must, in one order; some first ones of them may cut"""
        tree = self.tree
        spread = self._radix(before).keys() | self._radix(after).keys()
        usable = set(tree.legs[after.stem]) - spread
        ends = [(node, chain) for node, chain, beside in (
            (before.stem, before, made), (after.nodes[-1], after, read)) if beside]  # fmt: skip
        for node, _ in ends:
            usable &= self._kept(node)
        fixed = []
        for node, chain in ends:
            local = [mode for mode in self.orders[node] if mode not in self._radix(chain)]
            if not self._movable(node):
                fixed.append(list(takewhile(usable.__contains__, local)))
        if not fixed:
            node = ends[-1][0]
            return tuple(mode for mode in self.orders[node] if mode in usable)
        same = takewhile(lambda pair: pair[0] == pair[1], zip(fixed[0], fixed[-1], strict=False))
        return tuple(mode for mode, _ in same)

    def _movable(self, node: int) -> bool:
        """Whether a tensor may be stored with any of the modes in front that its reader keeps, at no cost.

        Chains read and write in any order. A product that writes its result in another order than its own may
        as well write it in any, and read an operand with its kept modes in any order.
        """
        n_leaves = self.tree.n_leaves
        parent = self.tree.parents[node]
        if node in self.settled or node < n_leaves or parent is None:
            return False
        made = self.fusion.ends_at(node) is not None or self.chosen.steps[node - n_leaves].permuted
        reader = self.chosen.steps[parent - n_leaves]
        read = self.fusion.chain_of[reader.node] is not None or (reader.permuted and not reader.batch_mask)
        return made and read

    def _kept(self, node: int) -> set[int]:
        """The modes of a tensor that may stand first for its reader: a product sums the last ones."""
        parent = self.tree.parents[node]
        modes = set(self.tree.legs[node])
        if parent is None or self.fusion.chain_of[parent] is not None:
            return modes
        return modes & set(self.tree.legs[parent])

    def _orders(self, before: Chain, after: Chain, cut: Modes, made: bool, read: bool) -> dict[int, Modes]:
        """The orders of the nodes that change theirs; under -1 that of the exchanged tensor as it arrives."""
        node = after.stem
        old = [mode for mode in self.placed.produced[node] if mode is not None]
        new = [mode for mode in self._needed(after) if mode is not None]
        leaving = [mode for mode in self.orders[node] if mode in old and mode not in new]
        coming = [mode for mode in self.orders[node] if mode in new and mode not in old]
        orders = {
            node: _first((*cut, *coming, *leaving), self.orders[node]),
            -1: _first((*cut, *leaving, *coming), self.orders[node]),
        }
        for end, beside in ((before.stem, made), (after.nodes[-1], read)):
            if beside:
                orders[end] = _first(cut, self.orders[end]) if self._movable(end) else self.orders[end]
        return orders

    def _slower_s(
        self, before: Chain, after: Chain, orders: dict[int, Modes], timed: Parts, cut: Modes
    ) -> float:
        """What shorter runs in memory cost the chains that meet changed orders; infinite without tiles."""
        chains = [(before, timed.before), (after, timed.after)]
        for end, number in ((before.stem, None), (after.nodes[-1], self.tree.parents[after.nodes[-1]])):
            chain = self.fusion.ends_at(end) if number is None else self._chain_with(number)
            if end in orders and chain is not None:
                chains.append((chain, False))
        slower_s = 0.0
        for chain, in_parts in chains:
            arriving = timed.out_modes if chain.stem == after.stem else None
            whole_s = self._memory_s(chain, {}, None, ())
            parts = cut if in_parts else self.cuts.get(chain.nodes[-1], ())
            changed_s = self._memory_s(chain, orders, arriving, parts)
            slower_s += max(0.0, changed_s - whole_s)
        return slower_s

    def _chain_with(self, node: int) -> Chain | None:
        number = self.fusion.chain_of[node]
        return None if number is None else self.fusion.chains[number]

    def _memory_s(self, chain: Chain, orders: dict[int, Modes], arriving: Modes | None, cut: Modes) -> float:
        """Seconds in which a chain reads its stem and writes its result; infinite where it has no tile, or
        parts of it have none or too few to fill the device."""
        radix, model = self._radix(chain), self.space.model
        out = chain.nodes[-1]
        known = self.by_node.get(chain.stem)
        if arriving is None and known is not None:
            arriving = known.out_modes
        nodes = (chain.stem, *chain.branches, out)
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


def _first(leading: Modes, modes: Modes) -> Modes:
    return (*leading, *(mode for mode in modes if mode not in leading))
