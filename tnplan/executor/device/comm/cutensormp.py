"""Tensors spread over ranks through cuTENSOR and cuTENSORMp: a GPU a rank, and NCCL.

cuTENSORMp is called by its C interface, which nvmath does not bind.

Knows modes, how many parts each is cut into and which rank holds which; never schedules. Importing it needs
NumPy alone: the library is loaded, and the ranks are connected, when an engine is made.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from ctypes import byref, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

import numpy as np

from tnplan.common.errors import InputError
from tnplan.executor.device.cuda.contract.cublas import DATA_TYPES, factors
from tnplan.executor.device.cuda.contract.cutensor import (
    IDENTITY,
    CutensorError,
    bind_modes,
    bindings,
    compute_descriptor,
    load,
    modes_workspace_bytes,
    strided,
    version,
)
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.device.protocols.device import Call, Device, View
from tnplan.executor.device.protocols.tensor_library import LocalTensor, SpreadTensor, UnsupportedError

NEEDS_NCCL_2_29 = (2, 8)
"""The first version of cuTENSOR whose cuTENSORMp calls what NCCL has since 2.29."""
NCCL_2_29 = 22900

NOT_SUPPORTED = 15
DEFAULT_ALGORITHM = 0
DEVICE_WORKSPACE, HOST_WORKSPACE = 0, 1
DEVICE_LIMIT_BYTES = 2 << 30
"""What the library may take on the GPU; it refuses to plan with less."""
HOST_LIMIT_BYTES = 64 << 20


def check_versions(cutensor_version: tuple[int, int, int], nccl_version: int) -> None:
    """Raise InputError where cuTENSORMp of that version cannot work with the NCCL that is loaded."""
    version = ".".join(map(str, cutensor_version))
    if cutensor_version[:2] < (2, 6):
        raise InputError(
            "cuTENSORMp", f"is not part of cuTENSOR {version}",
            "install it with: pip install 'cutensor-cu13==2.6.*'", topic="installation",
        )  # fmt: skip
    if cutensor_version[:2] >= NEEDS_NCCL_2_29 and nccl_version < NCCL_2_29:
        major, minor, patch = nccl_version // 10000, nccl_version // 100 % 100, nccl_version % 100
        raise InputError(
            "cuTENSORMp", f"{version} needs NCCL 2.29 or newer, and {major}.{minor}.{patch} is loaded",
            "install 'nvidia-nccl-cu13>=2.29', or 'cutensor-cu13==2.7.*'", topic="cuTENSOR",
        )  # fmt: skip


class CutensorMp:
    """The libraries on one rank of a group; see `tensor_library.TensorLibrary`.

    Shards are contracted by cuTENSOR, and exchanges of blocks are cuTENSORMp's. It could contract too, but
    takes 3.5 s where c interleaves the modes of a and b and 10 ms where it does not (2.6 on H200s, m = 2^20,
    k = n = 2^8), and sends scattered pieces one by one, at 5 microseconds each.

    Making it is collective. Plans and the library's handle are freed with the object; the workspace is the
    device's scratch memory, which all calls share.
    """

    def __init__(self, communicator: Communicator, device: Device) -> None:
        if device.name != "gpu":
            raise InputError("--engine cutensormp", "needs GPUs", "choose --device gpu", topic="cuTENSOR")
        from tnplan.executor.device.comm.nccl import connect_ranks, nccl_number
        from tnplan.executor.device.cuda.device import CupyDevice

        assert isinstance(device, CupyDevice)
        self._version = version(bindings())
        check_versions(self._version, nccl_number())
        self._library = ctypes.CDLL(load("cutensorMp"))
        self._library.cutensorGetErrorString.restype = ctypes.c_char_p
        self._device = device
        self._size = communicator.size
        self._nccl = connect_ranks(communicator)
        self._owned: list[tuple[Any, c_void_p]] = []
        weakref.finalize(self, _free, self._owned, self._nccl)
        self._handle = c_void_p()
        self._make(
            "cutensorMpCreate", "cutensorMpDestroy", self._handle, "at the start",
            byref(self._handle), c_void_p(self._nccl.comm), c_int32(device.device_id),
            c_void_p(device.stream.ptr),
        )  # fmt: skip

    def bind_contract(
        self, tensors: tuple[LocalTensor, LocalTensor, LocalTensor], views: tuple[View, View, View],
        precision: str,
    ) -> Call:  # fmt: skip
        """c = the sum of a times b over the modes that c lacks, by cuTENSOR on this rank's shards."""
        a, b, c = tensors
        # The library contracts over one mode at least: where none is summed, one of extent 1 is.
        if not {label for label, _ in a} - {label for label, _ in c}:
            a, b = ((*tensor, (_NOTHING, 1)) for tensor in (a, b))
        modes = (strided(a), strided(b), strided(c))
        dtype = views[2].dtype.name
        workspace = self._device.scratch(modes_workspace_bytes(modes, dtype, precision))
        return self._device.loaded(bind_modes(modes, views, workspace, precision, self._device.stream))

    def bind_exchange(self, tensors: tuple[SpreadTensor, SpreadTensor], views: tuple[View, View]) -> Call:
        """The second tensor gets the values of the first, which is spread otherwise.

        The library moves data in contractions alone, so this is one with a tensor of one element that is 1.
        Collective, as is the call, which waits for nothing.
        """
        import cupy

        source, out = tensors
        unit_tensor = SpreadTensor(((_NOTHING, 1, 1),))
        dtype = views[1].dtype.name
        detail = f"an exchange of {dtype} tensors with {len(source.modes)} modes"
        operands: list[Any] = []
        for tensor in (source, unit_tensor, out):
            labels = [label for label, _, _ in tensor.modes[::-1]]
            operands.append((self._tensor(tensor, dtype, detail), array(c_int32, labels)))
        a, b, c = operands
        operation, plan, preference = c_void_p(), c_void_p(), c_void_p()
        self._make(
            "cutensorMpCreateContraction", "cutensorMpDestroyOperationDescriptor", operation, detail,
            self._handle, byref(operation), *a, c_int32(IDENTITY), *b, c_int32(IDENTITY), *c,
            c_int32(IDENTITY), *c, c_void_p(compute_descriptor("fp32", dtype)),
        )  # fmt: skip
        self._make(
            "cutensorMpCreatePlanPreference", "cutensorMpDestroyPlanPreference", preference, detail,
            self._handle, byref(preference), c_int32(DEFAULT_ALGORITHM), c_uint64(DEVICE_LIMIT_BYTES),
            c_uint64(HOST_LIMIT_BYTES),
        )  # fmt: skip
        self._make(
            "cutensorMpCreatePlan", "cutensorMpDestroyPlan", plan, detail,
            self._handle, byref(plan), operation, preference,
        )  # fmt: skip
        workspace = self._device.scratch(self._attribute(plan, DEVICE_WORKSPACE))
        host_workspace = np.empty(self._attribute(plan, HOST_WORKSPACE), np.uint8)
        with self._device.stream:
            unit = cupy.ones(1, dtype)
        return self._call(plan, (views[0], unit, views[1]), workspace, host_workspace, detail)

    def _call(
        self, plan: c_void_p, views: tuple[View, View, View], workspace: View, host_workspace: Any,
        detail: str,
    ) -> Call:  # fmt: skip
        unit, zero, _ = factors(views[2].dtype.name)
        a, b, c = (c_void_p(int(view.data.ptr)) for view in views)
        contract = self._library.cutensorMpContract
        arguments = (
            self._handle, plan, c_void_p(unit), a, b, c_void_p(zero), c, c,
            c_void_p(int(workspace.data.ptr)), c_void_p(host_workspace.ctypes.data),
        )  # fmt: skip
        # The arguments are addresses: what they point to lives as long as the call.
        alive = (self, views, workspace, host_workspace)

        def run() -> None:
            status = contract(*arguments)
            if status:
                alive[0]._check("cutensorMpContract", status, detail)

        return run

    def _tensor(self, tensor: SpreadTensor, dtype: str, detail: str) -> c_void_p:
        """The descriptor of a tensor: packed shards of equal size, the fastest mode first."""
        modes = tensor.modes[::-1]
        descriptor = c_void_p()
        self._make(
            "cutensorMpCreateTensorDescriptor", "cutensorMpDestroyTensorDescriptor", descriptor, detail,
            self._handle, byref(descriptor), c_uint32(len(modes)),
            array(c_int64, [extent for _, extent, _ in modes]), None, None, None,
            array(c_int64, [parts for _, _, parts in modes]), c_uint32(self._size),
            None, c_int32(DATA_TYPES[dtype]),
        )  # fmt: skip
        return descriptor

    def _attribute(self, plan: c_void_p, attribute: int) -> int:
        size, get = c_uint64(), self._library.cutensorMpPlanGetAttribute
        status = get(self._handle, plan, c_int32(attribute), byref(size), c_size_t(8))
        self._check("cutensorMpPlanGetAttribute", status, "")
        return size.value

    def _make(self, name: str, destroy: str, handle: c_void_p, detail: str, *arguments: Any) -> None:
        """Call `name`, which makes `handle`, and free it with the object."""
        status = getattr(self._library, name)(*arguments)
        if status == NOT_SUPPORTED:
            version = ".".join(map(str, self._version[:2]))
            raise UnsupportedError(f"cuTENSORMp {version} does not support it (status {status} of {name})")
        self._check(name, status, detail)
        self._owned.append((getattr(self._library, destroy), handle))

    def _check(self, name: str, status: int, detail: str) -> None:
        """Raise CutensorError unless a call succeeded."""
        if status:
            meaning = (self._library.cutensorGetErrorString(status) or b"unknown").decode()
            raise CutensorError(status, f"{name}: status {status}, {meaning}; {detail}")


def array(kind: Any, values: Sequence[int]) -> Any:
    """A C array; None, a null pointer, where it would be empty."""
    return (kind * len(values))(*values) if values else None


_NOTHING = 1 << 30
"""The label of a mode of extent 1 that is summed where no other is."""


def _free(owned: Sequence[tuple[Any, c_void_p]], communicator: Any) -> None:
    """Free what the library made, the latest first; the communicator outlives the library's handle."""
    for destroy, handle in reversed(owned):
        destroy(handle)
    del communicator
