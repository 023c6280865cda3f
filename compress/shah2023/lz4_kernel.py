"""The block format of LZ4 (lz4.github.io: LZ4 Block Format Description), with numba. Imported lazily.

A sequence is a token (4 bits of literals' length, 4 bits of match length less 4, 15 going on in bytes of up
to 255), literals, and a 16-bit offset; the last one has literals only.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

jit = numba.njit(nogil=True, cache=True, error_model="numpy")
int64: Any = np.int64

HASH_LOG2 = 12
LEAST_MATCH = 4
LAST_LITERALS = 5
LAST_MATCH = 12
"""The last match starts at least so many bytes before the end."""
FARTHEST = 65535


@jit
def _word(data: Any, at: Any) -> Any:
    return int64(data[at]) | int64(data[at + 1]) << 8 | int64(data[at + 2]) << 16 | int64(data[at + 3]) << 24


@jit
def _put_length(out: Any, end: Any, length: Any) -> Any:
    while length >= 255:
        out[end] = 255
        end += 1
        length -= 255
    out[end] = length
    return end + 1


@jit
def _put_sequence(data: Any, start: Any, stop: Any, match: Any, offset: Any, out: Any, end: Any) -> Any:
    """Literals data[start:stop], then a match of this length, 0 for none. Returns the new end."""
    literals = stop - start
    extra = match - LEAST_MATCH if match else 0
    out[end] = min(literals, 15) << 4 | min(extra, 15)
    end += 1
    if literals >= 15:
        end = _put_length(out, end, literals - 15)
    for i in range(start, stop):
        out[end] = data[i]
        end += 1
    if match:
        out[end] = offset & 255
        out[end + 1] = offset >> 8
        end += 2
        if extra >= 15:
            end = _put_length(out, end, extra - 15)
    return end


@jit
def encode(data: Any, out: Any, table: Any) -> Any:
    """Encode bytes greedily; `out` has room for size + size / 255 + 16. Returns how many were written."""
    table[:] = -1
    start = at = end = 0
    while at < data.size - LAST_MATCH:
        word = _word(data, at)
        slot = ((word * 2654435761) & 0xFFFFFFFF) >> (32 - HASH_LOG2)
        candidate = table[slot]
        table[slot] = at
        if candidate < 0 or at - candidate > FARTHEST or _word(data, candidate) != word:
            at += 1 + ((at - start) >> 6)
            continue
        match = LEAST_MATCH
        while at + match < data.size - LAST_LITERALS and data[candidate + match] == data[at + match]:
            match += 1
        end = _put_sequence(data, start, at, match, at - candidate, out, end)
        at += match
        start = at
    return _put_sequence(data, start, data.size, 0, 0, out, end)


@jit
def _take_length(data: Any, at: Any, length: Any) -> Any:
    """The whole length, and where the data goes on; -1 where it ends too early."""
    if length == 15:
        while at < data.size:
            more = int64(data[at])
            at += 1
            length += more
            if more != 255:
                return length, at
        return -1, at
    return length, at


@jit
def decode(data: Any, out: Any) -> Any:
    """Fill `out`; False where the data makes no sense or is of another size."""
    at = end = 0
    while at < data.size:
        token = int64(data[at])
        literals, at = _take_length(data, at + 1, token >> 4)
        if literals < 0 or at + literals > data.size or end + literals > out.size:
            return False
        for i in range(literals):
            out[end + i] = data[at + i]
        at += literals
        end += literals
        if at == data.size:
            return end == out.size
        if at + 2 > data.size:
            return False
        offset = int64(data[at]) | int64(data[at + 1]) << 8
        match, at = _take_length(data, at + 2, token & 15)
        if match < 0 or offset == 0 or offset > end or end + match + LEAST_MATCH > out.size:
            return False
        for i in range(match + LEAST_MATCH):
            out[end + i] = out[end + i - offset]
        end += match + LEAST_MATCH
    return False
