"""Times chains that close beside the same chain with an inner product after it.

    python benchmarks/contraction/closing.py [--rank 30] [--device gpu] [-o results.json]

The operand, the result and the tensor that closes the chain have 2^rank elements of complex64; every branch
sums eight and brings eight. A chain that closes reads what another writes, so that the product should cost
nothing. Goal: at most 1.05 of the time of the chain alone, and both values within 1e-5 of the number of
products times their root mean square.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from roofline import Layouter, aligned_bytes, fill, timed_s
from shared import ROOM_BYTES, open_device
from units import count

from tnplan.common.files import write_text
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.executor.device.protocols.device import ContractShape, Device
from tnplan.jobs.calibration import chain_shape

DTYPE, TILE_BYTES = "complex64", 32768
SAMPLE = 1 << 16
CHAINS = ((3,), (3, 3, 3), (3, 3, 3, 3, 3))
GOAL, WITHIN = 1.05, 1e-5


def main() -> int:
    """Print a table, and write it where that is asked for; 1 where a goal is missed."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--rank", type=int, default=30)
    options.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    options.add_argument("--seconds", type=float, default=0.5, help="for each figure")
    options.add_argument("-o", "--output", type=Path)
    given = options.parse_args()
    device = open_device(given.device)
    device.allocate(3 * aligned_bytes(1 << given.rank, DTYPE) + ROOM_BYTES)
    print("branches precision  chain ms   product   closing  /chain     apart")
    rows = [
        measured(device, given.rank, logs, precision, given.seconds)
        for logs in CHAINS
        for precision in (("fp32", "fp16x3") if given.device == "gpu" else ("fp32",))
    ]
    print(f"goals: {GOAL} of the chain; values within {WITHIN}")
    if given.output is not None:
        environment = {**host_facts(), **device.facts(), "commit": commit()}
        write_text(given.output, json.dumps({"rows": rows, "environment": environment}, indent=1) + "\n")
    missed = any(row["closing_s"] > GOAL * row["chain_s"] or row["apart"] > WITHIN for row in rows)
    if missed:
        print("MISSED")
    return int(missed)


def measured(
    device: Device, rank: int, logs: Sequence[int], precision: str, seconds: float
) -> dict[str, Any]:
    """One chain: seconds alone, of the product after it, and closing; how far both values are apart."""
    shape = chain_shape(rank, logs)
    layouter = Layouter(device, DTYPE)
    sizes = [count(modes) for modes in (shape.operand, shape.out, shape.out, *shape.branches)]
    operand, result, closing, *branches = layouter.views(*sizes)
    for view in (operand, closing, *branches):
        fill(device, view)
    apart, closed = layouter.views(1, 1)
    chain = device.bind_fused(shape, operand, branches, result, TILE_BYTES, precision)
    product = device.bind_contract(ContractShape((), (), (), len(result)), result, closing, apart, None)
    closes = device.bind_fused(
        replace(shape, closes=True), operand, branches, closed, TILE_BYTES, precision, closing
    )
    device.zero(closed)
    for call in (chain, product, closes):
        call()
    device.synchronize()
    values = [complex(np.asarray(device.to_host(view))[0]) for view in (apart, closed)]
    samples = [np.asarray(device.to_host(view[:SAMPLE])) for view in (result, closing)]
    scale = len(result) * float(np.prod([np.sqrt(np.mean(np.abs(sample) ** 2)) for sample in samples]))
    row = {
        "rank": rank, "branches": len(logs), "precision": precision,
        **{
            f"{name}_s": timed_s(device, call, seconds)
            for name, call in (("chain", chain), ("product", product), ("closing", closes))
        },
        "apart": abs(values[0] - values[1]) / scale,
    }  # fmt: skip
    over = row["closing_s"] / row["chain_s"]
    print(
        f"{len(logs):>8} {precision:9} {row['chain_s'] * 1e3:>9.3f} {row['product_s'] * 1e3:>9.3f} "
        f"{row['closing_s'] * 1e3:>9.3f} {over:>7.3f} {row['apart']:>9.1e}",
        flush=True,
    )
    return row


if __name__ == "__main__":
    sys.exit(main())
