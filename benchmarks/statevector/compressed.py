"""Compressed states beside exact ones: whether their bound and their estimate hold, their memory, their time.

Usage: python benchmarks/statevector/compressed.py [--qubits 8-16] [--circuits 100] [--seed 20261201]
       [--time 22,24] [--rounds 5] [--threads 1] [-o results.json]
Circuits are random, QFT, QAOA, Trotter and VQE in turn, each from a seed of its own, with 8 and 16 bits, in
passes of single and of double precision. Tiles have a random size, so that small states have several passes.
The exact state is the plain engine's in double precision. Goals: the bound is never below the error, and the
estimate of 1 - F is within a factor of 2 in 90 % of runs. Times are seconds of the processor, the least of
`--rounds` by turns, of the passes alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.support.engines.unseen_circuits import KINDS, unseen_circuit
from tnplan.circuits.circuit import GateSequence
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.executor.statevector.cpu.packed_state import PackedState, packed_bytes
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.prepared_program import Segment, prepare_program
from tnplan.executor.statevector.simulator import Simulator

FACTOR, WITHIN_GOAL = 2.0, 0.9
NO_BITS = np.zeros(0, np.uint8)


def compressed(circuit: GateSequence, dtype: str, bits: int, seed: int, tile_bits: int) -> Simulator:
    """A compressed state after a circuit."""
    state = PackedState(circuit.n_qubits, dtype, bits, seed=seed)
    state.tile = replace(state.tile, bits=min(state.tile.bits, tile_bits))
    simulator = Simulator(state, circuit.n_qubits)
    simulator.run(prepare_program(circuit.gates), NO_BITS)
    return simulator


def infidelity(simulator: Simulator, exact: Any) -> float:
    """1 - F, from the part that is orthogonal to the exact state, so that small ones are not lost."""
    state = simulator.amplitudes_at(np.arange(len(exact))[:, None] >> np.arange(simulator.n_qubits)[::-1] & 1)
    overlap = np.vdot(exact, state)
    return float(np.linalg.norm(state - overlap * exact) ** 2 / np.linalg.norm(state) ** 2)


def coverage(qubits: tuple[int, int], n_circuits: int, seed: int) -> list[dict[str, Any]]:
    """A row for each circuit, number of bits and precision."""
    random, rows = np.random.default_rng(seed), []
    for number in range(n_circuits):
        kind, n = KINDS[number % len(KINDS)], int(random.integers(qubits[0], qubits[1] + 1))
        circuit = unseen_circuit(kind, n, seed + number)
        simulator = Simulator(HostState(n, "complex128"), n)
        simulator.run(prepare_program(circuit.gates), NO_BITS)
        exact = simulator.array()
        for dtype in ("complex64", "complex128"):
            for bits in (8, 16):
                tile_bits = int(random.integers(9, 13))
                own = compressed(circuit, dtype, bits, seed + number, tile_bits)
                state: Any = own.state
                rows.append({
                    "kind": kind, "qubits": n, "dtype": dtype, "bits": bits, "passes": own.passes,
                    "error": infidelity(own, exact), "estimate": 1 - state.errors.fidelity_estimate,
                    "bound": 1 - state.errors.fidelity_bound,
                })  # fmt: skip
    return rows


def shares(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """The shares of runs whose bound holds, and whose estimate is within the factor."""
    ratios = np.array([row["error"] / row["estimate"] for row in rows])
    held = np.mean([row["error"] <= row["bound"] for row in rows])
    return float(held), float(np.mean((ratios <= FACTOR) & (ratios >= 1 / FACTOR)))


def summary(rows: list[dict[str, Any]]) -> None:
    """Print how many bounds and estimates hold."""
    print(f"{'':22}{'runs':>6}{'passes':>9}{'below bound':>12}{'within 2':>10}{'error/estimate':>24}")
    groups: dict[str, list[dict[str, Any]]] = {"all": rows}
    for name in ("kind", "bits", "dtype"):
        for row in rows:
            groups.setdefault(str(row[name]), []).append(row)
    for name, own in groups.items():
        ratios = np.array([row["error"] / row["estimate"] for row in own])
        held, within = shares(own)
        spread = f"{ratios.min():.3g} to {ratios.max():.3g}"
        passes = f"{min(row['passes'] for row in own)}-{max(row['passes'] for row in own)}"
        print(f"{name:22}{len(own):6}{passes:>9}{held:12.1%}{within:10.1%}{spread:>24}")


def times(n: int, rounds: int, threads: int) -> list[dict[str, Any]]:
    """Seconds of passes of each kind of state, by turns."""
    rows = []
    for kind in KINDS:
        (segment,) = prepare_program(unseen_circuit(kind, n, 1).gates)
        assert isinstance(segment, Segment)
        for dtype in ("complex64", "complex128"):
            states: dict[int, Any] = {0: HostState(n, dtype, threads)}
            states |= {bits: PackedState(n, dtype, bits, threads) for bits in (8, 16)}
            prepared = {bits: Simulator(state, n).prepare(segment)[1] for bits, state in states.items()}
            least = dict.fromkeys(states, float("inf"))
            for turn in range(rounds + 1):
                for bits, state in states.items():
                    state.restart()
                    begin = process_time()
                    for item in prepared[bits]:
                        state.apply(item)
                    least[bits] = min(least[bits], process_time() - begin) if turn else least[bits]
            for bits in states:
                size = packed_bytes(n, bits, dtype) if bits else np.dtype(dtype).itemsize << n
                rows.append({
                    "kind": kind, "qubits": n, "dtype": dtype, "bits": bits, "passes": len(prepared[bits]),
                    "seconds": least[bits], "of_plain": least[bits] / least[0], "bytes": size / 2**n,
                })  # fmt: skip
                row = rows[-1]
                print(
                    f"{kind:8} {n} {dtype:10} {bits or 'plain':>5} {row['passes']:3} passes "
                    f"{row['seconds']:8.3f} s {row['of_plain']:6.2f} {row['bytes']:7.3f} bytes an amplitude"
                )
    return rows


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--qubits", default="8-16")
    parser.add_argument("--circuits", type=int, default=100)
    parser.add_argument("--seed", type=int, default=20261201)
    parser.add_argument("--time", default="")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    low, high = (int(part) for part in options.qubits.split("-"))
    result: dict[str, Any] = {"seed": options.seed, "commit": commit(), "environment": host_facts()}
    if options.circuits:
        result["coverage"] = coverage((low, high), options.circuits, options.seed)
        summary(result["coverage"])
    for n in (int(part) for part in options.time.split(",") if part):
        result.setdefault("times", []).extend(times(n, options.rounds, options.threads))
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
