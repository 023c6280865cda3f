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
    n_waiting = 0
    """Sums that each thread has a number of, until a warp adds them up together."""

    def _word_sums(self, sums: Sequence[tuple[MultiplexedGate, int]]) -> None:
        """Sums that are taken now, each with the mask of the bits that sign it besides its own.

        Those about the same bits of x share products.
        """
        sharing: dict[tuple[int, bool], list[tuple[WordSum, int]]] = {}
        for one, signed in sums:
            assert isinstance(one, WordSum)
            sharing.setdefault((self._near(one.targets), one.imaginary), []).append((one, signed))
        for (x, imaginary), group in sorted(sharing.items(), key=lambda item: item[0]):
            if len(group) > 1:
                self._write(f"{{ PRODUCTS({x}, {int(imaginary)})")
            for one, signed in group:
                name = "SUM(" if len(group) > 1 else f"SUM_ALONE({x}, {int(imaginary)}, "
                near, parity = self._parity(one.z ^ signed)
                self._write(f"{name}{self.n_waiting}, {near}, {parity})")
                self.sums.append((one.number, abs(self.scale) ** 2))
                self.n_waiting += 1
                if self.n_waiting == MOST_TOGETHER:
                    self._add_sums()
            if len(group) > 1:
                self._write("}")

    def _add_sums(self) -> None:
        """The sums that wait are added up."""
        if self.n_waiting:
            self._write(f"SUMS({self.n_waiting}, {len(self.sums) - self.n_waiting})")
        self.n_waiting = 0

    def _near(self, bits: Sequence[int]) -> int:
        """The registers of some bits, as a mask."""
        return sum(1 << self.layout.registers.index(self.place[bit]) for bit in bits)
