"""The kernel of a pass on a CPU: g++ compiles it, CUDA's threads are fibers (tests/simt)."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.support.kernels.emulator import compiled, source
from tests.support.root import ROOT
from tnplan.executor.statevector.codegen.pass_program import PassProgram, tile_numbers

KERNEL = ROOT / "executor" / "statevector" / "cuda" / "program.cu"
MEET = "#define MEET(NUMBER, COUNT) __syncthreads()\n"
CALL = """
extern "C" void call(unsigned blocks, Amplitude* state, Place rank_base, const Tiles* tiles,
                     const Amplitude* factors, const Amplitude* tables, const Values* values)
{
    run(blocks, 1, THREADS, [=] { run_program(state, rank_base, *tiles, factors, tables, *values); });
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
) -> None:  # fmt: skip
    """Do a pass in place on the part of a state that a rank has; a tile holds the bits `held`.

    The tiles are done for one value of `bits` after another.
    """
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
            3, ctypes.c_void_p(state.ctypes.data), ctypes.c_longlong(rank_base),
            ctypes.c_void_p(tiles.ctypes.data), factors, tables, values,
        )  # fmt: skip
