"""What tests of growing lists share: a brute force over all determinants, and workers on ranks of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.engines.sbd import Determinant, every_string, fcidump_text
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.sbd.basis.determinants import DeterminantList
from tnplan.executor.sbd.basis.integrals import Integrals, from_arrays
from tnplan.executor.sbd.selected_ci.shards import Workers

Array = NDArray[Any]
PLENTY = 1e9
"""Bytes that no test needs."""


def every_determinant(n: int, counts: tuple[int, int]) -> list[Determinant]:
    """All determinants of so many electrons."""
    return list(product(every_string(n, counts[0]), every_string(n, counts[1])))


def outside_terms(matrix: Array, inside: Sequence[int], weights: Array) -> Array:
    """H_ai weights[i] [determinant, i] of a matrix over all determinants, zero for those inside."""
    terms = matrix[:, inside] * weights
    terms[list(inside)] = 0
    return terms


def keys_of(determinants: Sequence[Determinant]) -> Array:
    """The keys of determinants of at most 64 orbitals."""
    return np.array(determinants, np.uint64).reshape(-1, 2)


def strings_of(basis: DeterminantList) -> list[Determinant]:
    """A list of at most 64 orbitals as integers."""
    alpha, beta = (strings.words[:, 0].tolist() for strings in (basis.alpha_strings, basis.beta_strings))
    return [(alpha[a], beta[b]) for a, b in zip(basis.alpha, basis.beta, strict=True)]


def on_workers(
    work: Callable[[Workers], Any], ranks: int = 1, threads: int = 1, memory_bytes: float = PLENTY
) -> list[Any]:
    """What work gives on each rank."""
    return run_ranks(ranks, lambda group: work(Workers(group, threads, memory_bytes)))


def chain(n: int) -> Integrals:
    """A chain of n sites with as many electrons: hops to neighbours, and repulsion that falls with distance.

    Over the orbitals of the hops, which are even and odd under the chain's mirror in turn. One determinant
    has most weight, as in a molecule.
    """
    hop = -np.eye(n, k=1) - np.eye(n, k=-1)
    _, orbitals = np.linalg.eigh(hop)
    places = np.arange(n)
    repulsion = 1 / (1 + np.abs(places[:, None] - places))
    two = np.einsum("ip,iq,ij,jr,js->pqrs", orbitals, orbitals, repulsion, orbitals, orbitals, optimize=True)
    one = orbitals.T @ (hop - np.diag(repulsion.sum(1) - 1)) @ orbitals
    # Elements that the mirror forbids are zero, not rounding errors.
    one, two = (np.where(np.abs(values) < 1e-12, 0, values) for values in (one, two))
    return from_arrays(one, two, n // 2, n // 2, 0.25)


def labelled_text(integrals: Integrals, wanted: int) -> str:
    """An FCIDUMP of a chain with its orbitals' labels, for states of label `wanted`."""
    n, electrons = integrals.n_orbitals, integrals.n_alpha + integrals.n_beta
    labels = ",".join(str(1 + p % 2) for p in range(n))
    header = f"&FCI NORB={n},NELEC={electrons},MS2=0,ORBSYM={labels},ISYM={wanted},&END"
    return fcidump_text(integrals, header)
