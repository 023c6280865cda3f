"""What compression takes and claims: memory beside the arena, and the bound of a run that goes on."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from tests.support.contraction.compression import (
    EXCHANGE,
    FREE,
    SMALL_ARRAYS,
    arrays_of,
    exchanging,
    instructions,
    plan_exchanges,
    short_of_memory,
    slow_profile,
    waiting,
)
from tests.support.contraction.resume import InterruptedRunError
from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.executor.contraction.bind.program import arena_bytes, needed_bytes
from tnplan.executor.contraction.run import checkpoint as checkpoints
from tnplan.executor.device.cpu.codec import NumpyCodec
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.jobs.progress import Progress
from tnplan.planner.hardware.compression_options import Compression, Lossy
from tnplan.planner.hardware.profile import CodecRates, load_profile
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.schedule.schedule import Encode

ARRAYS = arrays_of(exchanging(18, 8))


def test_a_run_that_goes_on_does_not_claim_the_bound_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "INTERVAL", 0)
    schedule = short_of_memory()
    whole = execute(schedule, SMALL_ARRAYS, threads=1, device="cpu")

    def stop(at: Progress) -> None:
        if at.done == 3:
            raise InterruptedRunError

    options: dict[str, Any] = {"threads": 1, "output": tmp_path / "result.npy", "device": "cpu"}
    with pytest.raises(InterruptedRunError):
        execute(schedule, SMALL_ARRAYS, progress=stop, **options)
    with pytest.raises(InputError, match="slices and compress of that run"):
        execute(schedule, SMALL_ARRAYS, resume=True, compress="store=1e-2", **options)
    resumed = execute(schedule, SMALL_ARRAYS, resume=True, **options)
    assert resumed.report["slices"]["resumed"] == 3
    assert np.array_equal(resumed.array, whole.array)  # type: ignore[arg-type]
    assert whole.report["compression"]["bound"] > 0
    assert resumed.report["compression"]["bound"] is None
    assert resumed.report["compression"]["fidelity"] is None


@pytest.mark.parametrize(("dtype", "bound"), [("complex128", 0.0), ("float64", 1e-3)])
def test_the_codec_of_a_cpu_takes_no_more_than_is_planned(dtype: str, bound: float) -> None:
    values = np.random.default_rng(0).standard_normal(1 << 22).astype(dtype)
    values[::7] = np.nan
    codec, planned = NumpyCodec(), load_profile("cpu").codec("fast").workspace_bytes
    out, restored = np.zeros(codec.worst_bytes(len(values), dtype), np.uint8), np.zeros_like(values)
    sizes = []
    # Memory of the compiler does not count: every kernel is called before.
    few = codec.encode(values[:70_000], Lossy(bound), "fast", out)
    codec.decode(out[: few.size_bytes], restored[:70_000])
    tracemalloc.start()
    try:
        packed = codec.encode(values, Lossy(bound), "fast", out)
        sizes.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.reset_peak()
        codec.decode(out[: packed.size_bytes], restored)
        sizes.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert max(sizes) <= planned


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_cannot_store_a_tensor_ends_all(rank: int) -> None:
    path = waiting(4, 1 << 9, 16)
    profile = replace(load_profile("cpu"), codecs=FREE)
    options: dict[str, Any] = {"devices": 2, "ranks_per_group": 2, "threshold_bytes": 1}
    peak_bytes = plan(path, profile, memory_bytes=inf, **options).predicted.peak_bytes
    compression = Compression(store=Lossy(1e-3, 8.0))
    schedule = plan(path, profile, memory_bytes=int(0.85 * peak_bytes), compression=compression, **options)
    spread = next(item for item in instructions(schedule, Encode))
    assert schedule.buffers[spread.source].layout != (None,)  # type: ignore[attr-defined]
    arrays = arrays_of(path)
    half = path.network.size_dict["b"] // 2
    for array in arrays:
        # The batches of the other rank vanish, which compresses to nearly nothing.
        array[half:] = 0 if rank == 0 else array[half:]
        array[:half] = 0 if rank == 1 else array[:half]
    start = perf_counter()
    with pytest.raises(InputError, match=r"step \d+: its result of \d+ KiB, which is to be stored"):
        execute(schedule, arrays, ranks=2, device="cpu")
    assert perf_counter() - start < 30


def test_plain_schedules_open_no_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(device: Any) -> None:
        raise AssertionError("a codec was opened")

    monkeypatch.setattr(NumpyDevice, "codec", refuse)
    execute(plan_exchanges(2, None), ARRAYS, device="cpu")
    with pytest.raises(AssertionError, match="a codec was opened"):
        execute(plan_exchanges(2, EXCHANGE), ARRAYS, device="cpu")


def test_a_gpu_is_asked_for_the_codecs_memory_too() -> None:
    schedule = plan_exchanges(2, None)
    assert needed_bytes(schedule) == arena_bytes(schedule)
    beside = {name: CodecRates(1e12, 1e12, workspace_bytes=12345) for name in FREE}
    packed = plan_exchanges(2, EXCHANGE, profile=replace(slow_profile(node=1), codecs=beside))
    assert needed_bytes(packed) == arena_bytes(packed) + 12345
