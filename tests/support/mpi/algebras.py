"""Run under mpirun: schedules of algebras and powers of contractions, against sums over all values.

Arguments: a folder that all ranks see, and how often each algebra is taken.
"""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path

import tnplan
from tests.support.contraction.algebras import (
    ALGEBRAS,
    PRIMES,
    by_rows,
    check,
    compiled,
    make,
    problem,
    transfer,
)
from tests.support.networks import eager_profile
from tnplan.executor.device.comm.heartbeat import world_communicator
from tnplan.jobs.arrays import power


def main() -> None:
    world = world_communicator()
    assert world is not None
    ranks, folder, times = world.size, Path(sys.argv[1]), int(sys.argv[2])
    for number in range(2 * times * len(ALGEBRAS)):
        name = ALGEBRAS[number % len(ALGEBRAS)]
        algebra, _, path, arrays, wanted = problem(name, number)
        group = ranks if number % 2 else ranks // 2
        schedule = tnplan.plan(
            path, hardware=eager_profile(), devices=ranks, ranks_per_group=group, memory=inf, threshold=1,
            algebra=algebra,
        )  # fmt: skip
        result = tnplan.execute(schedule, arrays, algebra=algebra, device="cpu", threads=1)
        if world.rank == 0:
            check(result.array, path.network, wanted)
    if world.rank == 0:
        print(f"networks: {number + 1}", flush=True)
    power.INTERVAL = 0
    for seed in range(times * len(ALGEBRAS)):
        name, prime, file = ALGEBRAS[seed % len(ALGEBRAS)], PRIMES[1], folder / str(seed)
        case = transfer(seed, name, prime)
        path, vector, arrays = case
        groups = 2 - seed % 2
        with compiled(case, make(name, prime), ranks // groups, groups) as some:
            found = some.power(4, *arrays, vector=vector, checkpoint=file)
            if world.rank == 0:
                check(found, path.network, by_rows(case, 4, name, prime).reshape(-1))
                assert not file.exists()
            else:
                assert found is None
    if world.rank == 0:
        print(f"powers: {seed + 1}", flush=True)


if __name__ == "__main__":
    main()
