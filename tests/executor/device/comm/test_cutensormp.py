"""cuTENSOR and cuTENSORMp: modes, schedules and refusals anywhere, the libraries where there are GPUs."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest

from tests.support.contraction.fused import fused_rates
from tests.support.kernels.gpus import count_gpus
from tests.support.networks import agrees, eager_profile, random_arrays, random_path
from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.executor.contraction.bind.tensor_library import bind_distributed, block_exchange, local_tensors
from tnplan.executor.contraction.run.checkpoint import Division
from tnplan.executor.contraction.run.rank_run import RunOutcome, new_timings, run_once, run_slices
from tnplan.executor.contraction.run.result import gather_result
from tnplan.executor.contraction.run.slice_partition import Share, SliceRanges
from tnplan.executor.device.comm import cutensormp
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.cuda.contract import Product, cutensor
from tnplan.executor.device.protocols.copy import row_major
from tnplan.executor.device.protocols.device import ContractShape
from tnplan.executor.device.protocols.tensor_library import fuse
from tnplan.planner.hardware.process_grid import Digit
from tnplan.planner.passes.lowering.unfuse import reads, unfuse, writes
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.schedule.schedule import Buffer, Fused, ReduceScatter


def random_shape(rng):
    batch, m, n = (tuple(int(e) for e in rng.choice([1, 2, 2, 3, 5], rng.integers(0, 5))) for _ in range(3))
    parts = batch + m + n
    order = rng.permutation(len(parts))
    if rng.random() < 0.3:
        order = np.arange(len(parts))
    strides = [0] * len(parts)
    for position, stride in zip(order, row_major([parts[p] for p in order]), strict=True):
        strides[position] = stride
    modes = tuple(zip(parts, strides, strict=True))
    first, second = len(batch), len(batch) + len(m)
    return ContractShape(modes[:first], modes[first:second], modes[second:], int(rng.choice([1, 2, 7])))


def strided(flat, modes):
    step = flat.itemsize
    return np.lib.stride_tricks.as_strided(
        flat, [extent for _, extent, _ in modes], [stride * step for _, _, stride in modes]
    )


def test_modes_say_the_same_contraction_as_the_shape():
    rng = np.random.default_rng(1)
    for _ in range(300):
        shape = random_shape(rng)
        n_batch, m, n, k = shape.sizes
        a, b = rng.standard_normal((n_batch, m, k)), rng.standard_normal((n_batch, n, k))
        expected, got = np.zeros((2, n_batch * m * n))
        NumpyDevice().bind_contract(shape, a.ravel(), b.ravel(), expected, np.zeros(n_batch * m * n))()
        modes = cutensor.contraction_modes(shape)
        labels = [[label for label, _, _ in part] for part in modes]
        product = np.einsum(
            strided(a.ravel(), modes[0]), labels[0], strided(b.ravel(), modes[1]), labels[1], labels[2]
        )
        strided(got, modes[2])[...] = product
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_neighbours_that_stay_together_are_one_mode():
    m = tuple((2, 2**place) for place in range(29, 9, -1))
    n = tuple((2, 2**place) for place in range(9, -1, -1))
    a, b, c = cutensor.contraction_modes(ContractShape((), m, n, 1024))
    assert c == [(20, 2**10, 1), (0, 2**20, 2**10)]
    assert a == [(30, 1024, 1), (0, 2**20, 1024)]
    assert b == [(30, 1024, 1), (20, 2**10, 1024)]


def test_a_missing_library_is_one_line_with_the_command(monkeypatch):
    pathfinder = pytest.importorskip("cuda.pathfinder")

    def fail(name):
        raise pathfinder.DynamicLibNotFoundError(f"no lib{name}\nsearched here\nand there")

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", fail)
    for name in ("cutensor", "cutensorMp"):
        with pytest.raises(InputError, match=r"pip install 'cutensor-cu13==2\.6\.\*'") as refusal:
            cutensor.load(name)
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("version", "nccl", "problem"),
    [
        ((2, 5, 0), 22809, "is not part of cuTENSOR 2.5.0"),
        ((2, 6, 0), 22809, None),
        ((2, 7, 1), 22703, None),
        ((2, 8, 0), 22809, "2.8.0 needs NCCL 2.29 or newer, and 2.28.9 is loaded"),
        ((2, 8, 0), 22901, None),
    ],
)
def test_versions_that_do_not_fit_are_refused(version, nccl, problem):
    if problem is None:
        cutensormp.check_versions(version, nccl)
        return
    with pytest.raises(InputError) as refusal:
        cutensormp.check_versions(version, nccl)
    assert problem in str(refusal.value)


def test_too_many_modes_are_refused():
    n = cutensor.MOST_MODES + 2
    order = row_major((2,) * n)
    shape = ContractShape((), tuple((2, s) for s in order[::2]), tuple((2, s) for s in order[1::2]), 2)
    with pytest.raises(InputError, match=f"a tensor of {n} modes"):
        cutensor.check_modes(cutensor.contraction_modes(shape))


class TwinLibrary:
    """The twin of the libraries: einsum, and exchanges that gather the whole tensor."""

    def __init__(self, communicator):
        self.communicator = communicator
        self.n_exchanges = 0

    def bind_contract(self, tensors, views, precision):
        labels = [[label for label, _ in tensor] for tensor in tensors]
        a, b, c = (
            view.reshape([extent for _, extent in tensor])
            for view, tensor in zip(views, tensors, strict=True)
        )

        def run():
            c[...] = np.einsum(a, labels[0], b, labels[1], labels[2])

        return run

    def bind_exchange(self, tensors, views):
        source, out = tensors
        self.n_exchanges += 1

        def run():
            whole = np.zeros([extent for _, extent, _ in source.modes], views[0].dtype)
            for rank, shard in enumerate(self.communicator.gather_objects(views[0].copy())):
                place = self.block(source, rank)
                whole[place] = shard.reshape(whole[place].shape)
            labels = [[label for label, _, _ in tensor.modes] for tensor in tensors]
            turned = np.einsum(whole, *labels)
            views[1][...] = turned[self.block(out, self.communicator.rank)].ravel()

        return run

    def block(self, tensor, rank):
        parts = [parts for _, _, parts in tensor.modes]
        values = np.unravel_index(rank if prod(parts) > 1 else 0, parts)
        return tuple(
            slice(int(value) * extent // cut, (int(value) + 1) * extent // cut)
            for value, (_, extent, cut) in zip(values, tensor.modes, strict=True)
        )


def replayed(schedule, arrays):
    """The result by the engine, and how many exchanges the library did."""

    def work(communicator):
        library = TwinLibrary(communicator)
        device = NumpyDevice()
        program = bind_distributed(schedule, device, communicator, arrays, lambda: library)
        timings = new_timings(program)
        run_once(program, device, timings)
        run_slices(program, device, timings, range(schedule.n_slices) if schedule.body else (), lambda: None)
        slices = SliceRanges.of(range(1))
        share = Share(1, 0, communicator.rank, slices)
        outcome = RunOutcome(program, Division((1,), slices), share, communicator, timings)
        return gather_result(outcome, device), library.n_exchanges

    return run_ranks(schedule.ranks_per_group, work)[0]


def check_arena(schedule):
    """Assert that no two buffers overlap while both hold something."""
    end = len(schedule.instructions)
    spans, now = {}, 0
    for part in schedule.parts:
        start = now
        for instruction in part.instructions:
            for number in writes(instruction):
                spans.setdefault(number, [now, now])[1] = now
            for number in reads(instruction):
                spans[number][1] = end if spans[number][0] < start else now
            now += 1
    spans[schedule.result] = [len(schedule.once) if schedule.body else spans[schedule.result][0], end]
    held = [(schedule.buffers[number], *span) for number, span in spans.items()]
    for place, (one, first, last) in enumerate(held):
        for other, start, stop in held[:place]:
            apart = (
                one.offset_bytes + one.size_bytes <= other.offset_bytes
                or other.offset_bytes + other.size_bytes <= one.offset_bytes
            )
            assert apart or last < start or stop < first


def count(schedule, kind):
    return sum(isinstance(instruction, kind) for instruction in schedule.instructions)


def planned(path, ranks, fused_bytes=0, policy="paper"):
    profile = replace(
        eager_profile(4096), fused_bytes=fused_bytes, fused_flop_per_s=fused_rates(1e9),
        fused_tile_bytes_per_s=fused_rates(1e12),
    )  # fmt: skip
    return plan(
        path, profile, devices=ranks, ranks_per_group=ranks, memory_bytes=math.inf, threshold_bytes=1,
        policy=policy,
    )  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("fused_bytes", [0, 2048])
def test_random_networks_through_the_engine(ranks, fused_bytes):
    ran = 0
    for seed in range(60):
        path = random_path(seed)
        schedule = unfuse(planned(path, ranks, fused_bytes))
        check_arena(schedule)
        assert not count(schedule, Fused)
        arrays = random_arrays(path, seed)
        if count(schedule, ReduceScatter):
            continue
        result, _ = replayed(schedule, arrays)
        agrees(result, path, arrays)
        ran += 1
    assert ran >= 30


def test_exchanges_are_left_to_the_library():
    n_exchanges = 0
    for seed, ranks in product((5, 6, 11, 106, 112, 129, 133, 151, 194), (2, 3, 4)):
        path = random_path(seed)
        schedule = unfuse(planned(path, ranks))
        check_arena(schedule)
        if count(schedule, ReduceScatter):
            continue
        arrays = random_arrays(path, 3)
        result, done = replayed(schedule, arrays)
        agrees(result, path, arrays)
        n_exchanges += done
    assert n_exchanges > 10


def test_a_sum_over_a_spread_mode_is_refused_with_its_step():
    for seed in range(200):
        path = random_path(seed)
        schedule = unfuse(planned(path, 2, policy="ours"))
        if count(schedule, ReduceScatter):
            break
    step = next(i.step for i in (*schedule.once, *schedule.body) if isinstance(i, ReduceScatter))
    with pytest.raises(InputError, match=rf"engine cutensormp: step {step}: .*plan with policy paper"):
        replayed(schedule, random_arrays(path, seed))


def test_runs_of_modes_are_fused():
    runs = fuse([(1, 2, 3, 4), (5, 6, 4), (1, 2, 5, 6, 3)])
    assert runs == {1: (1, 2), 3: (3,), 4: (4,), 5: (5, 6)}


def test_modes_of_one_value_are_no_modes_of_a_shard():
    modes = [(1, 2, 3, 4), (5, 3, 4), (1, 5, 2)]
    a, b, c = local_tensors(modes, [(1, 2, 2, 3), (7, 2, 3), (1, 7, 2)])
    assert a == ((2, 2), (3, 6))
    assert b == ((5, 7), (3, 6))
    assert c == ((5, 7), (2, 2))


@pytest.mark.parametrize(
    ("source", "out", "expected"),
    [
        # No one order of the modes suits both grids: on each side what moves follows what is spread.
        (((4, 2, 3, 1), (1, 2)), ((1, 2, 3, 4), (4, 2)),
         (((1, 2, 2), (2, 2, 2), (4, 2, 1), (3, 5, 1)), ((4, 2, 2), (2, 2, 2), (1, 2, 1), (3, 5, 1)))),
        # One that keeps a digit: one order of the modes suits both.
        (((4, 2, 3, 1), (1, 2)), ((2, 1, 3, 4), (1, 4)),
         (((1, 2, 2), (2, 2, 2), (4, 2, 1), (3, 5, 1)), ((1, 2, 2), (2, 2, 1), (4, 2, 2), (3, 5, 1)))),
        # A gather.
        (((3, 2, 1), (2, 1)), ((2, 1, 3), (None, None)),
         (((2, 2, 2), (1, 2, 2), (3, 5, 1)), ((2, 2, 1), (1, 2, 1), (3, 5, 1)))),
        # Scattered pieces, a repeated tensor, nothing to move, unequal shards.
        (((3, 4, 2, 1), (1, 2)), ((1, 2, 3, 4), (4, 2)), None),
        (((3, 2, 1), (None, 1)), ((1, 2, 3), (None, None)), None),
        (((3, 2, 1), (None, None)), ((1, 2, 3), (1, 2)), None),
        (((3, 2, 1), (3, 1)), ((3, 1, 2), (None, None)), None),
    ],
)  # fmt: skip
def test_exchanges_of_blocks(source, out, expected):
    grid = (Digit(2, 0), Digit(2, 0))
    extents = {1: 2, 2: 2, 3: 5, 4: 2}
    got = block_exchange(Buffer(*source, 0, 0), Buffer(*out, 0, 0), extents, grid)
    assert (got and tuple(tensor.modes for tensor in got)) == expected


@pytest.fixture
def gpu():
    if not count_gpus():
        pytest.skip("needs 1 GPU")
    try:
        cutensor.bindings()
    except InputError as missing:
        pytest.skip(str(missing))
    import cupy

    return cupy


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_contractions_on_a_gpu(gpu, dtype):
    rng = np.random.default_rng(4)
    stream = gpu.cuda.Stream(non_blocking=True)
    for _ in range(40):
        shape = random_shape(rng)
        n_batch, m, n, k = shape.sizes
        a, b = (
            (rng.standard_normal(size) + 1j * rng.standard_normal(size)).astype(np.complex128)
            for size in ((n_batch, m, k), (n_batch, n, k))
        )
        if dtype.startswith("float"):
            a, b = a.real, b.real
        a, b = a.astype(dtype), b.astype(dtype)
        expected = np.zeros(n_batch * m * n, complex)
        wide = NumpyDevice()
        wide.bind_contract(
            shape, a.astype(complex).ravel(), b.astype(complex).ravel(), expected, expected * 0
        )()
        c = gpu.full(n_batch * m * n, np.nan, dtype)
        held = gpu.empty(cutensor.workspace_bytes(shape, dtype, "fp32"), np.uint8)
        left, right = gpu.asarray(a.ravel()), gpu.asarray(b.ravel())
        gpu.cuda.Device().synchronize()
        cutensor.bind_contract(Product(shape, left, right, c, stream), held, "fp32")()
        stream.synchronize()
        tolerance = 2e-6 if dtype in ("float32", "complex64") else 1e-14
        assert np.max(np.abs(c.get() - expected), initial=0) <= tolerance * k * 10


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"engine": "cutensor"}, "engine: 'cutensor' is unknown; choose from native, cutensormp"),
        ({"engine": "cutensormp", "device": "cpu"}, "engine: cutensormp needs GPUs"),
        ({"engine": "cutensormp", "resume": True}, "resume: has no checkpoint"),
    ],
)
def test_engines_that_cannot_be_had_are_refused(options, problem):
    path = random_path(5)
    with pytest.raises(InputError) as refusal:
        execute(planned(path, 1), random_arrays(path, 1), **options)
    assert str(refusal.value).startswith(problem)
