"""The profile of this machine: the nearest shipped one, with the memory that is free and a core's own rates.

The rates are measured in half a second, where an estimate asks for them, and kept in the cache folder.
"""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import replace
from functools import lru_cache
from math import inf
from pathlib import Path
from time import thread_time

import numpy as np

from tnplan.common.cache_folder import cache_folder, read_entry, write_entry
from tnplan.executor.device.comm.launcher import launched_local_size, launched_size
from tnplan.executor.device.cpu.host_memory import host_memory
from tnplan.executor.device.cpu.parallel_rows import blas_threads
from tnplan.executor.device.select import free_gpu_bytes, gpu_profile, sees_gpu
from tnplan.jobs.job_options import JobOptions
from tnplan.planner.hardware.profile import Profile, load_profile

THIS_MACHINE = "this machine"
COPIED_BYTES, PRODUCT_SIDE, REPEATS = 1 << 26, 512, 5
"""The array that is copied, the matrices that are multiplied, and how often: the least time counts."""
FLOP_OF_A_PRODUCT = 8 * PRODUCT_SIDE**3
"""Real operations of a product of complex matrices."""


def this_machine(options: JobOptions, measure: bool = False) -> Profile:
    """The profile of this machine for a job.

    - `options`: The device, the ranks and the limit of memory.
    - `measure`: Measure the rates of a core where none are kept.
    - returns: A GPU's shipped profile with its free memory, or that of a core with its measured rates, where
      there are some, and the host's free memory.
    """
    # Ranks of this process take a GPU each, or none does. A rank of a launcher may see its own alone.
    least = (options.ranks or 1) if options.device == "auto" and launched_size() == 1 else 1
    is_gpu = options.device in ("gpu", "auto") and sees_gpu(least)
    profile = load_profile(gpu_profile(0)) if is_gpu else _core(measure)
    free_bytes = free_gpu_bytes(0) if is_gpu else host_memory()[1] / (options.ranks or launched_local_size())
    limit = min(free_bytes, options.memory or free_bytes)
    size_bytes = max(1, int(min(limit, 2.0**60)))
    return replace(profile, name=THIS_MACHINE, memory_bytes=size_bytes, reserved_bytes=0)


def _core(measure: bool) -> Profile:
    """The profile of a core, with the rates that are kept or measured now."""
    rates = cached_rates()
    if rates is None and measure:
        rates = measured_rates()
        folder = cache_folder("machine")
        if folder is not None:
            write_entry(folder, _entry(), json.dumps(rates).encode())
        cached_rates.cache_clear()
    profile = load_profile("cpu")
    if rates is None:
        return profile
    copy, single, double = rates
    return replace(
        profile, memory_bytes_per_s=copy,
        permute_bytes_per_s=copy * profile.permute_bytes_per_s / profile.memory_bytes_per_s,
        flop_per_s={
            "float32": {"fp32": single}, "complex64": {"fp32": single},
            "float64": {"fp64": double}, "complex128": {"fp64": double},
        },
    )  # fmt: skip


def _entry() -> str:
    """The name of the file for the processor of this machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    model = next((line for line in lines if line.startswith("model name")), platform.processor())
    return hashlib.sha256(f"{platform.node()} {model}".encode()).hexdigest()[:16] + ".json"


@lru_cache(1)
def cached_rates() -> tuple[float, float, float] | None:
    """Bytes of a copy and operations in single and double precision, a second; None where none are kept."""
    folder = cache_folder("machine")
    content = None if folder is None else read_entry(folder, _entry())
    if content is None:
        return None
    copy, single, double = map(float, json.loads(content))
    return copy, single, double


def measured_rates() -> tuple[float, float, float]:
    """The same, measured on one core."""
    source = np.ones(COPIED_BYTES // 8)
    target = np.empty_like(source)

    def seconds(dtype: str | None) -> float:
        matrix = None if dtype is None else np.ones((PRODUCT_SIDE, PRODUCT_SIDE), dtype)
        least_s = inf
        for _ in range(REPEATS):
            begin = thread_time()  # what else runs here does not count
            if matrix is None:
                np.copyto(target, source)
            else:
                matrix @ matrix
            least_s = min(least_s, thread_time() - begin)
        return least_s

    with blas_threads(1):
        # A copy reads and writes every byte.
        return (
            2 * COPIED_BYTES / seconds(None), FLOP_OF_A_PRODUCT / seconds("complex64"),
            FLOP_OF_A_PRODUCT / seconds("complex128"),
        )  # fmt: skip
