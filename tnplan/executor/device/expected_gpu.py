"""The name of the device that a job is to use, and a GPU's start as soon as one is expected.

Imports little: the modules of the job are imported while CUDA begins, in a thread of its own. The driver
takes 0.1 s to begin and 0.1 s for a GPU's context, without Python's lock.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.util import find_spec
from threading import Thread

from tnplan.common.errors import InputError
from tnplan.executor.device.comm.launcher import launched_size

LIBRARY = "libcuda.so.1"
DEVICES = ("auto", "cpu", "gpu")


def check_device(wanted: str) -> None:
    """Raise InputError where `wanted` is no name of a device."""
    if not isinstance(wanted, str) or wanted not in DEVICES:
        raise InputError(
            "--device", f"{wanted!r} is unknown", f"choose from {', '.join(DEVICES)}", topic="GPUs",
        )


def expect_gpu(wanted: str) -> None:
    """Let CUDA begin beside this thread, where a job of this process alone will use a GPU.

    A lone process takes the first GPU that it sees. Where the device is chosen later, no context is made.
    Raises InputError where `wanted` is no name of a device.
    """
    check_device(wanted)
    if wanted != "cpu" and launched_size() == 1 and find_spec("cupy") is not None:
        begin_cuda(0 if wanted == "gpu" else None)

@cache
def begin_cuda(number: int | None) -> None:
    """Begin with CUDA and, where a number is given, with the context of that GPU; returns at once.

    Who uses CUDA waits for what is not done. What fails here fails there again, with a message. A context
    that is made here stays until the process ends, as CuPy's does.
    """
    Thread(target=_begin, args=(number,), name="tnplan CUDA start", daemon=True).start()


def _begin(number: int | None) -> None:
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError:
        return
    if driver.cuInit(0) or number is None:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if not driver.cuDeviceGet(ctypes.byref(device), number):
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
