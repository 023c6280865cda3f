"""A compiled contraction that all ranks call: its results, a refusal on all ranks, and one device each."""

from __future__ import annotations

import numpy as np

import tnplan
from tnplan.executor.device.comm.heartbeat import world_communicator

SHAPES = [(6, 6)] * 6
EQUATION = "ab,bc,cd,de,ef,fg->ag"

if __name__ == "__main__":
    world = world_communicator()
    assert world is not None
    arrays = [np.random.default_rng(number).random(shape) for number, shape in enumerate(SHAPES)]
    wanted = np.linalg.multi_dot(arrays)

    def check(found: np.ndarray | None) -> None:
        if world.rank == 0:
            print("equal" if np.allclose(found, wanted, rtol=1e-12) else "differs", flush=True)
        else:
            assert found is None

    with tnplan.compile(EQUATION, *arrays, devices=world.size, device="cpu") as contraction:
        check(contraction(*arrays))
        try:
            contraction(*arrays[:-1])
        except tnplan.InputError:
            if world.rank == 0:
                print("refused", flush=True)
        check(contraction.update({2: arrays[2]}))
    alone = tnplan.contract(EQUATION, *arrays, device="cpu")
    counts = world.gather_objects(int(np.allclose(alone, wanted, rtol=1e-12)))
    if world.rank == 0:
        print("one", sum(counts), flush=True)
