"""Propagates a problem from standard input with pauli-prop or monoprop, for benchmarks/pauli/pauli.py.

Runs in an environment of its own, which has the rival and not tnplan. Usage: python pauli_rivals.py NAME
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any


def pauli_prop(problem: dict[str, Any]) -> Callable[[], tuple[int, float]]:
    """Cliffords absorbed first; one cut for branches and for merged terms."""
    from pauli_prop import (
        circuit_to_rotation_gates,
        evolve_through_cliffords,
        propagate_through_rotation_gates,
    )
    from qiskit import QuantumCircuit
    from qiskit.quantum_info import SparsePauliOp

    n = problem["n_qubits"]
    circuit = QuantumCircuit(n)
    for letters, qubits, angle in problem["rotations"]:
        getattr(circuit, {"X": "rx", "ZZ": "rzz"}[letters])(angle, *qubits)
    observable = SparsePauliOp.from_sparse_list([("Z", [problem["observable"]], 1.0)], num_qubits=n)

    def run() -> tuple[int, float]:
        clifford, rest = evolve_through_cliffords(circuit)
        start = SparsePauliOp(observable.paulis.evolve(clifford, frame="h"), observable.coeffs)
        signs = start.paulis.phase // 2 * -2 + 1
        start = SparsePauliOp(start.paulis[[0]], start.coeffs * signs)
        gates = circuit_to_rotation_gates(rest)
        done, _ = propagate_through_rotation_gates(start, gates, problem["max_terms"], problem["cut"], "h")
        return len(done), float(done.coeffs[~done.paulis.x.any(axis=1)].sum().real)

    return run


def monoprop(problem: dict[str, Any]) -> Callable[[], tuple[int, float]]:
    """No limit of weight; branches are cut before merging."""
    from monoprop import Circuit, ExpGate, Pauli, PauliOperator, PauliPropagator

    n = problem["n_qubits"]
    if problem.get("is_whole"):
        return monoprop_from_qiskit(problem)
    gates = [ExpGate(PauliOperator({Pauli(p, q): 1.0}, num_qubits=n)) for p, q, _ in problem["rotations"]]
    angles = [-angle / 2 for _, _, angle in problem["rotations"]]
    circuit = Circuit(gates=gates, system_size=n, parameters=angles)
    observable = PauliOperator({Pauli("Z", problem["observable"]): 1.0}, num_qubits=n)

    def run() -> tuple[int, float]:
        done = PauliPropagator.from_circuit(circuit, observable, cutoff=n, lower_atol=problem["cut"])
        return int(done.size()), float(done.expectation_value())

    return run


def monoprop_from_qiskit(problem: dict[str, Any]) -> Callable[[], tuple[int, float]]:
    """From a circuit of Qiskit to the value of Z on two qubits."""
    from monoprop import PauliPropagator
    from monoprop.qiskit_conversion import from_qiskit_circuit, from_qiskit_operator
    from qiskit import QuantumCircuit
    from qiskit.quantum_info import SparsePauliOp

    n = problem["n_qubits"]
    circuit = QuantumCircuit(n)
    for letters, qubits, angle in problem["rotations"]:
        getattr(circuit, f"r{letters.lower()}")(angle, *qubits)
    observable = SparsePauliOp.from_sparse_list([("ZZ", problem["observable"], 1.0)], num_qubits=n)

    def run() -> tuple[int, float]:
        converted = from_qiskit_circuit(circuit, initial_state=[])
        done = PauliPropagator(
            initial_operator=from_qiskit_operator(observable), initial_state=converted.initial_state,
            cutoff=n, lower_atol=problem["cut"],
        )  # fmt: skip
        done.propagate(converted)
        return int(done.size()), float(done.expectation_value())

    return run


def main() -> None:
    """Print the seconds, the terms and the value as JSON."""
    runs = {"pauli-prop": pauli_prop, "monoprop": monoprop}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=runs)
    name, problem = parser.parse_args().name, json.load(sys.stdin)
    run = runs[name](problem)
    begin = time.perf_counter()
    run()
    while time.perf_counter() - begin < problem["warm_s"]:
        run()
    rows = []
    for _ in range(problem["repeats"]):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        terms, value = run()
        rows.append((time.perf_counter() - begin, time.process_time() - begin_cpu))
    wall_s, cpu_s = sorted(rows)[len(rows) // 2]
    print(
        json.dumps(
            {"version": version(name), "time_s": wall_s, "cpu_s": cpu_s, "terms": terms, "value": value}
        )
    )


if __name__ == "__main__":
    main()
