"""Vectors to start a solve from: the lowest states among the determinants of least energy, or those given.

Knows operators' diagonals and lists of determinants; not how a solve goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tnplan.common.array_file import ArrayHeader, open_archive
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.sbd.basis.determinants import from_product
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.lists.listed_rows import ListedRows
from tnplan.executor.sbd.lists.qubit_hamiltonian import QubitHamiltonian
from tnplan.executor.sbd.properties.spin_square import SpinTarget, dense_matrix
from tnplan.executor.sbd.sigma.product_hamiltonian import EVEN, NEITHER, ODD, ProductHamiltonian
from tnplan.executor.sbd.sigma.sector_hamiltonian import SectorHamiltonian

DETERMINANTS = 300
"""So many determinants of least energy are diagonalized exactly."""
WHOLE = 1000
"""Spaces of up to so many determinants are diagonalized exactly as a whole."""
NEAR = 1e-8
"""Determinants within this of each other in energy, in Hartree, are taken together."""
ELEMENTS_OF_SPANS = 1 << 14, 1 << 18
"""Elements of random vectors that a thread makes at once, at least and at most."""
WIDTH, TEST_WIDTH = 0.1, 1.0
"""Random vectors fall off where energies are above the least one by this share of their mean distance. Those
of tests do later: states of other determinants than the lowest then have nearly as large a share of them."""


StartHamiltonian = ProductHamiltonian | SectorHamiltonian | ListHamiltonian | QubitHamiltonian


class LowDeterminants(NamedTuple):
    """Determinants of least energy, of one rank or of all: flat numbers, which rise, and energies.

    Energies are infinite for determinants in which the wanted spin has no part. `n_allowed` counts all
    determinants that states may have, and `total` is the sum of their energies.
    """

    numbers: Array
    energies: Array
    n_allowed: int
    total: float

    @property
    def is_whole(self) -> bool:
        """Whether these are all determinants that states may have."""
        return len(self.numbers) == self.n_allowed


@dataclass(frozen=True)
class SparseState:
    """A state that has these values at flat numbers of the space, and is zero elsewhere."""

    numbers: Array
    values: Array
    parity: int

    def add_to(self, rows: Array, first: int) -> None:
        """Add the state to rows of it, of which `first` is the first."""
        width = prod(rows.shape[1:])
        inside = (self.numbers >= first * width) & (self.numbers < (first + len(rows)) * width)
        rows.reshape(-1)[self.numbers[inside] - first * width] += self.values[inside]


@dataclass(frozen=True)
class LowStates:
    """The lowest states among the determinants of least energy, by rising energy.

    There are as many of each parity as roots, where so many are. Where `low` is the whole space, they are its
    states.
    """

    states: list[SparseState]
    low: LowDeterminants


def lowest_determinants(
    hamiltonian: StartHamiltonian,
    n_roots: int,
    target: SpinTarget | None = None,
) -> LowDeterminants:
    """The determinants of least energy in the local rows, all of them where they are few."""
    energies, allowed = hamiltonian.diagonal().ravel(), hamiltonian.sector
    inside = slice(None) if allowed is None else allowed.ravel()
    energies = energies[inside]
    total = float(energies.sum())
    fits_spin = _fits_spin(hamiltonian, target)
    if fits_spin is not None:
        energies[~fits_spin.ravel()[inside]] = np.inf
    chosen = lowest(energies, max(count_at_start(n_roots), WHOLE))
    numbers = chosen if allowed is None else np.flatnonzero(allowed)[chosen]
    above = hamiltonian.rows[0] * prod(hamiltonian.shape[1:])
    return LowDeterminants(numbers + above, energies[chosen], len(energies), total)


def _fits_spin(hamiltonian: StartHamiltonian, target: SpinTarget | None) -> Array | None:
    """Which local determinants have enough open shells for the wanted spin; None: all."""
    if target is None or not target.least_open or isinstance(hamiltonian, QubitHamiltonian):
        return None
    return np.asarray(hamiltonian.open_shells() >= target.least_open)


def lowest_of_all(of_ranks: Sequence[LowDeterminants], n_roots: int) -> LowDeterminants:
    """The determinants of least energy of all ranks: the whole space where it is small."""
    numbers, energies = (np.concatenate(values) for values in list(zip(*of_ranks, strict=True))[:2])
    n_allowed, total = sum(low.n_allowed for low in of_ranks), sum(low.total for low in of_ranks)
    if n_allowed > WHOLE:
        chosen = lowest(energies, count_at_start(n_roots))
        chosen = chosen[np.isfinite(energies[chosen])]
        numbers, energies = numbers[chosen], energies[chosen]
    return LowDeterminants(numbers, energies, n_allowed, total)


def count_at_start(n_roots: int) -> int:
    """How many determinants of least energy are diagonalized in a space that is not small."""
    return max(DETERMINANTS, 2 * n_roots)


def lowest_states(
    hamiltonian: StartHamiltonian, n_roots: int, low: LowDeterminants,
    target: SpinTarget | None = None,
) -> LowStates:  # fmt: skip
    """The lowest states among chosen determinants, and those of the other parity with them."""
    parities = hamiltonian.parities if target is None else target.parities(hamiltonian.parities)
    # Determinants of a sector by their numbers in whole states, which tell rows and columns.
    blocks = hamiltonian.blocks if isinstance(hamiltonian, SectorHamiltonian) else None
    numbers = low.numbers if blocks is None else blocks.in_whole(low.numbers)
    width = prod((hamiltonian.shape if blocks is None else blocks.whole_shape)[1:])
    # H among the few determinants is exact and dense.
    among_low, chosen = _among(hamiltonian, numbers, width)
    matrix = dense_matrix(among_low, target)
    states = []
    # There are no more states of a spin than determinants that have a part of it.
    fitting = chosen[~np.isin(chosen, numbers[np.isinf(low.energies)])]
    for parity in parities:
        # Columns of a frame are (|i j> +- |j i>) / sqrt 2: states of one parity under exchange of the spins.
        frame, count = _Frame(chosen, width, parity), len(_Frame(fitting, width, parity).rows)
        if not count:
            continue
        energies, columns = np.linalg.eigh(frame.of_rows(frame.of_rows(matrix).T).T)
        vectors = frame.spread(columns[:, : min(count, n_roots)].T)
        elements = chosen if blocks is None else blocks.in_vector(chosen)
        for energy, vector in zip(energies, vectors, strict=False):
            states.append((float(energy), SparseState(elements, vector, parity)))
    states.sort(key=lambda entry: entry[0])
    return LowStates([state for _, state in states], low)


def random_rows(
    hamiltonian: StartHamiltonian, low: LowDeterminants,
    target: SpinTarget | None, seed: int, width: float = WIDTH,
) -> Array:  # fmt: skip
    """The local rows of a random vector, which has a part of every symmetry.

    Each element comes from its flat number and the seed alone, and falls off with the square of the
    determinant's energy. It is zero where the determinant is not allowed, or has no part of the wanted spin.
    """
    # Each element depends on its number and the seed alone, so that any number of ranks makes the
    # same vector. It falls off as 1 / (1 + (E - E0) / width)^2, which favours low energies and
    # leaves no symmetry out.
    diagonal, (first, last) = hamiltonian.diagonal(), hamiltonian.rows
    least, n_columns = float(low.energies.min()), prod(hamiltonian.shape[1:])
    broad = width * (low.total / low.n_allowed - least)
    kinds = 2 if hamiltonian.is_complex else 1
    values = np.empty((*diagonal.shape, kinds))

    def fill(begin: int, end: int) -> None:
        span, rows = ((first + begin) * n_columns, (first + end) * n_columns), slice(begin, end)
        for kind in range(kinds):
            values[rows, ..., kind] = _uniform(*span, kinds * seed + kind).reshape(diagonal[rows].shape)
        if broad > 0:
            values[rows] /= (np.maximum(diagonal[rows] - least, 0.0) / broad + 1.0)[..., None] ** 2

    least_rows, most_rows = (max(1, elements // n_columns) for elements in ELEMENTS_OF_SPANS)
    over_rows(last - first, hamiltonian.threads, fill, most_rows, least_rows)
    values = values[..., 0] if kinds == 1 else values.view(np.complex128)[..., 0]
    if hamiltonian.sector is not None:
        values *= hamiltonian.sector
    fits_spin = _fits_spin(hamiltonian, target)
    if fits_spin is not None:
        values *= fits_spin
    return values


def _among(hamiltonian: StartHamiltonian, chosen: Array, width: int) -> tuple[ListedRows, Array]:
    """H among chosen determinants, and those of the other parity with them; the numbers of all.

    Of products of strings they are flat numbers of rows of `width` elements.
    """
    if isinstance(hamiltonian, QubitHamiltonian):
        return hamiltonian.among(chosen), chosen
    if isinstance(hamiltonian, ListHamiltonian):
        # With the strings of the whole list, the few would wait for the links between all of these.
        basis = replace(hamiltonian.basis.take(chosen), given=np.arange(len(chosen)))
    else:
        if hamiltonian.symmetric:
            row, column = np.divmod(chosen, width)
            chosen = np.unique(np.concatenate([chosen, column * width + row]))
        basis = from_product(hamiltonian.alpha.strings, hamiltonian.beta.strings, chosen)
    among_chosen = ListHamiltonian(hamiltonian.integrals, basis, threads=hamiltonian.threads)
    return among_chosen, chosen[basis.given]


def _uniform(first: int, last: int, seed: int) -> Array:
    """Random numbers from -1 to 1 for elements first .. last-1, each from its number and the seed alone.

    They are those of SplitMix64 (Steele, Lea and Flood 2014).
    """
    with np.errstate(over="ignore"):
        mixed = np.arange(first, last, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed += np.uint64(seed) * np.uint64(0xD1B54A32D192ED03) + np.uint64(1)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ mixed >> np.uint64(shift)) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1.0


def lowest(diagonal: Array, count: int) -> Array:
    """The numbers of the `count` smallest values, and of those just as small as the last, in rising order."""
    if count >= len(diagonal):
        return np.arange(len(diagonal))
    last = np.partition(diagonal, count - 1)[count - 1]
    near = np.flatnonzero(diagonal <= last + NEAR)
    if len(near) > 2 * count:
        near = np.argsort(diagonal, kind="stable")[:count]
    return np.sort(near)


class _Frame:
    """Orthonormal columns over the chosen determinants that span those of a parity.

    A column is a determinant, or two with the factors `factors`; `rows` and `others` are their numbers.
    """

    def __init__(self, chosen: Array, n_columns: int, parity: int) -> None:
        # Invariant: with a parity, `chosen` is closed under exchange of row and column; see `_among`.
        self._count, self.rows = len(chosen), np.arange(len(chosen))
        row, column = np.divmod(chosen, n_columns)
        if parity != NEITHER:
            self.rows = np.flatnonzero(row >= column if parity == EVEN else row > column)
        single = (row == column)[self.rows] | (parity == NEITHER)
        order = np.argsort(chosen, kind="stable")
        flipped = np.where(single, chosen[self.rows], (column * n_columns + row)[self.rows])
        self.others = order[np.searchsorted(chosen[order], flipped)]
        sign = -1 if parity == ODD else 1
        self.factors = np.where(single, 1.0, np.sqrt(0.5)), np.where(single, 0.0, sign * np.sqrt(0.5))

    def of_rows(self, matrix: Array) -> Array:
        """The frame's transpose times a matrix."""
        first, second = self.factors
        return np.asarray(first[:, None] * matrix[self.rows] + second[:, None] * matrix[self.others])

    def spread(self, vectors: Array) -> Array:
        """Rows of coefficients of columns as rows of coefficients of determinants."""
        states = np.zeros((len(vectors), self._count), vectors.dtype)
        states[:, self.others] = self.factors[1] * vectors
        states[:, self.rows] += self.factors[0] * vectors
        return states


def given_states(
    start: Sequence[Array] | str | Path, shape: tuple[int, ...], is_complex: bool = False
) -> list[Array]:
    """The states of a list, or of the file of an earlier result, which has those of `shape` alone.

    Raises InputError where they are none, or complex where the integrals are not.
    """
    if isinstance(start, str | Path):
        source, states = str(start), _read_states(start, shape)
    else:
        source = "start"
        try:
            states = [np.asarray(state) for state in start]
        except (TypeError, ValueError) as error:
            raise InputError(source, f"holds no states ({error})", "give a list of arrays") from None
    if any(state.dtype.kind not in ("iufc" if is_complex else "iuf") for state in states):
        raise InputError(source, "holds values that are not real numbers", "give states of real numbers")
    return [np.asarray(state, np.complex128 if is_complex else np.float64) for state in states]


def _read_states(path: str | Path, shape: tuple[int, ...]) -> list[Array]:
    """The states of an earlier result's .npz, which have the shape."""
    place, remedy = str(path), "give the .npz of an earlier result"

    def check(header: ArrayHeader) -> None:
        if not header.shape or not header.shape[0]:
            raise InputError(place, "holds no state", remedy)
        if header.shape[1:] != shape:
            raise _OtherSpaceError(
                place, f"holds states of shape {header.shape[1:]}, and this space has {shape}",
                "give the result of a solve over the same strings",
            )  # fmt: skip

    try:
        with open_archive(path, remedy) as archive:
            if "states" not in archive.names:
                raise InputError(place, "an array named states is missing", remedy)
            return list(archive.read("states", check))
    except _OtherSpaceError:
        raise
    except InputError as error:
        raise InputError(place, f"holds no states ({error.problem})", remedy) from None


class _OtherSpaceError(InputError):
    """States of another space than that of the solve."""
