"""`compress` and `decompress`: arrays of NumPy by `codec`, those of other libraries where they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.compress.cpu.codec import Array, Buffer, Compressed, allocate, decode_bytes, encode
from tnplan.compress.format import stream
from tnplan.compress.format.options import CodingOptions
from tnplan.compress.format.stream import FRAME_LOG2
from tnplan.compress.gpu import arrays


def compress(
    array: Array, bound: float, *, mode: str = "range", setting: str = "auto", nonfinite: str = "keep",
    frame_log2: int = FRAME_LOG2, device: Any = None,
) -> Compressed:  # fmt: skip
    """Compress an array of float32, float64, complex64 or complex128: no element errs by more than the bound.

    The bound holds for real and imaginary parts each. `mode`: 'range': |x - x'| <= bound * (greatest - least
    finite value of that part), 'absolute': |x - x'| <= bound, 'pointwise': |x - x'| <= bound * |x|. A bound
    of 0 is lossless. `setting`: 'fast', 'small' or 'auto', which chooses on a sample. NaN and infinities
    survive bit for bit, or are refused with nonfinite='refuse'. Frames hold 2^frame_log2 elements.
    An array of another library than NumPy is compressed where it is, on `device` (`device.Device`) or
    on the one that is known for its type (`arrays`); NumPy's on `device` where one is given. Raises
    CodecError for what cannot be done, also where there is not enough memory.
    """
    if device is not None or not isinstance(array, np.ndarray):
        if device is None:
            there = arrays.device_of(array, "array", "a NumPy array")
        else:
            there = arrays.check_device(device)
        options = CodingOptions(bound, mode, setting, nonfinite, frame_log2)
        return arrays.compress_array(array, options, there)
    header, pieces = encode(
        array, bound, mode=mode, setting=setting, nonfinite=nonfinite, frame_log2=frame_log2
    )
    return Compressed(b"".join(pieces), header)


def decompress(data: Buffer | Compressed, *, device: Any = None) -> Array:
    """The array of a stream, or of what `compress` returned. StreamError for bytes that are no whole,
    undamaged stream, CodecError for data that are no bytes and where there is no memory for the array.

    A `Compressed` brings the header that its bytes begin with, which a device then need not tell first. An
    array of bytes of another library than NumPy is decompressed where it is, on `device` as in `compress`;
    bytes of the host are copied to `device` where one is given. Frames that a CPU stored without loss, such
    as those of a bound of 0, have no kernel on a device: with them the whole stream is decoded on the host,
    and the array copied to the device. Every stream gives the same bits on the host and on a device.
    """
    header = None
    if isinstance(data, Compressed):
        header = data.header
        data = data.data
        stream.check_given(header)
    if device is not None or not isinstance(data, bytes | bytearray | memoryview | np.ndarray):
        if device is None:
            there = arrays.device_of(data, "data", "the bytes of a stream (`Compressed.data`)")
        else:
            there = arrays.check_device(device)
        return arrays.decompress_array(data, there, header)
    return decode_bytes(data, allocate, header)
