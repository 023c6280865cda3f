"""A sliced network in cuTensorNet, by its C interface: our contraction order, our slices, its kernels.

Knows contraction paths, device pointers and streams; never schedules, ranks or how time is measured.
Importing it needs NumPy alone; the library is loaded when the first network is made, which needs no GPU.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import weakref
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.common.errors import InputError
from tnplan.executor.device.comm.cutensormp import array
from tnplan.executor.device.cuda.contract import cutensor
from tnplan.executor.device.protocols.copy import row_major
from tnplan.planner.networks.contraction_path import ContractionPath

NAME = "libcutensornet.so.2"
REMEDY = "install it with: pip install cutensornet-cu13"
LOADED_FIRST = ("cublas", "cusolver")
"""What cuTensorNet needs, cuTENSOR apart, without knowing where it lies: loaded before it, by name."""

DATA_TYPES = {"float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
COMPUTE = {"fp32": 1 << 2, "tf32": 1 << 12, "fp16x3": 1 << 13, "fp64": 1 << 4}
"""Precision to the library's own way of multiplying; for fp16x3 that is three TF32 products."""
COMPUTE_TYPE = 30
PATH, N_SLICES, SLICING, FLOPS, LARGEST = 0, 10, 14, 21, 24
DEVICE, HOST = 0, 1
SCRATCH, CACHE = 0, 1
LEAST, RECOMMENDED = 0, 1
TUNE_ORDERS = 1


class CutensornetError(RuntimeError):
    """A call of cuTensorNet that failed, with the library's own reason."""


class _Pair(ctypes.Structure):
    _fields_ = (("first", c_int32), ("second", c_int32))


class _Path(ctypes.Structure):
    _fields_ = (("count", c_int32), ("pairs", ctypes.POINTER(_Pair)))


class _Slice(ctypes.Structure):
    _fields_ = (("mode", c_int32), ("extent", c_int64))


class _Slicing(ctypes.Structure):
    _fields_ = (("count", c_uint32), ("slices", ctypes.POINTER(_Slice)))


class _Qualifiers(ctypes.Structure):
    _fields_ = (("conjugate", c_int32), ("constant", c_int32), ("gradient", c_int32))


@dataclass(frozen=True)
class Needs:
    """Bytes of device memory: of work at least and as the library wishes, and of what slices may share."""

    least_bytes: int
    wished_bytes: int
    cache_bytes: int


def linear_pairs(path: ContractionPath) -> list[tuple[int, int]]:
    """The order as pairs of positions in the list of tensors left, to whose end each result goes."""
    live = list(range(len(path.network.inputs)))
    named = list(live)
    pairs = []
    for step in path.ssa_path:
        held = named[step[0]]
        for other in (named[tensor] for tensor in step[1:]):
            pair = sorted((live.index(held), live.index(other)))
            for position in reversed(pair):
                del live[position]
            pairs.append((pair[0], pair[1]))
            held = len(path.network.inputs) + len(pairs) - 1
            live.append(held)
        named.append(held)
    return pairs


class SlicedNetwork:
    """One network with its order and slices, ready to be given memory; freed with the object.

    With `constant` tensors the library may keep what all slices share. Raises CutensornetError where the
    library refuses the network, the order or the slices, and InputError where it cannot be loaded.
    """

    def __init__(self, path: ContractionPath, precision: str, constant: bool) -> None:
        self.path = path
        self._calls, self._handle = library(), handle()
        self._network = self._made("Network")
        self._labels = {index: label for label, index in enumerate(_ordered(path))}
        self._tensors = [self._append(term, constant) for term in path.network.inputs]
        output = path.network.output
        self._call(
            "cutensornetNetworkSetOutputTensor", self._handle, self._network, c_int32(len(output)),
            self._modes(output), c_int32(DATA_TYPES[path.dtype]),
        )  # fmt: skip
        compute = c_int32(COMPUTE[precision])
        self._call(
            "cutensornetNetworkSetAttribute", self._handle, self._network, c_int32(COMPUTE_TYPE),
            byref(compute), c_size_t(4),
        )  # fmt: skip
        self._info = self._made("ContractionOptimizerInfo", self._network)
        self._set_path()
        self._set_slices()
        self._call("cutensornetNetworkSetOptimizerInfo", self._handle, self._network, self._info)
        self._workspace = self._made("WorkspaceDescriptor")
        self._kept: list[Any] = []

    @property
    def n_slices(self) -> int:
        """The number of slices as the library counts them."""
        return int(self._told(N_SLICES, c_int64))

    @property
    def flops(self) -> float:
        """The real operations of all slices as the library counts them."""
        return float(self._told(FLOPS, c_double))

    @property
    def largest(self) -> float:
        """The elements of the largest intermediate of a slice."""
        return float(self._told(LARGEST, c_double))

    def needs(self) -> Needs:
        """The memory that contracting takes; needs a GPU."""
        self._call(
            "cutensornetWorkspaceComputeContractionSizes", self._handle, self._network, self._info,
            self._workspace,
        )  # fmt: skip
        wanted = ((LEAST, SCRATCH), (RECOMMENDED, SCRATCH), (RECOMMENDED, CACHE))
        return Needs(*(self._wanted_bytes(preference, DEVICE, kind) for preference, kind in wanted))

    def prepare(self, inputs: Sequence[Any], output: Any, scratch: Any | None, shared: Any | None) -> None:
        """Take the tensors, row-major CuPy arrays, and the memory, flat ones; choose the kernels.

        To be called after `needs`. Without `shared` nothing is kept from slice to slice.
        """
        for tensor, term, values in zip(self._tensors, self.path.network.inputs, inputs, strict=True):
            self._call(
                "cutensornetNetworkSetInputTensorMemory", self._handle, self._network, tensor,
                c_void_p(values.data.ptr), self._strides(term),
            )  # fmt: skip
        self._call(
            "cutensornetNetworkSetOutputTensorMemory", self._handle, self._network,
            c_void_p(output.data.ptr), self._strides(self.path.network.output),
        )  # fmt: skip
        kept: list[Any] = [*inputs, output, scratch, shared]
        for kind, memory in ((SCRATCH, scratch), (CACHE, shared)):
            if memory is None:
                self._take(DEVICE, kind, 0, 0)
                continue
            self._take(DEVICE, kind, memory.data.ptr, memory.nbytes)
            on_host = np.empty(self._wanted_bytes(RECOMMENDED, HOST, kind), np.uint8)
            if on_host.size:
                self._take(HOST, kind, on_host.ctypes.data, on_host.nbytes)
                kept.append(on_host)
        self._kept = kept
        self._call("cutensornetNetworkPrepareContraction", self._handle, self._network, self._workspace)

    def tune(self, stream: Any) -> None:
        """Let the library try kernels and orders of modes on a slice; waits for the GPU."""
        preference = self._made("NetworkAutotunePreference")
        orders = c_int32(1)
        self._call(
            "cutensornetNetworkAutotunePreferenceSetAttribute", self._handle, preference,
            c_int32(TUNE_ORDERS), byref(orders), c_size_t(4),
        )  # fmt: skip
        self._call(
            "cutensornetNetworkAutotuneContraction", self._handle, self._network, self._workspace,
            preference, c_void_p(stream.ptr),
        )  # fmt: skip

    def contract(self, first: int, stop: int, stream: Any) -> None:
        """Write the sum of the slices first .. stop-1 to the output, on `stream`, in one call."""
        group = c_void_p()
        self._call(
            "cutensornetCreateSliceGroupFromIDRange", self._handle, c_int64(first), c_int64(stop), c_int64(1),
            byref(group),
        )  # fmt: skip
        try:
            self._call(
                "cutensornetNetworkContract", self._handle, self._network, c_int32(0),
                self._workspace, group, c_void_p(stream.ptr),
            )  # fmt: skip
        finally:
            self._call("cutensornetDestroySliceGroup", group)

    def _append(self, term: Sequence[str], constant: bool) -> c_int64:
        tensor = c_int64()
        extents = [self.path.network.size_dict[index] for index in term]
        self._call(
            "cutensornetNetworkAppendTensor", self._handle, self._network, c_int32(len(term)),
            array(c_int64, extents), self._modes(term), byref(_Qualifiers(0, int(constant), 0)),
            c_int32(DATA_TYPES[self.path.dtype]), byref(tensor),
        )  # fmt: skip
        return tensor

    def _set_path(self) -> None:
        pairs = linear_pairs(self.path)
        held = _Path(len(pairs), (_Pair * len(pairs))(*(_Pair(*pair) for pair in pairs)))
        self._set(PATH, held)

    def _set_slices(self) -> None:
        sliced = self.path.sliced_inds
        if sliced:
            # Each slice has one value of every sliced index.
            slices = (_Slice * len(sliced))(*(_Slice(self._labels[index], 1) for index in sliced))
            self._set(SLICING, _Slicing(len(sliced), slices))

    def _set(self, attribute: int, value: ctypes.Structure) -> None:
        self._call(
            "cutensornetContractionOptimizerInfoSetAttribute", self._handle, self._info, c_int32(attribute),
            byref(value), c_size_t(ctypes.sizeof(value)),
        )  # fmt: skip

    def _told(self, attribute: int, kind: Any) -> Any:
        value = kind()
        self._call(
            "cutensornetContractionOptimizerInfoGetAttribute", self._handle, self._info, c_int32(attribute),
            byref(value), c_size_t(ctypes.sizeof(value)),
        )  # fmt: skip
        return value.value

    def _modes(self, term: Sequence[str]) -> Any:
        return array(c_int32, [self._labels[index] for index in term])

    def _strides(self, term: Sequence[str]) -> Any:
        return array(c_int64, row_major([self.path.network.size_dict[index] for index in term]))

    def _wanted_bytes(self, preference: int, space: int, kind: int) -> int:
        size = c_int64()
        self._call(
            "cutensornetWorkspaceGetMemorySize", self._handle, self._workspace, c_int32(preference),
            c_int32(space), c_int32(kind), byref(size),
        )  # fmt: skip
        return size.value

    def _take(self, space: int, kind: int, pointer: int, size: int) -> None:
        self._call(
            "cutensornetWorkspaceSetMemory", self._handle, self._workspace, c_int32(space), c_int32(kind),
            c_void_p(pointer), c_int64(size),
        )  # fmt: skip

    def _made(self, kind: str, *arguments: Any) -> c_void_p:
        made = c_void_p()
        self._call(f"cutensornetCreate{kind}", self._handle, *arguments, byref(made))
        self._own(f"cutensornetDestroy{kind}", made)
        return made

    def _call(self, name: str, *arguments: Any) -> None:
        check(name, getattr(self._calls, name)(*arguments))

    def _own(self, destroy: str, made: c_void_p) -> None:
        weakref.finalize(self, getattr(self._calls, destroy), made)


def _ordered(path: ContractionPath) -> list[str]:
    """All indices, each once, the sliced ones first and in their order."""
    everywhere = itertools.chain(path.sliced_inds, *path.network.inputs)
    return list(dict.fromkeys(everywhere))


def check(name: str, status: int) -> None:
    """Raise CutensornetError unless the call `name` succeeded."""
    if status:
        text = library().cutensornetGetErrorString(status)
        raise CutensornetError(f"{name}: {text.decode() if text else status}")


@cache
def handle() -> c_void_p:
    """The library's handle for the current device, made once."""
    made = c_void_p()
    check("cutensornetCreate", library().cutensornetCreate(byref(made)))
    return made


def version() -> str:
    """The library's version."""
    number = int(library().cutensornetGetVersion())
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


@cache
def library() -> ctypes.CDLL:
    """Load cuTensorNet and what it needs; InputError where something is not installed."""
    cutensor.load("cutensor")
    for name in LOADED_FIRST:
        try:
            cutensor.load(name)
        except InputError as error:
            raise InputError(error.place, error.problem, f"pip install nvidia-{name}") from None
    try:
        calls = ctypes.CDLL(str(_file()))
    except OSError as error:
        raise InputError("cuTensorNet", f"cannot be loaded ({error})", REMEDY) from None
    calls.cutensornetGetErrorString.restype = c_char_p
    calls.cutensornetGetVersion.restype = c_size_t
    return calls


def _file() -> str | Path:
    """Where the wheel keeps the library, else its name, which the loader looks for."""
    found = importlib.util.find_spec("cuquantum")
    for folder in (found.submodule_search_locations or ()) if found else ():
        file = Path(folder) / "lib" / NAME
        if file.exists():
            return file
    return NAME
