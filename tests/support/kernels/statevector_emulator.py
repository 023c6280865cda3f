"""The kernel of a pass on a CPU: g++ compiles it, CUDA's threads are fibers (emulator.hpp)."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.support.kernels.emulator import compiled, source
from tests.support.root import ROOT
from tnplan.executor.statevector.codegen.pass_program import PassProgram, tile_numbers
from tnplan.executor.statevector.scheduling.tiled_passes import Pass, Tile

KERNEL = ROOT / "tnplan" / "executor" / "statevector" / "cuda" / "kernels" / "program.cu"
BLOCKS = 3
MEET = "#define MEET(NUMBER, COUNT) __syncthreads()\n"
CALL = """
extern "C" void call(unsigned blocks, Amplitude* state, Place rank_base, const Tiles* tiles,
                     const Amplitude* factors, const Amplitude* tables, const Values* values, double* sums)
{
    run(blocks, 1, THREADS, [=] { run_program(state, rank_base, *tiles, factors, tables, *values, sums); });
}
"""


SWAP = KERNEL.with_name("swap.cu")
CALL_SWAP = """
extern "C" void call(const Sides* sides)
{
    run(3, 1, 32, [=] { swap_places(*sides); });
}
"""


def emulate_swap(sides: np.ndarray, defines: dict[str, Any]) -> None:
    """Swap a half of the places with each peer."""
    compiled(source(SWAP) + CALL_SWAP, defines).call(ctypes.c_void_p(sides.ctypes.data))


def emulate(
    state: np.ndarray, program: PassProgram, held: Sequence[int], defines: dict[str, Any], rank_base: int,
    bits: Sequence[int] = (),
) -> np.ndarray:  # fmt: skip
    """Do a pass in place on the part of a state that a rank has; a tile holds the bits `held`.

    The tiles are done for one value of `bits` after another. Returns the sums of words, one a `WordSum`.
    """
    sums = np.zeros((1 << len(bits), BLOCKS, len(program.sums)))
    text = re.sub(r"extern __shared__ (.*) shared\[\];", r"__shared__ \1 shared[1 << 16];", source(KERNEL))
    far = [bit for bit in range(len(state).bit_length() - 1) if bit not in held]
    turns = [one.tables(far, rank_base, program.has_far_pairs) for one in program.tile_phases]
    arrays = [program.factors, np.concatenate([np.zeros(0), *turns]), program.values]
    arrays = [array.astype(state.dtype) for array in arrays]
    factors, tables, values = (ctypes.c_void_p(array.ctypes.data) for array in arrays)
    library = compiled(MEET + text + CALL, defines)
    for part in range(1 << len(bits)):
        tiles = tile_numbers(len(state).bit_length() - 1, held, bits, part)
        library.call(
            BLOCKS, ctypes.c_void_p(state.ctypes.data), ctypes.c_longlong(rank_base),
            ctypes.c_void_p(tiles.ctypes.data), factors, tables, values,
            ctypes.c_void_p(sums[part].ctypes.data),
        )  # fmt: skip
    return np.asarray(sums.sum(axis=(0, 1)))


def program_text(made: PassProgram, item: Pass, tile: Tile, state: np.ndarray) -> dict[str, Any]:
    """The definitions of program.cu for a pass of a small tile."""
    return {
        "REAL": {"complex64": "float", "complex128": "double"}[state.dtype.name],
        "TILE_BITS": len(item.held_bits), "HELD": ",".join(map(str, item.held_bits)),
        "REGISTER_BITS": tile.register_bits, "BLOCKS": 1,
        "NUMBER_BITS": len(state).bit_length() - 1 - len(item.held_bits), "NEIGHBOURS": 1,
        "N_VALUES": len(made.values), "N_TWISTS": len(made.tile_phases),
        "HAS_FAR_PAIRS": int(made.has_far_pairs), "N_SUMS": len(made.sums), "STEPS": made.steps,
    }  # fmt: skip
