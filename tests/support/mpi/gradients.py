"""Gradients that all ranks ask for: on rank 0, sliced and not, and of a batch; with torch on all ranks."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np

import tnplan
from tnplan.executor.device.comm.heartbeat import world_communicator

EQUATION = "ab,bc,ca->"
SLICED = tnplan.ContractionPath(
    tnplan.Network((("a", "b"), ("b", "c"), ("c", "a")), (), {"a": 6, "b": 6, "c": 6}),
    ((0, 1), (2, 3)),
    ("b",),
)


def penalty(function: Any, tensors: Any) -> Any:
    """The gradients of a number and of the squares of its gradients."""
    import torch

    value = function(*tensors)
    first = torch.autograd.grad(value, tensors, create_graph=True)
    return torch.autograd.grad(value**2 + sum((one**2).sum() for one in first), tensors)


def compare_with_torch(arrays: Any, devices: int) -> bool:
    """Whether first and second derivatives on this rank are torch's own."""
    import torch

    tensors = [torch.tensor(one, requires_grad=True) for one in arrays]
    wanted = penalty(lambda *some: torch.einsum(EQUATION, *some), tensors)
    for network in (EQUATION, SLICED):
        with tnplan.compile(network, *arrays, dtype="float64", devices=devices, device="cpu") as contraction:
            found = penalty(contraction, tensors)
        call = partial(tnplan.contract, network, devices=devices, device="cpu")
        if not all(map(torch.allclose, [*found, *penalty(call, tensors)], [*wanted, *wanted])):
            return False
    return True


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
    rows = np.stack([a, b, c])
    with tnplan.compile(
        "ab,ba->", a, b, dtype="float64", devices=world.size, device="cpu", batch=2, batched=[0]
    ) as batched:
        value, gradients = batched.value_and_grad(rows, b)
    if world.rank == 0:
        equal = np.allclose(gradients[1], rows.sum(0).T) and np.allclose(gradients[0], [b.T] * 3)
        equal = equal and np.allclose(value, np.einsum("nab,ba->n", rows, b))
        print("equal" if equal else "differs", flush=True)
    if "torch" in sys.argv:
        is_equal = world.gather_objects(compare_with_torch((a, b, c), world.size))
        if world.rank == 0:
            print("equal" if is_equal == [True] * world.size else "differs", flush=True)
