"""Files with random damage: of bytes, of words, of JSON documents and of arrays' headers."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

Mutation = Callable[[bytes, Random], bytes]

WORDS = (
    "-1", "0", "1", "2", "63", "64", "1e308", "-1e-320", "nan", "inf", "9223372036854775808", "1" * 40, "",
    "x", '"', "é", "\x1b[31m", "\0", "[", "]", "{", "}", "(", ")", ";", ",", "\n", "$", "99999", "a" * 3000,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 7, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, float("nan"), "", "x", "a",
    "\x1b[31m", "$\\frac{$", "[/]", [], [0], [[]], [0, 0], {}, {"a": 1}, [None], "é" * 500,
)  # fmt: skip
DTYPES = ("<f4", ">f4", "<f2", "<c8", "<c16", "<i8", "|b1", "<U3", "|O", "<M8[s]", "|V8", "|S1", "<f16")
SHAPES = ((), (0,), (1,), (2**40,), (-1,), (8, 8), (8, 8, 1), (2**62, 8), (64,))
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


def mutated_bytes(content: bytes, random: Random) -> bytes:
    """Some bytes changed, cut out, doubled, or moved."""
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 3, 10))):
        if not data:
            break
        at = random.randrange(len(data))
        size = random.choice((1, 1, 2, 8, 64, 1000))
        kind = random.randrange(6)
        if kind == 0:
            data[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            data[at : at + size] = random.randbytes(min(size, len(data) - at))
        elif kind == 2:
            del data[at : at + size]
        elif kind == 3:
            data[at:at] = data[at : at + size]
        elif kind == 4:
            del data[at:]
        else:
            data[at:at] = random.randbytes(size)
    return bytes(data)


def mutated_words(content: bytes, random: Random) -> bytes:
    """Some words of a text replaced, removed, doubled or exchanged."""
    pieces = re.split(r"([A-Za-z_][\w]*|-?[\d.]+(?:[eE][-+]?\d+)?|[^\w\s])", content.decode())
    places = [at for at, piece in enumerate(pieces) if piece.strip()]
    for _ in range(random.choice((1, 1, 2, 5))):
        at, other = random.choice(places), random.choice(places)
        kind = random.randrange(5)
        if kind == 0:
            pieces[at] = random.choice(WORDS)
        elif kind == 1:
            pieces[at] = ""
        elif kind == 2:
            pieces[at] += f" {pieces[at]}"
        elif kind == 3:
            pieces[at], pieces[other] = pieces[other], pieces[at]
        else:
            pieces[at] = pieces[other]
    return "".join(pieces).encode()


def mutated_json(content: bytes, random: Random, sign: Callable[[Any], Any] | None = None) -> bytes:
    """Some values of a document replaced, removed, doubled or exchanged; then signed, if it is to be."""
    document = json.loads(content)
    for _ in range(random.choice((1, 1, 2, 4))):
        owners = _owners(document)
        owner, other = random.choice(owners), random.choice(owners)
        key, second = (random.choice(list(one) if isinstance(one, dict) else range(len(one)))
                       for one in (owner, other))  # fmt: skip
        kind = random.randrange(5)
        if kind == 0:
            owner[key] = _copy(random.choice(VALUES))
        elif kind == 1:
            del owner[key]
        elif kind == 2:
            owner[key] = _copy(other[second])
        elif kind == 3 and isinstance(owner[key], int | float):
            owner[key] = owner[key] + random.choice((-1, 1, 0.5))
        elif isinstance(owner, list):
            owner.append(_copy(owner[key]))
        else:
            owner[f"{key}x"] = owner.pop(key)
    return json.dumps(sign(document) if sign is not None else document).encode()


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _owners(document: Any) -> list[Any]:
    """Every dict and list that holds something."""
    found, todo = [], [document]
    while todo:
        one = todo.pop()
        if isinstance(one, dict | list) and one:
            found.append(one)
            todo += one.values() if isinstance(one, dict) else one
    return found or [[0]]


def mutated_array(content: bytes, random: Random) -> bytes:
    """An .npy whose header says something else than before."""
    stream = io.BytesIO(content)
    array = np.load(stream)
    kind = random.randrange(6)
    if kind == 0:
        values = array.astype(random.choice(("<f8", ">c16", "<f2", "<i4", "|b1")))
        return npy(values if random.random() < 0.5 else values.reshape(-1)[:-1])
    if kind == 1:
        array = array.copy()
        odd: tuple[float, ...] = (np.nan, np.inf, -0.0, 1e38)
        if array.dtype.kind in "iu":
            odd = (np.iinfo(array.dtype).max, np.iinfo(array.dtype).min, 0)
        array.reshape(-1)[random.randrange(array.size)] = random.choice(odd)
        return npy(array)
    shape, descr = array.shape, array.dtype.str
    shape = random.choice(SHAPES) if kind in (2, 4) else shape
    descr = random.choice(DTYPES) if kind in (3, 4) else descr
    order = random.random() < 0.3
    header = f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    if kind == 5:
        header = mutated_bytes(header, random)
    version = random.choice((1, 1, 2, 3, 9))
    size = len(header) if random.random() < 0.8 else random.choice((0, 10, 60000, 2**32 - 1))
    length = size.to_bytes(4, "little")[: 2 if version == 1 else 4]
    return b"\x93NUMPY" + bytes((version, 0)) + length + header + array.tobytes()


def mutated_archive(content: bytes, random: Random) -> bytes:
    """An .npz of which one member is another one, or is missing, twice there, encrypted or oddly packed."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = random.choice(list(members))
    kind = random.randrange(7)
    if kind < 3:
        member = members[name]
        plain = np.load(io.BytesIO(member)).dtype.kind in "iufc"
        members[name] = mutated_array(member, random) if plain and kind else mutated_bytes(member, random)
    elif kind == 3:
        members.pop(name)
    elif kind == 4:
        members[random.choice(("t99.npy", "../x.npy", "\x1b[31m.npy", name.upper()))] = members[name]
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", random.choice(METHODS)) as archive:
        for key, value in members.items():
            archive.writestr(key, value)
    data = bytearray(made.getvalue())
    if kind >= 5:
        for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            place = data.find(mark)
            if kind == 5:
                data[place + at] |= 1
            else:
                data[place + at + 2] = random.choice((1, 9, 12, 99))
    return bytes(data)


def npy(array: Any) -> bytes:
    """The bytes of an .npy."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()
