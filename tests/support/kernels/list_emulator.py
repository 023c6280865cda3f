"""Kernels of selected-basis diagonalization on a CPU: g++ compiles them, CUDA's threads are fibers (simt)."""

from __future__ import annotations

import ctypes
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.root import ROOT
from tnplan.executor.sbd.cuda.list_steps import CupyList, list_defines, list_words

EMULATOR = Path(__file__).resolve().parent / "simt" / "emulator.hpp"
FOLDER = ROOT / "executor" / "sbd" / "cuda"
OPTIONS = ("-std=c++17", "-O1", "-fPIC", "-shared", "-w")
ONE_AT_A_TIME = threading.Lock()
"""The emulator runs one grid at a time; ranks are threads."""
FUNCTIONS = """
#define __popcll __builtin_popcountll
#define __ffs __builtin_ffs
#define __ffsll __builtin_ffsll
"""
ENTRY = re.compile(
    r'extern "C" __global__ void\s+(?:__launch_bounds__\(THREADS\)\s+)?(\w+)\((.*?)\) \{', re.DOTALL
)


class EmulatedKernels:
    """The kernels of a file with some definitions, compiled into a folder unless they are there."""

    def __init__(self, file: Path, defines: dict[str, Any], folder: Path) -> None:
        # The emulator has a type called Index.
        text = re.sub(r"\bIndex\b", "Place", file.read_text())
        lines = "".join(f"#define {name} {value}\n" for name, value in defines.items())
        source = folder / f"{file.stem}-{'-'.join(map(str, defines.values()))}.cpp"
        library = source.with_suffix(".so")
        with ONE_AT_A_TIME:  # ranks are threads
            if not library.exists():
                calls = "".join(map(_call, ENTRY.findall(text)))
                source.write_text(f'#include "{EMULATOR}"\n{FUNCTIONS}{lines}{text}{calls}')
                subprocess.run(["g++", *OPTIONS, str(source), "-o", str(library)], check=True)
        self._library, self._threads = ctypes.CDLL(str(library)), int(defines["THREADS"])

    def __call__(self, entry: str, blocks: int, *arguments: Any) -> None:
        """Run a kernel; arrays are changed in place."""
        assert all(isinstance(one, np.generic) or one.flags.c_contiguous for one in arguments)
        values = [np.asarray(one) for one in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
        with ONE_AT_A_TIME:
            getattr(self._library, f"emulated_{entry}")(blocks, self._threads, pointers)


class EmulatedList(CupyList):
    """See `batched_list.ListSteps`; arrays are NumPy's. `changed` are definitions besides those of a GPU."""

    def __init__(self, n_orbitals: int, folder: Path, **changed: int) -> None:
        self._n, self._folder, self._changed = n_orbitals, folder, changed
        self._kernels: dict[bool, EmulatedKernels] = {}

    def put(self, array: np.ndarray) -> np.ndarray:
        """A copy; words of strings as the kernels take them."""
        return np.array(list_words(array, self._n) if array.dtype == np.uint64 else array, order="C")

    def get(self, array: np.ndarray) -> np.ndarray:
        """The array itself."""
        return array

    def empty(self, *shape: int) -> np.ndarray:
        """An array, not set."""
        return np.full(shape, np.nan)

    def launch(self, entry: str, counting: bool, blocks: int, *arguments: Any) -> None:
        """Run a kernel; arrays are changed in place."""
        if counting not in self._kernels:
            defines = {**list_defines(self._n, counting), **self._changed}
            self._kernels[counting] = EmulatedKernels(FOLDER / "list_rows.cu", defines, self._folder)
        if blocks:
            self._kernels[counting](entry, blocks, *arguments)


def _call(kernel: tuple[str, str]) -> str:
    """A C function that takes pointers to the arguments: of scalars to the value, of arrays to the data."""
    entry, parameters = kernel
    given = []
    for number, parameter in enumerate(" ".join(parameters.split()).split(", ")):
        pointer = "*" in parameter
        kind = parameter.replace("__restrict__ ", "").rpartition("*" if pointer else " ")[0]
        given.append(f"({kind}*)a[{number}]" if pointer else f"*({kind}*)a[{number}]")
    return (
        f'extern "C" void emulated_{entry}(unsigned blocks, unsigned threads, void** a)\n'
        f"{{ run(blocks, 1, threads, [=] {{ {entry}({', '.join(given)}); }}); }}\n"
    )
