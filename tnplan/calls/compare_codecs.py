"""The seed's nine pipelines and our settings on one array: `tnplan compress --compare`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.calls.compress_file import in_file, load_array
from tnplan.common.errors import InputError
from tnplan.compress import compress, decompress
from tnplan.compress.format.bounds import check_bound
from tnplan.compress.format.errors import CodecError
from tnplan.compress.shah2023.pipelines import PIPELINES, Pipeline, components, value_range

OURS = ("fast", "small")

Parts = list[NDArray[np.float32]]


@dataclass(frozen=True)
class CodecRow:
    """One pipeline on one array; `worst_error` is the largest error over the range of its part.

    Parameters
    ----------
    name : str
        The pipeline, or our setting.
    array_bytes, stream_bytes : int
        The array in single precision, and compressed.
    encode_s, decode_s : float
        Seconds.
    worst_error : float
        The largest error of a part over the range of the part.

    Examples
    --------
    >>> tnplan.CodecRow("a", 4096, 1024, 0.5, 0.25, 1e-3).ratio
    4.0
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
    def encode_bytes_per_s(self) -> float:
        """Bytes of the array compressed a second."""
        return self.array_bytes / self.encode_s

    @property
    def decode_bytes_per_s(self) -> float:
        """Bytes of the array restored a second."""
        return self.array_bytes / self.decode_s


def compare_codecs(
    source: str | Path | NDArray[Any], bound: float = 1e-3, *, threshold: float | None = None
) -> list[CodecRow]:
    """Compress an array by the nine pipelines of Shah et al. 2023 and by ours, in single precision.

    Parameters
    ----------
    source : array or path
        An array of floating point numbers, or an .npy of one.
    bound : float
        The largest error, relative to the range of real and imaginary parts each.
    threshold : float, optional
        Values below it are zeroed by those pipelines, relative to the same range. Default: the bound.

    Returns
    -------
    list of CodecRow
        Sizes, times (of the second of two runs) and the worst error of each pipeline.

    Raises
    ------
    InputError
        For arrays that the pipelines cannot take.

    Examples
    --------
    >>> rows = tnplan.compare_codecs(np.linspace(0, 1, 4096))  # doctest: +SKIP
    """
    array = source if isinstance(source, np.ndarray) else load_array(source)
    place = "array" if isinstance(source, np.ndarray) else str(source)
    bound = _number(place, "bound", bound)
    cut = bound if threshold is None else _number(place, "threshold", threshold)
    if bound == 0:
        raise InputError(f"{place}: bound", "is 0", "give one above 0: the pipelines have no lossless mode")
    if array.dtype.kind not in "fc":
        raise InputError(place, f"has dtype {array.dtype}", "give real or complex floating point numbers")
    if not array.size:
        raise InputError(place, "is empty", "give an array with elements")
    parts = components(array)
    if not all(np.isfinite(part).all() for part in parts):
        if not np.isfinite(array).all():
            raise InputError(place, "holds NaN or infinities", "compare on finite numbers")
        greatest = np.finfo(np.float32).max
        raise InputError(
            place, f"has values beyond single precision ({greatest:.2g}), which the pipelines take",
            "scale the array down",
        )  # fmt: skip
    try:
        rows = [_row(pipeline.name, parts, *_seed(pipeline, parts, bound, cut)) for pipeline in PIPELINES]
        return rows + [_row(f"tnplan {name}", parts, *_ours(name, parts, bound)) for name in OURS]
    except CodecError as error:
        raise in_file(place, error) from None


def _number(place: str, name: str, given: float) -> float:
    """A bound or threshold; InputError, which names it, for what is no finite number of 0 or more."""
    try:
        return check_bound(given, "range")
    except CodecError as error:
        least = "above 0" if name == "bound" else "of 0 or more"
        raise InputError(f"{place}: {name}", error.problem, f"give a finite number {least}") from None


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
