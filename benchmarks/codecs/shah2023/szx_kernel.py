"""The numba kernels of SZx blocks (Yu et al., HPDC 2022), with the seed's two more states. Imported lazily.

States: 0 all zero, nothing stored; 1 constant: the median; 2 grouped: how many values, their places in the
block (a byte each), the values; 3 non-constant: median, bits a value, for each value two bits saying how
many leading bytes equal those of the value before, then the other bytes.
"""

from __future__ import annotations

from math import frexp
from typing import Any

import numpy as np

from tnplan.common.kernels.compile_kernel import cached_njit

jit = cached_njit(nogil=True, error_model="numpy")
int64: Any = np.int64

FLOAT_BYTES = 4
SIGN_AND_EXPONENT = 9
FLOAT_BITS = 32
LEAST_EXPONENT = -125
"""Of normal numbers, as `frexp` has it; smaller ones keep as many bits as these."""
MOST_LEADING = 3


def worst_block_bytes(block: int) -> int:
    """The most bytes of a block."""
    return FLOAT_BYTES + 1 + block // 4 + 1 + FLOAT_BYTES * block


@jit
def _put_word(word: Any, out: Any, end: Any) -> Any:
    for k in range(FLOAT_BYTES):
        out[end + k] = (int64(word) >> (8 * k)) & 255
    return end + FLOAT_BYTES


@jit
def _take_word(data: Any, at: Any) -> Any:
    word = 0
    for k in range(FLOAT_BYTES):
        word |= int64(data[at + k]) << (8 * k)
    return word


@jit
def _exponent(value: Any) -> Any:
    return frexp(float(value))[1]


@jit
def encode(values: Any, bound: Any, limit: Any, block: Any, states: Any, out: Any) -> Any:
    """Encode blocks; a limit below 0 means no threshold and no grouping. Returns the bytes written."""
    end = 0
    scratch = np.empty(block, np.float32)
    for b in range(states.size):
        size = min(block, values.size - b * block)
        significant = 0
        least = greatest = np.float32(0)
        finite = True
        for i in range(size):
            x = values[b * block + i]
            if np.abs(x) <= limit:
                x = np.float32(0)
            significant += x != 0
            finite &= np.isfinite(x)
            least = x if i == 0 else min(least, x)
            greatest = x if i == 0 else max(greatest, x)
            scratch[i] = x
        radius = (greatest - least) / np.float32(2)
        if limit >= 0 and significant == 0:
            states[b] = 0
        elif finite and radius <= bound:
            states[b] = 1
            scratch[0] = least + radius
            end = _put_word(scratch.view(np.uint32)[0], out, end)
        elif limit >= 0 and significant < block // 2:
            states[b] = 2
            end = _put_group(scratch, size, significant, out, end)
        else:
            states[b] = 3
            end = _put_bits(scratch, size, least, radius if finite else np.inf, bound, out, end)
    return end


@jit
def _put_group(scratch: Any, size: Any, significant: Any, out: Any, end: Any) -> Any:
    out[end] = significant
    end += 1
    for i in range(size):
        if scratch[i] != 0:
            out[end] = i
            end += 1
    bits = scratch.view(np.uint32)
    for i in range(size):
        if scratch[i] != 0:
            end = _put_word(bits[i], out, end)
    return end


@jit
def _put_bits(scratch: Any, size: Any, least: Any, radius: Any, bound: Any, out: Any, end: Any) -> Any:
    length = FLOAT_BITS
    median = np.float32(0)
    if np.isfinite(radius) and bound > 0:
        length = SIGN_AND_EXPONENT + max(_exponent(radius), LEAST_EXPONENT) - _exponent(bound) + 1
        length = min(max(length, SIGN_AND_EXPONENT), FLOAT_BITS)
    if length < FLOAT_BITS:
        median = least + np.float32(radius)
    n_bytes = (length + 7) // 8
    shift = 8 * n_bytes - length
    for i in range(size):
        scratch[i] -= median
    bits = scratch.view(np.uint32)
    head = np.empty(1, np.float32)
    head[0] = median
    end = _put_word(head.view(np.uint32)[0], out, end)
    out[end] = length
    leading_at = end + 1
    end = leading_at + (size + 3) // 4
    for k in range(leading_at, end):
        out[k] = 0
    before = 0
    for i in range(size):
        # The bytes kept are the highest of the number shifted right.
        word = (int64(bits[i]) >> shift) & 0xFFFFFFFF
        changed = word ^ before
        leading = 0
        while leading < min(MOST_LEADING, n_bytes) and (changed >> (24 - 8 * leading)) & 255 == 0:
            leading += 1
        out[leading_at + i // 4] |= leading << (2 * (i % 4))
        kept = 0
        for k in range(n_bytes):
            byte = (word >> (24 - 8 * k)) & 255
            kept |= byte << (24 - 8 * k)
            if k >= leading:
                out[end] = byte
                end += 1
        before = kept
    return end


@jit
def decode(data: Any, states: Any, block: Any, values: Any) -> Any:
    """Fill `values` from what `encode` wrote; False where the data makes no sense or is of another size."""
    at = 0
    bits = values.view(np.uint32)
    for b in range(states.size):
        first = b * block
        size = min(block, values.size - first)
        if states[b] == 1:
            if at + FLOAT_BYTES > data.size:
                return False
            bits[first : first + size] = _take_word(data, at)
            at += FLOAT_BYTES
        elif states[b] == 3:
            at = _take_bits(data, at, values[first : first + size])
        else:
            values[first : first + size] = 0
            if states[b] == 2:
                at = _take_group(data, at, bits[first : first + size])
        if at < 0:
            return False
    return at == data.size


@jit
def _take_group(data: Any, at: Any, bits: Any) -> Any:
    """Put the values of a grouped block to their places; returns where the data goes on, or -1."""
    if at >= data.size:
        return -1
    count = int64(data[at])
    end = at + 1 + count * (1 + FLOAT_BYTES)
    if end > data.size:
        return -1
    for k in range(count):
        place = int64(data[at + 1 + k])
        if place >= bits.size:
            return -1
        bits[place] = _take_word(data, at + 1 + count + FLOAT_BYTES * k)
    return end


@jit
def _take_bits(data: Any, at: Any, values: Any) -> Any:
    """Fill the values of a non-constant block; returns where the data goes on, or -1."""
    leading_at = at + FLOAT_BYTES + 1
    if leading_at + (values.size + 3) // 4 > data.size:
        return -1
    head = np.empty(1, np.uint32)
    head[0] = _take_word(data, at)
    median = head.view(np.float32)[0]
    length = int64(data[at + FLOAT_BYTES])
    if length < SIGN_AND_EXPONENT or length > FLOAT_BITS:
        return -1
    n_bytes = (length + 7) // 8
    shift = 8 * n_bytes - length
    at = leading_at + (values.size + 3) // 4
    bits = values.view(np.uint32)
    before = 0
    for i in range(values.size):
        leading = (int64(data[leading_at + i // 4]) >> (2 * (i % 4))) & 3
        if at + n_bytes - min(leading, n_bytes) > data.size:
            return -1
        word = 0
        for k in range(n_bytes):
            if k < leading:
                word |= before & (255 << (24 - 8 * k))
            else:
                word |= int64(data[at]) << (24 - 8 * k)
                at += 1
        before = word
        bits[i] = (word << shift) & 0xFFFFFFFF
        values[i] += median
    return at
