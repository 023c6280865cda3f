"""The tiles of a state on a GPU, and which states go back together with another, also for predictions where
there is none. Knows sizes alone."""

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
MOST_WORDS = 64
"""Words that one launch sums: their sums of each warp are in shared memory."""
JOINT_FROM = 26
"""States of so many bits are taken back together with lambda, in passes compiled for both. That saves time of
the device; with smaller states the host takes longer, and the compiler the first time."""
