"""Inner products of two states about Pauli words, as macros of a compiled pass; see sums.cuh.

Bit 0 of the index tells the states apart, 0 for psi and 1 for lambda, and is in registers. Knows bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from tnplan.executor.statevector.codegen.gate_macros import GateMacros
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate
from tnplan.executor.statevector.gates.word_sum import WordSum

MOST_TOGETHER = 8
"""Sums that a warp adds up together: each of its threads has a number for each."""


class SumMacros(GateMacros):
    """Writes sums; collects their numbers and scales."""

    sums: list[tuple[int, float]]

    def _word_sums(self, sums: Sequence[tuple[MultiplexedGate, int]]) -> None:
        """Sums that are taken now, each with the mask of the bits that sign it besides its own.

        Those about the same bits of x share products.
        """
        found = [(self._near(one.targets), one.imaginary, one, signed) for one, signed in sums
                 if isinstance(one, WordSum)]  # fmt: skip
        found.sort(key=lambda row: row[:2])
        for first in range(0, len(found), MOST_TOGETHER):
            group, last = found[first : first + MOST_TOGETHER], None
            self._write(f"SUMS_BEGIN({len(group)})")
            for at, (x, imaginary, one, signed) in enumerate(group):
                if (x, imaginary) != last:
                    self._write(f"PRODUCTS({x}, {int(imaginary)})")
                    last = x, imaginary
                near, parity = self._parity(one.z ^ signed)
                self._write(f"SUM({at}, {near}, {parity})")
            self._write(f"SUMS_END({len(group)}, {len(self.sums)})")
            self.sums += [(one.number, abs(self.scale) ** 2) for _, _, one, _ in group]

    def _near(self, bits: Sequence[int]) -> int:
        """The registers of some bits, as a mask."""
        return sum(1 << self.layout.registers.index(self.place[bit]) for bit in bits)
