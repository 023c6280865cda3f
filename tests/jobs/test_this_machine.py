"""The profile of this machine: its memory, and rates of a core that are measured once and kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tnplan.executor.device import select
from tnplan.executor.device.cpu.host_memory import host_memory
from tnplan.executor.device.cuda.gpu_assignment import VisibleGpus
from tnplan.jobs import this_machine as module
from tnplan.jobs.job_options import JobOptions
from tnplan.planner.hardware.profile import load_profile


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TNPLAN_CACHE_DIR", str(tmp_path))
    module.cached_rates.cache_clear()
    yield
    module.cached_rates.cache_clear()


def test_rates_are_measured_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    options, calls = JobOptions(device="cpu"), []
    measured = (12e9, 80e9, 40e9)
    monkeypatch.setattr(module, "measured_rates", lambda: calls.append(0) or measured)
    shipped = load_profile("cpu")
    assert module.this_machine(options).rate("complex64", "fp32") == shipped.rate("complex64", "fp32")
    assert not calls
    for _ in range(2):
        profile = module.this_machine(options, measure=True)
        assert (profile.memory_bytes_per_s, profile.rate("complex64", "fp32")) == measured[:2]
        assert profile.rate("complex128", "fp64") == measured[2]
        module.cached_rates.cache_clear()  # as another process would find it
    assert len(calls) == 1
    assert module.this_machine(options).memory_bytes_per_s == measured[0]


def test_rates_are_those_of_a_processor() -> None:
    copy, single, double = module.measured_rates()
    assert 1e8 < copy < 1e13
    assert 1e8 < double < 1e13
    assert 0.5 * double < single < 8 * double


def test_memory_is_what_is_free_and_allowed() -> None:
    free = module.this_machine(JobOptions(device="cpu")).memory_bytes
    assert 0.5 * host_memory()[1] < free < 2 * host_memory()[1]
    assert module.this_machine(JobOptions(device="cpu", memory=1 << 20)).memory_bytes == 1 << 20
    assert module.this_machine(JobOptions(device="cpu", ranks=4)).memory_bytes < 0.6 * free


def test_auto_takes_gpus_where_each_rank_of_this_process_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "look", lambda: VisibleGpus("here", ("a", "b"), ("sm_90",) * 2))
    monkeypatch.setattr(module, "free_gpu_bytes", lambda _: 5 << 20)
    monkeypatch.setattr(module, "gpu_profile", lambda _: "h200-nvlink")
    for device, ranks, is_gpu in (("auto", 2, True), ("auto", 3, False), ("gpu", 3, True), ("cpu", 1, False)):
        free = module.this_machine(JobOptions(device=device, ranks=ranks)).memory_bytes
        assert (free == 5 << 20) == is_gpu
