"""The options of a selection of determinants: thresholds, sizes and the correction.

Knows numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.checkpoint import CheckpointFile
from tnplan.common.checks import check_count, is_finite, is_number
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.determinants import DeterminantList
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.orbitals import UNITARY
from tnplan.executor.sbd.selected_ci.connections import from_keys, member_keys, unpacked_keys

# How far a growing list is, and its checkpoint on disk after every solve.
#
# Changelog of `tnplan.sbd.growth`:
# 1 (2026-11-26): first version.
# 2 (2026-11-29): as `tnplan.common.checkpoint`; `starts`; lists closed under spin flips. Version 1 is
# refused.
# 3 (2026-12-01): `orbital_lists` and the array `rotation`, which is 1 where orbitals stay.
# 4 (2026-12-03): errors of corrections. Version 3 is refused.


COLUMNS = ("energies_hartree", "corrections_hartree", "correction_errors_hartree")
"""What a point of a growth has of each root."""
LENGTH_ERROR = 1e-2
"""How far from 1 the length of a checkpoint's state may be."""


@dataclass
class GrowthState:
    """A list, the states in it with their energies in Hartree, and what led there.

    `n_done` counts the thresholds that are done. `ended` says what limit ended the growth, empty before.
    `iterations`, `points`, `starts` and `orbital_lists` are those of the report. `rotation` [given orbital,
    orbital] is that of orbitals that were optimized; the determinants are over the rotated ones.
    """

    basis: DeterminantList
    states: list[Array] = field(default_factory=list)
    energies: list[float] = field(default_factory=list)
    n_done: int = 0
    ended: str = ""
    iterations: list[dict[str, Any]] = field(default_factory=list)
    points: list[dict[str, Any]] = field(default_factory=list)
    starts: list[dict[str, Any]] = field(default_factory=list)
    orbital_lists: list[dict[str, Any]] = field(default_factory=list)
    rotation: Array | None = None

    @property
    def weights(self) -> Array:
        """The largest magnitude that each determinant has in a state."""
        return np.asarray(np.max(np.abs(self.states), axis=0))


class GrowthCheckpoint(CheckpointFile):
    """The checkpoint of one growth."""

    FORMAT, VERSION, ARRAYS = "tnplan.sbd.growth", 4, ("keys", "states", "rotation")
    JOB, OTHERS = "growth", "integrals, determinants or options"

    def write(self, state: GrowthState) -> None:
        """Replace the file."""
        document = {
            "energies": state.energies, "place": state.n_done, "ended": state.ended,
            "iterations": state.iterations, "points": state.points, "starts": state.starts,
            "orbital_lists": state.orbital_lists,
        }  # fmt: skip
        n_orbitals = state.basis.alpha_strings.n_orbitals
        rotation = np.eye(n_orbitals) if state.rotation is None else state.rotation
        self.replace(document, member_keys(state.basis), np.array(state.states), rotation)

    def read(self, integrals: Integrals, resume: bool) -> GrowthState | None:
        """The state to go on from; None where no checkpoint stands. Refuses one of another growth."""
        return self.restored(resume, lambda document, arrays: _state(document, **arrays, integrals=integrals))


def _state(
    document: dict[str, Any], keys: Array, states: Array, rotation: Array, integrals: Integrals
) -> GrowthState:
    """What a checkpoint holds; ValueError where its values do not fit each other."""
    n, dtype = integrals.n_orbitals, np.complex128 if integrals.is_complex else np.float64
    n_words = 2 * max(1, -(-n // 64))
    if keys.dtype != np.uint64 or keys.shape != (len(keys), n_words) or not len(keys):
        raise ValueError
    bits = unpacked_keys(keys, n)
    counts = bits.sum(2)
    if (counts != [integrals.n_alpha, integrals.n_beta]).any() or len(np.unique(keys, axis=0)) != len(keys):
        raise ValueError
    if states.dtype != dtype or states.shape != (len(states), len(keys)) or not len(states):
        raise ValueError
    if not (np.abs(np.linalg.norm(states, axis=1) - 1) < LENGTH_ERROR).all():
        raise ValueError
    if rotation.dtype != np.float64 or rotation.shape != (n, n):
        raise ValueError
    if not np.abs(rotation.T @ rotation - np.eye(n)).max() <= UNITARY:
        raise ValueError
    basis = from_keys(keys, n)
    state = GrowthState(
        basis, list(states[:, basis.given]), [float(energy) for energy in document["energies"]],
        int(document["place"]), str(document["ended"]), list(document["iterations"]),
        list(document["points"]), list(document["starts"]), list(document["orbital_lists"]),
        rotation if document["orbital_lists"] else None,
    )  # fmt: skip
    if len(state.energies) != len(state.states) or not np.isfinite(state.energies).all() or state.n_done < 0:
        raise ValueError
    for point in state.points:
        _check_point(point)
    reports = [*state.iterations, *state.starts, *state.orbital_lists]
    if not all(isinstance(point, dict) for point in reports):
        raise ValueError
    return state


def _check_point(point: dict[str, Any]) -> None:
    """Refuse a point of the report that is not as `grow` makes it."""
    int(point["determinants"])
    lists = [point[name] for name in COLUMNS]
    if not all(isinstance(column, list) and np.isfinite(np.array(column, float)).all() for column in lists):
        raise ValueError
    if len({len(column) for column in lists}) != 1:
        raise ValueError


FIRST, LAST, LEAST = 1e-2, 5e-4, 1e-7
"""Thresholds where none are given: from FIRST, each half of the one before, while they are above LAST; above
LEAST where the number of determinants ends the series."""

EPSILON_PT2 = 1e-7
"""Terms up to this, in Hartree, are left out of the second-order correction by default."""

MOST_SURPLUS = 100
"""Times `Growth.determinants`."""


@dataclass(frozen=True, repr=False)
class Growth:
    """How a list of determinants grows by heat-bath selection.

    Parameters
    ----------
    epsilons
        Thresholds in Hartree, falling. A determinant a is selected where |H_ai c_i| is above the threshold
        for some determinant i of the list. Default: 0.01 and its halves, down to 6.25e-4, or until
        there are so many `determinants`.
    determinants
        Determinants at most. The list first grows beyond, and is then cut to those of largest coefficients.
    epsilon_pt2
        Terms H_ai c_i up to this, in Hartree, are left out of the second-order correction. None: no
        correction.
    pt2_error
        The standard error that a correction may have, in Hartree. Terms below a hundredth of the threshold
        are sampled until it is reached; all are summed where that takes no longer, as for short lists.
        Default: all are summed.
    stable
        A threshold is done when it adds no more than this share of the list.
    surplus
        How many times `determinants` the list may have before it is cut, 1 or more.
    flips
        Whether a determinant and its spin flip stand in the list together where both spins have as many
        electrons and the same orbitals, so that states are even or odd. Without, half as many determinants
        may do where the two halves of such a state hardly couple; S^2 is less exact then.
    optimize_orbitals
        The determinants of the longest list in which orbitals are rotated to the least energy, before the
        growth itself: 50 to 75 at first, and 1.5 times as many each time. The list that grows is over the
        rotated orbitals. 0: over those given.

    Raises
    ------
    InputError
        For values that cannot be.

    Examples
    --------
    >>> tnplan.Growth((1e-3, 5e-4), 100_000)
    Growth(2 thresholds from 0.001 to 0.0005 Ha, 100000 determinants at most)
    """

    epsilons: tuple[float, ...] = ()
    determinants: int | None = None
    epsilon_pt2: float | None = EPSILON_PT2
    pt2_error: float | None = None
    stable: float = 0.01
    surplus: float = 3.0
    flips: bool = True
    optimize_orbitals: int = 0

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "epsilons", tuple(self.epsilons))
        except TypeError:
            remedy = "give a tuple of thresholds, such as (1e-2, 1e-3)"
            raise InputError("--epsilon", f"is {self.epsilons!r}", remedy) from None
        for value in self.epsilons:
            _check("--epsilon", value, "give Hartrees of 0 or more, such as 1e-3")
        for before, after in pairwise(self.epsilons):
            if not after < before:
                raise InputError(
                    "--epsilon", f"is {after:g} after {before:g}", "give thresholds that become smaller"
                )
        if self.determinants is not None:
            check_count("--grow-to", self.determinants)
        check_count("--optimize-orbitals", self.optimize_orbitals, 0, self.determinants)
        if self.epsilon_pt2 is not None:
            _check("--epsilon-pt2", self.epsilon_pt2, "give Hartrees of 0 or more, such as 1e-7")
        if self.pt2_error is not None:
            if not (is_finite(self.pt2_error) and self.pt2_error > 0):
                remedy = "give Hartrees above 0, such as 1e-5"
                raise InputError("--pt2-error", f"is {self.pt2_error!r}", remedy)
            if self.epsilon_pt2 is None:
                raise InputError("--pt2-error", "is given without a correction", "leave it out")
        if not (is_number(self.stable) and 0 <= self.stable < 1):
            raise InputError("growth: stable", f"is {self.stable!r}", "give a share of 0 or more, below 1")
        if not (is_number(self.surplus) and 1 <= self.surplus <= MOST_SURPLUS):
            raise InputError("growth: surplus", f"is {self.surplus!r}", f"give 1 to {MOST_SURPLUS}")

    def __repr__(self) -> str:
        ends = f"{len(self.series)} thresholds from {self.series[0]:g} to {self.series[-1]:g} Ha"
        size = "" if self.determinants is None else f", {self.determinants} determinants at most"
        return f"Growth({ends}{size})"

    @property
    def most(self) -> int | None:
        """Determinants at most before the list is cut."""
        return None if self.determinants is None else int(self.determinants * self.surplus)

    @property
    def series(self) -> tuple[float, ...]:
        """All thresholds, in Hartree."""
        if self.epsilons:
            return self.epsilons
        last, thresholds = LAST if self.determinants is None else LEAST, [FIRST]
        while thresholds[-1] / 2 > last:
            thresholds.append(thresholds[-1] / 2)
        return tuple(thresholds)

    @property
    def least_term(self) -> float:
        """Elements up to this are never needed, since no coefficient is above 1."""
        return min(self.series if self.epsilon_pt2 is None else (*self.series, self.epsilon_pt2))


def _check(place: str, value: Any, remedy: str) -> None:
    if not (is_finite(value) and value >= 0):
        raise InputError(place, f"is {value!r}", remedy)
