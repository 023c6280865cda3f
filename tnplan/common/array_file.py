"""Arrays of .npy and .npz files of anybody: what a header promises is checked before there is memory for it.

A header is read within limits, and a member of an .npz has exactly the bytes that its header says. Nothing is
unpickled.
"""

from __future__ import annotations

import ast
import struct
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.files import open_input

MAGIC = b"\x93NUMPY"
LENGTHS = {1: "<H", 2: "<I", 3: "<I"}
"""How the length of a header is stored, by the format's major version."""
LONGEST_HEADER = 1 << 14
LARGEST_NDIM = 64
LAST_CHARACTER, FIRST_SURROGATE = 0x10FFFF, 0xD800
"""The last character of Unicode, and the first of 2^11 that are none."""
PIECE_BYTES = 1 << 22
PARSING = threading.Lock()
"""Invariant: one thread at a time makes a syntax tree. CPython 3.11 counts its depth once for all threads,
and two at a time end in SystemError ("recursion depth mismatch", CPython issue 106905)."""
DAMAGED = (
    ValueError, KeyError, EOFError, TypeError, RuntimeError, NotImplementedError, OverflowError, MemoryError,
    IndexError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What reading a damaged archive may raise, encryption and unknown compression among it."""


@dataclass(frozen=True)
class ArrayHeader:
    """What an array's header says of it; `start` is the place of its first value in the file or member."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_fortran: bool
    start: int

    @property
    def size_bytes(self) -> int:
        """The bytes of its values."""
        return prod(self.shape) * self.dtype.itemsize


Check = Callable[[ArrayHeader], object]
"""Raises InputError for an array that is not wanted, before its values are read."""


def read_header(stream: BinaryIO, place: str) -> ArrayHeader:
    """The header at the beginning of an .npy; InputError where there is none, or one of no plain values."""
    remedy = "give an array that numpy.save wrote"
    start = stream.read(8)
    if start[:6] != MAGIC or len(start) < 8 or start[6] not in LENGTHS:
        raise InputError(place, "cannot be read (it is not an .npy file)", remedy)
    form = LENGTHS[start[6]]
    length = stream.read(struct.calcsize(form))
    if len(length) < struct.calcsize(form):
        raise InputError(place, "cannot be read (it ends within its header)", remedy)
    (size,) = struct.unpack(form, length)
    # `ast.literal_eval` takes memory and stack by the length of a text: the length is bounded
    # before the text is read.
    if size > LONGEST_HEADER:
        reason = f"its header has {size} bytes, over {LONGEST_HEADER}"
        raise InputError(place, f"cannot be read ({reason})", remedy)
    text = stream.read(size)
    try:
        with PARSING:
            document = ast.literal_eval(text.decode("utf-8" if start[6] == 3 else "latin1").strip())
        shape, is_fortran = document["shape"], document["fortran_order"]
        dtype = np.lib.format.descr_to_dtype(document["descr"])
        valid = len(text) == size and len(document) == 3 and isinstance(is_fortran, bool) and _is_shape(shape)
    except (ValueError, SyntaxError, KeyError, TypeError, AttributeError, RecursionError, MemoryError):
        raise InputError(place, "cannot be read (its header is damaged)", remedy) from None
    if not valid:
        raise InputError(place, "cannot be read (its header is damaged)", remedy)
    # Objects would be unpickled, which runs code of the file.
    if dtype.hasobject or dtype.itemsize == 0:
        raise InputError(place, "cannot be read (Object arrays hold more than numbers)", remedy)
    return ArrayHeader(shape, dtype, is_fortran, 8 + len(length) + size)


def _is_shape(shape: Any) -> bool:
    return (
        isinstance(shape, tuple) and len(shape) <= LARGEST_NDIM
        and all(type(extent) is int and 0 <= extent < 2**48 for extent in shape)
        and prod(shape) < 2**60
    )  # fmt: skip


def _read_values(stream: BinaryIO, header: ArrayHeader, place: str) -> Array:
    """The values behind a header, and nothing behind them."""
    values = _next_values(stream, header, place)
    if stream.read(1):
        raise InputError(place, "cannot be read (more follows its values)", "write it again with numpy.save")
    return values


def _next_values(
    stream: BinaryIO, header: ArrayHeader, place: str, out: Array | None = None
) -> Array:  # fmt: skip
    """The values behind a header, in `out` where it is given."""
    try:
        flat = np.empty(prod(header.shape), header.dtype) if out is None else out.reshape(-1)
    except (MemoryError, ValueError):
        raise InputError(
            place,
            f"holds {header.size_bytes} bytes, more than the memory",
            "use a machine with more memory",
            topic="memory",
        ) from None
    # Filled in pieces, so that the content is never in memory twice.
    view, at = flat.view(np.uint8).data if flat.size else memoryview(b""), 0
    while at < header.size_bytes:
        piece = stream.read(min(PIECE_BYTES, header.size_bytes - at))
        if not piece:
            raise InputError(place, "cannot be read (it ends too early)", "give the whole file")
        view[at : at + len(piece)] = piece
        at += len(piece)
    if flat.dtype.kind == "U" and not _is_text(flat):
        raise InputError(place, "cannot be read (its text is not Unicode)", "write it again with numpy.save")
    return flat.reshape(header.shape, order="F" if header.is_fortran else "C")


def _is_text(flat: Array) -> bool:
    """Whether all characters of strings are Unicode; Python itself fails with others when they are shown."""
    characters = flat.view(np.dtype(np.uint32).newbyteorder(flat.dtype.byteorder))
    return not np.any((characters > LAST_CHARACTER) | (characters >> 11 == FIRST_SURROGATE >> 11))


def read_array(path: str | Path) -> Array:
    """The array of an .npy; InputError for anything else."""
    with open_input(path) as stream:
        header = _checked_header(stream, Path(path))
        return _read_values(stream, header, str(path))


def read_next_array(
    stream: BinaryIO, place: str, check: Check = lambda header: None, out: Array | None = None
) -> Array:
    """The array that `numpy.save` wrote where the stream is, once its header passed the check.

    It is read into a contiguous `out`, where that is given; ValueError where it is another kind of array.
    """
    header = read_header(stream, place)
    check(header)
    if out is not None and (header.shape, header.dtype, header.is_fortran) != (out.shape, out.dtype, False):
        raise ValueError
    return _next_values(stream, header, place, out)


def map_array(path: str | Path, check: Check = lambda header: None) -> Array:
    """The same of one whose header passes the check, mapped into memory; the file is not written to."""
    with open_input(path) as stream:
        header = _checked_header(stream, Path(path), check)
        if not prod(header.shape):
            return np.empty(header.shape, header.dtype)
        order: Any = "F" if header.is_fortran else "C"
        return np.memmap(stream, header.dtype, "c", header.start, header.shape, order)


def _checked_header(stream: BinaryIO, path: Path, check: Check = lambda header: None) -> ArrayHeader:
    header = read_header(stream, str(path))
    check(header)
    n_bytes = path.stat().st_size - header.start
    if n_bytes < header.size_bytes:
        raise InputError(
            str(path), f"cannot be read (of its {header.size_bytes} bytes of values {n_bytes} are there)",
            "give the whole file",
        )  # fmt: skip
    return header


class ArrayArchive:
    """The arrays of an .npz, in `with open_archive(path)`."""

    def __init__(self, archive: zipfile.ZipFile, place: str) -> None:
        self._archive, self._place = archive, place
        self._members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        if len(self._members) < len(archive.infolist()):
            raise InputError(place, "has two arrays of the same name", "write it again")

    @property
    def names(self) -> list[str]:
        """The names of the arrays."""
        return list(self._members)

    def read(self, name: str, check: Check = lambda header: None) -> Array:
        """One of its arrays, once its header passed the check."""
        member, place = self._members[name], f"{self._place}: {name}"
        try:
            with self._archive.open(member) as stream:
                header = read_header(stream, place)  # type: ignore[arg-type]
                check(header)
                # Invariant: header and archive agree on the bytes before memory is taken for them.
                if header.start + header.size_bytes != member.file_size:
                    problem = f"cannot be read (its header says {header.size_bytes} bytes of values, "
                    raise InputError(
                        place, f"{problem}{member.file_size - header.start} are there)", "write it again"
                    )
                return _read_values(stream, header, place)  # type: ignore[arg-type]
        except InputError:
            raise
        except DAMAGED as error:
            raise InputError(place, f"cannot be read ({error})", "write it again") from None


@contextmanager
def open_archive(path: str | Path, remedy: str) -> Iterator[ArrayArchive]:
    """An .npz to read arrays from; InputError where the file is none."""
    place = str(path)
    with open_input(path) as stream:
        if stream.read(6) == MAGIC:
            raise InputError(place, "holds a single array", remedy)
        try:
            archive = zipfile.ZipFile(stream)
        except DAMAGED:
            raise InputError(place, "is not an .npz file", remedy) from None
        with archive:
            yield ArrayArchive(archive, place)
