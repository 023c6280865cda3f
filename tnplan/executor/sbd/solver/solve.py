"""A whole solve: a Hamiltonian over a basis, its lowest states, their energies and what is measured in them.

Reads and writes no file but the checkpoint.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.checkpoint import CheckpointFile
from tnplan.common.checks import check_count, is_finite, is_number
from tnplan.common.errors import InputError
from tnplan.executor.device.cpu.parallel_rows import blas_threads
from tnplan.executor.device.protocols.stop_signal import StoppedRunError, asked, keeping
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.lists.qubit_hamiltonian import PauliTerms, QubitHamiltonian
from tnplan.executor.sbd.properties.measure import FermionHamiltonian
from tnplan.executor.sbd.properties.spin_square import SpinTarget
from tnplan.executor.sbd.sigma.product_hamiltonian import ProductHamiltonian
from tnplan.executor.sbd.sigma.sector_hamiltonian import SectorHamiltonian
from tnplan.executor.sbd.solver.davidson import Criteria, DavidsonStep, OnStep, Solution, Vectors, davidson
from tnplan.executor.sbd.solver.initial_guess import TEST_WIDTH, Hamiltonian, LowStates
from tnplan.executor.sbd.solver.lower_states import lowest_of_every_symmetry
from tnplan.executor.sbd.solver.vector_backend import Array as Vector
from tnplan.executor.sbd.solver.vector_backend import HostVectors, VectorBackend

# The vectors from which a solve goes on. Knows arrays and the identity of a job; not what vectors mean.
#
# Changelog of `tnplan.sbd.checkpoint`:
# 1 (2026-11-21): first version.
# 2 (2026-11-29): as `tnplan.common.checkpoint`. Version 1 is refused.


class SolveCheckpoint(CheckpointFile):
    """The vectors of a solve."""

    FORMAT, VERSION, ARRAYS = "tnplan.sbd.checkpoint", 2, ("vectors", "parities")
    JOB, OTHERS = "solve", "integrals, strings or options"

    def open(self, resume: bool, shape: tuple[int, ...], dtype: str = "float64") -> list[tuple[Array, int]]:
        """The vectors to go on from; none where no checkpoint stands. Refuses one of another solve."""

        def vectors_in(_: dict[str, Any], arrays: dict[str, Array]) -> list[tuple[Array, int]]:
            vectors, parities = arrays["vectors"], arrays["parities"]
            if vectors.shape[1:] != shape or vectors.dtype != dtype or not len(vectors):
                raise ValueError
            if not np.isfinite(vectors).all() or not set(parities.tolist()) <= {-1, 0, 1}:
                raise ValueError
            return [(vector, int(parity)) for vector, parity in zip(vectors, parities, strict=True)]

        return self.restored(resume, vectors_in) or []

    def write(self, vectors: Sequence[tuple[Array, int]]) -> None:
        """Replace the file. Vectors of an early iteration in fp32 are written in fp64."""
        states = np.array([vector for vector, _ in vectors])
        states = states.astype(np.result_type(states, np.float64), copy=False)
        self.replace({}, states, np.array([parity for _, parity in vectors]))


BLAS_ELEMENTS = 1 << 17
"""BLAS takes one thread where a rank holds fewer elements of a vector: more would wait for each other."""
SINGLE = "float32"
DOUBLE = "float64"
SINGLE_RESIDUAL = 1e-4
SINGLE_ERRORS = 10
"""fp32 is left at the residual norm SINGLE_RESIDUAL, or at so many rounding errors of the largest energy."""
SINGLE_ORTHOGONALITY = 1e-3
"""How far the Gram matrix of the subspace may be from 1 in fp32 (Frobenius norm)."""
PRESENT = 1e-3
"""The projection of a start on a parity counts from this share of its norm on."""
LARGEST_WEIGHT = 1000
"""Of a spin penalty, in Hartree."""
WEIGHTS = (0.05, 0.2, 0.8, 3.2)
"""Weights of a spin penalty that are tried where none is given: a large one spreads the spectrum, and with it
the solve over many more steps."""
RANKING_WEIGHT, RANKING_POWER = 0.2, 2
"""The penalty that compares lists of determinants where none is given."""
OTHER_SPIN = 0.5
"""A state with <S^2> farther than this from s (s + 1) is rather one of another spin: those differ by 2."""
SPIN_ERROR = 1e-6
"""How far a spin may be from a multiple of 1/2."""
SPREAD = 1e-3
"""The norm of the random part of states to start from."""
TEST_SEED = 1 << 20
"""Random numbers of tests have other seeds than those of starts, which count the roots."""
LENGTH_ERROR = 1e-2
"""How far from 1 the length of a checkpoint's vector may be."""


@dataclass(frozen=True)
class SpinPenalty:
    """A term weight (S^2 - s (s + 1))^power of the operator, which raises states of another total spin.

    A large penalty makes a solve longer, and in a space that S^2 leaves it raises the energy.

    Parameters
    ----------
    spin
        The total spin s that is wanted: 0, 0.5, 1, ...
    weight
        In Hartree. None: 0.05, and four times as much, up to 3.2, as long as a state of another spin comes
        out. One may come out even then: <S^2> in the report tells.
    power
        2, or 1, which is right for the least spin that the electrons can have. None: 1 for that spin, else 2.
    every_state
        Also look for states that have no part of the wanted spin; those are left out otherwise.

    Raises
    ------
    InputError
        For values that cannot be.

    Examples
    --------
    >>> tnplan.SpinPenalty(1.0)
    SpinPenalty(spin=1.0, weight=None, power=None, every_state=False)
    """

    spin: float
    weight: float | None = None
    power: int | None = None
    every_state: bool = False

    def __post_init__(self) -> None:
        if not (is_finite(self.spin) and self.spin >= 0):
            raise InputError("--spin", f"is {self.spin!r}", "give 0, 0.5, 1 and so on")
        if not (self.weight is None or (is_number(self.weight) and 0 < self.weight < LARGEST_WEIGHT)):
            raise InputError(
                "--spin-weight", f"is {self.weight!r}", f"give Hartrees above 0 and below {LARGEST_WEIGHT}"
            )
        if self.power not in (None, 1, 2):
            raise InputError("spin penalty: power", f"is {self.power!r}", "give 1 or 2")


def spin_targets(penalty: SpinPenalty, integrals: Integrals) -> list[SpinTarget]:
    """The spin that a penalty leaves alone, with the weights to try one after the other."""
    least = abs(integrals.n_alpha - integrals.n_beta) / 2
    power = penalty.power or (1 if penalty.spin < least + 1 / 2 else 2)
    weights = WEIGHTS if penalty.weight is None else (penalty.weight,)
    wanted = penalty.spin * (penalty.spin + 1)
    return [SpinTarget(wanted, weight, power, penalty.every_state) for weight in weights]


def ranking_target(penalty: SpinPenalty) -> SpinTarget:
    """The spin that a penalty leaves alone, as lists of determinants are compared."""
    wanted = penalty.spin * (penalty.spin + 1)
    weight, power = penalty.weight or RANKING_WEIGHT, penalty.power or RANKING_POWER
    return SpinTarget(wanted, weight, power, penalty.every_state)


def identity_of_solve(hamiltonian: Hamiltonian, terms: Integrals | PauliTerms, options: str) -> str:
    """What a checkpoint belongs to."""
    digest = hashlib.sha256(f"{terms.identity} {options}".encode())
    for array in hamiltonian.identity_arrays():
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def solve(
    hamiltonian: Hamiltonian, terms: Integrals | PauliTerms, n_roots: int = 1, *,
    criteria: Criteria | None = None, penalty: SpinPenalty | None = None, start: Sequence[Array] = (),
    mixed_precision: bool = False, checkpoint: Path | None = None, resume: bool = False,
    progress: Callable[[DavidsonStep], None] | None = None, backend: VectorBackend | None = None,
) -> Solution:  # fmt: skip
    """The lowest `n_roots` states, energies with the core's: in Hartree, or as the words' coefficients are.

    `terms` are those of the Hamiltonian. Energies are those of H also with a penalty; residuals are
    those of the operator that was diagonalized. `start` are states of the Hamiltonian's shape. With
    `mixed_precision`, early iterations over a product of strings are in fp32; the last ones, and their
    residuals, are in fp64. With `checkpoint` the solve can be killed and resumed. `backend` says where
    vectors lie (default: here); on several ranks the call is collective, `hamiltonian` has the rank's rows,
    and rank 0 alone has the states and needs `start`. Raises InputError where the space has fewer states.
    """
    # The order: a small exact solve for the start, iterations in fp32 if asked for, iterations in
    # fp64, tests in all symmetries. Energies and residuals always come from fp64.
    criteria = criteria or Criteria()
    check_roots(n_roots, int(np.prod(hamiltonian.shape)))
    vector_backend = backend or HostVectors(hamiltonian)
    targets: list[SpinTarget] | list[None] = [None]
    if penalty is not None:
        assert isinstance(terms, Integrals)
        assert not isinstance(hamiltonian, QubitHamiltonian)
        targets, n_states = _spin_targets(hamiltonian, terms, penalty, vector_backend)
        check_roots(n_roots, n_states, "states that the spin penalty keeps")
    # A checkpoint belongs to one problem: its identity has the Hamiltonian, roots and penalty in it.
    store = None
    if checkpoint is not None:
        store = SolveCheckpoint(checkpoint, identity_of_solve(hamiltonian, terms, f"{n_roots} {penalty}"))

    def on_step(step: DavidsonStep, continuation: Callable[[], Vectors]) -> None:
        stop = ""
        if store is not None:
            is_due, stop = vector_backend.on_first(lambda: (store.is_due(), asked()))
            if is_due or stop:
                _write_checkpoint(vector_backend, store, continuation())
        if progress is not None and vector_backend.first:
            energies = tuple(energy + terms.core for energy in step.energies)
            progress(replace(step, energies=energies))
        if stop:
            raise StoppedRunError(stop)

    checkpointing = nullcontext() if store is None else keeping()
    read = partial(_start_vectors, hamiltonian, start=start, store=store, resume=resume)
    search = _StateSearch(vector_backend, hamiltonian, n_roots, criteria, on_step, mixed_precision, read)
    with checkpointing, blas_threads(_threads_of_blas(hamiltonian)):
        solution = search.with_spin(targets)
        if store is not None and not solution.converged:
            _write_checkpoint(vector_backend, store, solution.vectors)
        energies = solution.energies
        if penalty is not None:
            energies = vector_backend.energies(solution.vectors)
        collected = [vector_backend.collect(state) for state in solution.states]
        states = [hamiltonian.whole(vector) for vector in collected if vector is not None]
    return replace(solution, states=states, energies=energies + terms.core)


ReadStart = Callable[[tuple[int, ...]], list[tuple[Array, int]]]


@dataclass(frozen=True)
class _StateSearch:
    """The search for the lowest states of one problem; `read` gives the vectors of parities to start from."""

    backend: VectorBackend
    hamiltonian: Hamiltonian
    n_roots: int
    criteria: Criteria
    on_step: OnStep
    mixed_precision: bool
    read: ReadStart

    def with_spin(self, targets: Sequence[SpinTarget | None]) -> Solution:
        """The states with the first penalty that brings none of another spin, or with the last."""
        solution = self.lowest(targets[0], self.read)
        for target in targets[1:]:
            assert target is not None
            away = self.backend.spin_squares(solution.vectors) - target.wanted
            if target.every_state or np.abs(away).max() < OTHER_SPIN:
                break
            # Neither the states of another spin nor a checkpoint of this search are a start.
            solution = self.lowest(target, lambda _: []).after(solution)
        return solution

    def lowest(self, target: SpinTarget | None, read: ReadStart) -> Solution:
        """The lowest states with the penalty of a target, from vectors that are read."""
        backend, n_roots = self.backend, self.n_roots
        backend.target = target
        # The start is a small problem: more threads of BLAS would only wait for each other.
        with blas_threads(1):
            low_states = backend.lowest(n_roots)
            vectors = _begin(backend, n_roots, low_states, lambda: read(backend.parities))
        if len(vectors) < n_roots:
            raise InputError(
                "roots", f"are {n_roots}, but only {len(vectors)} states have this spin and this symmetry",
                f"ask for at most {len(vectors)} roots",
            )  # fmt: skip
        early = 0
        if self.mixed_precision and isinstance(self.hamiltonian, ProductHamiltonian | SectorHamiltonian):
            vectors, early = self._in_single(self.hamiltonian, vectors)
        operator = backend.operator(DOUBLE)
        begin = [(backend.put(vector, DOUBLE), parity) for vector, parity in vectors]
        del vectors
        # All determinants were diagonalized: the lowest states of every symmetry are there already.
        if low_states.low.is_whole:
            solution = davidson(operator, n_roots, begin, self.criteria, self.on_step)
            return replace(solution, is_whole=True, early_multiplications=early, others=())
        solution = lowest_of_every_symmetry(
            operator, n_roots, begin, self.criteria, self.on_step,
            backend.parities, partial(_start_of_test, backend, low_states),
        )  # fmt: skip
        return replace(solution, early_multiplications=early)

    def _in_single(
        self, hamiltonian: ProductHamiltonian | SectorHamiltonian, vectors: Vectors
    ) -> tuple[Vectors, int]:
        """Better vectors by iterations in fp32, as far as rounding errors let them come; multiplications.

        That may be less far than is known beforehand: fp32 is also left where residuals stand still.
        """
        criteria, backend = self.criteria, self.backend
        largest = float(np.abs(hamiltonian.alpha.energies).max() + np.abs(hamiltonian.beta.energies).max())
        least = max(SINGLE_RESIDUAL, SINGLE_ERRORS * float(np.finfo(SINGLE).eps) * largest)
        loose = replace(
            criteria, residual=max(criteria.residual, least), energy=np.inf,
            orthogonality=SINGLE_ORTHOGONALITY,
        )  # fmt: skip
        operator = backend.operator(SINGLE)
        begin = [(backend.put(vector, SINGLE), parity) for vector, parity in vectors]
        solution = davidson(operator, self.n_roots, begin, loose, self.on_step, rounded=np.inf)
        better = [(backend.local(backend.collect(state)), parity) for state, parity in solution.vectors]
        return better, solution.multiplications


def _threads_of_blas(hamiltonian: Hamiltonian) -> int:
    """How many threads BLAS takes for vectors of this length."""
    first, last = hamiltonian.rows
    is_short = (last - first) * math.prod(hamiltonian.shape[1:]) < BLAS_ELEMENTS
    return 1 if is_short else hamiltonian.threads


def check_roots(n_roots: int, n_states: int, kind: str = "determinants") -> None:
    """Refuse to look for more states than a space has."""
    if check_count("roots", n_roots) > n_states:
        raise InputError(
            "roots", f"are {n_roots}, but the space has only {n_states} {kind}", f"ask for 1 to {n_states}"
        )


def _write_checkpoint(backend: VectorBackend, store: SolveCheckpoint, vectors: Vectors) -> None:
    """Write a checkpoint on rank 0."""
    gathered = [(backend.collect(vector), parity) for vector, parity in vectors]
    backend.on_first(
        lambda: store.write([(state, parity) for state, parity in gathered if state is not None])
    )


def _spin_targets(
    hamiltonian: FermionHamiltonian, integrals: Integrals, penalty: SpinPenalty, backend: VectorBackend
) -> tuple[list[SpinTarget], int]:
    """What to try for a penalty, and how many states have its spin; InputError where none can."""
    check_spin(penalty, integrals)
    targets = spin_targets(penalty, integrals)
    n_states = targets[0].n_states(backend.total(targets[0].count(hamiltonian)), hamiltonian.parities)
    if not n_states:
        raise InputError(
            "--spin", f"is {penalty.spin:g}, for which every determinant has too few open shells",
            "give strings that differ more, or another spin",
        )  # fmt: skip
    return targets, n_states


def check_spin(penalty: SpinPenalty, integrals: Integrals) -> None:
    """Refuse a total spin that the electrons cannot have, or where orbitals do not tell S^2."""
    if not integrals.has_common_orbitals:
        raise InputError(
            "--spin", f"needs orbitals that both spins share, and these are {integrals.kind}", "leave it out"
        )
    if penalty.every_state:
        return
    spin, n_alpha, n_beta, n = penalty.spin, integrals.n_alpha, integrals.n_beta, integrals.n_orbitals
    least, most = abs(n_alpha - n_beta), min(n_alpha + n_beta, 2 * n - n_alpha - n_beta)
    steps = spin - least / 2
    if not 0 <= 2 * steps <= most - least or abs(steps - round(steps)) > SPIN_ERROR:
        more = f" to {most / 2:g}, in steps of 1" if most > least else ""
        raise InputError(
            "--spin", f"is {spin:g} for {n_alpha} alpha and {n_beta} beta electrons in {n} orbitals",
            f"give {least / 2:g}{more}",
        )  # fmt: skip


def _start_of_test(backend: VectorBackend, low_states: LowStates, parity: int, number: int) -> Vector:
    """A random vector, which has a part of every symmetry and parity."""
    return backend.put(backend.random(low_states.low, TEST_SEED + number, TEST_WIDTH), DOUBLE)


def _start_vectors(
    hamiltonian: Hamiltonian, parities: tuple[int, ...], start: Sequence[Array],
    store: SolveCheckpoint | None, resume: bool,
) -> list[tuple[Array, int]]:  # fmt: skip
    """The whole vectors of a checkpoint, or those of the states `start`."""
    dtype = "complex128" if hamiltonian.is_complex else DOUBLE
    stored = store.open(resume, hamiltonian.shape, dtype) if store is not None else []
    if store is not None and not all(_is_state(hamiltonian, parities, *entry) for entry in stored):
        raise store.refusal("is damaged (a vector is not of length 1 in its parity)")
    return stored or _of_parities(hamiltonian, start, parities)


def _begin(
    backend: VectorBackend, n_roots: int, low_states: LowStates, read: Callable[[], list[tuple[Array, int]]]
) -> Vectors:
    """This rank's rows of the vectors to go on from: those that `read` gives rank 0, or the lowest states."""
    # Only rank 0's whole states are large; the others learn how many there are, and their parities.
    full_vectors: list[tuple[Array, int]] = []

    def parities_read() -> list[int]:
        full_vectors.extend(read())
        return [parity for _, parity in full_vectors]

    parities = backend.on_first(parities_read)
    states = [vector for vector, _ in full_vectors] if backend.first else [None] * len(parities)
    local = [(backend.local(state), parity) for state, parity in zip(states, parities, strict=True)]
    if len(local) >= n_roots and not low_states.low.is_whole:
        return local
    spread = 0.0 if low_states.low.is_whole else SPREAD
    lowest = [
        (backend.start(state, low_states.low, spread, seed), state.parity)
        for seed, state in enumerate(low_states.states[:n_roots])
    ]
    return lowest if low_states.low.is_whole else [*local, *lowest]


def _is_state(hamiltonian: Hamiltonian, parities: tuple[int, ...], vector: Array, parity: int) -> bool:
    """Whether a vector has length 1 and the parity, which is one of those given."""
    if parity not in parities:
        return False
    return abs(float(np.linalg.norm(hamiltonian.project(vector, parity))) - 1) < LENGTH_ERROR


def _of_parities(
    hamiltonian: Hamiltonian, start: Sequence[Array], parities: tuple[int, ...]
) -> list[tuple[Array, int]]:
    """Whole states split by parity, each projection orthogonal to those before it and normalized."""
    vectors: list[tuple[Array, int]] = []
    for whole in start:
        if whole.shape != (shape := hamiltonian.whole_shape):
            raise InputError("start", f"has a state of shape {whole.shape}", f"give states of shape {shape}")
        state = hamiltonian.vector(whole)
        if not np.isfinite(state).all() or not np.any(state):
            problem = "has a state with only zeros, NaN or infinity"
            raise InputError("start", problem, "give finite values, not all of them 0")
        scaled = state / np.abs(state).max()
        for parity in parities:
            vector = hamiltonian.project(scaled / np.linalg.norm(scaled), parity)
            for other, kind in vectors:
                if kind == parity:
                    vector = vector - np.vdot(other, vector) * other
            size = np.linalg.norm(vector)
            if size > PRESENT:
                vectors.append((vector / size, parity))
    return vectors
