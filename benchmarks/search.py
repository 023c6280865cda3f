"""The joint search against cotengra's HyperOptimizer with slicing in its trials: same seconds, one worker.

Usage: python benchmarks/search.py [--case TEXT] [--seconds 30] [--seeds 1] [-o results.json]
Goal: 100 times fewer multiply-adds on zuchongzhi_n60_m24 at 2^32, never more on any other network. The goals
of the joint search alone are for 10 minutes and the median of 3 seeds: --seconds 600 --seeds 3.
cotengra's figure is the best of its settings, each with all the seconds and the trial under way when they
end, which on large networks takes minutes; `cotengra_s` has what they took together. Both are medians over
seeds and counted by the same code. Networks that lie beside a checkout are left out where they are absent.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from executor.contraction.record import commit
from executor.device.host import host_facts
from planner.networks.contraction_path import ContractionPath
from planner.networks.importers import read_any, read_network
from planner.networks.network import Network
from planner.search.cotengra_search import JOINT, METHODS, Effort, search_path
from planner.search.figures import path_figures

ROOT = Path(__file__).resolve().parent.parent
FACTOR_N60 = 100
CASES = (
    # name, file with the network, log2 of the limit, goal for log10 of the multiply-adds in 10 minutes
    ("peps_11x11", "paths/peps_11x11*.json", 21, None),
    ("regular_84_3", "paths/regular_84_3*.json", 22, None),
    ("sycamore_n53_m10", "paths/sycamore_n53_m10*.json", 22, None),
    ("kings_12x12", None, 10, None),
    ("rand_50_5_a", "../shared/data/networks/rand_50_5_a.json", 18, None),
    ("randreg_200_3_a", "../shared/data/networks/randreg_200_3_a.json", 20, None),
    ("peps_cluster_r2_D10_a", "../shared/data/networks/peps_cluster_r2_D10_a.json", 20, None),
    ("sycamore_n53_m20", "paths/sycamore_n53_m20*.json", 30, 18.6),
    ("triangular_7x7_l24", "paths/triangular_7x7_l24*.json", 32, 17.7),
    ("hexagonal_8x8_l18", "paths/hexagonal_8x8_l18*.json", 32, 16.6),
    ("rectangular_7x7_l20", "paths/rectangular_7x7_l20*.json", 32, 17.5),
    ("zuchongzhi_n60_m24", "paths/zuchongzhi_n60_m24*.json", 32, 23.5),
)
COLUMNS = ("network", "limit", "joint", "cotengra", "cotengra / joint", "goal")


def networks(text: str) -> Iterator[tuple[str, Network, int, float | None]]:
    """The cases whose names contain `text` and whose files are there."""
    for name, pattern, limit, goal in CASES:
        if text not in name:
            continue
        if pattern is None:
            yield name, kings(12), limit, goal
            continue
        files = sorted(ROOT.glob(pattern)) if "*" in pattern else [ROOT / pattern]
        files = [file for file in files if file.exists()]
        if not files:
            print(f"{name}: no file {pattern}", flush=True)
            continue
        read = read_any(files[0])[0].network if "paths/" in pattern else read_network(files[0])[0]
        yield name, read, limit, goal


def kings(size: int) -> Network:
    """Independent sets of a King's subgraph: hyper-indices on up to four tensors."""
    from planner.workloads.kings import independent_set_network, kings_cliques, kings_sites

    sites = kings_sites(size, size, density=0.8, seed=0)
    return independent_set_network(len(sites), kings_cliques(sites))[0]


def joint(network: Network, limit: int, seconds: float, seed: int) -> float:
    """log10 of the multiply-adds that the joint search finds."""
    path = search_path(
        network, "complex64", max_tensor_elements=2**limit, effort=Effort(time_s=seconds), seed=seed,
        minimize="flops", methods=(JOINT,),
    )  # fmt: skip
    return path_figures(path).log10_mnk_all_slices


def cotengra(network: Network, limit: int, seconds: float, seed: int) -> float:
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
            methods=list(METHODS), minimize="flops", max_time=seconds, max_repeats=1_000_000, parallel=False,
            optlib="sbplx", seed=seed, on_trial_error="ignore", **setting,
        )  # fmt: skip
        try:
            tree = optimizer.search(terms, output, sizes)
        except (KeyError, RuntimeError, ValueError) as error:
            print(f"cotengra, {next(iter(setting))}: {error}", flush=True)
            continue
        steps = tuple(tuple(map(int, step)) for step in tree.get_ssa_path())
        sliced = tuple(names[symbol] for symbol in tree.sliced_inds)
        figures = path_figures(ContractionPath(network, steps, sliced, "complex64"))
        if figures.log2_largest <= limit + 1e-9:
            best = min(best, figures.log10_mnk_all_slices)
    return best


def main() -> None:
    """Search every network both ways and print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--case", default="", help="only networks whose name contains this")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    joint(kings(4), 4, 1.0, 0)  # compiles
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    rows = []
    for name, network, limit, goal in networks(options.case):
        seeds = range(options.seeds)
        ours = [joint(network, limit, options.seconds, seed) for seed in seeds]
        started = time.monotonic()
        theirs = [cotengra(network, limit, options.seconds, seed) for seed in seeds]
        cotengra_s = round((time.monotonic() - started) / options.seeds, 1)
        factor = 10 ** (median(theirs) - median(ours))
        wanted = f"{FACTOR_N60} times" if name == "zuchongzhi_n60_m24" else "never worse"
        wanted += f"; joint {goal} in 10 minutes" if goal else ""
        cells = (
            name, f"2^{limit}", f"{median(ours):.3f}", f"{median(theirs):.3f}", f"{factor:.3g}", wanted,
        )  # fmt: skip
        print("| " + " | ".join(cells) + " |", flush=True)
        found = {"joint_log10_mnk": ours, "cotengra_log10_mnk": theirs}
        rows.append(
            {
                "network": name,
                "log2_limit": limit,
                **found,
                "cotengra_s": cotengra_s,
                "factor": factor,
                "goal": wanted,
            }
        )
        if options.output:
            environment = {**host_facts(), "commit": commit()}
            document = {"environment": environment, "seconds": options.seconds, "workers": 1, "rows": rows}
            options.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
