"""What growths start from where no list is given: the lowest states among determinants of low energy.

A growth keeps the symmetry of its start, and may stay near it. So there is a start for every block of the
Hamiltonian among determinants of low energy, which are found from many fillings: those of closed shells, and
those of spins up and down in different orbitals.

Knows integrals, labels of orbitals and spins; no selection.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.determinants import from_bits
from tnplan.executor.sbd.basis.integrals import Integrals, dense_two
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.properties.spin_square import SpinTarget, dense_matrix
from tnplan.executor.sbd.selected_ci.connections import from_keys, member_keys
from tnplan.executor.sbd.selected_ci.excitation_tables import DiagonalTerms
from tnplan.executor.sbd.selected_ci.spin_families import Closure, SpinFamilies

# Mean fields (unrestricted Hartree-Fock) over given orbitals: which of these electrons fill.
#
# The determinant of least energy may be one of charge transfer, above which correlation lifts another one by
# tenths of a Hartree. A mean field has the correlation of single excitations, and finds the other one.
#
# Knows integrals of orbitals that both spins share; no lists.


STEPS, MIXED = 60, 0.3
"""Steps of a mean field at most, and the share of the new density in each."""
SETTLED = 1e-3
"""A density that changes by less is taken."""


class MeanField:
    """Unrestricted Hartree-Fock for any numbers of electrons."""

    def __init__(self, integrals: Integrals) -> None:
        self._one, two, n = integrals.one, dense_two(integrals), integrals.n_orbitals
        self._coulomb = two.transpose(0, 1, 3, 2).reshape(n * n, n * n)
        self._exchange = two.transpose(0, 3, 1, 2).reshape(n * n, n * n)

    def leading(self, n_alpha: int, n_beta: int) -> Array:
        """What electrons fill most: bool [spin, orbital].

        Densities begin with all orbitals filled alike, so that none is preferred. They need not settle: a
        determinant that is far from the best one costs time alone.
        """
        n, counts = len(self._one), (n_alpha, n_beta)
        densities = np.array([np.eye(n) * count / n for count in counts], self._one.dtype)
        for _ in range(STEPS):
            coulomb = self._coulomb @ densities.sum(0).ravel()
            change = 0.0
            for spin, count in enumerate(counts):
                exchange = self._exchange @ densities[spin].ravel()
                orbitals = np.linalg.eigh(self._one + (coulomb - exchange).reshape(n, n))[1][:, :count]
                step = MIXED * (orbitals @ orbitals.conj().T - densities[spin])
                densities[spin] += step
                change = max(change, float(np.abs(step).max(initial=0.0)))
            if change < SETTLED:
                break
        filled = np.zeros((2, n), bool)
        for spin, count in enumerate(counts):
            filled[spin, np.argsort(-densities[spin].diagonal().real, kind="stable")[:count]] = True
        return filled


DETERMINANTS = 300
"""So many determinants of least energy are looked for, and diagonalized."""
ALIKE = 10
"""Moves that lead to one determinant, counted so that few are missed."""
FILLINGS, SEED = 20, 1
"""Random fillings from which they are looked for, besides that of the first orbitals."""
WORSE, WRONG = 1e3, 0.5
"""What every open shell that is missing counts, and another representation, in Hartree."""
OPENED = 10
"""Pairs of electrons that spin-broken determinants open at most."""
PLACEMENTS = 10
"""Random placements of spins from which the lowest is looked for."""
LOWER = 1e-9
"""A step has to lower the energy by so many Hartree, so that rounding does not go round in circles."""
EXCHANGE = 2
"""The kind of a move of both spins."""
AT_ONCE = 1 << 20
"""Moves of electrons whose energies are found together, at most."""
MOVE_BYTES, FIELD_BYTES = 160, 32
"""What a move takes whose energy is found, and an integral (pq|rs) of a mean field."""


@dataclass(frozen=True)
class DeterminantSearch:
    """A search for determinants of low energy.

    Those with fewer than `least_open` open shells count as higher by WORSE for each that is missing, those of
    another representation than `irrep` (from 1; None for any) by WRONG, so that they lead on to others. At
    the end both are left out.
    """

    integrals: Integrals
    energies: DiagonalTerms
    irrep: int | None = None
    least_open: int = 0
    memory_bytes: float = np.inf

    def lowest(self) -> Array:
        """The determinants found, bool [determinant, spin, orbital], those of least energy first.

        They are the lowest of all that one electron's move, or the exchange of two spins, makes of those
        found before, until none is new.
        """
        n, counts = self.integrals.n_orbitals, (self.integrals.n_alpha, self.integrals.n_beta)
        chance = np.random.default_rng(SEED)
        fillings = [[np.arange(n) < count for count in counts]]
        fillings += [[chance.permutation(n) < count for count in counts] for _ in range(FILLINGS)]
        seen: set[bytes] = set()
        filled = np.array(fillings)
        while True:
            fresh = [at for at, bits in enumerate(filled) if bits.tobytes() not in seen]
            seen.update(filled[at].tobytes() for at in fresh)
            moved = self._moved(filled[fresh])
            filled = np.unique(np.concatenate([filled, moved]), axis=0)
            order = np.argsort(self._scores(filled), kind="stable")
            filled = filled[order[:DETERMINANTS]]
            if not len(moved):
                break
        return self._fitting(filled)

    def broken(self) -> Array:
        """Determinants of broken spin symmetry: bool [determinant, spin, orbital].

        For every number of open shells: those of the mean field whose spins in them are all up, with the
        placement of spins up and down from which no exchange lowers the energy. None where alpha and beta
        have orbitals of their own, and where the memory does not hold a mean field.
        """
        integrals, lowest_placements = self.integrals, []
        n, n_alpha, n_beta = integrals.n_orbitals, integrals.n_alpha, integrals.n_beta
        if not integrals.has_common_orbitals or FIELD_BYTES * n**4 > self.memory_bytes:
            return np.empty((0, 2, n), bool)
        max_opened, field = min(n_beta, n - n_alpha, OPENED), MeanField(integrals)
        chance = np.random.default_rng(SEED)
        for more in range(max_opened + 1):
            high = field.leading(n_alpha + more, n_beta - more)
            shells = np.flatnonzero(high[0] & ~high[1])
            placed = np.repeat(high[None], PLACEMENTS, axis=0)
            for bits in placed:
                down = chance.permutation(shells)[:more]
                bits[0, down], bits[1, down] = False, True
            placed = self._descended(placed)
            lowest_placements.append(placed[np.argmin(self._scores(placed))])
        determinants = np.unique(np.array(lowest_placements, bool).reshape(-1, 2, n), axis=0)
        return self._fitting(determinants)

    def _fitting(self, filled: Array) -> Array:
        """Those of the representation and of enough open shells."""
        enough = (filled[:, 0] ^ filled[:, 1]).sum(1) >= self.least_open
        return np.asarray(filled[enough & ~self._is_wrong(self._labels(filled))])

    def _descended(self, filled: Array) -> Array:
        """Where exchanges of two spins lead, as long as they lower the energy."""
        filled, scores = filled.copy(), self._scores(filled)
        for at in range(len(filled)):
            while True:
                determinant = filled[at : at + 1]
                exchanges = self._scores_of_moves(determinant)[EXCHANGE:]
                _, _, leave, enter = np.unravel_index(np.argmin(exchanges), exchanges.shape)
                if not exchanges[0, 0, leave, enter] < scores[at] - LOWER:
                    break
                scores[at] = exchanges[0, 0, leave, enter]
                filled[at, 0, [leave, enter]] = False, True
                filled[at, 1, [leave, enter]] = True, False
        return filled

    def _labels(self, filled: Array) -> Array:
        """The representation of each determinant, from 0; 0 where any will do."""
        return np.asarray(np.bitwise_xor.reduce(np.where(filled, self._orbital_labels, 0), axis=(1, 2)))

    @property
    def _orbital_labels(self) -> Array:
        """The representation of each orbital, from 0; 0 where any will do."""
        n, irreps = self.integrals.n_orbitals, self.integrals.labels.irreps
        return np.zeros(n, np.int64) if self.irrep is None else np.array(irreps, np.int64) - 1

    def _is_wrong(self, labels: Array) -> Array:
        return np.asarray(labels != (0 if self.irrep is None else self.irrep - 1))

    def _counted(self, labels: Array, n_open: Array) -> Array:
        """What counts besides the energy."""
        return np.asarray(WRONG * self._is_wrong(labels) + WORSE * np.maximum(self.least_open - n_open, 0))

    def _scores(self, filled: Array) -> Array:
        """The energies of determinants, and what else counts."""
        e, (alpha, beta) = self.energies, filled.astype(float).transpose(1, 0, 2)
        within = ((alpha @ e.within_alpha) * alpha + (beta @ e.within_beta) * beta).sum(1) / 2
        energies = alpha @ e.one_alpha + beta @ e.one_beta + within + ((alpha @ e.between) * beta).sum(1)
        return np.asarray(energies + self._counted(self._labels(filled), (alpha != beta).sum(1)))

    def _moved(self, filled: Array) -> Array:
        """The determinants of least score that one move makes of any of these."""
        n, best, best_scores = filled.shape[2], filled[:0], np.empty(0)
        rows = max(1, int(min(AT_ONCE, self.memory_bytes / MOVE_BYTES) // (3 * n * n)))
        for first in range(0, len(filled), rows):
            batch = filled[first : first + rows]
            scores = self._scores_of_moves(batch)
            count = min(ALIKE * DETERMINANTS, int(np.isfinite(scores).sum()))
            if not count:
                continue
            lowest = np.argpartition(scores, count - 1, axis=None)[:count]
            kind, at, leave, enter = np.unravel_index(lowest, scores.shape)
            moved, row = batch[at], np.arange(count)
            for spin in (0, 1):
                # In an exchange of spins, beta's electron goes the other way.
                turns = (kind == EXCHANGE) & (spin == 1)
                emptied, entered = np.where(turns, enter, leave), np.where(turns, leave, enter)
                moves = row[kind != 1 - spin]
                moved[moves, spin, emptied[moves]] = False
                moved[moves, spin, entered[moves]] = True
            moved, first_rows = np.unique(np.concatenate([best, moved]), axis=0, return_index=True)
            moved_scores = np.concatenate([best_scores, scores.ravel()[lowest]])[first_rows]
            order = np.argsort(moved_scores, kind="stable")[:DETERMINANTS]
            best, best_scores = moved[order], moved_scores[order]
        return best

    def _scores_of_moves(self, filled: Array) -> Array:
        """The scores of what moves make: [kind, determinant, orbital left, orbital entered].

        Kinds are moves of alpha's electrons, of beta's, and exchanges: alpha's electron moves from p to q and
        beta's from q to p. Infinite where there is no such move.
        """
        e, sides = self.energies, filled.astype(float).transpose(1, 0, 2)
        terms = (e.one_alpha, e.within_alpha, e.between), (e.one_beta, e.within_beta, e.between.T)
        before = self._scores(filled) - self._counted(self._labels(filled), (sides[0] != sides[1]).sum(1))
        labels = self._labels(filled)[:, None, None]
        n_open = (sides[0] != sides[1]).sum(1)[:, None, None]
        orbital_labels = self._orbital_labels
        moved_labels = labels ^ orbital_labels[:, None] ^ orbital_labels
        changes, possible, scores = [], [], []
        for spin, (one, within, between) in enumerate(terms):
            own, other = sides[spin], sides[1 - spin]
            field = one + own @ within + other @ between.T
            changes.append(field[:, None, :] - field[:, :, None] - within)
            possible.append(filled[:, spin][:, :, None] & ~filled[:, spin][:, None, :])
            opened = 2 * (other[:, :, None] - other[:, None, :])
            scores.append(changes[-1] + self._counted(moved_labels, n_open + opened))
        diagonal = e.between.diagonal()
        coupled = e.between + e.between.T - diagonal[:, None] - diagonal
        scores.append(changes[0] + changes[1].transpose(0, 2, 1) + coupled + self._counted(labels, n_open))
        possible.append(possible[0] & possible[1].transpose(0, 2, 1))
        return np.where(possible, before[:, None, None] + np.array(scores), np.inf)


MOST = 1000
"""Determinants that are diagonalized at most, with all that their spins' families have."""
MATRIX_BYTES = 64
"""What an element of the diagonalized matrix takes, with its copies."""
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
        amplitudes, others = self._amplitudes(), other._amplitudes().items()
        return float(abs(sum(np.conj(amplitudes[key]) * value for key, value in others if key in amplitudes)))

    def _amplitudes(self) -> dict[bytes, complex]:
        """The coefficients of the first state by the determinants' bytes."""
        keys = np.ascontiguousarray(self.keys)
        names = keys.view(f"V{keys.shape[1] * keys.itemsize}").ravel().tolist()
        return dict(zip(names, self.states[0].tolist(), strict=True))


def start_states(
    search: DeterminantSearch, families: SpinFamilies, target: SpinTarget | None, n_roots: int, threads: int
) -> list[Start]:
    """The lowest state of every block of the Hamiltonian among determinants of low energy, lowest first.

    Of several roots there is one start, with the lowest states of all blocks. `target` is the total spin that
    states are to have. Little memory makes fewer determinants, and leaves out those that mean fields lead to.
    """
    # A determinant with k open shells has no part of a spin above k / 2: the search leaves out
    # those with fewer open shells than the target needs.
    integrals = search.integrals
    broken, lowest = search.broken(), search.lowest()
    filled = np.concatenate([broken, lowest])
    if not len(filled):
        raise InputError(
            "--grow",
            f"finds no determinant of symmetry {search.irrep} to start from"
            if target is None
            else f"finds no determinant of {search.least_open} open shells and the symmetry to start from",
            "give --determinants",
        )
    listed = from_bits(filled[:, 0], filled[:, 1])
    in_order = member_keys(listed)[np.argsort(listed.given)]
    max_determinants = min(MOST, int((search.memory_bytes / MATRIX_BYTES) ** 0.5))
    chosen = _first_families(in_order, families, max_determinants)
    listed = from_keys(families.closed(chosen), integrals.n_orbitals)
    hamiltonian, keys = ListHamiltonian(integrals, listed, threads=threads), member_keys(listed)
    matrix = dense_matrix(hamiltonian, target)
    # In the frame of even and odd combinations H falls into blocks, by parity and by whatever else
    # it conserves: connected components of its elements show these symmetries without knowing them.
    frame, parities = _frame(keys, families)
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
        # States of equal energy and parity are partners of one multiplet: one of them will do.
        if not any(other.parity == parity and abs(other.energy - energy) < EQUAL for other in starts):
            start = _start(keys, [state], parity, energy, families)
            starts.append(replace(start, is_broken=broken_spin))
    return starts


def _first_families(keys: Array, families: SpinFamilies, limit: int) -> Array:
    """The determinants of the first families, as many as can be diagonalized."""
    chosen, _ = families.largest(keys, -np.arange(len(keys)), limit)
    if not chosen.any():
        least = int(families.counts(families.names(keys[:1]))[0])
        raise InputError(
            "--grow",
            f"has to start with {least} determinants of the same orbitals, but only {limit} are allowed",
            "leave --spin out, or give more memory or --determinants",
            topic="memory",
        )  # fmt: skip
    return np.asarray(keys[chosen])


def _frame(keys: Array, families: SpinFamilies) -> tuple[Array, Array]:
    """Orthonormal columns of even (1) and odd (-1) states under the exchange of strings, and their parities.

    Unit columns of parity 0 where the Hamiltonian or the list has no such symmetry.
    """
    count = len(keys)
    half = keys.shape[1] // 2
    numbers = {key.tobytes(): number for number, key in enumerate(keys)}
    others = [numbers.get(np.roll(key, half).tobytes(), -1) for key in keys]
    if families.closure is Closure.NOTHING or -1 in others:
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
    vectors = [state[chosen] for state in states]
    return Start(keys[chosen], [vector / np.linalg.norm(vector) for vector in vectors], parity, energy)
