"""Changes of layout between GPUs: seconds against NCCL's all-to-all of the same bytes. Goal: 0.8 of its rate.

mpirun -n P python benchmarks/system/exchange.py [--shard-gib 4]. Every digit of the grid moves: from the
slowest modes of a tensor to later ones (each rank writes into its peers' shards), back (each reads from
them), and both ways over messages with packing. The part that a rank keeps is copied in the same time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from math import prod
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from tnplan.common.errors import InputError
from tnplan.executor.contraction.redistribute.packed import bind_redistribution
from tnplan.executor.contraction.redistribute.plan import Redistribution, ShardedTensor
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.comm.heartbeat import world_communicator
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.executor.device.protocols.device import Call
from tnplan.executor.device.select import open_device
from tnplan.planner.hardware.process_grid import Digit

RESULTS = Path(__file__).resolve().parents[1] / "results" / "system" / "exchange.json"
GOAL = 0.8
REPEATS = 5
WARM_UP = 2
ITEM_BYTES = 8
DTYPE = "complex64"


def main() -> int:
    """Measure and print a table; rank 0 writes the results; 1 where a goal is missed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--shard-gib", type=float, default=4.0, help="GiB of a rank's shard")
    options.add_argument("-o", "--output", type=Path, help="default: exchange_P.json of the results")
    given = options.parse_args()
    world = world_communicator()
    if world is None:
        raise InputError("exchange.py", "runs on several ranks", "start it with mpirun -n 2 or 4")
    modes, extents, grid = tensor(int(given.shard_gib * 2**30) // ITEM_BYTES, world.size)
    shard_bytes = prod(extents.values()) // world.size * ITEM_BYTES
    workspace_bytes = min(1 << 30, shard_bytes)
    chosen = open_device("gpu", world, 2 * shard_bytes + workspace_bytes, 1)
    device, ranks = chosen.device, chosen.ranks.split(0, world.rank)
    device.allocate(2 * shard_bytes + workspace_bytes)
    source, out = (device.view(place * shard_bytes, shard_bytes // ITEM_BYTES, DTYPE) for place in (0, 1))
    workspace = device.view(2 * shard_bytes, workspace_bytes // ITEM_BYTES, DTYPE)
    source.view(np.uint64)[:] = cupy.arange(source.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    memory = ranks.open_memory(device.view(0, 2 * shard_bytes + workspace_bytes, "uint8"))

    def seconds(call: Call) -> float:
        """The median time of the slowest rank."""
        times = []
        for _ in range(WARM_UP + REPEATS):
            device.synchronize()
            world.barrier()
            first, last = device.marks(2)
            device.mark(first)
            call()
            device.mark(last)
            device.synchronize()
            times.append(device.elapsed_s(first, last))
        return max(world.gather_objects(statistics.median(times[WARM_UP:])))

    peers = [peer for peer in range(world.size) if peer != world.rank]
    piece = source.size // world.size
    sends = [(peer, source[place * piece : (place + 1) * piece]) for place, peer in enumerate(peers)]
    receives = [(peer, out[place * piece : (place + 1) * piece]) for place, peer in enumerate(peers)]
    begin, end = ranks.bind_exchange(sends, receives)
    nccl_s = seconds(lambda: (begin(), end()))
    moved_bytes = piece * len(peers) * ITEM_BYTES
    rows: list[dict[str, Any]] = [{"case": "nccl all-to-all", "time_s": nccl_s}]
    count = len(grid)
    lead, late, last = (
        tuple(modes[at : at + count]) for at in (0, len(modes) - 5 - count, len(modes) - count)
    )
    for name, before, after in (
        ("slowest to late modes", lead, late), ("late to slowest modes", late, lead),
        ("slowest to fastest modes", lead, last), ("fastest to slowest modes", last, lead),
    ):  # fmt: skip
        for way, reached in (("peers' memory", memory), ("messages", None)):
            if way == "peers' memory" and reached is None:
                continue
            change = Redistribution(
                ShardedTensor(modes, before), ShardedTensor(modes, after, (), shard_bytes), extents, grid,
                world.rank,
            )  # fmt: skip
            call = bind_redistribution(change, device, ranks, (source, out), workspace, reached)
            rows.append({"case": f"{name}, {way}", "time_s": seconds(call)})
    for row in rows:
        row["bytes_per_s"] = moved_bytes / row["time_s"]
        row["share_of_nccl"] = nccl_s / row["time_s"]
    ranks.close()
    if world.rank == 0:
        show(rows, moved_bytes)
        document = {
            "goal_share_of_nccl": GOAL, "ranks": world.size, "moved_bytes_a_rank": moved_bytes, "rows": rows,
            "environment": {**host_facts(), **device.facts(), "commit": commit()},
        }  # fmt: skip
        path = given.output or RESULTS.with_stem(f"{RESULTS.stem}_{world.size}")
        path.write_text(json.dumps(document, indent=1) + "\n")
    chosen.close()
    missed = world.rank == 0 and any(row["share_of_nccl"] < GOAL for row in rows)
    if missed:
        print("MISSED")
    return int(missed)


def tensor(shard_elements: int, n_ranks: int) -> tuple[tuple[int, ...], dict[int, int], tuple[Digit, ...]]:
    """Binary modes for a shard of at most so many elements, their extents, and a grid of binary digits."""
    count = n_ranks.bit_length() - 1
    if 1 << count != n_ranks:
        raise InputError("mpirun", f"started {n_ranks} ranks", "start 2, 4, 8, ...")
    modes = tuple(range(shard_elements.bit_length() - 1 + count))
    return modes, dict.fromkeys(modes, 2), tuple(Digit(2, 0) for _ in range(count))


def show(rows: list[dict[str, Any]], moved_bytes: int) -> None:
    """Print the table."""
    print(f"{moved_bytes / 2**30:.2f} GiB leave every rank; goal: {GOAL} of NCCL's rate")
    print(f"{'case':<42}{'ms':>9}{'GB/s':>9}{'of NCCL':>9}")
    for row in rows:
        print(
            f"{row['case']:<42}{row['time_s'] * 1e3:>9.3f}{row['bytes_per_s'] / 1e9:>9.1f}"
            f"{row['share_of_nccl']:>9.2f}"
        )


if __name__ == "__main__":
    sys.exit(main())
