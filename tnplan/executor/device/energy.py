"""Joules that a rank's GPU and the processors of its host have taken, from the counters of their drivers.

A GPU's counter is NVML's, which has the whole board; those of processors and their memory are files of Linux
(powercap, RAPL). Both count all that the device takes, for work of others too. Knows no job and no network.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from socket import gethostname
from threading import Event, Lock, Thread
from time import perf_counter
from typing import Any, NamedTuple

from tnplan.executor.device.protocols.communicator import Communicator

POWERCAP = Path("/sys/class/powercap")
READ_EVERY_S = 30.0
"""A counter of RAPL begins again after some minutes: it is read often enough to see that."""
MILLI, MICRO = 1e-3, 1e-6


class Energy(NamedTuple):
    """Joules since a meter began; None where a counter cannot be read, or there is no such device."""

    gpu_j: float | None
    cpu_j: float | None
    seconds: float


class EnergyMeter:
    """Counts from now on until `close`. `gpu` is the GPU's PCI bus, as CUDA writes it; empty for none."""

    def __init__(self, gpu: str = "") -> None:
        self._gpu = _GpuCounter(gpu) if gpu else None
        self._processors = [
            counter for file in sorted(POWERCAP.glob("intel-rapl:*/energy_uj")) if (counter := _counter(file))
        ]
        self._reads = Lock()
        self._ended = Event()
        self._began_s = perf_counter()
        if self._processors:
            Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._ended.wait(READ_EVERY_S):
            self.read()

    def read(self) -> Energy:
        """What was taken so far."""
        gpu_j, cpu_j = None if self._gpu is None else self._gpu.joules(), None
        # A counter that fails on the way is none: no job ends for it.
        with self._reads, suppress(OSError):
            cpu_j = sum(counter.joules() for counter in self._processors) if self._processors else None
        return Energy(gpu_j, cpu_j, perf_counter() - self._began_s)

    def of_all(self, world: Communicator) -> dict[str, float | None]:
        """What all ranks' GPUs and hosts took so far, as a document has it; collective."""
        entries = world.gather_objects((gethostname(), self.read()))
        hosts = dict(entries)  # ranks of one host read the same counters
        return {
            "gpu_j": sum_joules([energy.gpu_j for _, energy in entries]),
            "cpu_j": sum_joules([energy.cpu_j for energy in hosts.values()]),
            "seconds": max(energy.seconds for _, energy in entries),
        }

    def close(self) -> None:
        """Read no more."""
        self._ended.set()


def sum_joules(joules: list[float | None]) -> float | None:
    """None where any is not known: a sum of the others would say too little."""
    known = [value for value in joules if value is not None]
    return sum(known) if len(known) == len(joules) else None


class _GpuCounter:
    """Millijoules since the driver was loaded (NVML); GPUs before Volta and parts of one have no counter."""

    def __init__(self, bus: str) -> None:
        self._nvml: Any = None
        # NVML's own errors, a missing library and a missing package all mean: no counter.
        with suppress(Exception):
            nvml = import_module("pynvml")
            nvml.nvmlInit()
            self._handle = nvml.nvmlDeviceGetHandleByPciBusId(bus)
            self._first = nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
            self._nvml = nvml

    def joules(self) -> float | None:
        """Since the counter was opened."""
        if self._nvml is not None:
            with suppress(self._nvml.NVMLError):
                total = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
                return float(MILLI * (total - self._first))
        return None


class _ProcessorCounter:
    """Microjoules of a processor or of its memory, counted on where the counter begins again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._range = int(file.with_name("max_energy_range_uj").read_text())
        self._last, self._total = int(file.read_text()), 0

    def joules(self) -> float:
        """Since the counter was opened."""
        value = int(self._file.read_text())
        # Counts modulo the range: no more than one round lies between two readings.
        self._total += (value - self._last) % (self._range + 1)
        self._last = value
        return MICRO * self._total


def _counter(file: Path) -> _ProcessorCounter | None:
    """The counter of a whole processor or of its memory, whose joules that of the processor leaves out; None
    for parts of a processor, and where only root may read it."""
    with suppress(OSError, ValueError):
        name = file.with_name("name").read_text().strip()
        if name.startswith("package") or name == "dram":
            return _ProcessorCounter(file)
    return None
