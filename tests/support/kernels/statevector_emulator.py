"""The kernel of a pass on a CPU: g++ compiles it, CUDA's threads are fibers (tests/simt)."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.root import ROOT
from tnplan.executor.statevector.codegen.pass_program import PassProgram, tile_numbers

EMULATOR = Path(__file__).resolve().parent / "simt" / "emulator.hpp"
KERNEL = ROOT / "executor" / "statevector" / "cuda" / "program.cu"
OPTIONS = ("-std=c++17", "-O1", "-fPIC", "-shared", "-w")
TYPES = """
#define __grid_constant__
#define __popcll __builtin_popcountll
inline int __double2hiint(double x) { return (int)(same_bits<unsigned long long>(x) >> 32); }
inline int __double2loint(double x) { return (int)same_bits<unsigned long long>(x); }
inline double __hiloint2double(int high, int low)
{
    return same_bits<double>((unsigned long long)(unsigned)high << 32 | (unsigned)low);
}
#define MEET(NUMBER, COUNT) __syncthreads()
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };
template <typename T> T __ldcg(const T* from) { return *from; }
template <typename T> T __ldg(const T* from) { return *from; }
template <typename T> void __stcg(T* to, T value) { *to = value; }
"""
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


def emulate_swap(sides: np.ndarray, defines: dict[str, Any], folder: Path) -> None:
    """Swap a half of the places with each peer."""
    library = _library(SWAP.read_text(encoding="utf-8"), CALL_SWAP, defines, folder)
    library.call(ctypes.c_void_p(sides.ctypes.data))


def _library(kernel: str, call: str, defines: dict[str, Any], folder: Path) -> ctypes.CDLL:
    lines = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    source = folder / "program.cpp"
    source.write_text(f'#include "{EMULATOR}"\n{TYPES}{lines}{kernel}{call}')
    library = folder / f"program{len(list(folder.iterdir()))}.so"
    subprocess.run(["g++", *OPTIONS, f"-I{KERNEL.parent}", str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def emulate(
    state: np.ndarray, program: PassProgram, held: Sequence[int], defines: dict[str, Any], rank_base: int,
    folder: Path, bits: Sequence[int] = (),
) -> None:  # fmt: skip
    """Do a pass in place on the part of a state that a rank has; a tile holds the bits `held`.

    The tiles are done for one value of `bits` after another.
    """
    kernel = KERNEL.read_text(encoding="utf-8")
    text = re.sub(r"extern __shared__ (.*) shared\[\];", r"__shared__ \1 shared[1 << 16];", kernel)
    far = [bit for bit in range(len(state).bit_length() - 1) if bit not in held]
    turns = [one.tables(far, rank_base, program.has_far_pairs) for one in program.tile_phases]
    arrays = [program.factors, np.concatenate([np.zeros(0), *turns]), program.values]
    arrays = [array.astype(state.dtype) for array in arrays]
    factors, tables, values = (ctypes.c_void_p(array.ctypes.data) for array in arrays)
    library = _library(text, CALL, defines, folder)
    for part in range(1 << len(bits)):
        tiles = tile_numbers(len(state).bit_length() - 1, held, bits, part)
        library.call(
            3, ctypes.c_void_p(state.ctypes.data), ctypes.c_longlong(rank_base),
            ctypes.c_void_p(tiles.ctypes.data), factors, tables, values,
        )  # fmt: skip
