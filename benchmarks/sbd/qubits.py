"""Qubit Hamiltonians in lists of bit strings: whole solves beside qiskit-addon-sqd's, and memory.

    python benchmarks/sbd/qubits.py [--case TEXT] [--device cpu|gpu] [--threads 1] [-o results.json]

Cases: a Heisenberg ring of 40 qubits, and spins that all couple to each other, 30 qubits with 435 flips;
lists are drawn by steps of the Hamiltonian from the Neel string. The last list is of 100 qubits, which the
addon does not take. Where qiskit-addon-sqd is installed, its `solve_qubit` finds the lowest state in the same
run, with SciPy's `eigsh`; both solve to 1e-8 or better, and energies must agree to 1e-8. Before that both are
called once, the addon with one word on the same strings, so that their functions are compiled.
Goal: whole solves 10 times faster than the addon on one core; energies within 1e-8.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tnplan
from tnplan.circuits.pauli_sum import PauliSum, parse
from tnplan.common.files import write_text
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "sbd" / "qubits.json"
GOAL, SAME = 10.0, 1e-8
STEPS = 12
"""Steps from the Neel string, at most."""
Array = NDArray[Any]


def ring(n: int) -> PauliSum:
    """A Heisenberg ring with couplings to second neighbours."""
    pairs = [(q, (q + far) % n, strength) for far, strength in ((1, 1.0), (2, 0.3)) for q in range(n)]
    return coupled(pairs, n)


def all_to_all(n: int) -> PauliSum:
    """Spins that all couple, by random numbers; and random fields."""
    chance = np.random.default_rng(1)
    pairs = [(p, q, chance.standard_normal() / np.sqrt(n)) for p in range(n) for q in range(p)]
    return coupled(pairs, n, chance.standard_normal(n))


def coupled(pairs: list[tuple[int, int, float]], n: int, fields: Any = ()) -> PauliSum:
    """X X + Y Y + Z Z of pairs, and Z of each qubit."""
    words = [f"{strength:+.17g}*{a}{p} {a}{q}" for p, q, strength in pairs for a in "XYZ"]
    words += [f"{field:+.17g}*Z{q}" for q, field in enumerate(fields)]
    return parse(" ".join(words), n)


def drawn(n: int, count: int, reach: int) -> Array:
    """Distinct strings, booleans [string, qubit], by exchanges of bits at most `reach` apart."""
    chance = np.random.default_rng(2)
    found = np.zeros((0, n), bool)
    while len(found) < count:
        rows = np.tile(np.arange(n) % 2 == 0, (2 * count, 1))
        each = np.arange(len(rows))
        for _ in range(STEPS):
            moved = chance.random(len(rows)) < 0.7
            p = chance.integers(n, size=len(rows))
            q = (p + chance.integers(1, reach + 1, len(rows))) % n
            q = np.where(moved, q, p)
            rows[each, p], rows[each, q] = rows[each, q].copy(), rows[each, p].copy()
        every = np.concatenate([found, rows])
        # Rows as bytes sort as they do as booleans, and much faster.
        packed = np.packbits(every, axis=1)
        found = every[np.unique(packed.view(f"V{packed.shape[1]}").ravel(), return_index=True)[1]]
    return found[np.sort(chance.choice(len(found), count, replace=False))]


CASES = {
    "ring of 40, 1e4 strings": (ring, 40, 10_000, 2),
    "ring of 40, 1e5 strings": (ring, 40, 100_000, 2),
    "ring of 40, 1e6 strings": (ring, 40, 1_000_000, 2),
    "all to all, 30 qubits, 1e4 strings": (all_to_all, 30, 10_000, 29),
    "all to all, 30 qubits, 1e5 strings": (all_to_all, 30, 100_000, 29),
    "ring of 100, 1e5 strings": (ring, 100, 100_000, 2),
}
MOST_OF_ADDON = 1e8
"""Words times strings that are given to the addon, at most: more takes many minutes."""


def ours(operator: PauliSum, strings: Array, device: str, threads: int | None) -> dict[str, Any]:
    """A whole solve, and what its report says."""
    criteria = tnplan.Criteria(residual=SAME, steps=300)
    begin, begin_cpu = perf_counter(), process_time()
    found = tnplan.diagonalize_qubits(
        operator, strings[:, ::-1], criteria=criteria, device=device, threads=threads
    )
    time_s, cpu_s = perf_counter() - begin, process_time() - begin_cpu
    assert found.solution.converged
    report = found.report
    return {
        "energy": float(found.energies[0]), "time_s": time_s, "cpu_s": cpu_s,
        "setup_s": report["measured"]["setup_s"],
        "multiplications": report["measured"]["multiplications"], "threads": report["threads"],
        "pairs_contributing": report["space"]["pairs_contributing"], "device": report["device"],
        "predicted_bytes": report["predicted_bytes"], "peak_bytes": report["measured"]["peak_bytes"],
    }  # fmt: skip


def theirs(operator: PauliSum, strings: Array) -> dict[str, Any]:
    """The addon's solve."""
    from qiskit.quantum_info import SparsePauliOp
    from qiskit_addon_sqd.qubit import solve_qubit

    n = operator.n_qubits
    listed = []
    for x, z, value in operator.masks():
        qubits = [q for q in range(n) if (x | z) >> q & 1]
        letters = "".join("IXZY"[(x >> q & 1) + 2 * (z >> q & 1)] for q in qubits)
        listed.append((letters, qubits, value))
    whole = SparsePauliOp.from_sparse_list(listed, n)
    matrix = np.ascontiguousarray(strings[:, ::-1])
    solve_qubit(matrix, whole[:1], k=1, which="SA")
    begin, begin_cpu = perf_counter(), process_time()
    energies, _ = solve_qubit(matrix, whole, k=1, which="SA")
    return {
        "addon_energy": float(energies[0]), "addon_time_s": perf_counter() - begin,
        "addon_cpu_s": process_time() - begin_cpu,
    }  # fmt: skip


def measured(name: str, device: str, threads: int | None) -> dict[str, Any]:
    """One case: ours, and the addon's on a CPU where it takes the list."""
    make, n, count, reach = CASES[name]
    operator, strings = make(n), drawn(n, count, reach)
    row = {"case": name, "words": operator.n_terms, "strings": count}
    ours(operator, strings[:500], device, threads)
    row |= ours(operator, strings, device, threads)
    fits = n < 64 and operator.n_terms * count <= MOST_OF_ADDON
    if device == "cpu" and fits and find_spec("qiskit_addon_sqd") is not None:
        row |= theirs(operator, strings)
        assert abs(row["energy"] - row["addon_energy"]) < SAME, row
        row["times_faster"] = row["addon_time_s"] / row["time_s"]
        row["times_less_cpu"] = row["addon_cpu_s"] / row["cpu_s"]
    return row


def main() -> int:
    """Measure, print and store; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", default="", help="cases whose names have this text")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--threads", type=int, help="of a rank (default: all cores)")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    document = json.loads(options.output.read_text()) if options.output.exists() else {}
    rows: list[dict[str, Any]] = []
    document[f"{options.device}, {options.threads or 'all'} threads"] = {
        "date": str(date.today()), "goal": GOAL, "rows": rows,
        "environment": {**host_facts(), "commit": commit()},
    }  # fmt: skip
    for name in CASES:
        if options.case in name:
            rows.append(measured(name, options.device, options.threads))
            print(json.dumps(rows[-1]), flush=True)
            write_text(options.output, json.dumps(document, indent=1) + "\n")
    missed = options.threads == 1 and any(row.get("times_less_cpu", GOAL) < GOAL for row in rows)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
