"""The device layer's common part, one body for the CPU and for a GPU where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.contraction.copy import random_values
from tests.support.contraction.executor import lattice
from tests.support.kernels.gpus import DEVICES, needs_gpus, opened
from tests.support.networks import agrees, eager_profile, random_arrays, random_path
from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.executor.contraction.redistribute import peer_copy as bind_direct
from tnplan.executor.device.cpu.device import HostDevice
from tnplan.executor.device.protocols.device import ContractShape
from tnplan.planner.networks.contraction_path import DTYPES
from tnplan.planner.passes.pipeline import plan

SEEDS = range(2000, 2060)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    with opened(request.param) as made:
        yield made


def normal(count: int, dtype: str, seed: int = 0) -> np.ndarray:
    return random_values(np.random.default_rng(seed), count, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 7, 4096, 1 << 20])
def test_values_go_to_the_device_and_back(device: Any, dtype: str, count: int) -> None:
    size_bytes = max(count, 1) * np.dtype(dtype).itemsize
    device.allocate(size_bytes)
    view = device.view(0, count, dtype)
    values = normal(count, dtype)
    device.from_host(view, values)
    assert np.array_equal(device.to_host(view), values)
    device.zero(view)
    assert not device.to_host(view).any()
    assert device.peak_bytes == size_bytes


def test_several_values_come_back_together(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, offsets = (3, 0, 100, 7, 5000, 1, 9), (0, 64, 64, 1024, 2048, 50_000, 51_200)
    device.allocate(1 << 16)
    views = [device.view(offset, count, "complex64") for offset, count in zip(offsets, counts, strict=True)]
    values = [normal(count, "complex64", seed) for seed, count in enumerate(counts)]
    for view, own in zip(views, values, strict=True):
        device.from_host(view, own)
    if not isinstance(device, HostDevice):  # a GPU, whose pinned memory holds some of them at once
        monkeypatch.setattr("tnplan.executor.device.cuda.device.STAGING_BYTES", 1024)
    for found, own in zip(device.to_hosts(views), values, strict=True):
        assert np.array_equal(found, own)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("count", "offset"), [(0, 0), (1, 0), (5, 1), (4096, 0), (4096, 3), (100_003, 0)])
def test_accumulate_has_the_bits_of_numpy(device: Any, dtype: str, count: int, offset: int) -> None:
    itemsize = np.dtype(dtype).itemsize
    device.allocate(256 + 2 * (count + offset) * itemsize)
    target = device.view(offset * itemsize, count, dtype)
    source = device.view((offset + count) * itemsize, count, dtype)
    held, added = normal(count, dtype, 1), normal(count, dtype, 2)
    device.from_host(target, held)
    device.from_host(source, added)
    call = device.bind_accumulate(target, source)
    call()
    call()
    assert np.array_equal(device.to_host(target), held + added + added)


def test_a_block_begins_where_the_host_says(device: Any) -> None:
    device.allocate(1024)
    source, target = device.view(0, 64, "complex64"), device.view(512, 16, "complex64")
    values = normal(64, "complex64")
    device.from_host(source, values)
    start = [0]
    call = device.bind_block(target, source, lambda: start[0])
    for start[0] in (0, 16, 48):
        call()
        assert np.array_equal(device.to_host(target), values[start[0] : start[0] + 16])


def test_marks_measure_work_in_order(device: Any) -> None:
    device.allocate(1 << 26)
    view = device.view(0, 1 << 24, "float32")
    device.zero(view)
    call = device.named("twice", device.bind_accumulate(view, view))
    points = device.marks(3)
    for _ in range(2):
        for point in points:
            device.mark(point)
            call()
        device.synchronize()
        first, second = (device.elapsed_s(points[i], points[i + 1]) for i in range(2))
        assert 0 < first < 1
        assert device.elapsed_s(points[0], points[2]) == pytest.approx(first + second, rel=1e-3)


@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy")
def test_numbers_are_added_by_16_bytes_where_all_is_aligned() -> None:
    from tnplan.executor.device.cuda.copy.permute import REALS, add_width

    for real_bytes in REALS:
        widths = [add_width(real_bytes, *case) for case in ((64, 0, 4096), (63, 0, 0), (64, 16, 8))]
        assert widths == [16 // real_bytes, 1, 1]


def test_marks_of_a_host_are_its_clock() -> None:
    clock = HostDevice()
    first, second = clock.marks(2)
    clock.mark(first)
    clock.mark(second)
    assert 0 <= clock.elapsed_s(first, second) < 1


@needs_gpus(1)
def test_an_arena_that_does_not_fit_is_refused() -> None:
    from tnplan.executor.device.cuda.device import CupyDevice

    device = CupyDevice(0)
    with pytest.raises(InputError, match=r"1\.00 PiB are needed, GPU 0 of .* free of"):
        device.allocate(1 << 50)
    device.close()


@needs_gpus(1)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_networks_on_one_gpu(seed: int) -> None:
    path = random_path(seed)
    profile = eager_profile(tile_bytes=(64, 1 << 20)[seed % 2])
    schedule = plan(path, profile, devices=1, ranks_per_group=1, memory_bytes=inf, threshold_bytes=1)
    result = execute(schedule, random_arrays(path, seed), device="gpu")
    agrees(result.array, path, random_arrays(path, seed))
    assert result.report["environment"]["device"] == "gpu"


@needs_gpus(1)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sliced_lattice_on_one_gpu_agrees_with_the_cpu(dtype: str) -> None:
    path = lattice(5, 6, 3, 2, dtype, 2)
    schedule = plan(
        path, eager_profile(4096, 4096), devices=1, ranks_per_group=1, memory_bytes=inf, threshold_bytes=1
    )
    arrays = random_arrays(path, 3)
    on_gpu, on_cpu = (execute(schedule, arrays, device=device) for device in ("gpu", "cpu"))
    assert on_gpu.array is not None
    assert on_cpu.array is not None
    limit = 1e-5 if dtype in ("float32", "complex64") else 1e-13
    scale = np.abs(on_cpu.array).max()
    assert np.abs(on_gpu.array - on_cpu.array).max() <= limit * scale
    measured = on_gpu.report["measured"]
    assert sum(measured["kinds_s"].values()) <= measured["run_s"]
    assert len(measured["slices_s"]) == schedule.n_slices


@needs_gpus(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_networks_on_two_gpus_of_this_process(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed // 2 % 2:
        monkeypatch.setattr(bind_direct, "SHORTEST_RUN_BYTES", 1)
    path = random_path(seed)
    profile = eager_profile(exchange_bytes=(64, 1 << 20)[seed % 2])
    schedule = plan(
        path, profile, devices=2, ranks_per_group=1 + seed % 2, memory_bytes=inf, threshold_bytes=1
    )
    result = execute(schedule, random_arrays(path, seed), ranks=2, device="gpu")
    agrees(result.array, path, random_arrays(path, seed))


@needs_gpus(1)
def test_a_call_keeps_its_scratch_memory_when_another_takes_more() -> None:
    from tnplan.executor.device.cuda.device import CupyDevice

    device = CupyDevice(0)
    m, n, k = 4, 2, 1 << 15
    device.allocate(1 << 22)
    a, b, c = (
        device.view(place << 20, size, "float64") for place, size in ((0, m * k), (1, n * k), (2, m * n))
    )
    values = normal(m * k, "float64", 1), normal(n * k, "float64", 2)
    device.from_host(a, values[0])
    device.from_host(b, values[1])
    shape = ContractShape((), ((m, n),), ((n, 1),), k)
    call = device.bind_contract(shape, a, b, c, None, "fp64")
    device.scratch(1 << 28)
    device.bind_contract(shape, a, b, c, None, "fp64")  # from here on cuBLAS works in the larger one
    call()
    device.synchronize()
    expected = values[0].reshape(m, k) @ values[1].reshape(n, k).T
    assert np.allclose(device.to_host(c).reshape(m, n), expected, rtol=1e-12)
    device.close()


@needs_gpus(1)
def test_products_share_the_scratch_memory_of_the_one_that_needs_most() -> None:
    from tnplan.executor.device.cuda.device import CupyDevice

    device = CupyDevice(0)
    device.allocate(1 << 24)
    shapes = [ContractShape((), ((m, n),), ((n, 1),), k) for m, n, k in ((128, 64, 64), (16, 32, 1 << 14))]
    device.prepare_contract([(shape, "fp64", "gemm") for shape in shapes], "float64")
    held_bytes = device.peak_bytes
    assert held_bytes > 1 << 24
    for shape in shapes:
        _, m, n, k = shape.sizes
        sizes = enumerate((m * k, n * k, m * n))
        device.bind_contract(
            shape, *(device.view(place << 22, size, "float64") for place, size in sizes), None, "fp64"
        )
    assert device.peak_bytes == held_bytes
    device.close()


class FakeHost:
    """Rank 0 of two; `other` is what the second one says, in turn."""

    rank = 0

    def __init__(self, *other: Any) -> None:
        self._other = iter(other)

    def gather_objects(self, value: Any) -> list[Any]:
        other = next(self._other)
        return [value, other(value) if callable(other) else other]

    def at_failure(self, let_go: Any, of_device: bool = True) -> None:
        """This process ends with the other."""


@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy")
@pytest.mark.parametrize(("has_neighbours", "times"), [(True, 1), (False, 0)])
def test_a_call_that_loads_kernels_is_made_once_ahead_where_there_are_neighbours(
    has_neighbours: bool, times: int
) -> None:
    from tnplan.executor.device.cuda.device import CupyDevice

    device, done = object.__new__(CupyDevice), []
    device.has_neighbours = has_neighbours
    call = device.loaded(lambda: done.append("called"))
    assert done == ["called"] * times
    call()
    assert done == ["called"] * (times + 1)


@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy")
@pytest.mark.parametrize("has_neighbours", [True, False])
def test_memory_of_the_host_is_taken_with_the_arena_where_there_are_neighbours(
    has_neighbours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tnplan.executor.device.cuda import device as cupy_device

    taken: list[int] = []
    arena = SimpleNamespace(Memory=taken.append, MemoryPointer=lambda memory, offset: None)
    pinned = SimpleNamespace(alloc_pinned_memory=lambda size: taken.append(size) or bytearray(size))
    monkeypatch.setattr(
        cupy_device, "cupy", SimpleNamespace(cuda=SimpleNamespace(**vars(arena), **vars(pinned)))
    )
    monkeypatch.setattr(cupy_device, "check_free", lambda device, size_bytes: None)
    device = object.__new__(cupy_device.CupyDevice)
    device.device_id = device.peak_bytes = 0
    device.has_neighbours, device.staging = has_neighbours, None
    device.allocate(1 << 21)
    assert taken == [1 << 21, *[cupy_device.STAGING_BYTES] * has_neighbours]


@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy")
def test_pinned_memory_is_as_large_as_what_passes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    from tnplan.executor.device.cuda import device as cupy_device

    taken: list[int] = []
    pinned = SimpleNamespace(alloc_pinned_memory=lambda size: taken.append(size) or bytearray(size))
    monkeypatch.setattr(cupy_device, "cupy", SimpleNamespace(cuda=pinned))
    sent: list[int] = []
    runtime = SimpleNamespace(
        memcpyAsync=lambda to, source, size, kind, stream: sent.append(size), memcpyHostToDevice=0
    )
    monkeypatch.setattr(cupy_device, "runtime", runtime)
    device = object.__new__(cupy_device.CupyDevice)
    device.staging, device.stream = None, SimpleNamespace(ptr=0, synchronize=lambda: None)
    most, least = cupy_device.STAGING_BYTES, cupy_device.LEAST_STAGING_BYTES
    target = SimpleNamespace(dtype=np.dtype(np.uint8), data=SimpleNamespace(ptr=0))
    for size in (0, 1, least, 3 * least, 2 * least, most + 5):
        device.from_host(target, np.zeros(size, np.uint8))
    assert taken == [least, 4 * least, most]
    assert sent == [1, least, 3 * least, 2 * least, most, 5]


@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy")
@pytest.mark.parametrize(
    ("asked", "given"), [(0, 1 << 21), (1, 1 << 21), (1 << 21, 1 << 21), ((5 << 21) + 23552, 6 << 21)]
)
def test_memory_for_other_ranks_is_whole_blocks(asked: int, given: int) -> None:
    from tnplan.executor.device.cuda.peer_memory import whole_blocks

    assert whole_blocks(asked) == given


@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy")
def test_arenas_are_opened_by_handle_and_without_one_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from tnplan.executor.device.cuda import peer_memory as cuda_memory

    class NoHandleError(Exception):
        pass

    def no_handle(address: int) -> bytes:
        raise NoHandleError

    opened = iter(range(1 << 20, 1 << 30, 1 << 20))
    arena = SimpleNamespace(data=SimpleNamespace(ptr=512), nbytes=256)
    runtime = SimpleNamespace(
        CUDARuntimeError=NoHandleError, getDevice=lambda: 0, ipcGetMemHandle=lambda address: b"own",
        ipcOpenMemHandle=lambda handle: next(opened), ipcCloseMemHandle=lambda address: None,
    )  # fmt: skip
    monkeypatch.setattr(cuda_memory, "runtime", runtime)
    monkeypatch.setattr(cuda_memory, "zeros", lambda size_bytes: SimpleNamespace(ptr=4096))

    def elsewhere(offers: Any) -> Any:
        return tuple(replace(offer, process="another") for offer in offers)

    def reached(host: FakeHost) -> Any:
        return cuda_memory.CudaMemory(host, arena, None, None)  # type: ignore[arg-type]

    memory = reached(FakeHost(elsewhere, {0, 1}))
    assert memory.ranks == {0, 1}
    assert memory._bases == {0: (512, 256), 1: (1 << 20, 256)}
    assert reached(FakeHost(elsewhere, {1})).ranks == frozenset()
    runtime.ipcGetMemHandle = no_handle
    assert reached(FakeHost(elsewhere, {0, 1})).ranks == frozenset()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_block_is_added_where_the_loops_are(device: Any, dtype: str) -> None:
    itemsize = np.dtype(dtype).itemsize
    device.allocate(100 * itemsize)
    whole, part = device.view(0, 60, dtype), device.view(64 * itemsize, 7, dtype)
    values, added, place = normal(60, dtype), normal(7, dtype, 1), [0]
    device.from_host(whole, values)
    device.from_host(part, added)
    call = device.bind_add_block(whole, part, lambda: place[0])
    wanted = values.copy()
    for place[0] in (0, 13, 53, 13):
        call()
        wanted[place[0] : place[0] + 7] += added
    assert np.array_equal(device.to_host(whole), wanted)
