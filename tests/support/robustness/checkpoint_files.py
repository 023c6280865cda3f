"""Checkpoints taken apart and put together again, with a checksum that is right."""

from __future__ import annotations

import io
import json
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.support.robustness.mutations import mutated_array, mutated_json, npy


def parted(content: bytes) -> tuple[bytes, dict[str, Any]]:
    """The values and the header of a checkpoint."""
    start = content[:-1].rindex(b"\n") + 1
    header_bytes = int(content[start:].split()[1])
    return content[: start - header_bytes], json.loads(content[start - header_bytes : start])


def sealed(values: bytes, header: Any) -> bytes:
    """A checkpoint of these values and this header."""
    text = json.dumps(header).encode() + b"\n"
    content = values + text + b"tnplan-checkpoint %016d " % len(text)
    return content + sha256(content).hexdigest().encode() + b"\n"


def arrays_of(values: bytes) -> list[np.ndarray]:
    """The arrays that values are made of."""
    stream, arrays = io.BytesIO(values), []
    while stream.tell() < len(values):
        arrays.append(np.load(stream))
    return arrays


def document_of(path: Path) -> dict[str, Any]:
    """The document of a checkpoint."""
    document: dict[str, Any] = parted(path.read_bytes())[1]["document"]
    return document


def changed(path: Path, arrays: dict[int, Any] | None = None, **header: Any) -> None:
    """Replace some arrays, by their numbers, and fields of the header."""
    values, found = parted(path.read_bytes())
    if arrays:
        present = arrays_of(values)
        values = b"".join(npy(arrays.get(number, array)) for number, array in enumerate(present))
    path.write_bytes(sealed(values, {**found, **header}))


def mutated_document(content: bytes, random: Random) -> bytes:
    """A checkpoint whose document says something else, with a right checksum."""
    values, header = parted(content)
    document = json.loads(mutated_json(json.dumps(header["document"]).encode(), random))
    return sealed(values, {**header, "document": document})


def mutated_values(content: bytes, random: Random) -> bytes:
    """A checkpoint one of whose arrays is another one, with a right checksum."""
    values, header = parted(content)
    parts = [npy(array) for array in arrays_of(values)]
    number = random.randrange(len(parts))
    parts[number] = mutated_array(parts[number], random)
    return sealed(b"".join(parts), header)
