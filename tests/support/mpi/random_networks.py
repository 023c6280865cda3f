"""Run under mpirun: random networks on MPI ranks, in groups of every fitting size, against einsum.

Arguments: the device (default: cpu), and how many networks (default: 40). On GPUs,
every second network exchanges without buffers wherever it can.
"""

from __future__ import annotations

import sys
from math import inf

from mpi4py import MPI

from tests.support.networks import agrees, eager_profile, random_arrays, random_path
from tnplan.calls.execute import execute
from tnplan.executor.contraction.redistribute import peer_copy as bind_direct
from tnplan.planner.passes.pipeline import plan

SHORTEST = bind_direct.SHORTEST_RUN_BYTES


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    seeds = range(1000, 1000 + (int(sys.argv[2]) if len(sys.argv) > 2 else 40))
    ranks, own = MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank
    divisors = [size for size in range(1, ranks + 1) if ranks % size == 0]
    moved = 0
    for seed in seeds:
        path = random_path(seed)
        group = divisors[seed % len(divisors)]
        profile = eager_profile(exchange_bytes=(64, 1 << 20)[seed % 2])
        schedule = plan(
            path, profile, devices=ranks, ranks_per_group=group, memory_bytes=inf, threshold_bytes=1
        )
        moved += schedule.predicted.once_moved_bytes + schedule.predicted.slice_moved_bytes
        bind_direct.SHORTEST_RUN_BYTES = (1, SHORTEST)[seed // 2 % 2]
        result = execute(schedule, random_arrays(path, seed), threads=1, device=device)
        if own == 0:
            agrees(result.array, path, random_arrays(path, seed))
    assert moved > 0 or ranks == 1
    if own == 0:
        print(f"{len(seeds)} networks agree on {ranks} ranks", flush=True)


if __name__ == "__main__":
    main()
