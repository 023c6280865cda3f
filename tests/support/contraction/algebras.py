"""Random values of algebras, and contractions over them by sums over all values of all indices, in Python's
integers."""

from __future__ import annotations

from itertools import count
from math import inf, prod
from random import Random
from typing import Any

import numpy as np

import tnplan
from tests.support.networks import eager_profile, random_path, random_ssa_path

PRIMES = [7, 8388593, 8388587]
"""A small one, in whose range sums wrap often, and the largest below 2^23."""
MAX_MIN = tnplan.Algebra("max-min", "float64", -np.inf, np.inf, np.maximum, np.minimum)
Case = tuple[tnplan.ContractionPath, int, list[np.ndarray]]
ALGEBRAS = ["residues", "max-plus", "min-plus", "boolean", "optima", "max-min"]


def make(name: str, prime: int) -> Any:
    made = {"residues": tnplan.Residues(prime), "optima": tnplan.Optima(prime), "max-min": MAX_MIN}
    return made.get(name, name)


def values(name: str, shape: tuple[int, ...], prime: int, random: np.random.Generator) -> np.ndarray:
    """Random values; those of tropical algebras are few integers, so that many are equal, and some zeros."""
    weights = random.integers(-2, 3, shape).astype(float)
    counts = random.integers(0, prime, shape)
    gone = random.random(shape) < 0.2
    match name:
        case "residues":
            return counts
        case "boolean":
            return random.random(shape) < 0.4
        case "optima":
            return np.where(gone, -np.inf + 0j, weights + 1j * counts)
    return np.where(gone, np.inf if name == "min-plus" else -np.inf, weights)


def problem(
    name: str, seed: int, least_slices: int = 1
) -> tuple[Any, int, tnplan.ContractionPath, list[np.ndarray], np.ndarray]:
    """An algebra, its prime, a random path with hyper-indices, traces, open and sliced indices, arrays, and
    what the contraction is."""
    prime = PRIMES[seed % len(PRIMES)]
    paths = (random_path(1000 * ALGEBRAS.index(name) + seed + more, 4000) for more in count(0, 100))
    path = next(path for path in paths if path.n_slices >= least_slices)
    network, random = path.network, np.random.default_rng([seed, ALGEBRAS.index(name)])
    arrays = [values(name, network.shape(k), prime, random) for k in range(len(network.inputs))]
    return make(name, prime), prime, path, arrays, reference(network, arrays, name, prime)


def reference(network: tnplan.Network, arrays: list[np.ndarray], name: str, prime: int) -> np.ndarray:
    """All products of all values of the indices, then their sums: over one axis of one array."""
    order = [*network.output, *(index for index in network.size_dict if index not in network.output)]
    sizes = [network.size_dict[index] for index in order]
    grid = dict(zip(order, np.indices(sizes), strict=True))
    columns = [
        np.broadcast_to(array[tuple(grid[index] for index in term)], sizes).reshape(network.output_size, -1)
        for array, term in zip(arrays, network.inputs, strict=True)
    ]
    if name == "residues":
        return prod([column.astype(object) for column in columns]).sum(axis=1) % prime
    if name == "boolean":
        return np.logical_and.reduce(columns).any(axis=1)
    if name == "max-min":
        return np.minimum.reduce(columns).max(axis=1)
    if name != "optima":
        total = np.add.reduce(columns)
        return total.min(axis=1) if name == "min-plus" else total.max(axis=1)
    total = np.add.reduce([column.real for column in columns])
    counts = prod([column.imag.astype(np.int64).astype(object) for column in columns])
    best = total.max(axis=1)
    return pairs(best, np.where(total == best[:, None], counts, 0).sum(axis=1) % prime)


def pairs(best: np.ndarray, counts: np.ndarray) -> np.ndarray:
    result = np.empty(best.shape, complex)
    result.real, result.imag = best, counts.astype(float)
    return result


def check(found: Any, network: tnplan.Network, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(
        np.asarray(found).reshape(-1), expected.astype(np.asarray(found).dtype), err_msg=repr(network)
    )


def transfer(seed: int, name: str, prime: int) -> Case:
    """A random network in which one tensor has the axes of the output, its path, and values: indices of both
    may be the same, on other tensors too, or sliced."""
    chance = Random(seed)
    n_axes, n_others = chance.randint(0, 3), chance.randint(1, 3)
    extents = [chance.choice((1, 2, 3, 4)) for _ in range(n_axes)]
    before = [f"i{axis}" for axis in range(n_axes)]
    after = [index if chance.random() < 0.2 else f"o{axis}" for axis, index in enumerate(before)]
    sizes = dict(zip((*before, *after), (*extents, *extents), strict=True))
    if chance.random() < 0.5:
        sizes["s"] = 3
    terms: list[list[str]] = [[] for _ in range(n_others)]
    for index in sizes:
        for term in chance.sample(terms, chance.randint(1, min(2, n_others))):
            term.append(index)
    number = chance.randint(0, n_others)
    terms.insert(number, before)
    order = list(range(n_axes))
    chance.shuffle(order)
    terms[number] = [before[axis] for axis in order]
    network = tnplan.Network(tuple(map(tuple, terms)), tuple(after[axis] for axis in order), sizes)
    summed = [index for index in sizes if index not in network.output]
    sliced = tuple(index for index in summed if chance.random() < 0.3)
    path = tnplan.ContractionPath(network, random_ssa_path(chance, n_others + 1), sliced, "float64")
    random_values = np.random.default_rng(seed)
    return path, number, [values(name, network.shape(k), prime, random_values) for k in range(n_others + 1)]


def by_rows(case: Case, rows: int, name: str, prime: int) -> np.ndarray:
    path, number, arrays = case
    for _ in range(rows):
        found = reference(path.network, arrays, name, prime).reshape(path.network.shape(number))
        arrays = [found if each == number else array for each, array in enumerate(arrays)]
    return arrays[number]


def compiled(case: Case, algebra: Any, ranks: int, groups: int = 1) -> tnplan.CompiledContraction:
    """Over so many groups of ranks, for which small tensors are distributed."""
    options = {"hardware": eager_profile(), "memory": inf, "threshold": 1, "algebra": algebra}
    schedule = tnplan.plan(case[0], devices=groups * ranks, ranks_per_group=ranks, **options)
    return tnplan.compile(schedule, devices=groups * ranks, algebra=algebra, threads=1)
