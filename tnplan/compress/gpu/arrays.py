"""Arrays of other libraries in `compress` and `decompress`, on the device of the caller or of their type.

Whoever can drive a library's arrays registers a device for it (`cuda.codec` does for CuPy).
An array belongs to the library that its type's module starts with. Streams stay where the arrays are; what
is NumPy's goes to the device that is given. Frames that a CPU stored without loss, or in its adaptive coder,
have no kernel: the host decodes streams with such, and the array is copied to the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tnplan.compress.cpu.codec import (
    Compressed,
    allocate,
    check_length,
    decode_bytes,
    enough_memory,
    flat_bytes,
    flat_values,
    no_memory,
    worst_size_bytes,
)
from tnplan.compress.format import stream
from tnplan.compress.format.choice import CodingOptions
from tnplan.compress.format.errors import CodecError, HostOnlyError
from tnplan.compress.format.stream import Header
from tnplan.compress.gpu.decode import decode, read_header
from tnplan.compress.gpu.launches import WORD_BYTES, KernelDevice
from tnplan.compress.gpu.survey import write

_DEVICES: dict[str, Callable[[], KernelDevice]] = {}


def register(library: str, make: Callable[[], KernelDevice]) -> None:
    """Arrays whose type is in `library` are compressed on the device that `make` returns."""
    _DEVICES[library] = make


def device_of(array: Any, name: str, expected: str) -> KernelDevice:
    """The device of an array; CodecError, naming it `name` and what is `expected`, where none is known."""
    kind = type(array)
    make = _DEVICES.get(kind.__module__.partition(".")[0])
    if make is None:
        raise CodecError(
            name, f"is of type {kind.__module__}.{kind.__name__}",
            f"give {expected}, or a CuPy array once tnplan.gpu_codec() has been called",
        )  # fmt: skip
    return make()


def check_device(device: Any) -> KernelDevice:
    """The device; CodecError for what is none."""
    if isinstance(device, type) or not isinstance(device, KernelDevice):
        raise CodecError("device", f"is {device!r}", "give a device, such as tnplan.gpu_codec()")
    return device


def compress_array(array: Any, options: CodingOptions, device: KernelDevice) -> Compressed:
    """As `compress.compress`; `data` is an array of bytes on the device. Takes the memory of the array."""
    with enough_memory():
        values = device.upload(flat_values(array)) if isinstance(array, np.ndarray) else _flat(array)
        dtype = array.dtype.name
        most_bytes = worst_size_bytes(array.shape, dtype, options.frame_log2)
        out = device.empty(most_bytes + -most_bytes % WORD_BYTES, "uint8")
        header, _, used = write(device, values, dtype, array.shape, options, out)
        return Compressed(out[:used].copy(), header)


def decompress_array(data: Any, device: KernelDevice, known_header: Header | None = None) -> Any:
    """As `compress.decompress`, from bytes of the host or the device to an array on the device; where the
    header is known, the stream begins with it."""
    with enough_memory():
        aligned = _copied(data, device)
        header = known_header or read_header(device, aligned)
        check_length(header, aligned.size)
        try:
            values = device.empty(header.size * header.components, header.real_dtype.name)
        except MemoryError:
            raise no_memory(header) from None
        try:
            decode(device, aligned, values, known_header)
        except HostOnlyError:
            del values
            return device.upload(decode_bytes(device.download(aligned), allocate, known_header))
        return values.view(header.dtype).reshape(header.shape)


def _copied(data: Any, device: KernelDevice) -> Any:
    """The bytes of a stream on the device, from a multiple of 8 on."""
    if isinstance(data, bytes | bytearray | memoryview):
        data = flat_bytes(data)
    if not hasattr(data, "dtype"):
        raise CodecError("data", f"is of type {type(data).__name__}", "give the bytes of a stream")
    if data.dtype != np.uint8 or data.ndim != 1:
        raise CodecError("data", f"is {data.dtype} of shape {data.shape}", "give a 1-D array of bytes")
    return device.upload(data) if isinstance(data, np.ndarray) else data.copy()


def _flat(array: Any) -> Any:
    """The real numbers of an array in C order; a view where it is contiguous."""
    if not hasattr(array, "dtype"):
        raise CodecError("array", f"is of type {type(array).__name__}", "give a NumPy array or the device's")
    stream.check_dtype(array.dtype)
    return array.reshape(-1).view(stream.real_dtype(array.dtype.name))
