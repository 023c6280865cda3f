"""The file of one rank's partial sum: the array, or a stream of it that is compressed without loss.

Changelog of `tnplan.checkpoint.sum`:
1 (2026-11-29): first version. Partial sums without a checksum are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from tnplan.common.array_file import ArrayHeader
from tnplan.common.arrays import Array
from tnplan.common.checkpoint import CheckpointFile
from tnplan.compress.cpu.codec import allocate, decode, encode
from tnplan.compress.format.errors import CodecError
from tnplan.compress.format.stream import Header
from tnplan.executor.contraction.run.checkpoint_manifest import RESTART

COMPRESSED = ".tnz"


class PartialSum(CheckpointFile):
    """The sum of the first `n_slices` slices of a rank's group, in a division of the slices of a run."""

    FORMAT, VERSION, ARRAYS = "tnplan.checkpoint.sum", 1, ("sum",)
    JOB, OTHERS = "run", "tensors, slices or numbers of ranks"
    RESTART, DURABLE = RESTART, True

    def __init__(self, path: Path, division: str, rank: int, n_slices: int) -> None:
        super().__init__(path, division, {"rank": rank, "slices": n_slices})
        self._expected: tuple[int, Any] = (0, None)

    def load(self, elements: int, dtype: str) -> Array:
        """The sum; InputError where it has not so many elements of the dtype, or cannot be used."""
        self._expected = elements, np.dtype(dtype)
        return self.content(lambda _, arrays: arrays["sum"])

    def save(self, partial: Array) -> None:
        """Write the sum through to the disk."""
        self.replace({}, partial)

    def _check_sum(self, shape: tuple[int, ...], dtype: Any) -> None:
        elements, expected = self._expected
        if shape != (elements,) or dtype != expected:
            raise self.refusal(f"holds {shape} of {dtype}, this run has ({elements},) of {expected}")

    def _check_array(self, header: ArrayHeader) -> None:
        self._check_sum(header.shape, header.dtype)

    def _write_values(self, stream: Any, arrays: tuple[Array, ...]) -> None:
        if self.path.suffix != COMPRESSED:
            super()._write_values(stream, arrays)
            return
        for piece in encode(arrays[0], 0.0)[1]:
            stream.write(piece)

    def _read_values(self, stream: BinaryIO, size_bytes: int) -> dict[str, Array]:
        if self.path.suffix != COMPRESSED:
            return super()._read_values(stream, size_bytes)

        def checked(header: Header) -> Array:
            self._check_sum(header.shape, np.dtype(header.dtype))
            return allocate(header)

        try:
            return {"sum": decode(cast(BinaryIO, _Values(stream, size_bytes)), checked, size_bytes)[1]}
        except CodecError as error:
            raise self.refusal(f"cannot be read ({error})") from None


class _Values:
    """The first bytes of a file, as one that ends behind them."""

    def __init__(self, stream: BinaryIO, size_bytes: int) -> None:
        self._stream, self._left = stream, size_bytes

    def read(self, most: int) -> bytes:
        """The next bytes, `most` at most."""
        piece = self._stream.read(min(most, self._left))
        self._left -= len(piece)
        return piece
