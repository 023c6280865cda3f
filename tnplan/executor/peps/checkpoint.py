"""The checkpoint of circuits by PEPS: the state after some of the gates, and what the caller adds.

Changelog of `tnplan.peps.checkpoint`:
1 (2026-12-01): first version.
2 (2026-12-02): an array for each edge and each site. Version 1 is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, BinaryIO

import numpy as np

from tnplan.common.array_file import ArrayHeader, read_next_array
from tnplan.common.arrays import Array
from tnplan.common.checkpoint import CheckpointFile
from tnplan.executor.peps.levels import Pair
from tnplan.executor.peps.state import PepsState, on_host

Saved = tuple[dict[str, Any], dict[Pair, Array]]
"""What all ranks need of a file: the document, and the weights of each edge."""


class PepsCheckpoint(CheckpointFile):
    """The state of a question by a PEPS: the weights of its edges, then the tensors of its sites.

    Rank 0 alone reads and writes, one tensor after another: it never has the whole state. So a file does not
    depend on the number of ranks.
    """

    FORMAT, VERSION = "tnplan.peps.checkpoint", 2
    OTHERS = "circuit, question or options"
    LEAST_S = 2.0

    def open(
        self, resume: bool, n_qubits: int, pairs: list[Pair], dtype: str, check: Callable[[Any], bool]
    ) -> Saved | None:
        """What to go on from, on rank 0 alone; None where no checkpoint stands. All of the file is checked.

        `check` says whether what the caller added can be.
        """
        self._shapes = PepsState(n_qubits, pairs, dtype)
        self._take: Callable[[int, Array], object] = lambda site, tensor: None

        def saved(document: dict[str, Any], _: dict[str, Array]) -> Saved:
            numbers = {name: float(document[name]) for name in ("fidelity", "largest_discarded")}
            if not check(document):
                raise ValueError
            return {**document, **numbers}, self._shapes.weights

        return self.restored(resume, saved)

    def put(self, state: PepsState, saved: Saved) -> None:
        """Let a new state have what `open` gave, and this rank's tensors of the file; collective."""
        document, weights = saved
        state.fidelity, state.largest_discarded = document["fidelity"], document["largest_discarded"]
        state.weights = {edge: state.xp.array(weights[edge]) for edge in state.weights}

        def take(site: int, tensor: Array | None) -> None:
            given = None if tensor is None else state.xp.asarray(tensor)
            given = state.sent(site, given, 0, state.owners[site])
            if state.is_mine(site):
                state.tensors[site] = given

        if state.rank == 0:
            self._take = take
            self.content(lambda *_: None)
        else:
            for site in range(len(state.tensors)):
                take(site, None)
        state.leave_to_owners()

    def write(self, state: PepsState, document: dict[str, Any]) -> None:
        """Replace the file; collective."""
        tensors = (
            state.sent(site, tensor, state.owners[site], 0) for site, tensor in enumerate(state.tensors)
        )
        if state.rank == 0:
            known = {"fidelity": state.fidelity, "largest_discarded": state.largest_discarded}
            arrays: Any = chain(state.weights.values(), tensors)
            self.replace({**document, **known}, arrays)
        else:
            for _ in tensors:
                pass
        if state.ranks is not None:
            # Invariant: no rank ends the job before the file stands.
            state.ranks.barrier()

    def _write_values(self, stream: Any, arrays: Any) -> None:
        for array in arrays[0]:
            np.save(stream, np.ascontiguousarray(on_host(array)), allow_pickle=False)

    def _read_values(self, stream: BinaryIO, size_bytes: int) -> dict[str, Array]:
        state = self._shapes

        def read(shape: tuple[int, ...] | None, dtype: Any) -> Array:
            def check(header: ArrayHeader) -> None:
                is_right = len(header.shape) == 1 if shape is None else header.shape == shape
                if not is_right or header.dtype != dtype or not 0 < header.size_bytes <= size_bytes:
                    raise ValueError

            array = read_next_array(stream, str(self.path), check)
            if not np.isfinite(array).all():
                raise ValueError
            return array

        state.weights = {edge: read(None, np.float64) for edge in state.weights}
        for site in range(len(state.tensors)):
            self._take(site, read(state.shape_of(site), state.dtype))
        return {}
