"""Emulated GPUs for ranks of a job, which are threads; messages by NCCL are copies."""

from __future__ import annotations

import ctypes
import sys
from collections import defaultdict
from importlib import import_module
from itertools import count
from queue import SimpleQueue
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.kernels.emulated_gpu import put_in_place
from tests.support.kernels.idle_gpu import Array
from tnplan.executor.device.cuda.gpu_assignment import VisibleGpus

LIBRARIES = "cupy_backends.cuda.libs"
MODULE = "tnplan.executor.device.comm.nccl"
WITHIN_S = 30
GPUS = 4


class OfHost(type):
    """Arrays of the emulated GPU are NumPy's, and not the host's."""

    def __instancecheck__(cls, array: Any) -> bool:
        return isinstance(array, np.ndarray) and not isinstance(array, Array)


class HostArray(metaclass=OfHost):
    """An array of the host."""


def put_gpus_in_place(patch: pytest.MonkeyPatch) -> list[int]:
    """Four GPUs as emulated_gpu.py has them are seen; the list gets the bytes of each message by NCCL."""
    from tnplan.executor.device import select
    from tnplan.executor.device.cuda import gpus
    from tnplan.executor.device.cuda.device import CupyDevice

    sent: list[int] = []
    queues: Any = defaultdict(SimpleQueue)
    groups = count()

    class NcclCommunicator:
        def __init__(self, size: int, group: int, rank: int) -> None:
            self._group, self._rank = group, rank

        def send(self, address: int, size_bytes: int, kind: int, peer: int, stream: int) -> None:
            sent.append(size_bytes)
            queues[self._group, self._rank, peer].put(ctypes.string_at(address, size_bytes))

        def recv(self, address: int, size_bytes: int, kind: int, peer: int, stream: int) -> None:
            # All messages of a group are sent before any is received.
            arrived = queues[self._group, peer, self._rank].get(timeout=WITHIN_S)
            assert len(arrived) == size_bytes
            ctypes.memmove(address, arrived, size_bytes)

        def destroy(self) -> None:
            """Nothing."""

        abort = destroy

    put_in_place(patch)
    binding: Any = ModuleType(f"{LIBRARIES}.nccl")
    binding.NcclCommunicator, binding.NcclError, binding.NCCL_UINT8 = NcclCommunicator, RuntimeError, 0
    binding.groupStart = binding.groupEnd = lambda: None
    binding.get_unique_id = lambda: next(groups)
    patch.setitem(sys.modules, binding.__name__, binding)
    patch.setitem(vars(import_module(LIBRARIES)), "nccl", binding)
    patch.setitem(sys.modules, MODULE, None)  # what was there comes back afterwards
    del sys.modules[MODULE]
    connected: Any = import_module(MODULE)
    patch.setattr(connected, "np", SimpleNamespace(ndarray=HostArray, uint8=np.uint8))
    patch.setattr(CupyDevice, "facts", lambda _: {"gpu": "emulated"})
    patch.setattr(gpus, "pci_bus", lambda _: "")
    seen = VisibleGpus("here", tuple(map(str, range(GPUS))), ("sm_90",) * GPUS)
    patch.setattr(select, "look", lambda: seen)
    return sent
