"""Events recorded in streams without Python's lock, which CuPy keeps while it records one.

A stream that waits for another rank fills up, and then every call on it waits too. Ranks in one process
share the lock: held meanwhile, it would keep those that are waited for from ever coming.
Knows events and streams; never what is timed or awaited.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def record(event: Any, stream: Any) -> None:
    """Record a CuPy event in a CuPy stream, both of the GPU that is current."""
    status = driver_record()(event.ptr, stream.ptr)
    if status:
        raise RuntimeError(f"CUDA: an event cannot be recorded (error {status} of the driver)")


@cache
def driver_record() -> Any:
    """The driver's call, which gives up Python's lock."""
    call = ctypes.CDLL("libcuda.so.1").cuEventRecord
    call.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    call.restype = ctypes.c_int
    return call
