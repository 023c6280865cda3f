"""Contractions of one GPU through cuTENSOR, by its C interface. The file that finds and loads that library.

Knows modes, strides, flat views and streams; never schedules or ranks. Importing it needs NumPy alone: the
library is loaded when the first contraction is bound.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterable, Sequence
from ctypes import byref, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np

from tnplan.executor.device.protocols.copy import row_major
from tnplan.executor.device.protocols.device import Call, ContractShape, View
from tnplan.planner.common.errors import InputError

REMEDY = "install it with: pip install 'cutensor-cu13==2.6.*'"
OLDEST, NEWEST = (2, 2), (3, 0)
"""The versions of cuTENSOR whose calls are those below: from the first to before the second."""

DATA_TYPES = {"float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
COMPUTE = {
    "fp32": "CUTENSOR_COMPUTE_DESC_32F",
    "tf32": "CUTENSOR_COMPUTE_DESC_TF32",
    "fp16x3": "CUTENSOR_COMPUTE_DESC_3XTF32",
    "fp64": "CUTENSOR_COMPUTE_DESC_64F",
}
"""Precision to the library's own way of multiplying; for fp16x3 that is three TF32 products."""
SINGLE = ("float32", "complex64")

IDENTITY = 1
ALGO_DEFAULT = -1
NO_JIT = 0
WORKSPACE_DEFAULT = 2
PLAN_WORKSPACE = 0
WORKSPACE_ALIGNMENT = 256
LARGEST_ALIGNMENT = 256

MOST_MODES = 40
"""cuTENSOR 2.6 plans tensors of 40 modes and fails on 56."""

Modes = Sequence[tuple[int, int, int]]
"""(label, extent, stride in elements) of each mode of a tensor."""


class CutensorError(RuntimeError):
    """A call of cuTENSOR that failed: `status` is the library's own number (15: not supported)."""

    def __init__(self, call: str, status: int, meaning: str, detail: str) -> None:
        super().__init__(f"{call}: status {status}, {meaning}; {detail}")
        self.status = status


@dataclass(frozen=True)
class Library:
    """The loaded library and its version (major, minor, patch)."""

    calls: ctypes.CDLL
    version: tuple[int, int, int]

    def check(self, call: str, status: int, detail: str) -> None:
        """Raise CutensorError unless a call succeeded."""
        if status:
            text = self.calls.cutensorGetErrorString(status)
            raise CutensorError(call, status, text.decode() if text else "unknown", detail)

    def call(self, name: str, detail: str, *arguments: Any) -> None:
        """Call `name` with ctypes arguments; raises CutensorError where it fails."""
        self.check(name, getattr(self.calls, name)(*arguments), detail)

    def compute(self, precision: str, dtype: str) -> c_void_p:
        """The descriptor of a precision; values of 64 bits a real number are always multiplied in fp64."""
        name = COMPUTE[precision if dtype in SINGLE else "fp64"]
        return c_void_p.in_dll(self.calls, name)


@cache
def library() -> Library:
    """Load cuTENSOR; InputError where it is not installed or of another version."""
    calls = load("cutensor")
    calls.cutensorGetErrorString.restype = c_char_p
    calls.cutensorGetVersion.restype = c_size_t
    number = int(calls.cutensorGetVersion())
    version = (number // 10000, number // 100 % 100, number % 100)
    if not OLDEST <= version[:2] < NEWEST:
        raise InputError("cuTENSOR", f"is of version {'.'.join(map(str, version))}", REMEDY)
    return Library(calls, version)


def load(name: str) -> ctypes.CDLL:
    """Load a library of NVIDIA's, and what it needs, from wheels, the loader's path or the CUDA toolkit."""
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError:
        raise InputError(
            name, "cuda-pathfinder, which finds it, is not installed", "pip install cuda-pathfinder"
        ) from None
    try:
        found = load_nvidia_dynamic_lib(name)
    except DynamicLibNotFoundError as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(name, f"cannot be loaded ({reason})", REMEDY) from None
    if not found.abs_path:
        raise InputError(name, "was found without a file of its own", REMEDY)
    return ctypes.CDLL(found.abs_path)


def bind_contract(
    shape: ContractShape,
    a: View,
    b: View,
    c: View,
    workspace: View | None,
    precision: str,
    stream: Any,
) -> Call:
    """c = the sum over k of a times b, in one call of the library on `stream`, whatever the order of c.

    Views are flat CuPy arrays; see `Device.bind_contract` for the shapes. The plan is made here, for at most
    the bytes of `workspace` (any dtype; `workspace_bytes` says how many are wanted), which other calls on the
    same stream may share. The call allocates nothing and waits for nothing.
    """
    return bind_modes(contraction_modes(shape), (a, b, c), workspace, precision, stream)


def bind_modes(
    modes: tuple[Modes, Modes, Modes], views: tuple[View, View, View], workspace: View | None, precision: str,
    stream: Any,
) -> Call:  # fmt: skip
    """c = the sum of a times b over the modes that c lacks; every mode is in two or three of the tensors.

    Otherwise like `bind_contract`.
    """
    check_modes(modes)
    a, b, c = views
    if not c.size:
        return lambda: None
    if _without_elements(modes):
        return lambda: _zero(c, stream)
    pointers = [int(view.data.ptr) for view in views]
    plan = _Plan(modes, pointers, c.dtype.name, precision)
    start, size_bytes = _aligned(workspace)
    plan.choose(size_bytes)
    return plan.bind(pointers, (start, size_bytes), stream, (a, b, c, workspace))


def workspace_bytes(shape: ContractShape, dtype: str, precision: str) -> int:
    """The bytes of workspace with which the library expects to be fast; needs a GPU."""
    return modes_workspace_bytes(contraction_modes(shape), dtype, precision)


def modes_workspace_bytes(modes: tuple[Modes, Modes, Modes], dtype: str, precision: str) -> int:
    """Like `workspace_bytes`, for `bind_modes`."""
    check_modes(modes)
    if _without_elements(modes):
        return 0
    wanted = _Plan(modes, [LARGEST_ALIGNMENT] * 3, dtype, precision).wanted_bytes()
    return wanted + WORKSPACE_ALIGNMENT


def check_modes(tensors: Iterable[Modes]) -> None:
    """Raise InputError where a tensor has more modes than the library takes."""
    most = max(len(modes) for modes in tensors)
    if most > MOST_MODES:
        raise InputError(
            "cuTENSOR",
            f"was given a tensor of {most} modes",
            f"it takes at most {MOST_MODES}; use gemm steps",
        )


def contraction_modes(shape: ContractShape) -> tuple[Modes, Modes, Modes]:
    """The modes of a, b and c, fastest first, with neighbours fused that stay together in c.

    Labels are those of the parts: one for each mode of batch, m and n that is left, then k. Modes of extent 1
    are dropped, but k never is, so that a and b have at least one mode.
    """
    parts = [_fused(part) for part in (shape.batch, shape.m, shape.n)]
    labels: list[list[int]] = []
    number = 0
    for part in parts:
        labels.append(list(range(number, number + len(part))))
        number += len(part)
    k = (number, shape.k)

    def stored(*which: int) -> Modes:
        """An operand: the modes of its parts in order, then k, row-major."""
        named = [
            (label, extent)
            for part in which
            for label, (extent, _) in zip(labels[part], parts[part], strict=True)
        ]
        named.append(k)
        strides = row_major([extent for _, extent in named])
        return [(label, extent, stride) for (label, extent), stride in zip(named, strides, strict=True)][::-1]

    result = [
        (label, extent, stride)
        for which in range(3)
        for label, (extent, stride) in zip(labels[which], parts[which], strict=True)
    ]
    return stored(0, 1), stored(0, 2), sorted(result, key=lambda mode: mode[2])


def _without_elements(tensors: Iterable[Modes]) -> bool:
    return any(extent == 0 for modes in tensors for _, extent, _ in modes)


def _fused(part: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """(extent, stride in c) of a part with the neighbours fused that are neighbours in c too."""
    fused: list[tuple[int, int]] = []
    for extent, stride in part:
        if extent == 1:
            continue
        if fused and fused[-1][1] == extent * stride:
            fused[-1] = (fused[-1][0] * extent, stride)
        else:
            fused.append((extent, stride))
    return fused


class _Plan:
    """The descriptors of one contraction and, once chosen, its plan; freed with the object."""

    def __init__(
        self, modes: tuple[Modes, Modes, Modes], pointers: Sequence[int], dtype: str, precision: str
    ) -> None:
        self._library = library()
        self._handle = handle()
        self._sizes = tuple(tuple(extent for _, extent, _ in part) for part in modes)
        self._dtype = dtype
        compute = self._library.compute(precision, dtype)
        tensors = [
            self._tensor(part, min(pointer & -pointer, LARGEST_ALIGNMENT))
            for part, pointer in zip(modes, pointers, strict=True)
        ]
        names = [array(c_int32, [label for label, _, _ in part]) for part in modes]
        arguments: list[Any] = []
        for tensor, name in zip(tensors, names, strict=True):
            arguments += [tensor, name, c_int32(IDENTITY)]
        self._operation = c_void_p()
        self._call(
            "cutensorCreateContraction", self._handle, byref(self._operation), *arguments, tensors[2],
            names[2], compute,
        )  # fmt: skip
        self._preference = c_void_p()
        self._call(
            "cutensorCreatePlanPreference", self._handle, byref(self._preference), c_int32(ALGO_DEFAULT),
            c_int32(NO_JIT),
        )  # fmt: skip
        self._plan = c_void_p()
        self._own("cutensorDestroyOperationDescriptor", self._operation)
        self._own("cutensorDestroyPlanPreference", self._preference)
        for tensor in tensors:
            self._own("cutensorDestroyTensorDescriptor", tensor)

    def _tensor(self, modes: Modes, alignment: int) -> c_void_p:
        descriptor = c_void_p()
        self._call(
            "cutensorCreateTensorDescriptor", self._handle, byref(descriptor), c_uint32(len(modes)),
            array(c_int64, [extent for _, extent, _ in modes]),
            array(c_int64, [stride for _, _, stride in modes]), c_int32(DATA_TYPES[self._dtype]),
            c_uint32(alignment),
        )  # fmt: skip
        return descriptor

    def wanted_bytes(self) -> int:
        """The library's estimate of the workspace that makes the contraction fast."""
        size = c_uint64()
        self._call(
            "cutensorEstimateWorkspaceSize", self._handle, self._operation, self._preference,
            c_int32(WORKSPACE_DEFAULT), byref(size),
        )  # fmt: skip
        return size.value

    def choose(self, workspace_size_bytes: int) -> None:
        """Let the library choose its kernel for a workspace of that size."""
        self._call(
            "cutensorCreatePlan", self._handle, byref(self._plan), self._operation, self._preference,
            c_uint64(workspace_size_bytes),
        )  # fmt: skip
        self._own("cutensorDestroyPlan", self._plan)
        needed = c_uint64()
        self._call(
            "cutensorPlanGetAttribute", self._handle, self._plan, c_int32(PLAN_WORKSPACE), byref(needed),
            c_size_t(8),
        )  # fmt: skip
        if needed.value > workspace_size_bytes:
            raise ValueError(
                f"{self._detail()} needs a workspace of {needed.value} bytes, and has {workspace_size_bytes}"
            )

    def bind(
        self, pointers: Sequence[int], workspace: tuple[int, int], stream: Any, kept: tuple[View, ...]
    ) -> Call:
        """The call, with all its arguments made; the views in `kept` live as long as it."""
        one, zero = (np.array([value], self._dtype) for value in (1, 0))
        a, b, c = (c_void_p(pointer) for pointer in pointers)
        arguments = (
            self._handle, self._plan, c_void_p(one.ctypes.data), a, b, c_void_p(zero.ctypes.data), c, c,
            c_void_p(workspace[0]), c_uint64(workspace[1]), c_void_p(stream.ptr),
        )  # fmt: skip
        contract = self._library.calls.cutensorContract
        held = (self, one, zero, kept)

        def run() -> None:
            status = contract(*arguments)
            if status:
                held[0]._library.check("cutensorContract", status, self._detail())

        return run

    def _call(self, name: str, *arguments: Any) -> None:
        self._library.call(name, self._detail(), *arguments)

    def _own(self, destroy: str, handle: c_void_p) -> None:
        weakref.finalize(self, getattr(self._library.calls, destroy), handle)

    def _detail(self) -> str:
        ranks = [len(part) for part in self._sizes]
        elements = [prod(part) for part in self._sizes]
        return f"a contraction of {self._dtype} tensors with {ranks} modes and {elements} elements"


def handle() -> c_void_p:
    """The library's handle for the current device, made once."""
    import cupy

    return _handle(cupy.cuda.Device().id)


@cache
def _handle(device_id: int) -> c_void_p:
    created = c_void_p()
    library().call("cutensorCreate", f"on device {device_id}", byref(created))
    return created


def array(kind: Any, values: Sequence[int]) -> Any:
    """A C array; None, a null pointer, where it would be empty."""
    return (kind * len(values))(*values) if values else None


def _aligned(workspace: View | None) -> tuple[int, int]:
    """Address and bytes of the part of a workspace that begins on a boundary of 256 bytes."""
    if workspace is None or not workspace.nbytes:
        return 0, 0
    start = int(workspace.data.ptr)
    skipped = -start % WORKSPACE_ALIGNMENT
    return (start + skipped, workspace.nbytes - skipped) if skipped < workspace.nbytes else (0, 0)


def _zero(view: View, stream: Any) -> None:
    with stream:
        view.fill(0)
