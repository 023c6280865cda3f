"""Runs every OpenQASM file of a folder, and compares it with Qiskit and Aer.

The state of a file without measurements on its way is compared amplitude for amplitude with that of Qiskit,
phase included, or beyond a few qubits with that of Aer up to its phase; up to --small qubits also an
amplitude by contraction and three expectation values by Pauli propagation. A file that measures or resets on
its way is compared with Aer's counts by a chi-square test. What Qiskit does not read is listed as such. Needs
qiskit, qiskit-qasm3-import and qiskit-aer. Goal: none is different.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import warnings
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from scipy.stats import chi2

import tnplan
from tnplan.circuits.program import CircuitProgram, final_measurements, measures

EXACT = 1e-10
"""How far amplitudes and values may be from Qiskit's."""
SHOTS, FEW_SHOTS = 1000, 100
"""Runs of a program that measures on its way; few where one is more than `MOST_OF_A_SHOT`."""
MOST_OF_A_SHOT = 1 << 24
"""Operations times amplitudes."""
RARE = 1e-6
"""Counts that are less likely than this are another distribution."""
BY_QISKIT = 8
"""Qubits up to which Qiskit's own state is the reference; Aer's beyond, which has another global phase."""
MOST_WORK = 1 << 34
"""Operations times amplitudes of a file that is compared."""
MOST_PAULI_GATES = 400
"""Gates of a circuit that is propagated: without truncation terms may double at each."""


def main() -> int:
    """Compare all files, print a line each, and write the rows; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=24, help="leave files of more qubits out")
    parser.add_argument("--small", type=int, default=6, help="qubits up to which all engines are compared")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for path in sorted(options.folder.rglob("*.qasm")):
        row = {"file": str(path.relative_to(options.folder)), **compared(path, options.most, options.small)}
        rows.append(row)
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    counts = Counter(row["result"] for row in rows)
    print(", ".join(f"{count} {result}" for result, count in counts.most_common()))
    if options.output is not None:
        environment = {"python": platform.python_version(), "machine": platform.processor() or "x86_64"}
        head = {
            "date": datetime.now(UTC).date().isoformat(), "folder": options.folder.name,
            "environment": environment, "counts": dict(counts),
        }  # fmt: skip
        lines = ",\n  ".join(map(json.dumps, rows))
        options.output.write_text(json.dumps(head)[:-1] + f',\n "rows": [\n  {lines}\n]}}\n')
    missed = counts["DIFFERENT"] > 0
    if missed:
        print("MISSED")
    return int(missed)


def compared(path: Path, most: int, small: int) -> dict[str, Any]:
    """What came of one file."""
    begin = process_time()
    try:
        program = tnplan.load_program(path)
    except tnplan.InputError as error:
        return {"result": "refused", "why": str(error).replace(f"{path}: ", "")}
    row: dict[str, Any] = {
        "qubits": program.n_qubits, "operations": len(program.operations),
        "read_s": round(process_time() - begin, 3),
    }  # fmt: skip
    if program.n_qubits > most or len(program.operations) << program.n_qubits > MOST_WORK:
        return {"result": "read, and too large to compare", **row}
    try:
        circuit = qiskit_circuit(path)
    except Exception as error:
        return {"result": "not read by Qiskit", **row, "why": str(error).splitlines()[0][:120]}
    if final_measurements(program) is None:
        return {"result": "", **row, **compared_counts(path, program, circuit)}
    return {"result": "", **row, **compared_state(path, program, circuit, small)}


def qiskit_circuit(path: Path) -> Any:
    """The file as Qiskit reads it."""
    from qiskit import qasm2, qasm3

    text = path.read_text()
    if "OPENQASM 3" in text:
        return qasm3.loads(text)
    return qasm2.loads(
        text, include_path=(path.parent,), custom_instructions=qasm2.LEGACY_CUSTOM_INSTRUCTIONS
    )


def compared_state(path: Path, program: CircuitProgram, circuit: Any, small: int) -> dict[str, Any]:
    """The largest difference of amplitudes, and of what the other engines give."""
    n = program.n_qubits
    gates = circuit.copy_empty_like()
    for item in circuit.data:
        if item.operation.name not in ("measure", "barrier", "reset"):
            gates.append(item.operation, item.qubits, item.clbits)
    expected = reference_state(gates)
    found = tnplan.simulate(program, device="cpu", threads=1).simulator.array()
    if n > BY_QISKIT:
        expected = expected * np.exp(1j * np.angle(np.vdot(expected, found)))
    row: dict[str, Any] = {"error": float(np.abs(found - expected).max())}
    worst = row["error"]
    if n <= small:
        bits = format(int(np.abs(expected).argmax()), f"0{n}b")
        network = tnplan.network(path, amplitude=bits, dtype="complex128")
        amplitude = complex(tnplan.contract(network))
        row["contraction_error"] = abs(amplitude - expected[int(bits, 2)])
        worst = max(worst, row["contraction_error"])
        if len(program.operations) <= MOST_PAULI_GATES:
            row["pauli_error"] = pauli_error(path, n, expected)
            worst = max(worst, row["pauli_error"])
    return {**row, "result": "equal" if worst < EXACT else "DIFFERENT"}


def reference_state(circuit: Any) -> np.ndarray:
    """The amplitudes, qubit 0 most significant: by Qiskit, and by Aer for more than `BY_QISKIT` qubits."""
    n = circuit.num_qubits
    if n <= BY_QISKIT:
        from qiskit.quantum_info import Statevector

        return np.asarray(Statevector(circuit).reverse_qargs().data)
    from qiskit import transpile
    from qiskit_aer import AerSimulator

    circuit.save_statevector()
    simulator = AerSimulator(method="statevector", fusion_enable=False)
    run = simulator.run(transpile(circuit, simulator, optimization_level=0)).result()
    axes = tuple(reversed(range(n)))
    return np.asarray(run.get_statevector()).reshape((2,) * n).transpose(axes).reshape(-1)


def pauli_error(path: Path, n: int, expected: np.ndarray) -> float:
    """The largest error of Z on the first qubit, X on the last, and Z on all."""
    from qiskit.quantum_info import Pauli, Statevector

    state = Statevector(expected).reverse_qargs()
    worst = 0.0
    for letters in ("Z" + "I" * (n - 1), "I" * (n - 1) + "X", "Z" * n):
        words = " ".join(f"{letter}{k}" for k, letter in enumerate(letters) if letter != "I")
        value = tnplan.propagate(path, words, device="cpu").value
        worst = max(worst, abs(value - state.expectation_value(Pauli(letters[::-1]))))
    return worst


def compared_counts(path: Path, program: CircuitProgram, circuit: Any) -> dict[str, Any]:
    """A chi-square test of our counts against Aer's."""
    from qiskit import transpile
    from qiskit_aer import AerSimulator

    if not measures(program.operations):
        return {"result": "no result to compare"}
    shots = SHOTS if len(program.operations) << program.n_qubits < MOST_OF_A_SHOT else FEW_SHOTS
    simulator = AerSimulator()
    run = simulator.run(transpile(circuit, simulator, optimization_level=0), shots=shots, seed_simulator=1)
    theirs = {key.replace(" ", "")[::-1]: value for key, value in run.result().get_counts().items()}
    done = tnplan.simulate(program, shots=shots, seed=1, device="cpu", threads=1)
    ours = done.answer.counts or {}
    p = same_distribution(ours, theirs)
    return {"p": round(p, 6), "result": "equal counts" if p > RARE else "DIFFERENT"}


def same_distribution(a: dict[str, int], b: dict[str, int]) -> float:
    """The probability of counts that differ so much if both are of one distribution; rare ones are joined."""
    pairs = [(a.get(key, 0), b.get(key, 0)) for key in {*a, *b}]
    rare = [pair for pair in pairs if sum(pair) < 10]
    pairs = [pair for pair in pairs if sum(pair) >= 10] + [
        (sum(x for x, _ in rare), sum(y for _, y in rare))
    ] * bool(rare)
    if len(pairs) < 2:
        return 1.0
    statistic = sum((x - y) ** 2 / (x + y) for x, y in pairs)
    return float(chi2.sf(statistic, len(pairs) - 1))


if __name__ == "__main__":
    sys.exit(main())
