"""The numba kernels that measure a state: probabilities of chunks, samples, marginals, Pauli words.

Imported lazily. Sums are float64 whatever the amplitudes are, in a fixed order. Chunks are 2^chunk_bits
neighbouring amplitudes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.vector_operations import WORD_VECTORS, word_products
from tnplan.executor.device.cpu.bits_kernel import count_bits
from tnplan.executor.statevector.cpu.round_kernel import jit


@jit
def weight(amplitude: Any) -> float:
    """The probability of an amplitude."""
    return np.float64(amplitude.real) ** 2 + np.float64(amplitude.imag) ** 2


@jit
def chunk_sums(amplitudes: Any, chunk_bits: int, first: int, last: int, out: Any) -> None:
    """out[chunk] = the probability of chunks first .. last-1."""
    # Sums are float64 and of one chunk each: no result depends on the number of threads.
    for chunk in range(first, last):
        total = 0.0
        for i in range(chunk << chunk_bits, (chunk + 1) << chunk_bits):
            total += weight(amplitudes[i])
        out[chunk] = total


@jit
def draw(amplitudes: Any, chunk_bits: int, draws: Any, first: int, last: int, out: Any) -> None:
    """out[k] = the index in chunk chunks[k] up to which probability rests[k] is reached.

    `draws` are both: `chunks` rises, and `rests` rises in a chunk. Amplitudes that are 0 are never drawn.
    """
    # Sampling by the inverse of the cumulative distribution, in two levels: the caller has chosen
    # chunks by their sums; rests[k] is what is left of the random number within its chunk.
    # Invariant: both rise, so that one walk through a chunk serves all its draws.
    chunks, rests = draws
    k = first
    while k < last:
        chunk = chunks[k]
        total = 0.0
        last_possible = -1
        for i in range(chunk << chunk_bits, (chunk + 1) << chunk_bits):
            p = weight(amplitudes[i])
            # An amplitude of 0 is never drawn, also not as `last_possible`, for what rounding leaves.
            if p == 0:
                continue
            total += p
            last_possible = i
            while k < last and chunks[k] == chunk and rests[k] < total:
                out[k] = i
                k += 1
        # Rounding may leave a rest above the last total: then it is the last amplitude that is not 0.
        while k < last and chunks[k] == chunk:
            out[k] = last_possible
            k += 1


@jit
def marginal(amplitudes: Any, bits: Any, first: int, last: int, out: Any) -> None:
    """out[value of `bits`, the first least significant] += the probability of amplitudes first .. last-1."""
    for i in range(first, last):
        value = 0
        for k in range(bits.size):
            value |= (i >> bits[k] & 1) << k
        out[value] += weight(amplitudes[i])


@jit
def pauli(others: Any, amplitudes: Any, x: int, z: int, first: int, last: int) -> Any:
    """The sum over i in first .. last-1 of (-1)^|z & i| conj(others[i ^ x]) amplitudes[i], in two parts."""
    # A word with masks x and z is i^|x & z| X^x Z^z; the caller has the power of i. Z^z gives
    # (-1)^|z & i|, X^x takes i to i ^ x. conj(others) is why q has a minus.
    re = im = 0.0
    for i in range(first, last):
        a, b = others[i ^ x], amplitudes[i]
        p, q = np.float64(a.real), -np.float64(a.imag)
        s, t = np.float64(b.real), np.float64(b.imag)
        sign = 1.0 - 2.0 * (count_bits(np.uint64(z & i)) & 1)
        re += sign * (p * s - q * t)
        im += sign * (p * t + q * s)
    return re, im


@jit
def sign(mask: int, index: int) -> float:
    """(-1)^|mask & index|."""
    return 1.0 - 2.0 * (count_bits(np.uint64(mask & index)) & 1)


@jit
def add_word(out: Any, amplitudes: Any, word: Any, factor: Any, first: int, last: int) -> None:
    """out[i] += factor (-1)^|z & (i ^ x)| amplitudes[i ^ x] for i in first .. last-1, in double precision."""
    # The sign belongs to the source, i ^ x: Z^z acts first. A factor is its real and its imaginary part.
    (x, z), (factor_re, factor_im) = word, factor
    for i in range(first, last):
        b = amplitudes[i ^ x]
        s, t = np.float64(b.real), np.float64(b.imag)
        own = sign(z, i ^ x)
        re, im = own * factor_re, own * factor_im
        a = out[i]
        out[i] = complex(np.float64(a.real) + re * s - im * t, np.float64(a.imag) + re * t + im * s)


# <b| X^x Z^z |a> = sum_i (-1)^|z & i| conj(b[i ^ x]) a[i]. With interleaved parts (re, im, re, im, ...) the
# real part is the plain inner product of 2n real numbers, and the imaginary part that with -i a. So two real
# inner products, `own` and `turned`, give a complex one, and vectors need no shuffles.
@jit
def add_words(states: Any, masks: Any, first: int, last: int, scratch: Any, out: Any) -> None:
    """out[n, k] += the real and the imaginary part of the sum over the amplitudes i of piece n of
    (-1)^|z & i| conj(others[i ^ x]) amplitudes[i], for pieces first .. last-1; masks[k] are x and z, `states`
    are others and amplitudes.

    A state is divided into as many equal pieces as `out` has rows, and these into chunks; `scratch` are an
    array [2, 2 * chunk], two vectors and WORD_VECTORS signs. A chunk is a multiple of what `word_products`
    takes. Words whose x is the same in the bits of a vector come together.
    """
    # Invariant: the bounds of pieces and parts depend on the size of the state alone, so that sums
    # have the same bits for any number of threads.
    chunk, piece = scratch[0].shape[1] // 2, states[1].size // 2 // out.shape[0]
    for number in range(first, last):
        for start in range(number * piece, (number + 1) * piece, chunk):
            _add_part(states, masks, start, start + chunk, scratch, out[number])


@jit
def _add_part(states: Any, masks: Any, first: int, last: int, scratch: Any, out: Any) -> None:
    """The same for one part, first .. last-1, and `out` of its piece."""
    # A vector has lanes / 2 amplitudes. The bits of x within a vector would exchange lanes: instead
    # `own` and `turned` are copies with these bits exchanged, made once for all words with the same
    # low bits. Invariant: words come sorted by them.
    (others, amplitudes), (turns, totals, signs) = states, scratch
    own, turned = turns[0], turns[1]
    lanes = totals.size // 2
    inner = lanes // 2
    now = -1
    for k in range(masks.shape[0]):
        x, z = masks[k, 0], masks[k, 1]
        low, low_z = x & (inner - 1), z & (inner - 1)
        if low != now:
            turn(amplitudes, first, last, low, own, turned)
            now = low
        for lane in range(2 * lanes):
            totals[lane] = 0
        for offset in range(first, last, WORD_VECTORS * inner):
            # The sign of z's high bits is the same for a whole vector.
            for step in range(WORD_VECTORS):
                signs[step] = sign(z - low_z, offset + step * inner)
            # Offsets count real numbers: two for an amplitude.
            bra, ket, high = 2 * offset, 2 * (offset - first), 2 * (x - low)
            word_products((totals, others, own, turned, signs, bra, ket, high))
        for offset in range(inner):
            # The sign of z's low bits is one for each lane, the same in all vectors: it is applied
            # once, at the end.
            own_sign = sign(low_z, offset ^ low)
            for half in range(2):
                at = half * lanes + 2 * offset
                out[k, half] += own_sign * (np.float64(totals[at]) + np.float64(totals[at + 1]))


@jit
def turn(amplitudes: Any, first: int, last: int, low: int, own: Any, turned: Any) -> None:
    """own[i] = amplitudes[first + (i ^ low)], and turned = -1j times that, so that its products with b are
    the imaginary parts of conj(b) a."""
    for i in range(last - first):
        at = 2 * (first + (i ^ low))
        own[2 * i], own[2 * i + 1] = amplitudes[at], amplitudes[at + 1]
        turned[2 * i], turned[2 * i + 1] = amplitudes[at + 1], -amplitudes[at]


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
        # x is split: its bits within a block permute the block (`near`), the others choose which block is
        # read (`far`). Invariant: the block is a power of two and `start` a multiple of it.
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
