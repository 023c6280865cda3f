"""The seconds of steps, from rates of this machine: each is measured when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
AT_ONCE_S, MEASURED_S = 5e-5, 0.01
"""Calls follow each other for so long, again and again for so long: the tenth that is fastest counts."""
TIMES = {"copy": 0.3, "product": 1.35}
OF_OTHERS = 1.06
"""Seconds of a copy, a product and a decomposition among others, in those of one that is repeated."""
START, TENSOR, PAIR, DECOMPOSITION, PRODUCT = 1900.0, 26.0, 36.0, 80.0, 0.5
"""What Python does for a call, for a tensor before the first step, a pair, a decomposition and a product, in
products of two matrices of 2 x 2. All are fitted to seeds 200 to 247 of
benchmarks/contraction/bond_limit_prediction.py."""


def seconds_of(works: Sequence[StepWork], n_tensors: int) -> float:
    """The seconds of what was counted, at the threads of BLAS that are set now."""
    is_single = is_blas_single()
    calls, total = START + TENSOR * n_tensors, 0.0
    for work in works:
        calls += PAIR * work.pairs
        for (kind, dtype, *extents), count in work.operations.items():
            calls += count * {"copy": 0.0, "product": PRODUCT}.get(kind, DECOMPOSITION)
            total += count * TIMES.get(kind, OF_OTHERS) * _seconds(kind, dtype, extents, is_single)
    return total + calls * _call_s("call", "float64", 2, is_single)


def _seconds(kind: str, dtype: str, extents: Sequence[float], is_single: bool) -> float:
    """The seconds of one call, in proportion to one of a similar size."""
    side = min(extents)
    operations = extents[0] * extents[1] * extents[2] if kind == "product" else side**2 * max(extents)
    above = next((at for at, size in enumerate(SIZES) if size >= side), len(SIZES))
    ends = SIZES[max(0, above - 1) : above + 1]
    paces = [_call_s(kind, dtype, size, is_single) / _operations(kind, size) for size in ends]
    if len(ends) == 1:
        return operations * paces[0]
    share = log(side / ends[0]) / log(ends[1] / ends[0])
    return operations * paces[0] ** (1 - share) * paces[1] ** share


def _operations(kind: str, size: int) -> int:
    return size * size * (LONG if kind in TALL else size)


_measured: dict[tuple[Any, ...], float] = {}
"""Seconds of calls that were measured."""


def _call_s(kind: str, dtype: str, size: int, is_single: bool) -> float:
    """The seconds of a call; those of a short one are measured again each time, and the least counts: what
    else runs on a machine slows it down for a while."""
    key = kind, dtype, size, is_single
    if key not in _measured or kind == "call":
        call = _call(kind, np.dtype(dtype), size)
        call()
        clock = thread_time if is_single else perf_counter  # what else runs here does not count
        first = clock()
        call()
        count = max(1, int(AT_ONCE_S / max(clock() - first, 1e-6)))
        times: list[float] = []
        while not times or clock() - first < MEASURED_S:
            begin = clock()
            for _ in range(count):
                call()
            times.append((clock() - begin) / count)
        # Not the least of many: clocks of virtual machines skip a beat at times.
        _measured[key] = min(_measured.get(key, inf), sorted(times)[len(times) // 10])
    return _measured[key]


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
