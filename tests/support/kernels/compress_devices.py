"""Where the CUDA kernels of compress/ run in tests: a GPU, or g++ with CUDA's threads as fibers (tests/simt).

Both are a `tnplan.compress.gpu.device.KernelDevice`.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.compress.gpu import launches
from tnplan.compress.gpu.launches import KernelLaunch

EMULATOR = Path(__file__).resolve().parent / "simt" / "emulator.hpp"
OPTIONS = ("-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-w")


def source(file: Path) -> str:
    """A kernel file with the files that it includes."""
    text = file.read_text(encoding="utf-8")
    return re.sub(r'^#include "(.+)"$', lambda line: source(file.parent / line[1]), text, flags=re.MULTILINE)


def has_compiler() -> bool:
    """Whether g++ is here."""
    return shutil.which("g++") is not None


class Emulated:
    """Kernels of one dtype, compiled by g++ into a folder."""

    def __init__(self, dtype: str, folder: Path) -> None:
        self.folder = folder
        self.dtype = dtype
        self.libraries: dict[str, ctypes.CDLL] = {}

    def __call__(self, launch: KernelLaunch, *arguments: Any) -> None:
        """Run a kernel; arrays are changed in place."""
        function = getattr(self._library(launch.file), f"emulated_{launch.entry}")
        values = [np.ascontiguousarray(one) for one in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
        function(*launch.grid, launch.threads, pointers)
        for given, value in zip(arguments, values, strict=True):
            assert not isinstance(given, np.ndarray) or given is value

    def _library(self, file: str) -> ctypes.CDLL:
        if file not in self.libraries:
            text = source(launches.FOLDER / file)
            wrapped = self.folder / f"{file.replace('/', '.')}.{self.dtype}.cpp"
            defines = "".join(f"#define {n} {v}\n" for n, v in launches.defines(self.dtype).items())
            wrappers = "".join(
                map(_wrapper, re.findall(r'extern "C" __global__ .*?\)\s(\w+)\(\s*(.*?)\)\n\{', text, re.S))
            )
            wrapped.write_text(f'#include "{EMULATOR}"\n{defines}{text}{wrappers}')
            library = wrapped.with_suffix(".so")
            subprocess.run(["g++", *OPTIONS, str(wrapped), "-o", str(library)], check=True)
            self.libraries[file] = ctypes.CDLL(str(library))
        return self.libraries[file]


class EmulatedDevice:
    """A `tnplan.compress.gpu.device.KernelDevice` of emulated kernels; its arrays are NumPy's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kernels: dict[str, Emulated] = {}

    def upload(self, array: Any) -> Any:
        return np.array(array)

    def download(self, array: Any) -> Any:
        return np.array(array)

    def mailbox(self, n_words: int) -> Any:
        words = np.zeros(n_words + 1, np.uint64)

        def told() -> Any:
            assert words[-1] == 1
            return words[:-1]

        return words, told

    def zeros(self, size: int, dtype: str) -> Any:
        return np.zeros(size, dtype)

    def empty(self, size: int, dtype: str) -> Any:
        return np.full(size * np.dtype(dtype).itemsize, 0xA5, np.uint8).view(dtype)

    def launch(self, launch: KernelLaunch, dtype: str, *arguments: Any) -> None:
        if dtype not in self.kernels:
            self.kernels[dtype] = Emulated(dtype, self.folder)
        self.kernels[dtype](launch, *arguments)


def _wrapper(kernel: tuple[str, str]) -> str:
    """A C function that takes pointers to the arguments: of scalars to the value, of arrays to the data."""
    entry, parameters = kernel
    given = []
    for number, parameter in enumerate(" ".join(parameters.split()).split(", ")):
        kind = parameter.rpartition(" ")[0]
        given.append(f"({kind})a[{number}]" if "*" in kind else f"*({kind}*)a[{number}]")
    return (
        f'extern "C" void emulated_{entry}(unsigned x, unsigned y, unsigned threads, void** a)\n'
        f"{{ run(x, y, threads, [=] {{ {entry}({', '.join(given)}); }}); }}\n"
    )


def make_device(name: str, folder: Path) -> Any:
    """The device 'gpu', or 'emulated' with its libraries in a folder."""
    if name == "gpu":
        from tnplan.executor.device.cuda.array_codec import CupyCodec

        return CupyCodec()
    return EmulatedDevice(folder)
