"""What growths start from where no list is given: the lowest states among determinants of low energy.

A growth keeps the symmetry of its start, and may stay near it. So there is a start for every block of the
Hamiltonian among determinants of low energy, which are found from many places: those of closed shells, and
those of spins up and down in different orbitals.

Knows integrals, labels of orbitals and spins; no selection.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tnplan.executor.sbd.basis.determinants import from_bits
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.properties.spin_square import SpinTarget
from tnplan.executor.sbd.selected_ci.connections import from_keys, member_keys
from tnplan.executor.sbd.selected_ci.excitation_tables import DiagonalTerms
from tnplan.executor.sbd.selected_ci.mean_field import MeanField
from tnplan.executor.sbd.selected_ci.spin_families import SpinFamilies
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.errors import InputError

DETERMINANTS = 300
"""So many determinants of least energy are looked for, and diagonalized."""
FILLINGS, SEED = 20, 1
"""Places from which they are looked for besides the first orbitals: random fillings."""
OPENED = 10
"""Pairs of electrons that spin-broken determinants open at most."""
PLACEMENTS = 10
"""Random placements of spins from which the lowest is looked for."""
LOWER = 1e-9
"""A step has to lower the energy by so many Hartree, so that rounding does not go round in circles."""
MOST = 1000
"""Determinants that are diagonalized, with all that their spins' families have."""
SHARE = 0.1
"""A start holds the determinants whose coefficients are at least this share of the largest."""
LINKED = 1e-10
"""Elements above this, in Hartree, link determinants."""
WORSE, WRONG = 1e3, 0.5
"""What every open shell that is missing counts, and another representation, in Hartree."""
STATES, SINGLE = 3, 20
"""States of every block that are starts, and determinants that are, each with its spin flip."""
EQUAL = 1e-9
"""States of energies that differ by less, in Hartree, turn into each other under a symmetry."""
EXCHANGE = 2
"""The kind of a move of both spins."""
AT_ONCE = 1 << 22
"""Moves of electrons whose energies are found together."""


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
    target: SpinTarget | None = None, n_roots: int = 1, threads: int = 1,
) -> list[Start]:  # fmt: skip
    """The lowest state of every block of the Hamiltonian among determinants of low energy, lowest first.

    Of several roots there is one start, with the lowest states of all blocks. `irrep` is the representation
    that is wanted, from 1; `target` the total spin.
    """
    least_open = 0 if target is None else target.least_open
    search = DeterminantSearch(integrals, energies, irrep, least_open)
    broken, lowest = search.broken(), search.lowest()
    filled = np.concatenate([broken, lowest])
    if not len(filled):
        raise InputError(
            "--grow", f"finds no determinant of symmetry {irrep} to start from", "give --determinants"
        )
    listed = from_bits(filled[:, 0], filled[:, 1])
    in_order = member_keys(listed)[np.argsort(listed.given)]
    chosen = _first_families(in_order, families)
    listed = from_keys(families.closed(chosen), integrals.n_orbitals)
    few, keys = ListHamiltonian(integrals, listed, threads=threads), member_keys(listed)
    matrix = few.dense()
    if target is not None:
        squares = np.array([few.apply_spin_square(unit) for unit in np.eye(len(matrix))])
        away = squares - target.wanted * np.eye(len(matrix))
        matrix = matrix + target.weight * np.linalg.matrix_power(away, target.power)
    frame, parities = _frame(keys, integrals)
    matrix = frame.T @ matrix @ frame
    found = []
    for block in _blocks(np.abs(matrix) > LINKED):
        values, vectors = np.linalg.eigh(matrix[np.ix_(block, block)])
        for value, vector in zip(values[: max(STATES, n_roots)], vectors.T, strict=False):
            found.append((float(value), int(parities[block[0]]), frame[:, block] @ vector, False))
    if n_roots == 1:
        names = families.names(keys[np.abs(frame).argmax(0)])
        is_broken = (names[:, None] == families.names(in_order[: len(broken)])).all(2).any(1)
        rank = np.argsort(np.where(is_broken, -np.inf, matrix.diagonal().real), kind="stable")
        for at in rank[: SINGLE + int(is_broken.sum())]:
            energy = float(matrix[at, at].real)
            found.append((energy, int(parities[at]), frame[:, at], bool(is_broken[at])))
    found.sort(key=lambda entry: entry[0])
    if n_roots > 1:
        return [_start(keys, [entry[2] for entry in found[:n_roots]], 0, found[0][0], families)]
    starts: list[Start] = []
    for energy, parity, state, broken_spin in found:
        if not any(one.parity == parity and abs(one.energy - energy) < EQUAL for one in starts):
            start = _start(keys, [state], parity, energy, families)
            starts.append(replace(start, is_broken=broken_spin))
    return starts


@dataclass(frozen=True)
class DeterminantSearch:
    """A search for determinants of low energy.

    Those with fewer than `least_open` open shells count as higher by WORSE for each that is missing. Those of
    another representation than `irrep` (from 1; None for any) by WRONG, so that they lead on to others; at
    the end they are left out.
    """

    integrals: Integrals
    energies: DiagonalTerms
    irrep: int | None = None
    least_open: int = 0

    def lowest(self) -> Array:
        """The determinants found, bool [determinant, spin, orbital], those of least energy first.

        They are the lowest of all that one electron's move, or the exchange of two spins, makes of those
        found before, until none is new.
        """
        n, counts = self.integrals.n_orbitals, (self.integrals.n_alpha, self.integrals.n_beta)
        chance = np.random.default_rng(SEED)
        places = [[np.arange(n) < count for count in counts]]
        places += [[chance.permutation(n) < count for count in counts] for _ in range(FILLINGS)]
        known: set[bytes] = set()
        filled = np.array(places)
        while True:
            fresh = [at for at, bits in enumerate(filled) if bits.tobytes() not in known]
            known.update(filled[at].tobytes() for at in fresh)
            moved = self._moved(filled[fresh])
            filled = np.unique(np.concatenate([filled, moved]), axis=0)
            order = np.argsort(self._scores(filled), kind="stable")
            filled = filled[order[:DETERMINANTS]]
            if not len(moved):
                break
        return np.asarray(filled[~self._is_wrong(self._labels(filled))])

    def broken(self) -> Array:
        """Determinants of broken spin symmetry: bool [determinant, spin, orbital].

        For every number of open shells: those of the mean field whose spins in them are all up, with the
        placement of spins up and down from which no exchange lowers the energy. None where alpha and beta
        have orbitals of their own.
        """
        integrals, found = self.integrals, []
        n, n_alpha, n_beta = integrals.n_orbitals, integrals.n_alpha, integrals.n_beta
        most = min(n_beta, n - n_alpha, OPENED) if integrals.has_common_orbitals else -1
        field = MeanField(integrals) if most >= 0 else None
        chance = np.random.default_rng(SEED)
        for more in range(most + 1):
            high = field.leading(n_alpha + more, n_beta - more)
            shells = np.flatnonzero(high[0] & ~high[1])
            placed = np.repeat(high[None], PLACEMENTS, axis=0)
            for bits in placed:
                down = chance.permutation(shells)[:more]
                bits[0, down], bits[1, down] = False, True
            placed = self._descended(placed)
            found.append(placed[np.argmin(self._scores(placed))])
        determinants = np.unique(np.array(found, bool).reshape(-1, 2, n), axis=0)
        fits = ~self._is_wrong(self._labels(determinants))
        fits &= (determinants[:, 0] ^ determinants[:, 1]).sum(1) >= self.least_open
        return np.asarray(determinants[fits])

    def _descended(self, filled: Array) -> Array:
        """Where exchanges of two spins lead, as long as they lower the energy."""
        filled, scores = filled.copy(), self._scores(filled)
        for at in range(len(filled)):
            while True:
                one = filled[at : at + 1]
                exchanges = self._scores_of_moves(one)[EXCHANGE:]
                _, _, leave, enter = np.unravel_index(np.argmin(exchanges), exchanges.shape)
                if not exchanges[0, 0, leave, enter] < scores[at] - LOWER:
                    break
                scores[at] = exchanges[0, 0, leave, enter]
                filled[at, 0, [leave, enter]] = False, True
                filled[at, 1, [leave, enter]] = True, False
        return filled

    def _labels(self, filled: Array) -> Array:
        """The representation of each determinant, from 0; 0 where none is asked for."""
        if self.irrep is None:
            return np.zeros(len(filled), np.int64)
        labels = np.array(self.integrals.labels.irreps) - 1
        return np.asarray(np.bitwise_xor.reduce(np.where(filled, labels, 0), axis=(1, 2)))

    def _is_wrong(self, labels: Array) -> Array:
        return np.asarray(labels != (0 if self.irrep is None else self.irrep - 1))

    def _counted(self, labels: Array, n_open: Array) -> Array:
        """What counts besides the energy."""
        return np.asarray(WRONG * self._is_wrong(labels) + WORSE * np.maximum(self.least_open - n_open, 0))

    def _scores(self, filled: Array) -> Array:
        """The energies of determinants, and what else counts."""
        e, (alpha, beta) = self.energies, filled.astype(float).transpose(1, 0, 2)
        within = ((alpha @ e.within_alpha) * alpha + (beta @ e.within_beta) * beta).sum(1) / 2
        found = alpha @ e.one_alpha + beta @ e.one_beta + within + ((alpha @ e.between) * beta).sum(1)
        return np.asarray(found + self._counted(self._labels(filled), (alpha != beta).sum(1)))

    def _moved(self, filled: Array) -> Array:
        """The determinants of least score that one move makes of any of those given."""
        n, found = filled.shape[2], [filled[:0]]
        rows = max(1, AT_ONCE // (3 * n * n))
        for first in range(0, len(filled), rows):
            part = filled[first : first + rows]
            scores = self._scores_of_moves(part)
            count = min(DETERMINANTS, int(np.isfinite(scores).sum()))
            if not count:
                continue
            lowest = np.argpartition(scores, count - 1, axis=None)[:count]
            kind, at, leave, enter = np.unravel_index(lowest, scores.shape)
            made, row = part[at], np.arange(count)
            for spin in (0, 1):
                # In an exchange of spins, beta's electron goes the other way.
                turns = (kind == EXCHANGE) & (spin == 1)
                gone, new = np.where(turns, enter, leave), np.where(turns, leave, enter)
                moves = row[kind != 1 - spin]
                made[moves, spin, gone[moves]] = False
                made[moves, spin, new[moves]] = True
            found.append(made)
        return np.concatenate(found)

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
        of = np.array(self.integrals.labels.irreps) if self.irrep is not None else np.zeros(filled.shape[2], int)
        moved_labels = labels ^ (of[:, None] - 1) ^ (of - 1)
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


def _first_families(keys: Array, families: SpinFamilies) -> Array:
    """The determinants of the first families, as many as can be diagonalized."""
    chosen, _ = families.largest(keys, -np.arange(len(keys)), MOST)
    if not chosen.any():
        least = int(families.counts(families.names(keys[:1]))[0])
        raise InputError(
            "--spin", f"with --grow needs all {least} placements of the spins in the open shells",
            f"leave it out: a growth starts with {MOST} determinants at most",
        )  # fmt: skip
    return np.asarray(keys[chosen])


def _frame(keys: Array, integrals: Integrals) -> tuple[Array, Array]:
    """Orthonormal columns of even (1) and odd (-1) states under the exchange of strings, and their parities.

    Unit columns of parity 0 where the Hamiltonian or the list has no such symmetry.
    """
    count = len(keys)
    half = keys.shape[1] // 2
    numbers = {key.tobytes(): number for number, key in enumerate(keys)}
    others = [numbers.get(np.roll(key, half).tobytes()) for key in keys]
    if not integrals.has_common_orbitals or None in others:
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
    return [np.flatnonzero(label == one) for one in np.unique(label)]


def _start(
    keys: Array, states: list[Array], parity: int, energy: float, families: SpinFamilies
) -> Start:
    """The determinants of large coefficients in a state, with all of their families."""
    sizes = np.max([np.abs(state) / np.abs(state).max() for state in states], axis=0)
    names = families.names(keys)
    large = {name.tobytes() for name in names[sizes >= SHARE]}
    chosen = np.array([name.tobytes() in large for name in names])
    parts = [state[chosen] for state in states]
    return Start(keys[chosen], [part / np.linalg.norm(part) for part in parts], parity, energy)
