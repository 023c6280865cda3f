"""The tiles of a state on a GPU, which states have kernels for their passes, and which go back together with
another; also for predictions where there is no GPU. Knows sizes alone."""

from __future__ import annotations

from tnplan.executor.statevector.scheduling.tiled_passes import Tile

TILES = {"complex64": Tile(13, 3, 1, 4), "complex128": Tile(12, 2, 1, 3)}
"""64 KiB of shared memory, so that blocks on one multiprocessor read while others compute."""
PROGRAM_TILES = {"complex64": Tile(13, 3, 1, 5, True, 14), "complex128": Tile(12, 2, 1, 4, True, 13)}
"""Those of compiled passes."""
WORD_TILE_BITS = {"complex64": 13, "complex128": 12}
"""Those of inner products about Pauli words: 64 KiB, so that two blocks share a multiprocessor."""
WORD_RUN_BITS = {"complex64": 4, "complex128": 3}
"""Their runs of 128 bytes."""
PROGRAMS_FROM = 18
"""States of so many bits have passes for which kernels of their own may be compiled."""
RUNS, COMPILING_S = 25, 0.25
"""A kernel of a pass is worth waiting for where it saves, in so many runs, the seconds that it takes to be
compiled beside others."""
SLOWER_BY_TABLES, COPIED_BYTES_PER_S = 4.0, 2.5e12
"""Copies of the state by which a pass read from tables takes longer than a compiled one, and their rate."""
MOST_WORDS = 64
"""Words that one launch sums: their sums of each warp are in shared memory."""
JOINT_FROM = 26
"""States of so many bits are taken back together with lambda, in passes compiled for both. That saves time of
the device; with smaller states the host takes longer, and the compiler the first time."""


def saved_s(state_bytes: float) -> float:
    """Seconds that a pass takes less where it has a kernel of its own."""
    return SLOWER_BY_TABLES * 2 * state_bytes / COPIED_BYTES_PER_S


def has_tables(n_bits: int, state_bytes: float) -> bool:
    """Whether a state is too small to wait for kernels of its passes, which are read from tables then."""
    return n_bits < PROGRAMS_FROM or RUNS * saved_s(state_bytes) < COMPILING_S
