"""What do questions about small circuits take in a warm process, on one core?

    export OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1
    python benchmarks/questions/small_questions.py --seeds 0 60
    python benchmarks/questions/small_questions.py --profile sample

Processor milliseconds of each question, the median and the 90th percentile over circuits: of a circuit that
is new, of the same `Circuit` again, and of a circuit of 10 qubits and 200 angles that is read from OpenQASM
and bound to new values. "work" is the time of the gates alone, by the kernel that `compile` calls. Circuits:
seeds of all families with 4 to 12 qubits and 20 to 200 gates. Gradients are by all angles of layers of ry, rz
and cx: after a file was read, of the same `Circuit` again, and bound to new values. With `--profile` a
question is asked again under cProfile.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

import tnplan
from tnplan.executor.statevector.gate_list import GateList

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.support.circuit_families import random_case

JOB: dict[str, Any] = {"threads": 1, "device": "cpu"}
TRIES = 5
"""A circuit is asked so often again, and the median taken."""
N_QUBITS, N_ANGLES = 10, 200


def gradient(circuit: tnplan.Circuit) -> Any:
    """The derivatives by all parameters."""
    return circuit.expectation("Z0 Z1", gradient=True, **JOB)


QUESTIONS: dict[str, Callable[[tnplan.Circuit], Any]] = {
    "expectation": lambda circuit: circuit.expectation("Z0 Z1 + 0.5*X1 Y2", **JOB),
    "sample": lambda circuit: circuit.sample(1000, seed=1, **JOB),
    "probabilities": lambda circuit: circuit.probabilities([0, 2, 1], **JOB),
    "amplitudes": lambda circuit: circuit.amplitudes(["0" * circuit.n_qubits] * 2, **JOB),
    "open_qubits": lambda circuit: circuit.amplitudes(open_qubits=range(circuit.n_qubits), **JOB),
    "reduced_density_matrix": lambda circuit: circuit.reduced_density_matrix([0, 1, 2], **JOB),
    "overlap": lambda circuit: circuit.overlap(circuit, **JOB),
    "trace": lambda circuit: circuit.trace("Z0", "Z1", state="0" * circuit.n_qubits, **JOB),
    "compile": lambda circuit: circuit.compile(expectation="Z0 Z1", **JOB)(),
    "gradient": gradient,
}


def circuits(first: int, last: int) -> Iterator[tnplan.GateSequence]:
    """Circuits of 4 to 12 qubits and 20 to 200 gates."""
    for seed in range(first, last):
        circuit = random_case(seed, most_qubits=12, most_depth=20).circuit
        if not isinstance(circuit, tnplan.GateSequence) or circuit.n_qubits > 12:
            continue
        if 20 <= len(circuit.gates) <= 200:
            yield circuit


def layered(folder: Path) -> tnplan.Circuit:
    """Layers of ry, rz and a ladder of cx with a parameter for each angle, as OpenQASM."""
    lines = ["OPENQASM 3.0;", 'include "stdgates.inc";', f"qubit[{N_QUBITS}] q;"]
    lines += [f"input float p{k};" for k in range(N_ANGLES)]
    for k in range(N_ANGLES):
        lines.append(f"{'rz' if k % 2 else 'ry'}(p{k}) q[{k // 2 % N_QUBITS}];")
        if k % (2 * N_QUBITS) == 2 * N_QUBITS - 1:
            lines += [f"cx q[{q}], q[{q + 1}];" for q in range(N_QUBITS - 1)]
    path = folder / "layers.qasm"
    path.write_text("\n".join(lines) + "\n")
    return tnplan.Circuit(path)


def bound(circuit: tnplan.Circuit, seed: int) -> tnplan.Circuit:
    """The circuit with random values."""
    values = np.random.default_rng(seed).uniform(-3, 3, len(circuit.names)).tolist()
    return circuit.bind(dict(zip(circuit.names, values, strict=True)))


def milliseconds(call: Callable[[], Any]) -> float:
    """Processor time of a call, without the collection of garbage."""
    gc.collect()
    gc.disable()
    begin = process_time()
    call()
    elapsed_s = process_time() - begin
    gc.enable()
    return 1e3 * elapsed_s


def again(call: Callable[[], Any]) -> float:
    """The median of several calls."""
    return float(np.median([milliseconds(call) for _ in range(TRIES)]))


def shown(name: str, *columns: list[float]) -> None:
    """A row: median and 90th percentile of each column."""
    texts = [f"{np.median(times):9.2f} {np.percentile(times, 90):7.2f}" for times in columns]
    print(f"{name:24}", *texts, flush=True)


def profiled(call: Callable[[], Any]) -> None:
    """Print where the time of a call goes."""
    call()
    with cProfile.Profile() as profile:
        for _ in range(20):
            call()
    pstats.Stats(profile).sort_stats("tottime").print_stats(40)


def measure(all_circuits: list[tnplan.GateSequence], folder: Path) -> None:
    """Print the table."""
    print(f"{len(all_circuits)} circuits; milliseconds: median, 90 %")
    print(f"{'':24} {'new':>17} {'again':>17} {'bound':>17}")
    states = [partial(GateList(one.n_qubits, 0, one.gates).state, np.zeros(0)) for one in all_circuits]
    shown("work", [again(state) for state in states])
    large = layered(folder)
    for question, call in QUESTIONS.items():
        new, repeated = [], []
        owns = [tnplan.Circuit(tnplan.GateSequence(one.n_qubits, one.gates)) for one in all_circuits]
        for own in [bound(layered(folder), k) for k in range(TRIES)] if call is gradient else owns:
            new.append(milliseconds(partial(call, own)))
            repeated.append(again(partial(call, own)))
        calls: list[Callable[[], Any]] = [lambda k=k: call(bound(large, k)) for k in range(TRIES)]  # type: ignore[misc]  # noqa: B023
        shown(question, new, repeated, [milliseconds(one) for one in calls])


def main() -> None:
    """Print the table, or a profile."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 60), metavar=("FIRST", "END"))
    parser.add_argument("--profile", choices=QUESTIONS, help="show where the time of a question goes")
    arguments = parser.parse_args()
    all_circuits = [*circuits(*arguments.seeds)]
    with tempfile.TemporaryDirectory() as name:
        for number, call in enumerate(QUESTIONS.values()):  # compiles and imports
            call(bound(layered(Path(name)), number))
        if arguments.profile:
            call = QUESTIONS[arguments.profile]
            own = bound(layered(Path(name)), 1) if call is gradient else tnplan.Circuit(all_circuits[0])
            profiled(partial(call, own))
        else:
            measure(all_circuits, Path(name))


if __name__ == "__main__":
    main()
