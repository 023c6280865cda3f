"""The GPU's fused chains: its tables through a twin of the kernel, and the kernel where there is a GPU."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from tests.support.contraction.fused import TOLERANCE, arrays_of, normal, random_chain
from tests.support.kernels.gpus import needs_gpus
from tnplan.common.errors import InputError
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.cuda.fused.tables import IDLE, best_tables, fused_tables
from tnplan.executor.device.protocols.device import FusedShape
from tnplan.executor.device.protocols.precision import expected_error
from tnplan.jobs.calibration import chain_shape
from tnplan.planner.hardware.fusion_tile import fused_tile

CASES = [*((dtype, "fp32") for dtype in TOLERANCE), ("complex64", "fp16x3"), ("complex64", "tf32")]
TERMS = {"tf32": 1, "fp16x3": 3}
TF32_CUT = np.uint32(0xFFFFE000)
TF32_HALF = np.uint32(0x1000)
GPU = pytest.param("gpu", marks=needs_gpus(1))


def run_twin(
    shape: FusedShape, operand, branches, out, capacity: int, precision: str, closing=None
) -> None:  # fmt: skip
    """What fused.cu does with its tables, thread by thread made axes of arrays."""
    closed = 0.0
    itemsize, terms = out.itemsize, TERMS.get(precision, 0)
    tables = best_tables(shape, capacity, itemsize, terms > 0)
    own = tables.thread_place.astype(int)
    values, first = [], 0
    for stage, branch in zip(tables.stages, branches, strict=True):
        assert branch.size == stage.k * stage.n
        turned = np.full_like(branch, np.nan)
        turned[tables.branch_place[first : first + branch.size]] = branch
        values.append(turned)
        first += branch.size
    loads, stores = own[0] != IDLE, own[1] != IDLE
    parts = Parts(tables.threads // 32)
    for number in range(tables.n_tiles):
        start = tables.near[number % len(tables.near)] + tables.far[number // len(tables.near)]
        tile = np.full(tables.tile_bytes // itemsize, np.nan, out.dtype)
        for place, offset in zip(*tables.load, strict=True):
            source = start[0] + tables.thread_offset[loads, 0] + offset
            tile[moved(own[0][loads], place) // itemsize] = operand[source // itemsize]
        parts.touch(own[0], tables.load[0])
        parts.end(tables.meets[0])
        for stage_number, (stage, branch) in enumerate(zip(tables.stages, values, strict=True)):
            unit, one, other = stage.kind
            own_pair = own[2 + 2 * stage_number :][:2]
            if unit == "FMA":
                read = written = own_pair[0]
                run_stage(tile, branch, stage, one, other, *own_pair)
            else:
                assert (4 * len(stage.n_place), 4 * len(stage.k_place)) == (stage.n, stage.k)
                assert 2 * one * other == len(stage.row_place)
                read, written = own_pair
                run_tensor_stage(tile, branch, stage, *own_pair, terms)
            if unit == "TENSOR" or stage.n == other:
                parts.touch(read, stage.k_place, stage.row_place)
                parts.touch(written, stage.n_place, stage.row_place)
            else:
                assert all(tables.meets[stage_number : stage_number + 2])
            parts.end(tables.meets[stage_number + 1])
        for place, offset in zip(*tables.store, strict=True):
            target = start[1] + tables.thread_offset[stores, 1] + offset
            value = tile[moved(own[1][stores], place) // itemsize]
            if shape.closes:
                closed += np.sum(value.astype(np.complex128) * closing[target // itemsize])
                continue
            out[target // itemsize] = out[target // itemsize] + value if shape.adds else value
        parts.touch(own[1], tables.store[0])
        parts.end(tables.meets[-1])
    parts.touch(own[0], tables.load[0])
    if shape.closes:
        out += (closed if np.iscomplexobj(out) else np.real(closed)).astype(out.dtype)


class Parts:
    """The places that each warp touches until all meet, which are no other's."""

    def __init__(self, n_warps: int) -> None:
        self.touched: list[set[int]] = [set() for _ in range(n_warps)]

    def touch(self, first, *steps) -> None:
        """Every warp touches the places of its threads, moved by one of each of `steps`."""
        for warp, mine in enumerate(self.touched):
            places = first[32 * warp : 32 * (warp + 1)]
            places = places[places != IDLE]
            for step in steps:
                places = (places[:, None] ^ np.array(step)).ravel()
            mine.update(places.tolist())
        assert len(set().union(*self.touched)) == sum(map(len, self.touched))

    def end(self, meets: bool) -> None:
        """The end of a phase."""
        if meets:
            self.touched = [set() for _ in self.touched]


def moved(places, by):
    """As in fused.cu; that this is an XOR is what the tables promise."""
    result = (places ^ by % 128) + by // 128 * 128
    assert np.array_equal(result, places ^ by)
    return result


def tf32(values):
    """What tensor cores make of numbers: the upper 19 bits."""
    return (values.astype(np.float32).view(np.uint32) & TF32_CUT).view(np.float32)


def split(values, terms):
    """As split() in fused.cu."""
    high = (values.view(np.uint32) + TF32_HALF & TF32_CUT).view(np.float32)
    if terms == 1:
        return np.where(np.isnan(values), values, high), np.zeros_like(values)
    return high, values - high


def towards_zero(values):
    """Double precision numbers cut off to single precision, as tensor cores leave every sum."""
    single = values.astype(np.float32)
    return np.where(np.abs(single) > np.abs(values), np.nextafter(single, np.float32(0)), single)


def multiply_add(total, a, b):
    """mma.m16n8k8 by the lanes of a warp, as PTX deals them: a (32, 4), b (32, 2), total (32, 4)."""
    lane = np.arange(32)
    g, t = lane // 4, lane % 4
    matrix_a, matrix_b = (np.zeros((*total.shape[:-2], *shape)) for shape in ((16, 8), (8, 8)))
    for number, (row, column) in enumerate(((0, 0), (8, 0), (0, 4), (8, 4))):
        matrix_a[..., g + row, t + column] = tf32(a[..., number])
    for number in range(2):
        matrix_b[..., t + 4 * number, g] = tf32(b[..., number])
    product = matrix_a @ matrix_b
    for number, (row, column) in enumerate(((0, 0), (0, 1), (8, 0), (8, 1))):
        total[..., number] = towards_zero(total[..., number] + product[..., g + row, 2 * t + column])


def run_tensor_stage(tile, branch, stage, read, write, terms) -> None:
    """As run_tensor_stage of fused.cu, warp by warp; what is not written is lost."""
    result = np.full_like(tile, np.nan)
    lane = np.arange(32)
    imaginary = lane // 4 % 2 == 1
    for warp in range(len(read) // 32):
        first, into = (side[32 * warp : 32 * (warp + 1)] for side in (read, write))
        if first[0] == IDLE:
            continue
        for number in range(0, len(stage.row_place), 2):
            rows = np.array(stage.row_place[number : number + 2])
            total = np.zeros((len(stage.n_place), 32, 4), np.float64)
            for step, k_place in enumerate(stage.k_place):
                places = moved(moved(first, k_place)[:, None], rows)
                a = tile[places // tile.itemsize]
                a = np.concatenate([a.real, a.imag], axis=1)
                for j in range(len(stage.n_place)):
                    b = branch[(step * len(stage.n_place) + j) * 16 + lane % 4 * 4 + lane // 8]
                    b = np.stack(
                        [np.where(imaginary, b.imag, b.real), np.where(imaginary, b.real, -b.imag)], axis=1
                    )
                    (a_high, a_low), (b_high, b_low) = split(a, terms), split(b, terms)
                    for one, other in ((a_high, b_low), (a_low, b_high), (a_high, b_high))[3 - terms :]:
                        multiply_add(total[j], one, other)
            for j, n_place in enumerate(stage.n_place):
                places = moved(moved(into, n_place)[:, None], rows)
                values = total[j].astype(np.float32)
                result[places // tile.itemsize] = values[:, 0::2] + 1j * values[:, 1::2]
    tile[:] = result


def run_stage(tile, branch, stage, n_rows, n_columns, base, column) -> None:
    """All reads of a stage, then all its writes; what it does not write is lost."""
    active = base != IDLE
    base, column = base[active], column[active]
    assert np.all(column.reshape(-1, 32) == column[::32, None])
    assert len(stage.row_place) == n_rows
    rows, columns = np.array(stage.row_place), np.arange(n_columns)
    sums = np.zeros((len(base), n_rows, n_columns), tile.dtype)
    for q, k_place in enumerate(stage.k_place):
        a = tile[moved(moved(base, k_place)[:, None], rows) // tile.itemsize]
        b = branch[q * stage.n + column[:, None] + columns]
        sums += a[:, :, None] * b[:, None, :]
    tile[:] = np.nan
    n_place = np.array(stage.n_place)[column[:, None] + columns]
    tile[moved(moved(base[:, None, None], rows[:, None]), n_place[:, None, :]) // tile.itemsize] = sums


def run_gpu(
    shape: FusedShape, operand, branches, out, capacity: int, precision: str, closing=None
) -> None:  # fmt: skip
    import cupy

    from tnplan.executor.device.cuda.fused.chain import bind_fused

    on_device = [cupy.asarray(array) for array in (operand, *branches, out)]
    met = None if closing is None else cupy.asarray(closing)
    stream = cupy.cuda.Stream.null
    bind_fused(
        shape, on_device[0], on_device[1:-1], on_device[-1], stream, capacity * out.itemsize, precision, met
    )()
    out[:] = on_device[-1].get()


def contracted(shape: FusedShape, arrays):
    terms = []
    for array, modes in zip(arrays, (shape.operand, *shape.branches), strict=True):
        terms += [array, [mode for mode, _ in modes]]
    return np.einsum(*terms, [mode for mode, _ in shape.out], optimize=True).ravel()


def run_cpu(
    shape: FusedShape, operand, branches, out, capacity: int, precision: str, closing=None
) -> None:  # fmt: skip
    NumpyDevice().bind_fused(shape, operand, branches, out, capacity * out.itemsize, precision, closing)()


def run(runner, shape: FusedShape, arrays, precision: str, capacity: int, first=None):
    """The chain by the CPU, the twin or the GPU, flat, on top of what is there `first`."""
    out = np.full(prod(extent for _, extent in shape.out), np.nan, arrays[0].dtype)
    if first is not None:
        out[:] = first
    flat = [array.ravel() for array in arrays]
    RUNNERS[runner](shape, flat[0], flat[1:], out, capacity, precision)
    return out


RUNNERS = {"cpu": run_cpu, "twin": run_twin, "gpu": run_gpu}


def check(runner, shape: FusedShape, arrays, precision: str, capacity: int) -> None:
    """Assert the promised error, relative to the contraction of absolute values."""
    out = run(runner, shape, arrays, precision, capacity)
    exact = [array.astype(np.complex128) for array in arrays]
    scale = contracted(shape, [np.abs(array) for array in exact])
    bound = TOLERANCE[out.dtype.name]
    if precision != "fp32":
        tile = fused_tile(shape.operand, shape.branches, shape.out, capacity)
        bound = sum(expected_error(precision, stage.k) for stage in tile.stages)
    assert np.all(np.abs(out - contracted(shape, exact)) <= bound * scale), shape


@pytest.mark.parametrize(("dtype", "precision"), CASES)
@pytest.mark.parametrize("runner", ["twin", GPU])
def test_random_chains(runner, dtype, precision):
    chance, rng = random.Random(7), np.random.default_rng(7)
    itemsize = np.dtype(dtype).itemsize
    done = 0
    while done < (16 if runner == "twin" else 24):
        shape = random_chain(chance, 14 if runner == "twin" else 17)
        capacity = chance.choice((16384, 32768)) // itemsize
        if fused_tile(shape.operand, shape.branches, shape.out, capacity) is not None:
            arrays = arrays_of(shape, lambda extents: normal(rng, extents, dtype))
            check(runner, shape, arrays, precision, capacity)
            done += 1


@pytest.mark.parametrize(("dtype", "precision"), CASES)
@pytest.mark.parametrize("runner", ["cpu", "twin", GPU])
def test_a_chain_adds_to_what_is_there(runner, dtype, precision):
    chance, rng = random.Random(3), np.random.default_rng(3)
    capacity = 16384 // np.dtype(dtype).itemsize
    done = 0
    while done < 6:
        shape = random_chain(chance, 14)
        if fused_tile(shape.operand, shape.branches, shape.out, capacity) is None:
            continue
        arrays = arrays_of(shape, lambda extents: normal(rng, extents, dtype))
        written = run(runner, shape, arrays, precision, capacity)
        first = normal(rng, written.shape, dtype)
        found = run(runner, replace(shape, adds=True), arrays, precision, capacity, first)
        assert np.array_equal(found, first + written), shape
        done += 1


@pytest.mark.parametrize(("dtype", "precision"), CASES)
@pytest.mark.parametrize("runner", ["cpu", "twin", GPU])
def test_a_chain_closes_with_a_tensor_of_what_it_leaves(runner, dtype, precision):
    chance, rng = random.Random(11), np.random.default_rng(11)
    capacity = 16384 // np.dtype(dtype).itemsize
    done = 0
    while done < (24 if runner == "gpu" else 3):
        shape = random_chain(chance, 17 if runner == "gpu" else 13)
        if fused_tile(shape.operand, shape.branches, shape.out, capacity) is None:
            continue
        arrays = arrays_of(shape, lambda extents: normal(rng, extents, dtype))
        left = run(runner, shape, arrays, precision, capacity)
        closing = normal(rng, left.shape, dtype)
        out = np.full(1, 3, dtype)
        flat = [array.ravel() for array in arrays]
        RUNNERS[runner](
            replace(shape, closes=True), flat[0], flat[1:], out, capacity, precision, closing
        )  # fmt: skip
        products = left.astype(np.complex128) * closing
        assert np.abs(out[0] - 3 - products.sum()) <= TOLERANCE[dtype] * np.abs(products).sum(), shape
        done += 1


def hard(rng: np.random.Generator, extents: Sequence[int], kind: str):
    """Numbers that are hard to split or to add up."""
    if kind in ("tiny", "huge"):
        return normal(rng, extents, "complex64") * np.float32(2.0**-25 if kind == "tiny" else 2.0**25)
    values = rng.uniform(0.5, 1, extents)
    if kind == "above powers":  # of two, where what lies below high is the largest part of a number
        values = (1 + 2.0**-23 * rng.integers(0, 8192, extents)) * 2.0 ** rng.integers(-3, 4, extents)
    return values.astype("complex64")


@pytest.mark.parametrize("kind", ["positive", "above powers", "tiny", "huge"])
@pytest.mark.parametrize("logs", [(2,), (4,), (6,), (1, 4, 2)])
@pytest.mark.parametrize("precision", TERMS)
@pytest.mark.parametrize("runner", ["twin", GPU])
def test_errors_stay_within_what_is_promised(runner, precision, logs, kind):
    rng = np.random.default_rng(5)
    shape = chain_shape(13 if runner == "gpu" else 12, logs)
    check(runner, shape, arrays_of(shape, lambda extents: hard(rng, extents, kind)), precision, 4096)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("logs", [(1,), (6,), pytest.param((4,), marks=pytest.mark.slow)])
@pytest.mark.parametrize("precision", ["fp32", *TERMS])
@pytest.mark.parametrize("runner", ["twin", GPU])
def test_what_is_not_finite_shows_wherever_it_counts(runner, precision, logs, place):
    """Infinities, and NaNs with every bit set as GPUs make them: adding half a unit turns those to zero."""
    rng = np.random.default_rng(6)
    shape = chain_shape(13 if runner == "gpu" else 12, logs)
    for bad in (0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000, 0x7F800000):
        arrays = arrays_of(shape, lambda extents: normal(rng, extents, "complex64"))
        parts = arrays[place].reshape(-1).view(np.uint32)
        parts[rng.integers(len(parts))] = bad
        with np.errstate(invalid="ignore"):
            out = run(runner, shape, arrays, precision, 4096)
        reached = [np.where(np.isfinite(array), 1.0, np.nan) for array in arrays]
        assert np.array_equal(np.isfinite(out), np.isfinite(contracted(shape, reached)))


@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize("itemsize", [4, 8, 16])
def test_any_chain_fits_the_memory_on_chip(itemsize, tensor):
    """Of GPUs with 164 KB a multiprocessor or more: eight branches, as many as possible in fragments."""
    least_bytes = 163 << 10
    for logs in ((4,) * 8, (4,) * 7 + (5,), (4,) * 6 + (5, 4), (5, 5), (6,), (2,) * 8):
        shape = chain_shape(20, logs)
        if fused_tile(shape.operand, shape.branches, shape.out, 32768 // itemsize) is not None:
            tables = best_tables(shape, 32768 // itemsize, itemsize, tensor and itemsize == 8)
            assert tables.shared_bytes <= least_bytes
            assert tables.tile_bytes < IDLE


@pytest.mark.parametrize("tensor", [False, True])
def test_first_lanes_meet_no_bank_conflict(tensor):
    """The tables of a typical chain: 16 lanes of 8 bytes in 16 banks, in loads, stages and stores."""
    modes = tuple((mode, 2) for mode in range(20))
    branches = tuple(tuple((mode, 2) for mode in part) for part in ((20, 21, 18, 19), (22, 23, 16, 17)))
    out = (*modes[:10], (20, 2), *modes[10:12], (22, 2), *modes[12:14], (23, 2), *modes[14:16], (21, 2))
    tables = fused_tables(FusedShape(modes, branches, out), 4096, 128, 8, tensor)
    own = tables.thread_place.astype(int)
    for number, places in enumerate(own):
        if tensor or number < 2 or number % 2 == 0:
            assert len(set((places[:16] // 8 % 16).tolist())) == 16


def test_a_chain_too_large_for_the_tile_is_refused():
    modes = tuple((mode, 2) for mode in range(12))
    shape = FusedShape(modes, ((modes[0], modes[11]),), modes[1:11])
    with pytest.raises(ValueError, match="does not fit a tile of 64 elements"):
        fused_tables(shape, 64, 32, 8)


def test_a_capacity_that_the_kernel_was_not_made_for_is_refused():
    bind_fused = pytest.importorskip("tnplan.executor.device.cuda.fused.chain").bind_fused
    shape = FusedShape(((0, 2),), (((0, 2),),), ())
    for capacity_bytes in (2048, 24576, 65536):
        with pytest.raises(
            InputError, match=f"fused_bytes: is {capacity_bytes}; plan for GPUs with 16384 or"
        ):
            bind_fused(shape, np.empty(2, np.float32), [None], None, None, capacity_bytes)


class Stream:
    """A stream, as far as it is told apart from others."""


def test_streams_that_live_use_copies_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The branches of a chain are in memory of its code, which two threads would write at once."""
    chain = pytest.importorskip("tnplan.executor.device.cuda.fused.chain")
    monkeypatch.setattr(chain.cupy.cuda.runtime, "getDevice", lambda: 0)
    first, second, third = Stream(), Stream(), Stream()
    numbers = [chain.module_copy(chain.FILE, (("N", 1),), stream) for stream in (first, second, first, third)]
    assert numbers == [0, 1, 0, 2]
    assert chain.module_copy(chain.FILE, (("N", 2),), third) == 0
    del first
    assert chain.module_copy(chain.FILE, (("N", 1),), Stream()) == 0
    assert chain.module_copy(chain.FILE, (("N", 1),), third) == 2
