"""The order of a contraction with a bond limit, by its predicted cost: shapes are known before values are.

cotengra finds orders for compressed contraction, as Gray and Chan have them (arXiv 2206.07044): spanning
trees from the middle or from an end, and greedy ones. Each is followed symbolically; the cheapest is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import floor, log2, prod
from random import Random
from typing import Any

from tnplan.planner.search.bond_ranks import BondRanks

Pairs = list[tuple[int, int]]
"""Two tensors each; of contractions, in turn, each result has the next number."""
Cuts = list[tuple[int, int, int]]
"""Two tensors whose bond is cut, and the rank that it has at most by the shapes of what they are made of."""
Rows = dict[int, list[tuple[tuple[int, ...], tuple[int, ...]]]]
DECOMPOSITION = 20
"""Multiply-adds of singular values in those of a product of square matrices of the size."""
TRIAL_MADDS = 3e6
"""Multiply-adds that take as long as a trial does for each tensor."""
LEAST_TRIALS, MOST_TRIALS = 4, 96


@dataclass(frozen=True)
class BondLimitedOrder:
    """What is done in turn, and what it takes.

    Parameters
    ----------
    pairs : list of (int, int)
        Tensors that are contracted.
    compressions : list of list of (int, int, int)
        Behind each pair: bonds that are then cut, with the ranks that they have at most.
    multiply_adds : float
        Of all steps.
    peak_elements : int
        The most numbers that are there at once.
    operand_elements : int
        The numbers of all operands of contractions, which gradients keep.
    step_madds : list of float
        The multiply-adds of each pair with what is then cut.
    rows : dict of int to list of (tuple of int, tuple of int)
        Of a boundary contraction, by the number of the pair before: the rows of tensors whose bonds are cut,
        and the ranks of these.
    sides : list of int
        There, of each tensor and each result: 1 on the second side, or 0.
    """

    pairs: Pairs
    compressions: list[Cuts]
    multiply_adds: float
    peak_elements: int
    operand_elements: int
    step_madds: list[float]
    rows: Rows = field(default_factory=dict)
    sides: list[int] = field(default_factory=list)


class _Shapes:
    """The tensors of a network by the extents of their bonds, while pairs are contracted and bonds cut."""

    def __init__(self, network: Sequence[Mapping[int, int]], max_bond: int) -> None:
        self.bonds = {number: dict(bonds) for number, bonds in enumerate(network)}
        self.new = self.n_inputs = len(network)
        self.multiply_adds, self.peak, self.operands = 0.0, 0, 0
        self._max_bond = max_bond
        self._sizes = {number: prod(bonds.values()) for number, bonds in self.bonds.items()}
        self.ranks: BondRanks | None = None
        """What knows ranks better than sizes do: not while orders are searched, for which it is slow."""
        self._live = 2 * sum(self._sizes.values())  # with the arrays that were given

    def result(self, left: int, right: int) -> dict[int, int]:
        """The bonds of a product, those of both with a third as one."""
        bonds = {other: extent for other, extent in self.bonds[left].items() if other != right}
        for other, extent in self.bonds[right].items():
            if other != left:
                bonds[other] = bonds.get(other, 1) * extent
        return bonds

    def contract(self, left: int, right: int) -> int:
        """Contract two tensors; the number of the result."""
        bonds, new = self.result(left, right), self.new
        sizes = self._sizes.pop(left), self._sizes.pop(right)
        size = prod(bonds.values())
        self.operands += sum(sizes)
        self.multiply_adds += size * self.bonds[left].get(right, 1)
        # Operands are copied where their axes lie otherwise, and so are the result and its neighbours.
        inner = [other for other in bonds if other >= 0]
        copied = max(sum(sizes) + size, size + max((self._sizes[other] for other in inner), default=0))
        self.peak = max(self.peak, self._live + copied, self._live - sum(sizes) + 2 * size)
        self._live += size - sum(sizes)
        for number in (left, right):
            for other in self.bonds.pop(number):
                if other in self.bonds:
                    del self.bonds[other][number]
        for other in inner:
            self.bonds[other][new] = bonds[other]
        self.bonds[new], self._sizes[new] = bonds, size
        if self.ranks is not None:
            self.ranks.contract(left, right, new)
        self.new += 1
        return new

    def compress(self, left: int, right: int, of_row: int | None = None) -> int:
        """Cut a bond to the limit; the rank that it has at most, or 0 where it is not larger."""
        bond = self.bonds[left][right]
        if bond <= self._max_bond:
            return 0
        sizes = [self._sizes[left], self._sizes[right]]
        ranks = [min(bond, size // bond) for size in sizes]
        rank = min(ranks) if of_row is None else of_row
        if of_row is None and self.ranks is not None and rank > self._max_bond:
            rank = min(rank, self.ranks.of_bond(left, right, self.bonds))
        if min(ranks) <= self._max_bond:  # all of one tensor goes to the other
            new = min(ranks)
            self.multiply_adds += max(sizes) * new
            self.peak = max(self.peak, self._live + 2 * max(sizes))
        else:
            for number, other in ((left, right), (right, left)):
                size = self._sizes[number]
                for at_end, extent in self.bonds[number].items():
                    if at_end != other and at_end >= self.n_inputs:
                        self.multiply_adds += size * extent + self._sizes[at_end] * extent / 2
                self.multiply_adds += size * (bond + self._max_bond)
            self.multiply_adds += ranks[0] * ranks[1] * (bond + DECOMPOSITION * min(ranks))
            self.peak = max(self.peak, self._live + 2 * max(sizes) + 4 * bond * bond)
            new = min(self._max_bond, rank)
        for number, other in ((left, right), (right, left)):
            size = self._sizes[number] // bond * new
            self._live += size - self._sizes[number]
            self._sizes[number], self.bonds[number][other] = size, new
        if self.ranks is not None:
            self.ranks.cut(left, right, new)
        return rank

    def compress_row(self, tensors: tuple[int, ...]) -> tuple[int, ...]:
        """Cut the bonds of a row; the ranks that they have at most."""
        bonds = [self.bonds[left][right] for left, right in pairwise(tensors)]
        limits = [1]  # by the bonds of all tensors on the right
        for number, near, far in zip(tensors[:0:-1], bonds[::-1], [1, *bonds[:0:-1]], strict=True):
            limits.append(min(near, limits[-1] * (self._sizes[number] // (near * far))))
        ranks = list[int]()
        for (left, right), limit in zip(pairwise(tensors), limits[:0:-1], strict=True):
            bond = self.bonds[left][right]
            ranks.append(min(bond, limit, self._sizes[left] // bond))
            self.compress(left, right, ranks[-1])
        return tuple(ranks)


def follow(
    network: Sequence[Mapping[int, int]], pairs: Pairs, max_bond: int, has_ranks: bool = True,
    rows: Mapping[int, tuple[tuple[int, ...], ...]] | None = None, sides: Sequence[int] = (),
) -> BondLimitedOrder:  # fmt: skip
    """Contract pairs symbolically; bonds beyond the limit are cut behind each, or only those of rows.

    Parameters
    ----------
    network
        For each tensor the extents of its bonds, by the neighbour: one bond a pair. Neighbours of open
        indices have negative numbers.
    """
    shapes = _Shapes(network, max_bond)
    shapes.ranks = BondRanks(network) if has_ranks and rows is None else None
    partners = {one: other for pair in pairs for one, other in (pair, pair[::-1])}
    compressions, step_madds, cut_rows = [], [], Rows()
    for number, (left, right) in enumerate(pairs):
        before = shapes.multiply_adds
        new = shapes.contract(left, right)
        # A bond whose tensors are contracted with each other next is summed sooner than it is cut.
        ends = [] if rows is not None else [
            other for other in shapes.bonds[new] if other >= 0 and partners.get(new) != other
        ]  # fmt: skip
        cuts = [(new, other, shapes.compress(new, other)) for other in ends]
        compressions.append([cut for cut in cuts if cut[2]])
        if rows is not None and number in rows:
            cut_rows[number] = [(row, shapes.compress_row(row)) for row in rows[number]]
        step_madds.append(shapes.multiply_adds - before)
    return BondLimitedOrder(
        pairs,
        compressions,
        shapes.multiply_adds,
        shapes.peak,
        shapes.operands,
        step_madds,
        cut_rows,
        [*sides],
    )


def search_order(
    network: Sequence[Mapping[int, int]], max_bond: int, most_elements: float
) -> BondLimitedOrder:
    """The cheapest order found of a connected network, as `follow` takes it, that needs at most so many
    elements, rounded down to a power of 2; or else the one that needs the fewest.

    Deterministic: the number of trials follows from the cost of what was found. Orders are kept for the next
    call with the same network.
    """
    bonds = tuple(tuple(bonds.items()) for bonds in network)
    return _search_order(bonds, max_bond, 2.0 ** floor(log2(max(1.0, most_elements))))


@lru_cache(64)
def _search_order(
    bonds: tuple[tuple[tuple[int, int], ...], ...], max_bond: int, most_elements: float
) -> BondLimitedOrder:
    network = [*map(dict, bonds)]
    shapes = _Shapes(network, max_bond)
    first = _free_pairs(shapes)
    best: tuple[tuple[bool, float], BondLimitedOrder] | None = None
    trials = LEAST_TRIALS
    for trial, found in enumerate(_orders(shapes, max_bond)):
        order = follow(network, first + found, max_bond, has_ranks=False)
        fits = order.peak_elements <= most_elements
        key = not fits, order.multiply_adds if fits else float(order.peak_elements)
        if best is None or key < best[0]:
            best = key, order
            affordable = order.multiply_adds / (TRIAL_MADDS * len(network))
            trials = max(LEAST_TRIALS, min(MOST_TRIALS, int(affordable)))
        if trial + 1 >= trials:
            break
    assert best is not None
    return best[1]


def _free_pairs(shapes: _Shapes) -> Pairs:
    """Contract pairs whose result is not larger than the larger of the two, as long as there are any."""
    pairs: Pairs = []
    waiting = sorted(shapes.bonds, reverse=True)
    while waiting:
        number = waiting.pop()
        for other in [other for other in shapes.bonds.get(number, ()) if other >= 0]:
            sizes = [prod(shapes.bonds[one].values()) for one in (number, other)]
            if prod(shapes.result(number, other).values()) <= max(sizes):
                pairs.append((number, other))
                new = shapes.contract(number, other)
                waiting += [*shapes.bonds[new], new]
                break
    return pairs


def _orders(shapes: _Shapes, max_bond: int) -> Iterator[Pairs]:
    """Ever more orders of what is left."""
    numbers = sorted(shapes.bonds)
    if len(numbers) < 3:
        yield [tuple(numbers)] if len(numbers) == 2 else []  # type: ignore[list-item]
        return
    from cotengra.pathfinders.path_compressed_greedy import GreedyCompressed, GreedySpan

    # Of open indices cotengra's spanning trees take two tensors at most: they are left out here.
    inputs = [tuple(f"{min(n, o)},{max(n, o)}" for o in shapes.bonds[n] if o >= 0) for n in numbers]
    extents = {f"{min(n, o)},{max(n, o)}": e for n in numbers for o, e in shapes.bonds[n].items() if o >= 0}
    random = Random(0)
    for trial in range(MOST_TRIALS):
        start = "min" if trial % 4 else "max"
        if trial % 2:
            finder = GreedyCompressed(max_bond, seed=trial, **(_greedy_options(random) if trial > 1 else {}))
        else:
            finder = GreedySpan(start, seed=trial, **(_span_options(random) if trial > 2 else {}))
        names, after = dict(enumerate(numbers)), shapes.new - len(numbers)
        yield [
            (names.get(left, left + after), names.get(right, right + after))
            for left, right in finder.get_ssa_path(inputs, (), extents)
        ]


def _greedy_options(random: Random) -> dict[str, Any]:
    """Weights of what a greedy order looks at, from the ranges that cotengra's own search has."""
    return {
        "coeff_size_compressed": random.uniform(0.5, 2), "coeff_size": random.uniform(0, 1),
        "coeff_size_inputs": random.uniform(-1, 1),
        "score_size_inputs": random.choice(("min", "max", "mean", "sum", "diff")),
        "coeff_subgraph": random.uniform(-1, 1),
        "score_subgraph": random.choice(("min", "max", "mean", "sum", "diff")),
        "coeff_centrality": random.uniform(-10, 10),
        "centrality_combine": random.choice(("min", "max", "mean")),
        "score_centrality": random.choice(("min", "max", "mean", "diff")),
        "temperature": random.uniform(-0.1, 1),
    }  # fmt: skip


def _span_options(random: Random) -> dict[str, Any]:
    """The same for a spanning tree."""
    return {
        "coeff_connectivity": random.choice((0, 1)), "coeff_ndim": random.choice((-1, 0, 1)),
        "coeff_distance": random.choice((-1, 0, 1)), "coeff_next_centrality": random.uniform(-1, 1),
        "temperature": random.uniform(-1, 1), "score_perm": random.choice(("", "CNDLTI")),
    }  # fmt: skip
