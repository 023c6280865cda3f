"""Run under mpirun on one GPU: ranks map each other's arenas and change layouts there."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import cupy
import numpy as np

from tests.support.contraction.redistribution import local, random_case
from tnplan.executor.contraction.redistribute import peer_copy as bind_direct
from tnplan.executor.contraction.redistribute.packed import bind_redistribution
from tnplan.executor.contraction.redistribute.plan import Redistribution, ShardedTensor
from tnplan.executor.device.comm import mpi
from tnplan.executor.device.cuda.device import CupyDevice
from tnplan.executor.device.cuda.peer_memory import CudaMemory
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.planner.hardware.process_grid import box_shape, grid_size, largest_shard

SEEDS = range(60)
WORKSPACE_BYTES = 1 << 20


def exchanged(seed: int, host: Communicator, device: CupyDevice) -> bool:
    """Whether a random change of layout, right on this rank, was made in peers' memory."""
    rng = np.random.default_rng(seed)
    grid, extents, source, out = random_case(rng, summing=False)
    if grid_size(grid) != host.size:
        return False
    source, out = ShardedTensor(source.modes, source.layout), ShardedTensor(out.modes, out.layout)
    whole = rng.standard_normal([extents[mode] for mode in source.modes])
    change = Redistribution(source, out, extents, grid, host.rank)
    bounds, out_bounds = (change.shard(tensor)[0] for tensor in (source, out))
    offset = 8 * largest_shard(source.modes, source.layout, extents, grid) + 256
    size = offset + 8 * largest_shard(out.modes, out.layout, extents, grid)
    room = -(-size // 256) * 256
    device.allocate(room + WORKSPACE_BYTES)
    workspace = device.view(room, WORKSPACE_BYTES // 8, "float64")
    beside = cupy.cuda.Stream(non_blocking=True)
    memory = CudaMemory(host, device.view(0, size, "uint8"), device.stream, beside)
    assert memory.ranks == frozenset(range(host.size))
    held = device.view(0, prod(box_shape(bounds)), "float64")
    result = device.view(offset, prod(box_shape(out_bounds)), "float64")
    device.from_host(held, local(whole, source.modes, source.modes, bounds).ravel())
    moves = source.layout != out.layout
    placed = replace(change, target=replace(out, offset_bytes=offset))
    call = bind_redistribution(placed, device, host, (held, result), workspace, memory)
    for _ in range(2):
        device.zero(result)
        device.synchronize()
        host.barrier()
        call()
        device.synchronize()
        ordered = [out_bounds[source.modes.index(mode)] for mode in out.modes]
        wanted = local(whole, source.modes, out.modes, ordered).ravel()
        assert np.array_equal(device.to_host(result), wanted), (seed, host.rank)
    memory.close()
    host.barrier()
    return moves


def main() -> None:
    bind_direct.SHORTEST_RUN_BYTES = 1
    host = mpi.world()
    done = 0
    for seed in SEEDS:
        device = CupyDevice(0)
        done += exchanged(seed, host, device)
        device.close()
    if host.rank == 0:
        print(f"{done} changes of layout in peers' memory", flush=True)


if __name__ == "__main__":
    main()
