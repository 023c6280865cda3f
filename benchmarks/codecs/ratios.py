"""Ratios and rates of the coder `small` on 24 arrays, beside ten lines of Python, SZ3, zfp and blosc2.

Usage: python benchmarks/codecs/ratios.py [--arrays TEXT] [--bounds 1e-2,1e-3,1e-4] [-o results.json]
Goals: `small` nowhere below quantizing, bitshuffle and Zstandard (blosc2's, the better of levels 5 and
9); its ratio over SZ3's at least 0.8 in the median over smooth arrays; compressing and restoring at least
as fast as SZ3, in the median; a bound of 0 nowhere below blosc2's bitshuffle and Zstandard at its default
level.

Needs pysz, zfpy and blosc2. Bounds are relative to the range of each component; rivals take real and
imaginary parts apart. Rates are bytes of the array a second of processor time of one thread, the best of
runs that take turns. SZ3 is that of PyPI's wheel in its default mode; errors of all are checked. Sizes
are of whole streams.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ratio_arrays import smooth_arrays, tensor_arrays
from tensor_codecs import write

from tnplan.compress import compress, decompress

BOUNDS = (1e-2, 1e-3, 1e-4)
LEVELS = (5, 9)
TURNS = 3
GOALS = {
    "least small / bitshuffle": 1.0, "median smooth small / SZ3": 0.8, "median rate compressing / SZ3": 1.0,
    "median rate restoring / SZ3": 1.0, "least lossless / blosc2": 1.0,
}  # fmt: skip

Array = NDArray[Any]
Codec = tuple[Callable[[], Any], Callable[[Any], Array], Callable[[Any], int]]
"""What compresses, what restores the array, and the bytes of what was made."""


def parts(array: Array) -> list[Array]:
    """The real and imaginary parts, each by itself."""
    return (
        [np.ascontiguousarray(array.real), np.ascontiguousarray(array.imag)]
        if array.dtype.kind == "c"
        else [array]
    )


def joined(values: list[Array]) -> Array:
    """The reverse of `parts`."""
    return values[0] if len(values) == 1 else values[0] + values[1] * values[0].dtype.type(1) * 1j


def limits_of(array: Array, bound: float) -> list[float]:
    """The largest error of each component."""
    return [bound * float(part.max().astype(float) - part.min()) for part in parts(array)]


def ours(array: Array, bound: float) -> Codec:
    """`small`."""
    return (
        lambda: compress(array, bound, setting="small"), lambda packed: decompress(packed.data),
        lambda packed: len(packed.data),
    )  # fmt: skip


def bitshuffle(array: Array, limits: list[float], level: int) -> Codec:
    """Quantizing, blosc2's bitshuffle and Zstandard."""
    import blosc2

    def encode() -> list[Any]:
        made = []
        for part, limit in zip(parts(array), limits, strict=True):
            q = np.rint(part / (2 * limit or 1)).astype(np.int32)
            q = q.astype(np.int16) if np.abs(q).max() < 1 << 15 else q
            made.append((shuffled(q, level, q.itemsize), q.dtype))
        return made

    def decode(made: list[Any]) -> Array:
        found = []
        for part, limit, (data, dtype) in zip(parts(array), limits, made, strict=True):
            q = np.frombuffer(blosc2.decompress2(data), dtype)
            found.append((q * part.dtype.type(2 * limit)).reshape(part.shape))
        return joined(found)

    return encode, decode, lambda made: sum(len(data) for data, _ in made)


def shuffled(values: Array, level: int, item_bytes: int) -> bytes:
    """Values through blosc2's bitshuffle and Zstandard, on one thread."""
    import blosc2

    options = {"codec": blosc2.Codec.ZSTD, "clevel": level, "typesize": item_bytes, "nthreads": 1}
    return blosc2.compress2(values, filters=[blosc2.Filter.BITSHUFFLE], filters_meta=[0], **options)


def sz3(array: Array, limits: list[float]) -> Codec:
    """SZ3 as its users call it."""
    from pysz import sz, szAlgorithm, szConfig, szErrorBoundMode

    def encode() -> list[Any]:
        made = []
        for part, limit in zip(parts(array), limits, strict=True):
            config = szConfig(part.shape)
            config.errorBoundMode, config.absErrorBound = szErrorBoundMode.ABS, limit
            config.cmprAlgo = szAlgorithm.INTERP_LORENZO
            made.append(sz.compress(part, config)[0])
        return made

    def decode(made: list[Any]) -> Array:
        found = [
            sz.decompress(one, part.dtype, part.shape)[0]
            for one, part in zip(made, parts(array), strict=True)
        ]
        return joined(found)

    return encode, decode, lambda made: sum(one.nbytes for one in made)


def zfp(array: Array, limits: list[float]) -> Codec:
    """zfp with a tolerance."""
    import zfpy

    def encode() -> list[bytes]:
        pairs = zip(parts(array), limits, strict=True)
        return [zfpy.compress_numpy(part, tolerance=limit) for part, limit in pairs]

    return (
        encode,
        lambda made: joined([zfpy.decompress_numpy(one) for one in made]),
        lambda made: sum(map(len, made)),
    )


def measure(name: str, array: Array, bound: float, smooth: bool) -> dict[str, Any]:
    """Ratio, rates and worst error over the bound of every codec; the codecs take turns."""
    limits = limits_of(array, bound)
    codecs = {"small": ours(array, bound), "SZ3": sz3(array, limits), "zfp": zfp(array, limits)}
    codecs |= {f"bitshuffle {level}": bitshuffle(array, limits, level) for level in LEVELS}
    times: dict[str, list[tuple[float, float]]] = {codec: [] for codec in codecs}
    row: dict[str, Any] = {"array": name, "smooth": smooth, "bytes": array.nbytes, "bound": bound}
    for turn in range(TURNS):
        for codec, (encode, decode, size_of) in codecs.items():
            start_s = process_time()
            made = encode()
            middle_s = process_time()
            again = decode(made)
            times[codec].append((middle_s - start_s, process_time() - middle_s))
            if turn == 0:
                worst = max(
                    float(np.abs(part.astype(float) - other).max()) / (limit or 1)
                    for part, other, limit in zip(parts(array), parts(again), limits, strict=True)
                )
                row[codec] = {"ratio": array.nbytes / size_of(made), "worst_over_bound": worst}
                if codec == "small":
                    row["predictor"] = made.header.predictor is not None
    for codec, found in times.items():
        row[codec]["compress_mb_per_s"] = array.nbytes / min(one for one, _ in found) / 1e6
        row[codec]["restore_mb_per_s"] = array.nbytes / min(one for _, one in found) / 1e6
    if row["small"]["worst_over_bound"] > 1:
        raise ValueError(f"{name}: an error is above the bound {bound}")
    return row


def lossless(name: str, array: Array) -> dict[str, Any]:
    """Ratios without loss: ours, and blosc2's at its default level and its best one, for elements of the
    size that suits it."""
    reals = array.reshape(-1).view(array.real.dtype)
    sizes = reals.itemsize, array.itemsize
    row: dict[str, Any] = {"array": name, "ours": compress(array, 0.0).ratio}
    for level in LEVELS:
        row[f"blosc2 {level}"] = array.nbytes / min(len(shuffled(reals, level, one)) for one in sizes)
    return row


def goals_of(rows: list[dict[str, Any]], exact: list[dict[str, Any]]) -> dict[str, float]:
    """What is reached of each goal."""
    smooth = [row for row in rows if row["smooth"]] or rows
    bitshuffled = [max(row[f"bitshuffle {level}"]["ratio"] for level in LEVELS) for row in rows]

    def rate(of: str) -> float:
        return median(row["small"][of] / row["SZ3"][of] for row in rows)

    return {
        "least small / bitshuffle": min(
            row["small"]["ratio"] / other for row, other in zip(rows, bitshuffled, strict=True)
        ),
        "median smooth small / SZ3": median(row["small"]["ratio"] / row["SZ3"]["ratio"] for row in smooth),
        "median rate compressing / SZ3": rate("compress_mb_per_s"),
        "median rate restoring / SZ3": rate("restore_mb_per_s"),
        "least lossless / blosc2": min(row["ours"] / row[f"blosc2 {LEVELS[0]}"] for row in exact),
    }  # fmt: skip


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    codecs = ("small", "SZ3", "zfp", *(f"bitshuffle {level}" for level in LEVELS))
    ratios = " ".join(f"{row[codec]['ratio']:8.1f}" for codec in codecs)
    rates = " ".join(
        f"{row[codec]['compress_mb_per_s']:5.0f} {row[codec]['restore_mb_per_s']:5.0f}"
        for codec in codecs[:2]
    )
    return f"{row['array']:22} {row['bound']:6.0e} {ratios}  {rates}"


def main() -> int:
    """Measure every array, print the table, keep the figures; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--arrays", default="", help="only arrays whose name has this text")
    parser.add_argument("--bounds", default=",".join(map(str, BOUNDS)))
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    print(
        f"{'array':22}  bound    small      SZ3      zfp  bitshuffle 5, 9   MB/s: small in, out; SZ3 in, out"
    )
    rows, exact = [], []
    named = chain(((*one, True) for one in smooth_arrays()), ((*one, False) for one in tensor_arrays()))
    for name, array, smooth in named:
        if options.arrays not in name:
            continue
        exact.append(lossless(name, array))
        for bound in map(float, options.bounds.split(",")):
            rows.append(measure(name, array, bound, smooth))
            print(line(rows[-1]), flush=True)
    for row in exact:
        print(
            " ".join(f"{key} {value:.3f}" if key != "array" else f"{value:22}" for key, value in row.items())
        )
    goals = goals_of(rows, exact)
    for goal, reached in goals.items():
        print(f"{goal}: {reached:.3f} (goal {GOALS[goal]})")
    write(options.output, {"goals": GOALS, "reached": goals, "rows": rows, "lossless": exact})
    missed = any(reached < GOALS[goal] for goal, reached in goals.items())
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
