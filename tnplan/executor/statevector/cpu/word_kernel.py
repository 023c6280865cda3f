"""The numba kernel that sums many Pauli words between two states, part by part. Imported lazily.

Products are made on whole vectors in the precision of the states; sums over lanes and parts are float64, in
a fixed order. Amplitudes are given as real numbers, real and imaginary parts in turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.vector_operations import WORD_VECTORS, word_products
from tnplan.executor.statevector.cpu.measure_kernel import sign
from tnplan.executor.statevector.cpu.round_kernel import jit


# <b| X^x Z^z |a> = sum_i (-1)^|z & i| conj(b[i ^ x]) a[i]. With interleaved parts (re, im, re, im,
# ...) the real part is the plain inner product of 2n real numbers, and the imaginary part that with
# -i a. So two real inner products, `own` and `turned`, give a complex one, and vectors need no
# shuffles.
@jit
def add_words(
    others: Any, amplitudes: Any, masks: Any, first: int, last: int, scratch: Any, totals: Any, signs: Any,
    out: Any,
) -> None:  # fmt: skip
    """out[n, k] += the real and the imaginary part of the sum over the amplitudes i of piece n of
    (-1)^|z & i| conj(others[i ^ x]) amplitudes[i], for pieces first .. last-1; masks[k] are x and z.

    A state is divided into as many equal pieces as `out` has rows, and these into chunks; `scratch` is
    [2, 2 * chunk]. A chunk is a multiple of what `word_products` takes; `totals` has two vectors, `signs`
    WORD_VECTORS numbers. Words whose x is the same in the bits of a vector come together.
    """
    # Invariant: the bounds of pieces and parts depend on the size of the state alone, so that sums
    # have the same bits for any number of threads.
    chunk, piece = scratch.shape[1] // 2, amplitudes.size // 2 // out.shape[0]
    for number in range(first, last):
        for start in range(number * piece, (number + 1) * piece, chunk):
            own, turned = scratch[0], scratch[1]
            _add_part(
                others, amplitudes, masks, start, start + chunk, own, turned, totals, signs, out[number]
            )


@jit
def _add_part(
    others: Any, amplitudes: Any, masks: Any, first: int, last: int, own: Any, turned: Any, totals: Any,
    signs: Any, out: Any,
) -> None:  # fmt: skip
    """The same for one part, first .. last-1, and `out` of its piece."""
    # A vector has lanes / 2 amplitudes. The bits of x within a vector would exchange lanes: instead
    # `own` and `turned` are copies with these bits exchanged, made once for all words with the same
    # low bits. Invariant: words come sorted by them.
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
