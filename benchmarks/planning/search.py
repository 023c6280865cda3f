"""The joint search: its multiply-adds against goals, and against cotengra slicing inside its trials.

Usage: python benchmarks/planning/search.py [--case TEXT] [--seconds 600] [--workers 2] [--seeds 3]
       [--rival-seeds 5] [--paths FOLDER] [-o results.json]
Goals: those in the table, for 10 minutes on two cores and the median of 3 seeds; 100 times fewer
multiply-adds than cotengra's HyperOptimizer on zuchongzhi_n60_m24 at 2^32, and never more on any other
network, the median of 5 seeds. cotengra's figure of a seed is the best of its settings, each with all the
seconds and cores, and the trials under way when they end, which on large networks takes minutes:
`cotengra_s` has what it really took. Both are counted by the same code. Rows of other networks and efforts
in the output file stay; networks that lie beside a checkout are left out where they are absent. --paths
keeps the best path of each network.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.importers import read_any, read_network
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import save_path
from tnplan.planner.search.annealing import Effort
from tnplan.planner.search.cotengra_search import search_path
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_options import JOINT, METHODS, SearchOptions
from tnplan.planner.workloads.kings import independent_set_network, kings_cliques, kings_sites

ROOT = Path(__file__).resolve().parents[2]
DTYPE = "complex64"


@dataclass(frozen=True)
class Case:
    """One network under one limit."""

    name: str
    source: str | int
    """A file beside the checkout, a pattern in it, or the side of a King's subgraph."""
    log2_limit: int
    goal: float | None = None
    """For log10 of the joint search's multiply-adds."""
    factor: float | None = 1
    """cotengra's multiply-adds over the joint search's, at least; None where the two are not compared."""


CASES = (
    Case("peps_11x11", "paths/peps_11x11*.json", 21),
    Case("regular_84_3", "paths/regular_84_3*.json", 22),
    Case("sycamore_n53_m10", "paths/sycamore_n53_m10*.json", 22),
    Case("kings_12x12", 12, 10),
    Case("rand_50_5_a", "../shared/data/networks/rand_50_5_a.json", 18),
    Case("randreg_200_3_a", "../shared/data/networks/randreg_200_3_a.json", 20),
    Case("peps_cluster_r2_D10_a", "../shared/data/networks/peps_cluster_r2_D10_a.json", 20),
    Case("rtree_100_a", "../shared/data/networks/rtree_100_a.json", 20),
    Case("rectangular_5x7_l20", "paths/rectangular_5x7_l20*.json", 27),
    Case("sycamore_n53_m14", "paths/sycamore_n53_m14*.json", 30),
    Case("sycamore_n53_m20", "paths/sycamore_n53_m20*.json", 30, 18.6, None),
    Case("triangular_7x7_l24", "paths/triangular_7x7_l24*.json", 32, 17.7, None),
    Case("hexagonal_8x8_l18", "paths/hexagonal_8x8_l18*.json", 32, 16.6, None),
    Case("rectangular_7x7_l20", "paths/rectangular_7x7_l20*.json", 32, 17.5, None),
    Case("kings_40x40", 40, 32, 11.2, None),
    Case("zuchongzhi_n60_m24", "paths/zuchongzhi_n60_m24*.json", 32, 23.5, 100),
    Case("zuchongzhi_n60_m24", "paths/zuchongzhi_n60_m24*.json", 35, 22.5, None),
    Case("zuchongzhi_n60_m24", "paths/zuchongzhi_n60_m24*.json", 42, 21.6, None),
)
COLUMNS = ("network", "limit", "seconds", "joint", "goal", "cotengra", "cotengra / joint", "goal")


def network_of(case: Case) -> Network | None:
    """The network of a case, None where its file is absent."""
    if isinstance(case.source, int):
        return kings(case.source)
    files = sorted(ROOT.glob(case.source)) if "*" in case.source else [ROOT / case.source]
    if not files or not files[0].exists():
        return None
    return read_any(files[0])[0].network if "paths/" in case.source else read_network(files[0])[0]


def kings(size: int) -> Network:
    """Independent sets of a King's subgraph: hyper-indices on up to four tensors."""
    sites = kings_sites(size, size, density=0.8, seed=0)
    return independent_set_network(len(sites), kings_cliques(sites))[0]


def joint(network: Network, limit: int, seconds: float, workers: int, seed: int) -> ContractionPath:
    """The path that the joint search finds."""
    options = SearchOptions(
        max_tensor_elements=2**limit, effort=Effort(time_s=seconds), seed=seed, minimize="flops",
        methods=(JOINT,), n_workers=workers,
    )  # fmt: skip
    return search_path(network, DTYPE, options)


def cotengra(network: Network, limit: int, seconds: float, workers: int, seed: int) -> float:
    """log10 of the multiply-adds of the best of cotengra's settings: slicing, with reconfiguration or not."""
    from cotengra import HyperOptimizer, get_symbol

    symbols = {index: get_symbol(number) for number, index in enumerate(network.size_dict)}
    names = {symbol: index for index, symbol in symbols.items()}
    terms = [tuple(symbols[index] for index in dict.fromkeys(term)) for term in network.inputs]
    output = tuple(symbols[index] for index in network.output)
    sizes = {symbols[index]: size for index, size in network.size_dict.items()}
    slicing: dict[str, Any] = {"target_size": 2**limit, "allow_outer": False}
    best = float("inf")
    for setting in ({"slicing_opts": slicing}, {"slicing_reconf_opts": slicing}):
        random.seed(seed)
        optimizer = HyperOptimizer(
            methods=list(METHODS), minimize="flops", max_time=seconds, max_repeats=1_000_000,
            parallel=workers if workers > 1 else False, optlib="sbplx", seed=seed, on_trial_error="ignore",
            **setting,
        )  # fmt: skip
        try:
            tree = optimizer.search(terms, output, sizes)
        except (KeyError, RuntimeError, ValueError) as error:
            print(f"cotengra, {next(iter(setting))}: {error}", flush=True)
            continue
        steps = tuple(tuple(map(int, step)) for step in tree.get_ssa_path())
        sliced = tuple(names[symbol] for symbol in tree.sliced_inds)
        figures = path_cost(ContractionPath(network, steps, sliced, DTYPE))
        if figures.log2_largest <= limit + 1e-9:
            best = min(best, figures.log10_mnk_all_slices)
    return best


def measure(case: Case, network: Network, options: argparse.Namespace) -> dict[str, Any]:
    """Search one network both ways."""
    effort = (network, case.log2_limit, options.seconds, options.workers)
    paths = [joint(*effort, seed) for seed in range(options.seeds)]
    ours = [path_cost(path).log10_mnk_all_slices for path in paths]
    if options.paths:
        best = min(zip(ours, range(len(paths)), strict=True))[1]
        save_path(paths[best], options.paths / f"{case.name}_b{case.log2_limit}_flops.json")
    row: dict[str, Any] = {
        "network": case.name, "log2_limit": case.log2_limit, "seconds": options.seconds,
        "workers": options.workers, "joint_log10_mnk": ours, "goal": case.goal,
    }  # fmt: skip
    if case.factor and options.rival_seeds:
        started = time.monotonic()
        row["cotengra_log10_mnk"] = [cotengra(*effort, seed) for seed in range(options.rival_seeds)]
        row["cotengra_s"] = round((time.monotonic() - started) / options.rival_seeds, 1)
        row["factor"] = 10 ** (median(row["cotengra_log10_mnk"]) - median(ours))
        row["factor_goal"] = case.factor
    return row


def cells(row: dict[str, Any]) -> list[str]:
    """The row as it is printed."""
    compared = ["-"] * 3
    if "factor" in row:
        theirs = f"{median(row['cotengra_log10_mnk']):.3f}"
        compared = [theirs, f"{row['factor']:.3g}", f">= {row['factor_goal']:g}"]
    goal = "-" if row["goal"] is None else f"<= {row['goal']:g}"
    ours = f"{median(row['joint_log10_mnk']):.3f}"
    return [row["network"], f"2^{row['log2_limit']}", f"{row['seconds']:g}", ours, goal, *compared]


def keep(output: Path, row: dict[str, Any]) -> None:
    """Put the row into the file, in place of an earlier one of the same network, limit and effort."""
    document = json.loads(output.read_text()) if output.exists() else {"rows": []}
    same = ("network", "log2_limit", "seconds", "workers")
    rows = [old for old in document["rows"] if any(old[name] != row[name] for name in same)]
    own = {**row, "environment": {**host_facts(), "commit": commit()}}
    output.write_text(json.dumps({"rows": [*rows, own]}, indent=1) + "\n")


def chosen(text: str) -> Iterator[tuple[Case, Network]]:
    """The cases whose names and limits, as in `rand_50_5_a_b18`, contain `text` and whose files are there."""
    for case in CASES:
        if text not in f"{case.name}_b{case.log2_limit}":
            continue
        network = network_of(case)
        if network is None:
            print(f"{case.name}: no file {case.source}", flush=True)
        else:
            yield case, network


def _misses(row: dict[str, Any]) -> bool:
    """Whether a row is above its goal, or less ahead of cotengra than it should be."""
    above = row["goal"] is not None and median(row["joint_log10_mnk"]) > row["goal"]
    return above or row.get("factor", inf) < row.get("factor_goal", 0.0)


def main() -> int:
    """Search every network and print the table in Markdown; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--case", default="", help="only cases that contain this, as rand_50_5_a_b18")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3, help="of the joint search")
    parser.add_argument("--rival-seeds", type=int, default=5, help="of cotengra; 0 leaves it out")
    parser.add_argument("--paths", type=Path, help="folder for the best path of each case")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    joint(kings(12), 10, 1.0, 1, 0)  # compiles
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    rows = []
    for case, network in chosen(options.case):
        row = measure(case, network, options)
        rows.append(row)
        print("| " + " | ".join(cells(row)) + " |", flush=True)
        if options.output:
            keep(options.output, row)
    missed = any(_misses(row) for row in rows)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
