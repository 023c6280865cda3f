"""Ranks by least cuts against the ranks of random tensors."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from tnplan.planner.search.bond_ranks import BondRanks


def random_network(random: np.random.Generator, count: int) -> list[dict[int, int]]:
    """A connected network with bonds of 2 and 3 and some open indices, whose neighbours are negative."""
    bonds: list[dict[int, int]] = [{} for _ in range(count)]
    edges = [(k, int(random.integers(k))) for k in range(1, count)]
    more = [random.choice(count, 2, replace=False).tolist() for _ in range(count)]
    for a, b in [*edges, *more]:
        bonds[a][b] = bonds[b][a] = int(random.integers(2, 4))
    for number in random.permutation(count)[:3].tolist():
        bonds[number][-1 - number] = int(random.integers(2, 5))
    return bonds


def contracted(bonds: list[dict[int, int]], numbers: set[int], random: np.random.Generator) -> np.ndarray:
    """The product of random tensors with these numbers; its axes are the bonds to others, by both ends."""
    names: dict[tuple[int, int], int] = {}
    operands: list[object] = []
    for number in sorted(numbers):
        ends = [(min(number, end), max(number, end)) for end in bonds[number]]
        labels = [names.setdefault(end, len(names)) for end in ends]
        operands += [random.standard_normal([*bonds[number].values()]), labels]
    outer = [label for ends, label in sorted(names.items()) if not numbers.issuperset(ends)]
    return np.einsum(*operands, outer, optimize=True)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("seed", range(40))
def test_the_rank_of_a_bond_is_that_of_random_tensors(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(4, 9))
    bonds = random_network(random, count)
    left = set(random.permutation(count)[: int(random.integers(1, count - 1))].tolist())
    groups = left, set(range(count)) - left
    ranks, names = BondRanks(bonds), []
    for group in groups:
        first, *others = sorted(group)
        for other in others:
            ranks.contract(first, other, first)
        names.append(first)
    least = []
    for group in groups:
        tensor = contracted(bonds, group, random)
        ends = sorted((min(n, end), max(n, end)) for n in group for end in bonds[n] if end not in group)
        is_open = [min(pair) < 0 for pair in ends]
        rows = [axis for axis, is_row in enumerate(is_open) if is_row]
        columns = [axis for axis, is_row in enumerate(is_open) if not is_row]
        matrix = tensor.transpose(rows + columns).reshape(prod(tensor.shape[axis] for axis in rows), -1)
        least.append(np.linalg.matrix_rank(matrix))
    assert ranks.of_bond(names[0], names[1], dict.fromkeys(names, ())) == min(least)


def test_a_bond_that_was_cut_lets_no_more_through() -> None:
    """A chain 0 - 1 - 2 - 3 with open ends: an earlier cut limits the bond of (0, 1) and (2, 3)."""
    bonds = [{-1: 16, 1: 8}, {0: 8, 2: 8}, {1: 8, 3: 8}, {2: 8, -2: 16}]
    ranks = BondRanks(bonds)
    assert ranks.of_bond(1, 2, {1: (), 2: ()}) == 8
    ranks.cut(0, 1, 3)
    ranks.contract(0, 1, 4)
    ranks.contract(2, 3, 5)
    assert ranks.of_bond(4, 5, {4: (), 5: ()}) == 3
