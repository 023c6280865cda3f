"""Object code of kernels on disk, by all that it depends on, and loaded into this process."""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from tnplan.common.cache_folder import cache_folder, locked_entry, read_entry, write_entry

FOLDER = "cpu-kernels"
"""The folder of objects in tnplan's cache."""
FORMAT = "tnplan.object 6"
"""That of an entry: a line of JSON, then the object code."""


@dataclass(frozen=True)
class CompiledObject:
    """Object code with the name of its function, what that returns, and what it takes from elsewhere.

    The function takes words, see `kernel.Native`. `returns` are characters of `struct`, 8 bytes each.
    `symbols` are functions of the C library. Without code it says that numba has to call the kernel.
    """

    code: bytes
    name: str
    returns: str
    is_tuple: bool
    symbols: tuple[str, ...]

    @property
    def is_native(self) -> bool:
        """Whether there is code."""
        return bool(self.code)


def find_object(kernel: Any, types: tuple[Any, ...]) -> CompiledObject | None:
    """The object of a kernel for these types, if it is in the cache; what cannot be read is not there."""
    folder = objects_folder()
    content = None if folder is None else read_entry(folder, _name(kernel, types))
    if content is None:
        return None
    try:
        head, code = content.split(b"\n", 1)
        entry = json.loads(head)
        return CompiledObject(code, **{**entry, "symbols": tuple(entry["symbols"])})
    except (ValueError, KeyError, TypeError):
        return None


def keep_object(kernel: Any, types: tuple[Any, ...], compiled: CompiledObject) -> None:
    """Write an object to the cache; where that cannot be done it is not kept."""
    folder = objects_folder()
    if folder is not None:
        entry = {name: value for name, value in asdict(compiled).items() if name != "code"}
        write_entry(folder, _name(kernel, types), json.dumps(entry).encode() + b"\n" + compiled.code)


def alone(kernel: Any, types: tuple[Any, ...]) -> AbstractContextManager[None]:
    """While a kernel is compiled: another process that is about to do the same waits."""
    folder = objects_folder()
    return nullcontext() if folder is None else locked_entry(folder, f"{_name(kernel, types)}.lock")


def objects_folder() -> Path | None:
    """Where objects are kept."""
    return cache_folder(FOLDER)


def load_object(compiled: CompiledObject) -> int | None:
    """The address of a compiled function; None where it has no code or needs what this process lacks."""
    if not compiled.is_native or not all(hasattr(ctypes.pythonapi, symbol) for symbol in compiled.symbols):
        return None
    import llvmlite.binding as llvm

    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(compiled.code))
    engine.finalize_object()
    return int(engine.get_function_address(compiled.name))


@cache
def _engine() -> Any:
    """What holds all code that is loaded."""
    import llvmlite.binding as llvm

    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine())


def target_machine() -> Any:
    """LLVM's description of this machine."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(**_machine_options())


def _machine_options() -> dict[str, Any]:
    """What numba takes too: code for this processor that is loaded at once and stays where it is."""
    import llvmlite.binding as llvm

    reloc = "static" if llvm.get_process_triple().startswith("x86") else "default"
    return {
        "opt": 3, "cpu": llvm.get_host_cpu_name(), "features": _features(), "reloc": reloc,
        "codemodel": "jitdefault", "jit": True,
    }  # fmt: skip


@cache
def _features() -> str:
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_features().flatten())


@cache
def _name(kernel: Any, types: tuple[Any, ...]) -> str:
    """The name of an entry, made once: a kernel is looked for again while another process compiles it."""
    return f"{object_key(kernel, types)}.o"


def object_key(kernel: Any, types: tuple[Any, ...]) -> str:
    """The SHA-256 of all that an object depends on: code, the values it uses, types, libraries, processor."""
    digest = hashlib.sha256()
    for facts in (_environment(), repr([_type_text(entry) for entry in types])):
        digest.update(facts.encode() + b"\0")
    for text in _used(kernel, {}):
        digest.update(text + b"\0")
    return digest.hexdigest()


def _type_text(entry: Any) -> str:
    return f"{entry.__qualname__} {getattr(entry, '_fields', '')}" if isinstance(entry, type) else str(entry)


@cache
def _environment() -> str:
    versions = [np.__version__, *map(_version, ("numba", "llvmlite"))]
    return "\0".join((FORMAT, *versions, sys.version, repr(_machine_options())))


def _version(package: str) -> str:
    """What distinguishes a version of a package: its own file of it, which takes less time to read than
    `importlib.metadata` takes to be imported."""
    spec = find_spec(package)
    file = Path(spec.origin).with_name("_version.py") if spec and spec.origin else None
    if file is not None and file.exists():
        return file.read_text(encoding="utf-8")
    from importlib.metadata import version

    return version(package)


def _used(value: Any, seen: dict[int, int]) -> Iterator[bytes]:
    """What numba sees of a value: of functions their code and, in turn, the globals that it names.

    `seen`: functions by their number, so that each is described once.
    """
    if isinstance(value, partial):
        for entry in (value.func, *value.args, *chain.from_iterable(sorted(value.keywords.items()))):
            yield from _used(entry, seen)
        return
    function = value if isinstance(value, type(_used)) else None
    for name in ("function", "make", "py_func"):  # of kernels, of what is `Late`, of numba's functions
        function = function or getattr(value, name, None)
    if function is None:
        yield _constant(value)
        return
    # Functions that call each other: the second time the number of the first stands for all of it.
    if id(value) in seen:
        yield f"function {seen[id(value)]}".encode()
        return
    seen[id(value)] = len(seen)
    if function is not value:
        options = getattr(value, "options", None) or getattr(value, "targetoptions", {})
        # Sets have another order in every process.
        plain = {name: sorted(of) if isinstance(of, set) else of for name, of in options.items()}
        own = getattr(value, "keeps_subnormals", False), getattr(value, "unrolls", True)
        yield repr((sorted(plain.items(), key=str), *own)).encode()
    for code in _codes(function.__code__):
        # Bytecode, names and constants, not the text: comments and line numbers change no key.
        yield code.co_code + repr((code.co_names, code.co_varnames, code.co_freevars)).encode()
        yield repr([entry for entry in code.co_consts if not isinstance(entry, CodeType)]).encode()
        for name in code.co_names:
            if name in function.__globals__:
                yield name.encode()
                yield from _used(function.__globals__[name], seen)
    for cell in function.__closure__ or ():
        yield from _used(cell.cell_contents, seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of the functions in it."""
    yield code
    for entry in code.co_consts:
        if isinstance(entry, CodeType):
            yield from _codes(entry)


def _constant(value: Any) -> bytes:
    """A value that is no function, as far as kernels depend on it; its text may name no address in memory."""
    if isinstance(value, ModuleType):
        return value.__name__.encode()
    if isinstance(value, np.ndarray):
        return value.dtype.str.encode() + repr(value.shape).encode() + value.tobytes()
    if isinstance(value, type):
        return _type_text(value).encode()
    text = f"{type(value).__name__} {value!r}"
    assert " at 0x" not in text, f"{text} has another key in every process"
    return text.encode()
