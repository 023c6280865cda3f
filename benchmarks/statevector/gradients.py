"""Adjoint gradient of a layered circuit on a CPU, beside that of PennyLane's lightning.qubit.

    python benchmarks/statevector/gradients.py [--qubits 24] [--parameters 500] [--rival PYTHON] [-o out.json]

Goal: at most 1.0 times the processor time of lightning.qubit, which PYTHON imports, that of its own
environment. One thread each. The circuit: layers of ry and rz on all qubits and a ring of cz.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parents[1] / "results" / "statevector"


def layers(n_qubits: int, n_parameters: int) -> list[tuple[str, tuple[int, ...], float]]:
    """Gates by name, qubits and angle (0 for cz), with so many angles."""
    generator, left = np.random.default_rng(0), n_parameters
    found: list[tuple[str, tuple[int, ...], float]] = []
    while left:
        for name in ("ry", "rz"):
            for qubit in range(min(left, n_qubits)):
                found.append((name, (qubit,), float(generator.uniform(-3, 3))))
            left -= min(left, n_qubits)
        found += [("cz", (qubit, (qubit + 1) % n_qubits), 0.0) for qubit in range(n_qubits)]
    return found


def ours(n_qubits: int, n_parameters: int) -> dict[str, Any]:
    """Our value, derivatives and times."""
    import tnplan
    from tnplan.planner.networks.circuits.gates import gate

    gates = tuple(
        gate(name, qubits, (angle,) if name != "cz" else ())
        for name, qubits, angle in layers(n_qubits, n_parameters)
    )
    small = tnplan.GateSequence(2, (gate("ry", (0,), (0.1,)),))
    tnplan.simulate(small, observable="Z0", gradient=True, threads=1, device="cpu")  # kernels are loaded
    start, wall = time.process_time(), time.perf_counter()
    done = tnplan.simulate(
        tnplan.GateSequence(n_qubits, gates), observable="Z0", gradient=True, threads=1, device="cpu"
    )
    return {
        "cpu_s": time.process_time() - start, "wall_s": time.perf_counter() - wall,
        "value": done.answer.expectation, "predicted_bytes": done.report["predicted_bytes"],
        "derivatives": [row["derivative"] for row in done.report["gradient"]],
    }  # fmt: skip


def theirs(n_qubits: int, n_parameters: int) -> dict[str, Any]:
    """Those of lightning.qubit."""
    import pennylane as qml

    gates = layers(n_qubits, n_parameters)
    device = qml.device("lightning.qubit", wires=n_qubits)

    @qml.qnode(device, diff_method="adjoint")
    def circuit(angles: Any) -> Any:
        used = iter(range(len(angles)))
        for name, qubits, _ in gates:
            if name == "cz":
                qml.CZ(wires=qubits)
            else:
                (qml.RY if name == "ry" else qml.RZ)(angles[next(used)], wires=qubits[0])
        return qml.expval(qml.PauliZ(0))

    angles = qml.numpy.array([angle for name, _, angle in gates if name != "cz"], requires_grad=True)
    start, wall = time.process_time(), time.perf_counter()
    derivatives = qml.grad(circuit)(angles)
    return {
        "cpu_s": time.process_time() - start, "wall_s": time.perf_counter() - wall,
        "derivatives": np.asarray(derivatives).tolist(), "version": qml.__version__,
    }  # fmt: skip


def main() -> None:
    """Measure one after the other in processes of their own, compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--qubits", type=int, default=24)
    parser.add_argument("--parameters", type=int, default=500)
    parser.add_argument("--rival", help="the Python with pennylane and pennylane-lightning")
    parser.add_argument("--only", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "gradients.json")
    options = parser.parse_args()
    if options.only:
        print(json.dumps((ours if options.only == "ours" else theirs)(options.qubits, options.parameters)))
        return

    def measured(python: str, which: str) -> dict[str, Any]:
        sizes = ["--qubits", str(options.qubits), "--parameters", str(options.parameters)]
        command = [python, __file__, "--only", which, *sizes]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    row: dict[str, Any] = {"qubits": options.qubits, "parameters": options.parameters}
    row["ours"] = measured(sys.executable, "ours")
    mine = np.array(row["ours"].pop("derivatives"))
    if options.rival:
        row["lightning"] = measured(options.rival, "theirs")
        row["largest_difference"] = float(np.abs(mine - row["lightning"].pop("derivatives")).max())
        row["ours_over_lightning_cpu"] = row["ours"]["cpu_s"] / row["lightning"]["cpu_s"]
    print(json.dumps(row, indent=1))
    facts: dict[str, Any] = {"machine": platform.machine(), "cores": os.cpu_count()}
    facts["date"] = time.strftime("%Y-%m-%d")
    options.output.write_text(json.dumps({**facts, "rows": [row]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
