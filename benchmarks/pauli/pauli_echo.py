"""Operator Loschmidt echoes by repetitions, beside published values.

Usage: python benchmarks/pauli/pauli_echo.py CIRCUIT [--by square] [--seeds 1,2,3] [--terms 10000]
       [--device gpu] [--no-limits] [-o results.json]
CIRCUIT is an OpenQASM file of the Quantum Advantage Tracker's operator_loschmidt_echo, of 49 or 70 qubits;
the observable is Z52 Z59 Z72, averaged over inputs. Goal of 49 qubits and 648 two-qubit gates: for each seed
the value is within 0.80 to 0.83, its standard error at most 0.01.
Values by squares are biased, and the standard error is their spread alone; those by magnitude are unbiased,
with an interval or a reason why there is none: see docs/explanation/pauli.md.
The last rows have other limits of terms: what the limit does to the value; --no-limits leaves them out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from pauli import environment

import tnplan

OBSERVABLE = "Z52 Z59 Z72"
PUBLISHED = {
    648: {"belief propagation": 0.822, "single-path Monte Carlo": 0.808, "quantum hardware": 0.824},
    1296: {"belief propagation": 0.882, "single-path Monte Carlo": 0.619, "quantum hardware": 0.662},
    1872: {"belief propagation": 0.874, "single-path Monte Carlo": 0.614, "quantum hardware": 0.673},
}
"""Of the tracker's submissions of November 2025, without rescaling, by the number of two-qubit gates."""
LOW, HIGH, STANDARD_ERROR = 0.80, 0.83, 0.01
OTHER_LIMITS = ((1, 256), (100, 128), (1000, 64), (100000, 4))
"""Terms and repetitions."""

GOAL_GATES = 648
"""Gates on two qubits of the circuit that has a goal."""


def row(circuit: Any, terms: int, plan: tnplan.MonteCarlo, device: str) -> dict[str, Any]:
    """One estimate, printed."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    done = tnplan.propagate(
        circuit, OBSERVABLE, tnplan.Truncation(max_terms=terms), overlap=OBSERVABLE, monte_carlo=plan,
        device=device,
    )  # fmt: skip
    time_s, cpu_s = time.perf_counter() - begin, time.process_time() - begin_cpu
    found = done.estimate
    assert found is not None
    is_met = LOW <= found.value <= HIGH and found.standard_error <= STANDARD_ERROR
    print(
        f"seed {plan.seed}, at most {terms:>7} terms, {plan.repetitions} repetitions: {found}; "
        f"{cpu_s:.1f} s of processors, {time_s:.1f} s by the clock", flush=True,
    )  # fmt: skip
    return {
        "seed": plan.seed, "by": plan.by, "terms": terms, "repetitions": plan.repetitions,
        "value": found.value, "standard_error": found.standard_error, "low": found.low, "high": found.high,
        "goal_met": is_met,
        "largest_terms": done.report["largest_terms"], "processor_s": cpu_s, "time_s": time_s,
    }  # fmt: skip


def main() -> int:
    """Print a table and write it; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("circuit", type=Path)
    parser.add_argument("--by", choices=("square", "magnitude"), default="square")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--terms", type=int, default=10000)
    parser.add_argument("--repetitions", type=int, default=16)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--no-limits", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    circuit = tnplan.load_circuit(options.circuit)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    n_gates = sum(len(gate.qubits) == 2 for gate in circuit.gates)
    published = PUBLISHED.get(n_gates)
    print(f"published: {published}")
    plan = tnplan.MonteCarlo(options.repetitions, seeds[0], options.by)
    rows = [row(circuit, options.terms, replace(plan, seed=seed), options.device) for seed in seeds]
    others = () if options.no_limits else OTHER_LIMITS
    limits = [row(circuit, terms, replace(plan, repetitions=n), options.device) for terms, n in others]
    report = {
        "date": date.today().isoformat(), "environment": environment(options.device), "published": published,
        "seeds": rows, "other_limits": limits,
    }  # fmt: skip
    if options.output is not None:
        options.output.write_text(json.dumps(report, indent=1) + "\n")
    missed = n_gates == GOAL_GATES and not all(row["goal_met"] for row in rows)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
