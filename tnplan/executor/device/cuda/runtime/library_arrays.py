"""Arrays of other libraries on a GPU: read and made in the order of their stream, without the host."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import cupy
import cupyx
import numpy as np

Array = Any
"""A cupy.ndarray."""


def values_on_gpu(arrays: Mapping[int, Any], dtype: np.dtype[Any], stream: Any) -> dict[int, Any]:
    """What an input block takes for arrays of any library on its GPU: the address of contiguous values of the
    dtype, else a CuPy array."""
    values: dict[int, Any] = {}
    torch = sys.modules.get("torch")
    tensor, tensor_dtype = (None, None) if torch is None else (torch.Tensor, getattr(torch, dtype.name))
    for number, array in arrays.items():
        if tensor is not None and isinstance(array, tensor):
            plain = array.dtype is tensor_dtype and array.is_contiguous()
            if plain and not array.is_conj() and not array.is_neg():
                values[number] = array.data_ptr()
                continue
        elif isinstance(array, cupy.ndarray) and array.dtype == dtype and array.flags.c_contiguous:
            values[number] = array.data.ptr
            continue
        values[number] = on_gpu(array, stream)
    return values


def on_gpu(array: Any, stream: Any) -> Array:
    """An array of any library on this GPU as a CuPy array, for work on `stream`; nothing is copied.

    torch's are taken by address, since DLPack takes ten times as long.
    """
    if isinstance(array, cupy.ndarray):
        return array
    if type(array).__module__.partition(".")[0] != "torch":
        with stream:
            return cupy.from_dlpack(array)
    if array.is_conj() or array.is_neg() or array.dtype is sys.modules["torch"].bfloat16:
        array = _as_values(array, stream)
    dtype = _numpy_dtype(array.dtype)
    strides = None if array.is_contiguous() else [stride * dtype.itemsize for stride in array.stride()]
    memory = cupy.cuda.UnownedMemory(array.data_ptr(), max(array.nbytes, 1), array, array.device.index)
    return cupy.ndarray(tuple(array.shape), dtype, cupy.cuda.MemoryPointer(memory, 0), strides)


def _as_values(tensor: Any, stream: Any) -> Any:
    """A tensor of torch with its values as they are read: conjugated, negated, and bfloat16 as float32.

    Invariant: `stream` computes them. Work that torch's own stream is given now comes after the event that
    `stream` waits for, and may come too late.
    """
    torch = sys.modules["torch"]
    with torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr, tensor.device)):
        tensor = tensor.resolve_conj().resolve_neg()
        return tensor.float() if tensor.dtype is torch.bfloat16 else tensor


@cache
def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """NumPy's dtype for one of torch that it has too: all but bfloat16."""
    return np.dtype(str(dtype).removeprefix("torch."))


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


@contextmanager
def raising_cupy() -> Iterator[Any]:
    """CuPy, whose decompositions that fail raise LinAlgError in this thread, as NumPy's do."""
    with cupyx.errstate(linalg="raise"):
        yield cupy


@contextmanager
def cupy_in_order(library: str, gpu: int) -> Iterator[tuple[Any, Any]]:
    """CuPy on a GPU, and a stream of its own behind what a library's stream has to do there.

    Decompositions that fail raise LinAlgError.
    """
    with cupy.cuda.Device(gpu), raising_cupy():
        stream = cupy.cuda.Stream(non_blocking=True)
        with in_order(stream, library, gpu), stream:
            yield cupy, stream


def _stream_of(library: str, gpu: int) -> Any:
    """The current stream of a library; None where it shows none."""
    if library == "cupy":
        return cupy.cuda.get_current_stream()
    if library == "torch":
        stream = sys.modules["torch"].cuda.current_stream(gpu)
        # CuPy warns of the older way where it has this one, which older versions of torch do not.
        has_both = hasattr(cupy.cuda.Stream, "from_external") and hasattr(stream, "__cuda_stream__")
        if has_both:
            return cupy.cuda.Stream.from_external(stream)
        return cupy.cuda.ExternalStream(stream.cuda_stream)
    return None


def empty(shape: tuple[int, ...], dtype: Any, library: str, like: Any) -> tuple[Any, Array]:
    """A new array of a library on the GPU of `like`, and the same memory as a CuPy array.

    CuPy and torch allocate it themselves, and so know when it is free; others take CuPy's.
    """
    if library == "torch":
        torch = sys.modules["torch"]
        tensor = torch.empty(shape, dtype=getattr(torch, np.dtype(dtype).name), device=like.device)
        return tensor, on_gpu(tensor, None)
    values = cupy.empty(shape, dtype)
    return values if library == "cupy" else sys.modules[library].dlpack.from_dlpack(values), values
