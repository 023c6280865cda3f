"""Diagonal gates on one and two bits, gathered into one quadratic form of phases. Knows no state, no device.

A unit diagonal on bits i, j is exp(i (c + a b_i + a' b_j + w b_i b_j)); sums of such phases are a `Twist`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate

Array = NDArray[Any]

UNIT = 1e-12


@dataclass(frozen=True, eq=False)
class Twist:
    """exp(i (constant + sum_j linear[j] b_j + sum_{j<k} pairs[j, k] b_j b_k)) on all bits b of an index.

    `linear` is float64 [n], `pairs` float64 [n, n], symmetric, its diagonal 0; in radians.
    """

    constant: float
    linear: Array
    pairs: Array

    def phases(self, bits: Sequence[int]) -> Array:
        """The phase, float64 [2^m], of every value of `bits` (the first most significant), others being 0."""
        numbers = np.arange(2 ** len(bits))
        total = np.full(len(numbers), self.constant)
        values = [numbers >> (len(bits) - 1 - k) & 1 for k in range(len(bits))]
        for k, bit in enumerate(bits):
            inside = self.linear[bit] + sum(
                (self.pairs[bit, other] * values[m] for m, other in enumerate(bits[:k])), np.zeros(1)
            )
            total += values[k] * inside
        return total


def can_twist(block: MultiplexedGate) -> bool:
    """Whether a block is a diagonal on one or two bits whose elements have modulus 1."""
    return (
        not block.targets
        and 1 <= len(block.selectors) <= 2
        and bool(np.all(np.abs(np.abs(block.blocks) - 1) <= UNIT))
    )


def gathered(blocks: Sequence[MultiplexedGate], n_bits: int) -> Twist:
    """The product of blocks that all `can_twist`."""
    constant, linear, pairs = 0.0, np.zeros(n_bits), np.zeros((n_bits, n_bits))
    for block in blocks:
        phases = np.angle(block.blocks[:, 0, 0])
        constant += phases[0]
        if len(block.selectors) == 1:
            linear[block.selectors[0]] += phases[1] - phases[0]
            continue
        i, j = block.selectors
        linear[j] += phases[1] - phases[0]
        linear[i] += phases[2] - phases[0]
        pairs[i, j] += phases[3] - phases[2] - phases[1] + phases[0]
        pairs[j, i] = pairs[i, j]
    return Twist(float(constant), linear, pairs)


def split(twist: Twist, held_mask: int) -> tuple[MultiplexedGate | None, Twist | None]:
    """The part on held bits alone as a diagonal block, and the rest; None for a part that is 1.

    The constant goes with the block where there is one.
    """
    n = len(twist.linear)
    held = np.array([held_mask >> bit & 1 for bit in range(n)], bool)
    both = np.outer(held, held)
    pairs = np.where(both, twist.pairs, 0)
    has_pairs = bool(np.any(pairs))
    outside = np.where(both, 0, twist.pairs)
    far = np.where(held & has_pairs, 0, twist.linear)
    if not has_pairs:
        far, pairs = twist.linear, np.zeros_like(pairs)
    near = Twist(twist.constant if has_pairs else 0.0, np.where(held, twist.linear, 0), pairs)
    block = None
    if has_pairs:
        used = np.flatnonzero(np.any(pairs, axis=0) | (near.linear != 0))
        bits = tuple(int(bit) for bit in used[::-1])
        block = MultiplexedGate((), bits, np.exp(1j * near.phases(bits)).reshape(-1, 1, 1))
    rest = Twist(0.0 if has_pairs else twist.constant, far, outside)
    if not (np.any(rest.linear) or np.any(rest.pairs) or rest.constant):
        return block, None
    return block, rest
