"""Few terms, which one core changes faster than a GPU: on the CPU until they are many."""

from __future__ import annotations

import numpy as np

from tnplan.circuits.observables.pauli_sum import PauliSum
from tnplan.executor.pauli.cuda.terms import GpuTerms
from tnplan.executor.pauli.terms.batched_rotations import Bound, rotate_all
from tnplan.executor.pauli.terms.protocol import RotationBatch, Terms
from tnplan.executor.pauli.terms.sharded import ShardedTerms
from tnplan.executor.pauli.terms.truncation import TermLimits

MOVED_ABOVE = 1 << 11
"""Terms above which a GPU is the faster, as measured."""
CAPPED_AT_ONCE = 16
"""Rotations after which they are counted, where the next may pass their cap."""


class FewTerms(ShardedTerms):
    """The terms of a lone rank on one core; `moved` gives those of its GPU when there are many.

    Complex coefficients stay here, for a GPU has real ones.
    """

    def __init__(self, start: PauliSum) -> None:
        super().__init__(start)
        self.most = None if np.iscomplexobj(start.coefficients) else MOVED_ABOVE

    def rotate_many(self, rotations: RotationBatch, cut: float, limits: TermLimits) -> int:
        """Rotations one after another, each a step, until there are many terms; how many are done."""
        cap = self.term_cap
        if self.most is None or (cap is not None and cap.n_terms <= self.most):
            return super().rotate_many(rotations, cut, limits)
        most = self.most if cap is None else min(self.most, cap.n_terms // 2)
        if self.n > most:
            return super().rotate_many(rotations.between(0, CAPPED_AT_ONCE), cut, limits)
        here = rotations._replace(distances=np.zeros(len(rotations.due), np.int64))
        return rotate_all(self.shards, here, cut, limits, self.ledger, bound=Bound(most))

    def moved(self) -> Terms:
        """The terms on the GPU, if they are many."""
        n = self.n
        if self.most is None or n <= self.most:
            return self
        keys, coefficients, frequencies = self.shards[0].leave(np.arange(n))
        terms = GpuTerms(PauliSum(self.n_qubits, keys, coefficients))
        terms.continue_from(self.ledger, frequencies)
        self.close()
        return terms
