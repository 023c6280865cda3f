"""The CUDA kernels against their numba twins, bit for bit; they compile for every dtype and architecture."""

from __future__ import annotations

import random
import struct
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.effort import in_turn
from tests.support.kernels.compress_arrays import DTYPES, bits, make_array, parts
from tests.support.kernels.compress_streams import CODERS, mutated, payloads_of, sealed, stream_of, written
from tests.support.kernels.emulator import source
from tests.support.slow import slow_but, slow_unless
from tnplan.compress import (
    CodecError,
    StreamError,
    decompress,
)
from tnplan.compress.cpu import rans
from tnplan.compress.cpu.codec import flat_values
from tnplan.compress.cpu.frame import quantize
from tnplan.compress.format import choice
from tnplan.compress.format.bit_tiling import CLASSES, NATURAL, sampled
from tnplan.compress.format.bounds import error_limit, extent, quantizer
from tnplan.compress.format.box import fill_reflected, reflection_of
from tnplan.compress.format.choice import CodingOptions
from tnplan.compress.format.stream import (
    Header,
    header_size_bytes,
)
from tnplan.compress.gpu import encode as gpu_encode
from tnplan.compress.gpu import frames, launches
from tnplan.compress.gpu.decode import decode
from tnplan.compress.gpu.survey import OVERLAP_SUMS, Survey, add_overlaps, overlap_sums, squares
from tnplan.compress.gpu.survey_kernels import SurveyKernels

ARCHITECTURES = ("compute_90", "sm_80", "sm_90")
"""The first is compiled to PTX, which finds what is wrong in a file in half the time."""
FILES = (
    "common/frames.cu", "common/frames_read.cu", "common/plan.cu", "common/survey.cu",
    "fixed_length/decode.cu", "fixed_length/encode.cu", "predicted/join.cu", "predicted/join_wide.cu",
    "predicted/split.cu", "predicted/split_wide.cu", "predicted/trial.cu", "rans/decode.cu", "rans/encode.cu",
    "rans/heads.cu", "rans/pack.cu", "rans/symbols.cu",
)  # fmt: skip
KINDS = (
    ("normal", 1e-3), ("sparse", 1e-2), ("nonfinite", 1e-2), ("product", 1e-3), ("constant", 1e-2),
    ("huge range", 1e-9),
)  # fmt: skip
LOOKED = (
    ("product", "range", 1e-3), ("normal", "range", 3e-3), ("sparse", "absolute", 1e-2),
    ("product", "pointwise", 1e-3), ("nonfinite", "range", 7e-3), ("constant", "range", 1e-2),
    ("mirrored", "range", 1e-3),
)  # fmt: skip
AXES = (5, 13, 2, 3, 4, 12, 6, 7, 8, 9, 0, 1)
CRAFTED = 40


def header_of(
    array: np.ndarray, bound: float, mode: str, coder: str, axes: tuple[int, ...], frame_log2: int,
    reflection: str = "none",
) -> tuple[Header, tuple[float, ...]]:  # fmt: skip
    """A header with these axes, and the largest errors."""
    reaches = [extent(part, mode == "pointwise") for part in parts(array)]
    limits = tuple(0.0 if mode == "pointwise" else error_limit(one, bound, mode) for one in reaches)
    made = [quantizer(one, bound, mode, np.dtype(parts(array)[0].dtype)) for one in reaches]
    lossy = tuple(one for one in made if one is not None)
    assert len(lossy) == len(made)
    return Header(
        array.dtype.name, array.shape, mode, bound, coder, reflection, lossy, axes, frame_log2
    ), limits


def restored(device: Any, data: bytes, like: np.ndarray) -> np.ndarray:
    """The real numbers that the kernels read."""
    values = device.zeros(flat_values(like).size, like.real.dtype.name)
    decode(device, device.upload(np.frombuffer(data, np.uint8)), values)
    return device.download(values)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("dtype", "coder"), slow_unless(lambda k, j: k == 3 * j, DTYPES, [*CODERS]))
def test_kernels_write_and_read_the_twins_bytes(device: Any, dtype: str, coder: str) -> None:
    kinds = set()
    for number, (kind, bound) in enumerate(KINDS):
        array = make_array(kind, (16384, 5000, 12289)[number % 3], dtype, number)
        if kind == "nonfinite":
            array[array.size // 20 :] = 0.5
        mode = {"product": "pointwise", "huge range": "absolute"}.get(kind, "range")
        axes, frame_log2 = ((AXES, 14), (NATURAL, 13), (NATURAL, 12))[number % 3]
        header, limits = header_of(array, bound, mode, coder, axes, frame_log2)
        wanted = stream_of(array, header, limits)
        assert written(device, array, header, limits) == wanted
        assert np.array_equal(bits(restored(device, wanted, array)), bits(decompress(wanted)))
        kinds |= {payload[0] for payload in payloads_of(wanted)}
    assert kinds == {0, 2}


@pytest.mark.parametrize("dtype", DTYPES[::3])
def test_small_takes_the_way_of_sparse_frames_and_that_of_others(device: Any, dtype: str) -> None:
    sparse = set()
    for share in (1 / 256, 1 / 8):
        array = make_array("normal", 16384, dtype, 3)
        array[np.random.default_rng(4).random(array.size) >= share] = 0
        header, limits = header_of(array, 1e-2, "range", "small", NATURAL, 14)
        wanted = stream_of(array, header, limits)
        assert np.array_equal(bits(restored(device, wanted, array)), bits(decompress(wanted)))
        kind, _, coded = np.frombuffer(payloads_of(wanted)[0][:24], "<u8").tolist()
        assert kind == 2
        sparse.add(16 * coded < array.size * header.components)
    assert sparse == {False, True}


def test_small_reads_longer_segments_than_it_writes(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.zeros(1 << 18, np.float32)
    array[::4999] = np.random.default_rng(5).normal(size=array[::4999].size)
    header, limits = header_of(array, 1e-3, "range", "small", NATURAL, 18)
    now = stream_of(array, header, limits)
    assert written(device, array, header, limits) == now
    monkeypatch.setattr(rans, "LONGEST_WRITTEN_LOG2", rans.LONGEST_SEGMENT_LOG2)
    longer = stream_of(array, header, limits)
    tiles_log2 = [int.from_bytes(payloads_of(data)[0][24:28], "little") for data in (now, longer)]
    assert tiles_log2 == [5, 6]
    assert np.array_equal(bits(restored(device, longer, array)), bits(decompress(now)))


def test_small_reads_rounds_of_more_words_than_are_brought_at_once(device: Any) -> None:
    array = np.zeros((1 << 10, 32))
    array[100::100] = np.random.default_rng(6).uniform(0.5, 1, array[100::100].shape)
    header, limits = header_of(array, 4.7e-10, "absolute", "small", NATURAL, 15)
    wanted = stream_of(array, header, limits)
    (payload,) = payloads_of(wanted)
    assert payload[0] == 2
    tables_bytes = int.from_bytes(payload[28:32], "little")
    (n_words,) = np.frombuffer(payload[32 + tables_bytes + -tables_bytes % 4 :][:4], "<u4").tolist()
    assert n_words > 64 * len(array[100::100])
    assert np.array_equal(bits(restored(device, wanted, array)), bits(decompress(wanted)))


@pytest.mark.parametrize("coder", CODERS)
def test_frames_in_several_launches_make_the_same_stream(
    device: Any, coder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = make_array("sparse", 5 * 4096 + 100, "float32", 3)
    header, limits = header_of(array, 1e-2, "range", coder, NATURAL, 12)
    wanted = written(device, array, header, limits)
    monkeypatch.setattr(gpu_encode, "BATCH_BYTES", 40_000)
    monkeypatch.setattr(frames, "MOST_FRAMES", 3)
    assert written(device, array, header, limits) == wanted
    assert np.array_equal(bits(restored(device, wanted, array)), bits(decompress(wanted)))


def test_several_blocks_sum_a_frame_s_words(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    array = make_array("normal", 6 * 4096, "float32", 4)
    header, limits = header_of(array, 1e-3, "range", "fast", NATURAL, 14)
    stream = stream_of(array, header, limits)
    damaged = bytearray(stream)
    damaged[-40] ^= 1
    monkeypatch.setattr(launches, "TILES_PER_CHECK", 1)
    assert np.array_equal(bits(restored(device, stream, array)), bits(decompress(stream)))
    with pytest.raises(StreamError):
        restored(device, bytes(damaged), array)


def test_a_header_with_a_wrong_checksum_is_refused(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only when no kernel will write to the host's memory any more."""
    mailbox, n_open = device.mailbox, []

    def watched(n_words: int) -> Any:
        box, told = mailbox(n_words)
        n_open.append(n_words)
        return box, lambda: (n_open.pop(), told())[1]

    monkeypatch.setattr(device, "mailbox", watched)
    array = make_array("normal", 4096, "float32", 5)
    header, limits = header_of(array, 1e-3, "range", "fast", NATURAL, 12)
    data = stream_of(array, header, limits)
    for place in range(header_size_bytes(1, 1)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        for like in (array, array[1:]) if place == 24 else (array,):
            with pytest.raises(StreamError):
                restored(device, bytes(damaged), like)
            assert not n_open


def test_sound_headers_of_other_streams_harm_nothing(device: Any) -> None:
    array = make_array("normal", 4096, "float32", 5)
    header, limits = header_of(array, 1e-3, "range", "fast", NATURAL, 12)
    payloads = payloads_of(stream_of(array, header, limits))
    for other in (
        {"shape": (1 << 62,), "frame_log2": 30}, {"shape": (1 << 40, 1 << 40)}, {"shape": (2,) * 64},
        {"shape": (0,)}, {"dtype": "complex128", "quantizers": header.quantizers * 2},
        {"reflection": "equal"},
        {"coder": "small"}, {"coder": "lossless"}, {"shape": (2048, 2), "frame_log2": 22},
    ):  # fmt: skip
        data = sealed(replace(header, **other), payloads)
        try:
            wanted = decompress(data) if replace(header, **other).size == 4096 else None
        except StreamError:
            wanted = None
        if wanted is not None and wanted.dtype == array.dtype:
            assert np.array_equal(bits(restored(device, data, array)), bits(wanted.reshape(-1)))
        else:
            with pytest.raises((StreamError, CodecError)):
                restored(device, data, array)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("least", [-32767, -32768])
def test_fast_reads_every_number_of_16_bits_and_one_of_17(device: Any, dtype: str, least: int) -> None:
    numbers = np.random.default_rng(3).permutation(np.arange(least, 32769))
    array = 2e-3 * numbers.astype(np.float32)
    if dtype == "complex64":
        array = array + 1j * array[::-1]
    header, limits = header_of(array, 1e-3, "absolute", "fast", NATURAL, 13)
    data = stream_of(array, header, limits)
    found = restored(device, data, array)
    assert np.array_equal(bits(found), bits(decompress(data)))
    assert np.abs(found.view(dtype) - array).max() <= 2e-3


def test_fast_refuses_a_row_of_33_planes(device: Any) -> None:
    array = np.random.default_rng(4).uniform(1, 2, 4096).astype(np.float32)
    header, limits = header_of(array, 1e-3, "absolute", "fast", NATURAL, 12)
    (payload,) = payloads_of(stream_of(array, header, limits))
    begin = payload.index(struct.pack("<I", 1 << 16 | 4096)) + 4
    total = sum(payload[begin : begin + 4])
    data = sealed(header, [payload[:begin] + bytes((33, 0, 0, total - 33)) + payload[begin + 4 :]])
    for read in (decompress, lambda data: restored(device, data, array)):
        with pytest.raises(StreamError, match="frame 0"):
            read(data)


@pytest.mark.parametrize(
    ("coder", "kind", "bound", "mode"),
    [
        ("fast", "one large", 1e-2, "absolute"), ("fast", "normal", 1e-3, "range"),
        ("small", "sparse", 1e-2, "range"),
    ],
)  # fmt: skip
def test_crafted_payloads_with_right_checksums_are_judged_as_on_the_cpu(
    device: Any, coder: str, kind: str, bound: float, mode: str
) -> None:
    chance = random.Random(5)
    array = make_array(kind, 9000, "complex64", 1)
    header, limits = header_of(array, bound, mode, coder, NATURAL, 12)
    payloads = payloads_of(stream_of(array, header, limits))
    refused = 0
    for _ in range(CRAFTED):
        crafted = list(payloads)
        place = chance.randrange(len(payloads))
        crafted[place] = mutated(payloads[place], chance)
        data = sealed(header, crafted)
        try:
            wanted = decompress(data)
        except StreamError:
            refused += 1
            with pytest.raises(StreamError):
                restored(device, data, array)
        else:
            assert np.array_equal(bits(restored(device, data, array)), bits(wanted))
    assert refused > CRAFTED / 4


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_surveys_find_what_the_twins_find(device: Any, dtype: str) -> None:
    for kind, size in (
        ("nonfinite", 3000), ("mirrored", 2001), ("denormal", 700), ("huge range", 5), ("all nan", 9),
        ("normal", 1),
    ):  # fmt: skip
        array = make_array(kind, size, dtype, 2)
        if kind == "mirrored":
            array[(size + 1) // 2 :] *= -1
        values, n = flat_values(array), len(parts(array))
        bound = launches.bound(0.0, "range", dtype)
        kernels = SurveyKernels(device, device.upload(values), dtype, size, bound, 0)
        found, reflection, _ = kernels.results()
        assert found == [extent(part, True) for part in parts(array)]
        assert reflection == reflection_of(values, n)
        for negated, name in enumerate(("equal", "negated")):
            filled, wanted = device.upload(values), values.copy()
            device.launch(
                launches.survey("fill_reflected", 2), dtype, filled, np.uint64(size),
                np.uint64((size + 1) // 2), np.uint32(negated),
            )  # fmt: skip
            fill_reflected(wanted, n, (size + 1) // 2, name)
            assert np.array_equal(bits(device.download(filled)), bits(wanted))


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("size", [1, 255, 3000, 50001])
def test_squares_are_summed_in_double_precision(device: Any, dtype: str, size: int) -> None:
    values = flat_values(make_array("product", size, dtype, 5))
    wanted = np.square(values.astype(np.float64)).sum()
    found = device.download(squares(device, device.upload(values), dtype))
    assert found.sum() == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_overlaps_are_summed_in_double_precision(device: Any, dtype: str) -> None:
    x, y = (make_array("normal", 30_001, dtype, seed) for seed in (5, 6))
    sums = device.zeros(OVERLAP_SUMS, "float64")
    for stride in (1, 7):
        one, other = x[::stride].astype(complex), y[::stride].astype(complex)
        before = np.array(overlap_sums(device, sums))
        add_overlaps(device, dtype, device.upload(x[::stride].copy()), device.upload(y), stride, sums)
        overlap, sizes = np.vdot(one, other), [np.vdot(one, one).real, np.vdot(other, other).real]
        found = np.array(overlap_sums(device, sums)) - before
        assert found == pytest.approx([overlap.real, overlap.imag, *sizes], rel=1e-10, abs=1e-8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbours_are_counted_as_on_the_cpu(
    device: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(choice, "ranked_axes", lambda counts: seen.append(counts) or [*range(len(counts))])
    for number, (kind, mode, bound) in enumerate(LOOKED):
        array = make_array(kind, 1 << (17 if kind in ("mirrored", "constant") else 16), dtype, number)
        values = flat_values(array)
        header, limits = Survey(
            device, device.upload(values), dtype, array.shape, CodingOptions(bound, mode, "fast")
        ).header()
        reflection = reflection_of(values, len(parts(array)))
        assert (header, limits) == header_of(array, bound, mode, "fast", NATURAL, 22, reflection)
        assert np.array_equal(seen.pop(), counted(array, header, limits, header.stored.bit_length() - 1))


def counted(array: np.ndarray, header: Header, limits: tuple[float, ...], n_axes: int) -> np.ndarray:
    """Pairs of classes of a sample and of its neighbours along each axis, by the twins."""
    beside = sampled(header.stored >> n_axes << n_axes)
    beside = np.stack([beside, *(beside ^ np.uint64(1 << axis) for axis in range(n_axes))])
    taken = flat_values(array).reshape(-1, header.components)[beside.reshape(-1)].reshape(-1)
    q, _ = quantize(taken, header, limits)
    magnitudes = np.abs(q[:, : beside.size].astype(np.int64)).sum(axis=0).reshape(beside.shape)
    classes = np.minimum(np.ceil(np.log2(1.0 + magnitudes)), CLASSES - 1).astype(np.int64)
    pairs = CLASSES * classes[0] + classes[1:]
    return np.array([np.bincount(row, minlength=CLASSES**2) for row in pairs]).reshape(-1, CLASSES, CLASSES)


@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy, which brings the compiler")
@pytest.mark.parametrize("arch", slow_but(ARCHITECTURES[:1], ARCHITECTURES))
@pytest.mark.parametrize("file", FILES)
def test_kernels_compile(file: str, arch: str) -> None:
    from cupy_backends.cuda.libs import nvrtc

    number = FILES.index(file) + ARCHITECTURES.index(arch)
    for dtype in in_turn(("float64", "complex64"), number):
        program = nvrtc.createProgram(source(launches.FOLDER / file), file, (), ())
        options = ["--std=c++17", f"--gpu-architecture={arch}"]
        nvrtc.compileProgram(program, options + [f"-D{n}={v}" for n, v in launches.defines(dtype).items()])
        if arch.startswith("sm"):
            assert nvrtc.getCUBIN(program).startswith(b"\x7fELF")
        else:
            assert b".entry" in nvrtc.getPTX(program)
        nvrtc.destroyProgram(program)


def test_every_kernel_file_is_compiled_here() -> None:
    folder = Path(str(launches.FOLDER))
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.cu")} == set(FILES)
    assert sys.byteorder == "little"
