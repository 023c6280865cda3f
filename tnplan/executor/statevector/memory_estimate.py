"""How much memory a simulation takes, known before anything is allocated."""

from __future__ import annotations

import numpy as np

from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.executor.statevector.scheduling.tiled_passes import Tile

TILES_A_THREAD = 3
"""A thread holds one tile, and tables of a pass as large as one or two."""
SHOT_BYTES, OUTCOME_BYTES, ENTRY_BYTES = 64, 256, 256
"""What a shot, a string with its count, and an entry of a table of probabilities take on a host at most."""
GRADIENT_STATES = 3
"""States of which a gradient holds the amplitudes: the final one, and two that go back."""
MOST_OBSERVABLES = 8
"""For which a gradient holds states at once: more save little."""
LARGEST = 62
"""Qubits: a sample is a number of 63 bits."""


def predicted_bytes(
    n_qubits: int, dtype: str, tile: Tile, threads: int, ranks: int = 1, states: int = 1
) -> int:
    """The bytes that a rank of a simulation takes at most for the amplitudes of so many states, tiles and
    tables."""
    item = np.dtype(dtype).itemsize
    return states * (item << n_qubits) // ranks + tile_bytes(n_qubits, dtype, tile, threads)


def tile_bytes(n_qubits: int, dtype: str, tile: Tile, threads: int) -> int:
    """The bytes of the tiles and tables of so many threads."""
    return threads * TILES_A_THREAD * (np.dtype(dtype).itemsize << min(n_qubits, tile.bits))


def observables_at_once(n_sums: int, room_bytes: float, n_qubits: int, dtype: str, ranks: int) -> int:
    """For how many of some observables a gradient holds states at once, where `room_bytes` are left beside
    those for one of them."""
    state_bytes = (np.dtype(dtype).itemsize << n_qubits) / ranks
    return int(max(1, min(n_sums, MOST_OBSERVABLES, 1 + room_bytes // state_bytes)))


def check_answer_memory(shots: int | None, n_marginal: int, n_qubits: int, room_bytes: float) -> None:
    """Raise InputError where counts of shots and a table over some qubits need more bytes than there are."""
    counts = 0 if shots is None else shots * SHOT_BYTES + min(shots, 1 << n_qubits) * OUTCOME_BYTES
    table = ENTRY_BYTES << n_marginal if n_marginal else 0
    if counts + table > room_bytes:
        raise InputError(
            "--shots" if counts > table else "--marginal",
            f"takes {size_text(counts + table)} per rank besides the state, and "
            f"{size_text(max(0.0, room_bytes))} are there",
            f"ask for fewer {'shots' if counts > table else 'qubits'}",
        )
