"""Networks and states of the joint search, and what its trees cost, counted slowly."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import numpy as np

from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.search import cotengra_search
from tnplan.planner.search.annealer.anneal_kernel import RESTORE
from tnplan.planner.search.annealer.anneal_state import (
    AnnealState,
    Best,
    Price,
    Problem,
    kept_words,
    make_problem,
    new_state,
    tree_of,
)  # fmt: skip
from tnplan.planner.search.annealer.annealed import act
from tnplan.planner.search.search_options import SearchOptions


def search_path(
    network: Network, dtype: str, *, report: cotengra_search.Report | None = None, **options: Any
) -> ContractionPath:
    """A search with options by name."""
    return cotengra_search.search_path(network, dtype, SearchOptions(**options), report)


def odd_network(seed: int, tensors: int = 14, indices: int = 22) -> Network:
    """Indices of extent 1, 2, 3 on two to four tensors, the first two of them also open."""
    draw = random.Random(seed)
    terms: list[list[str]] = [[] for _ in range(tensors)]
    for number in range(indices):
        for tensor in draw.sample(range(tensors), min(tensors, draw.choice((2, 2, 2, 3, 4)))):
            terms[tensor].append(f"i{number}")
    for tensor in range(tensors):
        if not terms[tensor]:
            terms[tensor].append("i5")
    sizes = {f"i{number}": draw.choice((1, 2, 2, 3)) for number in range(indices)}
    return Network(tuple(map(tuple, terms)), ("i0", "i1"), sizes)


CHANGES = ("more", "less", "extents", "fixed")


def changed(network: Network, how: str, seed: int) -> Network:
    """A tensor more on three others, one less, other extents, or indices that are fixed."""
    draw = random.Random(f"{how} {seed}")
    terms, sizes = [[*term] for term in network.inputs], dict(network.size_dict)
    closed = sorted({index for term in terms for index in term} - {*network.output})
    if how == "more":
        terms[draw.randrange(len(terms))].append("new")
        sizes["new"] = 2
        terms.insert(draw.randrange(len(terms) + 1), ["new", *draw.sample(closed, 2)])
    elif how == "less":
        del terms[draw.randrange(len(terms))]
    elif how == "extents":
        sizes.update({index: draw.choice((1, 2, 3, 4)) for index in draw.sample(closed, 5)})
    else:
        fixed = {*draw.sample(closed, 3)}
        terms = [[index for index in term if index not in fixed] for term in terms]
    there = {index for term in terms for index in term}
    output = tuple(index for index in network.output if index in there)
    return Network(tuple(map(tuple, terms)), output, {index: sizes[index] for index in there})


def chain_path(network: Network, seed: int) -> tuple[tuple[int, int], ...]:
    """Random pairs."""
    draw = random.Random(seed)
    left = list(range(len(network.inputs)))
    pairs: list[tuple[int, int]] = []
    while len(left) > 1:
        a, b = (left.pop(draw.randrange(len(left))) for _ in range(2))
        left.append(len(network.inputs) + len(pairs))
        pairs.append((a, b))
    return tuple(pairs)


def prepared(
    network: Network, limit: float, price: float | Price, seed: int, waist_limit: float = math.inf,
    shares: bool = True, slices_open: bool = False,
) -> tuple[Problem, AnnealState, Best]:  # fmt: skip
    """A state of a random tree; a number is what an element read or written costs."""
    problem = make_problem(
        network.inputs, network.output, network.size_dict, limit, _price(price), waist_limit,
        shares=shares, slices_open=slices_open,
    )  # fmt: skip
    n = len(network.inputs)
    state = new_state(problem, n, seed)
    best = Best(
        *tree_of(chain_path(network, seed), n), kept_words(problem, ()), np.full(1, math.inf)
    )  # fmt: skip
    act(RESTORE, problem, state, best)
    return problem, state, best


def _price(price: float | Price) -> Price:
    return price if isinstance(price, Price) else Price(moved=price)


def recount(
    network: Network, tree: Any, sliced: set[str], price: float | Price, shares: bool = True
) -> tuple[float, float]:
    """The cost of all slices and a slice's largest tensor, counted index by index from the children alone.

    Each side of the root is computed for all values of the sliced indices that are not summed on the other
    side, the last step for those of the side that has the fewer; or all of it for all values.
    """
    products, written, moved = _price(price)
    n = len(network.inputs)
    root = int(np.argmin(tree.parent))
    sizes = {**network.size_dict, **dict.fromkeys(sliced, 1)}

    def tensors(v: int) -> set[int]:
        return {v} if v < n else tensors(tree.left[v]) | tensors(tree.right[v])

    def legs(v: int) -> set[str]:
        inside = tensors(v)
        others = {index for t in range(n) if t not in inside for index in network.inputs[t]}
        return {i for t in inside for i in network.inputs[t]} & (others | set(network.output))

    def size(indices: set[str]) -> float:
        return math.prod(sizes[index] for index in indices)

    def step(v: int) -> float:
        a, b = legs(int(tree.left[v])), legs(int(tree.right[v]))
        result = size(legs(v))
        return max(products * size(a | b) + written * result, moved * (size(a) + size(b) + result))

    def side(v: int) -> float:
        return 0.0 if v < n else step(v) + side(int(tree.left[v])) + side(int(tree.right[v]))

    tops = [int(tree.left[root]), int(tree.right[root])]
    held = [{index for tensor in tensors(v) for index in network.inputs[tensor]} for v in tops]
    of_sides = held if shares else [sliced, sliced]
    times = [math.prod(network.size_dict[index] for index in sliced & indices) for indices in of_sides]
    total = step(root) * min(times) + sum(side(v) * many for v, many in zip(tops, times, strict=True))
    return total, max(size(legs(v)) for v in range(2 * n - 1))


def cost_of(path: ContractionPath, price: float | Price) -> float:
    """The cost of all slices of a path of pairs, its last step the waist."""
    left, right, parent = tree_of(path.ssa_path, len(path.network.inputs))
    tree = SimpleNamespace(left=left, right=right, parent=parent)
    return recount(path.network, tree, set(path.sliced_inds), price)[0]
