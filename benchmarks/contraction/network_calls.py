"""Whole contractions called again and again, beside cuTensorNet's `Network` on one GPU.

    python benchmarks/contraction/network_calls.py [-o results.json]

cuTensorNet finds a path of its own (128 samples of its hyper-optimizer) and autotunes; then its operands are
reset and it contracts, with arrays of the host and with CuPy's on the GPU. Ours is compiled for the shipped
path. Medians after three calls, by turns in one run. Goal: 0.7 times its time with arrays of the host.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from calls import GPU_CALLS, GPU_CASES, TOLERANCE, by_turns, environment
from shared import PATHS, RESULTS

import tnplan
from tnplan.common.files import write_text
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import load_path, tensors_file
from tnplan.planner.networks.tensors import load_tensors

GOAL = 0.7
SAMPLES, AUTOTUNED = 128, 5


def interleaved(path: ContractionPath, arrays: list[Any]) -> list[Any]:
    """Arrays and their indices in turn, then those of the result."""
    pairs = zip(arrays, path.network.inputs, strict=True)
    return [*(entry for pair in pairs for entry in pair), path.network.output]


def prepared(path: ContractionPath, arrays: list[Any]) -> tuple[Any, dict[str, Any]]:
    """Their network with a path, autotuned; what it found and how long that took."""
    from cuquantum.tensornet import Network, NetworkOptions, OptimizerOptions

    network = Network(*interleaved(path, arrays), options=NetworkOptions(blocking=True))
    start = time.perf_counter()
    _, info = network.contract_path(optimize=OptimizerOptions(samples=SAMPLES))
    found_s = time.perf_counter() - start
    network.autotune(iterations=AUTOTUNED)
    return network, {"path_s": found_s, "slices": int(info.num_slices), "flops": float(info.opt_cost)}


def measured(name: str) -> dict[str, Any]:
    """The times of one path's network."""
    import cupy

    path = load_path(PATHS / f"{name}.json")
    tensors = tensors_file(PATHS / f"{name}.json", path.tensors)
    assert tensors is not None
    arrays = load_tensors(tensors, path.network, path.dtype)
    there = [cupy.asarray(array) for array in arrays]
    theirs, facts = prepared(path, arrays)
    theirs_there, _ = prepared(path, there)
    with tnplan.compile(path, device="gpu") as ours:
        wanted = np.asarray(ours(*arrays))

        def ours_there() -> None:
            ours(*there)
            cupy.cuda.runtime.deviceSynchronize()

        def network() -> Any:
            theirs.reset_operands(*arrays)
            return theirs.contract()

        def network_there() -> Any:
            theirs_there.reset_operands(*there)
            return theirs_there.contract()

        difference = float(abs(np.asarray(network()) - wanted).max() / abs(wanted).max())
        assert difference <= TOLERANCE[path.dtype], difference
        calls = {"ours": lambda: ours(*arrays), "network": network, "ours_there": ours_there,
                 "network_there": network_there}  # fmt: skip
        row = {"case": name, **by_turns(calls, GPU_CALLS), **facts, "difference": difference}
    theirs.free()
    theirs_there.free()
    return row


def main() -> int:
    """Run, print the table, write the file; 1 where the goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = []
    for name in GPU_CASES:
        row = measured(name)
        rows.append(row)
        ratio = row["ours"] / row["network"]
        host, there = (
            f"{row[f'ours{way}'] * 1e3:8.3f} of {row[f'network{way}'] * 1e3:8.3f} ms"
            for way in ("", "_there")
        )
        found = f"their path {row['path_s']:.1f} s, {row['slices']} slices"
        missed = "  MISSED" if ratio > GOAL else ""
        print(f"{name:30} host {host}, {ratio:.3f}; GPU {there}; {found}{missed}", flush=True)
        document = {"environment": environment("gpu"), "rows": rows}
        write_text(options.output or RESULTS / "network_calls.json", json.dumps(document, indent=1) + "\n")
    return int(any(row["ours"] > GOAL * row["network"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
