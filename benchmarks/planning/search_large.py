"""The joint search on networks of 10,000 to 100,000 tensors: when it has paths, how good, and its memory.

Usage: python benchmarks/planning/search_large.py [--case TEXT] [-o results.json]
Goals: the first path of 10,000 tensors within a second, and no more memory than 12 kB a tensor. Every search
is a process of its own, one after the other, with the kernels compiled. Seconds of the columns are those of
the core; those asked for are of the clock. The columns with paths have log10 of their multiply-adds.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from math import inf
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from networks import erdos_renyi, kings_subgraph, lattice, regular

from tnplan import warmup
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.search.annealing import Effort
from tnplan.planner.search.cotengra_search import search_path
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_options import JOINT, SearchOptions

NETWORKS: dict[str, Callable[[], Network]] = {
    "square_100x100": lambda: lattice(100, 100),
    "cubic_22x22x21": lambda: lattice(22, 22, 21),
    "regular_10000": lambda: regular(10_000, 5),
    "erdos_renyi_10000": lambda: erdos_renyi(10_000, 2.5, 1),
    "kings_50_d0.9": lambda: kings_subgraph(50, 0.9, 1),
    "square_316x316": lambda: lattice(316, 316),
    "square_20x5000": lambda: lattice(20, 5000),
    "regular_100000": lambda: regular(100_000, 5),
}
SECONDS = 1.0, 10.0
DTYPE = "complex64"
COLUMNS = ("network", "tensors", "asked, s", "first path, s", "first", "after 1 s", "end", "took, s", "MB")


def search(name: str, seconds: float) -> dict[str, Any]:
    """One search without a limit: its paths by the time at which they were told."""
    network = NETWORKS[name]()
    warmup(device="cpu")
    before_mb = _peak_mb()
    told: list[tuple[float, float, ContractionPath]] = []
    options = SearchOptions(effort=Effort(time_s=seconds), minimize="flops", methods=(JOINT,))
    began, cpu_began = time.monotonic(), time.process_time()

    def cpu_s() -> float:
        return time.process_time() - cpu_began

    path = search_path(network, DTYPE, options, lambda at, found: told.append((at, cpu_s(), found)))
    took_s, took_cpu_s = time.monotonic() - began, cpu_s()
    peak_mb = _peak_mb()
    early = [found for _, at_cpu, found in told if at_cpu <= 1.0]
    costs = {"first": told[0][2], "after_1_s": early[-1] if early else None, "end": path}
    return {
        "network": name, "tensors": len(network.inputs), "seconds": seconds,
        "first_s": round(told[0][0], 2), "first_cpu_s": round(told[0][1], 2), "took_s": round(took_s, 2),
        "took_cpu_s": round(took_cpu_s, 2), "search_mb": round(peak_mb - before_mb),
        **{
            f"log10_{when}": None if one is None else round(path_cost(one).log10_mnk_all_slices, 3)
            for when, one in costs.items()
        },
    }  # fmt: skip


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _send(there: Connection, name: str, seconds: float) -> None:
    there.send(search(name, seconds))


def run(name: str, seconds: float) -> dict[str, Any]:
    """A search in a process of its own."""
    here, there = Pipe()
    process = get_context("spawn").Process(target=_send, args=(there, name, seconds))
    process.start()
    there.close()
    row: dict[str, Any] = here.recv()
    process.join()
    return row


FIRST_WITHIN, FIRST_S, MOST_BYTES = 11_000, 1.0, 12_000
"""Goals: tensors of which the first path is there in these seconds, and bytes a tensor."""


def main() -> int:
    """Search every network and print the table in Markdown; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--case", default="", help="only networks whose names contain this")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS), flush=True)
    rows = []
    for name in NETWORKS:
        for seconds in SECONDS if options.case in name else ():
            row = run(name, seconds)
            rows.append(row)
            fields = (
                "network", "tensors", "seconds", "first_cpu_s", "log10_first", "log10_after_1_s", "log10_end",
                "took_cpu_s", "search_mb",
            )  # fmt: skip
            print("| " + " | ".join(str(row[field]) for field in fields) + " |", flush=True)
            if options.output:
                document = {"environment": {**host_facts(), "commit": commit()}, "searches": rows}
                options.output.write_text(json.dumps(document, indent=1) + "\n")
    missed = any(
        row["search_mb"] * 1e6 > MOST_BYTES * row["tensors"]
        or (row["tensors"] <= FIRST_WITHIN and (row["first_cpu_s"] or inf) > FIRST_S)
        for row in rows
    )
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
