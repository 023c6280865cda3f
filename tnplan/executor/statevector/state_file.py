"""States on disk: amplitudes as an .npy a rank, and a .json that says what they mean. Knows no circuit.

Changelog of `tnplan.state`:
1 (2026-11-21): first version.
2 (2026-11-29): `checksums` of the parts, and `identity` of the index. Version 1 is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.common.array_file import ArrayHeader, map_array
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.files import check_writable, file_path, identity_of, read_json, write_file, write_json
from tnplan.executor.statevector.memory_estimate import LARGEST

FORMAT = "tnplan.state"
VERSION = 2
DTYPES = ("complex64", "complex128")
"""What amplitudes may be."""
REMEDY = "give a state as it was saved"


def state_file(path: str | Path, rank: int) -> Path:
    """The .npy of a rank's part of the state that the .json `path` names."""
    return Path(path).with_suffix(f".{rank}.npy")


def check_state_writable(
    path: str | Path, ranks: int, output: str | Path | None, *inputs: str | Path
) -> None:  # fmt: skip
    """Refuse a name to which `ranks` cannot write a state next to `output`, before any work is done."""
    if file_path(path).suffix != ".json":
        raise InputError(str(path), "is not a .json file", "give the state a name that ends in .json")
    for target in (Path(path), *(state_file(path, rank) for rank in range(ranks))):
        check_writable(target, *inputs)
        if output is not None and target.resolve() == Path(output).resolve():
            raise InputError(str(output), "is also a file of the state", "give the result another name")


def remove_index(path: str | Path) -> None:
    """Remove an older index before parts are replaced: what fails later leaves none that names a mixture."""
    try:
        Path(path).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(str(path), f"cannot be replaced ({error.strerror})", "choose another name") from None


def save_part(path: str | Path, rank: int, amplitudes: Array) -> str:
    """Write the amplitudes of one rank; their checksum."""
    write_file(state_file(path, rank), lambda stream: np.save(stream, amplitudes, allow_pickle=False))
    return _checksum(amplitudes)


def save_index(path: str | Path, checksums: Sequence[str], dtype: str, where: tuple[int, ...]) -> None:
    """Write what the parts of all ranks mean, which are there; qubit q is bit where[q] of the index."""
    document = {
        "format": FORMAT, "version": VERSION, "n_qubits": len(where), "dtype": dtype, "where": list(where),
        "parts": [state_file(path, rank).name for rank in range(len(checksums))],
        "checksums": list(checksums),
    }  # fmt: skip
    write_json(path, {**document, "identity": identity_of(document)})


def _checksum(amplitudes: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(amplitudes).data).hexdigest()


@dataclass(frozen=True, eq=False)
class SavedState:
    """A state on disk: where its qubits are, and its amplitudes in equal parts, mapped, with their files.

    `checksums` are those that the parts should have.
    """

    where: tuple[int, ...]
    dtype: str
    files: tuple[Path, ...]
    parts: tuple[Array, ...]
    checksums: tuple[str, ...] = ()

    def check(self, rank: int, ranks: int) -> None:
        """Raise InputError where a part, of those that this one of so many ranks looks at, is another one.

        A state in memory has no checksums.
        """
        for number in range(rank, len(self.checksums), ranks):
            if _checksum(self.parts[number]) != self.checksums[number]:
                raise InputError(
                    str(self.files[number]), "is not as it was saved (its checksum differs)", REMEDY
                )

    def read(self, first: int, count: int) -> Array:
        """The amplitudes first .. first+count-1."""
        size = len(self.parts[0])
        pieces = []
        while count:
            file, start = divmod(first, size)
            piece = self.parts[file][start : start + count]
            pieces.append(piece)
            first, count = first + len(piece), count - len(piece)
        return np.concatenate(pieces)


def load_state(path: str | Path) -> SavedState:
    """A state that was saved, by however many ranks; raises InputError."""
    document = read_json(path, FORMAT, VERSION)
    where, dtype, names = (document.get(field) for field in ("where", "dtype", "parts"))
    if (
        not isinstance(where, list) or not 1 <= len(where) <= LARGEST
        or {type(bit) for bit in where} != {int} or sorted(where) != list(range(len(where)))
    ):  # fmt: skip
        raise InputError(f"{path}: where", f"is {str(where)[:40]}", "give each bit of the index once")
    if dtype not in DTYPES:
        raise InputError(f"{path}: dtype", f"is {dtype!r}", f"use {' or '.join(DTYPES)}")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path}: parts", f"is {str(names)[:40]}", "name the .npy of each rank")
    if any(Path(name).name != name for name in names):
        raise InputError(f"{path}: parts", "names a file in another folder", "put all files into one folder")
    if (1 << len(where)) % len(names):
        raise InputError(f"{path}: parts", f"names {len(names)} files", "name 2^k, each with equal parts")
    checksums = document.get("checksums")
    if not isinstance(checksums, list) or len(checksums) != len(names):
        raise InputError(f"{path}: checksums", f"is {str(checksums)[:40]}", "give a checksum for each part")
    if document.pop("identity", None) != _identity(document):
        raise InputError(str(path), "was changed after it was written", REMEDY)
    size = (1 << len(where)) // len(names)
    files = tuple(Path(path).parent / name for name in names)
    parts = tuple(_shard(file, size, dtype) for file in files)
    return SavedState(tuple(where), dtype, files, parts, tuple(checksums))


def _identity(document: dict[str, Any]) -> str:
    """That of an index without it; empty where no index could hold such values."""
    try:
        return identity_of(document)
    except ValueError:
        return ""


def state_of(amplitudes: Any, dtype: str) -> SavedState:
    """A state in memory, whose qubit q is bit q of the index; raises InputError."""
    try:
        array = np.asarray(amplitudes)
    except (TypeError, ValueError):
        array = np.empty(0, object)
    size = array.size
    if array.ndim != 1 or array.dtype.kind not in "iufc" or size < 2 or size & (size - 1):
        raise InputError(
            "start", f"is an array of shape {array.shape} and dtype {array.dtype}", "list 2^n amplitudes"
        )
    return SavedState(tuple(range(size.bit_length() - 1)), dtype, (), (array.astype(dtype),))


def _shard(path: Path, size: int, dtype: str) -> Array:
    def check(header: ArrayHeader) -> None:
        if header.shape != (size,) or header.dtype != np.dtype(dtype):
            raise InputError(
                str(path), f"holds {header.dtype} of shape {header.shape}", f"give {dtype} of shape ({size},)"
            )

    return map_array(path, check)
