"""Arrays of other libraries on a GPU: read and made in the order of their stream, without the host."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cupy
import numpy as np

Array = Any
"""A cupy.ndarray."""


def on_gpu(array: Any, stream: Any) -> Array:
    """An array of any library on this GPU as a CuPy array, for work on `stream`; nothing is copied.

    torch's are taken by address, since DLPack takes ten times as long.
    """
    if isinstance(array, cupy.ndarray):
        return array
    if type(array).__module__.partition(".")[0] != "torch":
        with stream:
            return cupy.from_dlpack(array)
    array = array.resolve_conj().resolve_neg()
    name = str(array.dtype).removeprefix("torch.")
    if name == "bfloat16":
        array, name = array.float(), "float32"
    dtype = np.dtype(name)
    strides = tuple(stride * dtype.itemsize for stride in array.stride())
    size_bytes = array.untyped_storage().nbytes()
    memory = cupy.cuda.UnownedMemory(array.data_ptr(), max(size_bytes, 1), array, array.device.index)
    return cupy.ndarray(tuple(array.shape), dtype, cupy.cuda.MemoryPointer(memory, 0), strides)


@contextmanager
def in_order(stream: Any, library: str, gpu: int) -> Iterator[None]:
    """Work on `stream` inside comes after what the library's stream has to do, and before what follows."""
    theirs = _stream_of(library, gpu)
    if theirs is None:
        yield
        stream.synchronize()
        return
    stream.wait_event(theirs.record(cupy.cuda.Event(disable_timing=True)))
    try:
        yield
    finally:
        theirs.wait_event(stream.record(cupy.cuda.Event(disable_timing=True)))


def _stream_of(library: str, gpu: int) -> Any:
    """The current stream of a library; None where it shows none."""
    if library == "cupy":
        return cupy.cuda.get_current_stream()
    if library == "torch":
        return cupy.cuda.ExternalStream(sys.modules["torch"].cuda.current_stream(gpu).cuda_stream)
    return None


def empty(shape: tuple[int, ...], dtype: Any, library: str, like: Any) -> tuple[Any, Array]:
    """A new array of a library on the GPU of `like`, and the same memory as a CuPy array.

    CuPy and torch allocate it themselves, and so know when it is free; others take CuPy's.
    """
    if library == "torch":
        torch = sys.modules["torch"]
        given = torch.empty(shape, dtype=getattr(torch, np.dtype(dtype).name), device=like.device)
        return given, cupy.from_dlpack(given)
    values = cupy.empty(shape, dtype)
    return values if library == "cupy" else sys.modules[library].dlpack.from_dlpack(values), values
