"""Networks of mixed extents with open and hyper-indices: a square lattice and a random regular graph.

Structure only; the tensors are random ones (`tnplan.planner.networks.tensors.random_tensors`).
"""

from __future__ import annotations

import numpy as np

from tnplan.common.checks import check_count
from tnplan.common.errors import InputError
from tnplan.planner.networks.network import Network

HYPER_DEGREE = 3
LARGEST_DEGREE = 6
"""Pairing stubs takes some exp((d^2 - 1) / 4) attempts for a simple graph of degree d: 6000 here."""


def peps_network(
    rows: int, columns: int, seed: int, *, extents: tuple[int, int] = (3, 5), n_open: int = 3,
    n_hyper: int = 2,
) -> Network:  # fmt: skip
    """A square lattice of `rows` x `columns` tensors, the bonds' extents drawn from `extents` (inclusive).

    `n_open` open indices of extent 2 to 4 sit on tensors drawn at random, and `n_hyper` indices of extent 2
    to 4 on the tensors at three corners of a plaquette drawn at random.
    """
    _check({"--rows": rows, "--columns": columns}, extents, n_open, n_hyper, seed)
    generator = np.random.default_rng(seed)
    bonds = []
    for row in range(rows):
        for column in range(columns):
            site = row * columns + column
            if column + 1 < columns:
                bonds.append((site, site + 1))
            if row + 1 < rows:
                bonds.append((site, site + columns))
    n_plaquettes = (rows - 1) * (columns - 1)
    if n_hyper > n_plaquettes:
        problem = f"is {n_hyper}, but the lattice has {n_plaquettes} plaquettes"
        raise InputError("--hyper", problem, f"give at most {n_plaquettes}, one per plaquette")
    plaquettes = generator.choice(n_plaquettes, size=n_hyper, replace=False)
    corners = [divmod(int(plaquette), columns - 1) for plaquette in plaquettes]
    hypers: list[tuple[int, ...]] = [
        (r * columns + c, r * columns + c + 1, (r + 1) * columns + c) for r, c in corners
    ]
    return _network(rows * columns, bonds, hypers, extents, n_open, generator)


def regular_network(
    n_tensors: int, seed: int, *, degree: int = 3, extents: tuple[int, int] = (2, 5), n_open: int = 3,
    n_hyper: int = 3,
) -> Network:  # fmt: skip
    """A random regular graph of `n_tensors` tensors with `degree` bonds each, extents drawn from `extents`.

    `n_open` open indices of extent 2 to 4 and `n_hyper` indices on three tensors are put on tensors drawn at
    random.
    """
    _check({"--tensors": n_tensors, "--degree": degree}, extents, n_open, n_hyper, seed)
    if degree >= n_tensors or n_tensors * degree % 2:
        raise InputError(
            "--degree",
            f"{degree} on {n_tensors} tensors makes no graph",
            "make degree times tensors even, and the degree less than the tensors",
        )
    if degree > LARGEST_DEGREE:
        raise InputError("--degree", f"is {degree}", f"give a degree up to {LARGEST_DEGREE}")
    generator = np.random.default_rng(seed)
    bonds = regular_graph(n_tensors, degree, generator)
    hypers: list[tuple[int, ...]] = [
        tuple(map(int, generator.choice(n_tensors, size=HYPER_DEGREE, replace=False))) for _ in range(n_hyper)
    ]
    return _network(n_tensors, bonds, hypers, extents, n_open, generator)


def _check(sizes: dict[str, int], extents: tuple[int, int], n_open: int, n_hyper: int, seed: int) -> None:
    for place, value in sizes.items():
        check_count(place, value, 2)
    if not 1 <= extents[0] <= extents[1]:
        raise InputError("--extents", f"are {extents}", "give the least and the greatest, from 1 up")
    for place, value in (("--open", n_open), ("--hyper", n_hyper), ("--seed", seed)):
        check_count(place, value, 0)


def _network(
    n_tensors: int, bonds: list[tuple[int, int]], hypers: list[tuple[int, ...]], extents: tuple[int, int],
    n_open: int, generator: np.random.Generator,
) -> Network:  # fmt: skip
    inputs: list[list[str]] = [[] for _ in range(n_tensors)]
    sizes: dict[str, int] = {}
    for number, bond in enumerate(bonds):
        for tensor in bond:
            inputs[tensor].append(f"b{number}")
        sizes[f"b{number}"] = int(generator.integers(extents[0], extents[1] + 1))
    for number, tensors in enumerate(hypers):
        for tensor in tensors:
            inputs[tensor].append(f"h{number}")
        sizes[f"h{number}"] = int(generator.integers(2, 5))
    for number in range(n_open):
        inputs[int(generator.integers(n_tensors))].append(f"o{number}")
        sizes[f"o{number}"] = int(generator.integers(2, 5))
    return Network(tuple(map(tuple, inputs)), tuple(f"o{number}" for number in range(n_open)), sizes)


def regular_graph(n_tensors: int, degree: int, generator: np.random.Generator) -> list[tuple[int, int]]:
    """Pair up stubs at random until the graph has no loop and no double bond; the degree is not large."""
    while True:
        stubs = generator.permutation(np.repeat(np.arange(n_tensors), degree))
        bonds = {(int(min(a, b)), int(max(a, b))) for a, b in stubs.reshape(-1, 2) if a != b}
        if len(bonds) == n_tensors * degree // 2:
            return sorted(bonds)
