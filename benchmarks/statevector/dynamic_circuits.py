"""Shots of circuits that measure on their way, beside Qiskit Aer, in turn within one run.

Usage: python benchmarks/statevector/dynamic_circuits.py [--qubits 6,10,14] [--shots 1000] [--rounds 5]
       [--circuits phase,teleport,repetition,random,reset,noisy] [--exact 100000] [-o results.json]
A time, in seconds of the processor, goes from a program in each library's own form to the counts, complex128,
one thread. Libraries take turns, `--rounds` times after one that is not counted; the least time of each
counts. The distributions of both are compared; where a circuit is small enough (10 qubits, 6 with noise), so
are `--exact` shots of ours with exact probabilities. Goals: at most 1.0 times as long as Aer, and no outcome
8 standard deviations off.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from dynamic_exact import deviation, probabilities
from qiskit import ClassicalRegister, QuantumCircuit, QuantumRegister

from tnplan.circuits.load import load_program
from tnplan.circuits.program import depolarized
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.measurement import Question, answer
from tnplan.executor.statevector.simulator import Simulator

GOAL, DEVIATIONS = 1.0, 8.0
MOST_DEVIATIONS = 8.0
EXACT_QUBITS = {"noisy": 6}
"""Up to how many qubits exact probabilities are computed; 10 where not named."""
SEEDS_APART = 1_000_003
"""Aer takes a seed and those that follow it for its shots."""
NOISE = 0.01
"""The probability of an error after each gate of the noisy circuit."""


def phase(n: int) -> QuantumCircuit:
    """Iterative phase estimation: one qubit reads a phase of the others bit by bit."""
    made = QuantumCircuit(n, n)
    made.x(range(1, n))
    for k in range(n):
        made.reset(0)
        made.h(0)
        for target in range(1, n):
            made.cp(2 * math.pi * 0.3141 * 2 ** (n - 1 - k) / target, 0, target)
        for bit in range(k):
            with made.if_test((made.clbits[bit], 1)):
                made.p(-math.pi / 2 ** (k - bit), 0)
        made.h(0)
        made.measure(0, k)
    return made


def teleport(n: int) -> QuantumCircuit:
    """A state goes from qubit to qubit, two at a time."""
    made = QuantumCircuit(n, n)
    made.ry(0.7, 0)
    for q in range(0, n - 2, 2):
        made.h(q + 1)
        made.cx(q + 1, q + 2)
        made.cx(q, q + 1)
        made.h(q)
        made.measure([q, q + 1], [q, q + 1])
        with made.if_test((made.clbits[q + 1], 1)):
            made.x(q + 2)
        with made.if_test((made.clbits[q], 1)):
            made.z(q + 2)
    made.measure(n - 2 + n % 2, n - 1)
    return made


def repetition(n: int) -> QuantumCircuit:
    """Three rounds of a repetition code, with rotations as errors, and corrections."""
    data, rounds = n // 2, 3
    made = QuantumCircuit(QuantumRegister(2 * data - 1), ClassicalRegister((data - 1) * rounds + data))
    for turn in range(rounds):
        made.rx(0.3, range(data))
        for k in range(data - 1):
            made.cx(k, data + k)
            made.cx(k + 1, data + k)
            made.measure(data + k, turn * (data - 1) + k)
            with made.if_test((made.clbits[turn * (data - 1) + k], 1)):
                made.x(k + 1)
            made.reset(data + k)
    made.measure(range(data), range((data - 1) * rounds, (data - 1) * rounds + data))
    return made


def layers(made: QuantumCircuit, n: int, depth: int, random: np.random.Generator) -> None:
    """Random gates on every qubit, and CZ on pairs."""
    for layer in range(depth):
        for q in range(n):
            made.u(*random.uniform(0, 2 * math.pi, 3), q)
        for q in range(layer % 2, n - 1, 2):
            made.cz(q, q + 1)


def random_dynamic(n: int) -> QuantumCircuit:
    """Layers of random gates with measurements of three qubits, and conditional gates, between them."""
    random = np.random.default_rng(n)
    made = QuantumCircuit(n, n + 9)
    for block in range(3):
        layers(made, n, 4, random)
        for k in range(3):
            qubit, bit = int(random.integers(n)), n + 3 * block + k
            made.measure(qubit, bit)
            with made.if_test((made.clbits[bit], 1)):
                made.x(qubit)
    made.measure(range(n), range(n))
    return made


def resets(n: int) -> QuantumCircuit:
    """Layers of random gates with resets between them."""
    random = np.random.default_rng(n)
    made = QuantumCircuit(n, n)
    for _ in range(3):
        layers(made, n, 4, random)
        made.reset([0, n // 2])
    made.measure(range(n), range(n))
    return made


def noisy(n: int) -> QuantumCircuit:
    """Layers of random gates, with depolarizing noise after each."""
    made = QuantumCircuit(n, n)
    layers(made, n, 6, np.random.default_rng(n))
    made.measure(range(n), range(n))
    return made


CIRCUITS = {
    "phase": phase, "teleport": teleport, "repetition": repetition, "random": random_dynamic,
    "reset": resets, "noisy": noisy,
}  # fmt: skip


def contestants(name: str, n: int, shots: int) -> dict[str, Callable[[int], dict[str, int]]]:
    """Both libraries; a call takes a seed and gives counts, the last classical bit first."""
    from qiskit_aer import AerSimulator
    from qiskit_aer.noise import NoiseModel, depolarizing_error

    made = CIRCUITS[name](n)
    program = load_program(made)
    noise = None
    if name == "noisy":
        program = depolarized(program, NOISE)
        noise = NoiseModel()
        noise.add_all_qubit_quantum_error(depolarizing_error(NOISE * 4 / 3, 1), ["u"])
        noise.add_all_qubit_quantum_error(depolarizing_error(NOISE * 16 / 15, 2), ["cz"])
    simulator = AerSimulator(method="statevector", noise_model=noise, max_parallel_threads=1)

    def ours(seed: int) -> dict[str, int]:
        own = Simulator(HostState(program.n_qubits, "complex128"), program.n_qubits, seed=seed)
        counts = answer(own, program, Question(shots=shots)).counts
        assert counts is not None
        return {text[::-1]: number for text, number in counts.items()}

    def aer(seed: int) -> dict[str, int]:
        found: dict[str, int] = simulator.run(made, shots=shots, seed_simulator=seed).result().get_counts()
        return {text.replace(" ", ""): number for text, number in found.items()}

    return {"ours": ours, "aer": aer}


def ones(counts: dict[str, int]) -> np.ndarray:
    """The share of shots in which each bit is 1."""
    total = sum(counts.values())
    return sum(number * np.array([*text], float) for text, number in counts.items()) / total


def measure(name: str, n: int, shots: int, rounds: int) -> dict[str, Any]:
    """Times of both, and how far the shares of ones are apart in standard deviations."""
    calls = contestants(name, n, shots)
    least = dict.fromkeys(calls, math.inf)
    shares: dict[str, list[np.ndarray]] = {engine: [] for engine in calls}
    for number in range(rounds + 1):
        for engine, call in calls.items():
            begin = process_time()
            counts = call(SEEDS_APART * (number + 1))
            if number:
                least[engine] = min(least[engine], process_time() - begin)
            shares[engine].append(ones(counts))
    mean = {engine: np.mean(values, axis=0) for engine, values in shares.items()}
    runs = shots * (rounds + 1)
    spread = np.sqrt(np.maximum(mean["aer"] * (1 - mean["aer"]), 1 / runs) * 2 / runs)
    apart = float(np.max(np.abs(mean["ours"] - mean["aer"]) / spread))
    return {
        "circuit": name, "qubits": n, "shots": shots, "time_s": least, "ratio": least["ours"] / least["aer"],
        "largest_difference_in_standard_deviations": apart,
    }  # fmt: skip


def exact_deviation(name: str, n: int, shots: int) -> float | None:
    """How far our counts are from exact probabilities, in standard deviations; None for larger circuits.
    RuntimeError where they are too far."""
    if n > EXACT_QUBITS.get(name, 10) or not shots:
        return None
    exact = probabilities(CIRCUITS[name](n), NOISE if name == "noisy" else 0.0)
    found = deviation(contestants(name, n, shots)["ours"](SEEDS_APART), exact)
    if found > MOST_DEVIATIONS:
        raise RuntimeError(
            f"{name}, {n} qubits: {found:.1f} standard deviations from the exact probabilities"
        )
    return found


def main() -> int:
    """Print a table and what misses its goal; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qubits", default="6,10,14")
    parser.add_argument("--circuits", default=",".join(CIRCUITS))
    parser.add_argument("--shots", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--exact", type=int, default=100_000)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.circuits.split(","):
        for n in map(int, options.qubits.split(",")):
            row = measure(name, n, options.shots, options.rounds)
            row["exact_shots"] = options.exact
            row["deviations_from_exact"] = exact_deviation(name, n, options.exact)
            rows.append(row)
            print(
                f"{name:>10s} {n:2d} qubits: ours {row['time_s']['ours']:.4f} s, "
                f"aer {row['time_s']['aer']:.4f} s, "
                f"ratio {row['ratio']:.2f}{' MISSED' if row['ratio'] > GOAL else ''}, "
                f"ones differ by {row['largest_difference_in_standard_deviations']:.1f} deviations at most, "
                f"from exact probabilities by {row['deviations_from_exact'] or math.nan:.1f}",
                flush=True,
            )
            if options.output is not None:
                document = {
                    "rounds": options.rounds, "goal": GOAL, "rows": rows, "environment": host_facts(),
                    "versions": {p: version(p) for p in ("qiskit", "qiskit-aer", "numpy")},
                    "commit": commit(),
                }  # fmt: skip
                options.output.write_text(json.dumps(document, indent=1) + "\n")
    missed = any(
        row["ratio"] > GOAL or (row["deviations_from_exact"] or 0.0) >= DEVIATIONS
        or row["largest_difference_in_standard_deviations"] >= DEVIATIONS
        for row in rows
    )  # fmt: skip
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
