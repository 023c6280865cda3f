"""The joint search on networks that are not circuits, against cotengra and nested dissection, one core each.

Usage: python benchmarks/planning/search_networks.py [--case TEXT] [--seconds 60] [--seeds 1]
       [--limits] [--no-rivals] [-o results.json]
Goals: log10 of the multiply-adds never more than 0.3 above the best rival's, and below it in the median of
all networks; after 5 seconds within 1.0 of the best rival's; with --limits, a largest tensor of 4 and 10
bits less costs at most 2^4 and 2^10 times what the tree without a limit costs, as it is planned: what slices
share counts once. With every slice made apart it is the figure in brackets.
Rivals, each with all the seconds: cotengra's hyper-optimizer over greedy, random-greedy, labels and kahypar
with its reconfiguration of sub-trees; METIS's nested dissection of the line graph, its separators last, and
min-fill between (packages kahypar, optuna and pymetis). The trial under way at the end counts where
it ends within 4 times the seconds. All are counted by the same code. A dash stands for a rival that finished
no trial. Rows of other networks and efforts in the output file stay.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from math import log10
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from networks import NETWORKS

from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_facts import host_facts
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.search.annealing import Effort
from tnplan.planner.search.cotengra_search import search_path
from tnplan.planner.search.path_cost import PathCost, path_cost
from tnplan.planner.search.search_options import JOINT, SearchOptions

DTYPE = "complex64"
QUICK_S = 5.0
BITS_AWAY = (4, 10)
PATIENCE = 4
MOST_EDGES = 5_000_000
"""Of a line graph that is written down."""
METHODS = ("greedy", "random-greedy", "labels", "kahypar")
COLUMNS = ("network", "tensors", "ours, 5 s", "ours", "width", "cotengra", "dissection", "above the best")


def joint(network: Network, limit: int | None, seconds: float, seed: int) -> PathCost:
    """What the joint search finds."""
    return path_cost(joint_path(network, limit, seconds, seed))


def joint_path(network: Network, limit: int | None, seconds: float, seed: int) -> ContractionPath:
    """The path that the joint search finds."""
    options = SearchOptions(
        max_tensor_elements=limit, effort=Effort(time_s=seconds), seed=seed, minimize="flops",
        methods=(JOINT,),
    )  # fmt: skip
    return search_path(network, DTYPE, options)


def cotengra(network: Network, seconds: float, seed: int) -> float | None:
    """log10 of the multiply-adds of cotengra's best tree, None where no trial ends well."""
    from cotengra import HyperOptimizer, get_symbol

    symbols = {index: get_symbol(number) for number, index in enumerate(network.size_dict)}
    terms = [tuple(symbols[index] for index in dict.fromkeys(term)) for term in network.inputs]
    sizes = {symbols[index]: size for index, size in network.size_dict.items()}
    random.seed(seed)
    optimizer = HyperOptimizer(
        methods=list(METHODS), minimize="flops", max_time=seconds, max_repeats=1_000_000, parallel=False,
        optlib="optuna", on_trial_error="ignore", reconf_opts={},
    )  # fmt: skip
    try:
        tree = optimizer.search(terms, tuple(symbols[index] for index in network.output), sizes)
    except (KeyError, RuntimeError, ValueError, OverflowError, TypeError) as error:
        print(f"cotengra: {error}", flush=True)
        return None
    steps = tuple(tuple(map(int, step)) for step in tree.get_ssa_path())
    return path_cost(ContractionPath(network, steps, (), DTYPE)).log10_mnk_all_slices


def dissection(network: Network, seconds: float, seed: int) -> float | None:
    """The same of METIS's order, and of min-fill among its first indices, the best in the time."""
    from pymetis import nested_dissection

    from tnplan.planner.search.orders.elimination_kernel import FILL, Rule, eliminate
    from tnplan.planner.search.orders.hypergraph import make_hypergraph

    counts = np.unique([i for term in network.inputs for i in set(term)], return_counts=True)
    shared = {str(index) for index, count in zip(*counts, strict=True) if count > 1}
    terms = [[index for index in term if index in shared] for term in network.inputs]
    graph = make_hypergraph(terms, network.output, network.size_dict)
    beside: list[set[int]] = [set() for _ in graph.weights]
    for tensor in range(graph.n_tensors):
        row = graph.indices[graph.tensor_starts[tensor] : graph.tensor_starts[tensor + 1]].tolist()
        for index in row:
            beside[index].update(row)
    if sum(map(len, beside)) > MOST_EDGES:
        return None
    draw = random.Random(seed)
    ends, best = time.monotonic() + seconds, None
    while best is None or time.monotonic() < ends:
        # A relabelled graph makes METIS start elsewhere.
        order = list(range(len(beside)))
        draw.shuffle(order)
        names = {old: new for new, old in enumerate(order)}
        _, places = nested_dissection(adjacency=[[names[o] for o in beside[i] if o != i] for i in order])
        rank = np.empty(len(order), np.int64)
        rank[order] = np.array(places)
        inside = int(draw.choice((0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)) * len(order))
        stages = np.maximum(rank - inside, 0)
        pairs = eliminate(graph, stages, Rule(FILL, 0.0, 1e-6), draw.getrandbits(31))
        steps = tuple((int(a), int(b)) for a, b in pairs.T)
        cost = path_cost(ContractionPath(network, steps, (), DTYPE)).log10_mnk_all_slices
        best = cost if best is None else min(best, cost)
    return best


def within(rival: Callable[..., float | None], network: Network, seconds: float, seed: int) -> float | None:
    """What a rival finds in a process of its own, which is ended after PATIENCE times the seconds."""
    here, there = Pipe()
    process = Process(target=_send, args=(there, rival, network, seconds, seed))
    process.start()
    there.close()
    try:
        found: float | None = here.recv() if here.poll(PATIENCE * seconds) else None
    except EOFError:
        found = None
    process.kill()
    process.join()
    return found


def _send(there: Connection, rival: Callable[..., float | None], *arguments: Any) -> None:
    there.send(rival(*arguments))


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Search one network by all means."""
    network = NETWORKS[name]()
    effort = range(options.seeds)
    found = [joint(network, None, options.seconds, seed) for seed in effort]
    ours = median(one.log10_mnk_all_slices for one in found)
    row: dict[str, Any] = {
        "network": name, "tensors": len(network.inputs), "indices": len(network.size_dict),
        "seconds": options.seconds, "quick_s": QUICK_S, "seeds": options.seeds,
        "joint_quick": [joint(network, None, QUICK_S, seed).log10_mnk_all_slices for seed in effort],
        "joint": [one.log10_mnk_all_slices for one in found], "width": [one.log2_largest for one in found],
    }  # fmt: skip
    if options.rivals:
        for rival in (cotengra, dissection):
            costs = [within(rival, network, options.seconds, seed) for seed in effort]
            known = [cost for cost in costs if cost is not None]
            row[rival.__name__] = known
        best = min((median(row[one]) for one in ("cotengra", "dissection") if row[one]), default=None)
        row["above_best"] = None if best is None else ours - best
        row["quick_above_best"] = None if best is None else median(row["joint_quick"]) - best
    if options.limits:
        row["limits"] = []
        for bits in BITS_AWAY:
            limit = max(round(found[0].log2_largest) - bits, 1)
            path = joint_path(network, 2**limit, options.seconds, 0)
            sliced, whole = path_cost(path), found[0].log10_mnk_all_slices
            apart, planned = sliced.log10_mnk_all_slices, path.meta["log10_mnk_planned"]
            row["limits"].append(
                {"bits_away": bits, "log2_limit": limit, "joint": apart, "joint_planned": planned,
                 "log2_factor": round((apart - whole) / log10(2), 2),
                 "log2_factor_planned": round((planned - whole) / log10(2), 2),
                 "log2_largest": sliced.log2_largest}
            )  # fmt: skip
    return row


def cells(row: dict[str, Any]) -> list[str]:
    """The row as it is printed."""

    def middle(name: str) -> str:
        return f"{median(row[name]):.2f}" if row.get(name) else "-"

    above = row.get("above_best")
    shown = "-" if above is None else f"{above:+.2f} ({row['quick_above_best']:+.2f} after 5 s)"
    limits = [
        f"{one['log2_factor_planned']:.1f} ({one['log2_factor']:.1f}) of {one['bits_away']}"
        for one in row.get("limits", ())
    ]
    return [
        row["network"], str(row["tensors"]), middle("joint_quick"), middle("joint"), middle("width"),
        middle("cotengra"), middle("dissection"), shown, *limits,
    ]  # fmt: skip


def keep(output: Path, row: dict[str, Any]) -> None:
    """Put the row into the file, in place of an earlier one of the same network and effort."""
    document = json.loads(output.read_text()) if output.exists() else {"rows": []}
    same = ("network", "seconds", "seeds")
    rows = [old for old in document["rows"] if any(old[name] != row[name] for name in same)]
    own = {**row, "environment": {**host_facts(), "commit": commit()}}
    output.write_text(json.dumps({"rows": [*rows, own]}, indent=1) + "\n")


def main() -> None:
    """Search every network and print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--case", default="", help="only networks whose names contain this")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--limits", action="store_true", help="also with limits of 4 and 10 bits less")
    parser.add_argument("--no-rivals", dest="rivals", action="store_false")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    joint(NETWORKS["surface_9"](), 2**6, 1.0, 0)  # compiles
    columns = COLUMNS + tuple(f"2^-{bits}" for bits in BITS_AWAY if options.limits)
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)
    for name in NETWORKS:
        if options.case not in name:
            continue
        row = measure(name, options)
        print("| " + " | ".join(cells(row)) + " |", flush=True)
        if options.output:
            keep(options.output, row)


if __name__ == "__main__":
    main()
