"""What a search of a large network takes: processor seconds and memory, beside the seconds that it is given.

    python benchmarks/planning/search_budgets.py ladder 1e5 1
    python benchmarks/planning/search_budgets.py strip 1e5 1 --limit 5

The clock of the search is the time of its processor, so that other work on the machine counts little.
Goal: at most 10 % and 0.3 s more than the seconds given.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time

time.monotonic = time.process_time  # before modules take it
from tnplan.calls.search import search  # noqa: E402
from tnplan.planner.networks.network import Network  # noqa: E402

STRIP = 6
"""Tensors across a strip."""


def edges(kind: str, n: int) -> list[tuple[int, int]]:
    """The bonds of about n tensors."""
    draw = random.Random(0)
    if kind == "tree":
        return [(draw.randrange(i), i) for i in range(1, n)]
    if kind == "regular":
        ends = [i for i in range(n) for _ in range(3)]
        draw.shuffle(ends)
        return sorted({(min(a, b), max(a, b)) for a, b in zip(ends[::2], ends[1::2], strict=True) if a != b})
    width = 2 if kind == "ladder" else STRIP
    n -= n % width
    along = [(i, i + width) for i in range(n - width)]
    return along + [(i, i + 1) for i in range(n) if (i + 1) % width]


def network_of(kind: str, n: int) -> Network:
    """The network, all extents 2."""
    terms: dict[int, list[str]] = {}
    bonds = edges(kind, n)
    for number, pair in enumerate(bonds):
        for tensor in pair:
            terms.setdefault(tensor, []).append(f"i{number}")
    return Network(tuple(map(tuple, terms.values())), (), {f"i{number}": 2 for number in range(len(bonds))})


def peak_mib() -> float:
    """The largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


SHARE, MORE_S = 0.1, 0.3


def main() -> int:
    """Search one network; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kind", choices=("ladder", "strip", "tree", "regular"))
    parser.add_argument("tensors", type=float)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--limit", type=int, help="bits of the largest tensor")
    given = parser.parse_args()
    limits = {"unlimited": True} if given.limit is None else {"max_tensor": 2**given.limit}
    search(network_of("strip", 3000), unlimited=True, time=0.1)  # loads the kernels
    network = network_of(given.kind, int(given.tensors))
    before = peak_mib()
    began = time.process_time()
    path = search(network, time=given.seconds, minimize="flops", **limits)  # type: ignore[arg-type]
    taken_s = time.process_time() - began
    print(
        f"{given.kind} {len(network.inputs)}: {taken_s:.1f} of {given.seconds} s, "
        f"10^{path.meta['log10_mnk_planned']:.1f}, memory {before:.0f} to {peak_mib():.0f} MiB"
    )
    missed = taken_s > (1 + SHARE) * given.seconds + MORE_S
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
