"""Seconds to bind a schedule with an empty cache of kernels: compiled at once, or one after the other.

    python benchmarks/contraction/kernels_ahead.py [--path sycamore_n53_m14_b30_fused.json] [--precision tf32]

Where there is no GPU, kernels are compiled for an H200 and bound to a GPU that does nothing, so that the
seconds are those of the compiler. Each way is a process of its own.
Goal: bound at once, no kernel is compiled by the thread that binds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import current_thread
from time import perf_counter, thread_time
from typing import Any

import pytest
from shared import PATHS

import tnplan
from tnplan.executor.contraction.run.compiled_program import CompiledProgram
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.device import HostDevice

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.support.kernels.gpus import count_gpus
from tests.support.kernels.idle_gpu import Compilations, UncheckedKernel, put_in_place

MEMORY_BYTES = 1.26e11
WAYS = ("one after the other", "at once")


def measure(path: str, precision: str, way: str) -> dict[str, Any]:
    """The seconds in all, of the compiler by who calls it, and how many kernels those are."""
    from tnplan.executor.device.cuda.device import CupyDevice
    from tnplan.executor.device.cuda.runtime import kernel_cache

    schedule = tnplan.plan(PATHS / path, hardware="h200-nvlink", memory=MEMORY_BYTES, precision=precision)
    compile_cubin, core_s = kernel_cache.compile_cubin, dict[str, list[float]](ahead=[], late=[])

    def timed(*given: Any) -> bytes:
        began = thread_time()
        cubin = compile_cubin(*given)
        core_s["ahead" if current_thread().name == "tnplan kernels" else "late"].append(thread_time() - began)
        return cubin

    with pytest.MonkeyPatch.context() as patch:
        if not count_gpus():
            put_in_place(patch, UncheckedKernel, Compilations())
        patch.setattr(kernel_cache, "compile_cubin", timed)
        if way == WAYS[0]:
            patch.setattr(CupyDevice, "bind_together", HostDevice.bind_together)
        device, began = CupyDevice(0), perf_counter()
        CompiledProgram(schedule, device, run_ranks(1, lambda own: own)[0])
        seconds = perf_counter() - began
    kernels = {name: {"count": len(each), "core_s": round(sum(each), 2)} for name, each in core_s.items()}
    return {"bind_s": round(seconds, 2), "kernels": kernels}


def main() -> int:
    """Measure both ways; 1 where the goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", default="sycamore_n53_m14_b30_fused.json", help="a file of paths/")
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        print(json.dumps(measure(given.path, given.precision, given.way)))
        return 0
    for way in WAYS:
        with TemporaryDirectory() as folder:
            command = [sys.executable, *sys.argv, "--way", way]
            environment = {**os.environ, "TNPLAN_KERNEL_CACHE": folder}
            output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
        print(f"{way}: {output.decode().strip()}")
    return int(json.loads(output)["kernels"]["late"]["count"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
