"""Which codec serves a device: that of its arrays, imported when it is asked for."""

from __future__ import annotations

from typing import Any

from executor.device.codec import Codec


def open_codec(device: Any) -> Codec:
    """The codec of a device."""
    if device.name == "gpu":
        from executor.device.cupy_stream_codec import CupyStreamCodec

        return CupyStreamCodec(device.stream)
    if device.name == "null":
        from executor.device.null_codec import NullCodec

        return NullCodec()
    from executor.device.numpy_codec import NumpyCodec

    return NumpyCodec()
