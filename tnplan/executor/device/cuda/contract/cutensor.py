"""Contractions of one GPU through cuTENSOR, by nvmath's binding.

Knows modes, strides, flat views and streams; never schedules or ranks. Importing it needs NumPy alone: the
library is loaded when the first contraction is bound.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from tnplan.common.arrays import ALIGNMENT_BYTES
from tnplan.common.errors import InputError
from tnplan.executor.device.cuda.contract import Product
from tnplan.executor.device.cuda.contract.cublas import DATA_TYPES, factors, nvmath_bindings
from tnplan.executor.device.cuda.runtime.bound_kernel import bind_zero
from tnplan.executor.device.protocols.copy import mode_strides
from tnplan.executor.device.protocols.device import Call, ContractShape, View, nothing
from tnplan.executor.device.protocols.precision import SINGLE
from tnplan.executor.device.protocols.tensor_library import fused_tensors

REMEDY = "install it with: pip install 'cutensor-cu13==2.6.*'"
OLDEST, NEWEST = (2, 2), (3, 0)
"""The versions of cuTENSOR whose calls are those below: from the first to before the second."""

COMPUTE = {"fp32": "COMPUTE_32F", "tf32": "COMPUTE_TF32", "fp16x3": "COMPUTE_3XTF32", "fp64": "COMPUTE_64F"}
"""Precision to the library's own way of multiplying; for fp16x3 that is three TF32 products."""
IDENTITY = 1
ALGO_DEFAULT = -1
NO_JIT = 0
WORKSPACE_DEFAULT = 2
PLAN_WORKSPACE = 0

MOST_MODES = 40
"""cuTENSOR 2.6 plans tensors of 40 modes and fails on 56."""

Modes = Sequence[tuple[int, int, int]]
"""(label, extent, stride in elements) of each mode of a tensor."""


class CutensorError(RuntimeError):
    """A call of cuTENSOR that failed: `status` is the library's own number (15: not supported)."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@cache
def bindings() -> Any:
    """nvmath's binding of cuTENSOR; InputError where the library is not installed or of another version."""
    load("cutensor")
    calls = nvmath_bindings("cutensor")
    if not OLDEST <= version(calls)[:2] < NEWEST:
        raise InputError(
            "cuTENSOR", f"is of version {'.'.join(map(str, version(calls)))}", REMEDY, topic="cuTENSOR",
        )
    return calls


def version(calls: Any) -> tuple[int, int, int]:
    """The version of cuTENSOR from its binding: major, minor, patch."""
    number = int(calls.get_version())
    return number // 10000, number // 100 % 100, number % 100


def load(name: str) -> str:
    """Load a library of NVIDIA's, and what it needs, from wheels, the loader's path or the CUDA toolkit.

    Returns the path of its file.
    """
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    try:
        library = load_nvidia_dynamic_lib(name)
    except DynamicLibNotFoundError as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(name, f"cannot be loaded ({reason})", REMEDY) from None
    if not library.abs_path:
        raise InputError(name, "was found without a file of its own", REMEDY)
    return str(library.abs_path)


def compute_descriptor(precision: str, dtype: str) -> int:
    """That of a precision; values of 64 bits a real number are always multiplied in fp64."""
    name = COMPUTE[precision if dtype in SINGLE else "fp64"]
    return int(getattr(bindings().ComputeDesc, name)())


@cache
def _handle(device_id: int) -> int:
    """The library's handle for a device, the current one, made once."""
    return int(bindings().create())


def bind_contract(product: Product, workspace: View | None, precision: str) -> Call:
    """Form a product in one call of the library, whatever the order of c.

    Views are flat CuPy arrays; see `Device.bind_contract` for the shapes. The plan is made here, for at most
    the bytes of `workspace` (any dtype; `workspace_bytes` says how many are wanted), which other calls on the
    same stream may share. The call allocates nothing and waits for nothing.
    """
    shape, a, b, c, stream = product
    if shape.k_first:
        raise ValueError("cuTENSOR is given operands with k last")
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
        return nothing
    if _without_elements(modes):
        return bind_zero(c, stream)
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
    wanted = _Plan(modes, [ALIGNMENT_BYTES] * 3, dtype, precision).wanted_bytes()
    return wanted + ALIGNMENT_BYTES


def check_modes(tensors: Iterable[Modes]) -> None:
    """Raise InputError where a tensor has more modes than the library takes."""
    most = max(len(modes) for modes in tensors)
    if most > MOST_MODES:
        raise InputError(
            "cuTENSOR", f"was given a tensor of {most} modes",
            f"it takes at most {MOST_MODES}; use gemm steps", topic="cuTENSOR",
        )  # fmt: skip


def contraction_modes(shape: ContractShape) -> tuple[Modes, Modes, Modes]:
    """The modes of a, b and c, fastest first, with neighbours fused that stay together in every tensor.

    Labels are numbers of modes in the order of batch, m, n and k. Modes of extent 1 are dropped, but k never
    is, so that a and b have at least one mode.
    """
    modes = [*shape.batch, *shape.m, *shape.n, (shape.k, 0)]
    labels = [label for label, (extent, _) in enumerate(modes[:-1]) if extent != 1]
    n_batch, k = len(shape.batch), len(modes) - 1
    m_end = n_batch + len(shape.m)
    stored = (
        (*(label for label in labels if label < m_end), k),
        (*(label for label in labels if not n_batch <= label < m_end), k),
        tuple(sorted(labels, key=lambda label: -modes[label][1])),
    )
    extents = {label: extent for label, (extent, _) in enumerate(modes)}
    a, b, c = map(strided, fused_tensors(stored, extents))
    return a, b, c


def strided(tensor: Sequence[tuple[int, int]]) -> Modes:
    """The (label, extent) of a row-major tensor's modes, slowest first, with their strides, fastest first."""
    strides = mode_strides(tensor)
    return [(label, extent, strides[label]) for label, extent in reversed(tensor)]


def _without_elements(tensors: Iterable[Modes]) -> bool:
    return any(extent == 0 for modes in tensors for _, extent, _ in modes)


class _Plan:
    """The descriptors of one contraction and, once chosen, its plan; freed with the object."""

    def __init__(
        self, modes: tuple[Modes, Modes, Modes], pointers: Sequence[int], dtype: str, precision: str
    ) -> None:
        import cupy

        self._dtype, calls = dtype, bindings()
        ranks = tuple(map(len, modes))
        elements = tuple(prod(extent for _, extent, _ in own) for own in modes)
        self._name = f"a contraction of {dtype} tensors with {ranks} modes and {elements} elements"
        self._handle = _handle(cupy.cuda.Device().id)
        tensors = [self._tensor(own, pointer) for own, pointer in zip(modes, pointers, strict=True)]
        a, b, c = (
            (tensor, [label for label, _, _ in own]) for tensor, own in zip(tensors, modes, strict=True)
        )
        self._operation = self._make(
            calls.create_contraction, calls.destroy_operation_descriptor, *a, IDENTITY, *b, IDENTITY, *c,
            IDENTITY, *c, compute_descriptor(precision, dtype),
        )  # fmt: skip
        self._preference = self._make(
            calls.create_plan_preference, calls.destroy_plan_preference, ALGO_DEFAULT, NO_JIT
        )

    def _tensor(self, modes: Modes, pointer: int) -> int:
        _, extents, strides = zip(*modes, strict=True) if modes else ((), (), ())
        return self._make(
            bindings().create_tensor_descriptor, bindings().destroy_tensor_descriptor, len(modes), extents,
            strides, DATA_TYPES[self._dtype], min(pointer & -pointer, ALIGNMENT_BYTES),
        )  # fmt: skip

    def wanted_bytes(self) -> int:
        """The library's estimate of the workspace that makes the contraction fast."""
        estimate = bindings().estimate_workspace_size
        return self._call(estimate, self._operation, self._preference, WORKSPACE_DEFAULT)

    def choose(self, workspace_size_bytes: int) -> None:
        """Let the library choose its kernel for a workspace of that size."""
        calls, needed = bindings(), np.zeros(1, np.uint64)
        self._plan = self._make(
            calls.create_plan, calls.destroy_plan, self._operation, self._preference, workspace_size_bytes
        )
        self._call(calls.plan_get_attribute, self._plan, PLAN_WORKSPACE, needed.ctypes.data, needed.nbytes)
        if needed[0] > workspace_size_bytes:
            raise ValueError(
                f"{self._name} needs a workspace of {needed[0]} bytes, and has {workspace_size_bytes}"
            )

    def bind(
        self, pointers: Sequence[int], workspace: tuple[int, int], stream: Any, views: tuple[View, ...]
    ) -> Call:
        """The call, with all its arguments made; the views in `views` live as long as it."""
        unit, zero, _ = factors(self._dtype)
        a, b, c = pointers
        arguments = (self._plan, unit, a, b, zero, c, c, *workspace, stream.ptr)
        alive, contract = (self, views), bindings().contract

        def run() -> None:
            alive[0]._call(contract, *arguments)

        return run

    def _make(self, create: Callable[..., int], destroy: Callable[[int], None], *arguments: Any) -> int:
        """What a call makes, which is freed with the object."""
        handle = self._call(create, *arguments)
        weakref.finalize(self, destroy, handle)
        return handle

    def _call(self, call: Callable[..., int], *arguments: Any) -> int:
        try:
            return call(self._handle, *arguments)
        except bindings().cuTENSORError as error:
            raise CutensorError(error.status, f"cuTENSOR: {error}; {self._name}") from None


def _aligned(workspace: View | None) -> tuple[int, int]:
    """Address and bytes of the part of a workspace that begins on a boundary of 256 bytes."""
    if workspace is None or not workspace.nbytes:
        return 0, 0
    start = int(workspace.data.ptr)
    skipped = -start % ALIGNMENT_BYTES
    return (start + skipped, workspace.nbytes - skipped) if skipped < workspace.nbytes else (0, 0)
