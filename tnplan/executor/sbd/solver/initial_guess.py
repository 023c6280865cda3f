"""Vectors to start a solve from: the lowest states among the determinants of least energy, or those given.

Knows operators' diagonals and lists of determinants; not how a solve goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np

from tnplan.executor.sbd.basis.determinants import from_product
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.lists.listed_rows import ListedRows
from tnplan.executor.sbd.properties.spin_square import SpinTarget
from tnplan.executor.sbd.qubits.qubit_hamiltonian import QubitHamiltonian
from tnplan.executor.sbd.sigma.product_hamiltonian import EVEN, NEITHER, ODD, ProductHamiltonian
from tnplan.planner.common.array_file import ArrayHeader, open_archive
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.errors import InputError

DETERMINANTS = 300
"""So many determinants of least energy are diagonalized exactly; smaller spaces whole."""
NEAR = 1e-8
"""Determinants within this of each other in energy, in Hartree, are taken together."""
SPREAD = 0.1
"""The norm of what states of qubits have besides on all strings, so that they meet every symmetry sector."""


@dataclass(frozen=True)
class SparseState:
    """A state that has these values at flat numbers of the space, and is zero elsewhere.

    Elsewhere and there, random numbers of up to `spread` in size are added, which `seed` gives.
    """

    numbers: Array
    values: Array
    parity: int
    spread: float = 0.0
    seed: int = 0

    def rows(self, first: int, last: int, row: tuple[int, ...]) -> Array:
        """Rows first .. last-1 of the state, each of shape `row`."""
        part, width = np.zeros((last - first, *row), self.values.dtype), prod(row)
        inside = (self.numbers >= first * width) & (self.numbers < last * width)
        part.ravel()[self.numbers[inside] - first * width] = self.values[inside]
        if self.spread:
            part.ravel()[:] += self.spread * _uniform(first * width, last * width, self.seed)
        return part


def count_at_start(n_roots: int) -> int:
    """How many determinants of least energy are asked for."""
    return max(DETERMINANTS, 2 * n_roots)


def lowest_determinants(
    hamiltonian: ProductHamiltonian | ListHamiltonian | QubitHamiltonian,
    n_roots: int,
    target: SpinTarget | None = None,
) -> tuple[Array, Array]:
    """Flat numbers and energies of the determinants of least energy in the local rows.

    With a penalty only those of as many open shells as its spin needs.
    """
    diagonal = hamiltonian.diagonal()
    if hamiltonian.sector is not None:
        diagonal[~hamiltonian.sector] = np.inf
    if target is not None and not isinstance(hamiltonian, QubitHamiltonian):
        diagonal[hamiltonian.open_shells() < target.least_open] = np.inf
    energies = diagonal.ravel()
    chosen = lowest(energies, count_at_start(n_roots))
    chosen = chosen[np.isfinite(energies[chosen])]
    return chosen + hamiltonian.rows[0] * prod(hamiltonian.shape[1:]), energies[chosen]


def lowest_states(
    hamiltonian: ProductHamiltonian | ListHamiltonian | QubitHamiltonian, n_roots: int, chosen: Array,
    target: SpinTarget | None = None,
) -> list[SparseState]:  # fmt: skip
    """At least `n_roots` states to start from, where the space has so many, among chosen determinants."""
    parities = hamiltonian.parities if target is None else target.parities(hamiltonian.parities)
    width = prod(hamiltonian.shape[1:])
    few, chosen = _among(hamiltonian, chosen)
    matrix = few.dense()
    if target is not None:
        squares = np.array([few.apply_spin_square(unit) for unit in np.eye(len(matrix))])
        away = squares - target.wanted * np.eye(len(matrix))
        matrix = matrix + target.weight * np.linalg.matrix_power(away, target.power)
    found = []
    for parity in parities:
        frame = _frame(chosen, width, parity)
        if not frame.shape[1]:
            continue
        energies, columns = np.linalg.eigh(frame.T @ matrix @ frame)
        for energy, vector in zip(energies[:n_roots], (frame @ columns).T, strict=False):
            found.append((float(energy), parity, vector))
    found.sort(key=lambda entry: entry[0])
    size = prod(hamiltonian.shape)
    spread = SPREAD / size**0.5 if isinstance(hamiltonian, QubitHamiltonian) and len(chosen) < size else 0.0
    return [
        SparseState(chosen, values, parity, spread, seed)
        for seed, (_, parity, values) in enumerate(found[:n_roots])
    ]


def _among(
    hamiltonian: ProductHamiltonian | ListHamiltonian | QubitHamiltonian, chosen: Array
) -> tuple[ListedRows, Array]:
    """H among chosen determinants, and those of the other parity with them; the numbers of all."""
    if isinstance(hamiltonian, QubitHamiltonian):
        return hamiltonian.among(chosen), chosen
    if isinstance(hamiltonian, ListHamiltonian):
        # With the strings of the whole list, the few would wait for the links between all of these.
        basis = replace(hamiltonian.basis.take(chosen), given=np.arange(len(chosen)))
    else:
        if hamiltonian.symmetric:
            width = hamiltonian.shape[1]
            row, column = np.divmod(chosen, width)
            chosen = np.unique(np.concatenate([chosen, column * width + row]))
        basis = from_product(hamiltonian.alpha.strings, hamiltonian.beta.strings, chosen)
    few = ListHamiltonian(hamiltonian.integrals, basis, threads=hamiltonian.threads)
    return few, chosen[basis.given]


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
