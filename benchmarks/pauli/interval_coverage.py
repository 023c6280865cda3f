"""How often the 95 % intervals of repetitions hold the dense value, over random circuits of several families.

Usage, from the root of a checkout:
       OMP_NUM_THREADS=1 python benchmarks/pauli/interval_coverage.py QUESTION FIRST LAST
       [--each lines.jsonl]
QUESTION is bits, product, overlap or echo, see tests/support/engines/sampled_circuits.py. Each seed from
FIRST to LAST is a circuit, or none if that has too few terms. A trial is one circuit with its repetitions. It
counts where an interval is given.
Goal: a coverage of 0.95, or below it by binomial spread alone (`chance`, that of so few hits or fewer at
0.95, is at least 0.05), over 200 intervals or more whose seeds no rule was fitted to.
Prints a line a family and one of all: circuits whose terms are resampled, intervals, those that hold the
dense value, and the same of those that are vacuous. With --each it also writes a line of JSON for every
circuit that is resampled.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tnplan.executor.pauli.estimate import CONFIDENCE

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.support.engines.sampled_circuits import (
    FAMILIES,
    QUESTIONS,
    chance_of_fewer,
    estimated,
    sampled_case,
)

ROUNDING = 1e-10
LEAST_CHANCE = 0.05
"""Fewer intervals hold than chance explains where theirs is below this."""
Row = dict[str, Any]


def row(question: str, seed: int) -> Row | None:
    """What one circuit gives; None where it has too few terms, or where nothing is resampled."""
    case = sampled_case(question, "magnitude", seed)
    found = None if case is None else estimated(case)
    if case is None or found is None or found.kind == "exact":
        return None
    sampled, is_interval = case.sampled, found.low is not None and found.high is not None
    return {
        "seed": seed, "family": case.family, "qubits": sampled.terms.n_qubits, "limit": sampled.most_terms,
        "terms": case.largest, "repetitions": sampled.plan.repetitions, "exact": case.exact,
        "value": found.value, "standard_error": found.standard_error, "low": found.low, "high": found.high,
        "text": found.text, "is_vacuous": is_interval and bool(found.doubt),
        "is_hit": is_interval and abs(found.value - case.exact) <= (found.half_width or 0.0) + ROUNDING,
        "values": found.values,
    }  # fmt: skip


def line(name: str, rows: Iterable[Row]) -> str:
    """The counts of a family, or of all."""
    every = list(rows)
    given = [one for one in every if one["low"] is not None]
    n, hits = len(given), sum(one["is_hit"] for one in given)
    vacuous = [one["is_hit"] for one in given if one["is_vacuous"]]
    text = f"{name:15} resampled {len(every):4}, intervals {n:4}, hold {hits:4}"
    if n:
        text += f" ({hits / n:.3f}, chance {chance_of_fewer(hits, n, CONFIDENCE):.2g})"
    return f"{text}, of those vacuous {sum(vacuous)} of {len(vacuous)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line a family, and one of all; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--each", type=Path)
    options = parser.parse_args(arguments)
    rows = []
    for seed in range(options.first, options.last + 1):
        one = row(options.question, seed)
        if one is None:
            continue
        rows.append(one)
        if options.each is not None:
            with options.each.open("a") as file:
                file.write(json.dumps(one) + "\n")
    for family in (each.__name__ for each in FAMILIES):
        print(line(family, (one for one in rows if one["family"] == family)))
    print(line("all", rows))
    given = [each["is_hit"] for each in rows if each["low"] is not None]
    missed = bool(given) and chance_of_fewer(sum(given), len(given), CONFIDENCE) < LEAST_CHANCE
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
