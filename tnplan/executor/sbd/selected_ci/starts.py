"""What growths start from where no list is given: the lowest states among determinants of low energy.

A growth keeps the symmetry of its start, and may stay near it. So there is a start for every block of the
Hamiltonian among determinants of low energy, which are found from many places: those of closed shells, and
those of spins up and down in different orbitals.

Knows integrals, labels of orbitals and spins; no selection.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.determinants import from_bits
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.properties.spin_square import SpinTarget
from tnplan.executor.sbd.selected_ci.connections import from_keys, member_keys
from tnplan.executor.sbd.selected_ci.determinant_search import DeterminantSearch
from tnplan.executor.sbd.selected_ci.excitation_tables import DiagonalTerms
from tnplan.executor.sbd.selected_ci.spin_families import SpinFamilies

MOST = 1000
"""Determinants that are diagonalized at most, with all that their spins' families have."""
MATRIX_BYTES = 64
"""What an element of the diagonalized matrix takes, with all that is made of it."""
SHARE = 0.1
"""A start holds the determinants whose coefficients are at least this share of the largest."""
LINKED = 1e-10
"""Elements above this, in Hartree, link determinants."""
STATES, SINGLE = 3, 20
"""States of every block that are starts, and determinants that are, each with its spin flip."""
EQUAL = 1e-9
"""States of energies that differ by less, in Hartree, turn into each other under a symmetry."""


@dataclass(frozen=True)
class Start:
    """Normalized states among a few determinants, by their keys, and the energy of the first of them.

    `parity` is that of spin flips, or 0. The energy is without the core's, before the few were chosen.
    `is_broken`: the start is one determinant of broken spin symmetry, with its flip.
    """

    keys: Array
    states: list[Array]
    parity: int
    energy: float
    is_broken: bool = False

    def overlap(self, other: Start) -> float:
        """The magnitude of the overlap of the first states."""
        mine = dict(zip(map(bytes, self.keys), self.states[0], strict=True))
        pairs = zip(map(bytes, other.keys), other.states[0], strict=True)
        return float(abs(sum(np.conj(mine.get(key, 0.0)) * value for key, value in pairs)))


def start_states(
    integrals: Integrals, energies: DiagonalTerms, families: SpinFamilies, irrep: int | None,
    target: SpinTarget | None, n_roots: int, threads: int, memory_bytes: float,
) -> list[Start]:  # fmt: skip
    """The lowest state of every block of the Hamiltonian among determinants of low energy, lowest first.

    Of several roots there is one start, with the lowest states of all blocks. `irrep` is the representation
    that is wanted, from 1; `target` the total spin. Little memory makes fewer determinants, and leaves out
    those that mean fields lead to.
    """
    # A determinant with k open shells has no part of a spin above k / 2: lower ones need not be
    # looked at.
    least_open = 0 if target is None else target.least_open
    search = DeterminantSearch(integrals, energies, irrep, least_open, memory_bytes)
    broken, lowest = search.broken(), search.lowest()
    filled = np.concatenate([broken, lowest])
    if not len(filled):
        raise InputError(
            "--grow",
            f"finds no determinant of symmetry {irrep} to start from"
            if target is None
            else f"finds no determinant of {least_open} open shells and the symmetry to start from",
            "give --determinants",
        )
    listed = from_bits(filled[:, 0], filled[:, 1])
    in_order = member_keys(listed)[np.argsort(listed.given)]
    most = min(MOST, int((memory_bytes / MATRIX_BYTES) ** 0.5))
    chosen = _first_families(in_order, families, most)
    listed = from_keys(families.closed(chosen), integrals.n_orbitals)
    few, keys = ListHamiltonian(integrals, listed, threads=threads), member_keys(listed)
    matrix = few.dense()
    if target is not None:
        squares = np.array([few.apply_spin_square(unit) for unit in np.eye(len(matrix))])
        away = squares - target.wanted * np.eye(len(matrix))
        matrix = matrix + target.weight * np.linalg.matrix_power(away, target.power)
    # In the frame of even and odd combinations H falls into blocks, by parity and by whatever else
    # it conserves: connected components of its elements show these symmetries without knowing them.
    frame, parities = _frame(keys, integrals)
    frame = frame.astype(matrix.dtype)
    matrix = frame.T @ matrix @ frame
    lowest_states: list[tuple[float, int, Array, bool]] = []

    def add_lowest(block: Array, count: int, is_broken: bool = False) -> None:
        values, vectors = np.linalg.eigh(matrix[np.ix_(block, block)])
        for value, vector in zip(values[:count], vectors.T, strict=False):
            lowest_states.append((float(value), int(parities[block[0]]), frame[:, block] @ vector, is_broken))

    for block in _blocks(np.abs(matrix) > LINKED):
        add_lowest(block, max(STATES, n_roots))
    # Families of the lowest determinants and of broken symmetry give starts of their own, as the
    # lowest state of a block hides what lies close above.
    if n_roots == 1:
        of_column = families.names(keys[np.abs(frame).argmax(0)])
        names = np.unique(families.names(in_order[: len(broken) + SINGLE]), axis=0)
        of_broken = families.names(in_order[: len(broken)])
        for name in names:
            columns = np.flatnonzero((of_column == name).all(1))
            for parity in np.unique(parities[columns]):
                is_broken = bool((of_broken == name).all(1).any())
                add_lowest(columns[parities[columns] == parity], 1, is_broken)
    lowest_states.sort(key=lambda entry: entry[0])
    if n_roots > 1:
        return [
            _start(keys, [entry[2] for entry in lowest_states[:n_roots]], 0, lowest_states[0][0], families)
        ]
    starts: list[Start] = []
    for energy, parity, state, broken_spin in lowest_states:
        # States of equal energy and parity are partners of known multiplet: known of them will do.
        if not any(known.parity == parity and abs(known.energy - energy) < EQUAL for known in starts):
            start = _start(keys, [state], parity, energy, families)
            starts.append(replace(start, is_broken=broken_spin))
    return starts


def _first_families(keys: Array, families: SpinFamilies, most: int) -> Array:
    """The determinants of the first families, as many as can be diagonalized."""
    chosen, _ = families.largest(keys, -np.arange(len(keys)), most)
    if not chosen.any():
        least = int(families.counts(families.names(keys[:1]))[0])
        raise InputError(
            "--grow", f"has to start with {least} determinants of the same orbitals, and {most} can be taken",
            "leave --spin out, or give more memory or --determinants",
            topic="memory",
        )  # fmt: skip
    return np.asarray(keys[chosen])


def _frame(keys: Array, integrals: Integrals) -> tuple[Array, Array]:
    """Orthonormal columns of even (1) and odd (-1) states under the exchange of strings, and their parities.

    Unit columns of parity 0 where the Hamiltonian or the list has no such symmetry.
    """
    count = len(keys)
    half = keys.shape[1] // 2
    numbers = {key.tobytes(): number for number, key in enumerate(keys)}
    others = [numbers.get(np.roll(key, half).tobytes(), -1) for key in keys]
    if not integrals.has_common_orbitals or -1 in others:
        return np.eye(count), np.zeros(count, np.int64)
    columns, parities = [], []
    unit = np.eye(count)
    for number, other in enumerate(others):
        if number == other:
            columns.append(unit[number])
            parities.append(1)
        elif number < other:
            for parity in (1, -1):
                columns.append((unit[number] + parity * unit[other]) * 0.5**0.5)
                parities.append(parity)
    return np.array(columns).T, np.array(parities)


def _blocks(linked: Array) -> list[Array]:
    """The numbers of the rows of every block of a symmetric matrix of links."""
    count = len(linked)
    label = np.arange(count)
    linked = linked | np.eye(count, dtype=bool)
    while True:
        lower = np.where(linked, label, count).min(1)
        if (lower == label).all():
            break
        label = lower
    return [np.flatnonzero(label == name) for name in np.unique(label)]


def _start(keys: Array, states: list[Array], parity: int, energy: float, families: SpinFamilies) -> Start:
    """The determinants of large coefficients in a state, with all of their families."""
    sizes = np.max([np.abs(state) / np.abs(state).max() for state in states], axis=0)
    names = families.names(keys)
    large = {name.tobytes() for name in names[sizes >= SHARE]}
    chosen = np.array([name.tobytes() in large for name in names])
    parts = [state[chosen] for state in states]
    return Start(keys[chosen], [part / np.linalg.norm(part) for part in parts], parity, energy)
