"""The checkpoint of circuits by PEPS: the state after some of the gates, and what the caller adds.

Changelog of `tnplan.peps.checkpoint`:
1 (2026-12-01): first version.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.checkpoint import CheckpointFile
from tnplan.executor.peps.levels import Pair
from tnplan.executor.peps.state import PepsState, on_host


class PepsCheckpoint(CheckpointFile):
    """The state of a question by a PEPS on one rank."""

    FORMAT, VERSION, ARRAYS = "tnplan.peps.checkpoint", 1, ("tensors", "weights")
    OTHERS = "circuit, question or options"
    LEAST_S = 2.0

    def open(
        self, resume: bool, n_qubits: int, pairs: list[Pair], dtype: str, check: Callable[[Any], bool]
    ) -> tuple[dict[str, Any], list[Array]] | None:
        """The document and the arrays to go on from; None where no checkpoint stands.

        `check` says whether what the caller added can be.
        """

        def state_of(
            document: dict[str, Any], arrays: dict[str, Array]
        ) -> tuple[dict[str, Any], list[Array]]:
            both = [arrays[name] for name in self.ARRAYS]
            put(PepsState(n_qubits, pairs, dtype), document, both)
            if not check(document):
                raise ValueError
            return document, both

        return self.restored(resume, state_of)

    def write(self, state: PepsState, document: dict[str, Any]) -> None:
        """Replace the file."""
        weights = [on_host(weights) for weights in state.weights.values()]
        known = {
            **document, "bonds": [len(one) for one in weights], "fidelity": state.fidelity,
            "largest_discarded": state.largest_discarded,
        }  # fmt: skip
        tensors = np.concatenate([on_host(tensor).ravel() for tensor in state.tensors])
        self.replace(known, tensors, np.concatenate([np.empty(0), *weights]))


def put(state: PepsState, document: dict[str, Any], arrays: list[Array]) -> None:
    """Let a new state have what was written; ValueError where the parts do not fit each other."""
    tensors, weights = arrays
    bonds = dict(zip(state.weights, document["bonds"], strict=True))
    shapes = [
        (*(bonds[min(site, end), max(site, end)] for end in ends), 2)
        for site, ends in enumerate(state.neighbours)
    ]
    is_right = (
        tensors.dtype == state.dtype and weights.dtype == np.float64 and min(bonds.values(), default=1) > 0
    )
    if not is_right or tensors.shape != (sum(map(prod, shapes)),) or weights.shape != (sum(bonds.values()),):
        raise ValueError
    if not (np.isfinite(tensors).all() and np.isfinite(weights).all()):
        raise ValueError
    # Copies: the bits of products may depend on where arrays begin.
    first = 0
    for site, shape in enumerate(shapes):
        values = tensors[first : first + prod(shape)].reshape(shape).copy()
        state.tensors[site], first = state.xp.asarray(values), first + values.size
    first = 0
    for edge, bond in bonds.items():
        state.weights[edge], first = state.xp.asarray(weights[first : first + bond].copy()), first + bond
    state.fidelity = float(document["fidelity"])
    state.largest_discarded = float(document["largest_discarded"])
