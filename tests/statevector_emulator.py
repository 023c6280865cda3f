"""The kernel of a pass on a CPU: g++ compiles it, CUDA's threads are fibers (tests/simt)."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from executor.statevector.program import Program

EMULATOR = Path(__file__).resolve().parent / "simt" / "emulator.hpp"
KERNEL = Path(__file__).resolve().parents[1] / "executor" / "device" / "kernels" / "state_program.cu"
OPTIONS = ("-std=c++17", "-O1", "-fPIC", "-shared", "-w")
TYPES = """
#define __grid_constant__
#define MEET(NUMBER, COUNT) __syncthreads()
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };
template <typename T> T __ldcg(const T* from) { return *from; }
template <typename T> T __ldg(const T* from) { return *from; }
template <typename T> void __stcg(T* to, T value) { *to = value; }
"""
CALL = """
extern "C" void call(unsigned blocks, Amplitude* state, Place rank_base, Place n_tiles,
                     const Amplitude* factors, const Amplitude* tables, const Values* values)
{
    run(blocks, 1, THREADS, [=] { run_program(state, rank_base, n_tiles, factors, tables, *values); });
}
"""


def emulate(
    state: np.ndarray, program: Program, defines: dict[str, Any], n_tiles: int, rank_base: int, folder: Path
) -> None:
    """Do a pass in place on a state."""
    kernel = KERNEL.read_text(encoding="utf-8")
    text = re.sub(r"extern __shared__ (.*) shared\[\];", r"__shared__ \1 shared[1 << 16];", kernel)
    lines = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    source = folder / "program.cpp"
    source.write_text(f'#include "{EMULATOR}"\n{TYPES}{lines}{text}{CALL}')
    library = folder / f"program{len(list(folder.iterdir()))}.so"
    subprocess.run(["g++", *OPTIONS, str(source), "-o", str(library)], check=True)
    tables = [program.factors.astype(state.dtype), program.phases, program.values.astype(state.dtype)]
    factors, phases, values = (ctypes.c_void_p(table.ctypes.data) for table in tables)
    ctypes.CDLL(str(library)).call(
        3, ctypes.c_void_p(state.ctypes.data), ctypes.c_longlong(rank_base), ctypes.c_longlong(n_tiles),
        factors, phases, values,
    )  # fmt: skip
