"""How good is the time left that progress shows? Circuits of many kinds, by the engines that take a while.

    OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 python benchmarks/questions/time_left.py
    OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 python benchmarks/questions/time_left.py --only chain cones

Seconds of the processor on one core. A line a case: what it takes, the reports with a time left after a tenth
of that, until a twentieth is left, and how many of these times are within a factor of two of what was left.
Goal: all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

FACTOR, AFTER, UNTIL = 2.0, 0.1, 0.05
JOB: dict[str, Any] = {"threads": 1, "device": "cpu"}
Case = tuple[Any, str, Any, dict[str, Any]]


def circuit(
    family: str, shape: str, n_qubits: int, depth: int, seed: int, is_dynamic: bool = False
) -> Any:  # fmt: skip
    """A circuit of a family; a dynamic one measures, resets and branches on its way."""
    import tnplan
    from tests.support.circuit_families import FAMILIES, dynamic, graph

    random = np.random.default_rng(seed)
    n, edges = graph(shape, n_qubits, random)
    gates = tnplan.GateSequence(n, tuple(FAMILIES[family](n, edges, depth, random)))
    return tnplan.Circuit(dynamic(gates, random) if is_dynamic else gates)


def each_z(of: Any) -> list[str]:
    """Z of every qubit."""
    return [f"Z{qubit}" for qubit in range(of.n_qubits)]


def cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    """The cases by their names; the first word is the engine."""
    import tnplan

    few = {"truncation": tnplan.Truncation(max_terms=20_000)}
    for number, (family, shape, n, depth, shots) in enumerate([
        ("brickwork", "line", 40, 4, 1000), ("trotter", "line", 40, 2, 500), ("ghz", "line", 100, 1, 1000),
        ("qaoa", "ring", 36, 2, 300), ("vqe", "line", 40, 4, 500), ("adder", "line", 48, 1, 500),
    ]):  # fmt: skip
        for way in ("chain", "gates"):
            yield f"{way}: {family} {n}", lambda a=(family, shape, n, depth, number), s=shots, w=way: (
                circuit(*a), "sample", s, {"method": "contraction", "sampling": w, "seed": 1}
            )  # fmt: skip
    for family, shape, n, depth in [
        ("trotter", "lattice", 36, 2), ("vqe", "line", 40, 3), ("brickwork", "line", 60, 6),
        ("brickwork", "ring", 60, 8), ("qaoa", "random regular", 40, 1),
    ]:  # fmt: skip

        def make(a: Any = (family, shape, n, depth, 4)) -> Case:
            of = circuit(*a)
            return of, "expectation", each_z(of), {"method": "contraction", "seed": 1}

        yield f"cones: {family} {n}", make
    rejected = {"method": "contraction", "sampling": "rejection", "seed": 1}
    yield "rejection: brickwork 20", lambda: (
        circuit("brickwork", "lattice", 20, 16, 1), "sample", 200, rejected
    )  # fmt: skip
    words = [f"{'XYZ'[k % 3]}{k % 20} Z{(7 * k + 3) % 20}" for k in range(300) if k % 20 != (7 * k + 3) % 20]
    yield "state sums: brickwork 20", lambda: (
        circuit("brickwork", "line", 20, 6, 4), "expectation", words * 2, {"method": "statevector"},
    )  # fmt: skip
    yield "state runs: brickwork 16", lambda: (
        circuit("brickwork", "line", 16, 6, 5, is_dynamic=True), "expectation", "Z0",
        {"method": "statevector", "trajectories": 200, "seed": 1},
    )  # fmt: skip
    yield "state shots: trotter 14", lambda: (
        circuit("trotter", "line", 14, 6, 5, is_dynamic=True), "sample", 400,
        {"method": "statevector", "seed": 1},
    )  # fmt: skip
    yield "pauli: trotter 30", lambda: (
        circuit("trotter", "line", 30, 8, 4), "expectation", "Z15", {"method": "pauli", **few},
    )  # fmt: skip
    yield "repetitions: brickwork 20", lambda: (
        circuit("brickwork", "line", 20, 8, 4), "expectation", "Z10",
        {"method": "pauli", "monte_carlo": tnplan.MonteCarlo(20, seed=1),
         "truncation": tnplan.Truncation(max_terms=500)},
    )  # fmt: skip
    yield "mps: brickwork 24", lambda: (
        circuit("brickwork", "line", 24, 16, 4), "sample", 20_000,
        {"method": "mps", "max_bond": 96, "seed": 1},
    )  # fmt: skip
    yield "stabilizer: ghz 60", lambda: (
        circuit("ghz", "line", 60, 1, 3, is_dynamic=True), "sample", 5000,
        {"method": "stabilizer", "seed": 1},
    )  # fmt: skip


def measured(of: Any, question: str, wanted: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Processor seconds of a question, and the times left that its progress has, with the seconds by then."""
    from tnplan.jobs.progress import Progress, TimeLeft

    left, shown, silent = TimeLeft(process_time), [], 0

    def listen(at: Progress) -> None:
        nonlocal silent
        left_s = left.after(at)
        silent += at.share is None and at.total > 0
        if left_s is not None:
            shown.append((process_time() - begin, left_s))

    begin = process_time()
    getattr(of, question)(wanted, **JOB, **options, progress=listen)
    took_s = process_time() - begin
    late = [
        (at_s, left_s, took_s - at_s)
        for at_s, left_s in shown
        if at_s > AFTER * took_s and took_s - at_s > UNTIL * took_s
    ]
    good = sum(real_s / FACTOR <= left_s <= FACTOR * real_s for _, left_s, real_s in late)
    worst = max((max(left_s / real_s, real_s / left_s) for _, left_s, real_s in late), default=None)
    return {"seconds": took_s, "without": silent, "reports": len(late), "good": good, "worst": worst}


def main() -> int:
    """Measure the cases, each a second time, with kernels compiled; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", help="cases whose names contain one of these words")
    parser.add_argument("--output", type=Path, help="JSON lines")
    given = parser.parse_args()
    totals: dict[str, list[int]] = {}
    for name, make in cases():
        if given.only and not any(word in name for word in given.only):
            continue
        case = make()
        measured(*case)
        row = {"name": name, **measured(*case)}
        total = totals.setdefault(name.split(":")[0], [0, 0])
        total[0], total[1] = total[0] + row["good"], total[1] + row["reports"]
        worst = "" if row["worst"] is None else f", worst factor {row['worst']:.2f}"
        print(
            f"{name}: {row['seconds']:.2f} s, {row['good']} of {row['reports']} within {FACTOR:g}{worst}; "
            f"{row['without']} reports without a time left", flush=True,
        )  # fmt: skip
        if given.output is not None:
            with given.output.open("a") as file:
                file.write(json.dumps(row) + "\n")
    for name, (good, reports) in totals.items():
        print(f"{name}: {good} of {reports}" if reports else f"{name}: no time left is shown")
    missed = any(good < reports for good, reports in totals.values())
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    sys.exit(main())
