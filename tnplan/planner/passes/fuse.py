"""Pass 5, fuse: which consecutive steps one kernel does in one pass over the large tensor.

A chain contracts a large operand, the stem, with small branches in turn; what lies between two of its steps
stays on chip. It may close with a tensor as large as what it leaves, of which one number is left. Runs of
steps that may follow each other are found first, then cut into chains by dynamic programming over each run,
against matrix products with their permutations. Linear in the number of steps. Knows predicted times and
tiles; not buffers, and not how a kernel works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf

from tnplan.planner.hardware.fusion_tile import MOST_EXTENT, STAGE_ROWS, fused_tile
from tnplan.planner.hardware.process_grid import Layout
from tnplan.planner.passes.chains_in_place import InPlaceResult, Modes, Move, elements, moved_in_place
from tnplan.planner.passes.sharding.search import StepModes, contract_terms
from tnplan.planner.passes.sharding.sharded_tree import ShardedTree
from tnplan.planner.passes.sharding.states import StateSpace
from tnplan.planner.passes.tree.build import Orders

EXTENTS_OF_FUSION = ("free", "in place", "all in place", "resizing in place", "thrifty", "none")
"""How far steps are fused, from the fastest program to the one that needs the least memory for certain."""


@dataclass(frozen=True)
class Chain:
    """Steps done in one pass: their nodes from first to last, the stem that the first one takes, the branch
    of each, the predicted seconds of each, which share the chain's in proportion to those unfused, and the
    precision that they count on. The last step of one that is closed takes `closing` in place of a branch."""

    nodes: tuple[int, ...]
    stem: int
    branches: tuple[int, ...]
    times_s: tuple[float, ...]
    precision: str
    closing: int | None = None

    @property
    def others(self) -> tuple[int, ...]:
        """What each step takes besides what the chain holds."""
        return self.branches if self.closing is None else (*self.branches, self.closing)

    @property
    def end(self) -> int:
        """The node in whose order a tile leaves the chip, or meets what closes the chain."""
        return self.nodes[-1] if self.closing is None else self.closing


@dataclass(frozen=True)
class Fusion:
    """All chains, and by node the number of its chain (None: a matrix product, or a leaf). `in_place` has the
    nodes at the ends of chains that leave their result where their operand was."""

    chains: tuple[Chain, ...] = ()
    chain_of: tuple[int | None, ...] = ()
    in_place: Mapping[int, InPlaceResult] = field(default_factory=dict)

    def ends_at(self, node: int) -> Chain | None:
        """The chain whose result is a node's tensor."""
        number = self.chain_of[node]
        return None if number is None or self.chains[number].nodes[-1] != node else self.chains[number]

    def reordered(self, orders: Orders) -> Orders:
        """Mode orders, with those of results that take their operand's place."""
        moved = {node: moved_result.modes for node, moved_result in self.in_place.items()}
        return tuple(moved.get(node, own) for node, own in enumerate(orders))


@dataclass(frozen=True)
class _Link:
    """A step that may be fused: its tensors on a rank, and what it costs as a matrix product; whether its
    result is added to an early sum, and whether it closes a chain, since it leaves one number. One of which
    the stem has too few rows (`has_rows` is false) is in no chain, unless it closes it."""

    node: int
    stem: int
    branch: int
    stem_modes: Modes
    branch_modes: Modes
    out_modes: Modes
    stem_elements: int
    branch_elements: int
    out_elements: int
    flops: float
    unfused_s: float
    has_rows: bool
    adds: bool
    closes: bool = False

    @property
    def held_elements(self) -> int:
        """Of the large operand and the result."""
        return self.stem_elements + self.out_elements


def fuse(sharded: ShardedTree, extent: str = "free") -> Fusion:
    """The chains of one program; none where the profile has no kernel for them.

    A chain holds its first operand and its result at once, unless that takes the operand's place. With
    `extent` "in place" it does where it can, and nothing else changes; with "all in place" large steps are
    in chains wherever there is one, though a matrix product were faster; with "resizing in place" results
    that are larger or smaller take their operands' places too. Both tensors may be more than any step holds,
    where what lies between is small: with "thrifty" such chains are left out, with "none" all.
    """
    space = sharded.space
    chain_of: list[int | None] = [None] * sharded.tree.n_nodes
    chains: list[Chain] = []
    replaced: dict[int, InPlaceResult] = {}
    if space.model.fused_elements and extent != "none":
        runs = _Finder(sharded).runs()
        alone = inf
        if extent in ("all in place", "resizing in place"):
            alone = max((link.held_elements for run in runs for link in run), default=0) / 2
        for run in runs:
            cut = _cut(run, space, extent == "thrifty", alone)
            if extent.endswith("in place"):
                moves = _moves({link.node: link for link in run}, cut, sharded)
                replaced |= moved_in_place(moves, extent == "resizing in place")
            for chain in cut:
                for node in chain.nodes:
                    chain_of[node] = len(chains)
                chains.append(chain)
    return Fusion(tuple(chains), tuple(chain_of), replaced)


class _Finder:
    def __init__(self, sharded: ShardedTree) -> None:
        self.sharded, self.tree, self.space = sharded, sharded.tree, sharded.space
        self.placement = sharded.placement

    def runs(self) -> list[list[_Link]]:
        """Every longest run of steps each of which takes the result of the one before as its stem."""
        # A chain continues only where its result is taken in the layout it was produced in, on the same loop
        # level: any exchange or replay in between needs a buffer.
        runs: dict[int, list[_Link]] = {}  # by the node of the last step
        for step in self.sharded.distribution.steps:
            link = self._link(step)
            if link is None:
                continue
            follows = link.stem in runs and self.sharded.is_taken_as_produced(link.stem)
            if link.closes and not follows:
                # Both operands of a closing step are of one size: whichever ends a run is the stem.
                link = replace(link, stem=link.branch, branch=link.stem)
                follows = link.stem in runs and self.sharded.is_taken_as_produced(link.stem)
                if not follows:
                    continue
            run = runs.pop(link.stem) if follows else []
            run.append(link)
            runs[link.node] = run
        return list(runs.values())

    def _link(self, step: StepModes) -> _Link | None:
        layout = self.sharded.layout(step.node)
        closes = self._closes(step)
        # The kernel has no batch modes, and terms on several ranks are left by a chain only where they are
        # one number.
        if step.batch_mask or (self.placement.partial[step.node] and not closes):
            return None
        tensors = [self._local(node, layout) for node in (step.left, step.right, step.node)]
        if any(modes is None for modes in tensors):
            return None
        left, right, out = (modes or () for modes in tensors)
        sizes = [elements(modes) for modes in (left, right)]
        # Of equal operands the stem is the one that was computed, so that a run can go on.
        turned = sizes[0] < sizes[1] or (sizes[0] == sizes[1] and step.left < self.tree.n_leaves)
        stem, branch = (right, left) if turned else (left, right)
        # k and n of the branch are at most MOST_EXTENT each.
        small = step.reduced <= MOST_EXTENT and min(sizes) <= MOST_EXTENT * step.reduced
        if not small and not closes:
            return None
        choice = self.sharded.choice(step.node)
        contract_s, permute_s, _ = contract_terms(self.space, step, choice.layout)
        adds = step.node == self.tree.loop_nest.waist
        if adds:
            # A chain at the waist adds to the early sum as it writes, a matrix product in a call of its own.
            permute_s += self.space.model.add_s(elements(out) * self.space.model.item_bytes)
        return _Link(
            node=step.node,
            stem=step.right if turned else step.left,
            branch=step.left if turned else step.right,
            stem_modes=stem,
            branch_modes=branch,
            out_modes=out,
            stem_elements=max(sizes),
            branch_elements=min(sizes),
            out_elements=elements(out),
            flops=step.products * self.space.share(choice.layout) * self.space.model.flops_per_product,
            unfused_s=contract_s + permute_s,
            # A tile of the stem has no more elements than the stem, and all modes that are summed.
            has_rows=closes or max(sizes) >= STAGE_ROWS * step.reduced,
            adds=adds,
            closes=closes,
        )

    def _closes(self, step: StepModes) -> bool:
        """Whether a step sums all modes of two tensors that have the same ones."""
        left, right, out = (set(self.tree.legs[node]) for node in (step.left, step.right, step.node))
        same = left == right and not out and bool(left)
        return self.space.model.chains_close and same and step.node != self.tree.loop_nest.waist

    def _local(self, node: int, layout: Layout) -> Modes | None:
        """A tensor's modes with their extents on a rank; None where ranks hold parts of unequal extents."""
        radix = {
            mode: self.sharded.grid[position].radix
            for position, mode in enumerate(layout)
            if mode is not None
        }
        modes = []
        for mode in self.sharded.orders[node]:
            extent, parts = self.tree.modes[mode].extent, radix.get(mode, 1)
            if extent % parts:
                return None
            modes.append((mode, extent // parts))
        return tuple(modes)


def _cut(run: list[_Link], space: StateSpace, thrifty: bool, alone: float) -> list[Chain]:
    """The chains of a run with the least predicted time; steps in none of them are matrix products.

    Those that hold more than `alone` elements are so only where they are no chain.
    """
    # best_s[i]: least seconds of the first i steps of the run. best_s[last + 1] = min of best_s[last] + the
    # step as a matrix product and, over first, best_s[first] + the chain first .. last.
    best_s = [0.0]
    # By step: where its chain begins, the chain's seconds and precision.
    first_of: list[tuple[int, float, str]] = []
    for last, link in enumerate(run):
        least_s, choice = best_s[last] + link.unfused_s, (-1, 0.0, "")
        # Large steps are to be in chains for the sake of memory, whatever a matrix product takes.
        if link.held_elements > alone and link.has_rows and _chain_s([link], space, inf)[0] < inf:
            least_s = inf
        # From the shortest chain on. What is at hand is the bound: `_chain_s` stops where even the full rate
        # cannot undercut it, before it looks for a tile.
        for first in range(last, max(last - space.model.chain_steps, -1), -1):
            if not run[first].has_rows:
                break
            bound_s = least_s - best_s[first]
            links = run[first : last + 1]
            if thrifty and _grows(links):
                continue
            chain_s, precision = _chain_s(links, space, bound_s)
            if chain_s < bound_s:
                least_s, choice = best_s[first] + chain_s, (first, chain_s, precision)
        best_s.append(least_s)
        first_of.append(choice)
    chains = []
    # Back from the end: each choice says where its chain begins, -1 for a matrix product.
    last = len(run) - 1
    while last >= 0:
        first, chain_s, precision = first_of[last]
        if first < 0:
            last -= 1
            continue
        chains.append(_chain(run[first : last + 1], chain_s, precision))
        last = first - 1
    return chains[::-1]


def _moves(links: Mapping[int, _Link], chains: Sequence[Chain], sharded: ShardedTree) -> list[Move]:
    """The chains of a run by their ends."""
    capacity = sharded.space.model.fused_elements

    def move(chain: Chain) -> Move:
        inside = [links[node] for node in chain.nodes]
        branches, end = _branches_and_end(inside)

        def fits(operand: Modes, end: Modes) -> bool:
            return _tile(operand, branches, end, capacity)[0] > 0

        layout = sharded.placement.steps[chain.nodes[0]] or ()
        spread = frozenset(mode for mode in layout if mode is not None)
        return Move(chain.stem, chain.nodes[-1], inside[0].stem_modes, end, spread, fits)

    return list(map(move, chains))


def _branches_and_end(links: Sequence[_Link]) -> tuple[tuple[Modes, ...], Modes]:
    """The modes of a chain's small branches, and those of its result or of what closes it."""
    branches = tuple(link.branch_modes for link in links)
    return (branches[:-1], branches[-1]) if links[-1].closes else (branches, links[-1].out_modes)


def _grows(links: list[_Link]) -> bool:
    """Whether a chain holds more at once than any of its steps, small branches apart."""
    most = max(link.held_elements for link in links)
    return links[0].stem_elements + links[-1].out_elements > most


def _chain(links: list[_Link], chain_s: float, precision: str) -> Chain:
    unfused_s = sum(link.unfused_s for link in links)
    return Chain(
        nodes=tuple(link.node for link in links), stem=links[0].stem,
        branches=tuple(link.branch for link in links if not link.closes),
        times_s=tuple(chain_s * link.unfused_s / unfused_s for link in links), precision=precision,
        closing=links[-1].branch if links[-1].closes else None,
    )  # fmt: skip


def _chain_s(links: list[_Link], space: StateSpace, bound_s: float) -> tuple[float, str]:
    """Predicted seconds of a chain and its precision; infinite where it has no tile, or takes `bound_s` even
    at full rate."""
    model = space.model
    capacity = model.fused_elements
    inside = links[:-1] if links[-1].closes else links
    if not inside:
        return inf, ""
    # What closes the chain is read where else its result is written.
    stages = [links[0].stem_elements, *(link.out_elements for link in inside)]
    branches = sum(link.branch_elements for link in inside)
    # What is added to is read too.
    ends_bytes = [stages[0] * model.item_bytes, stages[-1] * model.item_bytes * (2 if links[-1].adds else 1)]
    least_s = model.run_s(sum(ends_bytes) + branches * model.item_bytes, inf)
    # On chip every tensor between two steps is written and read once.
    tile_bytes = 2 * sum(stages) * model.item_bytes
    flops = sum(link.flops for link in links)
    if branches > capacity or model.fused_s(least_s, tile_bytes, flops, inf)[0] >= bound_s:
        return inf, ""
    elements, runs = _tile(links[0].stem_modes, *_branches_and_end(links), capacity)
    if not elements:
        return inf, ""
    # The ends are read and written in runs of the tile's length, branches once as a whole.
    moved_s = model.run_s(branches * model.item_bytes, inf) + sum(
        model.run_s(size_bytes, run * model.item_bytes)
        for size_bytes, run in zip(ends_bytes, runs, strict=True)
    )
    return model.fused_s(moved_s, tile_bytes, flops, stages[0] / elements)


@lru_cache(maxsize=1 << 14)
def _tile(
    operand: Modes, branches: tuple[Modes, ...], out: Modes, capacity: int
) -> tuple[int, tuple[int, int]]:
    """The elements of a chain's tile as it is read, or 0, and its runs; many plans share these."""
    tile = fused_tile(operand, branches, out, capacity)
    if tile is None:
        return 0, (1, 1)
    return elements(tuple(item for item in operand if item[0] in tile.modes)), tile.runs
