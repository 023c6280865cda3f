"""Inner products about Pauli words as steps among gates. Knows bits; no state, no pass and no device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, bits_of, mask_of


@dataclass(frozen=True, eq=False)
class WordSum(MultiplexedGate):
    """The sum over i of (-1)^|z & i| conj(lambda[i ^ x]) psi[i], taken where it stands among gates.

    Its targets are the bits of x, its selectors those of z alone, so that it commutes with the gates that
    leave the sum as it is. Its matrix is zero: it is no gate, and has none of the properties of gates.
    `number` says whose sum it is; `imaginary`, which part of it is wanted; `factor`, how often.
    """

    z: int = field(default=0)
    number: int = field(default=0)
    imaginary: bool = field(default=False)
    factor: float = field(default=1.0)

    def on(self, where: Sequence[int]) -> WordSum:
        """The same sum with bit j renamed to where[j]."""
        x, z = (mask_of([where[bit] for bit in bits_of(mask)]) for mask in (self.target_mask, self.z))
        return replace(word_sum(x, z, self.number, self.imaginary), factor=self.factor)


def word_sum(x: int, z: int, number: int, imaginary: bool) -> WordSum:
    """The sum of the word whose masks are x and z.

    Examples
    --------
    >>> word_sum(0b01, 0b11, 0, False).selectors
    (1,)
    """
    targets, selectors = bits_of(x), bits_of(z & ~x)
    side = 1 << len(targets)
    matrices = np.zeros((1 << len(selectors), side, side), np.complex128)
    return WordSum(tuple(targets), tuple(selectors), matrices, z, number, imaginary)
