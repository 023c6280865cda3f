"""Adjoint gradient of a layered circuit, beside that of PennyLane's lightning.qubit or lightning.gpu.

    python benchmarks/statevector/gradients.py [--device gpu] [--qubits 24] [--parameters 500]
        [--precision fp64] [--rival PYTHON] [-o out.json]

Goals: on a CPU at most 1.0 times the processor time of lightning.qubit, one thread each; on a GPU at most 0.7
times the time of lightning.gpu by the clock, the least of some calls after a first one. PYTHON imports the
rival, that of its own environment. The circuit: layers of ry and rz on all qubits and a ring of cz.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RIVALS = {"cpu": "lightning.qubit", "gpu": "lightning.gpu"}
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


def ours(given: argparse.Namespace) -> dict[str, Any]:
    """Our value, derivatives and times."""
    import tnplan
    from tnplan.circuits.gates import gate

    gates = tuple(
        gate(name, qubits, (angle,) if name != "cz" else ())
        for name, qubits, angle in layers(given.qubits, given.parameters)
    )

    def simulated(gates: tnplan.GateSequence) -> Any:
        return tnplan.simulate(
            gates, observable="Z0", gradient=True, threads=1, device=given.device, precision=given.precision
        )

    simulated(tnplan.GateSequence(2, (gate("ry", (0,), (0.1,)),)))  # kernels are loaded
    times, done = repeated(given, lambda: simulated(tnplan.GateSequence(given.qubits, gates)))
    return {
        **times, "value": done.answer.expectation, "predicted_bytes": done.report["predicted_bytes"],
        "derivatives": [row["derivative"] for row in done.report["gradient"]],
    }  # fmt: skip


def theirs(given: argparse.Namespace) -> dict[str, Any]:
    """Those of lightning.qubit or lightning.gpu."""
    import pennylane as qml

    gates = layers(given.qubits, given.parameters)
    kind = np.complex128 if given.precision == "fp64" else np.complex64
    device = qml.device(RIVALS[given.device], wires=given.qubits, c_dtype=kind)

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
    times, derivatives = repeated(given, lambda: qml.grad(circuit)(angles))
    return {**times, "derivatives": np.asarray(derivatives).tolist(), "version": qml.__version__}


def repeated(given: argparse.Namespace, work: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Seconds of the work, and its result: on a CPU of one call, on a GPU the least of five after a first."""
    found = {}
    if given.device == "gpu":
        begin = time.perf_counter()
        work()
        found["first_s"] = time.perf_counter() - begin
    walls, cpus = [], []
    for _ in range(5 if given.device == "gpu" else 1):
        start, wall = time.process_time(), time.perf_counter()
        done = work()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - start)
    return {**found, "cpu_s": min(cpus), "wall_s": min(walls)}, done


GOALS = {"cpu": ("cpu", 1.0), "gpu": ("wall", 0.7)}
"""The clock of each device, and the most of the rival's time."""


def main() -> int:
    """Measure one after the other in processes of their own, compare, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=RIVALS, default="cpu")
    parser.add_argument("--qubits", type=int, default=24)
    parser.add_argument("--parameters", type=int, default=500)
    parser.add_argument("--precision", choices=("fp64", "fp32"), default="fp64")
    parser.add_argument("--rival", help="the Python with pennylane and pennylane-lightning")
    parser.add_argument("--only", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if options.only:
        print(json.dumps((ours if options.only == "ours" else theirs)(options)))
        return 0

    def measured(python: str, which: str) -> dict[str, Any]:
        sizes = ["--qubits", str(options.qubits), "--parameters", str(options.parameters)]
        kind = ["--device", options.device, "--precision", options.precision]
        command = [python, __file__, "--only", which, *sizes, *kind]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    names = ("device", "qubits", "parameters", "precision")
    row: dict[str, Any] = {name: getattr(options, name) for name in names}
    row["ours"] = measured(sys.executable, "ours")
    mine = np.array(row["ours"].pop("derivatives"))
    if options.rival:
        row["lightning"] = measured(options.rival, "theirs")
        row["largest_difference"] = float(np.abs(mine - row["lightning"].pop("derivatives")).max())
        for clock in ("cpu", "wall"):
            row[f"ours_over_lightning_{clock}"] = row["ours"][f"{clock}_s"] / row["lightning"][f"{clock}_s"]
    clock, goal = GOALS[options.device]
    print(json.dumps(row, indent=1))
    facts: dict[str, Any] = {"machine": platform.machine(), "cores": os.cpu_count()}
    facts["date"] = time.strftime("%Y-%m-%d")
    name = "gradients.json" if options.device == "cpu" else "gradients_rival_gpu.json"
    (options.output or RESULTS / name).write_text(json.dumps({**facts, "rows": [row]}, indent=1) + "\n")
    missed = row.get(f"ours_over_lightning_{clock}", 0.0) > goal
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
