"""How far a growing list is, and its checkpoint on disk after every solve.

Changelog of `tnplan.sbd.growth`:
1 (2026-11-26): first version.
2 (2026-11-29): as `tnplan.common.checkpoint`; `starts`; lists closed under spin flips. Version 1 is
refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.checkpoint import CheckpointFile
from tnplan.executor.sbd.basis.determinants import DeterminantList
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.selected_ci.connections import from_keys, member_keys, unpacked_keys

LENGTH_ERROR = 1e-2
"""How far from 1 the length of a checkpoint's state may be."""


@dataclass
class GrowthState:
    """A list, the states in it with their energies in Hartree, and what led there.

    `place` counts the thresholds that are done. `ended` says what limit ended the growth, empty before.
    `iterations`, `points` and `starts` are those of the report.
    """

    basis: DeterminantList
    states: list[Array] = field(default_factory=list)
    energies: list[float] = field(default_factory=list)
    place: int = 0
    ended: str = ""
    iterations: list[dict[str, Any]] = field(default_factory=list)
    points: list[dict[str, Any]] = field(default_factory=list)
    starts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def weights(self) -> Array:
        """The largest magnitude that each determinant has in a state."""
        return np.asarray(np.max(np.abs(self.states), axis=0))


class GrowthCheckpoint(CheckpointFile):
    """The checkpoint of one growth."""

    FORMAT, VERSION, ARRAYS = "tnplan.sbd.growth", 2, ("keys", "states")
    JOB, OTHERS = "growth", "integrals, determinants or options"

    def write(self, state: GrowthState) -> None:
        """Replace the file."""
        document = {
            "energies": state.energies, "place": state.place, "ended": state.ended,
            "iterations": state.iterations, "points": state.points, "starts": state.starts,
        }  # fmt: skip
        self.replace(document, member_keys(state.basis), np.array(state.states))

    def read(self, integrals: Integrals, resume: bool) -> GrowthState | None:
        """The state to go on from; None where no checkpoint stands. Refuses one of another growth."""
        return self.restored(resume, lambda document, arrays: _state(document, **arrays, integrals=integrals))


def _state(document: dict[str, Any], keys: Array, states: Array, integrals: Integrals) -> GrowthState:
    """What a checkpoint holds; ValueError where parts do not fit each other."""
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
    basis = from_keys(keys, n)
    state = GrowthState(
        basis, list(states[:, basis.given]), [float(energy) for energy in document["energies"]],
        int(document["place"]), str(document["ended"]), list(document["iterations"]),
        list(document["points"]), list(document["starts"]),
    )  # fmt: skip
    if len(state.energies) != len(state.states) or not np.isfinite(state.energies).all() or state.place < 0:
        raise ValueError
    for one in state.points:
        _check_point(one)
    if not all(isinstance(one, dict) for one in [*state.iterations, *state.starts]):
        raise ValueError
    return state


def _check_point(point: dict[str, Any]) -> None:
    """Refuse a point of the report that is not as `grow` makes it."""
    int(point["determinants"])
    lists = [point[name] for name in ("energies_hartree", "corrections_hartree")]
    if not all(isinstance(one, list) and np.isfinite(np.array(one, np.float64)).all() for one in lists):
        raise ValueError
    if len({len(one) for one in lists}) != 1:
        raise ValueError
