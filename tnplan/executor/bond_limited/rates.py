"""The seconds of steps, from rates of this machine: each is measured when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf, log
from time import perf_counter, thread_time
from typing import Any

import numpy as np

from tnplan.executor.bond_limited.dry_run import StepWork
from tnplan.executor.device.cpu.parallel_rows import is_blas_single

SIZES = (4, 16, 64, 128)
"""Sides of the matrices that are measured; what lies between is interpolated."""
LONG = 512
"""The long side of what is `TALL`."""
TALL = ("product", "qr", "qr of two")
LEAST_S, REPEATS = 2e-4, 12
"""Calls are repeated for so long, so often: the least time counts."""
TIMES = {"copy": 0.2, "product": 1.3}
OF_OTHERS = 1.5
"""Seconds of a copy, a product and a decomposition among others, in those of one that is repeated."""
TENSOR, PAIR, DECOMPOSITION, PRODUCT = 36.0, 49.0, 46.0, 0.8
"""What Python does for a tensor before the first step, for a pair, a decomposition and a product, in products
of two matrices of 2 x 2. All are fitted to seeds 200 to 247 of
benchmarks/contraction/bond_limit_prediction.py."""


def seconds_of(works: Sequence[StepWork], n_tensors: int) -> float:
    """The seconds of what was counted, at the threads of BLAS that are set now."""
    is_single = is_blas_single()
    calls, total = TENSOR * n_tensors, 0.0
    for work in works:
        calls += PAIR * work.pairs
        for (kind, dtype, *extents), count in work.operations.items():
            calls += count * {"copy": 0.0, "product": PRODUCT}.get(kind, DECOMPOSITION)
            total += count * TIMES.get(kind, OF_OTHERS) * _seconds(kind, dtype, extents, is_single)
    return total + calls * _least_s("call", "float64", 2, is_single)


def _seconds(kind: str, dtype: str, extents: Sequence[float], is_single: bool) -> float:
    """The seconds of one call, in proportion to one of a similar size."""
    side = min(extents)
    operations = extents[0] * extents[1] * extents[2] if kind == "product" else side**2 * max(extents)
    above = next((at for at, size in enumerate(SIZES) if size >= side), len(SIZES))
    ends = SIZES[max(0, above - 1) : above + 1]
    paces = [_least_s(kind, dtype, size, is_single) / _operations(kind, size) for size in ends]
    if len(ends) == 1:
        return operations * paces[0]
    share = log(side / ends[0]) / log(ends[1] / ends[0])
    return operations * paces[0] ** (1 - share) * paces[1] ** share


def _operations(kind: str, size: int) -> int:
    return size * size * (LONG if kind in TALL else size)


@lru_cache(None)
def _least_s(kind: str, dtype: str, size: int, is_single: bool) -> float:
    """The least seconds of a call."""
    call = _call(kind, np.dtype(dtype), size)
    clock = thread_time if is_single else perf_counter  # what else runs here does not count
    call()
    begin = clock()
    call()
    count = max(1, int(LEAST_S / max(clock() - begin, 1e-7)))
    least_s = inf
    for _ in range(REPEATS):
        begin = clock()
        for _ in range(count):
            call()
        least_s = min(least_s, (clock() - begin) / count)
    return least_s


def _call(kind: str, dtype: np.dtype[Any], size: int) -> Callable[[], Any]:
    """Something of a kind with random numbers."""
    random = np.random.default_rng(size)
    rows = LONG if kind in TALL else size
    if kind == "copy":
        values = random.standard_normal((size, size, size))
        return lambda: np.ascontiguousarray(values.transpose(2, 1, 0))
    parts = random.standard_normal((2, rows, size))
    values = (parts[0] + 1j * parts[1] if dtype.kind == "c" else parts[0]).astype(dtype)
    square = values[:size]
    gram = square.conj().T @ square + np.eye(size, dtype=dtype)
    calls: dict[str, Callable[[], Any]] = {
        "call": lambda: square @ square,
        "product": lambda: values @ square,
        "cholesky": lambda: np.linalg.cholesky(gram),
        "eigh": lambda: np.linalg.eigh(gram),
        "qr": lambda: np.linalg.qr(values, mode="r"),
        "qr of two": lambda: np.linalg.qr(values),
        "svd": lambda: np.linalg.svd(square, full_matrices=False),
    }
    return calls[kind]
