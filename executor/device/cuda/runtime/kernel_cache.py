"""CUDA kernels from .cu files: compiled with NVRTC when first used, kept on disk, loaded once a process.

Knows files, compilers and the current device's architecture; never what a kernel computes. Importing this
module needs CuPy, compiling needs no GPU.
"""

from __future__ import annotations

import atexit
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache, wraps
from pathlib import Path
from random import Random
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, ParamSpec, TypeVar

import cupy
from cupy_backends.cuda.libs import nvrtc

from tnplan.executor.device.cuda.runtime.compiler import OPTIONS, compile_beside, compile_cubin, source
from tnplan.executor.device.protocols.precision import DOUBLE
from tnplan.planner.common.cache_folder import cache_folder as kept_in
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import write_file

NEVER_COMPILE = "TNPLAN_NO_COMPILE"
"""Environment variable: where it is set and not 0, a kernel that is not in the cache is refused."""
CACHE_FOLDER = "TNPLAN_KERNEL_CACHE"
"""Environment variable: the folder of compiled kernels (default: `kernels` in tnplan's cache)."""

P = ParamSpec("P")
Result = TypeVar("Result")
Defines = tuple[tuple[str, str], ...]


def load_kernel(file: Path, entry: str, defines: Mapping[str, str | int], arch_specific: bool = False) -> Any:
    """Kernel `entry` of `file` with these definitions, for the current device; launched like a RawKernel.

    `arch_specific`: it has some that later architectures lack.
    """
    module = _module(cupy.cuda.Device().id, file, _sorted(defines), arch_specific)
    return module.get_function(entry)


def load_symbol(file: Path, name: str, defines: Mapping[str, str | int]) -> int:
    """The address of variable `name` of `file` with these definitions, on the current device."""
    return int(_module(cupy.cuda.Device().id, file, _sorted(defines)).get_global(name).ptr)


def number_defines(dtype: str) -> dict[str, str | int]:
    """The definitions REAL, a type of C, and COMPLEX (0, 1) of kernels for numbers of a type."""
    return {"REAL": "double" if dtype in DOUBLE else "float", "COMPLEX": int(dtype.startswith("complex"))}


def compile_ahead(several: Iterable[tuple[Path, Mapping[str, str | int]]]) -> None:
    """Have the kernels of files with these definitions in the cache, for the current device.

    As many are compiled at once as this process has cores, in an order of its own: ranks that start together
    and share the cache then share the work. Several are compiled by processes of their own, since the
    compiler does one at a time in a process. Raises as `load_kernel` does.
    """
    arch = current_arch()
    missing = [
        (file, defines) for file, defines in _distinct(several) if not _path(file, defines, arch).exists()
    ]
    Random(os.getpid()).shuffle(missing)
    make = compile_beside if len(missing) > 1 else compile_cubin
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for kernel in [pool.submit(cached_cubin, file, defines, arch, make) for file, defines in missing]:
            kernel.result()


def cached_per_device(function: Callable[P, Result]) -> Callable[P, Result]:
    """A function that is called once for the same arguments on the same current device."""

    @lru_cache(maxsize=1024)
    def cached(device: int, *args: P.args, **kwargs: P.kwargs) -> Result:
        return function(*args, **kwargs)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Result:
        return cached(cupy.cuda.runtime.getDevice(), *args, **kwargs)  # type: ignore[arg-type]

    return call


@cache
def _module(device: int, file: Path, defines: Defines, arch_specific: bool = False) -> Any:
    arch = current_arch(device) + "a" * arch_specific
    return cupy.RawModule(path=str(cached_cubin(file, defines, arch)))


def _sorted(defines: Mapping[str, str | int]) -> Defines:
    return tuple(sorted((name, str(value)) for name, value in defines.items()))


def current_arch(device: int | None = None) -> str:
    """The architecture of a device, or of the current one."""
    return f"sm_{cupy.cuda.Device(device).compute_capability}"


def cached_cubin(
    file: Path,
    defines: Defines,
    arch: str,
    make: Callable[[Path, Mapping[str, str], str], bytes] = compile_cubin,
) -> Path:
    """The compiled kernel's file in the cache, compiled now by `make` where it is not there."""
    path = _path(file, defines, arch)
    if path.exists():
        return path
    if os.environ.get(NEVER_COMPILE, "0") not in ("", "0"):
        raise InputError(
            NEVER_COMPILE, f"is set, and kernel {file.name} for {arch} is not in {path.parent}",
            "run the schedule once without it, or copy the cache of a machine that has run it",
        )  # fmt: skip
    cubin = make(file, dict(defines), arch)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            str(path.parent), f"cannot be made for compiled kernels ({error.strerror})",
            f"name a writable folder in {CACHE_FOLDER}",
        ) from None  # fmt: skip
    write_file(path, lambda stream: stream.write(cubin))
    return path


def _distinct(several: Iterable[tuple[Path, Mapping[str, str | int]]]) -> list[tuple[Path, Defines]]:
    return sorted({(file, _sorted(defines)) for file, defines in several})


def _path(file: Path, defines: Defines, arch: str) -> Path:
    """Where the cache keeps a compiled kernel."""
    return cache_folder() / f"{cache_key(file, defines, arch)}.cubin"


def cache_folder() -> Path:
    """Where compiled kernels are kept; where nothing is, a folder that is deleted when this process ends."""
    given = os.environ.get(CACHE_FOLDER)
    return Path(given) if given else kept_in("kernels") or _passing_folder()


@cache
def _passing_folder() -> Path:
    folder = Path(mkdtemp(prefix="tnplan-kernels-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    return folder


def cache_key(file: Path, defines: Defines, arch: str) -> str:
    """The SHA-256 of everything that the compiled kernel depends on."""
    parts = (
        source(file),
        *OPTIONS,
        arch,
        *(f"{name}={value}" for name, value in defines),
        str(nvrtc.getVersion()),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
