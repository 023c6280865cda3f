"""Which codec serves a device: that of its arrays, imported when it is asked for."""

from __future__ import annotations

from typing import Any

from tnplan.executor.device.protocols.codec import Codec


def open_codec(device: Any) -> Codec:
    """The codec of a device."""
    if device.name == "gpu":
        from tnplan.executor.device.cuda.codec import CupyStreamCodec

        return CupyStreamCodec(device.stream)
    if device.name == "null":
        from tnplan.executor.device.null.codec import NullCodec

        return NullCodec()
    from tnplan.executor.device.cpu.codec import NumpyCodec

    return NumpyCodec()
