"""Pass 1, build: a contraction path becomes a binary tree over prime modes.

Slices are taken out, repeated indices put on their diagonal, indices of extent 1 dropped, and every other
extent split into its prime factors, so that a digit of the process grid always fits a mode exactly or not
at all. Row-major data is the same before and after the split. `mode_orders` is pass 2. Knows no devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf, isqrt, prod

from tnplan.common.errors import InputError
from tnplan.planner.hardware.process_grid import prime_factors
from tnplan.planner.networks.contraction_path import ContractionPath, ssa_pairs
from tnplan.planner.passes.tree.loop_levels import LoopNest, flat_nest
from tnplan.planner.schedule.schedule import Mode

LEAST_WEIGHT = 1e-6
MOST_MODES_OF_A_TENSOR = 960
"""A mode has an extent of 2 at least: numbers of elements beyond leave the range of floating point."""
MOST_DIVISORS = 2**25
"""Numbers that may be factors of all extents together, which takes seconds to try."""
Orders = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Tree:
    """A binary contraction tree. Leaves are 0 .. n_leaves-1; node n_leaves+i contracts `children[i]`.

    `legs[node]` are the modes of a node after slicing, in no particular order: those that also sit
    elsewhere or in the output. A leaf has besides them `leaf_sliced` (whole sliced indices) and
    `leaf_summed` (modes that sit nowhere else). `loop_nest` says which nodes several slices share.
    `output` are the modes of a slice's result, `sliced_output` the open ones that slices fix.
    `death[mode]` is the node that sums the mode, or None for an output mode. `sizes` are the elements of a
    slice's tensors, `depths` the steps between each node and the root, and `lifetimes` the modes of each node
    from longest-lived to shortest-lived.
    """

    modes: tuple[Mode, ...]
    indices: dict[str, tuple[int, ...]]
    n_leaves: int
    children: tuple[tuple[int, int], ...]
    legs: tuple[tuple[int, ...], ...]
    leaf_sliced: tuple[tuple[int, ...], ...]
    leaf_summed: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    sliced_output: tuple[int, ...]
    root: int
    loop_nest: LoopNest
    death: dict[int, int | None]
    slots: dict[int, int]
    slot_extents: tuple[int, ...]
    sizes: tuple[int, ...]
    depths: tuple[int, ...]
    lifetimes: tuple[tuple[int, ...], ...]

    @property
    def n_nodes(self) -> int:
        """Leaves and contractions together."""
        return self.n_leaves + len(self.children)

    @cached_property
    def parents(self) -> tuple[int | None, ...]:
        """The step that takes each node; None for the root."""
        above: list[int | None] = [None] * self.n_nodes
        for number, pair in enumerate(self.children):
            for child in pair:
                above[child] = self.n_leaves + number
        return tuple(above)

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """How often each node is computed, in slices; not so little that sums of times lose it."""
        loop_nest = self.loop_nest
        often = [
            max(repeats / serves, LEAST_WEIGHT)
            for repeats, serves in zip(loop_nest.repeats, loop_nest.serves, strict=True)
        ]
        return tuple(often[level] for level in loop_nest.level_of)

    @cached_property
    def later_weights(self) -> tuple[float, ...]:
        """The weight of the step that takes each node; of the root its own."""
        return tuple(
            self.weights[node if above is None else above] for node, above in enumerate(self.parents)
        )

    def extent(self, modes: tuple[int, ...] | list[int]) -> int:
        """The product of the extents of some modes."""
        return prod([self.modes[mode].extent for mode in modes])


def build(path: ContractionPath, most_modes: float = inf) -> Tree:
    """The binary tree of a contraction path; steps of three or more tensors go from left to right.

    Raises InputError for a tensor beyond any figure of it, and for more than `most_modes` of all tensors.
    """
    network = path.network
    modes, indices = _prime_modes(path)
    n_leaves = len(network.inputs)
    children = ssa_pairs(path.ssa_path, n_leaves)
    root = n_leaves + len(children) - 1

    # How many tensors have a mode, the result among them: a mode is summed at the node under which all of
    # them are.
    total: dict[int, int] = {}
    terms: list[tuple[int, ...]] = []
    sliced_terms: list[tuple[int, ...]] = []
    sliced = set(path.sliced_inds)
    for term in network.inputs:
        distinct = list(dict.fromkeys(term))
        terms.append(tuple(mode for index in distinct if index not in sliced for mode in indices[index]))
        sliced_terms.append(tuple(mode for index in distinct if index in sliced for mode in indices[index]))
        for mode in terms[-1]:
            total[mode] = total.get(mode, 0) + 1
    sliced_output, output = (
        tuple(mode for index in network.output if (index in sliced) == is_sliced for mode in indices[index])
        for is_sliced in (True, False)
    )
    for mode in output:
        total[mode] += 1

    legs: list[tuple[int, ...]] = []
    summed: list[tuple[int, ...]] = []
    for of_leaf in terms:
        legs.append(tuple(mode for mode in of_leaf if total[mode] > 1))
        summed.append(tuple(mode for mode in of_leaf if total[mode] == 1))

    # By node the modes that are still alive, each with the number of tensors under the node that have it. A
    # dictionary is handed on to the product and the smaller one merged into the larger.
    n_modes = sum(_bounded(path, len(modes_of)) for modes_of in terms)
    seen: list[dict[int, int] | None] = [dict.fromkeys(modes_of, 1) for modes_of in legs]
    death: dict[int, int | None] = dict.fromkeys(output)
    for number, (left, right) in enumerate(children):
        first, second = seen[left], seen[right]
        assert first is not None
        assert second is not None
        seen[left] = seen[right] = None
        if len(first) < len(second):
            first, second = second, first
        for mode, count in second.items():
            first[mode] = first.get(mode, 0) + count
        # Invariant: an output mode counts one more than any node reaches, so that it is never summed.
        for mode in [mode for mode, count in first.items() if count == total[mode]]:
            del first[mode]
            death[mode] = n_leaves + number
        n_modes += _bounded(path, len(first))
        if n_modes > most_modes:
            raise InputError(
                path.name or "the path", f"has tensors of more than {most_modes:,} modes together",
                "in Python, use tnplan.plan(tnplan.load_path(FILE)), which has no such limit",
            )  # fmt: skip
        seen.append(first)
        legs.append(tuple(first))

    slots, slot_extents = _slots(modes, children, legs, n_leaves, root)
    extents = [network.size_dict[index] for index in path.sliced_inds]
    depths = _depths(children, n_leaves)
    return Tree(
        modes=modes, indices=indices, n_leaves=n_leaves, children=children, legs=tuple(legs),
        leaf_sliced=tuple(sliced_terms), leaf_summed=tuple(summed), output=output,
        sliced_output=sliced_output, root=root,
        loop_nest=flat_nest(path.sliced_inds, extents, [bool(term) for term in sliced_terms], children),
        death=death, slots=slots, slot_extents=slot_extents,
        sizes=tuple([prod([modes[mode].extent for mode in of_node]) for of_node in legs]), depths=depths,
        lifetimes=_lifetimes(legs, n_leaves, death, depths),
    )  # fmt: skip


def _bounded(path: ContractionPath, n_modes: int) -> int:
    """The modes of one tensor, if there are not too many."""
    if n_modes > MOST_MODES_OF_A_TENSOR:
        raise InputError(
            path.name or "the path",
            f"has a tensor of more than 2^{MOST_MODES_OF_A_TENSOR} elements, more than a float can count",
            "search a path with smaller tensors",
        )
    return n_modes


def _depths(children: tuple[tuple[int, int], ...], n_leaves: int) -> tuple[int, ...]:
    """The number of contractions between each node and the root."""
    depths = [0] * (n_leaves + len(children))
    for node in range(len(depths) - 1, n_leaves - 1, -1):
        for child in children[node - n_leaves]:
            depths[child] = depths[node] + 1
    return tuple(depths)


def _lifetimes(
    legs: list[tuple[int, ...]], n_leaves: int, death: dict[int, int | None], depths: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
    """The modes of every node from longest-lived to shortest-lived.

    Of modes summed at the same step, those come first that are present on both sides for longest: two
    sub-trees that meet there can then have the same modes without knowing of each other.
    """
    shallowest: dict[int, int] = {}
    for leaf in range(n_leaves):
        for mode in legs[leaf]:
            shallowest[mode] = min(depths[leaf], shallowest.get(mode, depths[leaf]))
    key = {
        mode: (-1 if node is None else depths[node], -shallowest[mode], mode) for mode, node in death.items()
    }
    return tuple([tuple(sorted(of_node, key=key.__getitem__)) for of_node in legs])


def _prime_modes(path: ContractionPath) -> tuple[tuple[Mode, ...], dict[str, tuple[int, ...]]]:
    modes: list[Mode] = []
    indices: dict[str, tuple[int, ...]] = {}
    sliced = set(path.sliced_inds)
    if sum(map(isqrt, set(path.network.size_dict.values()))) > MOST_DIVISORS:
        raise InputError(
            path.name or "the path",
            "has too many large extents to find the factors of",
            "use smaller extents",
        )
    for index in dict.fromkeys(index for term in path.network.inputs for index in term):
        size = path.network.size_dict[index]
        extents = (size,) if index in sliced else prime_factors(size)
        indices[index] = tuple(range(len(modes), len(modes) + len(extents)))
        modes.extend(Mode(index, extent) for extent in extents)
    return tuple(modes), indices


def _slots(
    modes: tuple[Mode, ...], children: tuple[tuple[int, int], ...], legs: list[tuple[int, ...]],
    n_leaves: int, root: int,
) -> tuple[dict[int, int], tuple[int, ...]]:  # fmt: skip
    """Number modes from the root down: a mode summed at a step takes the lowest slot the step leaves free.

    A mode lives on a connected part of the tree, so that no two modes of one step ever share a slot.
    """
    slots: dict[int, int] = {}
    slot_extents: list[int] = []
    # A slot is reused where its mode is no longer alive: bit masks stay as wide as the largest step and not
    # as the network. Only modes of one extent share a slot, as shares go by slots.
    by_extent: dict[int, list[int]] = {}

    def take(new: list[int], present: set[int]) -> None:
        for mode in new:
            extent = modes[mode].extent
            slot = next((slot for slot in by_extent.get(extent, ()) if slot not in present), None)
            if slot is None:
                slot = len(slot_extents)
                slot_extents.append(extent)
                by_extent.setdefault(extent, []).append(slot)
            slots[mode] = slot
            present.add(slot)

    take(list(legs[root]), set())
    for number in range(len(children) - 1, -1, -1):
        left, _ = children[number]
        # Invariant: from the root down, all modes of a step are those of its result and those that it sums;
        # the latter are on both operands, so that the left one has them all.
        present = {slots[mode] for mode in legs[n_leaves + number]}
        take([mode for mode in legs[left] if mode not in slots], present)
    return slots, tuple(slot_extents)


def mode_orders(tree: Tree) -> Orders:
    """Pass 2, reorder: the storage order of the modes of every node, leaves and root included.

    With the order of section IV-A every step is a matrix product on the data as it lies. Without batch modes
    the modes of every tensor end up sorted by remaining lifetime, longest-lived first.
    Modes reduced at the same step have equal lifetimes; they are ordered by the first leaf that holds them
    when heavier sub-trees come first, which keeps the runs of a producer's operands together.
    """
    first_leaf = _first_leaf(tree)
    orders: list[tuple[int, ...]] = [()] * tree.n_nodes
    orders[tree.root] = tree.output
    # The backward pass of section IV-A: an operand is rebuilt from what takes it, [batch | retained in the
    # order of the output | reduced]; reduced modes have the same order on both sides, so that k is one range.
    for number in range(len(tree.children) - 1, -1, -1):
        left, right = tree.children[number]
        output = orders[tree.n_leaves + number]
        left_legs, right_legs = set(tree.legs[left]), set(tree.legs[right])
        reduced = sorted(
            (left_legs & right_legs).difference(output), key=lambda mode: (first_leaf[mode], mode)
        )
        for node, legs, other in ((left, left_legs, right_legs), (right, right_legs, left_legs)):
            batch = [mode for mode in output if mode in legs and mode in other]
            retained = [mode for mode in output if mode in legs and mode not in other]
            orders[node] = (*batch, *retained, *reduced)
    return tuple(orders)


def _first_leaf(tree: Tree) -> dict[int, int]:
    """For every mode the position of its first leaf, heavier (larger) operands walked first."""
    position: dict[int, int] = {}
    stack = [tree.root]
    visited = 0
    while stack:
        node = stack.pop()
        if node < tree.n_leaves:
            for mode in tree.legs[node]:
                position.setdefault(mode, visited)
            visited += 1
            continue
        left, right = tree.children[node - tree.n_leaves]
        stack.extend((left, right) if tree.sizes[left] < tree.sizes[right] else (right, left))
    return position
