"""The state-vector engine on a CPU beside others, in turn within one run: H on all qubits, and QFT.

Usage: python benchmarks/statevector/statevector.py [--qubits 20,22,24,26] [--threads 2] [--rounds 5]
       [-o results.json]
Goals: H on all at 24 and 26 qubits at least as fast as PennyLane's lightning.qubit; QFT at least 1.5 times
faster than qsim, and within 1.5 times of scipy.fft (one transform of the same length, complex64). A time goes
from the gates in hand to the final state, memory and compilation included; for scipy.fft it is the transform
of an array at hand. The three modes of the engine stand beside each other, `gates` and `stages` up to
--modes-up-to qubits. Rivals that are not installed are left out, and it is said. Ratios are of medians.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from tnplan.circuits.gates import KINDS
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, from_matrix
from tnplan.executor.statevector.prepared_program import Segment
from tnplan.executor.statevector.simulator import Simulator

Pair = tuple[str, tuple[int, ...], float]
"""A gate of the two circuits: its name, qubits and angle."""
GOALS = {("H", "lightning"): 1.0, ("QFT", "qsim"): 1 / 1.5, ("QFT", "scipy"): 1.5}
"""The most that our time may be of a rival's, for a circuit at these numbers of qubits."""
GOAL_QUBITS = (24, 26)


def circuit(name: str, n: int) -> Iterator[Pair]:
    """The gates of H on all qubits, or of a QFT without its exchanges of qubits."""
    for i in range(n):
        yield "h", (i,), 0.0
        if name == "QFT":
            for j in range(i + 1, n):
                yield "cp", (i, j), math.pi / 2 ** (j - i)


def ours(gates: list[Pair], n: int, threads: int, mode: str) -> np.ndarray:
    """The final state by this engine."""
    blocks = tuple(_block(*gate) for gate in gates)
    simulator = Simulator(HostState(n, "complex64", threads), n, mode)
    simulator.apply(Segment(blocks))
    return simulator.state.to_host()


def _block(name: str, qubits: tuple[int, ...], angle: float) -> MultiplexedGate:
    matrix = KINDS[name].matrix(-angle) if name == "cp" else KINDS[name].matrix()
    return from_matrix(qubits, np.asarray(matrix, np.complex128))


def lightning(gates: list[Pair], n: int) -> np.ndarray:
    """H on all qubits by PennyLane's lightning.qubit, its compiled class called directly."""
    from pennylane_lightning.lightning_qubit_ops import StateVectorC64

    state = StateVectorC64(n)
    state.resetStateVector()
    for _, qubits, _ in gates:
        state.Hadamard(list(qubits), False, [])
    found = np.empty(2**n, np.complex64)
    state.getState(found)
    return found


def qsim(made: Any, simulator: Any) -> np.ndarray:
    """The final state by qsim, of a circuit made for it."""
    return np.asarray(simulator.simulate(made).final_state_vector)


def cirq_circuit(gates: list[Pair], n: int) -> Any:
    """The gates as a circuit of cirq."""
    import cirq

    qubits = cirq.LineQubit.range(n)
    return cirq.Circuit(
        cirq.H(qubits[on[0]])
        if name == "h"
        else cirq.CZPowGate(exponent=angle / math.pi)(*(qubits[k] for k in on))
        for name, on, angle in gates
    )


def contestants(name: str, n: int, threads: int, modes_up_to: int) -> dict[str, Callable[[], Any]]:
    """What is timed for one circuit; every call gives the final state."""
    gates = list(circuit(name, n))
    calls: dict[str, Callable[[], Any]] = {"compiled": partial(ours, gates, n, threads, "compiled")}
    if n <= modes_up_to:
        calls |= {mode: partial(ours, gates, n, threads, mode) for mode in ("stages", "gates")}
    if name == "H" and find_spec("pennylane_lightning") is not None:
        calls["lightning"] = partial(lightning, gates, n)
    if find_spec("qsimcirq") is not None:
        import qsimcirq

        options = qsimcirq.QSimOptions(max_fused_gate_size=4, cpu_threads=threads)
        calls["qsim"] = partial(qsim, cirq_circuit(gates, n), qsimcirq.QSimSimulator(options))
    if name == "QFT" and find_spec("scipy") is not None:
        import scipy.fft

        values = np.zeros(2**n, np.complex64)
        values[0] = 1
        calls["scipy"] = partial(scipy.fft.fft, values, norm="ortho", workers=threads)
    return calls


def measure(calls: dict[str, Callable[[], Any]], n: int, rounds: int) -> dict[str, dict[str, Any]]:
    """Wall and processor seconds of each call, in turn, so that what else runs on the machine is shared."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            wall, cpu = perf_counter(), process_time()
            state = call()
            spent = perf_counter() - wall, process_time() - cpu
            if number:
                times[name].append(spent)
            elif abs(abs(state[-1]) * 2 ** (n / 2) - 1) > 1e-3:
                raise RuntimeError(f"{name} gives the last amplitude {state[-1]} at {n} qubits")
            del state
    return {
        name: {
            "wall_s": median(wall for wall, _ in spent), "cpu_s": median(cpu for _, cpu in spent),
            "least_wall_s": min(wall for wall, _ in spent),
        }
        for name, spent in times.items()
    }  # fmt: skip


def main() -> int:
    """Print a table and what misses its goal; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qubits", default="20,22,24,26")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--modes-up-to", type=int, default=22)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    rivals = {"pennylane_lightning": "pennylane-lightning", "qsimcirq": "qsimcirq", "scipy": "scipy"}
    absent = [package for module, package in rivals.items() if find_spec(module) is None]
    print(f"not installed, left out: {', '.join(absent)}" if absent else "all rivals are installed")
    print(f"{'circuit':>8s} qubits{'engine':>11s}{'wall s':>10s}{'least':>10s}{'cpu s':>10s}  ours / it")
    rows = []
    for name in ("H", "QFT"):
        for n in map(int, options.qubits.split(",")):
            calls = contestants(name, n, options.threads, options.modes_up_to)
            rows += compared(name, n, measure(calls, n, options.rounds))
            if options.output is not None:
                document = {
                    "threads": options.threads, "rounds": options.rounds, "rows": rows,
                    "versions": {p: version(p) for m, p in rivals.items() if find_spec(m) is not None},
                    "environment": host_facts(), "commit": commit(),
                }  # fmt: skip
                options.output.write_text(json.dumps(document, indent=1) + "\n")
    missed = any(row["goal"] is not None and row["ratio"] > row["goal"] for row in rows)
    if missed:
        print("MISSED")
    return int(missed)


def compared(name: str, n: int, found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of one circuit, printed with what misses its goal."""
    rows = []
    for engine, times in found.items():
        ratio = found["compiled"]["wall_s"] / times["wall_s"]
        cpu_ratio = found["compiled"]["cpu_s"] / times["cpu_s"]
        goal = GOALS.get((name, engine)) if n in GOAL_QUBITS else None
        rows.append({"circuit": name, "qubits": n, "engine": engine, **times, "ratio": ratio, "goal": goal})
        print(
            f"{name:>8s}{n:>7d}{engine:>11s}{times['wall_s']:10.4f}{times['least_wall_s']:10.4f}"
            f"{times['cpu_s']:10.4f}  {ratio:.3f}, cpu {cpu_ratio:.3f}"
            f"{'' if goal is None else f' (goal {goal:.2f})'}"
            f"{' MISSED' if goal is not None and ratio > goal else ''}", flush=True,
        )  # fmt: skip
    return rows


if __name__ == "__main__":
    sys.exit(main())
