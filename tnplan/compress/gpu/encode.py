"""Streams written where the array is: the kernels of compress/gpu/kernels in the order of `codec.encode`.

A device is given (`gpu.launches.KernelDevice`). Streams are those of the CPU, byte for byte, but for frames
without loss, which are stored raw here. The host waits for what a survey finds, and for the stream's size.
Nothing is allocated but workspace of a batch of frames; the output buffer is the caller's.
"""

from __future__ import annotations

import numpy as np

from tnplan.compress.format import stream
from tnplan.compress.format.bit_tiling import tile_count
from tnplan.compress.format.stream import Header
from tnplan.compress.gpu import fixed_length, rans
from tnplan.compress.gpu.fixed_length import BATCH_BYTES, code_fast
from tnplan.compress.gpu.frames import StreamWriter, check_capacity, frame_count, groups
from tnplan.compress.gpu.launches import DeviceArray, KernelDevice
from tnplan.compress.gpu.predicted import code_predicted
from tnplan.compress.gpu.rans import code_small

CODERS = {"fast": (code_fast, fixed_length.slot_bytes), "small": (code_small, rans.slot_bytes)}


def encode(
    device: KernelDevice, values: DeviceArray, header: Header, limits: tuple[float, ...], out: DeviceArray
) -> int:
    """Write the stream of flat real numbers to `out` (bytes, from a multiple of 8 on): how many were written.

    `worst_size_bytes` are always enough. The device may still be writing the stream, in the order of
    its launches. Raises CodecError where `out` is too small.
    """
    start, count = stream.header_size_bytes(len(header.shape), header.components), frame_count(header)
    check_capacity(out, start)
    if not count:
        out[:start] = device.upload(np.frombuffer(stream.pack_header(header), np.uint8))
        return start
    writer = StreamWriter(device, header.dtype, out, start, count)
    return go_on(writer, values, header, limits, 0)


def go_on(
    writer: StreamWriter, values: DeviceArray, header: Header, limits: tuple[float, ...], first: int
) -> int:
    """Append frames from the `first` on to a stream, and end it: how many bytes it has."""
    device = writer.device
    code, slot_bytes = CODERS.get(header.coder, CODERS["fast"])
    if header.predictor:
        code = code_predicted
    frame_bytes = tile_count(min(header.stored, header.frame_elements)) * slot_bytes(header.components)
    for group in groups(header, BATCH_BYTES // frame_bytes, first):
        own = group.values_of(values, header)
        if header.coder == "lossless":
            writer.append_raw(own, header, group)
        else:
            writer.append(own, group.first, code(device, own, header, limits, group))
    return writer.seal(header)
