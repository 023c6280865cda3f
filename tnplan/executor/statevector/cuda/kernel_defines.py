"""What the kernels of passes and measurements are compiled for: tiles, definitions, shared memory.

Also which states have kernels of their own, and which go back together with another: for predictions where
there is no GPU too. Knows no CuPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tnplan.executor.statevector.gates.multiplexed_gate import LARGEST_TARGETS
from tnplan.executor.statevector.packed_error import BLOCK_BITS, codes_bytes
from tnplan.executor.statevector.scheduling.tiled_passes import WIDE_FROM, Tile

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
CODED_TILES = {
    "complex64": Tile(13, BLOCK_BITS, 1, 4, block_bits=BLOCK_BITS),
    "complex128": Tile(12, BLOCK_BITS, 1, 3, block_bits=BLOCK_BITS),
}
CODED_PROGRAM_TILES = {
    "complex64": Tile(13, BLOCK_BITS, 1, 5, True, block_bits=BLOCK_BITS),
    "complex128": Tile(12, BLOCK_BITS, 1, 4, True, block_bits=BLOCK_BITS),
}
"""Those of compressed states, read from tables and compiled; runs are whole blocks."""
WARP = 32
WORD_TILE_BITS = {"complex64": 13, "complex128": 12}
"""Those of inner products about Pauli words: 64 KiB, so that two blocks share a multiprocessor."""
WORD_RUN_BITS = {"complex64": 4, "complex128": 3}
"""Their runs of 128 bytes."""
PROGRAMS_FROM = 18
"""States of so many bits have passes for which kernels of their own may be compiled."""
MOST_ENTRIES = 1024
"""Factors of a tile that a block has room for besides it: those of some twelve phase polynomials."""
CHUNK_BITS, TABLES_AT_ONCE = 12, 16
"""Of a measurement's chunks, as samples take them; passes whose tables are there together, or a few more."""
MOST_WORDS = 64
"""Words that one launch sums: their sums of each warp are in shared memory."""
JOINT_FROM = 26
"""States of so many bits are taken back together with lambda, in passes compiled for both. That saves time of
the device; with smaller states the host takes longer, and the compiler the first time."""


def coded_tile(dtype: str, n_bits: int, most_bytes: int = 1 << 30) -> Tile:
    """That of passes over a compressed state, whose block may have so many bytes of shared memory.

    It is wide in states where plain ones have wide tiles.
    """
    tile = (CODED_PROGRAM_TILES if n_bits >= PROGRAMS_FROM else CODED_TILES)[dtype]
    if n_bits >= WIDE_FROM and program_bytes(dtype, MOST_ENTRIES, tile.bits + 1) <= most_bytes:
        return replace(tile, bits=tile.bits + 1)
    return tile


def coded_bytes(n_bits: int, bits: int, dtype: str) -> int:
    """The bytes that a GPU needs for a compressed state.

    They are numbers, scales, the sums of a measurement, and tables of passes, which may have a factor for
    each tile.
    """
    tables = np.dtype(dtype).itemsize << max(0, n_bits - coded_tile(dtype, n_bits).bits)
    return codes_bytes(n_bits, bits) + (8 << max(0, n_bits - CHUNK_BITS)) + TABLES_AT_ONCE * tables


def of_codes(code_bits: int) -> dict[str, str | int]:
    """What the definitions of a kernel have besides where the state is compressed; nothing for 0 bits."""
    return {"CODE_BITS": code_bits} if code_bits else {}


def pass_defines(
    dtype: str, tile_bits: int, targets: int = LARGEST_TARGETS, code_bits: int = 0
) -> dict[str, str | int]:
    """The definitions of pass.cu for tiles of so many bits, and gates on so many targets (of `TARGETS`)."""
    threads = max(WARP if code_bits else 1, 1 << max(0, tile_bits - REGISTER_BITS))
    return {
        "REAL": REALS[dtype], "TILE_BITS": tile_bits, "REGISTER_BITS": min(REGISTER_BITS, tile_bits),
        "THREADS": min(PASS_THREADS, threads), "MOST_TARGETS": targets, **of_codes(code_bits),
    }  # fmt: skip


def program_defines(
    dtype: str, program: PassProgram, held_bits: Sequence[int], register_bits: int, n_bits: int,
    code_bits: int = 0,
) -> dict[str, str | int]:  # fmt: skip
    """The definitions of program.cu for a pass that holds some bits of the `n_bits` of a rank."""
    item_bytes = 2 * code_bits // 8 or np.dtype(dtype).itemsize
    return {
        "REAL": REALS[dtype], "TILE_BITS": len(held_bits), "REGISTER_BITS": register_bits,
        "BLOCKS": max(1, PROGRAM_THREADS >> (len(held_bits) - register_bits)),
        "HELD": ",".join(map(str, held_bits)), "NUMBER_BITS": n_bits - len(held_bits),
        "NEIGHBOURS": neighbours(item_bytes, held_bits, n_bits),
        "N_VALUES": len(program.values), "N_TWISTS": len(program.tile_phases),
        "HAS_FAR_PAIRS": int(program.has_far_pairs), "N_SUMS": len(program.sums), "STEPS": program.steps,
        **of_codes(code_bits),
    }  # fmt: skip


def neighbours(item_bytes: int, held_bits: Sequence[int], n_bits: int) -> int:
    """How many blocks do neighbouring tiles of amplitudes of so many bytes at the same time."""
    run_bits = next((k for k, bit in enumerate(held_bits) if k != bit), len(held_bits))
    if n_bits - len(held_bits) < LEAST_NUMBER_BITS:
        return 1
    return max(1, NEAR_BYTES // (item_bytes << run_bits))


def program_bytes(dtype: str, n_entries: int, tile_bits: int, n_totals: int = 0) -> int:
    """The shared memory of a block of program.cu: totals of warps, factors of tiles, and a tile with gaps."""
    item = np.dtype(dtype).itemsize
    digits = 4 if item == 8 else 3
    last = (1 << tile_bits) - 1
    totals = -(-8 * n_totals // item)
    return item * (totals + 2 * n_entries + 1 + sum(last >> k * digits for k in range(5)))


def measure_defines(dtype: str, code_bits: int = 0) -> dict[str, str | int]:
    """The definitions of measure.cu."""
    return {"REAL": REALS[dtype], "THREADS": MEASURE_THREADS, **of_codes(code_bits)}


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
