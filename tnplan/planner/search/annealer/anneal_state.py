"""The state of the joint search as arrays: a contraction tree, sliced indices, and the network as bitsets.

Nodes 0 .. n-1 are the inputs, n .. 2n-2 the products; the root, the waist of the tree, stays the same node.
A node's legs are the indices that it shares with tensors outside of its sub-tree, hyper-indices included, one
bit each. The 64-bit words of a segment hold indices of one extent, so that a size is a product of powers, one
for each segment. Indices of extent 1 have no bit. Knows no moves, no files and no machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tnplan.common.kernels.bits_kernel import generator

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

LARGEST = 1e290
LARGEST_BITS = math.log2(LARGEST)
"""Sizes are cut here, so that their sums are finite."""
COST, OVER, HELD = 0, 1, 10
REACHED = 4
WAIST = 2
"""The side of the root, whose children are the tops of the sides 0 and 1."""
VECTOR = 8
Pairs = Sequence[tuple[int, ...]]


class Price(NamedTuple):
    """What a step costs: `products` for each multiply-add and `written` for each element of its result, but
    at least `moved` for each element that it reads or writes."""

    products: float = 1.0
    written: float = 0.0
    moved: float = 0.0


class Problem(NamedTuple):
    """What does not change: K bits in W words, S segments, n inputs."""

    segments: Words
    """(S + 1): the first word of each segment, and W. Unsigned: numba looks for negative places."""
    powers: Floats
    """(S, 1 + most bits of a segment): the extent of a segment to a power."""
    extents: Floats
    """(K): the extent of each bit; 1 where a bit stands for no index."""
    leaf_starts: Ints
    """(K + 1): where the inputs of each bit begin in `leaves`."""
    leaves: Ints
    sliceable: Words
    """(W): bits that may be sliced."""
    open: Words
    """(W): bits of the result's indices."""
    limit: float
    """Elements of the largest tensor; infinite without a limit."""
    waist_limit: float
    """Elements of the waist's tensor where something is summed inside of a side; infinite without one."""
    price: Price
    shares: bool
    """Whether slices share what is the same in them; else each of them costs the whole tree."""


class AnnealState(NamedTuple):
    """A tree of N = 2n - 1 nodes and its sliced indices."""

    left: Ints
    right: Ints
    parent: Ints
    unsliced: Words
    """(W): bits that are not sliced."""
    legs: Words
    """(N, W), sliced bits included."""
    size: Floats
    """(N): elements of a slice's tensor."""
    span: Floats
    """(N): multiply-adds of a slice's step."""
    cost: Floats
    sliced: Ints
    """(K): the sliced bits, the first `counts[0]` of them."""
    position: Ints
    """(K): where a bit stands in `sliced`, or -1."""
    counts: Ints
    """Sliced bits, tensors over the limit, the last stamp, the root, and the products that changes of slices
    have reached."""
    stamps: Ints
    """(2, N): marks of the tensors that a change of slices has reached, and of the products."""
    reached: Ints
    """(N): the products whose steps change."""
    side: Ints
    """(N): 0 at the root's left child and below, 1 at its right one, WAIST at the root."""
    totals: Floats
    """The cost of all slices in the number of slices, the sum of size / limit - 1 over tensors that are too
    large, the next three, and the same of the waist's tensor over its own limit."""
    sums: Floats
    """(3): the cost of a slice's steps on each side."""
    inside: Floats
    """(2): the product of the extents of the sliced bits whose inputs are all on a side."""
    share: Floats
    """(3): of how many of all slices each side is computed."""
    noted: Floats
    """The totals before a move."""
    scan: Floats
    """(4, N): for each edge, the cost below and above, and the products of what is sliced inside of these."""
    weighed: Floats
    """(3, K): for each bit the energy after it is sliced, and what that takes off the cost and the excess.

    Nothing is allocated in the kernels: that would count references in every move."""
    random: Words
    """(2): the generator."""


class Best(NamedTuple):
    """The cheapest tree within the limit so far."""

    left: Ints
    right: Ints
    parent: Ints
    unsliced: Words
    score: Floats
    """(1): log2 of the cost of all slices."""


class Heat(NamedTuple):
    """A round: `local` weighs the two products that a rotation touches, and scales temperatures."""

    local: float
    hot: float
    cold: float
    penalty: float
    """The weight at the start of log2(1 + what is over the limit); LAST_PENALTY at the end."""


def bits_of(sizes: Mapping[str, float]) -> dict[str, int]:
    """The bit of each index of extent 2 or more: those of one extent in words of their own."""
    bits: dict[str, int] = {}
    start = 0
    for extent in sorted(set(sizes.values()) - {1}):
        names = [name for name, size in sizes.items() if size == extent]
        bits.update({name: start + position for position, name in enumerate(names)})
        # Invariant: a segment begins on a word, and `make_problem` pads alike: bit j is in word j // 64.
        start += 64 * _padded(-(-len(names) // 64))
    return bits


def _padded(words: int) -> int:
    """Words of a segment: a vector holds VECTOR at most, and what is left over is slower than that."""
    return words if words <= VECTOR // 4 else -(-words // VECTOR) * VECTOR


def make_problem(
    inputs: Sequence[Sequence[str]],
    output: Sequence[str],
    sizes: Mapping[str, float],
    limit: float,
    price: Price,
    waist_limit: float = math.inf,
    shares: bool = True,
    slices_open: bool = False,
) -> Problem:
    """A network whose indices are each on two tensors or more, or on one and in the result.

    The smallest input is always small enough for the waist. With open indices, of which the tensors there may
    have many, `waist_limit` is none.
    """
    # Segment s is words segments[s] .. segments[s + 1] - 1, all of one extent: the size of legs is then the
    # product over s of extent_s^(bits set in s), which is a lookup in `powers` and one multiplication.
    bits = bits_of(sizes)
    names = {bit: name for name, bit in bits.items()}
    of_words: list[float] = []
    segments = [0]
    for extent in sorted(set(sizes.values()) - {1}):
        words = _padded(-(-sum(size == extent for size in sizes.values()) // 64))
        of_words += [extent] * words
        segments.append(len(of_words))
    if not of_words:
        of_words, segments = [1], [0, 1]
    count = 64 * len(of_words)
    extents = np.ones(count)
    # The inputs of each bit, in compressed rows (`leaf_starts`, `leaves`).
    holders: list[list[int]] = [[] for _ in range(count)]
    for name, bit in bits.items():
        extents[bit] = sizes[name]
    for tensor, term in enumerate(inputs):
        for name in term:
            if name in bits:
                holders[bits[name]].append(tensor)
    # One more than the bits of the longest segment: an exponent is never beyond the row.
    longest = 64 * max(b - a for a, b in pairwise(segments))
    powers = np.empty((len(segments) - 1, longest + 1))
    for row, word in enumerate(segments[:-1]):
        extent = of_words[word]
        powers[row] = [_power(extent, power) for power in range(longest + 1)]
    # A waist limit is raised to the smallest input, above which the root can always be put.
    smallest = float(min(min(math.prod(sizes[name] for name in term), LARGEST) for term in inputs))
    return Problem(
        segments=np.array(segments, np.uint64),
        powers=powers,
        extents=extents,
        leaf_starts=np.cumsum([0, *map(len, holders)], dtype=np.int64),
        leaves=np.array([tensor for holder in holders for tensor in holder], np.int64),
        sliceable=_words(
            set(names) - {bits[name] for name in output if name in bits and not slices_open}, count
        ),
        open=_words((bits[name] for name in output if name in bits), count),
        limit=float(limit),
        waist_limit=math.inf if any(name in bits for name in output) else max(waist_limit, smallest),
        price=price,
        shares=shares,
    )


def with_row_counts(problem: Problem, extent: float, row_counts: Sequence[float]) -> Problem:
    """The problem of a batch: a tensor with j indices of this extent has row_counts[j] rows for them."""
    powers = problem.powers.copy()
    for row, first in enumerate(problem.segments[:-1]):
        bits = slice(64 * int(first), 64 * int(problem.segments[row + 1]))
        if extent in problem.extents[bits]:
            # Invariant: the extent of a batch's open indices is that of the segment; beyond the last known
            # count of rows a tensor has all of them.
            powers[row] = row_counts[-1]
            powers[row, : len(row_counts)] = row_counts
    return problem._replace(powers=powers)


def _power(extent: float, power: int) -> float:
    """The size of so many indices of an extent."""
    return float(min(extent**power, LARGEST)) if power * math.log2(extent) < LARGEST_BITS else LARGEST


def new_state(problem: Problem, n: int, seed: int | tuple[int, ...]) -> AnnealState:
    """A state whose inputs have their legs; a tree is still to be given."""
    nodes, count = 2 * n - 1, problem.extents.size
    legs = np.zeros((nodes, count // 64), np.uint64)
    for bit in range(count):
        for tensor in problem.leaves[problem.leaf_starts[bit] : problem.leaf_starts[bit + 1]]:
            legs[tensor, bit // 64] |= np.uint64(1 << bit % 64)

    # Invariant: `sums`, `inside` and `share` are views of `totals`, so that noting and taking back the totals
    # does the same for them.
    totals = np.zeros(11)

    def ints(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    return AnnealState(
        left=ints(nodes), right=ints(nodes), parent=ints(nodes),
        unsliced=np.zeros(count // 64, np.uint64), legs=legs,
        size=np.ones(nodes), span=np.zeros(nodes), cost=np.zeros(nodes),
        sliced=ints(count), position=ints(count), counts=ints(5), stamps=ints(2, nodes), reached=ints(nodes),
        side=ints(nodes), totals=totals, sums=totals[2:5], inside=totals[5:7], share=totals[7:10],
        noted=np.zeros(11), scan=np.zeros((4, nodes)),
        weighed=np.zeros((3, count)), random=generator(seed),
    )  # fmt: skip


def tree_of(pairs: Pairs, n: int) -> tuple[Ints, Ints, Ints]:
    """Left and right children and parents, -1 for none, of a path of pairs that names tensors once (SSA)."""
    left, right, parent = (np.full(2 * n - 1, -1, np.int64) for _ in range(3))
    products = np.arange(n, n + len(pairs))
    children = np.array(pairs, np.int64).reshape(-1, 2)
    left[products], right[products] = children.T
    parent[children] = products[:, None]
    return left, right, parent


def pairs_of(best: Best) -> tuple[tuple[int, int], ...]:
    """The path of a tree, each pair after those that it needs."""
    n = (best.left.size + 1) // 2
    names: dict[int, int] = {v: v for v in range(n)}
    pairs: list[tuple[int, int]] = []
    # Depth first without recursion: trees may be deeper than Python's stack. A node is named once its
    # children are.
    todo = [int(v) for v in range(n, best.left.size) if best.parent[v] < 0]
    while todo:
        v = todo[-1]
        children = int(best.left[v]), int(best.right[v])
        missing = [child for child in children if child not in names]
        if missing:
            todo += missing
        else:
            names[v] = n + len(pairs)
            pairs.append((names[children[0]], names[children[1]]))
            todo.pop()
    return tuple(pairs)


def kept_words(problem: Problem, sliced: Iterable[int]) -> Words:
    """All bits but the sliced ones."""
    return ~_words(sliced, problem.extents.size)


def sliced_bits(best: Best) -> list[int]:
    """The sliced bits, in order."""
    words = best.unsliced
    return [bit for bit in range(64 * words.size) if not int(words[bit // 64]) >> bit % 64 & 1]


def _words(bits: Iterable[int], count: int) -> Words:
    words = [0] * (count // 64)
    for bit in bits:
        words[bit // 64] |= 1 << bit % 64
    return np.array(words, np.uint64)
