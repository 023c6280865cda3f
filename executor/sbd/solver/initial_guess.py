"""Vectors to start a solve from: the lowest states among the determinants of least energy, or those given.

Knows operators' diagonals and lists of determinants; not how a solve goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tnplan.executor.sbd.basis.determinants import DeterminantList, ListHamiltonian, from_product
from tnplan.executor.sbd.properties.spin_square import PenalizedHamiltonian, apply_spin_square
from tnplan.executor.sbd.sigma.product_hamiltonian import EVEN, NEITHER, ODD, ProductHamiltonian
from tnplan.planner.common.array_file import ArrayHeader, open_archive
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.errors import InputError

DETERMINANTS = 300
"""So many determinants of least energy are diagonalized exactly; smaller spaces whole."""
NEAR = 1e-8
"""Determinants within this of each other in energy, in Hartree, are taken together."""


def lowest_of_list(hamiltonian: ListHamiltonian, n_roots: int) -> list[tuple[Array, int]]:
    """At least `n_roots` start vectors, where the space has so many, in a list of determinants."""
    basis = hamiltonian.basis
    chosen = lowest(hamiltonian.diagonal(), count_at_start(n_roots))
    few = DeterminantList(
        basis.alpha_strings, basis.beta_strings, basis.alpha[chosen], basis.beta[chosen], chosen
    )
    matrix = ListHamiltonian(hamiltonian.integrals, few, threads=hamiltonian.threads).dense()
    _, columns = np.linalg.eigh(matrix)
    vectors = []
    for column in columns.T[:n_roots]:
        vector = np.zeros(len(basis), column.dtype)
        vector[chosen] = column
        vectors.append((vector, NEITHER))
    return vectors


@dataclass(frozen=True)
class SparseState:
    """A state that is zero but at these flat numbers [alpha string, beta string] of the space."""

    numbers: Array
    values: Array
    parity: int

    def rows(self, first: int, last: int, n_beta: int) -> Array:
        """Rows first .. last-1 of the state."""
        part = np.zeros((last - first, n_beta), self.values.dtype)
        inside = (self.numbers >= first * n_beta) & (self.numbers < last * n_beta)
        part.ravel()[self.numbers[inside] - first * n_beta] = self.values[inside]
        return part


def count_at_start(n_roots: int) -> int:
    """How many determinants of least energy are asked for."""
    return max(DETERMINANTS, 2 * n_roots)


def lowest_determinants(
    hamiltonian: ProductHamiltonian, n_roots: int, penalized: PenalizedHamiltonian | None = None
) -> tuple[Array, Array]:
    """Flat numbers and energies of the determinants of least energy in the local rows.

    With a penalty only those of as many open shells as its spin needs.
    """
    diagonal = hamiltonian.diagonal()
    if hamiltonian.sector is not None:
        diagonal[~hamiltonian.sector] = np.inf
    if penalized is not None:
        diagonal[penalized.open_shells() < penalized.least_open] = np.inf
    energies = diagonal.ravel()
    chosen = lowest(energies, count_at_start(n_roots))
    chosen = chosen[np.isfinite(energies[chosen])]
    return chosen + hamiltonian.rows[0] * hamiltonian.shape[1], energies[chosen]


def lowest_states(
    hamiltonian: ProductHamiltonian, n_roots: int, chosen: Array,
    penalized: PenalizedHamiltonian | None = None,
) -> list[SparseState]:  # fmt: skip
    """At least `n_roots` states to start from, where the space has so many, among chosen determinants."""
    shape = hamiltonian.shape
    parities = hamiltonian.parities if penalized is None else penalized.parities
    if hamiltonian.symmetric:
        row, column = np.divmod(chosen, shape[1])
        chosen = np.unique(np.concatenate([chosen, column * shape[1] + row]))
    alpha, beta = hamiltonian.alpha.strings, hamiltonian.beta.strings
    basis = from_product(alpha, beta, chosen)
    chosen = chosen[basis.given]
    matrix = ListHamiltonian(hamiltonian.integrals, basis, threads=hamiltonian.threads).dense()
    if penalized is not None:
        away = _spin_matrix(hamiltonian, basis) - penalized.wanted * np.eye(len(matrix))
        matrix = matrix + penalized.weight * np.linalg.matrix_power(away, penalized.power)
    found = []
    for parity in parities:
        frame = _frame(chosen, shape[1], parity)
        if not frame.shape[1]:
            continue
        energies, columns = np.linalg.eigh(frame.T @ matrix @ frame)
        for energy, vector in zip(energies[:n_roots], (frame @ columns).T, strict=False):
            found.append((float(energy), parity, vector))
    found.sort(key=lambda entry: entry[0])
    return [SparseState(chosen, values, parity) for _, parity, values in found[:n_roots]]


def _spin_matrix(hamiltonian: ProductHamiltonian, basis: DeterminantList) -> Array:
    """S^2 among a list of determinants."""
    few = ProductHamiltonian(
        hamiltonian.integrals.real,
        basis.alpha_strings,
        basis.beta_strings,
        threads=hamiltonian.threads,
        dense=False,
    )
    rows = [apply_spin_square(few, basis.embed(unit))[basis.alpha, basis.beta] for unit in np.eye(len(basis))]
    return np.array(rows)


def lowest(diagonal: Array, count: int) -> Array:
    """The numbers of the `count` smallest values, and of those just as small as the last, in rising order."""
    if count >= len(diagonal):
        return np.arange(len(diagonal))
    last = np.partition(diagonal, count - 1)[count - 1]
    near = np.flatnonzero(diagonal <= last + NEAR)
    if len(near) > 2 * count:
        near = np.argsort(diagonal, kind="stable")[:count]
    return np.sort(near)


def _frame(chosen: Array, n_columns: int, parity: int) -> Array:
    """Orthonormal columns over the chosen determinants that span those of a parity."""
    count = len(chosen)
    if parity == NEITHER:
        return np.eye(count)
    order = {int(number): at for at, number in enumerate(chosen)}
    columns: list[tuple[tuple[int, float], ...]] = []
    for number, at in order.items():
        row, column = divmod(number, n_columns)
        if row == column and parity == EVEN:
            columns.append(((at, 1.0),))
        elif row > column:
            other = order[column * n_columns + row]
            columns.append(((at, np.sqrt(0.5)), (other, np.sqrt(0.5) * (-1 if parity == ODD else 1))))
    frame = np.zeros((count, len(columns)))
    for place, entries in enumerate(columns):
        for at, factor in entries:
            frame[at, place] = factor
    return frame


def given_states(
    start: Sequence[Array] | str | Path, shape: tuple[int, ...], is_complex: bool = False
) -> list[Array]:
    """The states of a list, or of the file of an earlier result, which has those of `shape` alone.

    Raises InputError where they are none, or complex where the integrals are not.
    """
    if isinstance(start, str | Path):
        place, states = str(start), _read_states(start, shape)
    else:
        place = "start"
        try:
            states = [np.asarray(state) for state in start]
        except (TypeError, ValueError) as error:
            raise InputError(place, f"holds no states ({error})", "give a list of arrays") from None
    if any(state.dtype.kind not in ("iufc" if is_complex else "iuf") for state in states):
        raise InputError(place, "holds values that are no real numbers", "give states of real numbers")
    return [np.asarray(state, np.complex128 if is_complex else np.float64) for state in states]


def _read_states(path: str | Path, shape: tuple[int, ...]) -> list[Array]:
    """The states of an earlier result's .npz, which have the shape."""
    place, remedy = str(path), "give the .npz of an earlier result"

    def check(header: ArrayHeader) -> None:
        if not header.shape or not header.shape[0]:
            raise InputError(place, "there is none in it", remedy)
        if header.shape[1:] != shape:
            raise _OtherSpaceError(
                place, f"holds states of shape {header.shape[1:]}, this space has {shape}",
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
    """States of another space than the one asked for."""
