"""Amplitudes of many bit strings in one contraction: operations against one amplitude, and a batch's time.

    python benchmarks/contraction/many_amplitudes.py operations [--time 60] [--values] [-o results.json]
    python benchmarks/contraction/many_amplitudes.py patch [--threads 2] [-o results.json]
    python benchmarks/contraction/many_amplitudes.py turns [--strings 1000] [--gates cz] [--seed 0]

`operations`: 2^10 and 2^16 strings of `tnplan workload sycamore --cycles 10`, all values of the last qubits
and random ones, counted without a limit of memory. With `--values` the former are contracted within 4 GB, and
three are compared with single amplitudes. Goal: 16 and 300 times the multiply-adds of one amplitude on the
best known path. `patch`: 10,000 random strings of `tnplan workload
sycamore --qubits 30 --cycles 14`, from a file. Goal: 2 minutes on two cores. `turns`: random strings of 30
qubits on a 5 x 6 lattice, 14 layers of random rotations and one kind of gates, one core; single strings, all
together with their search, and single strings again, in processor seconds. Goal: 0.2 of the time one by one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from calls import environment
from shared import PATHS, RESULTS

from tnplan.common.files import write_text
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.sparse_state import distinct_strings
from tnplan.planner.workloads.sycamore import sycamore_circuit
from tnplan.questions.tensor_networks.amplitudes import amplitudes
from tnplan.questions.tensor_networks.sparse_state import SparseState

GOALS = {10: 16.0, 16: 300.0}
"""Operations in those of one amplitude, by log2 of the number of strings."""
GOAL_S = 120.0
STRINGS = 10_000
CHECKED = 3
SINGLES = 4
MEMORY, UNLIMITED = 4e9, 1e18
TOLERANCE = 1e-5

Row = dict[str, Any]


def last_values(n_qubits: int, bits: int) -> np.ndarray:
    """All values of the last qubits, the others on 0."""
    strings = np.zeros((2**bits, n_qubits), np.uint8)
    strings[:, n_qubits - bits :] = list(product((0, 1), repeat=bits))
    return strings


def random_strings(n_qubits: int, count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2, (count, n_qubits), dtype=np.uint8)


def operations(search_s: float, bits: int, kind: str, values: bool) -> Row:
    """The multiply-adds of a batch of 2^bits strings in those of one amplitude."""
    circuit = sycamore_circuit(10, 0)
    one = 10 ** path_cost(load_path(PATHS / "sycamore_n53_m10_unsliced_flops.json")).log10_mnk_all_slices
    make = {"last qubits": lambda: last_values(53, bits), "random": lambda: random_strings(53, 2**bits)}
    strings = distinct_strings(make[kind]())[0]
    memory = MEMORY if values else UNLIMITED
    options = ContractionOptions(precision="fp32", device="cpu", memory=memory, search_s=search_s)
    state = SparseState(circuit, strings, options)
    row: Row = {
        "strings": len(strings), "which": kind, "products": float(state.plan.products),
        "in_one_amplitude": state.plan.products / one, "goal": GOALS[bits], "slices": state.plan.n_slices,
        "log2_largest": float(np.log2(state.plan.largest)), "search_s": search_s,
    }  # fmt: skip
    if values:
        start = time.perf_counter()
        found = state.amplitudes()
        row["run_s"] = time.perf_counter() - start
        chosen = np.random.default_rng(1).choice(len(strings), CHECKED, replace=False)
        single = [amplitudes(circuit, strings[[number]], options)[0] for number in chosen]
        scale = float(np.sqrt(np.mean(np.abs(found) ** 2)))
        row["error"] = float(np.abs(found[chosen] - single).max()) / scale
    return row


def patch(threads: int) -> Row:
    """The time of 10,000 strings from a file, the search among it."""
    circuit = sycamore_circuit(14, 0, 30)
    options = ContractionOptions(precision="fp32", device="cpu", threads=threads, memory=MEMORY)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "strings.txt"
        rows = random_strings(30, STRINGS)
        file.write_text("".join("".join(map(str, row)) + "\n" for row in rows.tolist()))
        start, cpu = time.perf_counter(), time.process_time()
        strings = np.array([list(map(int, line)) for line in file.read_text().split()], np.uint8)
        distinct, inverse = distinct_strings(strings)
        state = SparseState(circuit, distinct, options)
        planned, planned_cpu = time.perf_counter() - start, time.process_time() - cpu
        found = state.amplitudes()[inverse]
        whole, whole_cpu = time.perf_counter() - start, time.process_time() - cpu
    single = amplitudes(circuit, strings[:1], options)[0]
    return {
        "strings": STRINGS, "threads": threads, "products": float(state.plan.products),
        "slices": state.plan.n_slices, "plan_s": planned, "plan_cpu_s": planned_cpu, "time_s": whole,
        "cpu_s": whole_cpu, "goal_s": GOAL_S, "mean_p_2^n": float((np.abs(found) ** 2).mean() * 2**30),
        "error": float(abs(found[0] - single) * 2**15),
    }  # fmt: skip


def turns(n_strings: int, gates: str, seed: int) -> Row:
    """All strings together, search and all, beside some of them one by one along a path that is known."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.support.circuit_families import rotations_and

    circuit = rotations_and(gates, 5, 6, 14, seed)
    strings = np.random.default_rng(seed + 100).integers(0, 2, (n_strings, 30), dtype=np.uint8)
    options = ContractionOptions(precision="fp32", device="cpu", threads=1, memory=MEMORY)

    def timed(bits: np.ndarray) -> tuple[np.ndarray, float]:
        start = time.process_time()
        return amplitudes(circuit, bits, options), time.process_time() - start

    timed(strings[:1])
    before = [timed(strings[[number]]) for number in range(SINGLES)]
    together, all_s = timed(strings)
    after = [timed(strings[[number]]) for number in range(SINGLES)]
    single_s = min(seconds for _, seconds in before + after)
    error = max(abs(value[0] - together[number]) for number, (value, _) in enumerate(before)) * 2**15
    return {
        "strings": n_strings, "gates": gates, "seed": seed, "together_s": all_s, "single_s": single_s,
        "ratio": all_s / (n_strings * single_s), "goal": 0.2, "error": float(error),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["operations", "patch", "turns"])
    parser.add_argument("--strings", type=int, default=1000)
    parser.add_argument("--gates", choices=["cz", "fs"], default="cz")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time", type=float, default=60.0, help="seconds of each search")
    parser.add_argument("--values", action="store_true", help="contract too, within 4 GB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-o", "--output", default=None)
    options = parser.parse_args()
    rows: list[Row] = []
    if options.what == "patch":
        rows.append(patch(options.threads))
    elif options.what == "turns":
        rows.append(turns(options.strings, options.gates, options.seed))
    else:
        for bits, kind in product(GOALS, ("last qubits", "random")):
            rows.append(operations(options.time, bits, kind, options.values and kind != "random"))
            print(json.dumps(rows[-1]), flush=True)
    name = f"many_amplitudes_{options.what}.json"
    document = {"date": time.strftime("%Y-%m-%d"), "environment": environment("cpu"), "rows": rows}
    write_text(Path(options.output or RESULTS / name), json.dumps(document, indent=1) + "\n")
    print(json.dumps(rows[-1]))
    return 0 if all(row.get("error", 0.0) <= TOLERANCE for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
