"""Where the CUDA kernels of compress/ run in tests: a GPU, or g++ with CUDA's threads as fibers (tests/simt).

Both take NumPy arrays, copy them to the device, launch, and copy them back.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from compress import launches
from compress.launches import Launch

EMULATOR = Path(__file__).resolve().parent / "simt" / "emulator.hpp"
OPTIONS = ("-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-w")


def source(file: str) -> str:
    """A kernel file with the files that it includes."""
    text = (launches.FOLDER / file).read_text(encoding="utf-8")
    return re.sub(r'^#include "(.+)"$', lambda line: source(line[1]), text, flags=re.MULTILINE)


def has_compiler() -> bool:
    """Whether g++ is here."""
    return shutil.which("g++") is not None


class Emulated:
    """Kernels of one dtype, compiled by g++ into a folder."""

    def __init__(self, dtype: str, folder: Path) -> None:
        self.folder = folder
        self.dtype = dtype
        self.libraries: dict[str, ctypes.CDLL] = {}

    def __call__(self, launch: Launch, *arguments: Any) -> None:
        """Run a kernel; arrays are changed in place."""
        function = getattr(self._library(launch.file), f"emulated_{launch.entry}")
        values = [np.ascontiguousarray(one) for one in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
        function(*launch.grid, launch.threads, pointers)
        for given, value in zip(arguments, values, strict=True):
            assert not isinstance(given, np.ndarray) or given is value

    def _library(self, file: str) -> ctypes.CDLL:
        if file not in self.libraries:
            text = source(file)
            wrapped = self.folder / f"{file}.{self.dtype}.cpp"
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
    """A `compress.device_codec.Device` of emulated kernels; its arrays are NumPy's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kernels: dict[str, Emulated] = {}

    def upload(self, array: Any) -> Any:
        return np.array(array)

    def download(self, array: Any) -> Any:
        return np.array(array)

    def zeros(self, size: int, dtype: str) -> Any:
        return np.zeros(size, dtype)

    def launch(self, launch: Launch, dtype: str, *arguments: Any) -> None:
        if dtype not in self.kernels:
            self.kernels[dtype] = Emulated(dtype, self.folder)
        self.kernels[dtype](launch, *arguments)


def _wrapper(kernel: tuple[str, str]) -> str:
    """A C function that takes pointers to the arguments: of scalars to the value, of arrays to the data."""
    entry, parameters = kernel
    given = []
    for number, parameter in enumerate(" ".join(parameters.split()).split(", ")):
        kind = parameter.rpartition(" ")[0]
        given.append(f"({kind})a[{number}]" if kind.endswith("*") else f"*({kind}*)a[{number}]")
    return (
        f'extern "C" void emulated_{entry}(unsigned x, unsigned y, unsigned threads, void** a)\n'
        f"{{ run(x, y, threads, [=] {{ {entry}({', '.join(given)}); }}); }}\n"
    )


class Gpu:
    """Kernels of one dtype on the current GPU."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def __call__(self, launch: Launch, *arguments: Any) -> None:
        """Run a kernel; arrays are changed in place."""
        from executor.device.cupy_codec import CupyCodec

        device = CupyCodec()
        plain = [isinstance(one, np.ndarray) and not one.dtype.names for one in arguments]
        there = [device.upload(one) if copied else one for one, copied in zip(arguments, plain, strict=True)]
        device.launch(launch, self.dtype, *there)
        for given, one, copied in zip(arguments, there, plain, strict=True):
            if copied:
                given[...] = device.download(one)
