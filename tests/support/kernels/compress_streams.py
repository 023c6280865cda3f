"""Compressed streams that are taken apart, changed and read on a device."""

from __future__ import annotations

import io
import random
import struct
from typing import Any

import numpy as np

from tnplan.compress import worst_size_bytes
from tnplan.compress.cpu.codec import flat_values
from tnplan.compress.cpu.frame import encode_frame
from tnplan.compress.format.stream import (
    Header,
    frame_seed,
    pack_frame,
    pack_header,
    read_frame,
    read_header,
)
from tnplan.compress.gpu.decode import decode
from tnplan.compress.gpu.encode import encode


def mutated(data: bytes, chance: random.Random) -> bytes:
    """One to four changes: bits, bytes, truncation, growth, exchanged and repeated parts."""
    out = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place, other = (chance.randrange(len(out) + 1) for _ in range(2))
        what = chance.randrange(7)
        if what == 0 and place < len(out):
            out[place] ^= 1 << chance.randrange(8)
        elif what == 1 and place < len(out):
            out[place] = chance.choice((0, 255, chance.randrange(256)))
        elif what == 2:
            del out[place:]
        elif what == 3:
            out[place:place] = chance.randbytes(chance.randint(1, 20))
        elif what == 4:
            del out[place : place + chance.randint(1, 20)]
        elif what == 5:
            part = out[other : other + 16]
            out[place : place + len(part)] = part
        else:
            out[place : place + 8] = struct.pack("<Q", chance.getrandbits(64) >> chance.randrange(64))
    return bytes(out)


CODERS = ("fast", "small")


def sealed(header: Header, payloads: list[bytes]) -> bytes:
    seed = frame_seed(header)
    return b"".join([pack_header(header), *(pack_frame(one, k, seed) for k, one in enumerate(payloads))])


def stream_of(array: np.ndarray, header: Header, limits: tuple[float, ...]) -> bytes:
    """The stream that the twins write, frames without loss raw."""
    n, values, payloads = header.components, flat_values(array), []
    for first, count in header.frames():
        own = values[n * first : n * (first + count)]
        payload = encode_frame(own, header, limits)
        if payload[0] == 1:
            payload = bytes(8) + own.tobytes() + bytes(-own.nbytes % 8)
        payloads.append(payload)
    return sealed(header, payloads)


def payloads_of(data: bytes) -> list[bytes]:
    source = io.BytesIO(data)
    header = read_header(source)
    return [read_frame(source, n, frame_seed(header), 1 << 30) for n, _ in enumerate(header.frames())]


def written(device: Any, array: np.ndarray, header: Header, limits: tuple[float, ...]) -> bytes:
    """The stream that the device writes."""
    room = worst_size_bytes(array.shape, array.dtype.name, header.frame_log2)
    out = device.empty(room + -room % 8, "uint8")
    used = encode(device, device.upload(flat_values(array)), header, limits, out)
    data: bytes = device.download(out[:used]).tobytes()
    return data


def restored(device: Any, data: bytes, like: np.ndarray, header: Header | None) -> np.ndarray:
    """The array that the device reads."""
    values = device.zeros(flat_values(like).size, like.real.dtype.name)
    decode(device, device.upload(np.frombuffer(data, np.uint8)), values, header)
    return device.download(values).view(like.dtype).reshape(like.shape)  # type: ignore[no-any-return]
