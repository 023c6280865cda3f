"""Arrays of other libraries through the interface of `compress`; their device is given, or is known.

Whoever can drive a library's arrays registers a device for it (`executor.device.cupy_codec` does for CuPy).
An array belongs to the library that its type's module starts with. Streams stay where the arrays are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compress import stream
from compress.codec import Compressed, check_options, worst_size_bytes
from compress.device_codec import WORD_BYTES, Device, encode
from compress.device_decode import decode, read_header
from compress.device_survey import survey
from compress.errors import CodecError

_DEVICES: dict[str, Callable[[], Device]] = {}


def register(library: str, make: Callable[[], Device]) -> None:
    """Arrays whose type is in `library` are compressed on the device that `make` returns."""
    _DEVICES[library] = make


def device_of(array: Any, name: str) -> Device:
    """The device of an array; CodecError, naming it `name`, where none is known."""
    kind = type(array)
    make = _DEVICES.get(kind.__module__.partition(".")[0])
    if make is None:
        raise CodecError(
            name, f"is of type {kind.__module__}.{kind.__name__}",
            "give a NumPy array, or a CuPy array once executor.device.cupy_codec is imported",
        )  # fmt: skip
    return make()


def compress_array(
    array: Any, bound: float, device: Device, mode: str, setting: str, nonfinite: str, frame_log2: int
) -> Compressed:
    """As `compress.compress`; `data` is an array of bytes on the device. Takes the memory of the array."""
    check_options(setting, nonfinite, frame_log2)
    values, dtype = _flat(array), array.dtype.name
    header, limits = survey(
        device, values, dtype, array.shape, bound, mode, setting, frame_log2, nonfinite=nonfinite
    )
    room = worst_size_bytes(array.shape, dtype, frame_log2)
    out = device.empty(room + -room % WORD_BYTES, "uint8")
    used = encode(device, values, header, limits, out)
    return Compressed(out[:used].copy(), header)


def decompress_array(data: Any, device: Device) -> Any:
    """As `compress.decompress`, from an array of bytes on the device to one there."""
    aligned = data.copy()
    header = read_header(device, aligned)
    values = device.empty(header.size * header.components, header.real_dtype.name)
    decode(device, aligned, values)
    return values.view(header.dtype).reshape(header.shape)


def _flat(array: Any) -> Any:
    """The real numbers of an array in C order; a view where it is contiguous."""
    if array.dtype.name not in stream.DTYPES or not np.dtype(array.dtype).isnative:
        raise CodecError(
            "array", f"has dtype {array.dtype}", f"give {', '.join(stream.DTYPES)} in native order"
        )
    return array.reshape(-1).view(stream.real_dtype(array.dtype.name))
