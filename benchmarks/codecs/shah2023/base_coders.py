"""The base coders in the style of cuSZ and cuSZx, and the integrated coder (II-B, VI-C).

Knows flat float32 arrays and an absolute bound; never thresholds of other stages.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from shah2023.stages import Values, join, split
from tnplan.compress.cpu import rans

ESCAPE = 255
LARGEST_CODE = 1 << 30
BLOCK = 256


def encode_cusz(values: Values, bound: float) -> bytes:
    """Linear-scale quantization, differences of neighbours (1-D Lorenzo), entropy coding.

    Zigzag differences below 255 are coded as bytes by frequency; others follow as whole numbers. Values that
    quantization would not give back within the bound are kept exactly beside.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        codes = np.rint(values.astype(np.float64) / (2 * bound))
        exact = ~((np.abs(codes) < LARGEST_CODE) & (np.abs(_restored(codes, bound) - values) <= bound))
    whole = np.where(exact, 0, codes).astype(np.int64)
    steps = np.diff(whole, prepend=0)
    zigzag = np.where(steps > 0, 2 * steps - 1, -2 * steps)
    symbols = np.minimum(zigzag, ESCAPE).astype(np.uint8)
    coded = rans.encode_bytes(symbols, symbols.size - 2) if symbols.size else None
    places = np.flatnonzero(exact)
    return join(
        symbols.tobytes() if coded is None else b"\0" + coded,
        zigzag[zigzag >= ESCAPE].astype("<u4").tobytes(), places.astype("<u4").tobytes(),
        values[places].tobytes(),
    )  # fmt: skip


def decode_cusz(data: bytes, bound: float, size: int) -> Values:
    """The values that `encode_cusz` was given, within the bound."""
    coded, large, places, exact = split(data, 4)
    symbols = np.empty(size, np.uint8)
    if len(coded) == size:
        symbols[:] = np.frombuffer(coded, np.uint8)
    else:
        rans.decode_bytes(np.frombuffer(coded, np.uint8)[1:], symbols, "cuSZ")
    zigzag = symbols.astype(np.int64)
    zigzag[symbols == ESCAPE] = np.frombuffer(large, "<u4")
    steps = np.where(zigzag & 1, zigzag // 2 + 1, -(zigzag // 2))
    values = _restored(np.cumsum(steps).astype(np.float64), bound)
    values[np.frombuffer(places, "<u4")] = np.frombuffer(exact, "<f4")
    return values


def _restored(codes: NDArray[np.float64], bound: float) -> Values:
    return (codes * (2 * bound)).astype(np.float32)


def encode_cuszx(values: Values, bound: float, block: int = BLOCK) -> bytes:
    """Constant blocks as their median, others as leading bytes (`szx_kernel`)."""
    return _encode_blocks(values, bound, -1.0, block)


def encode_integrated(values: Values, bound: float, limit: float, block: int = BLOCK) -> bytes:
    """cuSZx with threshold and grouping inside blocks of at most 256: all zero, constant, non-constant
    grouped, non-constant (Figs. 8 and 9)."""
    return _encode_blocks(values, bound, limit, block)


def _encode_blocks(values: Values, bound: float, limit: float, block: int) -> bytes:
    from shah2023 import szx_kernel

    n_blocks = -(-values.size // block)
    states = np.zeros(n_blocks, np.uint8)
    out = np.empty(n_blocks * szx_kernel.worst_block_bytes(block), np.uint8)
    end = szx_kernel.encode(values, np.float32(bound), np.float32(limit), block, states, out)
    packed = states.reshape(-1, 1) >> np.array([0, 1], np.uint8) & 1
    return join(
        np.packbits(packed, bitorder="little").tobytes(), struct.pack("<I", block), out[:end].tobytes()
    )


def decode_blocks(data: bytes, bound: float, size: int) -> Values:
    """The `size` values of `encode_cuszx` or `encode_integrated`; ValueError for bytes that make no sense."""
    from shah2023 import szx_kernel

    packed, block_bytes, body = split(data, 3)
    (block,) = struct.unpack("<I", block_bytes)
    n_blocks = -(-size // block)
    bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=2 * n_blocks, bitorder="little")
    values = np.empty(size, np.float32)
    if not szx_kernel.decode(np.frombuffer(body, np.uint8), bits[::2] | bits[1::2] << 1, block, values):
        raise ValueError("the bytes are no blocks of this size")
    return values
