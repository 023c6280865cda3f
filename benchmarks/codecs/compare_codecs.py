"""The nine pipelines of Shah et al. 2023 and our two settings on one array, in single precision.

Usage: python benchmarks/codecs/compare_codecs.py ARRAY.npy [--bound 1e-3] [--threshold T]
       [--plot FILE.svg] [--json]

The bound is the largest error, relative to the range of real and imaginary parts each. The threshold is that
of the pipelines, relative to the same range; values below it are zeroed. Default: the bound. Times are those
of the second of two runs. Pipelines with LZ4 need the package lz4. Goal: no error of ours above the bound.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from shah2023.pipelines import PIPELINES, Pipeline, components, value_range

from tnplan.common.array_file import map_array
from tnplan.common.errors import InputError
from tnplan.common.files import check_suffix, check_writable, write_text
from tnplan.common.units import figure_text
from tnplan.compress import compress, decompress
from tnplan.compress.format.bounds import check_bound
from tnplan.compress.format.errors import CodecError
from tnplan.reporting import tables
from tnplan.reporting.plots import BLUE, GREY, VERMILION, Plot, plain, svg_of

OURS = ("fast", "small")
COLUMNS = ("pipeline", "ratio", "compress MB/s", "restore MB/s", "worst error / bound")

Parts = list[NDArray[np.float32]]


@dataclass(frozen=True)
class CodecRow:
    """A pipeline on an array; `worst_error` is the largest error of a part over the range of that part.

    `array_bytes` are those of the array in single precision; `encode_s` and `decode_s` are seconds.
    """

    name: str
    array_bytes: int
    stream_bytes: int
    encode_s: float
    decode_s: float
    worst_error: float

    @property
    def ratio(self) -> float:
        """Bytes of the array in single precision over compressed bytes."""
        return self.array_bytes / self.stream_bytes

    @property
    def rates(self) -> tuple[float, float]:
        """MB of the array compressed and restored a second."""
        return self.array_bytes / self.encode_s / 1e6, self.array_bytes / self.decode_s / 1e6


def compare_codecs(
    array: NDArray[Any], bound: float = 1e-3, threshold: float | None = None
) -> list[CodecRow]:
    """A row for each pipeline and setting; InputError for what the pipelines cannot take."""
    cut = bound if threshold is None else threshold
    for name, number in (("bound", bound), ("threshold", cut)):
        try:
            check_bound(number, "range")
        except CodecError as error:
            raise InputError(name, error.problem, error.remedy) from None
    if bound == 0:
        raise InputError("bound", "is 0", "give one above 0: the pipelines have no lossless mode")
    if array.dtype.kind not in "fc" or not array.size:
        problem = f"has dtype {array.dtype} and {array.size} elements"
        raise InputError("array", problem, "give real or complex floating point numbers")
    parts = components(array)
    if not all(np.isfinite(part).all() for part in parts):
        raise InputError("array", "has values that are not finite in single precision", "scale it down")
    rows = [_row(pipeline.name, parts, *_seed(pipeline, parts, bound, cut)) for pipeline in PIPELINES]
    return rows + [_row(f"tnplan {name}", parts, *_ours(name, parts, bound)) for name in OURS]


def _seed(
    pipeline: Pipeline, parts: Parts, bound: float, threshold: float
) -> tuple[Callable[[], list[bytes]], Callable[[list[bytes]], Parts]]:
    # A constant part has no range; any bound keeps it.
    ranges = [value_range(part) or 1.0 for part in parts]

    def encode() -> list[bytes]:
        return [
            pipeline.encode(part, threshold * reach, bound * reach)
            for part, reach in zip(parts, ranges, strict=True)
        ]

    def decode(packed: list[bytes]) -> Parts:
        return [
            pipeline.decode(data, bound * reach, part.size)
            for data, part, reach in zip(packed, parts, ranges, strict=True)
        ]

    return encode, decode


def _ours(
    setting: str, parts: Parts, bound: float
) -> tuple[Callable[[], list[bytes]], Callable[[list[bytes]], Parts]]:
    whole = parts[0]
    if len(parts) == 2:
        whole = np.stack(parts, axis=1).reshape(-1).view(np.complex64)

    def decode(packed: list[bytes]) -> Parts:
        return components(decompress(packed[0]))

    return partial(_packed, whole, bound, setting), decode


def _packed(whole: NDArray[Any], bound: float, setting: str) -> list[bytes]:
    return [compress(whole, bound, setting=setting).data]


def _row(
    name: str, parts: Parts, encode: Callable[[], list[bytes]], decode: Callable[[list[bytes]], Parts]
) -> CodecRow:
    decode(encode())
    start_s = perf_counter()
    packed = encode()
    middle_s = perf_counter()
    again = decode(packed)
    end_s = perf_counter()
    worst = max(
        float(np.abs(part.astype(np.float64) - other).max()) / (value_range(part) or 1.0)
        for part, other in zip(parts, again, strict=True)
    )
    return CodecRow(
        name, sum(part.nbytes for part in parts), sum(map(len, packed)), middle_s - start_s, end_s - middle_s,
        worst,
    )  # fmt: skip


def codec_table(rows: Sequence[CodecRow], bound: float, title: str) -> tables.Listing:
    """A row for each pipeline; errors above the bound are those of a threshold above it."""
    cells = [
        (row.name, f"{row.ratio:.2f}", *map(figure_text, row.rates), f"{row.worst_error / bound:.4f}")
        for row in rows
    ]
    return tables.Listing(title, COLUMNS, cells, left=("pipeline",))


def codec_plot(rows: Sequence[CodecRow]) -> Plot:
    """Ratio against rates of compressing (filled) and restoring (open), both on logarithmic axes."""

    def fill(axes: Axes) -> None:
        for row in rows:
            colour = VERMILION if row.name.startswith("tnplan") else BLUE
            axes.plot(row.rates, (row.ratio, row.ratio), color=GREY, linewidth=0.6, zorder=1)
            axes.plot(row.rates[0], row.ratio, "o", color=colour)
            axes.plot(row.rates[1], row.ratio, "o", color=colour, fillstyle="none")
            axes.annotate(row.name, (row.rates[0], row.ratio), xytext=(5, 4), textcoords="offset points")
        axes.set(
            xscale="log", yscale="log", ylabel="ratio",
            xlabel="MB/s, compressing (filled) and restoring (open)",
        )  # fmt: skip
        axes.grid(alpha=0.3)

    return plain(fill, 4.6)


def _missed(rows: Sequence[CodecRow], bound: float) -> bool:
    """Whether a stream of ours is further from the array than its bound."""
    return any(row.worst_error > bound for row in rows if row.name.startswith("tnplan"))


def main() -> int:
    """Compare, print the table, draw the plot; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("array", type=Path, metavar="ARRAY.npy")
    parser.add_argument("--bound", type=float, default=1e-3)
    parser.add_argument("--threshold", type=float)
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="ratio over rates")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    try:
        if given.plot is not None:
            check_writable(given.plot, given.array)
            check_suffix(given.plot, ".svg")
        rows = compare_codecs(map_array(given.array), given.bound, given.threshold)
    except (InputError, CodecError) as error:
        parser.error(str(error))
    if given.plot is not None:
        write_text(given.plot, svg_of(codec_plot(rows)))
    if given.json:
        print(json.dumps([{**asdict(row), "ratio": row.ratio} for row in rows]))
        return int(_missed(rows, given.bound))
    cut = given.bound if given.threshold is None else given.threshold
    title = f"{given.array}: bound {given.bound:g}, threshold {cut:g} of the range"
    tables.console().print(codec_table(rows, given.bound, title))
    missed = _missed(rows, given.bound)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
