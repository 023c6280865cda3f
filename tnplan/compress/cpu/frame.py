"""One frame: values to a payload and back, by a header's quantizers and coder.

    payload     u64 kind: RAW, PLANES, CODED, SHUFFLED or ADAPTIVE; every part is filled up to 8 bytes
    RAW         the values' bytes
    PLANES      for each byte of a real number, over all of them: u64 size, bytes; raw where of full size
    SHUFFLED    u64 size, bytes: bit planes of all elements, one behind the other, through Zstandard, and
                then what is left of eight elements; in streams without loss, from version 2 on
    CODED       u64 number of exact values, u64 size of the coder's bytes, those bytes; positions (u32,
                ascending: component * padded elements + position in tile order) and bits of the exact
                values; where there is a predictor, tiles have residuals, and positions are of elements
    ADAPTIVE    the same with the coder `cpu.adaptive`; under a predictor, from version 4 on

The kind is whichever is smallest, so that a payload is never larger than its values by more than 16 bytes.
"""

from __future__ import annotations

import struct
import sys
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu import adaptive, predictor, rans
from tnplan.compress.cpu import fixed_length as fixed
from tnplan.compress.cpu.workspace import workspace
from tnplan.compress.format.bit_tiling import (
    NATURAL,
    TILE,
    local_offsets,
    tile_count,
    tile_offsets,
    usable_axes,
)
from tnplan.compress.format.bounds import LARGEST_Q, round_down
from tnplan.compress.format.stream import VERSION, Header, Quantizer, damaged_unless

if TYPE_CHECKING:
    from tnplan.compress.cpu.quantize_kernel import BitRule, LinearRule

RAW, PLANES, CODED = range(3)
SHUFFLED, ADAPTIVE = 4, 5
CODED_HEAD = struct.Struct("<QQQ")
_U64 = struct.Struct("<Q")
POSITION_BYTES = 4
ZSTANDARD_LEVEL = 6
TRIAL = 1 << 16
"""Elements on which kinds of frames without loss are compared."""
MOST_EXACT = 8
"""A frame of which more than one value in so many misses its bound is stored without loss."""

CODER = {"fast": fixed, "small": rans}
Values = NDArray[np.floating]


def most_payload_bytes(n_elements: int, header: Header) -> int:
    """The largest payload of a frame."""
    return filled(_U64.size + n_elements * header.components * header.real_dtype.itemsize)


def filled(size_bytes: int) -> int:
    """A size rounded up to whole words of 8 bytes, at which all parts of a payload start."""
    return size_bytes + -size_bytes % _U64.size


def encode_frame(values: Values, header: Header, limits: tuple[float, ...]) -> bytes:
    """The payload of a frame's values (flat, real numbers, components interleaved).

    `limits` are the largest errors of each component; they matter for absolute bounds.
    """
    payload = None
    if header.coder == "lossless":
        payload = _encode_lossless(values, header.components)
    else:
        payload = _encode_coded(values, header, limits)
        if payload is None and header.coder != "fast":
            payload = _encode_planes(values)
    return _joined(_U64.pack(RAW), values.tobytes()) if payload is None else payload


def decode_frame(payload: bytes, header: Header, values: Values, place: str) -> None:
    """Fill a frame's values from its payload; StreamError, naming `place`, where it makes no sense."""
    damaged_unless(len(payload) >= _U64.size, place)
    (kind,) = _U64.unpack(payload[: _U64.size])
    damaged_unless(kind <= CODED or kind in (SHUFFLED, ADAPTIVE), place)
    data = np.frombuffer(payload, np.uint8)
    if kind == RAW:
        damaged_unless(data.size == filled(_U64.size + values.nbytes), place)
        values.view(np.uint8)[:] = data[_U64.size : _U64.size + values.nbytes]
    elif kind == PLANES:
        _decode_planes(data, values, place)
    elif kind == SHUFFLED:
        damaged_unless(header.coder == "lossless" and header.version >= 2, place)
        _decode_shuffled(data, values, header.components * values.itemsize, place)
    else:
        is_sound = bool(header.predictor and header.version >= VERSION)
        damaged_unless(is_sound if kind == ADAPTIVE else header.coder != "lossless", place)
        _decode_coded(data, header, values, place)


def _joined(*parts: bytes) -> bytes:
    return b"".join(chain.from_iterable((piece, bytes(-len(piece) % _U64.size)) for piece in parts))


def _encode_lossless(values: Values, components: int) -> bytes | None:
    """The payload of the kind that makes a sample of the values smallest; None where they are smaller as
    they are."""
    middle = max(0, values.size // 2 // components * components - components * TRIAL // 2)
    sample = values[middle : middle + components * TRIAL]
    kinds = [lambda some: _encode_shuffled(some, components), _encode_planes]
    payloads = [encode(sample) for encode in kinds]
    sizes = [sample.nbytes if payload is None else len(payload) for payload in payloads]
    best = int(np.argmin(sizes))
    return payloads[best] if sample.size == values.size else kinds[best](values)


def _zstd() -> Any:
    """Zstandard of Python, from 3.14 on, or the same for older ones."""
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def _encode_shuffled(values: Values, components: int) -> bytes | None:
    from tnplan.compress.cpu import shuffle_kernel

    data = values.view(np.uint8)
    shuffled = np.empty_like(data)
    shuffle_kernel.shuffle(data, components * values.itemsize, shuffled)
    body = _zstd().compress(shuffled.data, level=ZSTANDARD_LEVEL)
    payload = _joined(_U64.pack(SHUFFLED), _U64.pack(len(body)), body)
    return payload if len(payload) <= values.nbytes else None


def _decode_shuffled(data: NDArray[np.uint8], values: Values, item_bytes: int, place: str) -> None:
    from tnplan.compress.cpu import shuffle_kernel

    zstd = _zstd()
    damaged_unless(data.size >= 2 * _U64.size, place)
    (size,) = _U64.unpack(data[_U64.size : 2 * _U64.size].tobytes())
    damaged_unless(data.size == filled(2 * _U64.size + size), place)
    packed = data[2 * _U64.size :][:size].data
    try:
        # Its own statement of the size is checked before there is memory for it.
        good = zstd.get_frame_info(packed).decompressed_size == values.nbytes
        shuffled = zstd.ZstdDecompressor().decompress(packed) if good else b""
    except zstd.ZstdError:
        shuffled = b""
    damaged_unless(len(shuffled) == values.nbytes, place)
    shuffle_kernel.unshuffle(np.frombuffer(shuffled, np.uint8), item_bytes, values.view(np.uint8))


def _encode_planes(values: Values) -> bytes | None:
    parts, small = [_U64.pack(PLANES)], False
    planes = values.view(np.uint8).reshape(-1, values.itemsize)
    for p in range(values.itemsize):
        plane = np.ascontiguousarray(planes[:, p])
        packed = rans.encode_bytes(plane, plane.size - 1) if plane.size else None
        small |= packed is not None
        body = plane.tobytes() if packed is None else packed
        parts += [_U64.pack(len(body)), body]
    payload = _joined(*parts)
    return payload if small and len(payload) <= values.nbytes else None


def _decode_planes(data: NDArray[np.uint8], values: Values, place: str) -> None:
    planes = values.view(np.uint8).reshape(-1, values.itemsize)
    plane = np.empty(planes.shape[0], np.uint8)
    at = _U64.size
    for p in range(values.itemsize):
        damaged_unless(at + 8 <= data.size, place)
        size = _U64.unpack(data[at : at + 8].tobytes())[0]
        at += 8
        damaged_unless(size <= plane.size and at + filled(size) <= data.size, place)
        body = data[at : at + size]
        at += filled(size)
        if size == plane.size:
            plane[:] = body
        else:
            rans.decode_bytes(body, plane, place)
        planes[:, p] = plane
    damaged_unless(at == data.size, place)


def _encode_coded(values: Values, header: Header, limits: tuple[float, ...]) -> bytes | None:
    q, positions = quantize(values, header, limits)
    if positions is None:
        return None
    exact_bytes = filled(positions.size * POSITION_BYTES) + filled(positions.size * values.itemsize)
    most_bytes = values.nbytes - exact_bytes - CODED_HEAD.size - _U64.size
    kind, coded = CODED, None
    if header.predictor and header.version >= VERSION:
        kind, coded = ADAPTIVE, adaptive.encode(q, most_bytes)
    if coded is None and header.predictor:
        kind, coded = CODED, rans.encode(q, most_bytes, residuals=True)
    elif coded is None:
        coded = CODER[header.coder].encode(q, most_bytes)
    if coded is None:
        return None
    bits = _bits(values)[:0]
    if positions.size:
        bits = _bits(values)[element_indices(positions, header, values.size, q.shape[1])]
    head = CODED_HEAD.pack(kind, positions.size, len(coded))
    return _joined(head, coded, positions.astype("<u4").tobytes(), bits.tobytes())


def _decode_coded(data: NDArray[np.uint8], header: Header, values: Values, place: str) -> None:
    damaged_unless(data.size >= CODED_HEAD.size, place)
    kind, count, size = CODED_HEAD.unpack(data[: CODED_HEAD.size].tobytes())
    middle = CODED_HEAD.size + filled(size) + filled(count * POSITION_BYTES)
    damaged_unless(data.size == middle + filled(count * values.itemsize), place)
    n_elements = values.size // header.components
    q = workspace("q", (header.components, tile_count(n_elements) * TILE), np.int32)
    end = CODED_HEAD.size + size
    coder = adaptive if kind == ADAPTIVE else CODER[header.coder]
    coder.decode(data[CODED_HEAD.size : end], q, place)
    dequantize(q, header, values)
    if not count:
        return
    positions = data[filled(end) : filled(end) + count * POSITION_BYTES].view("<u4").astype(np.int64)
    damaged_unless(bool((np.diff(positions) > 0).all()) and int(positions[-1]) < q.size, place)
    targets = element_indices(positions, header, values.size, q.shape[1])
    damaged_unless(bool((targets < values.size).all()), place)
    _bits(values)[targets] = data[middle : middle + count * values.itemsize].view(_bits(values).dtype)


def quantize(
    values: Values, header: Header, limits: tuple[float, ...]
) -> tuple[NDArray[np.int32], NDArray[np.int64] | None]:
    """Whole numbers (components, tiles * 4096) in tile order, and the positions of values to be stored
    exactly; None for these where they are too many."""
    from tnplan.compress.cpu import quantize_kernel as kernel

    most_exact = values.size // MOST_EXACT + 1
    if header.predictor:
        return predictor.quantize(values, header, limits, most_exact)
    n = header.components
    n_elements = values.size // n
    axes = usable_axes(header.axes, n_elements)
    local, tiles = local_offsets(axes), tile_offsets(axes, n_elements)
    q = np.empty((n, tiles.size * TILE), np.int32)
    exact = np.empty(most_exact, np.int64)
    real = values.dtype.type
    n_exact = 0
    bits, sign_bit = _bits(values), _sign_bit(values)
    for c, rule in enumerate(header.quantizers):
        before, order = n_exact, kernel.TileOrder(n, c, local, tiles)
        if rule.bits_step:
            n_exact = kernel.quantize_pointwise(bits, order, bit_rule(rule, real), q[c], exact, n_exact)
        elif rule.step:
            linear = linear_rule(rule, limits[c], values.dtype)
            n_exact = kernel.quantize_absolute(values, order, linear, q[c], exact, n_exact)
        else:
            # Zeros of either sign are the same constant.
            checked = ~sign_bit if rule.zero_bits == 0 else ~sign_bit | sign_bit
            constant = bits.dtype.type(rule.zero_bits), checked
            n_exact = kernel.quantize_constant(bits, order, constant, q[c], exact, n_exact)
        exact[before:n_exact] += c * q.shape[1]
    return q, exact[:n_exact] if n_exact <= exact.size else None


def dequantize(q: NDArray[np.int32], header: Header, values: Values) -> None:
    """Fill a frame's values from whole numbers in tile order."""
    from tnplan.compress.cpu import quantize_kernel as kernel

    if header.predictor:
        predictor.dequantize(q, header, values)
        return
    n = header.components
    n_elements = values.size // n
    axes = usable_axes(header.axes, n_elements)
    local, tiles = local_offsets(axes), tile_offsets(axes, n_elements)
    for c, rule in enumerate(header.quantizers):
        order = kernel.TileOrder(n, c, local, tiles)
        if rule.bits_step:
            kernel.dequantize_pointwise(q[c], order, bit_rule(rule, values.dtype.type), _bits(values))
        else:
            zero = np.array([rule.zero_bits], _bits(values).dtype).view(values.dtype)[0]
            kernel.dequantize_absolute(q[c], order, values.dtype.type(rule.step), zero, values)


def bit_rule(rule: Quantizer, real: type[np.floating]) -> BitRule:
    """Steps of bits as kernels take them, for values of a type."""
    from tnplan.compress.cpu.quantize_kernel import BitRule

    least, infinite = (int(_bits(np.array([x], real))[0]) for x in (np.finfo(real).tiny, np.inf))
    return BitRule(_sign_bit(np.empty(0, real)), least, infinite, rule.bits_step, rule.base_bits)


def linear_rule(rule: Quantizer, limit: float, dtype: np.dtype[Any]) -> LinearRule:
    """Steps of one width as kernels take them; `limit` is rounded down to the values' precision."""
    from tnplan.compress.cpu.quantize_kernel import LinearRule

    real, step = dtype.type, dtype.type(rule.step)
    return LinearRule(step, real(1) / step, real(round_down(limit, dtype)), real(LARGEST_Q[dtype]))


def element_indices(
    positions: NDArray[np.int64], header: Header, n_values: int, padded: int
) -> NDArray[np.int64]:
    """The index among the frame's values of each position."""
    component, position = np.divmod(positions, padded)
    n_elements = n_values // header.components
    axes = NATURAL if header.predictor else usable_axes(header.axes, n_elements)
    element = local_offsets(axes)[position % TILE] + tile_offsets(axes, n_elements)[position // TILE]
    return np.asarray(header.components * element + component)


def _bits(values: Values) -> NDArray[np.unsignedinteger]:
    return values.view(np.uint32 if values.itemsize == 4 else np.uint64)


def _sign_bit(values: Values) -> np.unsignedinteger:
    return _bits(values).dtype.type(1 << (8 * values.itemsize - 1))
