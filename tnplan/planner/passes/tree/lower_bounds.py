"""Bounds that need no planning: a step that fits no schedule, and the seconds that none undercuts.

Both are necessary, never estimates: what they rule out, no attempt reaches. They save attempts; what is left
is for the planner to try. Pure functions of a tree and a cost model; know no layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

from tnplan.common.errors import OverLimitError
from tnplan.common.units import size_text
from tnplan.planner.hardware.cost import CostModel
from tnplan.planner.hardware.fusion_tile import MOST_EXTENT, MOST_STAGES
from tnplan.planner.passes.tree.build import Tree
from tnplan.planner.passes.tree.loop_levels import LoopNest
from tnplan.planner.passes.tree.loop_nest import InvariantHoisting

ROUNDING = 1 - 1e-9
"""Sums of seconds in another order may differ by less than this."""


def step_without_room(tree: Tree, model: CostModel, limit_bytes: float, ranks: int) -> int | None:
    """The first step that fits no schedule on `ranks` ranks of `limit_bytes`, if one is known.

    Some rank holds at least the even share of a tensor that is stored, so that all ranks together have room
    for it. A matrix product stores both operands and its result, a chain the operand of its first step, all
    its branches and the result of its last one, or the first or the last alone where it works in place. What
    lies between is not stored, but a chain has few steps, each with a small branch, and one tile.
    """
    # Invariant: a bound, never an estimate: each test below may only err towards "it fits".
    most_elements = ranks * limit_bytes / model.item_bytes
    sizes = tree.sizes
    stored = [size <= most_elements for size in sizes[: tree.n_leaves]]
    # The chains that may end at a node: the operand of the first step, and the steps.
    chains: list[list[tuple[int, ...]]] = [[] for _ in stored]
    for number, (left, right) in enumerate(tree.children):
        node, ending_here = tree.n_leaves + number, list[tuple[int, ...]]()
        is_stored = (
            stored[left] and stored[right] and sizes[left] + sizes[right] + sizes[node] <= most_elements
        )
        for stem, branch in ((left, right), (right, left)):
            if stored[branch] and _is_fusable(tree, model, node, sizes[branch] / ranks):
                # What may be stored may as well begin a chain, which is then shorter.
                begun = [(stem,)] if stored[stem] else chains[stem]
                ending_here += [(*chain, node) for chain in begun if _has_tile(tree, model, (*chain, node))]
            is_stored = is_stored or (stored[branch] and _closes(tree, node) and bool(chains[stem]))
        chains.append(ending_here)
        stored.append(is_stored or (bool(ending_here) and sizes[node] <= most_elements))
        # The result can neither be stored nor lie between two steps of a chain, whatever the layouts.
        if not (stored[-1] or ending_here):
            return node
    return None if stored[-1] or not tree.children else tree.n_nodes - 1


def over_limit(tree: Tree, model: CostModel, node: int, ranks: int, limit_bytes: float) -> OverLimitError:
    """Why a step does not fit, with the least that it needs."""
    first = tree.n_leaves
    nodes = (*tree.children[node - first], node)
    all_bytes = sum(tree.sizes[member] for member in nodes) * model.item_bytes
    more = ", its workspace is to be added," if all_bytes <= ranks * limit_bytes else ","
    return OverLimitError(
        f"step {node - first}",
        f"its tensors take {size_text(all_bytes)} together{more} and no layout over {ranks} ranks fits "
        f"a limit of {size_text(limit_bytes)} per rank",
        "allow more memory, use more ranks, or search a path that is sliced further",
        topic="memory",
    )


def step_over(tree: Tree, sizes: Sequence[int], most_bytes: float) -> int | None:
    """The first step whose three tensors are over the memory of all ranks together, if any is."""
    for number, (left, right) in enumerate(tree.children):
        node = tree.n_leaves + number
        if sizes[left] + sizes[right] + sizes[node] > most_bytes:
            return node
    return None


class LeastSeconds:
    """Seconds of all slices that no schedule undercuts, whatever its layouts, its chains and its loop levels.

    Some rank has at least the even share of the products and of every tensor. Rates are the best at any
    extents; launches, permutations, exchanges and what a chain reads and writes in memory are left out. Of
    each order of the loops that one counts with which every step is done least often.
    """

    def __init__(self, tree: Tree, model: CostModel, loops: InvariantHoisting) -> None:
        self._tree, self._model, self._loops = tree, model, loops
        self._by_level: dict[int, list[list[float]]] = {}

    def of(self, ranks: int, groups: int) -> float:
        """In the one of `groups` groups of `ranks` ranks that has most slices."""
        if ranks not in self._by_level:
            self._by_level[ranks] = self._added_up(ranks)
        return ROUNDING * min(map(partial(_all_slices, groups), self._loops.unlimited, self._by_level[ranks]))

    def _added_up(self, ranks: int) -> list[list[float]]:
        """Of each loop nest, the seconds of every level on its steps being done once."""
        seconds = self._of_steps(ranks)
        by_nest = []
        for loop_nest in self._loops.unlimited:
            by_level = [0.0] * len(loop_nest.levels)
            for level, step_s in zip(loop_nest.level_of[self._tree.n_leaves :], seconds, strict=True):
                by_level[level] += step_s
            by_nest.append(by_level)
        return by_nest

    def _of_steps(self, ranks: int) -> list[float]:
        """Of each step, as a matrix product or in a chain."""
        seconds = []
        for node, sizes, closes, product_s, fused_s in self._ways:
            fusable = closes or _is_fusable(self._tree, self._model, node, min(sizes) / ranks)
            # Even shares of work, at the better of both rates: no layout divides it better.
            seconds.append((min(product_s, fused_s) if fusable else product_s) / ranks)
        return seconds

    @cached_property
    def _ways(self) -> list[tuple[int, tuple[int, int], bool, float, float]]:
        """Of each step on one rank: its node, its operands' elements, whether it may close a chain, and the
        seconds as a matrix product and in a chain."""
        tree, model, ways = self._tree, self._model, []
        for number, (left, right) in enumerate(tree.children):
            node = tree.n_leaves + number
            a, b, out = tree.sizes[left], tree.sizes[right], tree.sizes[node]
            flops, closes = out * _reduced(tree, node) * model.flops_per_product, _closes(tree, node)
            product_s = model.least_product_s((a + b + out) * model.item_bytes, flops)
            fused_s = model.least_fused_s(0 if closes else out * model.item_bytes, flops)
            ways.append((node, (a, b), closes, product_s, fused_s))
        return ways


def _all_slices(groups: int, loop_nest: LoopNest, by_level: Sequence[float]) -> float:
    # The group with most slices: a level that serves s slices in a row is done ceil(most / s) times at least.
    most = -(-loop_nest.n_slices // groups)
    return sum(
        level_s * repeats * -(-most // serves)
        for level_s, repeats, serves in zip(by_level, loop_nest.repeats, loop_nest.serves, strict=True)
    )


def _is_fusable(tree: Tree, model: CostModel, node: int, branch_elements: float) -> bool:
    """Whether a chain may have the step, with a branch of so many elements or more on a rank."""
    reduced = _reduced(tree, node)
    most = min(model.fused_elements, MOST_EXTENT * reduced)
    return reduced <= MOST_EXTENT and branch_elements <= most and not _batch(tree, node)


def _has_tile(tree: Tree, model: CostModel, chain: Sequence[int]) -> bool:
    """Whether a chain may have a tile: at every step it holds all modes that the later ones sum, whole."""
    nodes = chain[1:]
    return len(nodes) <= MOST_STAGES and all(
        tree.extent([mode for mode in tree.legs[operand] if tree.death[mode] in nodes[number:]])
        <= model.fused_elements
        for number, operand in enumerate(chain[:-1])
    )


def _closes(tree: Tree, node: int) -> bool:
    """Whether the step may close a chain: it sums all modes of two tensors that have the same ones."""
    left, right = tree.children[node - tree.n_leaves]
    return not tree.legs[node] and set(tree.legs[left]) == set(tree.legs[right])


def _reduced(tree: Tree, node: int) -> int:
    left, right = tree.children[node - tree.n_leaves]
    return tree.extent(tuple({*tree.legs[left], *tree.legs[right]}.difference(tree.legs[node])))


def _batch(tree: Tree, node: int) -> set[int]:
    left, right = tree.children[node - tree.n_leaves]
    return set(tree.legs[left]).intersection(tree.legs[right], tree.legs[node])
