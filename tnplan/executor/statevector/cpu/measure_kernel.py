"""The numba kernels that measure a state: probabilities of chunks, samples, marginals, a Pauli word.

Imported lazily. Sums are float64 whatever the amplitudes are, in a fixed order. Chunks are 2^chunk_bits
neighbouring amplitudes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

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
