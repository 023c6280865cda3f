"""CUDA sources compiled with NVRTC, in this process or in one beside it. Imports no CuPy, needs no GPU.

As a program, `python -m tnplan.executor.device.cuda.runtime.compiler`, it reads an order from its standard
input and writes the machine code to its standard output.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from cupy_backends.cuda.libs import nvrtc

OPTIONS = ("--std=c++17", "--fmad=true", "--extra-device-vectorization", "--diag-suppress=177")
"""The compiler's; the last one is for functions that a kernel's definitions leave unused."""


def source(file: Path) -> str:
    """The text of a kernel file, with the files that it includes; their names start from its own folder."""
    text = file.read_text(encoding="utf-8")
    return re.sub(r'^#include "(.+)"$', lambda line: source(file.parent / line[1]), text, flags=re.MULTILINE)


def compile_cubin(file: Path, defines: Mapping[str, str | int], arch: str, strict: bool = False) -> bytes:
    """Compile a kernel file for an architecture such as 'sm_90'; ValueError gives the compiler's log.

    `strict`: the compiler's warnings are errors too.
    """
    program = nvrtc.createProgram(source(file), file.name, (), ())
    options = [
        *OPTIONS,
        f"--gpu-architecture={arch}",
        *(f"-D{name}={value}" for name, value in defines.items()),
    ]
    try:
        nvrtc.compileProgram(program, options)
        cubin: bytes = nvrtc.getCUBIN(program)
        log = nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError:
        raise ValueError(f"{file.name} does not compile for {arch}: {nvrtc.getProgramLog(program)}") from None
    finally:
        nvrtc.destroyProgram(program)
    if strict and log:
        raise ValueError(f"{file.name} compiles for {arch} with warnings: {log}")
    return cubin


def compile_beside(file: Path, defines: Mapping[str, str | int], arch: str) -> bytes:
    """`compile_cubin` by a process of its own; what that cannot do is done, and said, here."""
    order = json.dumps({"file": str(file), "defines": dict(defines), "arch": arch})
    command = [sys.executable, "-m", "tnplan.executor.device.cuda.runtime.compiler"]
    done = subprocess.run(command, input=order.encode(), capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else compile_cubin(file, defines, arch)


def _obey(order: dict[str, str]) -> None:
    """Compile what an order of `compile_beside` asks for."""
    sys.stdout.buffer.write(compile_cubin(Path(order["file"]), order["defines"], order["arch"]))  # type: ignore[arg-type]


if __name__ == "__main__":
    _obey(json.load(sys.stdin))
