"""The large products of a contraction with all of its gradients, each alone, beside a copy's bandwidth.

    python benchmarks/contraction/gradient_products.py [--device gpu] [--least BYTES] [-o out.json] [NAME ...]

Products are those of the schedule of gradients that keeps all values, in the orders in which it stores
tensors. Of equal sizes and storage the first order of the output is timed. Goal: a share of 0.75 of a copy.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from math import inf
from pathlib import Path
from typing import Any

from roofline import aligned_bytes, fill, timed_s
from shared import PATHS, RESULTS, open_device

from tnplan.common.arrays import ITEM_BYTES
from tnplan.common.files import write_text
from tnplan.executor.contraction.bind.binder import bind
from tnplan.executor.device.protocols.copy import Copy
from tnplan.executor.device.protocols.device import Call, ContractShape, Device, nothing
from tnplan.jobs.arrays.gradient_calls import GradientPlan
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.schedule.schedule import GradientSchedule

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.support.null_device.device import Counts, NullCommunicator, NullDevice

NAMES = ("sycamore_n53_m10_unsliced_flops", "sycamore_n53_m10_b22_flops", "peps_11x11_b21_flops")
PROFILES = {"cpu": "cpu", "gpu": "h100-nvlink"}
SECONDS, WORKSPACE_BYTES = 0.02, 16 << 20


class ProductsDevice(NullDevice):
    """It takes note of the products that are bound."""

    def __init__(self, counts: Counts) -> None:
        super().__init__(counts)
        self.products: list[tuple[ContractShape, str]] = []

    def bind_contract(self, shape: ContractShape, *operands: Any) -> Call:
        """Note the shape and the precision."""
        precision: str = operands[4]
        self.products.append((shape, precision))
        return nothing


def products_of(schedule: GradientSchedule) -> list[tuple[ContractShape, str, int]]:
    """The shapes and precisions of products, and how often each is formed in all slices."""
    counts = Counts()
    device = ProductsDevice(counts)
    program = bind(schedule, device, NullCommunicator(0, schedule.grid, counts), None)
    shapes, often = iter(device.products), Counter[tuple[ContractShape, str]]()
    for number, part in enumerate((*program.parts, *program.after)):
        times = schedule.n_slices if number == len(program.parts) - 1 else 1
        for one in part:
            if one.op == "contract":
                often[next(shapes)] += times
    return [(*product, times) for product, times in often.items()]


def moved_bytes(shape: ContractShape, dtype: str) -> int:
    """The bytes of both operands and the output."""
    n_batch, m, n, k = shape.sizes
    return n_batch * (m * k + n * k + m * n) * ITEM_BYTES[dtype]


def time_of(device: Device, shape: ContractShape, precision: str, dtype: str) -> float:
    """The seconds of one product."""
    n_batch, m, n, k = shape.sizes
    counts = n_batch * m * k, n_batch * n * k, n_batch * m * n, WORKSPACE_BYTES // ITEM_BYTES[dtype]
    views, begin = [], 0
    for count in counts:
        views.append(device.view(begin, count, dtype))
        begin += aligned_bytes(count, dtype)
    for view in views[:2]:
        fill(device, view)
    a, b, c, workspace = views
    return timed_s(device, device.bind_contract(shape, a, b, c, workspace, precision), SECONDS)


GOAL = 0.75
"""The bandwidth of a product, in parts of a copy's."""


def rows_of(device: Device, name: str, least: float) -> list[dict[str, Any]]:
    """A row for each size and storage whose products move `least` bytes together."""
    path = load_path(PATHS / f"{name}.json")
    plan = GradientPlan(path, load_profile(PROFILES[device.name]), inf)
    options = ContractionOptions(device=device.name, threads=1)
    groups: dict[tuple[Any, ...], list[tuple[ContractShape, str, int]]] = {}
    for product in products_of(plan.schedule(options, range(len(path.network.inputs)))):
        shape, precision, _ = product
        if min(shape.sizes):
            kind = shape.sizes, shape.k_first, shape.direct is None, precision
            groups.setdefault(kind, []).append(product)
    rows: list[dict[str, Any]] = []
    for (sizes, k_first, is_moved, precision), products in groups.items():
        shape, times = products[0][0], sum(often for _, _, often in products)
        size = moved_bytes(shape, path.dtype)
        if size * times >= least:
            seconds = time_of(device, shape, precision, path.dtype)
            rows.append(
                {
                    "network": name, "dtype": path.dtype, "precision": precision,
                    **dict(zip(("batch", "m", "n", "k"), sizes, strict=True)), "k_first": k_first,
                    "output": "in another order" if is_moved else "as stored", "times": times,
                    "bytes": size, "time_s": seconds, "bytes_per_s": size / seconds,
                }
            )  # fmt: skip
    return sorted(rows, key=lambda row: -row["times"] * row["bytes"])


def main() -> int:
    """Measure, print and write; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=NAMES, help="paths in paths/, without .json")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="gpu")
    parser.add_argument("--least", type=float, default=2e8, help="bytes that equal products move together")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "gradient_products.json")
    options = parser.parse_args()
    device, rows = open_device(options.device), []
    arena_bytes = (4 if options.device == "gpu" else 1) << 30
    device.allocate(arena_bytes)
    half = arena_bytes // 2
    source, target = device.view(0, half // 4, "float32"), device.view(half, half // 4, "float32")
    copied = 2 * half / timed_s(device, device.bind_copy(target, source, Copy((), (), half // 4)), SECONDS)
    for name in options.names:
        for row in rows_of(device, name, options.least):
            row["share_of_copy"] = row["bytes_per_s"] / copied
            rows.append(row)
            print(json.dumps(row), flush=True)
    facts = {**device.facts(), "date": time.strftime("%Y-%m-%d"), "copy_bytes_per_s": copied}
    write_text(options.output, json.dumps({**facts, "rows": rows}, indent=1) + "\n")
    missed = any(row["share_of_copy"] < GOAL for row in rows)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
