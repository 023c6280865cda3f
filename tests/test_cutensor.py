"""cuTENSOR and cuTENSORMp: modes, schedules and refusals anywhere, the libraries where there are GPUs."""

from __future__ import annotations

import math
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from executor_case import contract_pairwise, lattice
from support import agrees, eager_profile, random_arrays, random_path

from executor.contraction.bind_distributed import bind_distributed, is_local
from executor.contraction.replay import new_timings, run_once, run_slices
from executor.contraction.result import gather_result
from executor.contraction.run import Outcome
from executor.contraction.slices import Share
from executor.contraction.spread import fuse, spread_tensors
from executor.device import cutensor, cutensormp
from executor.device.device import ContractShape
from executor.device.distributed import UnsupportedError
from executor.device.numpy_device import NumpyDevice
from executor.device.permutation import row_major
from executor.device.threads import run_ranks
from planner.errors import InputError
from planner.hardware.layout import Digit
from planner.passes.pipeline import plan
from planner.passes.separate import reads, separate, writes
from planner.schedule import Buffer, Fused, Redistribute, ReduceScatter


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
    assert c == [(1, 2**10, 1), (0, 2**20, 2**10)]
    assert a == [(2, 1024, 1), (0, 2**20, 1024)]
    assert b == [(2, 1024, 1), (1, 2**10, 1024)]


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


class TensorDevice(NumpyDevice):
    """A CPU that contracts without a tile of the schedule, as a tensor library does."""

    def bind_contract(self, shape, a, b, c, workspace, precision="fp32", engine="gemm"):
        assert engine == "cutensor"
        return super().bind_contract(shape, a, b, c, np.empty(len(c), c.dtype), precision)


class GatheringContractor:
    """The twin of a distributed library: gathers the operands and keeps this rank's block."""

    def __init__(self, communicator):
        self.communicator = communicator
        self.n_bound = 0

    def bind(self, tensors, views, precision):
        a, b, c = tensors
        self.n_bound += 1

        def run():
            whole = [self.gathered(tensor, view) for tensor, view in zip((a, b), views[:2], strict=True)]
            labels = [[label for label, _, _ in tensor.modes] for tensor in tensors]
            product = np.einsum(whole[0], labels[0], whole[1], labels[1], labels[2])
            views[2][...] = product[self.block(c, self.communicator.rank)].ravel()

        return run

    def block(self, tensor, rank):
        parts = [parts for _, _, parts in tensor.modes]
        values = np.unravel_index(rank if prod(parts) > 1 else 0, parts) if parts else ()
        return tuple(
            slice(int(value) * extent // cut, (int(value) + 1) * extent // cut)
            for value, (_, extent, cut) in zip(values, tensor.modes, strict=True)
        )

    def gathered(self, tensor, view):
        whole = np.zeros([extent for _, extent, _ in tensor.modes], view.dtype)
        for rank, shard in enumerate(self.communicator.gather_objects(view.copy())):
            place = self.block(tensor, rank)
            whole[place] = shard.reshape(whole[place].shape)
        return whole


def replayed(schedule, arrays):
    """The result by the engine, and how many contractions the distributed library did."""

    def work(communicator):
        contractor = GatheringContractor(communicator)
        device = TensorDevice()
        program = bind_distributed(schedule, device, communicator, arrays, lambda: contractor)
        timings = new_timings(program)
        run_once(program, device, timings)
        run_slices(program, device, timings, range(schedule.n_slices) if schedule.body else (), lambda: None)
        outcome = Outcome(program, Share(1, 0, communicator.rank, range(1)), communicator, timings)
        return gather_result(outcome, device), contractor.n_bound

    return run_ranks(schedule.ranks_per_group, work)[0]


def check_arena(schedule):
    """Assert that no two buffers overlap while both hold something."""
    end = len(schedule.once) + len(schedule.body)
    spans = {}
    for now, instruction in enumerate((*schedule.once, *schedule.body)):
        for number in writes(instruction):
            spans.setdefault(number, [now, now])[1] = now
        for number in reads(instruction):
            spans[number][1] = end if spans[number][0] < len(schedule.once) <= now else now
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
    return sum(isinstance(instruction, kind) for instruction in (*schedule.once, *schedule.body))


def planned(path, ranks, fused_bytes=0, policy="paper"):
    rates = {"float32": 1e9, "float64": 1e9, "complex64": 1e9, "complex128": 1e9}
    profile = replace(
        eager_profile(4096), fused_bytes=fused_bytes, fused_flop_per_s=rates, fused_tile_bytes_per_s=1e12
    )
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
        schedule = separate(planned(path, ranks, fused_bytes))
        check_arena(schedule)
        assert not count(schedule, Fused)
        arrays = random_arrays(path, seed)
        if count(schedule, ReduceScatter):
            continue
        result, _ = replayed(schedule, arrays)
        agrees(result, path, arrays)
        ran += 1
    assert ran >= 30


def test_redistributions_are_left_to_the_library():
    done = left = 0
    for bond, ranks in ((2, 2), (4, 2), (2, 4), (4, 4)):
        path = lattice(4, 4, bond, 0, "complex128", 2)
        plain = planned(path, ranks)
        schedule = separate(plain)
        check_arena(schedule)
        left += count(plain, Redistribute) - count(schedule, Redistribute)
        if count(schedule, ReduceScatter):
            continue
        arrays = random_arrays(path, 3)
        result, n_bound = replayed(schedule, arrays)
        np.testing.assert_allclose(result, contract_pairwise(path, arrays), rtol=1e-9)
        done += n_bound
    assert left
    assert done


def test_a_sum_over_a_spread_mode_is_refused_with_its_step():
    for seed in range(200):
        path = random_path(seed)
        schedule = separate(planned(path, 2, policy="ours"))
        if count(schedule, ReduceScatter):
            break
    step = next(i.step for i in (*schedule.once, *schedule.body) if isinstance(i, ReduceScatter))
    with pytest.raises(InputError, match=rf"--engine cutensormp: step {step}: .*plan with --policy paper"):
        replayed(schedule, random_arrays(path, seed))


def test_runs_of_modes_are_fused_but_not_the_spread_ones():
    runs = fuse([(1, 2, 3, 4), (5, 6, 4), (1, 2, 5, 6, 3)], set())
    assert runs == {1: (1, 2), 3: (3,), 4: (4,), 5: (5, 6)}
    runs = fuse([(1, 2, 3, 4), (5, 6, 4), (1, 2, 5, 6, 3)], {1})
    assert runs[1] == (1,)
    assert runs[2] == (2,)


def test_layouts_that_the_library_cannot_have_are_refused():
    grid = (Digit(2, 0), Digit(2, 0))
    extents = {1: 2, 2: 2, 3: 4, 4: 3}
    modes = [(1, 2, 3), (3,), (1, 2)]
    whole = (None, None)
    a, b, c = spread_tensors(modes, [(1, 2), whole, (1, 2)], extents, grid)
    assert a.modes == ((1, 2, 2), (2, 2, 2), (3, 4, 1))
    assert b.modes == ((3, 4, 1),)
    assert c.modes == ((1, 2, 2), (2, 2, 2))
    for layout, problem in (((2, 1), "order"), ((1, None), "repeated over 4 ranks")):
        with pytest.raises(UnsupportedError, match=problem):
            spread_tensors(modes, [layout, whole, layout], extents, grid)
    with pytest.raises(UnsupportedError, match="unequal"):
        spread_tensors([(4, 1), (1,), (4,)], [(4, 1), (None, 1), (4, None)], extents, grid)


def test_what_is_local():
    def tensor(modes, layout):
        return Buffer(modes, layout, 0, 0)

    a, b = tensor((1, 2, 3), (1,)), tensor((4, 3), (None,))
    assert is_local([a, b, tensor((1, 2, 4), (1,))])
    assert not is_local([a, b, tensor((1, 2, 4), (2,))])
    assert not is_local([a, b, tensor((1, 2, 4), (None,))])
    assert not is_local([tensor((1, 2, 3), (3,)), b, tensor((1, 2, 4), (None,))])


def gpus():
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount())
    except Exception:
        return 0


@pytest.fixture
def gpu():
    if not gpus():
        pytest.skip("needs a GPU")
    try:
        cutensor.library()
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
        cutensor.bind_contract(shape, left, right, c, held, "fp32", stream)()
        stream.synchronize()
        tolerance = 2e-6 if dtype in ("float32", "complex64") else 1e-14
        assert np.max(np.abs(c.get() - expected), initial=0) <= tolerance * k * 10
