"""Object code, by numba's inner names; where a version of numba has others, `compile_kernel` does without."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import llvmlite.binding as llvm
from numba import njit, types
from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUContext
from numba.core.dispatcher import Dispatcher
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.transforms import canonicalize_cfg
from numba.core.typing.context import Context

from tnplan.common.kernels.kernel import Kernel, Types, c_types
from tnplan.common.kernels.object_cache import CompiledObject, target_machine
from tnplan.common.kernels.vector_operations import AroundCall, flush_subnormals

WIDTHS = {
    ctypes.c_void_p: "ptr", ctypes.c_int64: "i64", ctypes.c_uint64: "i64", ctypes.c_int32: "i32",
    ctypes.c_uint32: "i32", ctypes.c_double: "double", ctypes.c_float: "float", ctypes.c_bool: "i8",
}  # fmt: skip
"""LLVM's types of arguments."""
NUMBERS = {types.int64: "q", types.uint64: "Q", types.float64: "d"}
"""What a kernel may return, as characters of `struct`."""
BARE: dict[str, Any] = {"_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""No counts of references to arrays, and nothing for calls from Python: both take time to compile."""
PREFIX = "tnplan_"
"""What names of functions begin with, before a namespace and its length."""
UNUSED = (JITCodeLibrary, "_finalize_specific"), (JITCPUCodegen, "set_env")
"""Steps of numba that make machine code in this process, to be run."""


def bare_njit(**options: Any) -> Any:
    """`numba.njit` for functions that are called by compiled code alone."""
    return njit(**BARE, **options)


def object_code(
    kernel: Kernel, make: Callable[[], Any], arguments: tuple[Any, ...], kinds: Types
) -> CompiledObject | None:
    """The object code of a kernel, the function of numba that `make` gives; None where numba has to call it.

    `arguments` are its types for numba, `kinds` those of `kernel`. Raises what numba raises.
    """
    # Invariant: numba's lock is held while its methods are replaced, so that no other compilation meets them.
    with global_compiler_lock, entry_alone():
        dispatcher = make()
        dispatcher.compile(arguments)
        done = dispatcher.overloads[arguments]
        name: str = done.fndesc.llvm_func_name
        module = _optimized(done.library, name, kernel.unrolls)
    result: Any = done.signature.return_type
    is_tuple = isinstance(result, types.BaseTuple)
    results = tuple(result) if is_tuple else (result,)
    returns = "" if result == types.none else "".join(NUMBERS.get(kind, "?") for kind in results)
    if "?" in returns or not _is_as_called(module.get_function(name), kinds):
        return None
    declared = [function.name for function in module.functions if function.is_declaration]
    # What the code calls and does not have itself, such as functions of libm: resolved when it is loaded.
    symbols = tuple(symbol for symbol in declared if not symbol.startswith("llvm."))
    entry = _add_entry(module, name, kernel.keeps_subnormals)
    return CompiledObject(_object_code(module), entry, returns, is_tuple, symbols)


def _is_as_called(function: Any, kinds: Types) -> bool:
    """Whether a function takes what `kernel` hands over, after the places of the result and of an error."""
    declared = [str(argument.type) for argument in function.arguments]
    declared = ["ptr" if kind.endswith("*") else "i8" if kind == "i1" else kind for kind in declared]
    return declared == ["ptr", "ptr", *(WIDTHS[kind] for kind in c_types(kinds))]


def _optimized(library: Any, name: str, unrolls: bool) -> Any:
    """The module of a function and of all that it calls."""
    module = llvm.parse_bitcode(library._final_module.as_bitcode())
    for number, function in enumerate(module.functions):
        if function.is_declaration or function.name == name:
            continue
        # As nothing else calls it, its caller may take it in, or call it with fewer arguments. What is loaded
        # finds functions by name, those of other kernels too.
        function.linkage = "internal"
        function.name = f"{name}.{number}"
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization, tuning.slp_vectorization = True, False
    tuning.loop_unrolling = unrolls
    builder = llvm.create_pass_builder(library._codegen._tm, tuning)
    passes = builder.getModulePassManager()
    passes.run(module, builder)
    return module


def _add_entry(module: Any, name: str, keeps_subnormals: bool) -> str:
    """Add a function that calls another one; its name.

    It reads the arguments from words of 64 bits, and subnormal numbers are 0 while the other one runs unless
    it keeps them.
    """
    entry, values = f"{name}.entry", []
    kinds = ["ptr" if str(argument.type).endswith("*") else str(argument.type)
             for argument in module.get_function(name).arguments]  # fmt: skip
    flush = AroundCall([], [], []) if keeps_subnormals else flush_subnormals(llvm.get_process_triple())
    lines = [*flush.declarations, f'declare i32 @"{name}"({", ".join(kinds)})']
    lines += [f'define i32 @"{entry}"(ptr %words) {{', *flush.before]
    for k, kind in enumerate(kinds):
        lines.append(f"%place{k} = getelementptr i64, ptr %words, i64 {k}")
        # A value of less than 64 bits is at the beginning of its word (little endian); a bool has
        # one bit of its byte.
        lines.append(f"%word{k} = load {'i8' if kind == 'i1' else kind}, ptr %place{k}")
        if kind == "i1":
            lines.append(f"%bit{k} = trunc i8 %word{k} to i1")
        values.append(f"{kind} %{'bit' if kind == 'i1' else 'word'}{k}")
    lines += [f'%status = call i32 @"{name}"({", ".join(values)})', *flush.behind, "ret i32 %status", "}"]
    added = llvm.parse_assembly("\n".join(lines))
    added.triple, added.data_layout = module.triple, module.data_layout
    module.link_in(added)
    return entry


def _object_code(module: Any) -> bytes:
    machine = target_machine()
    module.data_layout = str(machine.target_data)
    code: bytes = machine.emit_object(module)
    return code


@contextmanager
def entry_alone() -> Iterator[None]:
    """While a kernel is compiled: functions that it calls are optimized within it alone, and none is run.

    Numba optimizes each function called as a whole and makes machine code of it, though it is in its caller
    then. Its names of functions have all types in them, thousands of characters for records of arrays, which
    LLVM reads again and again. A numba that has other steps goes its own way.
    """
    optimize: Any = getattr(CPUCodeLibrary, "_optimize_final_module", None)
    if optimize is None or not all(hasattr(owner, name) for owner, name in UNUSED):
        yield
        return

    def optimize_others(library: Any) -> None:
        if not any(PREFIX in function.name for function in library._final_module.functions):
            optimize(library)  # numba's own, for code that it runs itself

    mangled_name: Any = CPUContext.mangler

    def short_name(context: Any, name: str, *arguments: Any, **named: Any) -> str:
        mangled = mangled_name(context, name, *arguments, **named)
        readable = "".join(filter(str.isalnum, name.rsplit(".", 1)[-1]))
        short = f"{PREFIX}{readable}_{hashlib.sha256(mangled.encode()).hexdigest()[:24]}"
        return f"_ZN{len(short)}{short}Ev"

    template: Any = Dispatcher.get_call_template

    def of_plain_numbers(dispatcher: Any, arguments: Any, named: Any) -> Any:
        # A number that stands in the code is a type of its own for numba, which would compile all it reaches.
        return template(dispatcher, tuple(map(types.unliteral, arguments)), named)

    resolved: Any = types.BaseFunction.get_call_type
    signatures: dict[Any, Any] = {}

    def remembered(function: Any, context: Any, arguments: Any, named: Any) -> Any:
        # A sum of two numbers of the same types is looked up among all sums, anew each time it is met.
        key = function, tuple(arguments), tuple(named.items())
        if signatures.get(key) is None:
            signatures[key] = resolved(function, context, arguments, named)
        return signatures[key]

    with ExitStack() as stack:
        for owner, name, value in without_counts():
            stack.enter_context(replaced(owner, name, value))
        stack.enter_context(replaced(types.BaseFunction, "get_call_type", remembered))
        stack.enter_context(replaced(Dispatcher, "get_call_template", of_plain_numbers))
        stack.enter_context(replaced(CPUContext, "mangler", short_name))
        stack.enter_context(replaced(CPUCodeLibrary, "_optimize_final_module", optimize_others))
        for owner, name in UNUSED:
            stack.enter_context(replaced(owner, name, lambda *_: None))
        yield


def without_counts() -> Iterator[tuple[Any, str, Any]]:
    """Steps of numba that only counts of references to arrays need, and what to do instead."""
    # Where a variable ends a count goes down: numba looks for these ends at each change of the code.
    post_run: Any = PostProcessor.run

    def run(processor: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
        function = processor.func_ir
        if function.is_generator:
            post_run(processor, emit_dels, extend_lifetimes)
            return
        function.blocks = canonicalize_cfg(function.blocks)
        function.variable_lifetime = VariableLifetime(function.blocks)
        function.generator_info = None

    yield PostProcessor, "run", run
    # Numba looks for new functions at each function that it compiles: once a kernel is enough.
    yield from ((owner, "load_additional_registries", once(owner.load_additional_registries))
                for owner in (CPUContext, Context))  # fmt: skip


def once(load: Callable[[Any], None]) -> Callable[[Any], None]:
    """A method that does its work at the first call alone."""
    loaded: list[Any] = []

    def load_once(context: Any) -> None:
        if context not in loaded:
            loaded.append(context)
            load(context)

    return load_once


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """For a while, another value of an attribute."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
