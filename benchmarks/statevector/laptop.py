"""The state-vector engine on a CPU beside other libraries, in turn within one run.

Usage: python benchmarks/statevector/laptop.py [--qubits 20,22,24,26] [--circuits H,QFT,random,brickwork]
       [--precisions complex64,complex128] [--rivals qsim,lightning,aer,qulacs] [--threads 1] [--rounds 5]
       [--clock wall] [--pause 0.3] [-o results.json]
Circuits: H on all qubits; QFT; 20 layers of U3 on every qubit and CZ on random pairs; 20 layers of random
unitaries on neighbours (brickwork). A time goes from a circuit in each library's own form to the final state,
planning, memory and what else the library does included; `--clock processor` counts the seconds of all
threads, for one thread on a machine that others use. Libraries take turns, `--rounds` times after one
round that is not counted, and the least time of each counts. Threads of some libraries go on asking for work
when a call has ended, up to 0.2 s, and would take cores from the next one; so there is a pause before each.
Rivals: qsim (complex64; gates fused up to 4 qubits), PennyLane's lightning.qubit, Qiskit Aer, and Qulacs
(complex128; after its own optimizer). Those that are not installed are left out, and it is said; so is one,
in larger states, that took over 4 times as long as the fastest rival. Goal: at most 1.0 times the fastest
rival in 14 of the 16 cases of a precision (4 circuits, 4 sizes), and never over 1.2.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np

PACKAGES = {
    "qsim": ("qsimcirq", "qsimcirq"), "lightning": ("pennylane_lightning", "pennylane-lightning"),
    "aer": ("qiskit_aer", "qiskit-aer"), "qulacs": ("qulacs", "qulacs"),
}  # fmt: skip
"""The module and the package of each rival."""
DEPTH = 20
GOAL, LIMIT, SHARE = 1.0, 1.2, 14 / 16
CLOSE = {"complex64": 2e-4, "complex128": 1e-10}
"""How far the first amplitudes of two libraries may be from each other, in parts of the largest possible."""
CLOCKS = {"wall": perf_counter, "processor": process_time}
SLOW = 4.0
"""A rival that takes so many times as long as the fastest one is left out of larger states of the circuit."""
CHECKED = 8
"""So many first amplitudes are compared."""


@dataclass(frozen=True)
class Case:
    """A circuit as (name, qubits, matrix, angles), and how it is run."""

    gates: tuple[tuple[str, tuple[int, ...], np.ndarray, tuple[float, ...]], ...]
    n: int
    dtype: str
    threads: int


def u3(theta: float, phi: float, lam: float) -> np.ndarray:
    """The general gate of one qubit."""
    c, s = math.cos(theta / 2), math.sin(theta / 2)
    return np.array([
        [c, -np.exp(1j * lam) * s], [np.exp(1j * phi) * s, np.exp(1j * (phi + lam)) * c]
    ])  # fmt: skip


def circuit(name: str, n: int) -> Iterator[tuple[str, tuple[int, ...], np.ndarray, tuple[float, ...]]]:
    """The gates of a circuit."""
    random = np.random.default_rng(n)
    h, cz = np.array([[1, 1], [1, -1]]) / math.sqrt(2) + 0j, np.diag([1, 1, 1, -1]) + 0j
    if name in ("H", "QFT"):
        for i in range(n):
            yield "h", (i,), h, ()
            for j in range(i + 1, n if name == "QFT" else 0):
                angle = math.pi / 2 ** (j - i)
                yield "cp", (i, j), np.diag([1, 1, 1, np.exp(1j * angle)]), (angle,)
    elif name == "random":
        for _ in range(DEPTH):
            for q in range(n):
                angles = tuple(float(one) for one in random.uniform(0, 2 * math.pi, 3))
                yield "u3", (q,), u3(*angles), angles
            order = [int(q) for q in random.permutation(n)]
            for a, b in zip(order[::2], order[1::2], strict=False):
                yield "cz", (a, b), cz, ()
    else:
        for layer in range(DEPTH):
            for q in range(layer % 2, n - 1, 2):
                square = random.normal(size=(4, 4)) + 1j * random.normal(size=(4, 4))
                yield "unitary", (q, q + 1), np.asarray(np.linalg.qr(square)[0]), ()


def ours(case: Case) -> Callable[[], np.ndarray]:
    """This engine."""
    from tnplan.circuits.circuit import Gate
    from tnplan.executor.statevector.cpu.state import HostState
    from tnplan.executor.statevector.prepared_program import prepare_program
    from tnplan.executor.statevector.simulator import Simulator

    gates = [Gate(name, on, np.asarray(m, np.complex128), a) for name, on, m, a in case.gates]

    def run() -> np.ndarray:
        simulator = Simulator(HostState(case.n, case.dtype, case.threads), case.n)
        simulator.run(prepare_program(gates), np.zeros(0, np.uint8))
        return simulator.amplitudes_at(first_strings(case.n))

    return run


def first_strings(n: int) -> np.ndarray:
    """The bits of the first indices, the first qubit most significant."""
    return np.arange(CHECKED)[:, None] >> np.arange(n - 1, -1, -1) & 1


def qsim(case: Case) -> Callable[[], np.ndarray]:
    """qsim through Cirq."""
    import cirq
    import qsimcirq

    on = cirq.LineQubit.range(case.n)
    made = cirq.Circuit()
    for name, qubits, matrix, angles in case.gates:
        places = [on[q] for q in qubits]
        if name == "h":
            made.append(cirq.H(*places))
        elif name == "cz":
            made.append(cirq.CZ(*places))
        elif name == "cp":
            made.append(cirq.CZPowGate(exponent=angles[0] / math.pi)(*places))
        else:
            made.append(cirq.MatrixGate(matrix)(*places))
    options = qsimcirq.QSimOptions(max_fused_gate_size=4, cpu_threads=case.threads)
    simulator = qsimcirq.QSimSimulator(options)
    return lambda: np.asarray(simulator.simulate(made, qubit_order=on).final_state_vector[:CHECKED].copy())


def lightning(case: Case) -> Callable[[], np.ndarray]:
    """lightning.qubit, its compiled class called directly."""
    from pennylane_lightning import lightning_qubit_ops as compiled

    kind = compiled.StateVectorC64 if case.dtype == "complex64" else compiled.StateVectorC128

    def run() -> np.ndarray:
        state = kind(case.n)
        state.resetStateVector()
        for name, qubits, matrix, angles in case.gates:
            on = list(qubits)
            if name == "h":
                state.Hadamard(on, False, [])
            elif name == "cz":
                state.CZ(on, False, [])
            elif name == "cp":
                state.ControlledPhaseShift(on, False, list(angles))
            else:
                state.applyMatrix(np.ascontiguousarray(matrix, case.dtype).ravel(), on, False)
        found = np.empty(2**case.n, case.dtype)
        state.getState(found)
        return found[:CHECKED].copy()

    return run


def aer(case: Case) -> Callable[[], np.ndarray]:
    """Qiskit Aer."""
    from qiskit import QuantumCircuit
    from qiskit_aer import AerSimulator

    made = QuantumCircuit(case.n)
    for name, qubits, matrix, angles in case.gates:
        on = [case.n - 1 - q for q in qubits]
        if name == "h":
            made.h(*on)
        elif name == "cz":
            made.cz(*on)
        elif name == "cp":
            made.cp(angles[0], *on)
        elif name == "u3":
            made.u(*angles, *on)
        else:
            made.unitary(matrix, on[::-1])
    made.save_statevector()
    simulator = AerSimulator(
        method="statevector", precision="single" if case.dtype == "complex64" else "double",
        max_parallel_threads=case.threads,
    )  # fmt: skip
    return lambda: np.asarray(simulator.run(made).result().data()["statevector"])[:CHECKED].copy()


def qulacs(case: Case) -> Callable[[], np.ndarray]:
    """Qulacs, its gates merged by its own optimizer."""
    import qulacs as library

    made = library.QuantumCircuit(case.n)
    for name, qubits, matrix, angles in case.gates:
        on = [case.n - 1 - q for q in qubits]
        if name == "h":
            made.add_H_gate(*on)
        elif name == "cz":
            made.add_CZ_gate(*on)
        elif name == "u3":
            made.add_U3_gate(*on, *angles)
        else:
            made.add_gate(library.gate.DenseMatrix(on[::-1], matrix))

    def run() -> np.ndarray:
        merged = made.copy()
        library.circuit.QuantumCircuitOptimizer().optimize_light(merged)
        state = library.QuantumState(case.n)
        merged.update_quantum_state(state)
        return np.asarray(state.get_vector())[:CHECKED].copy()

    return run


RIVALS = {"qsim": qsim, "lightning": lightning, "aer": aer, "qulacs": qulacs}
ONLY = {"qsim": "complex64", "qulacs": "complex128"}
"""The one precision that a library has."""


def measure(
    calls: dict[str, Callable[[], np.ndarray]], case: Case, options: argparse.Namespace
) -> dict[str, float]:
    """The least seconds of each call, which take turns."""
    clock = CLOCKS[options.clock]
    least = dict.fromkeys(calls, math.inf)
    expected: np.ndarray | None = None
    for number in range(options.rounds + 1):
        for name, call in calls.items():
            sleep(options.pause)
            begin = clock()
            found = call()
            if number:
                least[name] = min(least[name], clock() - begin)
                continue
            expected = found if expected is None else expected
            error = float(np.abs(found - expected).max()) * 2 ** (case.n / 2)
            if error > CLOSE[case.dtype]:
                raise RuntimeError(f"{name} differs from the first by {error:.1e} of a mean amplitude")
    return least


def rows_of(options: argparse.Namespace, threads: int) -> Iterator[dict[str, Any]]:
    """The rows of all cases, small states first."""
    left_out: dict[tuple[str, str], set[str]] = {}
    for n in sorted(map(int, options.qubits.split(","))):
        for dtype in options.precisions.split(","):
            for name in options.circuits.split(","):
                case = Case(tuple(circuit(name, n)), n, dtype, threads)
                slow = left_out.setdefault((dtype, name), set())
                makers = {"ours": ours, **rivals_of(options.rivals.split(","), dtype, slow)}
                calls = {engine: make(case) for engine, make in makers.items()}
                least = measure(calls, case, options)
                others = {engine: time_s for engine, time_s in least.items() if engine != "ours"}
                fastest = min(others, key=others.__getitem__, default=None)
                ratio = None if fastest is None else least["ours"] / others[fastest]
                yield {
                    "circuit": name, "qubits": n, "dtype": dtype, "threads": threads,
                    "clock": options.clock, "time_s": least, "fastest_rival": fastest, "ratio": ratio,
                    "left_out": sorted(slow),
                }  # fmt: skip
                if fastest is not None:
                    slow |= {rival for rival, time_s in others.items() if time_s > SLOW * others[fastest]}


def rivals_of(wanted: list[str], dtype: str, slow: set[str]) -> dict[str, Callable[[Case], Any]]:
    """The rivals that are installed, wanted, have this precision, and are not too slow."""
    return {
        rival: make
        for rival, make in RIVALS.items()
        if find_spec(PACKAGES[rival][0]) is not None and rival in wanted and rival not in slow
        and ONLY.get(rival, dtype) == dtype
    }  # fmt: skip


def main() -> int:
    """Print a table and what misses its goal; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qubits", default="20,22,24,26")
    parser.add_argument("--circuits", default="H,QFT,random,brickwork")
    parser.add_argument("--precisions", default="complex64,complex128")
    parser.add_argument("--rivals", default="qsim,lightning,aer,qulacs")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--pause", type=float, default=0.3, help="seconds of rest before each call")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    # Libraries read this when they are loaded.
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    absent = [package for module, package in PACKAGES.values() if find_spec(module) is None]
    print(f"not installed, left out: {', '.join(absent)}" if absent else "all rivals are installed")
    rows: list[dict[str, Any]] = []
    for row in rows_of(options, options.threads):
        rows.append(row)
        times = " ".join(f"{name} {time_s:.4f}" for name, time_s in row["time_s"].items())
        ratio = row["ratio"] or 0.0
        mark = " OVER THE LIMIT" if ratio > LIMIT else " missed" if ratio > GOAL else ""
        print(
            f"{row['circuit']:>9s} {row['qubits']} {row['dtype']} {row['threads']} thread(s): {times}  "
            f"ratio {ratio:.2f}{mark}", flush=True,
        )  # fmt: skip
        if options.output is not None:
            options.output.write_text(json.dumps(document(rows, options), indent=1) + "\n")
    over = []
    for dtype in options.precisions.split(","):
        ratios = [row["ratio"] for row in rows if row["dtype"] == dtype and row["ratio"] is not None]
        met = sum(ratio <= GOAL for ratio in ratios)
        largest = max(ratios, default=0)
        over += [dtype] if largest > LIMIT or met < SHARE * len(ratios) else []
        print(f"{dtype}: {met} of {len(ratios)} cases at most {GOAL}, the largest {largest:.2f}")
    missed = bool(over)
    if missed:
        print("MISSED")
    return int(missed)


def document(rows: list[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """The results with where they come from."""
    from tnplan.executor.contraction.run.run_report import commit
    from tnplan.executor.device.cpu.host_memory import host_facts

    found = {p: version(p) for module, p in PACKAGES.values() if find_spec(module) is not None}
    return {
        "rounds": options.rounds, "pause_s": options.pause, "goal": GOAL, "limit": LIMIT, "rows": rows,
        "versions": {**found, "numpy": version("numpy"), "python": sys.version.split()[0]},
        "environment": host_facts(), "commit": commit(),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
