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


# O = sum_k f_k X^x_k Z^z_k. Words with the same x are one permutation after one diagonal: (O a)[i]
# = sum over x of D_x[i ^ x] a[i ^ x], D_x[j] = sum_k f_k (-1)^|z_k & j|. D_x is made for a block of
# neighbours at a time, and so is the sum.
@jit
def word_sum_value(amplitudes: Any, words: Any, scratch: Any, first: int, last: int, out: Any) -> None:
    """out[piece] = the real and the imaginary part of the sum over i of conj(a[i]) (O a)[i] in a piece of the
    index, for pieces first .. last-1; `words` are a `WordTable`, `scratch` a `WordScratch`."""
    # <a|O|a>, each block's part from (O a) of this block. Invariant: pieces depend on `out` alone,
    # not on threads.
    block, size = scratch.re.size, amplitudes.size // out.shape[0]
    for piece in range(first, last):
        re = im = 0.0
        for start in range(piece * size, (piece + 1) * size, block):
            _times_words(amplitudes, words, scratch, start)
            for i in range(block):
                a = amplitudes[start + i]
                p, q = np.float64(a.real), np.float64(a.imag)
                re += p * scratch.re[i] + q * scratch.im[i]
                im += p * scratch.im[i] - q * scratch.re[i]
        out[piece, 0] = re
        out[piece, 1] = im


@jit
def write_word_sum(out: Any, amplitudes: Any, words: Any, scratch: Any, first: int, last: int) -> None:
    """out[i] = (O a)[i] for blocks first .. last-1 of i."""
    block = scratch.re.size
    for start in range(first * block, last * block, block):
        _times_words(amplitudes, words, scratch, start)
        for i in range(block):
            out[start + i] = complex(scratch.re[i], scratch.im[i])


@jit
def _times_words(amplitudes: Any, words: Any, scratch: Any, start: int) -> None:
    """scratch.re and scratch.im = (O a)[start + i] for the i of a block."""
    block = scratch.re.size
    for i in range(block):
        scratch.re[i] = scratch.im[i] = 0.0
    for group in range(words.x.size):
        # x is split: its bits within a block permute the block (`near`), the others choose which
        # block is read (`far`). Invariant: the block is a power of two and `start` a multiple of
        # it.
        near, far = words.x[group] & (block - 1), start ^ (words.x[group] & -block)
        is_real = _diagonal(words, group, far, scratch)
        for i in range(block):
            j = i ^ near
            a, c = amplitudes[far + j], scratch.diagonal_re[j]
            p, q = np.float64(a.real), np.float64(a.imag)
            scratch.re[i] += c * p
            scratch.im[i] += c * q
            # Where no word of the group has an imaginary factor, half the work is left out.
            if not is_real:
                d = scratch.diagonal_im[j]
                scratch.re[i] -= d * q
                scratch.im[i] += d * p


@jit
def _diagonal(words: Any, group: int, start: int, scratch: Any) -> bool:
    """scratch.diagonal[i] = the sum over the words of a group of factor (-1)^|z & (start + i)|; whether it
    is real."""
    # (-1)^|z & (start + i)| is a product of the signs of z's high bits at `start` and of its low
    # bits at i. A run has the words with the same low bits: their high signs and factors add up to
    # one number, and the block is touched once a run.
    re, im = scratch.diagonal_re, scratch.diagonal_im
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
