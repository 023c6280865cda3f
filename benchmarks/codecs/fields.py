"""Ratios, monotonicity and rates of compressing on fields of 2 to 5 dimensions, beside four rivals.

Usage: python benchmarks/codecs/fields.py [--seeds 1,2] [--fields TEXT] [--turns 3] [-o results.json]
Goals: at least 0.8 of the best rival's ratio everywhere, ahead in half; a finer bound never makes a stream
smaller by more than 2 %; compressing at least at the rate of SZ3.

Rivals: SZ3 (the better of its default mode and of that with Lorenzo and regression), zfp, fpzip with the
fewest bits that keep the bound, and quantizing with bitshuffle and Zstandard. Needs pysz, zfpy, fpzip and
blosc2. Bounds are relative to the range; the rivals get the same absolute bound. Rates are bytes of the array
a second of processor time of one thread, the best of runs that take turns.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from field_arrays import Array, field_arrays
from ratios import bitshuffle, limits_of, zfp
from tensor_codecs import write

from tnplan.compress import compress, decompress

BOUNDS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
FINE_BOUNDS = tuple(10.0**-k for k in np.arange(1, 4.6, 0.25))
"""Those of monotonicity."""
SZ3_MODES = ("INTERP_LORENZO", "LORENZO_REG")
MOST_AXES = 4
AT_LEAST = {"least of the best rival": 0.8, "share ahead": 0.5, "median rate of SZ3": 1.0}
MOST_GROWTH = 1.02
"""Goals."""


def sz3_bytes(array: Array, limit: float, mode: str) -> int:
    """What SZ3 takes; arrays of more axes than it has with their first ones as one."""
    from pysz import sz, szAlgorithm, szConfig, szErrorBoundMode

    first = array.ndim - MOST_AXES + 1
    shape = (int(np.prod(array.shape[:first])), *array.shape[first:]) if first > 1 else array.shape
    config = szConfig(shape)
    config.errorBoundMode, config.absErrorBound = szErrorBoundMode.ABS, limit
    config.cmprAlgo = getattr(szAlgorithm, mode)
    return int(sz.compress(array.reshape(shape), config)[0].nbytes)


def fpzip_bytes(array: Array, limit: float) -> int:
    """What fpzip takes with the fewest bits of each number that keep the bound."""
    import fpzip

    shape = (int(np.prod(array.shape[:-3])), *array.shape[-3:]) if array.ndim > 3 else array.shape
    whole = array.itemsize * 8
    # Precisions are multiples of two bits for float64.
    step = array.itemsize // 4
    least, most = 2, whole // step
    while least < most:
        middle = (least + most) // 2
        packed = fpzip.compress(array.reshape(shape), precision=middle * step, order="C")
        again = fpzip.decompress(packed, order="C").reshape(array.shape)
        good = float(np.abs(again.astype(float) - array).max()) <= limit
        least, most = (least, middle) if good else (middle + 1, most)
    return len(fpzip.compress(array.reshape(shape), precision=least * step % whole, order="C"))


def rivals(array: Array, bound: float) -> dict[str, int]:
    """Bytes of every rival."""
    limits = limits_of(array, bound)
    sizes = {f"SZ3 {mode}": sz3_bytes(array, limits[0], mode) for mode in SZ3_MODES}
    four = array.reshape(-1, *array.shape[-3:]) if array.ndim > MOST_AXES else array
    codecs = {"zfp": zfp(four, limits), "bitshuffle": bitshuffle(array, limits, 5)}
    for name, (encode, _, size_of) in codecs.items():
        sizes[name] = size_of(encode())
    return sizes | {"fpzip": fpzip_bytes(array, limits[0])}


def rates(array: Array, bound: float, turns: int) -> tuple[float, float]:
    """MB/s of compressing: ours and SZ3's."""
    limit = limits_of(array, bound)[0]
    runs: tuple[Callable[[], object], ...] = (
        lambda: compress(array, bound, setting="small"), lambda: sz3_bytes(array, limit, SZ3_MODES[0])
    )  # fmt: skip
    times: list[list[float]] = [[], []]
    for _ in range(turns):
        for run, of in zip(runs, times, strict=True):
            start_s = process_time()
            run()
            of.append(process_time() - start_s)
    return array.nbytes / min(times[0]) / 1e6, array.nbytes / min(times[1]) / 1e6


def measure(name: str, array: Array, bound: float, turns: int) -> dict[str, Any]:
    """A row of the table; ValueError where the bound is broken."""
    packed = compress(array, bound, setting="small")
    limit = limits_of(array, bound)[0]
    if float(np.abs(decompress(packed).astype(float) - array).max()) > limit:
        raise ValueError(f"{name}: an error is above the bound {bound}")
    sizes = rivals(array, bound)
    best = min(sizes, key=lambda rival: sizes[rival])
    row: dict[str, Any] = {
        "field": name, "shape": array.shape, "bound": bound, "ratio": packed.ratio, "best_rival": best,
        "best_ratio": array.nbytes / sizes[best], "rivals": {k: array.nbytes / v for k, v in sizes.items()},
    }  # fmt: skip
    if turns:
        row["mb_per_s"], row["sz3_mb_per_s"] = rates(array, bound, turns)
    return row


def growth(array: Array) -> float:
    """How much smaller a stream gets at most with a finer bound: 1 is monotone."""
    sizes = [len(compress(array, bound, setting="small").data) for bound in FINE_BOUNDS]
    return max(max(sizes[: k + 1]) / size for k, size in enumerate(sizes))


def main() -> int:
    """Measure every field, print the table, keep the figures; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--fields", default="", help="only fields whose name has this text")
    parser.add_argument("--bounds", default=",".join(map(str, BOUNDS)))
    parser.add_argument("--turns", type=int, default=0, help="runs that are timed; 0 measures no rates")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows, growths = [], dict[str, float]()
    for seed in map(int, options.seeds.split(",")):
        for name, array in field_arrays(seed):
            if options.fields not in name:
                continue
            for bound in map(float, options.bounds.split(",")):
                row = measure(name, array, bound, options.turns)
                rows.append({"seed": seed, **row})
                speeds = f" {row['mb_per_s']:5.0f} {row['sz3_mb_per_s']:5.0f} MB/s" if options.turns else ""
                print(
                    f"{name:24} {bound:6.0e} {row['ratio']:8.2f} {row['best_ratio']:8.2f}"
                    f" {row['ratio'] / row['best_ratio']:5.2f} {row['best_rival']}{speeds}", flush=True,
                )  # fmt: skip
            growths[f"{name}, seed {seed}"] = grown = growth(array)
            print(f"{name:24} {array.dtype} {array.shape}: growth {grown:.3f}")
    shares = [row["ratio"] / row["best_ratio"] for row in rows]
    reached = {
        "least of the best rival": min(shares), "median of the best rival": median(shares),
        "share ahead": sum(share >= 1 for share in shares) / len(shares),
        "most growth": max(growths.values()),
    }  # fmt: skip
    if options.turns:
        reached["median rate of SZ3"] = median(row["mb_per_s"] / row["sz3_mb_per_s"] for row in rows)
    for goal, value in reached.items():
        print(f"{goal}: {value:.3f}")
    write(options.output, {"reached": reached, "growth": growths, "rows": rows})
    missed = any(value < AT_LEAST.get(goal, value) for goal, value in reached.items())
    missed |= reached["most growth"] > MOST_GROWTH
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
