"""Joules: counters that begin again, that are missing or that fail, of several ranks and hosts."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.networks import random_arrays, random_path
from tnplan.executor.device import energy
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.energy import EnergyMeter


class Counters:
    """Files of powercap: processors, their memory, and what must not be counted with them."""

    RANGE = 9_999

    def __init__(self, folder: Path) -> None:
        self.files: list[Path] = []
        for place, name in (
            ("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "dram"), ("intel-rapl:0:1", "core"),
            ("intel-rapl:1", "package-1"), ("intel-rapl:2", "psys"), ("intel-rapl-mmio:0", "package-0"),
        ):  # fmt: skip
            (folder / place).mkdir()
            (folder / place / "name").write_text(f"{name}\n")
            (folder / place / "max_energy_range_uj").write_text(f"{self.RANGE}\n")
            self.files.append(folder / place / "energy_uj")
        self.values = np.array([9_000, 17, 3_000, 9_999, 5, 8])
        self.add(np.zeros(6, int))

    def add(self, microjoules: np.ndarray) -> None:
        """Let the counters run on, modulo their range."""
        self.values = (self.values + microjoules) % (self.RANGE + 1)
        for file, value in zip(self.files, self.values, strict=True):
            file.write_text(f"{value}\n")


@pytest.fixture
def counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counters:
    """In place of the system's."""
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    return Counters(tmp_path)


@pytest.mark.parametrize("seed", range(5))
def test_counters_that_begin_again_add_up(seed: int, counters: Counters) -> None:
    draw = np.random.default_rng(seed)
    meter, total = EnergyMeter(), 0
    for _ in range(20):
        taken = draw.integers(0, Counters.RANGE + 1, 6)
        counters.add(taken)
        total += taken[[0, 1, 3]].sum()
        assert meter.read().cpu_j == pytest.approx(1e-6 * total)
    assert meter.read().gpu_j is None
    counters.files[1].unlink()
    assert meter.read().cpu_j is None
    meter.close()


def test_without_counters_there_are_no_joules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "POWERCAP", tmp_path / "none")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    meter = EnergyMeter("0000:01:00.0")
    assert meter.read()[:2] == (None, None)
    meter.close()


class Nvml(SimpleNamespace):
    """The part of NVML that is used, with GPUs of three watts each reading."""

    class NVMLError(Exception):
        """NVML's."""

    def __init__(self) -> None:
        super().__init__(millijoules={}, fails=False)

    def nvmlInit(self) -> None:  # noqa: N802
        """Nothing to do."""

    def nvmlDeviceGetHandleByPciBusId(self, bus: str) -> str:  # noqa: N802
        """The bus."""
        return bus

    def nvmlDeviceGetTotalEnergyConsumption(self, bus: str) -> int:  # noqa: N802
        """3 J more than before."""
        if self.fails:
            raise self.NVMLError
        self.millijoules[bus] = self.millijoules.get(bus, 10**9) + 3_000
        return self.millijoules[bus]


def test_gpus_of_all_ranks_are_added_and_hosts_count_once(
    counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)

    def work(world: Any) -> dict[str, float | None]:
        meter = EnergyMeter(f"0000:0{world.rank}:00.0")
        world.gather_objects(None)
        if world.rank == 0:
            counters.add(np.full(6, 1_000))
        world.gather_objects(None)
        taken = meter.of_all(world)
        meter.close()
        return taken

    for taken in run_ranks(3, work):
        assert taken["gpu_j"] == pytest.approx(9.0)
        assert taken["cpu_j"] == pytest.approx(3e-3)
    meter = EnergyMeter("0000:0a:00.0")
    nvml.fails = True
    assert meter.read().gpu_j is None
    meter.close()


def test_results_have_joules(counters: Counters) -> None:
    del counters
    path = random_path(3)
    schedule = tnplan.plan(path, hardware="cpu")
    report = tnplan.execute(schedule, random_arrays(path, 3), device="cpu").report
    assert report["measured"]["energy"]["cpu_j"] == 0.0
    energy = report["measured"]["energy"]
    assert energy["gpu_j"] is energy["run_j"] is report["predicted"]["total_j"] is None
