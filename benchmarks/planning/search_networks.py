"""The joint search on networks that are not circuits, against cotengra and nested dissection, one core each.

Usage: python benchmarks/planning/search_networks.py [--case TEXT] [--seconds 60] [--seeds 3] [--limits]
       [--jobs 2] [--stop-after 540] [-o results.json]
Goals: log10 of the multiply-adds never more than 0.3 above the best rival's, and below it in the median of
all networks; after 5 seconds within 1.0 of the best rival's; with --limits, a largest tensor of 4 and 10
bits less costs at most 2^4 and 2^10 times what the tree without a limit costs, as it is planned: work shared
between slices counts once. With every slice made apart it is the figure in brackets.
The first eight of SEVERAL_SEEDS get so many seeds, the others one.
Rivals, each with all the seconds: cotengra's hyper-optimizer over greedy, random-greedy, labels and kahypar
with its reconfiguration of sub-trees; METIS's nested dissection of the line graph, its separators last, and
min-fill between (packages kahypar, optuna and pymetis). The trial under way at the end counts where
it ends within 4 times the seconds. All are counted by the same code. A dash stands for a rival that finished
no trial. Every search is a process of its own, and --jobs of them run at once. Searches that the output file
holds are not done again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from threading import Lock
from typing import Any, NamedTuple

from networks import NETWORKS
from search_rivals import DTYPE, cotengra, dissection

from tnplan import warmup
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.planner.search.annealing import Effort
from tnplan.planner.search.cotengra_search import search_path
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_options import JOINT, SearchOptions

QUICK_S = 5.0
BITS_AWAY = (4, 10)
PATIENCE = 4
SEVERAL_SEEDS = (
    "kings_40_d0.8", "queens_20", "queens_28", "regular_1000", "erdos_renyi_1000", "sat_300_r3.6",
    "surface_21", "cubic_8x8x8",
)  # fmt: skip
RIVALS = {"cotengra": cotengra, "dissection": dissection}
COLUMNS = ("network", "tensors", "ours, 5 s", "ours", "width", "cotengra", "dissection", "above the best")

Found = dict[str, float]


class Task(NamedTuple):
    """One search: by which means, how long, and the most elements of a tensor, as log2 (0: no limit)."""

    network: str
    method: str
    seconds: float
    seed: int
    log2_limit: int = 0


def search(task: Task) -> Found | None:
    """Costs of what a search finds, None where it finds nothing."""
    network = NETWORKS[task.network]()
    if task.method in RIVALS:
        cost = RIVALS[task.method](network, task.seconds, task.seed)
        return None if cost is None else {"log10_products": cost}
    return joint(task)


def joint(task: Task) -> Found:
    """Costs of what the joint search finds."""
    limit = 2**task.log2_limit if task.log2_limit else None
    options = SearchOptions(
        max_tensor_elements=limit, effort=Effort(time_s=task.seconds), seed=task.seed, minimize="flops",
        methods=(JOINT,),
    )  # fmt: skip
    path = search_path(NETWORKS[task.network](), DTYPE, options)
    cost = path_cost(path)
    return {
        "log10_products": cost.log10_mnk_all_slices, "log2_largest": cost.log2_largest,
        "log10_planned": path.meta["log10_mnk_planned"],
    }  # fmt: skip


def run(task: Task) -> Found | None:
    """What a search finds in a process of its own, which is ended after PATIENCE times the seconds."""
    context = get_context("spawn")
    here, there = Pipe()
    process = context.Process(target=_send, args=(there, task))
    process.start()
    there.close()
    try:
        found: Found | None = here.recv() if here.poll(PATIENCE * task.seconds + 60) else None
    except EOFError:
        found = None
    process.kill()
    process.join()
    return found


def _send(there: Connection, task: Task) -> None:
    there.send(search(task))


class Results:
    """What was found, kept in a file after every search."""

    def __init__(self, output: Path | None) -> None:
        self.output = output
        self.lock = Lock()
        rows = json.loads(output.read_text())["searches"] if output and output.exists() else []
        self.rows: dict[Task, dict[str, Any]] = {Task(*row["task"]): row for row in rows}

    def add(self, task: Task, found: Found | None) -> None:
        """Keep a result and write all of them."""
        with self.lock:
            self.rows[task] = {"task": list(task), "found": found}
            print(*task, found, flush=True)
            if self.output:
                document = {
                    "environment": {**host_facts(), "commit": commit()},
                    "searches": [self.rows[one] for one in sorted(self.rows)],
                }
                self.output.write_text(json.dumps(document, indent=1) + "\n")

    def values(self, name: str, method: str, seconds: float, seeds: int, field: str) -> list[float]:
        """Of every seed that found something."""
        rows = [self.rows.get(Task(name, method, seconds, seed)) for seed in range(seeds)]
        return [row["found"][field] for row in rows if row and row["found"]]


def do_all(tasks: list[Task], results: Results, jobs: int, ends: float) -> None:
    """Do what is not done yet; begins no search that would end too late."""

    def work(task: Task) -> None:
        if time.monotonic() + task.seconds < ends:
            results.add(task, run(task))

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(work, [task for task in tasks if task not in results.rows]))


def unlimited(names: list[str], seconds: float, seeds: int) -> list[Task]:
    """Searches without a limit, the rivals of large networks first, since their last trial may take long."""
    tasks = []
    for name in names:
        for seed in range(n_seeds(name, seeds)):
            tasks += [Task(name, rival, seconds, seed) for rival in RIVALS]
            tasks += [Task(name, "joint", seconds, seed), Task(name, "joint", QUICK_S, seed)]
    return sorted(tasks, key=lambda task: (task.method == "joint", -task.seconds))


def limited(names: list[str], seconds: float, results: Results) -> list[Task]:
    """Searches with limits of some bits less than the width of what was found without."""
    tasks = []
    for name in names:
        for width in results.values(name, "joint", seconds, 1, "log2_largest"):
            tasks += [Task(name, "joint", seconds, 0, max(round(width) - bits, 1)) for bits in BITS_AWAY]
    return tasks


def n_seeds(name: str, seeds: int) -> int:
    """How many seeds a network gets."""
    return seeds if name in SEVERAL_SEEDS else 1


def cells(name: str, seconds: float, seeds: int, results: Results) -> tuple[list[str], float | None]:
    """The row of a network as it is printed, and how far it is above the best rival."""
    many = n_seeds(name, seeds)
    found = {
        method: results.values(name, method, seconds, many, "log10_products") for method in ("joint", *RIVALS)
    }
    quick = results.values(name, "joint", QUICK_S, many, "log10_products")
    width = results.values(name, "joint", seconds, many, "log2_largest")
    best = min((median(found[rival]) for rival in RIVALS if found[rival]), default=None)
    above = median(found["joint"]) - best if best is not None and found["joint"] else None
    shown = (
        "-" if above is None or best is None or not quick else f"{above:+.2f} ({median(quick) - best:+.2f})"
    )
    numbers = [quick, found["joint"], width, *(found[rival] for rival in RIVALS)]
    row = [
        name,
        str(len(NETWORKS[name]().inputs)),
        *(f"{median(n):.2f}" if n else "-" for n in numbers),
        shown,
    ]
    whole = results.values(name, "joint", seconds, 1, "log10_products")
    for task in limited([name], seconds, results):
        kept = results.rows.get(task, {}).get("found")
        if kept:
            factors = [(kept[one] - whole[0]) / 0.30103 for one in ("log10_planned", "log10_products")]
            row.append("{:.1f} ({:.1f})".format(*factors))
        else:
            row.append("-")
    return row, above


MOST_ABOVE = 0.3
"""Above the best rival, in log10 of the multiply-adds."""


def main() -> int:
    """Search every network and print the table in Markdown; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--case", default="", help="only networks whose names contain this")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--limits", action="store_true", help="also with limits of 4 and 10 bits less")
    parser.add_argument("--jobs", type=int, default=1, help="searches at once")
    parser.add_argument(
        "--stop-after", type=float, default=1e9, help="begin no search that ends after these seconds"
    )
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    missing = [name for name in ("kahypar", "optuna", "pymetis") if find_spec(name) is None]
    if missing:
        parser.error(f"packages of the rivals are missing: {', '.join(missing)}")
    warmup(device="cpu")
    os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"
    ends = time.monotonic() + options.stop_after
    names = [name for name in NETWORKS if options.case in name]
    results = Results(options.output)
    do_all(unlimited(names, options.seconds, options.seeds), results, options.jobs, ends)
    if options.limits:
        do_all(limited(names, options.seconds, results), results, options.jobs, ends)
    columns = COLUMNS + tuple(f"2^-{bits}" for bits in BITS_AWAY)
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)
    rows = [cells(name, options.seconds, options.seeds, results) for name in names]
    for row, _ in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    above = [value for _, value in rows if value is not None]
    if above:
        print(
            f"above the best: {max(above):+.2f} at most, {median(above):+.2f} in the median of {len(above)}"
        )
    missed = bool(above) and (max(above) > MOST_ABOVE or median(above) > 0)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
