"""The CUDA kernels against their numba twins, bit for bit; they compile for every dtype and architecture."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compress_case import make_array, parts
from compress_devices import Emulated, Gpu, has_compiler, source
from gpu_case import needs_gpus

from compress import StreamError, entropy, fixed, launches
from compress.bounds import check_bound, error_limit, extent, quantizer
from compress.codec import flat_values
from compress.frame import dequantize, quantize
from compress.mirror import fill_mirrored, mirror_of
from compress.stream import Header, checksum
from compress.tiles import NATURAL, TILE, local_offsets, tile_offsets, usable_axes

ARCHITECTURES = ("sm_80", "sm_90")
CODED = ("float64", "complex64")
FILES = ("fast.cu", "small.cu", "survey.cu")
KINDS = (("normal", 1e-3), ("sparse", 1e-2), ("nonfinite", 1e-2), ("product", 1e-3), ("constant", 1e-2))
AXES = (5, 13, 2, 3, 4, 12, 6, 7, 8, 9, 0, 1)

Device = Callable[..., None]


@pytest.fixture(
    params=[
        pytest.param("emulated", marks=pytest.mark.skipif(not has_compiler(), reason="needs g++")),
        pytest.param("gpu", marks=needs_gpus(1)),
    ]
)  # fmt: skip
def device(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Device]:
    if request.param == "gpu":
        return Gpu
    return lambda dtype: _emulated(dtype, tmp_path_factory)


MADE: dict[str, Emulated] = {}


def _emulated(dtype: str, folders: pytest.TempPathFactory) -> Emulated:
    if dtype not in MADE:
        MADE[dtype] = Emulated(dtype, folders.mktemp("kernels"))
    return MADE[dtype]


class Coded:
    """What the twin makes of an array, as the kernels' arguments and as their results."""

    def __init__(self, array: np.ndarray, bound: float, mode: str, coder: str, axes: tuple[int, ...]) -> None:
        self.values = flat_values(array)
        reaches = [extent(part, mode == "pointwise") for part in parts(array)]
        check_bound(bound, mode)
        self.limits = tuple(0.0 if mode == "pointwise" else error_limit(one, bound, mode) for one in reaches)
        real = np.dtype(parts(array)[0].dtype)
        made = tuple(quantizer(one, bound, mode, real) for one in reaches)
        assert None not in made
        self.header = Header(array.dtype.name, array.shape, mode, bound, coder, "none", made, axes)  # type: ignore[arg-type]
        used = usable_axes(axes, array.size)
        self.local = local_offsets(used).astype(np.uint32)
        self.tiles = tile_offsets(used, array.size).astype(np.uint32)
        self.rules = launches.rules(self.header, self.limits)
        # The twin stops counting at its room; here every exact value is wanted.
        self.q, places = quantize(self.values, self.header, self.limits)
        assert places is not None
        self.places = places

    @property
    def tables(self) -> tuple[Any, ...]:
        return np.uint64(self.header.size), self.local, self.tiles, np.uint32(self.tiles.size), self.rules


def cases(dtype: str, coder: str) -> list[Coded]:
    made = []
    for number, (kind, bound) in enumerate(KINDS):
        array = make_array(kind, (16384, 5000, 12289)[number % 3], dtype, number)
        if kind == "nonfinite":
            array[array.size // 20 :] = 0.5
        mode = "pointwise" if kind == "product" else "range"
        made.append(Coded(array, bound, mode, coder, AXES if number % 2 == 0 else NATURAL))
    return made


@pytest.mark.parametrize("dtype", CODED)
def test_the_fast_coder_writes_and_reads_the_twins_bytes(device: Callable[[str], Device], dtype: str) -> None:
    run = device(dtype)
    for case in cases(dtype, "fast"):
        n_tiles, room = case.tiles.size, case.values.nbytes + 4096
        out = np.zeros(room, np.uint8)
        status, ticket, size = np.zeros(n_tiles, np.uint64), np.zeros(1, np.uint32), np.zeros(1, np.uint64)
        exact = np.zeros((len(case.rules), n_tiles), np.uint32)
        run(
            launches.fast_encode(1, n_tiles), case.values, *case.tables, out, np.uint64(room), status, ticket,
            size, exact,
        )  # fmt: skip
        wanted = fixed.encode(case.q, room)
        assert wanted is not None
        assert out[: int(size[0])].tobytes() == wanted
        check_exact(run, case, exact)
        again, damaged = np.zeros_like(case.values), np.zeros(1, np.uint32)
        run(launches.fast_decode(1, n_tiles), out, np.zeros(1, np.uint64), size, *case.tables, again, damaged)
        assert not damaged[0]
        check_restored(case, again)


def check_exact(run: Device, case: Coded, exact: np.ndarray) -> None:
    """The counts of exact values, and the values that they are gathered to."""
    n_tiles, n = case.tiles.size, case.places.size
    assert np.array_equal(exact.reshape(-1), np.bincount(case.places // TILE, minlength=exact.size))
    if not n:
        return
    starts = np.concatenate([[0], np.cumsum(exact.reshape(-1))[:-1]]).astype(np.uint64)
    places = np.zeros(n, np.uint32)
    bits = np.zeros(n, f"u{case.values.itemsize}")
    run(launches.gather_exact(n_tiles), case.values, *case.tables, starts, places, bits)
    assert np.array_equal(places, case.places)
    component, place = np.divmod(case.places, n_tiles * TILE)
    element = case.local[place % TILE].astype(np.int64) + case.tiles[place // TILE]
    assert np.array_equal(bits, case.values.view(bits.dtype)[len(case.rules) * element + component])


def check_restored(case: Coded, again: np.ndarray) -> None:
    wanted = np.zeros_like(case.values)
    dequantize(case.q, case.header, wanted)
    assert np.array_equal(again.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize("dtype", CODED)
def test_the_small_coder_writes_and_reads_the_twins_bytes(
    device: Callable[[str], Device], dtype: str
) -> None:
    from compress import entropy_kernel as twin

    run = device(dtype)
    for case in cases(dtype, "small"):
        n_tiles, n = case.tiles.size, len(case.rules)
        counts = np.zeros((twin.TABLES[n - 1], twin.TOKENS), np.uint32)
        raw, exact = np.zeros(1, np.uint64), np.zeros((n, n_tiles), np.uint32)
        run(launches.small_count(1, n_tiles), case.values, *case.tables, counts, raw, exact)
        wanted_counts = np.zeros(counts.shape, np.int64)
        assert twin.count(case.q, wanted_counts) == raw[0]
        assert np.array_equal(counts, wanted_counts)
        wanted = entropy.encode(case.q, 1 << 30)
        assert wanted is not None
        frequencies = entropy.normalized(counts.astype(np.int64))
        starts = entropy.cumulative(frequencies).astype(np.uint16)
        tiles_log2, tables_bytes = np.frombuffer(wanted, "<u4", 2)
        n_segments = -(-n_tiles >> int(tiles_log2))
        room = (TILE << int(tiles_log2)) * n * 2 + twin.MOST_ROUND_WORDS
        words, n_words = np.zeros((n_segments, room), np.uint16), np.zeros(n_segments, np.uint32)
        states = np.zeros((n_segments, twin.LANES), np.uint32)
        segments = (np.uint32(tiles_log2), np.uint32(n_segments))
        run(
            launches.small_encode(1, n_segments), case.values, *case.tables, starts, *segments, words,
            np.uint32(room), n_words, states,
        )  # fmt: skip
        head = 8 + int(tables_bytes) + -int(tables_bytes) % 4
        assert np.array_equal(n_words, np.frombuffer(wanted, "<u4", n_segments, head))
        sizes = entropy.STATES_BYTES + (2 * n_words + 3 & ~np.uint32(3)).astype(np.int64)
        offsets = (head + 4 * n_segments + np.concatenate([[0], np.cumsum(sizes)[:-1]])).astype(np.uint64)
        out = np.frombuffer(wanted[: head + 4 * n_segments].ljust(len(wanted), b"\0"), np.uint8).copy()
        run(launches.small_pack(n_segments), words, np.uint32(room), n_words, states, offsets, out)
        assert out.tobytes() == wanted
        again, damaged = np.zeros_like(case.values), np.zeros(1, np.uint32)
        run(
            launches.small_decode(1, n_segments), out, offsets, n_words, *case.tables, starts, *segments,
            again, damaged,
        )  # fmt: skip
        assert not damaged[0]
        check_restored(case, again)
        # A changed bit in the last segment's states or words: found, or not, as the twin does.
        for place in (int(offsets[-1]), int(offsets[-1]) + 70, len(out) - 3):
            out[place] ^= 16
            damaged[0] = 0
            run(
                launches.small_decode(1, n_segments), out, offsets, n_words, *case.tables, starts, *segments,
                again, damaged,
            )  # fmt: skip
            assert bool(damaged[0]) == is_damaged(out, case.q.shape)
            out[place] ^= 16


def is_damaged(data: np.ndarray, shape: tuple[int, ...]) -> bool:
    try:
        entropy.decode(data, np.zeros(shape, np.int32), "test")
    except StreamError:
        return True
    return False


def test_frames_are_coded_at_once(device: Callable[[str], Device]) -> None:
    from compress import entropy_kernel as twin

    run = device("complex64")
    frames, elements = 3, 8192
    case = Coded(make_array("sparse", frames * elements, "complex64", 1), 1e-2, "range", "fast", NATURAL)
    local = local_offsets(NATURAL).astype(np.uint32)
    tiles = tile_offsets(NATURAL, elements).astype(np.uint32)
    tables = (np.uint64(elements), local, tiles, np.uint32(tiles.size), case.rules)
    numbers = [
        quantize(part, case.header, case.limits)[0] for part in np.split(case.values, frames)
    ]  # fmt: skip
    room = 2 * case.values.nbytes // frames
    out, ticket = np.zeros((frames, room), np.uint8), np.zeros(1, np.uint32)
    status, sizes = np.zeros((frames, tiles.size), np.uint64), np.zeros(frames, np.uint64)
    exact = np.zeros((frames, 2, tiles.size), np.uint32)
    run(
        launches.fast_encode(frames, tiles.size), case.values, *tables, out, np.uint64(room), status, ticket,
        sizes, exact,
    )  # fmt: skip
    for frame, q in enumerate(numbers):
        assert out[frame, : int(sizes[frame])].tobytes() == fixed.encode(q, room)
    again, damaged = np.zeros_like(case.values), np.zeros(1, np.uint32)
    starts = room * np.arange(frames, dtype=np.uint64)
    run(launches.fast_decode(frames, tiles.size), out, starts, sizes, *tables, again, damaged)
    assert not damaged[0]
    check_restored(case, again)
    counts = np.zeros((frames, twin.TABLES[1], twin.TOKENS), np.uint32)
    raw = np.zeros(frames, np.uint64)
    run(launches.small_count(frames, tiles.size), case.values, *tables, counts, raw, exact)
    for frame, q in enumerate(numbers):
        wanted = np.zeros(counts.shape[1:], np.int64)
        assert twin.count(q, wanted) == raw[frame]
        assert np.array_equal(counts[frame], wanted)
    # A frame's room of a few bytes is too little, and what does not fit is not written.
    tight = np.full((frames, 64), 7, np.uint8)
    status[:], ticket[:] = 0, 0
    run(
        launches.fast_encode(frames, tiles.size), case.values, *tables, tight, np.uint64(64), status, ticket,
        sizes, exact,
    )  # fmt: skip
    assert (sizes > 64).all()
    assert (tight[:, 8:] == 7).all()


@pytest.mark.parametrize("dtype", CODED)
def test_surveys_find_what_the_twins_find(device: Callable[[str], Device], dtype: str) -> None:
    run = device(dtype)
    for kind, size in (("nonfinite", 3000), ("mirrored", 2001), ("denormal", 700), ("huge range", 5)):
        array = make_array(kind, size, dtype, 2)
        if kind == "mirrored":
            array[(size + 1) // 2 :] *= -1
        values = flat_values(array)
        n = len(parts(array))
        reaches = np.zeros((3, n, 4), values.dtype)
        run(launches.survey("extents", 3), values, np.uint64(size), reaches)
        for c, part in enumerate(parts(array)):
            found = extent(part, True)
            assert reaches[:, c, 0].min() == found.least
            assert reaches[:, c, 1].max() == found.greatest
            assert reaches[:, c, 2].min() == found.least_normal
            assert bool(reaches[:, c, 3].max()) == found.any_nonfinite
        differs = np.zeros(2, np.uint32)
        run(launches.survey("mirror", 2), values, np.uint64(size), differs)
        kinds = ["equal"] * (not differs[0]) + ["negated"] * (not differs[1])
        assert (kinds[0] if kinds else "none") == mirror_of(values, n)
        stored = (size + 1) // 2
        for negated, name in enumerate(("equal", "negated")):
            filled, wanted = values.copy(), values.copy()
            run(
                launches.survey("fill_mirrored", 2),
                filled,
                np.uint64(size),
                np.uint64(stored),
                np.uint32(negated),
            )
            fill_mirrored(wanted, n, stored, name)
            assert np.array_equal(filled.view(np.uint8), wanted.view(np.uint8))
    words = np.random.default_rng(1).integers(0, 1 << 64, 3000, np.uint64)
    starts, counts, sums = (np.array(row, np.uint64) for row in ((0, 1000), (3000, 17), (0, 0)))
    run(launches.survey("checksums", 2, 2), words, starts, counts, sums)
    for start, count, total in zip(starts.tolist(), counts.tolist(), sums.tolist(), strict=True):
        data = words[start : start + count].tobytes()
        assert (total + len(data)) % (1 << 64) == checksum(data)


@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy, which brings the compiler")
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("file", FILES)
def test_kernels_compile(file: str, arch: str) -> None:
    from cupy_backends.cuda.libs import nvrtc

    for dtype in ("float64", "complex64"):
        program = nvrtc.createProgram(source(file), file, (), ())
        options = ["--std=c++17", f"--gpu-architecture={arch}"]
        nvrtc.compileProgram(program, options + [f"-D{n}={v}" for n, v in launches.defines(dtype).items()])
        assert nvrtc.getCUBIN(program).startswith(b"\x7fELF")
        nvrtc.destroyProgram(program)


def test_every_kernel_file_is_compiled_here() -> None:
    folder = Path(str(launches.FOLDER))
    assert {path.name for path in folder.glob("*.cu")} == set(FILES)
    assert sys.byteorder == "little"
