"""The kicked Ising model of 127 qubits by a PEPS: values at nine angles, and the time beside quimb's.

    OMP_NUM_THREADS=1 python benchmarks/questions/kicked_ising.py --bond 32 [--precision fp32]
    OMP_NUM_THREADS=1 python benchmarks/questions/kicked_ising.py --bond 128 --device gpu [--ranks 2]
    OMP_NUM_THREADS=1 python benchmarks/questions/kicked_ising.py --steps 5 --exact
    OMP_NUM_THREADS=1 python benchmarks/questions/kicked_ising.py --bond 16 --angles 0.7 --rival

The circuit is that of Kim et al., Nature 618, 500 (2023): rx by an angle on all qubits and rzz by -pi/2 on
all edges, 20 times; the value is that of Z on qubit 62. `--exact` adds the value by Pauli propagation, for
few steps. `--rival` applies the same gates by quimb's `CircuitPEPSSimpleUpdate`, by turns, the least seconds
of the processor of three; both then have the gates of the whole circuit, and no loops. Goal: half of its time
at bonds from 32 on.
"""

from __future__ import annotations

import argparse
import sys
import time
from math import inf, pi
from typing import Any

import numpy as np

import tnplan
from tnplan.circuits.gates import gate
from tnplan.executor.peps.levels import levels_of
from tnplan.executor.peps.messages import iterated_messages
from tnplan.executor.peps.regions import RegionValues
from tnplan.executor.peps.state import PepsState
from tnplan.planner.workloads.dynamics import coupling_map, edge_layers, kicked_ising

QUBIT, N_QUBITS, REPEATS, GOAL = 62, 127, 3, 0.5
ANGLES = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0]
"""Those of published values (benchmarks/notes/pauli.md)."""
Z = np.diag([1.0 + 0j, -1])


def row(angle: float, options: argparse.Namespace) -> str:
    """A line for an angle."""
    circuit = tnplan.Circuit(kicked_ising("heavy-hex", N_QUBITS, options.steps, angle, -pi / 2))
    job: dict[str, Any] = {"device": options.device, "threads": options.threads, "ranks": options.ranks}
    begin = time.perf_counter()
    found = circuit.expectation(
        f"Z{QUBIT}", method="peps", max_bond=options.bond, precision=options.precision, **job
    )
    seconds, details = time.perf_counter() - begin, found.details
    half = details.get("at_smaller_bond", {"value": found.value})["value"]
    texts = [
        f"angle {angle:.4f}: {found.value:.6f} +- {found.error:.1e}", f"half bond {half:.6f}",
        f"without loops {details['without_loops']:.6f}", f"bond {details['max_bond']}",
        f"fidelity {details['fidelity_estimate']:.4f}", f"sweeps {details['message_sweeps']}",
        f"{seconds:.1f} s",
    ]  # fmt: skip
    if options.exact:
        exact = circuit.expectation(f"Z{QUBIT}", method="pauli", **job).value
        texts.append(f"exact {exact:.6f}, error {abs(found.value - exact):.1e}")
    return "; ".join(texts)


def beside_quimb(angle: float, options: argparse.Namespace) -> float:
    """The share of quimb's time for all gates; prints both values."""
    import quimb.tensor as qtn

    edges = coupling_map("heavy-hex", N_QUBITS)
    phases = np.diag(np.exp(0.25j * pi * np.array([1, -1, -1, 1])))
    turn = gate("rx", (0,), (angle,)).matrix
    gates = [((q,), turn) for q in range(N_QUBITS)]
    gates += [(edge, phases) for layer in edge_layers(edges) for edge in layer]
    gates *= options.steps
    dtype = {"fp64": "complex128", "fp32": "complex64"}[options.precision]
    cutoff = {"fp64": 1e-30, "fp32": 1e-14}[options.precision]

    def ours() -> float:
        state = PepsState(N_QUBITS, edges, dtype)
        for level in levels_of(gates):
            state.apply(level, options.bond, cutoff)
        timed["ours"] = min(timed["ours"], time.process_time() - begin)
        return RegionValues(state, iterated_messages(state, 1e-5, 500).matrices).of_word({QUBIT: Z}).bethe

    def quimb() -> float:
        circuit = qtn.CircuitPEPSSimpleUpdate(
            N_QUBITS, edges=edges, max_bond=options.bond, cutoff=1e-10, dtype=dtype
        )
        for qubits, matrix in gates:
            circuit.apply_gate_raw(matrix.astype(dtype), qubits)
        timed["quimb"] = min(timed["quimb"], time.process_time() - begin)
        return float(np.real(circuit.local_expectation(Z.astype(dtype), QUBIT)))

    timed, values = {"ours": inf, "quimb": inf}, {}
    for _ in range(REPEATS):
        for name, call in (("ours", ours), ("quimb", quimb)):
            begin = time.process_time()
            values[name] = call()
    ratio = timed["ours"] / timed["quimb"]
    texts = [f"{name} {timed[name]:.2f} s, {values[name]:.6f}" for name in timed]
    print(f"bond {options.bond}, angle {angle}: {'; '.join(texts)}; ratio {ratio:.3f}", flush=True)
    return ratio


def main() -> int:
    """Measure and print; 1 where the goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bond", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--angles", type=float, nargs="+", default=ANGLES)
    parser.add_argument("--precision", choices=["fp64", "fp32"], default="fp64")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=1, help="each has a part of the qubits, and its GPU")
    parser.add_argument("--exact", action="store_true", help="beside Pauli propagation, for few steps")
    parser.add_argument("--rival", action="store_true", help="beside quimb, on the CPU")
    options = parser.parse_args()
    worst = 0.0
    for angle in options.angles:
        if options.rival:
            worst = max(worst, beside_quimb(angle, options))
        else:
            print(row(angle, options), flush=True)
    return int(worst > GOAL)


if __name__ == "__main__":
    sys.exit(main())
