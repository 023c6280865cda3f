"""Paths of networks a little unlike one whose path is known, in a tenth of the time of a new search.

Usage: OMP_NUM_THREADS=1 python benchmarks/planning/search_changed.py [--seconds 5] [--known 60] [--case TEXT]
Goal: log10 of the multiply-adds is at most 0.05 above that of a new search in the median, and 0.2 at worst.
A tensor more, one less, other extents, or fixed indices are drawn (`tests.support.search.changed`). Seconds
are those of the processor, which is also the clock of the searches.
"""

from __future__ import annotations

import argparse
import sys
import time

time.monotonic = time.process_time  # before modules take it
from pathlib import Path  # noqa: E402
from statistics import median  # noqa: E402
from typing import Any  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import tnplan  # noqa: E402
from tests.support.search import CHANGES, changed  # noqa: E402
from tnplan.calls.search import search  # noqa: E402
from tnplan.planner.search.changed_network import path_of_changed  # noqa: E402
from tnplan.planner.search.path_cost import log10_mnk_planned  # noqa: E402
from tnplan.planner.workloads.mixed import regular_network  # noqa: E402

PATHS = Path(__file__).parents[2] / "paths"
MEDIAN, WORST, SHARE = 0.05, 0.2, 0.1
LIMITS = {
    "regular_300": 30, "sycamore_n53_m20_b30_flops": 30, "hexagonal_8x8_l18_b32_schedule": 32,
    "zuchongzhi_n60_m24_b35_schedule": 35,
}  # fmt: skip
"""Bits of the largest tensor."""


def known_path(name: str, seconds: float, options: dict[str, Any]) -> tnplan.ContractionPath:
    """A path of `paths/`, of a long search, or one of these seconds for a random network, extents 2 and 3."""
    if name == "regular_300":
        return search(regular_network(300, 0, extents=(2, 3)), time=seconds, **options)
    return tnplan.load_path(PATHS / f"{name}.json")


def main() -> int:
    """Search by turns and print a row for each change; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--known", type=float, help="seconds of the known path, where it is none of `paths/`")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--case", default="", help="only networks whose names contain it")
    given = parser.parse_args()
    above, shares = [], []
    for name in (name for name in LIMITS if given.case in name):
        options: dict[str, Any] = {"max_tensor": 2 ** LIMITS[name], "minimize": "flops"}
        known = known_path(name, given.known or given.seconds, options)
        search(known.network, time=0.1, **options)  # loads the kernels
        print(name, f"known {log10_mnk_planned(known):.2f}")
        for how in CHANGES:
            for seed in range(given.seeds):
                network = changed(known.network, how, seed)
                began = time.process_time()
                new = search(network, time=given.seconds, seed=1 + seed, **options)
                new_s = time.process_time() - began
                short = search(network, time=SHARE * given.seconds, start=[known], **options)
                shares.append((time.process_time() - began - new_s) / new_s)
                at_once, costs = path_of_changed(known, network), (short, new)
                figures = [log10_mnk_planned(path) for path in (*costs, at_once)]
                above.append(figures[0] - figures[1])
                row = "new {1:.2f}, from the known path {0:.2f}, not searched {2:.2f}".format(*figures)
                print(name, how, seed, row, f"in {shares[-1]:.2f} of {new_s:.1f} s", flush=True)
    print(
        f"{len(above)} cases: {median(above):+.3f} in the median, {max(above):+.3f} at worst "
        f"(goals {MEDIAN}, {WORST}), in {median(shares):.2f} of the time"
    )
    missed = median(above) > MEDIAN or max(above) > WORST
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
