"""What the kernels of passes and measurements are compiled for: tiles, definitions, shared memory.

Also which states have kernels of their own, and which go back together with another: for predictions where
there is no GPU too. Knows no CuPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tnplan.executor.statevector.gates.multiplexed_gate import LARGEST_TARGETS
from tnplan.executor.statevector.scheduling.tiled_passes import Tile

if TYPE_CHECKING:
    from tnplan.executor.statevector.codegen.pass_program import PassProgram

KERNELS = Path(__file__).parent / "kernels"
PASS_FILE, PROGRAM_FILE, MEASURE_FILE = (KERNELS / name for name in ("pass.cu", "program.cu", "measure.cu"))
REALS = {"complex64": "float", "complex128": "double"}
"""The C type of real and imaginary parts."""
PROGRAM_THREADS = 512
"""Those on a multiprocessor, of two blocks, or one where tiles are wide; each has 128 registers at most."""
NEAR_BYTES = 128
"""Neighbouring tiles with shorter runs are done at the same time, so that memory has runs of so many."""
LEAST_NUMBER_BITS = 8
"""Passes of fewer than 2^8 tiles are not done so."""
REGISTER_BITS = 4
"""Bits of the index that a thread has in registers, of passes read from tables."""
PASS_THREADS = 512
"""Threads of a block of a pass read from tables."""
MEASURE_THREADS = 256
"""Threads of a block of measure.cu."""
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
MOST_WORDS = 64
"""Words that one launch sums: their sums of each warp are in shared memory."""
JOINT_FROM = 26
"""States of so many bits are taken back together with lambda, in passes compiled for both. That saves time of
the device; with smaller states the host takes longer, and the compiler the first time."""


def pass_defines(dtype: str, tile_bits: int, targets: int = LARGEST_TARGETS) -> dict[str, str | int]:
    """The definitions of pass.cu for tiles of so many bits, and gates on so many targets (of `TARGETS`)."""
    return {
        "REAL": REALS[dtype], "TILE_BITS": tile_bits, "REGISTER_BITS": min(REGISTER_BITS, tile_bits),
        "THREADS": min(PASS_THREADS, 1 << max(0, tile_bits - REGISTER_BITS)),
        "MOST_TARGETS": targets,
    }  # fmt: skip


def program_defines(
    dtype: str, program: PassProgram, held_bits: Sequence[int], register_bits: int, n_bits: int
) -> dict[str, str | int]:
    """The definitions of program.cu for a pass that holds some bits of the `n_bits` of a rank."""
    return {
        "REAL": REALS[dtype], "TILE_BITS": len(held_bits), "REGISTER_BITS": register_bits,
        "BLOCKS": max(1, PROGRAM_THREADS >> (len(held_bits) - register_bits)),
        "HELD": ",".join(map(str, held_bits)), "NUMBER_BITS": n_bits - len(held_bits),
        "NEIGHBOURS": neighbours(dtype, held_bits, n_bits),
        "N_VALUES": len(program.values), "N_TWISTS": len(program.tile_phases),
        "HAS_FAR_PAIRS": int(program.has_far_pairs), "N_SUMS": len(program.sums), "STEPS": program.steps,
    }  # fmt: skip


def neighbours(dtype: str, held_bits: Sequence[int], n_bits: int) -> int:
    """How many blocks do neighbouring tiles at the same time."""
    run_bits = next((k for k, bit in enumerate(held_bits) if k != bit), len(held_bits))
    if n_bits - len(held_bits) < LEAST_NUMBER_BITS:
        return 1
    return max(1, NEAR_BYTES // (np.dtype(dtype).itemsize << run_bits))


def program_bytes(dtype: str, n_entries: int, tile_bits: int, n_totals: int = 0) -> int:
    """The shared memory of a block of program.cu: totals of warps, factors of tiles, and a tile with gaps."""
    item = np.dtype(dtype).itemsize
    digits = 4 if item == 8 else 3
    last = (1 << tile_bits) - 1
    totals = -(-8 * n_totals // item)
    return item * (totals + 2 * n_entries + 1 + sum(last >> k * digits for k in range(5)))


def measure_defines(dtype: str) -> dict[str, str | int]:
    """The definitions of measure.cu."""
    return {"REAL": REALS[dtype], "THREADS": MEASURE_THREADS}


def shared_bytes(dtype: str, tile_bits: int) -> int:
    """The shared memory of a block: a tile, the tables of a phase polynomial, and its angles."""
    low = (tile_bits + 1) // 2
    entries = (1 << tile_bits) + (1 << low) + (1 << (tile_bits - low))
    return entries * np.dtype(dtype).itemsize + 8 * (tile_bits + 1 + (tile_bits + 1) % 2)


RUNS, COMPILING_S = 25, 0.25
"""A kernel of a pass is worth waiting for where it saves, in so many runs, the seconds that it takes to be
compiled beside others."""
SLOWER_BY_TABLES, COPIED_BYTES_PER_S = 4.0, 2.5e12
"""Copies of the state by which a pass read from tables takes longer than a compiled one, and their rate."""


def saved_s(state_bytes: float) -> float:
    """Seconds that a pass takes less where it has a kernel of its own."""
    return SLOWER_BY_TABLES * 2 * state_bytes / COPIED_BYTES_PER_S


def has_tables(n_bits: int, state_bytes: float) -> bool:
    """Whether a state is too small to wait for kernels of its passes, which are read from tables then."""
    return n_bits < PROGRAMS_FROM or RUNS * saved_s(state_bytes) < COMPILING_S
