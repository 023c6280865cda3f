"""A batch of 1,024 values of networks of 40 tensors of bond 8, beside what the GPU's roofline allows.

    python benchmarks/contraction/batch.py [-o results.json]

The roofline of a step is the larger of its operations over the measured rate of one large complex64 product,
and its bytes, each operand read and the result written once, over the measured rate of a copy on the device.
Arrays are torch's on the GPU. The path is one of a single value, so that all rows have the work of a batch;
beside it the time with the path that `tnplan.compile` finds for the batch. Goal: half of the roofline's rate.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from calls import environment, lattice
from shared import RESULTS

import tnplan
from tnplan.common.files import write_text
from tnplan.planner.passes.tree.build import build

BATCH, BOND, GOAL = 1024, 8, 0.5
ITEM_BYTES, REAL_OPERATIONS = 8, 8
SIDE = 4096
COPIED_BYTES = 8 << 30
REPEATS = 7


def regular(n: int, bond: int, seed: int) -> tnplan.Network:
    """A random 3-regular graph with a tensor for each vertex."""
    import networkx as nx

    terms: list[list[str]] = [[] for _ in range(n)]
    for number, ends in enumerate(sorted(nx.random_regular_graph(3, n, seed=seed).edges)):
        for end in ends:
            terms[end].append(f"i{number}")
    return tnplan.Network(tuple(map(tuple, terms)), (), {index: bond for term in terms for index in term})


def seconds(call: Callable[[], Any], torch: Any) -> float:
    """The median time of a call with its work on the GPU, after three."""
    times = []
    for _ in range(3 + REPEATS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return median(times[3:])


def rates(torch: Any) -> tuple[float, float]:
    """Real operations, and bytes read and written, a second."""
    square = torch.rand(SIDE, SIDE, dtype=torch.complex64, device="cuda")
    product_s = seconds(lambda: square @ square, torch)
    block = torch.empty(COPIED_BYTES, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(block)
    return REAL_OPERATIONS * SIDE**3 / product_s, 2 * COPIED_BYTES / seconds(
        lambda: other.copy_(block), torch
    )


def roofline_s(
    network: tnplan.Network, path: Any, batched: set[int], flop_rate: float, byte_rate: float
) -> float:
    """The least time of all steps, one after the other."""
    tree = build(path)
    sizes = [prod(network.size_dict[index] for index in term) for term in network.inputs]
    many = [number in batched for number in range(len(sizes))]
    total_s = 0.0
    for number, (left, right) in enumerate(tree.children):
        sizes.append(tree.extent(tuple(tree.legs[tree.n_leaves + number])))
        many.append(many[left] or many[right])
        moved = sum(
            sizes[node] * (BATCH if many[node] else 1) for node in (left, right, tree.n_leaves + number)
        )
        operations = REAL_OPERATIONS * tree.extent(tuple({*tree.legs[left], *tree.legs[right]}))
        total_s += max(operations * (BATCH if many[-1] else 1) / flop_rate, moved * ITEM_BYTES / byte_rate)
    return total_s


def measured(
    name: str, network: tnplan.Network, n_batched: int, flop_rate: float, byte_rate: float
) -> dict[str, Any]:
    """One network, of whose tensors the last so many are those of the batch."""
    import torch

    path = tnplan.search(network, dtype="complex64", unlimited=True, time=3)
    batched = list(range(len(network.inputs)))[-n_batched:]
    generator = torch.Generator("cuda").manual_seed(0)
    arrays = []
    for number, term in enumerate(network.inputs):
        shape = [network.size_dict[index] for index in term]
        shape = [BATCH, *shape] if number in batched else shape
        arrays.append(torch.randn(shape, dtype=torch.complex64, device="cuda", generator=generator) / BOND)
    with tnplan.compile(path, batch=BATCH, batched=batched, device="gpu") as many:
        found = many(*arrays)
        one = tnplan.contract(path, *[(a[5] if i in batched else a).cpu().numpy().astype(complex)
                                      for i, a in enumerate(arrays)], device="cpu")  # fmt: skip
        difference = float(abs(found[5].cpu().numpy() - one) / found.abs().mean().item())
        assert difference < 1e-4, difference
        taken_s = seconds(lambda: many(*arrays), torch)
        at_once = many.schedule.output_shape[0]
    given = [tuple(array.shape[1:] if i in batched else array.shape) for i, array in enumerate(arrays)]
    with tnplan.compile(
        network, *given, batch=BATCH, batched=batched, device="gpu", dtype="complex64"
    ) as many:
        own_path_s = seconds(lambda: many(*arrays), torch)
    least_s = roofline_s(network, path, set(batched), flop_rate, byte_rate)
    return {"case": name, "batched_tensors": n_batched, "at_once": at_once, "seconds": taken_s,
            "roofline_s": least_s, "share": least_s / taken_s, "own_path_s": own_path_s,
            "difference": difference}  # fmt: skip


def main() -> int:
    """Measure, print, write; 1 where the goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    import torch

    flop_rate, byte_rate = rates(torch)
    cases = (("3-regular graph, seed 0", regular(40, BOND, 0)), ("lattice 4 x 10", lattice(4, 10, BOND)))
    rows = [measured(name, network, n, flop_rate, byte_rate) for name, network in cases for n in (40, 4)]
    for row in rows:
        print(f"{row['case']:25} {row['batched_tensors']:3} of the batch  {row['seconds'] * 1e3:8.3f} ms  "
              f"roofline {row['roofline_s'] * 1e3:8.3f} ms  share {row['share']:.2f}  "
              f"path for the batch {row['own_path_s'] * 1e3:8.3f} ms")  # fmt: skip
    document = {"environment": environment("gpu"), "flops": flop_rate, "bytes_per_s": byte_rate, "rows": rows}
    write_text(options.output or RESULTS / "batch.json", json.dumps(document, indent=1) + "\n")
    return int(min(row["share"] for row in rows) < GOAL)


if __name__ == "__main__":
    sys.exit(main())
