"""Bounds, special values, symmetry, sizes and options of the codecs, on the CPU."""

from __future__ import annotations

import gc
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.support.kernels.compress_arrays import (
    BOUNDS,
    DTYPES,
    KINDS,
    MODES,
    SIZES,
    bits,
    holds_bound,
    make_array,
    overflows,
    product_tensor,
)
from tests.support.robustness.refusals import Refusal, Row, table
from tests.support.slow import slow_after
from tnplan.compress import (
    CodecError,
    compress,
    compress_into,
    decompress,
    decompress_into,
    worst_size_bytes,
)
from tnplan.compress.cpu import codec
from tnplan.compress.format.stream import Header, Quantizer, header_size_bytes, pack_header, read_header

SETTINGS = ("fast", "small", "auto")


def round_trip(array: np.ndarray, bound: float, mode: str, setting: str, frame_log2: int = 12) -> float:
    """Compress and decompress, check everything that always holds; return the ratio."""
    before = bits(array).copy()
    if mode == "range" and bound and overflows(array):
        with pytest.raises(CodecError, match="relative to a range that overflows"):
            compress(array, bound, mode=mode, setting=setting)
        return 1.0
    packed = compress(array, bound, mode=mode, setting=setting, frame_log2=frame_log2)
    assert np.array_equal(bits(array), before)
    assert len(packed.data) <= worst_size_bytes(array.shape, array.dtype.name, frame_log2)
    again = decompress(packed.data)
    holds_bound(array, again, bound, mode)
    return packed.ratio


@pytest.mark.parametrize("first", slow_after(1, range(0, 2000, 500)))
def test_the_bound_holds_for_two_thousand_arrays(first: int) -> None:
    chance = random.Random(first)
    for seed in range(first, first + 500):
        kind, dtype, mode = chance.choice(KINDS), chance.choice(DTYPES), chance.choice(MODES)
        size = chance.choice(SIZES) if seed % 5 else chance.randint(0, 9000)
        array = make_array(kind, size, dtype, seed)
        round_trip(array, chance.choice(BOUNDS), mode, chance.choice(SETTINGS))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_kind_with_every_dtype(kind: str, dtype: str) -> None:
    for mode in MODES:
        round_trip(make_array(kind, 5000, dtype, 7), 1e-3, mode, "small")
        round_trip(make_array(kind, 5000, dtype, 8), 1e-3, mode, "fast")


FLOATS = {32: arrays(np.float32, st.integers(0, 70)), 64: arrays(np.float64, st.integers(0, 70))}


@given(FLOATS[32] | FLOATS[64], st.floats(0, 1e6), st.sampled_from(MODES), st.sampled_from(SETTINGS))
def test_any_floats_and_any_bound(array: np.ndarray, bound: float, mode: str, setting: str) -> None:
    round_trip(array, bound, mode, setting)


def test_values_just_beside_the_bound() -> None:
    for dtype in (np.float32, np.float64):
        for bound in (0.1, 0.37, 1e-3):
            edges = np.concatenate([np.arange(-50, 50) * bound, (np.arange(-50, 50) + 0.5) * 2 * bound])
            exact = edges.astype(dtype)
            array = np.concatenate([exact, np.nextafter(exact, dtype(9)), np.nextafter(exact, dtype(-9))])
            for setting in SETTINGS:
                round_trip(array, bound, "absolute", setting)


@pytest.mark.parametrize("setting", ["fast", "small"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_the_bound_is_of_each_part_by_itself(dtype: str, setting: str) -> None:
    r = np.random.default_rng(7)
    array = (r.normal(size=20_000) + 1e-3j * r.normal(size=20_000)).astype(dtype)
    again = decompress(compress(array, 1e-2, setting=setting))
    holds_bound(array, again, 1e-2, "range")
    assert np.abs(again.imag - array.imag).max() <= 1e-2 * np.ptp(array.imag)
    # A complex number as a whole may err by up to sqrt(2) of an absolute bound.
    again = decompress(compress(array, 1e-4, mode="absolute", setting=setting))
    holds_bound(array, again, 1e-4, "absolute")
    assert 1.3e-4 < np.abs(again - array).max() <= 1.42e-4


def test_shapes_and_strides() -> None:
    cube = make_array("normal", 4096, "complex64", 1).reshape(16, 16, 16)
    for array in (cube, cube[::2, ::-3], cube.T, cube[0, 0, 0], np.asfortranarray(cube), cube[:0]):
        for bound in (0.0, 1e-2):
            round_trip(np.asarray(array), bound, "range", "small")


@pytest.mark.parametrize("setting", ["fast", "small"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["equal", "negated"])
def test_mirrored_arrays_take_half(dtype: str, setting: str, kind: str) -> None:
    for size in (2, 3, 1 << 16, (1 << 16) + 1):
        whole = make_array("mirrored", size, dtype, 3)
        if kind == "negated":
            whole[(size + 1) // 2 :] *= -1
        packed = compress(whole, 1e-3, setting=setting)
        assert packed.header.reflection == kind
        assert packed.header.stored == (size + 1) // 2
        holds_bound(whole, decompress(packed.data), 1e-3, "range")
        exact = compress(whole, 0.0)
        assert exact.header.reflection == kind
        holds_bound(whole, decompress(exact.data), 0.0, "range")
        if size > 3:
            other = whole.copy()
            other.real[0] = np.nextafter(other.real[0], other.real.dtype.type(9))
            broken = compress(other, 1e-3, setting=setting)
            assert broken.header.reflection == "none"
            assert len(packed.data) < 0.6 * len(broken.data)
            assert len(exact.data) < 0.6 * len(compress(other, 0.0).data)


def test_minus_zero_is_not_the_mirror_of_zero() -> None:
    array = np.array([0.0, 1.0, 1.0, -0.0], np.float32)
    packed = compress(array, 0.0)
    assert packed.header.reflection == "none"
    assert np.array_equal(np.signbit(decompress(packed.data)), np.signbit(array))


@pytest.mark.parametrize("setting", ["fast", "small"])
def test_axes_along_which_neighbours_are_alike_are_found(setting: str) -> None:
    array = product_tensor(17, (9, 13, 16), 4)
    packed = compress(array, 1e-3, setting=setting)
    inner = packed.header.axes[:3] if setting == "fast" else packed.header.axes[-7:]
    assert {9, 13, 16} <= set(inner)
    holds_bound(array, decompress(packed.data), 1e-3, "range")
    # The frames of another size have other axes, and the last frame is not a whole one.
    for size in (1 << 17) - 4096, (1 << 17) - 5:
        holds_bound(array[:size], decompress(compress(array[:size], 1e-3, frame_log2=15).data), 1e-3, "range")


def test_streams_are_the_same_in_every_run() -> None:
    array = product_tensor(17, (3, 16), 5)
    for setting in SETTINGS:
        first, second = (compress(each, 1e-3, setting=setting) for each in (array, array.copy()))
        assert first.data == second.data


@pytest.mark.parametrize("setting", ["fast", "small", "auto"])
@pytest.mark.parametrize("bound", [0.0, 1e-7, 1e-12])
def test_dense_random_arrays_are_never_worse_than_raw_by_a_hundredth(setting: str, bound: float) -> None:
    generator = np.random.default_rng(2)
    for array in (generator.normal(size=1 << 15), generator.random(1 << 15).astype(np.float32)):
        assert round_trip(array, bound, "range", setting, 22) > 0.99
    raw = generator.integers(0, 1 << 64, 1 << 14, np.uint64).view(np.float64)
    assert len(compress(raw, bound, mode="pointwise", setting=setting).data) < 1.01 * raw.nbytes


def test_compression_pays_on_what_it_is_for() -> None:
    sparse = make_array("sparse", 1 << 16, "complex64", 6)
    sparse.imag *= sparse.real != 0
    assert compress(sparse, 1e-2, setting="fast").ratio > 20
    assert compress(sparse, 1e-2, setting="small").ratio > 30
    constant = np.full(1 << 16, 0.1, np.float32)
    for setting in SETTINGS:
        assert compress(constant, 1e-3, setting=setting).ratio > 200


def test_refusing_what_is_not_finite() -> None:
    for value in (np.nan, np.inf, -np.inf):
        array = np.array([1.0, value, 2.0])
        with pytest.raises(CodecError, match="array: holds NaN or infinities"):
            compress(array, 1e-3, nonfinite="refuse")
        assert np.array_equal(decompress(compress(array, 1e-3).data)[1:2], array[1:2], equal_nan=True)
    compress(np.ones(3), 1e-3, nonfinite="refuse")


# fmt: off
BAD_OPTIONS: list[Row] = [
    ((-1e-3, {}), "bound", "is -0.001", "give a finite number of"),
    ((np.nan, {}), "bound", "is nan", "give a finite number of"),
    ((np.inf, {}), "bound", "is inf", "give a finite number of"),
    (("much", {}), "bound", "is 'much'", "give a number of 0 or"),
    ((10**400, {}), "bound", "is inf", "give a finite number of"),
    ((1e-3, {"mode": "psnr"}), "mode", "is 'psnr'", "choose from range"),
    ((1e-3, {"setting": "best"}), "setting", "is 'best'", "choose from auto, fast"),
    ((1e-3, {"nonfinite": "drop"}), "nonfinite", "is 'drop'", "choose from keep, refuse"),
    ((1e-3, {"frame_log2": 11}), "frame_log2", "is 11", "give a whole number"),
    ((1e-3, {"frame_log2": 12.5}), "frame_log2", "is 12.5", "give a whole number"),
    ((1e-3, {"frame_log2": "22"}), "frame_log2", "is '22'", "give a whole number"),
]
# fmt: on


@table(BAD_OPTIONS)
def test_bad_options_are_refused(refusal: Refusal) -> None:
    bound, options = refusal.given
    refusal.raised_by(lambda: compress(np.ones(4), bound, **options), CodecError)


@pytest.mark.parametrize("dtype", ["U3", "bool", "longdouble", "object"])
def test_wrong_dtypes_are_refused(dtype: str) -> None:
    with pytest.raises(CodecError, match="array: has dtype"):
        compress(np.zeros(4, dtype), 1e-3)
    with pytest.raises(CodecError, match=r"array: is of type builtins\.list"):
        compress([1.0], 1e-3)  # type: ignore[arg-type]
    with pytest.raises(CodecError, match=f"dtype: is '{dtype}'"):
        worst_size_bytes((4,), dtype)


def test_a_mask_is_not_lost_unseen() -> None:
    with pytest.raises(CodecError, match=r"array: has a mask, .* give array\.filled"):
        compress(np.ma.masked_array(np.ones(4), [0, 1, 0, 0]), 1e-3)


def test_into_buffers() -> None:
    array = make_array("normal", 10000, "complex64", 1)
    data = compress(array, 1e-3, frame_log2=12).data
    out = np.zeros(worst_size_bytes(array.shape, "complex64", 12), np.uint8)
    assert compress_into(array, out, 1e-3, frame_log2=12) == len(data)
    assert out[: len(data)].tobytes() == data
    with pytest.raises(CodecError, match="out: has 100 bytes, too few"):
        compress_into(array, out[:100], 1e-3)
    again = np.empty_like(array)
    decompress_into(data, again)
    assert np.array_equal(again, decompress(data))
    for wrong in (again[:-1], again.astype(np.complex128), np.empty(20000, np.complex64)[::2]):
        with pytest.raises(CodecError, match="out: is complex"):
            decompress_into(data, wrong)


def test_buffers_that_cannot_be_filled_are_refused() -> None:
    array = make_array("normal", 5000, "float64", 1)
    before = array.copy()
    read_only = np.zeros(50_000, np.uint8)
    read_only.flags.writeable = False
    for out in (np.zeros(50_000), np.zeros((2, 50_000), np.uint8), bytearray(50_000), read_only):
        with pytest.raises(CodecError, match="out: is not an array of bytes to write to"):
            compress_into(array, out, 1e-3)  # type: ignore[arg-type]
    with pytest.raises(CodecError, match="out: shares memory with the array"):
        compress_into(array, array.view(np.uint8), 1e-3)
    assert np.array_equal(array, before)
    data = compress(array, 1e-3).data
    fixed = np.zeros(5000)
    fixed.flags.writeable = False
    for target in (fixed, [0.0] * 5000):
        with pytest.raises(CodecError, match="out: is not an array to write to"):
            decompress_into(data, target)  # type: ignore[arg-type]
    # Its dtype has the name of the stream's.
    with pytest.raises(CodecError, match="out: is >f8"):
        decompress_into(data, np.zeros(5000, ">f8"))


def test_streams_are_read_from_any_one_piece_of_memory() -> None:
    data = compress(make_array("normal", 5000, "float64", 1), 0.0, frame_log2=12).data
    whole = np.frombuffer(data, np.uint8)
    wanted = decompress(data)
    for one in (bytearray(data), memoryview(data), whole, whole.view(np.float64), whole.reshape(8, -1)):
        assert np.array_equal(decompress(one), wanted)
    twice = np.repeat(whole, 2)
    for other in (twice[::2], memoryview(twice)[::2]):
        with pytest.raises(CodecError, match="data: is not one piece of memory"):
            decompress(other)
    with pytest.raises(CodecError, match=r"list; give the bytes of a stream \(`Compressed\.data`\)"):
        decompress([1, 2, 3])  # type: ignore[arg-type]
    assert np.array_equal(decompress(compress(np.ones(3), 1e-3)), np.ones(3))


def test_too_little_memory_beside_an_array_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    array = make_array("sparse", 5000, "float64", 1)
    data = compress(array, 1e-3).data

    def none_left(*_: object) -> None:
        raise MemoryError

    wanted = "array: needs more additional memory than is free; free some memory; C arrays and small frames"
    for name, call in (
        ("encode_frame", lambda: compress(array, 1e-3, setting="fast")),
        ("decode_frame", lambda: decompress(data)),
        ("flat_values", lambda: compress(array, 1e-3)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(codec, name, none_left)
            with pytest.raises(CodecError, match=wanted):
                call()


def test_memory_does_not_grow_from_call_to_call() -> None:
    array = make_array("sparse", 50_000, "complex64", 1)
    held = []
    tracemalloc.start()
    try:
        for _ in range(8):
            for setting in SETTINGS:
                decompress(compress(array, 1e-3, setting=setting, frame_log2=14).data)
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert held[-1] - held[3] < array.nbytes / 10


def test_offsets_and_sizes_go_past_32_bits(tmp_path: Path) -> None:
    shape = (1 << 20, 1 << 14, 3)
    header = Header("complex128", shape, "range", 1e-3, "small", "equal", (Quantizer(1.0), Quantizer(1.0)))
    (tmp_path / "head").write_bytes(pack_header(header))
    with (tmp_path / "head").open("rb") as source:
        assert read_header(source) == header
    assert header.size == 3 << 34
    frames = list(header.frames())
    assert frames[-1] == ((3 << 33) - (1 << 22), 1 << 22)
    # Frames under a predictor are of whole planes, 85 each.
    most = -(-(1 << 20) // 85) * 31
    assert worst_size_bytes(shape, "complex128") == header_size_bytes(3, 2) + (3 << 38) + most
