"""The determinant that a selection starts from where none is given: that of least energy nearby.

Knows integrals and labels of orbitals.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from tnplan.executor.sbd.basis.determinants import DeterminantList, from_bits
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.selected_ci.excitation_tables import DiagonalTerms
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.errors import InputError

LOWER = 1e-9
"""A move has to lower the energy by so many Hartree, so that rounding does not go round in circles."""


def reference_determinant(
    integrals: Integrals, energies: DiagonalTerms, irrep: int | None
) -> DeterminantList:
    """A determinant from which no move of one electron, or of one of each spin, lowers the energy.

    The search begins with the first orbitals filled, which over Hartree-Fock orbitals is the Hartree-Fock
    determinant. With an irreducible representation (from 1) one such move leads on to it.
    """
    n, counts = integrals.n_orbitals, (integrals.n_alpha, integrals.n_beta)
    filled = np.array([np.arange(n) < count for count in counts])
    while True:
        change, better = _lowest_move(filled, energies, None)
        if better is None or change > -LOWER:
            break
        filled = better
    if irrep is not None:
        labels = np.array(integrals.labels.irreps) - 1
        both = np.concatenate([labels[filled[0]], labels[filled[1]]])
        missing = int(np.bitwise_xor.reduce(both, initial=irrep - 1))
        if missing:
            _, moved = _lowest_move(filled, energies, (labels, missing))
            if moved is None:
                raise InputError(
                    "--grow", f"finds no determinant of symmetry {irrep} to start from", "give --determinants"
                )
            filled = moved
    return from_bits(filled[:1], filled[1:])


def _lowest_move(
    filled: Array, energies: DiagonalTerms, wanted: tuple[Array, int] | None
) -> tuple[float, Array | None]:
    """The change of energy of the best move, and what it leads to; None where there is no move.

    `wanted` are the labels of orbitals, and the product of those of all orbitals of the move.
    """
    moves = [_moves(filled, energies, spin) for spin in (0, 1)]
    labels = np.zeros(filled.shape[1], np.int64) if wanted is None else wanted[0]
    aim = 0 if wanted is None else wanted[1]
    best, found = np.inf, None
    for spin, (leave, enter, change) in enumerate(moves):
        fits = labels[leave] ^ labels[enter] == aim
        if fits.any() and (least := change[fits].min()) < best:
            at = int(np.flatnonzero(fits)[np.argmin(change[fits])])
            best, found = float(least), [(spin, leave[at], enter[at])]
    (q1, p1, first), (q2, p2, second) = moves
    if len(q1) and len(q2):
        between = energies.between
        for at in range(len(q1)):
            moved = between[p1[at]] - between[q1[at]]
            change = first[at] + second + moved[p2] - moved[q2]
            fits = labels[q1[at]] ^ labels[p1[at]] ^ labels[q2] ^ labels[p2] == aim
            if fits.any() and (least := change[fits].min()) < best:
                other = int(np.flatnonzero(fits)[np.argmin(change[fits])])
                best, found = float(least), [(0, q1[at], p1[at]), (1, q2[other], p2[other])]
    if found is None:
        return best, None
    result = filled.copy()
    for spin, leave, enter in found:
        result[spin, leave], result[spin, enter] = False, True
    return best, result


def _moves(filled: Array, energies: DiagonalTerms, spin: int) -> tuple[Array, Array, Array]:
    """Where an electron of a spin can leave and enter, and the change of energy."""
    one, within, between = (
        (energies.one_alpha, energies.within_alpha, energies.between)
        if spin == 0
        else (energies.one_beta, energies.within_beta, energies.between.T)
    )
    field = one + within @ filled[spin] + between @ filled[1 - spin]
    pairs = list(product(np.flatnonzero(filled[spin]), np.flatnonzero(~filled[spin])))
    leave, enter = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    return leave, enter, field[enter] - field[leave] - within[enter, leave]
