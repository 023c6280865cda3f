"""Two ranks exchange arrays that are longer than a chunk, which is made short here."""

from __future__ import annotations

import numpy as np

from tnplan.executor.device.comm import mpi


def main() -> None:
    mpi.CHUNK_BYTES = 1000
    world = mpi.world()
    peer = 1 - world.rank
    sent = np.arange(5003, dtype=np.complex64) + 10000 * world.rank
    received = np.zeros(5003, np.complex64)
    world.exchange([(peer, sent)], [(peer, received)])
    assert np.array_equal(received, np.arange(5003) + 10000 * peer)
    split = world.split(world.rank, 0)
    assert split.size == 1
    assert world.gather_objects(world.rank) == [0, 1]
    assert world.broadcast_object(world.rank, 1) == 1
    print("ok", flush=True)


if __name__ == "__main__":
    main()
