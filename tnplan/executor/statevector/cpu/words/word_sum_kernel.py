"""The numba kernels of a sum of many Pauli words: the sum times a state, and its expectation value.

Words with the same x share a diagonal, which is made for a block of neighbouring indices: words that differ
outside of the block alone cost one number each. All arithmetic is float64, sums run in a fixed order.
Imported lazily.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.executor.statevector.cpu.measure_kernel import sign
from tnplan.executor.statevector.cpu.round_kernel import jit


@jit
def word_sum_value(amplitudes: Any, words: Any, room: Any, first: int, last: int, out: Any) -> None:
    """out[piece] = the real and the imaginary part of the sum over i of conj(a[i]) (O a)[i] in a piece of the
    index, for pieces first .. last-1; `words` are a `WordTable`, `room` a `WordRoom`."""
    block, size = room.re.size, amplitudes.size // out.shape[0]
    for piece in range(first, last):
        re = im = 0.0
        for start in range(piece * size, (piece + 1) * size, block):
            _times_words(amplitudes, words, room, start)
            for i in range(block):
                a = amplitudes[start + i]
                p, q = np.float64(a.real), np.float64(a.imag)
                re += p * room.re[i] + q * room.im[i]
                im += p * room.im[i] - q * room.re[i]
        out[piece, 0] = re
        out[piece, 1] = im


@jit
def write_word_sum(out: Any, amplitudes: Any, words: Any, room: Any, first: int, last: int) -> None:
    """out[i] = (O a)[i] for blocks first .. last-1 of i."""
    block = room.re.size
    for start in range(first * block, last * block, block):
        _times_words(amplitudes, words, room, start)
        for i in range(block):
            out[start + i] = complex(room.re[i], room.im[i])


@jit
def _times_words(amplitudes: Any, words: Any, room: Any, start: int) -> None:
    """room.re and room.im = (O a)[start + i] for the i of a block."""
    block = room.re.size
    for i in range(block):
        room.re[i] = room.im[i] = 0.0
    for group in range(words.x.size):
        near, far = words.x[group] & (block - 1), start ^ (words.x[group] & -block)
        is_real = _diagonal(words, group, far, room)
        for i in range(block):
            j = i ^ near
            a, c = amplitudes[far + j], room.diagonal_re[j]
            p, q = np.float64(a.real), np.float64(a.imag)
            room.re[i] += c * p
            room.im[i] += c * q
            if not is_real:
                d = room.diagonal_im[j]
                room.re[i] -= d * q
                room.im[i] += d * p


@jit
def _diagonal(words: Any, group: int, start: int, room: Any) -> bool:
    """room.diagonal[i] = the sum over the words of a group of factor (-1)^|z & (start + i)|; whether it is
    real."""
    re, im = room.diagonal_re, room.diagonal_im
    for i in range(re.size):
        re[i] = im[i] = 0.0
    is_real = True
    for run in range(words.ends[group], words.ends[group + 1]):
        c = d = 0.0
        for k in range(words.run_ends[run], words.run_ends[run + 1]):
            own = sign(words.z[k], start)
            c += own * words.factor_re[k]
            d += own * words.factor_im[k]
        signs = words.signs[words.near[run]]
        for i in range(re.size):
            re[i] += c * signs[i]
        if d != 0:
            is_real = False
            for i in range(re.size):
                im[i] += d * signs[i]
    return is_real
