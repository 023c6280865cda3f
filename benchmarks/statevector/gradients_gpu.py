"""Adjoint gradients on a GPU or on all cores of a CPU: the way back beside the way there.

    python benchmarks/statevector/gradients_gpu.py [--device gpu] [--sizes QUBITS:DEPTH ...]
        [--precision fp32] [--threads N] [-o out.json]

Goal: the way back takes at most 3 times the way there. The circuit: layers of ry and rz on all qubits and a
ring of cz. Times are those of the second run, whose kernels are compiled; beside them is a copy of the state.
The way there is prepared by the first run. The way back is measured with and without its preparation. On a
CPU the processor time of all threads is given too, for machines that have other work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RESULTS = Path(__file__).resolve().parents[1] / "results" / "statevector"
LONG_S = 5.0
"""A way back that takes longer is not repeated."""
DTYPES = {"fp32": "complex64", "fp64": "complex128"}


class Times(NamedTuple):
    """Seconds of a call: by the clock, and of the processor in all threads."""

    wall_s: float
    cpu_s: float


def layered(n_qubits: int, depth: int) -> list[Any]:
    """The gates."""
    from tnplan.circuits.gates import gate

    generator = np.random.default_rng(0)
    gates = []
    for _ in range(depth):
        for name in ("ry", "rz"):
            gates += [gate(name, (q,), (float(generator.uniform(-3, 3)),)) for q in range(n_qubits)]
        gates += [gate("cz", (q, (q + 1) % n_qubits)) for q in range(n_qubits)]
    return gates


def opened(device: str, n_qubits: int, dtype: str, threads: int) -> tuple[Any, Any, Callable[[], None]]:
    """A state, the module of its arrays, and what waits until all is done."""
    if device == "cpu":
        from tnplan.executor.statevector.cpu.state import HostState

        return HostState(n_qubits, dtype, threads), np, lambda: None
    import cupy

    from tnplan.executor.statevector.cuda.state import CupyState

    return CupyState(n_qubits, dtype), cupy, cupy.cuda.Device().synchronize


def measured(device: str, n_qubits: int, depth: int, dtype: str, threads: int) -> dict[str, Any]:
    """Times in seconds of the second of two runs."""
    from tnplan.circuits.pauli_sum import parse
    from tnplan.executor.statevector.adjoint_sweep import adjoint_gradient, prepare_joint
    from tnplan.executor.statevector.prepared_program import prepare_program
    from tnplan.executor.statevector.simulator import Simulator

    gates, observable = layered(n_qubits, depth), parse("Z0", n_qubits)
    steps = prepare_program(gates)
    row: dict[str, Any] = {"device": device, "qubits": n_qubits, "depth": depth, "dtype": dtype}
    if device == "cpu":
        row["threads"] = threads
    state, arrays, wait = opened(device, n_qubits, dtype, threads)
    simulator = Simulator(state, n_qubits)
    other = arrays.empty_like(state.amplitudes)

    def timed(work: Callable[[], Any]) -> tuple[Times, Any]:
        wait()
        begin, begin_cpu = time.perf_counter(), time.process_time()
        found = work()
        wait()
        return Times(time.perf_counter() - begin, time.process_time() - begin_cpu), found

    row["copy_s"] = min(timed(lambda: arrays.copyto(other, state.amplitudes))[0].wall_s for _ in range(3))
    other = None
    if device == "gpu":
        arrays.get_default_memory_pool().free_all_blocks()
    for turn in ("first", "second"):
        simulator.restart()
        there, _ = timed(lambda: simulator.run(steps, np.zeros(0, np.uint8)))
        back, found = timed(lambda: adjoint_gradient(simulator, gates, observable))
        row[f"{turn}_forward_s"], row[f"{turn}_back_s"] = there.wall_s, back.wall_s
        print(json.dumps({**row, "so_far": turn}), flush=True)
    row["passes"], row["parameters"] = simulator.passes // 2, len(found)
    row |= in_parts("back", back, there, device)
    preparing, prepared = timed(lambda: prepare_joint(simulator, gates))
    row["prepare_s"] = preparing.wall_s
    if prepared is not None:
        calls = 1 if back.wall_s > LONG_S else 3
        every = [timed(lambda: prepared.derivatives(simulator, observable))[0] for _ in range(calls)]
        least = Times(min(one.wall_s for one in every), min(one.cpu_s for one in every))
        row["prepared_back_s"] = least.wall_s
        row |= in_parts("prepared_back", least, there, device)
    row["derivatives"] = [one.derivative for one in found]
    return row


def in_parts(name: str, back: Times, there: Times, device: str) -> dict[str, float]:
    """The way back in parts of the way there, on a CPU by processor time too."""
    row = {f"{name}_over_forward": back.wall_s / there.wall_s}
    if device == "cpu":
        row |= {"forward_cpu_s": there.cpu_s, f"{name}_cpu_s": back.cpu_s}
        row[f"{name}_over_forward_cpu"] = back.cpu_s / there.cpu_s
    return row


def name_of(device: str) -> str:
    """The GPU by name, or the cores of the CPU."""
    if device == "cpu":
        return f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores"
    import cupy

    name: bytes = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"]
    return name.decode()


GOAL = 3.0


def main() -> int:
    """Measure, print and write; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "gpu"), default="gpu")
    parser.add_argument("--sizes", nargs="+", default=["24:11", "30:20"])
    parser.add_argument("--precision", choices=DTYPES, default="fp32")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of a CPU")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "gradients_gpu.json")
    options = parser.parse_args()
    rows = []
    for size in options.sizes:
        n_qubits, depth = map(int, size.split(":"))
        row = measured(options.device, n_qubits, depth, DTYPES[options.precision], options.threads)
        derivatives = row.pop("derivatives")
        row["sum_of_squares"] = float(np.square(derivatives).sum())
        print(json.dumps(row), flush=True)
        rows.append(row)
    facts = {"device": name_of(options.device), "date": time.strftime("%Y-%m-%d")}
    options.output.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")
    missed = any(row.get("back_over_forward_cpu", row["back_over_forward"]) > GOAL for row in rows)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
