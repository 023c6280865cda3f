"""Products of shapes that kernels find hard, on a device and in exact arithmetic."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from tests.support.contraction.copy import random_values
from tests.support.kernels.gpus import needs_gpus
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.protocols.copy import row_major
from tnplan.executor.device.protocols.device import ContractShape

CHUNK, TOP, LARGEST = 32, 12, 65000.0

GPU = pytest.param("gpu", marks=needs_gpus(1))

splitters = pytest.mark.parametrize("runner", ["twin", GPU])


def shape_of(batch, m, n, k, order):
    """The shape of a contraction whose c holds batch + m + n in `order`."""
    parts = batch + m + n
    strides = [0] * len(parts)
    for position, stride in zip(order, row_major([parts[position] for position in order]), strict=True):
        strides[position] = stride
    modes = tuple(zip(parts, strides, strict=True))
    return ContractShape(
        modes[: len(batch)], modes[len(batch) : len(batch) + len(m)], modes[len(batch) + len(m) :], k
    )


def contract_on(runner, shape, a, b, capacity, precision):
    """c, flat, with NaN where nothing was written; twice on a GPU, whose bits must be the same."""
    count = prod(shape.sizes[:3])
    c = np.full(count, np.nan, a.dtype)
    if runner == "cpu":
        workspace = np.full(capacity, np.nan, a.dtype) if capacity else None
        NumpyDevice().bind_contract(shape, a.ravel(), b.ravel(), c, workspace, precision)()
        return c
    import cupy

    from tnplan.executor.device.cuda.contract import Product
    from tnplan.executor.device.cuda.contract.dispatch import bind_contract, scratch_bytes

    stream = cupy.cuda.Stream(non_blocking=True)
    on_device = cupy.asarray(a.ravel()), cupy.asarray(b.ravel()), cupy.asarray(c)
    workspace = cupy.full(capacity, np.nan, a.dtype) if capacity else None
    scratch = cupy.empty(scratch_bytes(shape, a.dtype.name, precision), np.uint8)
    call = bind_contract(Product(shape, *on_device, stream), workspace, precision, scratch)
    results = []
    for _ in range(2):
        on_device[2].fill(np.nan)
        cupy.cuda.Device().synchronize()
        call()
        stream.synchronize()
        results.append(on_device[2].get())
    assert np.array_equal(*(result.view(np.uint8) for result in results))
    return results[0]


def truths(a, b):
    """The contraction in double precision, and that of absolute values, as [batch, m, n]."""
    exact = "complex128" if a.dtype.kind == "c" else "float64"
    a, b = a.astype(exact), b.astype(exact)
    return np.einsum("bmk,bnk->bmn", a, b), np.einsum("bmk,bnk->bmn", np.abs(a), np.abs(b))


def ranges(rng, rows, k, dtype, kind):
    values = random_values(rng, (rows, k), dtype)
    if kind == "positive":
        values = np.abs(values).astype(dtype)
    elif kind == "tiny":
        values *= dtype_of(dtype)(1e-20)
    elif kind == "huge":
        values *= dtype_of(dtype)(1e15)
    elif kind == "mixed rows":
        values *= (10.0 ** rng.uniform(-18, 15, (rows, 1))).astype(np.float32)
    elif kind == "growing":
        values *= (10.0 ** np.linspace(-15, 15, k)).astype(np.float32)
    elif kind == "sparse":
        values *= rng.random((rows, k)) < 0.02
    return values


def dtype_of(dtype):
    return np.dtype(dtype).type
