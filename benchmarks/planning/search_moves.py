"""What two versions of the joint search find by turns, and cotengra, in the same processor seconds of a core.

    python benchmarks/planning/search_moves.py --seconds 5 [--case TEXT] [--seeds 3] [--first-seed 0]
           [--against CHECKOUT] [--limits] [--rival] [--stop-after 3000] [-o results.jsonl]

Numbers are log10 of the multiply-adds, under a limit as they are planned. A seed draws the network and the
search. `--against` is another checkout of tnplan, whose search comes first each time. With `--limits` each
network is searched under 2^(0.85 w) as well, 2^w its largest tensor in the first version's tree without a
limit. Goal: less in the median, and in no row more than its seeds differ. The clock of all searches is the
time of their processor; each version is one process. cotengra (`--rival`) takes as many trials of random
greedy trees, of labels and, where kahypar is installed, of partitions as there is time for, with its
reconfiguration of sub-trees. Rows that the output file has are not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SHARE = 0.85
MIXED = 2, 3, 4, 6, 8, 16
Terms = dict[int, list[str]]


def sites(rows: int, columns: int, diagonal: bool) -> list[tuple[int, int]]:
    """The bonds of a square lattice, or of one turned by half a right angle, as of Sycamore's couplers."""
    bonds = []
    for row in range(rows):
        for column in range(columns):
            site = row * columns + column
            if row + 1 < rows:
                bonds.append((site, site + columns))
            beside = column + (1 if row % 2 else -1) if diagonal else column + 1
            if 0 <= beside < columns and (not diagonal or row + 1 < rows):
                bonds.append((site, site + columns + beside - column if diagonal else site + 1))
    return bonds


def regular(n: int, degree: int, draw: random.Random) -> list[tuple[int, int]]:
    """A random regular graph, but for the few loops and double bonds that pairing leaves."""
    ends = [vertex for vertex in range(n) for _ in range(degree)]
    draw.shuffle(ends)
    pairs = zip(ends[::2], ends[1::2], strict=True)
    return sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})


def hyper(n: int, count: int, draw: random.Random) -> list[tuple[int, ...]]:
    """Indices on two to four tensors each."""
    return [tuple(draw.sample(range(n), draw.choice((2, 2, 3, 4)))) for _ in range(count)]


def queens(side: int) -> list[tuple[int, ...]]:
    """A tensor for each two squares in a line: the graph of queens, whose vertices are indices."""
    squares = [(row, column) for row in range(side) for column in range(side)]
    lines: tuple[Callable[[tuple[int, int]], int], ...] = (
        lambda s: s[0], lambda s: s[1], lambda s: s[0] - s[1], lambda s: s[0] + s[1],
    )  # fmt: skip
    pairs = [
        (a, b) for a in squares for b in squares if a < b and any(line(a) == line(b) for line in lines)
    ]
    return [tuple(n for n, pair in enumerate(pairs) if square in pair) for square in squares]


FAMILIES: dict[str, tuple[Callable[[random.Random], Iterable[tuple[int, ...]]], tuple[int, ...]]] = {
    "sycamore_500_b2": (lambda _: sites(25, 20, True), (2,)),
    "sycamore_500_b16": (lambda _: sites(25, 20, True), (16,)),
    "regular3_300_b2": (lambda draw: regular(300, 3, draw), (2,)),
    "regular3_300_b16": (lambda draw: regular(300, 3, draw), (16,)),
    "regular3_500_b2": (lambda draw: regular(500, 3, draw), (2,)),
    "regular3_500_b16": (lambda draw: regular(500, 3, draw), (16,)),
    "regular3_500_mixed": (lambda draw: regular(500, 3, draw), MIXED),
    "regular4_200_b16": (lambda draw: regular(200, 4, draw), (16,)),
    "regular5_100_mixed": (lambda draw: regular(100, 5, draw), MIXED),
    "peps_14_b16": (lambda _: sites(14, 14, False), (16,)),
    "peps_18_mixed": (lambda _: sites(18, 18, False), MIXED),
    "hyper_200_mixed": (lambda draw: hyper(200, 300, draw), MIXED),
    "queens_7_b2": (lambda _: queens(7), (2,)),
    "queens_7_b3": (lambda _: queens(7), (3,)),
    "regular3_2000_b2": (lambda draw: regular(2000, 3, draw), (2,)),
}


def network_of(name: str, seed: int) -> Any:
    """The network of a family and a seed."""
    from tnplan.planner.networks.network import Network

    family = name.rpartition("_")[0]  # extents apart: the same graph with each of them
    draw = random.Random(f"{family} {seed}")
    make, extents = FAMILIES[name]
    terms: Terms = {}
    sizes: dict[str, int] = {}
    for number, tensors in enumerate(make(draw)):
        sizes[f"i{number}"] = draw.choice(extents)
        for tensor in tensors:
            terms.setdefault(tensor, []).append(f"i{number}")
    return Network(tuple(tuple(terms[tensor]) for tensor in sorted(terms)), (), sizes)


def joint(name: str, seed: int, seconds: float, limit: float) -> dict[str, float]:
    """What the joint search finds, under a limit in bits; 0 for none."""
    from tnplan.planner.search.annealing import Effort
    from tnplan.planner.search.cotengra_search import search_path
    from tnplan.planner.search.path_cost import path_cost
    from tnplan.planner.search.search_options import JOINT, SearchOptions

    options = SearchOptions(
        max_tensor_elements=round(2.0**limit) if limit else None, effort=Effort(time_s=seconds), seed=seed,
        minimize="flops", methods=(JOINT,),
    )  # fmt: skip
    path = search_path(network_of(name, seed), "complex64", options)
    return {"log10": path.meta["log10_mnk_planned"], "width": path_cost(path).log2_largest}


def cotengra(name: str, seed: int, seconds: float, limit: float) -> dict[str, float]:
    """What cotengra's hyper-optimizer finds."""
    from cotengra import HyperOptimizer, get_symbol

    network = network_of(name, seed)
    random.seed(seed)
    symbols = {index: get_symbol(number) for number, index in enumerate(network.size_dict)}
    slicing: dict[str, Any] = {"slicing_reconf_opts": {"target_size": 2**limit}} if limit else {}
    optimizer = HyperOptimizer(
        methods=["random-greedy", "labels", *(["kahypar"] if find_spec("kahypar") else [])],
        minimize="flops", max_time=seconds, max_repeats=1_000_000, parallel=False, on_trial_error="ignore",
        optlib="optuna" if find_spec("optuna") else "sbplx", progbar=False,
        **(slicing or {"reconf_opts": {}}),
    )  # fmt: skip
    tree = optimizer.search(
        [[symbols[index] for index in term] for term in network.inputs], [],
        {symbols[index]: size for index, size in network.size_dict.items()},
    )  # fmt: skip
    return {"log10": float(tree.contraction_cost(log=10)), "width": float(tree.contraction_width())}


def serve(searcher: Callable[..., dict[str, float]]) -> None:
    """Search as each line of the input says; the clock is the time of the processor."""
    for line in sys.stdin:
        began = time.process_time()
        try:
            found = searcher(*json.loads(line))
        except (KeyError, RuntimeError, ValueError, OverflowError) as error:
            found = {"log10": float("nan"), "width": 0.0}
            print(error, file=sys.stderr)
        print("=", json.dumps({**found, "seconds": round(time.process_time() - began, 2)}), flush=True)


class Version:
    """A process that searches with one checkout."""

    def __init__(self, root: Path, searcher: str) -> None:
        paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", searcher], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def search(self, *task: Any) -> dict[str, float]:
        """The answer to a task."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("= "):
                answer: dict[str, float] = json.loads(line[2:])
                return answer
        raise RuntimeError("a search ended without an answer")


def table(
    rows: dict[str, dict[str, float]], names: list[str], versions: list[str]
) -> tuple[list[float], list[tuple[float, float]]]:
    """Print medians over seeds in Markdown, and how the last of our versions differs from the first.

    Gives the median of each row, and the same beside how far its seeds are apart.
    """
    print("| network | " + " | ".join(versions) + " | difference of each seed |")
    print("|---" * (len(versions) + 2) + "|")
    differences, worst = [], []
    for name in names:
        cells, by_version = [], {}
        for version in versions:
            found = {key: row["log10"] for key, row in rows.items() if key.startswith(f"{name} {version} ")}
            by_version[version] = {key.rpartition(" ")[2]: cost for key, cost in found.items()}
            cells.append(f"{median(found.values()):.2f}" if found else "-")
        ours, before = by_version["now"], by_version.get("before", {})
        apart = [ours[seed] - before[seed] for seed in ours if seed in before]
        differences += [median(apart)] if apart else []
        worst += [(median(apart), max(before.values()) - min(before.values()))] if apart else []
        print(f"| {name} | " + " | ".join(cells) + " | " + " ".join(f"{d:+.2f}" for d in apart) + " |")
    if differences:
        print(f"median of the rows {median(differences):+.3f}, worst {max(differences):+.3f}")
    return differences, worst


def main() -> int:
    """Search by turns and print the table; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--case", default="", help="families whose names contain one of these, by commas")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--limits", action="store_true", help="under limits as well")
    parser.add_argument("--rival", action="store_true", help="cotengra as well")
    parser.add_argument("--stop-after", type=float, default=1e9, help="begin nothing after these seconds")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--serve", choices=("joint", "cotengra"), help="used by the script itself")
    given = parser.parse_args()
    if given.serve:
        time.monotonic = time.time = time.perf_counter = time.process_time
        serve(joint if given.serve == "joint" else cotengra)
        return 0
    rows: dict[str, dict[str, float]] = {}
    if given.output and given.output.exists():
        rows = {row.pop("key"): row for row in map(json.loads, given.output.read_text().splitlines())}
    versions = {"before": Version(given.against, "joint")} if given.against else {}
    versions["now"] = Version(ROOT, "joint")
    if given.rival:
        versions["cotengra"] = Version(ROOT, "cotengra")
    for name in {*versions} - {"cotengra"}:
        versions[name].search("peps_14_b16", 0, 1.0, 20.0)  # loads the kernels
    wanted = given.case.split(",")
    names = [name for name in FAMILIES if any(text in name for text in wanted)]
    began = time.monotonic()

    def search(label: str, version: str, task: tuple[str, int, float, float]) -> float:
        key = f"{label} {version} {task[2]:g}s {task[1]}"
        if key not in rows and time.monotonic() - began < given.stop_after:
            rows[key] = versions[version].search(*task)
            print(key, rows[key], flush=True)
            if given.output:
                with given.output.open("a") as file:
                    file.write(json.dumps({"key": key, **rows[key]}) + "\n")
        return rows[key]["width"] if key in rows else 0.0

    labels = []
    for name in names:
        labels += [name, f"{name}|limit"] if given.limits else [name]
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            widths = [search(name, version, (name, seed, given.seconds, 0.0)) for version in versions]
            for version in versions if given.limits and widths[0] else ():
                task = name, seed, given.seconds, float(int(LIMIT_SHARE * widths[0]))
                search(f"{name}|limit", version, task)
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    endings = tuple(f" {given.seconds:g}s {seed}" for seed in seeds)
    chosen = {key: row for key, row in rows.items() if key.endswith(endings)}
    differences, worst = table(chosen, labels, list(versions))
    missed = bool(differences) and median(differences) > 0
    missed |= any(apart > spread for apart, spread in worst)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
