"""`compress` and `decompress`: arrays of NumPy by `codec`, those of other libraries where they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.compress.cpu.codec import Array, Buffer, Compressed, allocate, decode_bytes, encode
from tnplan.compress.format import stream
from tnplan.compress.format.choice import CodingOptions
from tnplan.compress.format.stream import FRAME_LOG2
from tnplan.compress.gpu import arrays


def compress(
    array: Array, bound: float, *, mode: str = "range", setting: str = "auto", nonfinite: str = "keep",
    frame_log2: int = FRAME_LOG2, device: Any = None,
) -> Compressed:  # fmt: skip
    """Compress an array: no real or imaginary part errs by more than the bound.

    Parameters
    ----------
    array : array
        Float32, float64, complex64 or complex128, in any byte order; float16 comes back as float32, and
        integers, with the bound 0, as float32 (up to 16 bits) or float64. An array of another library than
        NumPy is compressed where it is, by the device that is known for its type.
    bound : float
        The largest error; 0 is lossless.
    mode : {"range", "absolute", "pointwise"}
        For x a real or an imaginary part by itself: |x - x'| <= bound * (greatest - least finite value of
        that part), <= bound, or <= bound * |x|. So a complex number may err by sqrt(2) times an absolute
        bound.
    setting : {"auto", "fast", "small"}
        Coding that is fast, or that gives small files; "auto" tries both on a sample.
    nonfinite : {"keep", "refuse"}
        NaN and infinities survive bit for bit, or are refused.
    frame_log2 : int
        Frames hold 2^frame_log2 elements.
    device : optional
        A device to compress on, such as `tnplan.gpu_codec()`.

    Returns
    -------
    Compressed
        The stream and its header.

    Raises
    ------
    CodecError
        For what cannot be done, also where there is not enough memory.

    Examples
    --------
    >>> packed = tnplan.compress.compress(np.linspace(0, 1, 4096), 1e-3)
    >>> packed.ratio > 4
    True
    """
    if device is not None or not isinstance(array, np.ndarray):
        if device is None:
            kernel_device = arrays.device_of(array, "array", "a NumPy array")
        else:
            kernel_device = arrays.check_device(device)
        options = CodingOptions(bound, mode, setting, nonfinite, frame_log2, predict=True)
        return arrays.compress_array(array, options, kernel_device)
    header, pieces = encode(
        array, bound, mode=mode, setting=setting, nonfinite=nonfinite, frame_log2=frame_log2
    )
    return Compressed(b"".join(pieces), header)


def decompress(data: Buffer | Compressed, *, device: Any = None) -> Array:
    """Restore the array of a stream.

    Every stream gives the same bits on the host and on a device. Frames that a CPU stored without loss, such
    as those of a bound of 0, and smooth ones that it made very small have no kernel on a device: with them
    the whole stream is decoded on the host, and the array copied to the device.

    Parameters
    ----------
    data : bytes, array of bytes or Compressed
        A stream. An array of another library than NumPy is decompressed where it is. A `Compressed` brings
        the header that its bytes begin with, which a device then need not tell first.
    device : optional
        As in `compress`; bytes of the host are copied there.

    Returns
    -------
    array
        The array, with its shape and dtype.

    Raises
    ------
    StreamError
        For bytes that are no whole, undamaged stream.
    CodecError
        For data that are no bytes, and where there is no memory for the array.

    Examples
    --------
    >>> packed = tnplan.compress.compress(np.linspace(0, 1, 4096), 1e-3)
    >>> bool(np.abs(tnplan.compress.decompress(packed) - np.linspace(0, 1, 4096)).max() <= 1e-3)
    True
    """
    header = None
    if isinstance(data, Compressed):
        header = data.header
        data = data.data
        stream.check_given(header)
    if device is not None or not isinstance(data, bytes | bytearray | memoryview | np.ndarray):
        if device is None:
            kernel_device = arrays.device_of(data, "data", "the bytes of a stream (`Compressed.data`)")
        else:
            kernel_device = arrays.check_device(device)
        return arrays.decompress_array(data, kernel_device, header)
    return decode_bytes(data, allocate, header)
