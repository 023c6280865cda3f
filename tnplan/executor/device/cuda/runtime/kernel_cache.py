"""CUDA kernels from .cu files: compiled with NVRTC when first used, kept on disk, loaded once a process.

Knows files, compilers and the current device's architecture; never what a kernel computes. Importing this
module needs CuPy, compiling needs no GPU.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, lru_cache, wraps
from pathlib import Path
from random import Random
from shutil import rmtree
from tempfile import NamedTemporaryFile, mkdtemp
from threading import RLock, Thread, current_thread, main_thread
from typing import Any, ParamSpec, TypeVar

import cupy
from cupy_backends.cuda.libs import nvrtc

from tnplan.common.cache_folder import cache_folder as kept_in
from tnplan.common.cache_folder import has_entry, own_folder, read_entry, write_entry
from tnplan.common.errors import InputError
from tnplan.common.kernels.told import compiling
from tnplan.common.system_calls import cores
from tnplan.executor.device.protocols.precision import DOUBLE

NEVER_COMPILE = "TNPLAN_NO_COMPILE"
"""Environment variable: where it is set and not 0, a kernel that is not in the cache is refused."""
CACHE_FOLDER = "TNPLAN_KERNEL_CACHE"
"""Environment variable: the folder of compiled kernels (default: `kernels` in tnplan's cache)."""

OPTIONS = ("--std=c++17", "--fmad=true", "--extra-device-vectorization", "--diag-suppress=177")
"""The compiler's; the last one is for functions that a kernel's definitions leave unused."""

QUICK = "QUICK"
"""With this definition a kernel is compiled in a sixth of the time, to code that takes longer."""
QUICK_OPTION, QUICK_SINCE = "--Ofast-compile=mid", (12, 9)
"""The compiler's option for it, and the version from which on it has that."""

P = ParamSpec("P")
Result = TypeVar("Result")
Defines = tuple[tuple[str, str], ...]
Key = tuple[Path, Defines, str]
not_kept: dict[Key, bytes] = {}
"""Kernels of this process that no folder could take."""
_in_progress: dict[Key, Future[bytes]] = {}
_waiting: deque[tuple[Key, Future[bytes]]] = deque()
"""Those of them with which no thread has begun."""
_compiling: set[Thread] = set()
_beginning = RLock()
"""Held while these three change."""
_lacked: ContextVar[tuple[set[Key], set[Key]] | None] = ContextVar("lacked", default=None)
"""Inside `made_together`: the kernels that were asked for and are missing, and those begun before."""


class MissingKernelError(Exception):
    """A kernel that was asked for is missing, and `made_together` compiles it with others."""


@cache
def source(file: Path) -> str:
    """The text of a kernel file, with the files that it includes; their names start from its own folder.

    A file is read once a process: every kernel made of it asks.
    """
    text = file.read_text(encoding="utf-8")
    return re.sub(r'^#include "(.+)"$', lambda line: source(file.parent / line[1]), text, flags=re.MULTILINE)


def compile_cubin(file: Path, defines: Mapping[str, str | int], arch: str, strict: bool = False) -> bytes:
    """Compile a kernel file for an architecture such as 'sm_90'; ValueError gives the compiler's log.

    `strict`: the compiler's warnings are errors too. For a GPU that is newer than the compiler this is PTX of
    the newest architecture that the compiler knows, which the driver compiles when it loads the kernel.
    """
    program = nvrtc.createProgram(source(file), file.name, (), ())
    target = compiler_target(arch, nvrtc.getSupportedArchs())
    options = [
        *_options(defines),
        f"--gpu-architecture={target}",
        *(f"-D{name}={value}" for name, value in defines.items()),
    ]
    try:
        nvrtc.compileProgram(program, options)
        if target == arch:
            cubin: bytes = nvrtc.getCUBIN(program)
        else:
            ptx = nvrtc.getPTX(program)
            cubin = ptx.encode() if isinstance(ptx, str) else ptx
        log = nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError:
        raise ValueError(f"{file.name} does not compile for {arch}: {nvrtc.getProgramLog(program)}") from None
    finally:
        nvrtc.destroyProgram(program)
    if strict and log:
        raise ValueError(f"{file.name} compiles for {arch} with warnings: {log}")
    return cubin


def compiler_target(arch: str, known: Iterable[int]) -> str:
    """What the compiler is asked for: the architecture itself, or PTX of the newest it knows below that.

    - `known`: The numbers of the architectures that the compiler knows. PTX runs on all later ones, as long
      as its name ends in no letter (CUDA C++ Programming Guide, section "PTX Compatibility").
    """
    newest = max(known)
    is_newer = arch[-1].isdigit() and int(arch.removeprefix("sm_")) > newest
    return f"compute_{newest}" if is_newer else arch


def _options(defines: Iterable[str]) -> tuple[str, ...]:
    """The compiler's options beside the architecture and these definitions."""
    return (*OPTIONS, QUICK_OPTION) if QUICK in defines and has_quick() else OPTIONS


def has_quick() -> bool:
    """Whether the compiler can compile quickly; one that cannot ignores `QUICK`."""
    return bool(nvrtc.getVersion() >= QUICK_SINCE)


def load_kernel(
    file: Path, entry: str, defines: Mapping[str, str | int], arch_specific: bool = False, copy: int = 0
) -> Any:
    """Kernel `entry` of `file` with these definitions, for the current device; launched like a RawKernel.

    `arch_specific`: it has some that later architectures lack. `copy`: each number has variables of its own.
    """
    module = _module(cupy.cuda.Device().id, file, _sorted(defines), arch_specific, copy)
    return module.get_function(entry)


def load_symbol(file: Path, name: str, defines: Mapping[str, str | int], copy: int) -> int:
    """The address of variable `name` in a copy of `file` with these definitions, on the current device."""
    module = _module(cupy.cuda.Device().id, file, _sorted(defines), False, copy)
    return int(module.get_global(name).ptr)


def number_defines(dtype: str) -> dict[str, str | int]:
    """The definitions REAL, a type of C, and COMPLEX (0, 1) of kernels for numbers of a type."""
    return {"REAL": "double" if dtype in DOUBLE else "float", "COMPLEX": int(dtype.startswith("complex"))}


def compile_ahead(kernels: Iterable[tuple[Path, Mapping[str, str | int]]]) -> None:
    """Have the kernels of files with these definitions in the cache, for the current device.

    Raises as `load_kernel` does.
    """
    kernels = list(kernels)
    compile_soon(kernels)
    arch = current_arch()
    for file, defines in kernels:
        cached_cubin(file, _sorted(defines), arch)


def compile_soon(
    kernels: Iterable[tuple[Path, Mapping[str, str | int]]], device: int | None = None
) -> list[Future[bytes]]:
    """Begin with kernels, in threads, and return at once; who needs one that is not ready waits for it.

    They are for a device, or for the current one. As many are compiled at once as this process has cores, in
    an order of its own: ranks that start together and share the cache then share the work.
    """
    arch = current_arch(device)
    return _all_begun({(file, _sorted(defines), arch) for file, defines in kernels})


def made_together(makers: Sequence[Callable[[], Result]]) -> list[Result]:
    """What each of these gives; the kernels that they lack are compiled at once, as by `compile_soon`.

    One that asks for a kernel that is missing is left there, and called anew once that is compiled. Raises as
    `load_kernel` does.
    """
    made: dict[int, Result] = {}
    begun: set[Key] = set()
    while len(made) < len(makers):
        # Invariant: in each turn kernels are begun that never were before, or all are made: what does not
        # compile is asked for once more, and raises.
        missing: set[Key] = set()
        before = _lacked.set((missing, begun))
        try:
            for number, make in enumerate(makers):
                if number not in made:
                    with suppress(MissingKernelError):
                        made[number] = make()
        finally:
            _lacked.reset(before)
        if missing:
            with compiling():
                for future in _all_begun(missing):
                    with suppress(CancelledError):
                        future.exception()
        begun |= missing
    return [made[number] for number in range(len(makers))]


def is_kept(file: Path, defines: Mapping[str, str | int], device: int | None = None) -> bool:
    """Whether the cache has the kernel of a file with these definitions, for a device or the current one."""
    return _is_kept((file, _sorted(defines), current_arch(device)))


def may_compile() -> bool:
    """Whether a kernel that is not in the cache is compiled; else it is refused."""
    return os.environ.get(NEVER_COMPILE, "0") in ("", "0")


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
def _module(device: int, file: Path, defines: Defines, arch_specific: bool, copy: int) -> Any:
    """A kernel's code, loaded from a file of this process alone, since CuPy takes the name of a file.

    Invariant: a kernel and the variables that it reads come from one module. So `arch_specific` has no
    default: with and without it, the same arguments would be two entries of the cache, and two modules.
    """
    arch = current_arch(device) + "a" * arch_specific
    with NamedTemporaryFile(dir=_private_folder(), suffix=".cubin", delete=False) as stream:
        stream.write(cached_cubin(file, defines, arch))
    return cupy.RawModule(path=stream.name)


def _sorted(defines: Mapping[str, str | int]) -> Defines:
    return tuple(sorted((name, str(value)) for name, value in defines.items()))


def current_arch(device: int | None = None) -> str:
    """The architecture of a device, or of the current one."""
    return f"sm_{cupy.cuda.Device(device).compute_capability}"


def cached_cubin(file: Path, defines: Defines, arch: str) -> bytes:
    """The compiled kernel of the cache, compiled now where it is not there."""
    key = file, defines, arch
    in_progress = _in_progress.get(key)
    # To say that kernels are compiled takes a thread: none where the kernel is there.
    if in_progress is None and _is_kept(key):
        return _made(file, defines, arch)
    lacked = _lacked.get()
    if lacked is not None and key not in lacked[1]:
        lacked[0].add(key)
        raise MissingKernelError
    with compiling():
        if in_progress is not None:
            with suppress(CancelledError):
                return in_progress.result()
        return _made(file, defines, arch)


def _all_begun(keys: set[Key]) -> list[Future[bytes]]:
    """What gives each kernel that is not kept, begun in an order of this process."""
    distinct = sorted(keys)
    Random(os.getpid()).shuffle(distinct)
    return [future for future in map(_begun, distinct) if future is not None]


def _begun(key: Key) -> Future[bytes] | None:
    """What gives the kernel that a thread makes, which may have begun before; None where it is kept."""
    if _is_kept(key):
        return None
    with _beginning:
        compiling = _in_progress.get(key)
        if compiling is None:
            compiling = _in_progress[key] = Future()
            compiling.add_done_callback(lambda _: _in_progress.pop(key, None))
            _waiting.append((key, compiling))
            if len(_compiling) < cores():
                thread = Thread(target=_compile_waiting, name="tnplan kernels")
                _compiling.add(thread)
                thread.start()
        return compiling


def _compile_waiting() -> None:
    """Make all files that wait, one after the other; at the program's end those that wait are left."""
    while True:
        with _beginning:
            if not _waiting:
                _compiling.discard(current_thread())
                return
            key, compiling = _waiting.popleft()
        if not main_thread().is_alive():
            compiling.cancel()
            continue
        try:
            compiling.set_result(_made(*key))
        except Exception as error:
            compiling.set_exception(error)


def _is_kept(key: Key) -> bool:
    folder = cache_folder()
    return key in not_kept or (folder is not None and has_entry(folder, _name(*key)))


def _name(file: Path, defines: Defines, arch: str) -> str:
    return f"{cache_key(file, defines, arch)}.cubin"


def _made(file: Path, defines: Defines, arch: str) -> bytes:
    key, folder = (file, defines, arch), cache_folder()
    cubin = not_kept.get(key)
    if cubin is None and folder is not None:
        cubin = read_entry(folder, _name(*key))
    if cubin is not None:
        return cubin
    if not may_compile():
        raise InputError(
            NEVER_COMPILE, f"is set, and kernel {file.name} for {arch} is not in {folder or 'any cache'}",
            "run the schedule once without it, or copy the cache of a machine that has run it",
        )  # fmt: skip
    cubin = compile_cubin(file, dict(defines), arch)
    if folder is None or not write_entry(folder, _name(*key), cubin):
        not_kept[key] = cubin
    return cubin


def cache_folder() -> Path | None:
    """Where compiled kernels are kept; None where no folder can be used."""
    folder = os.environ.get(CACHE_FOLDER)
    return (own_folder(Path(folder)) if folder else None) or kept_in("kernels")


@cache
def _private_folder() -> Path:
    """A folder that is deleted when this process ends."""
    folder = Path(mkdtemp(prefix="tnplan-kernels-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    return folder


def cache_key(file: Path, defines: Defines, arch: str) -> str:
    """The SHA-256 of everything that the compiled kernel depends on."""
    # All that the machine code depends on, the text of included files too: a changed kernel is another entry.
    parts = (
        source(file),
        *_options(name for name, _ in defines),
        arch,
        *(f"{name}={value}" for name, value in defines),
        str(nvrtc.getVersion()),
    )
    return _digest(parts)


@lru_cache(maxsize=1024)
def _digest(parts: tuple[str, ...]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
