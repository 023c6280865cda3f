"""Kernels of .cu files on a CPU: g++ compiles them, CUDA's threads are fibers (emulator.hpp).

A compiled library is kept by its text, so that each is compiled once for all workers and runs of the tests.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.root import ROOT

HEADER = Path(__file__).resolve().parent / "emulator.hpp"
OPTIONS = ("-std=c++17", "-O0", "-ffp-contract=off", "-fPIC", "-shared", "-w")
KEPT = ROOT / ".pytest_cache" / "emulated"
ENTRY = re.compile(
    r'^extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\((.*?)\)\s*\{',
    re.DOTALL | re.MULTILINE,
)


def has_compiler() -> bool:
    """Whether g++ is here."""
    return shutil.which("g++") is not None


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="needs g++")


ASYNC_COPIES = (
    (
        re.compile(r"(void copy_async\(Value\* to, const Value\* from\))\n\{.*?\n\}", re.DOTALL),
        r"\1 { *to = *from; }",
    ),
    (re.compile(r"asm volatile\(\"cp\.async\.wait_all;\" ::: \"memory\"\);"), ""),
)
"""Copies into shared memory that go on beside a kernel's work, and what they are where they do not."""

DOUBLE_MMA = """
static void multiply(double (&c)[4], double2 a, double2 beyond, double b0, double b1) {
    const unsigned lane = threadIdx.x % 32;
    auto of = [](double own) { return exchange(same_bits<uint64_t>(own)); };
    const Lanes parts[2][3] = {{of(a.x), of(a.y), of(b0)}, {of(beyond.x), of(beyond.y), of(b1)}};
    for (const Lanes (&half)[3] : parts)
        for (unsigned k = 0; k < 4; ++k)
            for (unsigned e = 0; e < 4; ++e)
                c[e] += same_bits<double>(half[e / 2].values[lane / 4 * 4 + k]) *
                        same_bits<double>(half[2].values[(lane % 4 * 2 + e % 2) * 4 + k]);
}
"""


def source(file: Path) -> str:
    """A kernel file with the files that it includes."""
    text = file.read_text(encoding="utf-8")
    for pattern, plain in ASYNC_COPIES:
        text = pattern.sub(plain, text)
    return re.sub(r'^#include "(.+)"$', lambda line: source(file.parent / line[1]), text, flags=re.MULTILINE)


def compiled(text: str, defines: Mapping[str, Any]) -> ctypes.CDLL:
    """A library of a text of CUDA and C++ behind the emulator's own, with some definitions."""
    lines = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    library = _place(HEADER.read_text(encoding="utf-8") + lines + text, ".so")
    if not library.exists():
        _made(library, lines + text, "kernels.cpp", "-include", str(_header()))
    return ctypes.CDLL(str(library))


@cache
def _header() -> Path:
    """The emulator's own text, beside what the compiler makes of it: read in a fraction of the time."""
    text = HEADER.read_text(encoding="utf-8")
    header = _place(text, ".hpp")
    compiled_header = header.with_suffix(".hpp.gch")
    if not compiled_header.exists():
        _made(compiled_header, text, header.name, "-x", "c++-header")
    return header


def _place(text: str, suffix: str) -> Path:
    """Where what is made of a text is kept."""
    return KEPT / f"{hashlib.sha256(f'{OPTIONS}{text}'.encode()).hexdigest()[:32]}{suffix}"


def _made(place: Path, text: str, name: str, *options: str) -> None:
    """Compile a text, in a file of this name, which is kept too if it is a header."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=KEPT) as folder:  # other processes may compile the same
        given, made = Path(folder) / name, Path(folder) / "made"
        given.write_text(text)
        subprocess.run(["g++", *OPTIONS, *options, str(given), "-o", str(made)], check=True)
        if given.suffix == ".hpp":
            os.replace(given, KEPT / name)
        os.replace(made, place)


class EmulatedKernels:
    """The kernels of a text with some definitions."""

    def __init__(self, text: str, defines: Mapping[str, Any]) -> None:
        self._library = compiled(text + "".join(map(_call, ENTRY.findall(text))), defines)

    def __call__(self, entry: str, blocks: tuple[int, int], threads: int, *arguments: Any) -> None:
        """Run a kernel; arrays are changed in place."""
        values = [np.asarray(one) for one in arguments]
        assert all(one.flags.c_contiguous for one in values)
        pointers = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
        getattr(self._library, f"emulated_{entry}")(*blocks, threads, pointers)


class Arrays(np.ndarray):
    """An array that answers to what CuPy's have besides."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        """Its address."""
        return SimpleNamespace(ptr=self.ctypes.data)

    def set(self, array: np.ndarray) -> None:
        """Copy."""
        self[...] = array

    def get(self) -> np.ndarray:
        """A copy on the host."""
        return np.array(self)


def launched_by_addresses(kernel: tuple[str, str]) -> str:
    """A C function that takes the addresses of all arguments, also of those that are pointers."""
    entry, parameters = kernel
    kinds = [re.sub(r"__restrict__\s*|\s*\w+$", "", one.strip()) for one in parameters.split(",")]
    values = ", ".join(f"*({kind}*)a[{number}]" for number, kind in enumerate(kinds))
    return (
        f'\nextern "C" void emulated_{entry}(unsigned blocks, unsigned threads, void** a)\n'
        f"{{ run(blocks, 1, threads, [=] {{ {entry}({values}); }}); }}\n"
    )


def addresses(values: Sequence[np.ndarray]) -> Any:
    """Those of some arrays, for a function of `launched_by_addresses`."""
    return (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))


def _call(kernel: tuple[str, str]) -> str:
    """A C function that takes pointers to the arguments: of scalars to the value, of arrays to the data."""
    entry, parameters = kernel
    given = []
    for number, parameter in enumerate(parameters.replace("__restrict__", "").split(",")):
        kind = re.sub(r"\w+$", "", parameter.strip())
        given.append(f"({kind})a[{number}]" if "*" in kind else f"*({kind}*)a[{number}]")
    return (
        f'extern "C" void emulated_{entry}(unsigned x, unsigned y, unsigned threads, void** a)\n'
        f"{{ run(x, y, threads, [=] {{ {entry}({', '.join(given)}); }}); }}\n"
    )
