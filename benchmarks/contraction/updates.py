"""Operations of a compiled contraction after one input has changed, beside those of its way to the root.

    python benchmarks/contraction/updates.py [-o results.json]

Counted by the device without arrays, for 40 inputs of Sycamore's 14-cycle network, unsliced along a
shipped path, all results in between kept. On a CPU, along a path that fits, updates and whole runs are
compared bit by bit. Goals: no more operations than those of the way to the root, and equal bits.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from shared import PATHS, RESULTS

import tnplan
from tnplan.common.files import write_text
from tnplan.executor.contraction.run.compiled_program import CompiledProgram
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.networks.tensors import random_tensors
from tnplan.planner.passes.lowering.keep_results import keep_results
from tnplan.planner.passes.tree.build import build

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.support.null_device.device import Counts, NullDevice

CHANGED, COMPARISONS = 40, 10
COUNTED, COMPARED = "sycamore_n53_m14_b30_fused.json", "regular_84_3_b22_flops.json"


def steps_to_root(path: ContractionPath, leaf: int) -> float:
    """Real operations of the steps from a leaf to the root, 8 for a complex multiply-add."""
    tree = build(path)
    operations, node = 0.0, leaf
    for number, children in enumerate(tree.children):
        if node in children:
            left, right = children
            operations += tree.extent(tuple({*tree.legs[left], *tree.legs[right]}))
            node = tree.n_leaves + number
    return 8.0 * operations


def counted(path: ContractionPath) -> list[dict[str, Any]]:
    """The operations after the change of one input, of some inputs."""
    schedule = keep_results(tnplan.plan(path, memory=inf))
    device = NullDevice(Counts())
    program = CompiledProgram(schedule, device, run_ranks(1, lambda own: own)[0])
    program.run()
    whole = device.counts.flops
    rows = []
    for leaf in random.Random(0).sample(range(len(path.network.inputs)), CHANGED):
        device.counts.flops = 0.0
        program.run(frozenset((leaf,)))
        rows.append(
            {
                "leaf": leaf,
                "operations": device.counts.flops,
                "to_root": steps_to_root(path, leaf),
                "whole": whole,
            }
        )
    return rows


def equal_bits(path: ContractionPath, comparisons: int = COMPARISONS) -> int:
    """How many of so many updates have the bits of a whole run."""
    arrays = random_tensors(path.network, path.dtype, 0)
    equal = 0
    with (
        tnplan.compile(path, keep=True, device="cpu") as kept,
        tnplan.compile(path, keep=True, device="cpu") as whole,
    ):
        kept(*arrays)
        for leaf in random.Random(1).sample(range(len(arrays)), comparisons):
            arrays[leaf] = random_tensors(path.network, path.dtype, 100 + leaf)[leaf]
            equal += int(np.array_equal(kept.update({leaf: arrays[leaf]}), whole(*arrays)))
    return equal


def main() -> int:
    """Count, compare, print, write; 1 where an update costs more than its way to the root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = counted(replace(load_path(PATHS / COUNTED), sliced_inds=()))
    most = max(row["operations"] / row["to_root"] for row in rows)
    least, worst = (choose(row["operations"] / row["whole"] for row in rows) for choose in (min, max))
    equal = equal_bits(load_path(PATHS / COMPARED))
    print(f"{COUNTED}, unsliced: {most:.6f} of the operations to the root at most,")
    print(f"  {least:.2e} to {worst:.2e} of those of a whole run")
    print(f"{COMPARED}: {equal} of {COMPARISONS} updates have the bits of a whole run")
    document = {"path": COUNTED, "rows": rows, "equal_bits": f"{equal} of {COMPARISONS}, {COMPARED}"}
    write_text(options.output or RESULTS / "updates.json", json.dumps(document, indent=1) + "\n")
    return int(most > 1 or equal < COMPARISONS)


if __name__ == "__main__":
    sys.exit(main())
