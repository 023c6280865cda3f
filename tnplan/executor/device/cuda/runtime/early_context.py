"""CUDA's start in a thread of its own, while this one imports modules. Knows the driver alone, no CuPy.

The driver takes 0.1 s to begin and 0.1 s for a GPU's context, without Python's lock.
"""

from __future__ import annotations

import ctypes
from functools import cache
from threading import Thread

LIBRARY = "libcuda.so.1"


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
