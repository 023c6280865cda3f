"""Gradients that all ranks ask for: on rank 0, sliced and not."""

from __future__ import annotations

import numpy as np

import tnplan
from tnplan.executor.device.comm.time_limit import world_communicator

EQUATION = "ab,bc,ca->"
SLICED = tnplan.ContractionPath(
    tnplan.Network((("a", "b"), ("b", "c"), ("c", "a")), (), {"a": 6, "b": 6, "c": 6}),
    ((0, 1), (2, 3)),
    ("b",),
)

if __name__ == "__main__":
    world = world_communicator()
    assert world is not None
    a, b, c = (np.random.default_rng(number).random((6, 6)) for number in range(3))
    for network in (EQUATION, SLICED):
        with tnplan.compile(
            network, a, b, c, dtype="float64", devices=world.size, device="cpu"
        ) as contraction:
            value, gradients = contraction.value_and_grad(a, b, c)
        if world.rank == 0:
            equal = all(
                np.allclose(found, wanted, rtol=1e-12)
                for found, wanted in zip(gradients, ((b @ c).T, (c @ a).T, (a @ b).T), strict=True)
            )
            print("equal" if equal and np.isclose(value, np.trace(a @ b @ c)) else "differs", flush=True)
        else:
            assert value is None
