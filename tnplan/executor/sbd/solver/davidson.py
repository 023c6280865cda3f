"""Davidson's method for the lowest states of a Hermitian operator that is only applied, never stored.

Knows vectors and a small projected matrix; not what the operator means. Vectors are arrays of any shape that
NumPy's functions take, or the rows of such an array that one of several ranks has; then every rank does the
same, with sums over all of them. Each vector has a parity; the operator does not mix parities, and no sum
here does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tnplan.common.checks import check_count, is_number
from tnplan.common.errors import InputError

Array = Any
Small = NDArray[Any]

EPSILON = float(np.finfo(np.float64).eps)
"""The rounding error of fp64."""
DAMPING = 0.02
"""Denominators of the preconditioner are at least this far from zero."""
DEPENDENT = 1e-4
"""Less of its norm outside the lowest states is rounding, in a vector of the step before (fp32 too)."""
VANISHED = 1e-12
"""What keeps less than this of its norm outside the subspace adds nothing."""
ROUNDING_ERRORS = 100
STALLED_STEPS = 10
"""A solve ends where residuals are within so many rounding errors of the largest energy, and the largest has
not been halved for so many steps."""
ROUNDED = ROUNDING_ERRORS * EPSILON
"""Those rounding errors, as a share of the energy."""
LEAST_VECTORS = 4
"""Vectors of a subspace, at least."""
ORTHOGONALIZATIONS = 2
"""Times that a vector is made orthogonal to others: twice is enough."""
ELEMENTS_AT_ONCE = 1 << 18
"""Elements of all vectors that are rotated together."""
WIDENED = 1 << 22
"""Elements of fp32 vectors that are made fp64 together, at most, for their inner products."""
OTHERS = 2
"""States above the roots that a solve hands on: tests need not find these again."""


class Operator(Protocol):
    """A Hermitian matrix over arrays of one shape, which mixes no vectors of different parity."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a vector."""

    def apply(self, x: Array, parity: int, out: Array | None = None) -> Array:
        """The product with a vector of that parity, in `out` if it is given, which is returned."""

    def diagonal(self) -> Array:
        """The diagonal elements, of the operator's shape."""

    def project(self, x: Array, parity: int) -> Array:
        """The part of a vector that has the parity."""

    def total(self, values: Small) -> Small:
        """The sum over the ranks of small arrays, the same bits on all of them."""

    def same(self, values: Small) -> Small:
        """Rank 0's values, so that all ranks go on with the same bits."""


@dataclass(frozen=True)
class Criteria:
    """When a diagonalization ends.

    Parameters
    ----------
    residual
        The largest residual norm of a root, in Hartree.
    energy
        The largest change of an energy from one step to the next, in Hartree.
    steps
        The largest number of steps.
    vectors
        The largest number of vectors of the subspace, 4 or more.
    orthogonality
        How far the Gram matrix of the subspace may be from 1 at the end (Frobenius norm).

    Raises
    ------
    InputError
        For values that cannot be.

    Examples
    --------
    >>> tnplan.Criteria(residual=1e-5).steps
    100
    """

    residual: float = 1e-6
    energy: float = 1e-9
    steps: int = 100
    vectors: int = 16
    orthogonality: float = 1e-10

    def __post_init__(self) -> None:
        for name in ("residual", "energy", "orthogonality"):
            value = getattr(self, name)
            if not (is_number(value) and (value > 0 or (value == 0 and name == "energy"))):
                raise InputError(f"criteria: {name}", f"is {value!r}", "give a positive number")
        check_count("criteria: steps", self.steps)
        check_count("criteria: vectors", self.vectors, LEAST_VECTORS)


@dataclass(frozen=True)
class DavidsonStep:
    """One step: energies and residual norms of the roots, and seconds a multiplication in it.

    `is_test` marks a step of a test for lower states; its energy is the lowest beside the roots that it has
    come to. With `is_share`, the share that a lower state can still have of the test's random vector stands
    in place of a residual norm. Without it a lower state has come out.
    """

    number: int
    energies: tuple[float, ...]
    residuals: tuple[float, ...]
    multiplications: int
    multiplication_s: float
    is_test: bool = False
    is_share: bool = False


@dataclass(frozen=True)
class Solution:
    """The lowest states found, by rising energy, and how well they are known.

    `converged`: residuals are small, and no test has found a state that is lower by `lower_by` or more.
    `lower_chance` estimates how often such a state is missed. `orthogonality` is the Frobenius
    norm of the subspace's Gram matrix minus 1. Besides the multiplications in fp64 there are those in fp32
    that came before, `early_multiplications`, and those of the tests. `is_whole`: all of a small space was
    diagonalized, and needs no test. `others` are a few states above, with their parities, not well known.
    """

    energies: Small
    states: list[Array]
    parities: list[int]
    residuals: Small
    converged: bool
    steps: int
    multiplications: int
    orthogonality: float
    early_multiplications: int = 0
    test_multiplications: int = 0
    is_whole: bool = False
    others: Sequence[tuple[Array, int]] = ()
    lower_by: float = 0.0
    lower_chance: float = 0.0

    @property
    def vectors(self) -> list[tuple[Array, int]]:
        """The states with their parities."""
        return list(zip(self.states, self.parities, strict=True))

    def after(self, other: Solution) -> Solution:
        """The same with the steps and multiplications of another solve before it counted too."""
        counts = ("steps", "multiplications", "early_multiplications", "test_multiplications")
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in counts})

    def __repr__(self) -> str:
        converged = "converged" if self.converged else "not converged"
        return f"Solution({len(self.energies)} states, {converged} in {self.steps} steps)"


Vectors = Sequence[tuple[Array, int]]
OnStep = Callable[[DavidsonStep, Callable[[], Vectors]], None]


def davidson(
    operator: Operator, n_roots: int, start: Vectors | Subspace, criteria: Criteria,
    on_step: OnStep | None = None, *, rounded: float = ROUNDED, diagonal: Array | None = None,
) -> Solution:  # fmt: skip
    """The lowest `n_roots` states.

    `start` holds at least as many independent (vector, parity), or is a subspace. `on_step` gets every step,
    and a function that gives the vectors from which to go on. Raises ValueError where the start spans too
    little. A solve that does not converge returns its last states: those after `criteria.steps` steps, or
    before, where rounding errors keep residuals from becoming smaller: then these stand still and are at most
    the share `rounded` of the largest energy. `diagonal` is the operator's, where that was made before.
    """
    # Davidson (J. Comput. Phys. 17, 87 (1975)) with a block of roots: project H on the subspace, solve the
    # small eigenproblem (Rayleigh-Ritz), append a preconditioned residual for each root, and restart with the
    # lowest Ritz vectors and those of the step before (Murray, Racine and Davidson, J. Comput. Phys. 103, 382
    # (1992)), which keeps nearly the convergence of an unrestarted subspace. It holds a restart's 2 n_roots
    # lowest states, n_roots of the step before, and new corrections.
    if isinstance(start, Subspace):
        space = start
    else:
        space = Subspace(operator, start[0][0], max(criteria.vectors, 4 * n_roots + 2, len(start)))
        for vector, parity in start:
            space.add(vector, parity)
    diagonal = operator.diagonal() if diagonal is None else diagonal
    if len(space) < n_roots:
        raise ValueError(f"{len(space)} independent vectors to start from, for {n_roots} roots")
    before: Small | None = None
    number = halved = 0
    least = np.inf
    while True:
        number += 1
        # The only products with the operator: one for each vector appended.
        n_products, time_s = space.multiply()
        roots = space.roots()[:n_roots]
        energies = np.array([root.energy for root in roots])
        corrections, residuals = _residuals(space, roots, diagonal, criteria.residual)
        if on_step is not None:
            step = DavidsonStep(
                number, tuple(map(float, energies)), tuple(map(float, residuals)), space.multiplications,
                time_s / max(n_products, 1),
            )  # fmt: skip
            on_step(step, lambda roots=roots: space.continuation(roots))  # type: ignore[misc]
        # Residuals bound the distance to some eigenvalue; whether it is the lowest one is up to the
        # caller's test.
        is_small = bool((residuals <= criteria.residual).all())
        converged = is_small and (before is None or np.abs(energies - before).max() <= criteria.energy)
        before = energies
        # Below ~ epsilon |E| residuals are rounding errors: without this end, such a solve would
        # use all its steps.
        if residuals.max() < least / 2:
            least, halved = float(residuals.max()), number
        stalled = number - halved >= STALLED_STEPS and residuals.max() <= rounded * np.abs(energies).max()
        ends = number >= criteria.steps or bool(stalled)
        # The Gram matrix costs as much as a step; it is looked at where it decides something.
        orthogonality = space.orthogonality() if is_small or ends else 0.0
        is_skewed = orthogonality > criteria.orthogonality
        is_last = ends or (converged and not is_skewed)
        # Rounding has spoiled the basis, and with it the residuals: begin again from the Ritz vectors.
        if not is_last and is_skewed:
            space.refresh(roots)
            continue
        if not is_last:
            if len(space) + len(corrections) > space.most:
                roots = space.restart(n_roots, roots)
            space.remember(roots)
            # No correction brings anything new: the subspace is exhausted (a small space), and
            # nothing more can come.
            added = [space.add(vector, parity) for vector, parity in corrections]
            is_last = not any(added)
        if is_last:
            states = [space.vector(root) for root in roots]
            others = space.roots()[n_roots : n_roots + OTHERS]
            return Solution(
                energies, states, [root.parity for root in roots], residuals,
                is_small and not is_skewed, number, space.multiplications, orthogonality,
                others=[(space.vector(root), root.parity) for root in others],
            )  # fmt: skip


@dataclass(frozen=True)
class _Root:
    """A state of the subspace: coefficients [vector], zero on the vectors of other parity."""

    energy: float
    parity: int
    coefficients: Small


class Subspace:
    """Orthonormal vectors, their images under the operator, and the projected matrix.

    Vectors are rows of a matrix allocated once, each with all elements of an array of the operator's shape.
    """

    def __init__(self, operator: Operator, like: Array, max_vectors: int) -> None:
        self._operator = operator
        self._vectors = np.empty_like(like, shape=(max_vectors, like.size))
        self._images = np.empty_like(self._vectors)
        self.parities: list[int] = []
        self._n_images = 0
        self._projected = np.zeros((0, 0))
        self._previous: list[_Root] = []
        self.multiplications = 0

    def __len__(self) -> int:
        return len(self.parities)

    def add(self, vector: Array, parity: int) -> bool:
        """Append what is new of a vector, normalized; False where nothing is."""
        norm = self.norm(vector)
        if not norm > 0:
            return False
        new = vector.ravel() / norm
        # Classical Gram-Schmidt, twice: "twice is enough" (Parlett, The Symmetric Eigenvalue
        # Problem, section 6-9). Unlike the modified form it takes all inner products in one product
        # of matrices, and one sum over ranks.
        for _ in range(ORTHOGONALIZATIONS):
            vectors = self._vectors[: len(self)]
            overlaps = self._products(vectors, new)
            # Vectors of different parity are orthogonal exactly; rounding must not mix them.
            overlaps[np.array(self.parities) != parity] = 0.0
            new = self._project(new - _like(overlaps, new) @ vectors, parity)
            norm = self.norm(new)
            if norm <= VANISHED:
                return False
            new = new / norm
        self._vectors[len(self)] = new
        self.parities.append(parity)
        return True

    def _products(self, rows: Array, vector: Array) -> Small:
        """The inner products of rows, or of one vector, with a vector: the rows' conjugates count."""
        kind = np.result_type(rows.dtype, np.float64)
        products = rows @ conjugate(vector) if rows.dtype == kind else _wide_products(rows, vector, kind)
        return np.atleast_1d(self._operator.total(on_host(products).conj()))

    def product(self, first: Array, second: Array) -> Any:
        """The inner product of two vectors."""
        return self._products(first.ravel(), second.ravel())[0].item()

    def norm(self, vector: Array) -> float:
        """The Euclidean norm of a vector."""
        flat = vector.ravel()
        return float(np.sqrt(self._products(flat, flat)[0].real))

    def _project(self, flat: Array, parity: int) -> Array:
        return self._operator.project(flat.reshape(self._operator.shape), parity).ravel()

    def multiply(self) -> tuple[int, float]:
        """Apply the operator to the vectors that are new; their number, and the seconds that it took.

        The seconds hold the products with all vectors, which wait for a device that is still at work.
        """
        begin = perf_counter()
        # Only the new columns of the projected matrix are computed; Hermitian symmetry gives the rows.
        first, size = self._n_images, len(self)
        for number in range(first, size):
            vector = self._vectors[number].reshape(self._operator.shape)
            image = self._images[number].reshape(self._operator.shape)
            self._operator.apply(vector, self.parities[number], image)
        matrix = np.zeros((size, size), np.result_type(self._vectors.dtype, np.float64))
        matrix[:first, :first] = self._projected
        for number in range(first, size):
            products = self._products(self._vectors[:size], self._images[number])
            products[np.array(self.parities) != self.parities[number]] = 0.0
            matrix[: number + 1, number] = products[: number + 1]
            matrix[number, : number + 1] = products[: number + 1].conj()
        self._projected = matrix
        self._n_images = size
        self.multiplications += size - first
        return size - first, perf_counter() - begin

    def roots(self) -> list[_Root]:
        """All states of the subspace, by rising energy."""
        ritz_states = []
        # One small eigenproblem for each parity, so that Ritz vectors have a parity to the last bit.
        for parity in sorted(set(self.parities), reverse=True):
            members = np.flatnonzero(np.array(self.parities) == parity)
            solved = np.linalg.eigh(self._projected[np.ix_(members, members)])
            # Ranks may have different LAPACKs: rank 0's bits are those of all.
            energies, columns = np.split(self._operator.same(np.vstack(solved)), [1])
            for energy, column in zip(energies[0].real, columns.T, strict=True):
                coefficients = np.zeros(len(self), columns.dtype)
                coefficients[members] = column
                ritz_states.append(_Root(float(energy), parity, coefficients))
        return sorted(ritz_states, key=lambda root: root.energy)

    @property
    def most(self) -> int:
        """Vectors at most."""
        return len(self._vectors)

    def first(self) -> Array:
        """A copy of the first vector, all elements in a row."""
        return self._vectors[0].copy()

    def solved(self, flat: Array, energy: float) -> tuple[_Root, list[_Root]]:
        """The solution x of (H - energy) x = a vector in a subspace of one parity, and what to keep of it.

        Not normalized, and at that energy, below which no state of the subspace lies. To keep: the part
        outside the states that a restart keeps anyway, beside which it can be small.
        """
        overlaps = self._products(self._vectors[: len(self)], flat)
        roots = self.roots()
        parts = [
            np.vdot(root.coefficients, overlaps) / (root.energy - energy) * root.coefficients
            for root in roots
        ]
        rest = sum(parts[self._n_lowest(1) :], np.zeros_like(overlaps))
        norm = float(np.linalg.norm(rest))
        kept = [_Root(energy, self.parities[0], rest / norm)] if norm > 0 else []
        return _Root(energy, self.parities[0], sum(parts, np.zeros_like(overlaps))), kept

    def _n_lowest(self, n_roots: int) -> int:
        """How many of the lowest states a restart keeps."""
        max_vectors = len(self._vectors)
        return max(2 * n_roots, min(max_vectors // 2, max_vectors - 3 * n_roots))

    def vector(self, root: _Root) -> Array:
        """The array of a state of the subspace."""
        return self._combined(root, self._vectors)

    def _combined(self, root: _Root, rows: Array) -> Array:
        total = _like(root.coefficients, rows) @ rows[: len(root.coefficients)]
        return self._operator.project(total.reshape(self._operator.shape), root.parity)

    def residual(self, root: _Root) -> Array:
        """The operator times a root's vector, minus its energy times the vector."""
        return self._combined(root, self._images) - root.energy * self.vector(root)

    def continuation(self, roots: Sequence[_Root]) -> Vectors:
        """The roots' vectors, and those of the step before: what a solve goes on from."""
        return [(self.vector(root), root.parity) for root in (*roots, *self._previous)]

    def _padded(self, root: _Root) -> _Root:
        missing = len(self) - len(root.coefficients)
        return _Root(root.energy, root.parity, np.pad(root.coefficients, (0, missing)))

    def remember(self, roots: Sequence[_Root]) -> None:
        """Keep these roots as those of the step before."""
        self._previous = list(roots)

    def restart(self, n_roots: int, roots: Sequence[_Root], dependent: float = DEPENDENT) -> list[_Root]:
        """Shrink to the lowest states and those of the step before, without a multiplication.

        Those of the step before are dropped that keep less than `dependent` of their norm outside the others.
        Returns `roots` over the new vectors.
        """
        # Everything happens in the coefficients of the subspace: the new vectors and their images
        # are the same combinations of the old ones, so no multiplication is needed.
        # States that lie close come apart slowly, and hardly where all but the roots are lost at each restart
        # (thick restart: Stathopoulos, Saad and Wu 1998).
        states = [*self.roots()[: self._n_lowest(n_roots)], *roots, *map(self._padded, self._previous)]
        basis: list[_Root] = []
        for root in states:
            column = root.coefficients
            for _ in range(ORTHOGONALIZATIONS):
                for other in basis:
                    column = column - np.vdot(other.coefficients, column) * other.coefficients
            norm = float(np.linalg.norm(column))
            if norm > dependent:
                basis.append(_Root(root.energy, root.parity, column / norm))
        rows = np.array([root.coefficients for root in basis])
        for vectors in (self._vectors, self._images):
            self._rotate(rows, vectors, [root.parity for root in basis])
        self.parities = [root.parity for root in basis]
        self._n_images = len(basis)
        # Invariant: images are those of the vectors after the same rotation; H stays projected on
        # the new basis.
        self._projected = rows.conj() @ self._projected @ rows.T
        return [_Root(root.energy, root.parity, rows.conj() @ root.coefficients) for root in roots]

    def _rotate(self, rows: Small, vectors: Array, parities: Sequence[int]) -> None:
        """vectors[:len(rows)] = rows times vectors, in place, a range of elements at a time.

        A range of all vectors before and after takes no more memory than one vector: CuPy copies the former.
        """
        factors = _like(rows, vectors)
        at_once = max(1, min(ELEMENTS_AT_ONCE, vectors.shape[1] // sum(rows.shape)))
        for first in range(0, vectors.shape[1], at_once):
            span = slice(first, first + at_once)
            vectors[: len(rows), span] = factors @ vectors[: rows.shape[1], span]
        for number, parity in enumerate(parities):
            vectors[number] = self._project(vectors[number], parity)

    def refresh(self, roots: Sequence[_Root]) -> None:
        """Begin again from these roots alone, made orthonormal."""
        states = [(self.vector(root), root.parity) for root in roots]
        self.parities, self._previous, self._n_images = [], [], 0
        self._projected = np.zeros((0, 0))
        for vector, parity in states:
            self.add(vector, parity)

    def orthogonality(self) -> float:
        """The Frobenius norm of the Gram matrix minus 1, over vectors of one parity."""
        vectors = self._vectors[: len(self)]
        kinds = np.array(self.parities)
        gram = np.array([self._products(vectors, vector) for vector in vectors]) * (kinds[:, None] == kinds)
        return float(np.linalg.norm(gram - np.eye(len(self))))


def _residuals(
    space: Subspace, roots: Sequence[_Root], diagonal: Array, threshold: float
) -> tuple[list[tuple[Array, int]], Small]:
    """Corrections of the roots that are not known well, or else of all; all residual norms.

    They are those of Olsen, Jorgensen and Simons (1990): the residual over the diagonal's gaps, less so much
    of the state over the gaps that nothing is along the state. Without that, a diagonal operator would give
    the state itself.
    """
    residual_of = [(root, space.residual(root)) for root in roots]
    norms = np.array([space.norm(residual) for _, residual in residual_of])
    # Roots that are known well take no more corrections, as long as others need some.
    needs_correction = norms > threshold if (norms > threshold).any() else norms >= 0
    corrections = []
    for (root, residual), needed in zip(residual_of, needs_correction, strict=True):
        if needed:
            # Davidson's preconditioner (D - E)^-1, D the diagonal of H; denominators keep their sign and are
            # DAMPING Hartree at least, since near-degenerate determinants would blow up the correction.
            gaps = diagonal - root.energy
            damped = np.where(gaps < 0, np.minimum(gaps, -DAMPING), np.maximum(gaps, DAMPING))
            residual /= damped
            state = space.vector(root)
            scaled = state / damped
            # t = -(D - E)^-1 r + e (D - E)^-1 x, with e such that <x|t> = 0 (Olsen's projection: it solves
            # the Jacobi-Davidson equation with D in place of H). The sign of t plays no part.
            overlap, norm = space.product(state, residual), space.product(state, scaled)
            if abs(norm) > VANISHED:
                scaled *= overlap / norm
                residual -= scaled
            corrections.append((residual, root.parity))
    return corrections, norms


def _wide_products(rows: Array, vector: Array, kind: Any) -> Array:
    """The same products in a wider type, a range of elements at a time."""
    # A sum of n numbers in fp32 loses what is small beside it: over 2e8 elements 2e-5 of it. In
    # x H x that is the same share of the whole energy, and residuals stand still at that distance.
    # One array of always the same size, of an fp64 vector at most, for which fp32 iterations leave room: of
    # many sizes CuPy's pool would keep one each.
    n_rows = len(rows) if rows.ndim > 1 else 1
    wide = np.empty_like(vector, kind, shape=max(n_rows + 1, min(WIDENED, len(vector))))
    at_once = len(wide) // (n_rows + 1)
    total = 0
    for first in range(0, max(1, len(vector)), at_once):
        span = slice(first, min(first + at_once, len(vector)))
        n = span.stop - first
        factors, factor = wide[: n_rows * n].reshape(*rows.shape[:-1], n), wide[n_rows * n :][:n]
        factors[...], factor[...] = rows[..., span], conjugate(vector[span])
        total = total + factors @ factor
    return total


def on_host(array: Array) -> Small:
    """A small array in the host's memory."""
    return np.asarray(array.get() if hasattr(array, "get") else array)


def conjugate(array: Array) -> Array:
    """The complex conjugate; a real array itself."""
    return array.conj() if array.dtype.kind == "c" else array


def _like(values: Small, array: Array) -> Array:
    """Small values where `array` lies."""
    return np.asarray(values, array.dtype, like=array)
