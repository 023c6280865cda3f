"""Determinants of low energy, from many places: closed shells, and spins up and down in different orbitals.

Knows integrals, labels of orbitals and spins; no lists and no selection.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.selected_ci.excitation_tables import DiagonalTerms
from tnplan.executor.sbd.selected_ci.mean_field import MeanField

DETERMINANTS = 300
"""So many determinants of least energy are looked for, and diagonalized."""
ALIKE = 10
"""Moves that lead to one determinant, counted so that few are missed."""
FILLINGS, SEED = 20, 1
"""Places from which they are looked for besides the first orbitals: random fillings."""
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
        most, field = min(n_beta, n - n_alpha, OPENED), MeanField(integrals)
        chance = np.random.default_rng(SEED)
        for more in range(most + 1):
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
        """The representation of each determinant, from 0; 0 where none is asked for."""
        return np.asarray(np.bitwise_xor.reduce(np.where(filled, self._orbital_labels, 0), axis=(1, 2)))

    @property
    def _orbital_labels(self) -> Array:
        """The representation of each orbital, from 0; 0 where none is asked for."""
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
        """The determinants of least score that one move makes of any of those given."""
        n, best, best_scores = filled.shape[2], filled[:0], np.empty(0)
        rows = max(1, int(min(AT_ONCE, self.memory_bytes / MOVE_BYTES) // (3 * n * n)))
        for first in range(0, len(filled), rows):
            part = filled[first : first + rows]
            scores = self._scores_of_moves(part)
            count = min(ALIKE * DETERMINANTS, int(np.isfinite(scores).sum()))
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
            made, places = np.unique(np.concatenate([best, made]), axis=0, return_index=True)
            made_scores = np.concatenate([best_scores, scores.ravel()[lowest]])[places]
            order = np.argsort(made_scores, kind="stable")[:DETERMINANTS]
            best, best_scores = made[order], made_scores[order]
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
        of = self._orbital_labels
        moved_labels = labels ^ of[:, None] ^ of
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
