"""A whole solve: a Hamiltonian over a basis, its lowest states, their energies and what is measured in them.

Puts the parts together; reads and writes no file but the checkpoint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.sbd.checkpoint import SolveCheckpoint
from executor.sbd.cost import dense_bytes, scratch_bytes, sparse_bytes
from executor.sbd.davidson import Criteria, Operator, Solution, Step, Vectors, davidson
from executor.sbd.determinants import DeterminantList, ListHamiltonian
from executor.sbd.integrals import Integrals, pair_count
from executor.sbd.product import ProductHamiltonian
from executor.sbd.spin import PenalizedHamiltonian, spin_square
from executor.sbd.start import given_start, lowest_of_list, lowest_of_product
from planner.errors import InputError

Array = NDArray[Any]
Hamiltonian = ProductHamiltonian | ListHamiltonian

TEMPORARIES = 6
TEMPORARIES_A_ROOT = 4
"""Vectors that a step and its checkpoint need beside those of the subspace."""


@dataclass(frozen=True)
class SpinPenalty:
    """States whose S^2 is not s (s + 1) are raised by weight (S^2 - s (s + 1))^2, in Hartree."""

    spin: float
    weight: float = 0.2


def vectors_bytes(n_elements: int, n_roots: int, criteria: Criteria) -> int:
    """The memory of a solve's vectors."""
    return (
        8
        * n_elements
        * (2 * max(criteria.vectors, 4 * n_roots + 2) + TEMPORARIES + TEMPORARIES_A_ROOT * n_roots)
    )


def fit_memory(n_elements: int, n_roots: int, criteria: Criteria, memory_bytes: float) -> Criteria:
    """The criteria with as many vectors as half of the memory holds; InputError where too few fit."""
    least = 4 * n_roots + 2
    while vectors_bytes(n_elements, n_roots, criteria) > memory_bytes / 2 and criteria.vectors > least:
        criteria = replace(criteria, vectors=criteria.vectors - 1)
    needed = vectors_bytes(n_elements, n_roots, criteria)
    if needed > memory_bytes:
        raise InputError(
            "memory", f"holds {memory_bytes:.4g} bytes of the {needed:.4g} that the vectors of a solve need",
            "give fewer strings, fewer roots or more memory",
        )  # fmt: skip
    return criteria


def predicted_bytes(hamiltonian: ProductHamiltonian, n_roots: int, criteria: Criteria) -> int:
    """The arrays of a solve, in bytes: vectors, matrices within a spin, and every thread's scratch."""
    total = vectors_bytes(int(np.prod(hamiltonian.shape)), n_roots, criteria)
    spins = [hamiltonian.alpha] if hamiltonian.symmetric else [hamiltonian.alpha, hamiltonian.beta]
    for spin in spins:
        n, links = len(spin.strings), int(spin.singles.linked.sum())
        total += sparse_bytes(links) if hasattr(spin.matrix, "column") else dense_bytes(n)
        total += 20 * len(spin.singles.other)
    pairs = len(hamiltonian.beta.matching.pairs)
    most, n = hamiltonian.alpha.singles.most, hamiltonian.integrals.n_orbitals
    total += hamiltonian.threads * scratch_bytes(hamiltonian.shape[1], most, pairs, n)
    return total + 8 * pair_count(n) * (pair_count(n) + n + 2 * pairs)


def identity_of_solve(hamiltonian: Hamiltonian, integrals: Integrals, options: str) -> str:
    """What a checkpoint belongs to."""
    digest = hashlib.sha256(f"{integrals.identity} {options}".encode())
    if isinstance(hamiltonian, ProductHamiltonian):
        parts = [hamiltonian.alpha.strings.words, hamiltonian.beta.strings.words]
    else:
        basis = hamiltonian.basis
        parts = [basis.alpha_strings.words, basis.beta_strings.words, basis.alpha, basis.beta]
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def solve(
    hamiltonian: Hamiltonian, integrals: Integrals, n_roots: int = 1, *, criteria: Criteria | None = None,
    penalty: SpinPenalty | None = None, start: Sequence[Array] = (),
    checkpoint: Path | None = None, resume: bool = False, progress: Callable[[Step], None] | None = None,
) -> Solution:  # fmt: skip
    """The lowest `n_roots` states, energies in Hartree with the core's.

    Energies are those of H also with a penalty; residuals are those of the operator that was diagonalized.
    `start` are states of the Hamiltonian's shape. With `checkpoint` the solve can be killed and resumed.
    Raises InputError where the space has fewer states.
    """
    criteria = criteria or Criteria()
    n_states = int(np.prod(hamiltonian.shape))
    if not 1 <= n_roots <= n_states:
        raise InputError(
            "roots", f"are {n_roots} in a space of {n_states} determinants", f"ask for 1 to {n_states}"
        )
    operator: Operator = hamiltonian
    penalized = None
    if penalty is not None:
        if not isinstance(hamiltonian, ProductHamiltonian):
            raise InputError(
                "spin penalty", "needs a product of half-strings", "leave it out for a list of determinants"
            )
        _check_spin(penalty.spin, integrals)
        penalized = PenalizedHamiltonian(hamiltonian, penalty.spin * (penalty.spin + 1), penalty.weight)
        operator = penalized
        if not (penalized.open_shells() >= penalized.least_open).any():
            raise InputError(
                "spin", f"is {penalty.spin:g}, for which every determinant has too few open shells",
                "give strings that differ more, or another spin",
            )  # fmt: skip
    kept: Vectors = []
    store = None
    if checkpoint is not None:
        store = SolveCheckpoint(checkpoint, identity_of_solve(hamiltonian, integrals, f"{n_roots} {penalty}"))
        kept = store.open(resume, hamiltonian.shape)

    def on_step(step: Step, vectors: Callable[[], Vectors]) -> None:
        if store is not None and store.due():
            store.write(vectors())
        if progress is not None:
            energies = tuple(energy + integrals.core for energy in step.energies)
            progress(replace(step, energies=energies))

    begin = list(kept) or _begin(hamiltonian, integrals, n_roots, start, penalized)
    found = davidson(operator, n_roots, begin, criteria, on_step)
    if store is not None and not found.converged:
        store.write(list(zip(found.states, found.parities, strict=True)))
    return _with_energies(hamiltonian, integrals, found, penalty is not None)


def _check_spin(spin: float, integrals: Integrals) -> None:
    n_alpha, n_beta = integrals.n_alpha, integrals.n_beta
    if (round(2 * spin) - n_alpha - n_beta) % 2 or 2 * spin < abs(n_alpha - n_beta):
        raise InputError(
            "spin", f"is {spin:g} for {n_alpha} alpha and {n_beta} beta electrons",
            f"give {abs(n_alpha - n_beta) / 2:g} or an integer more",
        )  # fmt: skip


def _begin(
    hamiltonian: Hamiltonian, integrals: Integrals, n_roots: int, start: Sequence[Array],
    penalized: PenalizedHamiltonian | None,
) -> Vectors:  # fmt: skip
    for state in start:
        if state.shape != hamiltonian.shape or not np.isfinite(state).all() or not np.any(state):
            raise InputError(
                "start", f"has the shape {state.shape}, zeros alone or values that are not finite",
                f"give states of the shape {hamiltonian.shape}",
            )  # fmt: skip
    if isinstance(hamiltonian, ListHamiltonian):
        given: Vectors = [(state, 0) for state in start]
        own: Vectors = lowest_of_list(hamiltonian, integrals, n_roots)
    else:
        given = given_start(penalized or hamiltonian, list(start))
        own = lowest_of_product(hamiltonian, n_roots, penalized)
    return [*given, *own] if len(given) < n_roots else given


def _with_energies(
    hamiltonian: Hamiltonian, integrals: Integrals, found: Solution, penalized: bool
) -> Solution:
    """The solution with energies of H, the core's added."""
    if not penalized:
        return replace(found, energies=found.energies + integrals.core)
    pairs = zip(found.states, found.parities, strict=True)
    own = np.array([np.vdot(state, hamiltonian.apply(state, parity)) for state, parity in pairs])
    return replace(found, energies=own + integrals.core)


def measured_spin(hamiltonian: Hamiltonian, integrals: Integrals, state: Array) -> float:
    """The expectation value of S^2."""
    whole, embedded = as_product(hamiltonian, integrals, state)
    return spin_square(whole, embedded)


def as_product(
    hamiltonian: Hamiltonian, integrals: Integrals, state: Array
) -> tuple[ProductHamiltonian, Array]:
    """A product Hamiltonian whose space holds the state, and the state in it."""
    if isinstance(hamiltonian, ProductHamiltonian):
        return hamiltonian, state
    basis: DeterminantList = hamiltonian.basis
    whole = ProductHamiltonian(
        integrals, basis.alpha_strings, basis.beta_strings, threads=hamiltonian.threads, dense=False
    )
    return whole, basis.embed(state)
