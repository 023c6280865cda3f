"""How near estimates are to the seconds of what is random: samples by rejection, and Monte Carlo propagation.

    tnplan calibrate --base cpu --device cpu -o my.toml
    python benchmarks/planning/sampled_estimates.py --hardware my.toml [--threads 1,4,16] [-o F]

Samples of random circuits on lattices are drawn on one thread. Threads share the repetitions of kicked Ising
circuits. Seconds are those of the clock: run it on a quiet machine. The first call of repetitions is left
out, so that kernels are loaded. That of samples is not, since it makes its plan each time.
Goals: within the factor that the estimate says; candidates of rejection within 1.5 of the prediction.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import tnplan
from tnplan.planner.workloads.dynamics import kicked_ising
from tnplan.planner.workloads.lattice import lattice_circuit
from tnplan.questions.tensor_networks.sample import expected_rounds

RESULTS = Path(__file__).parents[1] / "results" / "planning" / "sampled_estimates.json"
SAMPLES = (
    (3, 3, 16, 20_000, 0, 1.0), (4, 4, 12, 200, 0, 1.0), (4, 4, 12, 200, 6, 1.0), (4, 5, 12, 1000, 0, 1.0),
    (4, 5, 12, 4000, 4, 1.0), (4, 5, 12, 500, 4, 0.1), (4, 6, 10, 1000, 8, 1.0), (5, 5, 8, 500, 0, 1.0),
    (5, 6, 8, 300, 8, 0.05),
)  # fmt: skip
"""Rows and columns of a lattice, layers, shots, open qubits and fidelity."""
REPEATED = (
    (12, 8, 2000, 16), (20, 10, 20_000, 16), (30, 10, 5000, 32), (40, 6, 200, 64), (40, 12, 50_000, 16)
)  # fmt: skip
"""Qubits of a line, steps, most terms and repetitions."""


def samples(hardware: str) -> Iterator[dict[str, Any]]:
    """The rows of samples by rejection."""
    for rows, columns, layers, shots, n_open, fidelity in SAMPLES:
        circuit = tnplan.Circuit(lattice_circuit("rectangular", rows, columns, layers, 0))
        how: dict[str, Any] = {
            "sampling": "rejection", "open_qubits": n_open, "fidelity": fidelity, "method": "contraction",
            "threads": 1,
        }  # fmt: skip
        cost = circuit.estimate(sample=shots, hardware=hardware, **how).rows[0].cost
        begin = time.perf_counter()
        found = circuit.sample(shots, seed=1, device="cpu", **how)
        yield {
            "circuit": f"{rows}x{columns}, {layers} layers", "shots": shots, "open_qubits": n_open,
            "fidelity": fidelity, "candidates": found.details["candidates"],
            "predicted_candidates": sum(expected_rounds(shots)),
            **_compared(cost, time.perf_counter() - begin),
        }  # fmt: skip


def repeated(hardware: str, threads: list[int]) -> Iterator[dict[str, Any]]:
    """The rows of Monte Carlo propagation."""
    for n_qubits, steps, most, repetitions in REPEATED:
        circuit = tnplan.Circuit(kicked_ising("line", n_qubits, steps, 0.4, -0.7))
        word = f"Z{n_qubits // 2}"
        how: dict[str, Any] = {
            "truncation": tnplan.Truncation(max_terms=most), "method": "pauli",
            "monte_carlo": tnplan.MonteCarlo(repetitions, 1),
        }  # fmt: skip
        for count in threads:
            cost = circuit.estimate(expectation=word, hardware=hardware, threads=count, **how).rows[0].cost
            circuit.expectation(word, device="cpu", threads=count, **how)
            begin = time.perf_counter()
            found = circuit.expectation(word, device="cpu", threads=count, **how)
            yield {
                "circuit": f"kicked {n_qubits}, {steps} steps", "most_terms": most,
                "repetitions": repetitions, "threads": count, "value": found.value, "error": found.error,
                **_compared(cost, time.perf_counter() - begin),
            }  # fmt: skip


def _compared(cost: Any, time_s: float) -> dict[str, float]:
    """Predicted and measured seconds, by what factor they differ, and what factor was stated."""
    off = max(cost.time_s / time_s, time_s / cost.time_s)
    return {"predicted_s": cost.time_s, "time_s": time_s, "off": off, "factor": cost.factor}


def _misses(row: dict[str, Any]) -> bool:
    """Whether the seconds or the candidates are further off than the goals."""
    ratio = row.get("candidates", 1.0) / row.get("predicted_candidates", 1.0)
    return row["off"] > row["factor"] or not 1 / MOST_OFF <= ratio <= MOST_OFF


MOST_OFF = 1.5
"""The factor between candidates and their prediction."""


def main() -> int:
    """Run all, and write the figures after each row; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hardware", default="cpu")
    parser.add_argument("--threads", type=lambda text: [int(one) for one in text.split(",")], default=[1])
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    document: dict[str, Any] = {
        "date": date.today().isoformat(), "cores": os.cpu_count(), "load": os.getloadavg()[0],
        "goal": "within the stated factor; candidates within 1.5", "rejection": [], "repetitions": [],
    }  # fmt: skip
    for name, rows in (
        ("rejection", samples(given.hardware)), ("repetitions", repeated(given.hardware, given.threads))
    ):  # fmt: skip
        for row in rows:
            print(row, flush=True)
            document[name].append(row)
            given.output.write_text(json.dumps(document, indent=1) + "\n")
    missed = any(_misses(row) for name in ("rejection", "repetitions") for row in document[name])
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
