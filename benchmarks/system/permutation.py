"""Permuting copies on a GPU against a plain copy. Goal: binary modes at 80 %, other extents at 60 % of it.

Every permuted tensor is checked at random places. The floor of a sum is 1.5 copies: two reads, one write.
Usage: python benchmarks/system/permutation.py [-o results.json]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import cupy
import numpy as np

from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.executor.device.cuda.copy.permute import bind_copy, bind_placed
from tnplan.executor.device.cuda.gpus import driver_version, gpu_name
from tnplan.executor.device.protocols.copy import make_copy, row_major

BINARY_GOAL, GENERAL_GOAL = 0.8, 0.6
POOL_BYTES = 8 << 30
"""Small tensors are taken in turn from pools of this size, so that none is found in the cache."""
BATCH_BYTES = 8 << 30
REPEATS = 7
CHECKED = 1 << 18

DTYPES = {4: np.dtype(np.float32), 8: np.dtype(np.complex64), 16: np.dtype(np.complex128)}
fill = cupy.ElementwiseKernel("", "T bits", "bits = (T)(i * 0x9E3779B97F4A7C15ull) ^ (T)(i >> 13)", "fill")


@dataclass(frozen=True)
class Case:
    """A tensor of `extents` stored with its axes in `order` (the target's, outermost first)."""

    name: str
    extents: tuple[int, ...]
    order: tuple[int, ...]
    itemsize: int
    add: bool = False

    @property
    def elements(self) -> int:
        """The number of elements."""
        return prod(self.extents)


def cases() -> Iterator[Case]:
    """Random orders, merges of two sorted runs of modes, and regular orders"""
    rng = np.random.default_rng(2026)
    for rank, itemsize in [
        (20, 8), (22, 8), (24, 8), (26, 8), (28, 8), (30, 8), (31, 8), (32, 8), (33, 8),
        (20, 16), (24, 16), (28, 16), (30, 16), (31, 16), (32, 16), (30, 4), (33, 4), (34, 4),
    ]:  # fmt: skip
        yield _random("random", (2,) * rank, itemsize, rng)
        if rank == 30:
            yield replace(_random("added", (2,) * rank, itemsize, rng), add=True)
        yield _merge("merged", (2,) * rank, itemsize, rng)
    for name, order in [("reversed", range(29, -1, -1)), ("rotated 15", [*range(15, 30), *range(15)]),
                        ("rotated 1", [*range(1, 30), 0]), ("last two", [*range(28), 29, 28]),
                        ("runs of 8", [*range(26, -1, -1), 27, 28, 29])]:  # fmt: skip
        yield Case(name, (2,) * 30, tuple(order), 8)
    for extent, rank in [(3, 19), (5, 13), (10, 9), (12, 8), (7, 10)]:
        for itemsize in (8, 16):
            yield _random(f"all {extent}", (extent,) * rank, itemsize, rng)
    mixed = (3, 5, 10, 12, 2, 7, 4, 3, 5, 2, 2, 6, 10, 3)
    for itemsize in (8, 16):
        yield _random("mixed", mixed, itemsize, rng)
        yield _merge("mixed merged", mixed, itemsize, rng)
    yield Case("transpose", (20011, 30011), (1, 0), 8)


def _random(name: str, extents: tuple[int, ...], itemsize: int, rng: np.random.Generator) -> Case:
    order = rng.permutation(len(extents))
    return Case(name, extents, tuple(int(axis) for axis in order), itemsize)


def _merge(name: str, extents: tuple[int, ...], itemsize: int, rng: np.random.Generator) -> Case:
    """A product of two operands stored in its consumer's order: their modes, each sorted, in six runs."""
    rank = len(extents)
    cuts = np.sort(rng.choice(np.arange(1, rank), 5, replace=False))
    run_of = np.searchsorted(cuts, np.arange(rank), side="right")
    product_order = [*np.flatnonzero(run_of % 2 == 0), *np.flatnonzero(run_of % 2 == 1)]
    order = [product_order.index(axis) for axis in range(rank)]
    return Case(name, tuple(extents[axis] for axis in product_order), tuple(order), itemsize)


def seconds(calls: list[Callable[[], Any]]) -> float:
    """The median time of one call, of several batches of all calls."""
    times = []
    for number in range(REPEATS + 1):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for call in calls:
            call()
        end.record()
        end.synchronize()
        if number:
            times.append(cupy.cuda.get_elapsed_time(start, end) * 1e-3 / len(calls))
    return median(times)


def wrong(case: Case, target: Any, source: Any, strides: list[int]) -> int:
    """How many of many random elements of the target are not those of the source."""
    shape = [case.extents[axis] for axis in case.order]
    places = cupy.random.randint(0, case.elements, CHECKED, dtype=np.int64)
    origins = cupy.zeros_like(places)
    for extent, own, axis in zip(shape, row_major(shape), case.order, strict=True):
        origins += places // own % extent * strides[axis]
    found, expected = (array.view(np.uint32).reshape(case.elements, -1) for array in (target, source))
    return int(cupy.count_nonzero(found[places] != expected[origins]))


def measure(case: Case, pool: Any) -> dict[str, Any]:
    """Time a case and a plain copy of as many bytes; RuntimeError where the result is wrong."""
    dtype, elements = DTYPES[case.itemsize], case.elements
    half = len(pool) // 2 // 256 * 256
    source, target = (
        part[: half // case.itemsize * case.itemsize].view(dtype) for part in (pool[:half], pool[half:])
    )
    strides = row_major(case.extents)
    own = row_major([case.extents[axis] for axis in case.order])
    copy = make_copy([(case.extents[axis], strides[axis], stride)
                      for axis, stride in zip(case.order, own, strict=True)])  # fmt: skip
    size_bytes = elements * case.itemsize
    aligned = -(-elements // 64) * 64
    places = max(1, min(POOL_BYTES // (aligned * case.itemsize), len(source) // aligned))
    count = max(1, min(places, BATCH_BYTES // size_bytes))
    stream = cupy.cuda.Stream.null
    starts = [number % places * aligned for number in range(count)]
    calls = [bind_copy(target, source, copy, start, start, None, stream, add=case.add) for start in starts]
    plain = [bind_copy(target, source, make_copy([(elements, 1, 1)]), start, start, None, stream)
             for start in starts]  # fmt: skip
    plain_s = seconds(plain)
    target[starts[-1] : starts[-1] + elements].fill(0)
    copy_s = seconds(calls)
    part = slice(starts[-1], starts[-1] + elements)
    if not case.add and wrong(case, target[part], source[part], list(strides)):
        raise RuntimeError(f"{case} is copied wrongly")
    binary = set(case.extents) == {2}
    moved = 3 if case.add else 2
    return {
        "case": case.name, "extents": " ".join(map(str, case.extents)),
        "order": " ".join(map(str, case.order)), "itemsize": case.itemsize,
        "size_bytes": size_bytes, "copy_s": copy_s, "plain_s": plain_s, "ratio": plain_s * moved / 2 / copy_s,
        "bytes_per_s": moved * size_bytes / copy_s, "plain_bytes_per_s": 2 * size_bytes / plain_s,
        "goal": BINARY_GOAL if binary else GENERAL_GOAL,
    }  # fmt: skip


def cupy_transpose(pool: Any) -> float:
    """Bytes a second of CuPy's own transpose for a random order of 28 binary modes of complex64."""
    case = _random("CuPy", (2,) * 28, 8, np.random.default_rng(1))
    size_bytes = case.elements * case.itemsize
    source, target = (pool[start : start + size_bytes].view(np.complex64) for start in (0, size_bytes))
    view, out = source.reshape(case.extents).transpose(case.order), target.reshape(case.extents)
    return 2 * size_bytes / seconds([lambda: cupy.copyto(out, view)])


def placed(pool: Any) -> list[dict[str, Any]]:
    """Seconds to copy the tile of a contraction, which lies in the cache, to its places in a large result."""
    rows = []
    for tile_bytes in (1 << 10, 1 << 20, 1 << 23, 1 << 24, 1 << 25):
        rank = (tile_bytes // 8).bit_length() - 1
        case = _merge("placed", (2,) * rank, 8, np.random.default_rng(rank))
        own = row_major([case.extents[axis] for axis in case.order])
        strides = row_major(case.extents)
        copy = make_copy([(2, strides[axis], stride) for axis, stride in zip(case.order, own, strict=True)])
        tile, target = pool[:tile_bytes].view(np.complex64), pool[1 << 30 : 9 << 30].view(np.complex64)
        place = bind_placed(target, tile, copy, case.elements, cupy.cuda.Stream.null)
        count = min(2000, len(target) // case.elements)
        calls = [partial(place, number * case.elements) for number in range(count)]
        place_s = seconds(calls)
        rows.append(
            {"tile_bytes": tile_bytes, "place_s": place_s, "written_bytes_per_s": tile_bytes / place_s}
        )
    return rows


def main() -> int:
    """Print a table and what misses its goal; 1 where one does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--memory", type=float, default=0.9, help="the share of the free memory to use")
    options = parser.parse_args()
    free_bytes = int(cupy.cuda.runtime.memGetInfo()[0] * options.memory)
    pool_bytes = max(2 * POOL_BYTES, free_bytes) // 512 * 512
    pool = cupy.ndarray(pool_bytes, np.uint8, cupy.cuda.MemoryPointer(cupy.cuda.Memory(pool_bytes), 0))
    fill(pool.view(np.uint64))
    print(
        f"{'case':>14s} {'rank':>4s} {'bytes':>5s} {'MiB':>7s} {'copy':>6s} {'plain':>6s}  TB/s  ratio goal"
    )
    rows = []
    for case in cases():
        if 2 * case.elements * case.itemsize > pool_bytes:
            print(f"{case.name} of {case.elements * case.itemsize / 2**30:.0f} GiB does not fit twice")
            continue
        row = measure(case, pool)
        rows.append(row)
        print(
            f"{case.name:>14s} {len(case.extents):4d} {case.itemsize:5d} {row['size_bytes'] / 2**20:7.0f} "
            f"{row['bytes_per_s'] / 1e12:6.2f} {row['plain_bytes_per_s'] / 1e12:6.2f} {row['ratio']:12.2f} "
            f"{row['goal']:.1f}{'' if row['ratio'] >= row['goal'] else ' MISSED'}",
            flush=True,
        )
    placings = placed(pool)
    for row in placings:
        print(
            f"a tile of {row['tile_bytes'] / 2**20:.3f} MiB put in its place: {row['place_s'] * 1e6:.1f} us, "
            f"{row['written_bytes_per_s'] / 1e12:.2f} TB/s written"
        )
    own = cupy_transpose(pool)
    print(f"CuPy's transpose of 28 binary modes: {own / 1e12:.2f} TB/s")
    if options.output:
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        environment = {
            **host_facts(), "commit": commit(), "gpu": gpu_name(properties), "driver": driver_version(),
            "cupy": cupy.__version__,
        }  # fmt: skip
        document = {"environment": environment, "rows": rows, "placed": placings, "cupy_bytes_per_s": own}
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    return int(any(row["ratio"] < row["goal"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
