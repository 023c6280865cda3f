"""What a propagation asks of the terms of a rank, however they are stored. Knows no array of terms.

Collective calls are made by all ranks together. Some methods have an implementation here: what only ranks
decide, and for a store that takes steps one by one and has no bound of its memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tnplan.circuits.pauli_sum import PauliSum
from tnplan.common.arrays import Array
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.pauli.algebra.expectation import value_in
from tnplan.executor.pauli.algebra.gates import Clifford, TransferMatrix
from tnplan.executor.pauli.resharding import Costs, LocalRun, Sample
from tnplan.executor.pauli.terms.ledger import Ledger, Number
from tnplan.executor.pauli.terms.selection import TermCap
from tnplan.executor.pauli.terms.truncation import TermLimits


class RotationBatch(NamedTuple):
    """Rotations, an element each: packed words uint64 [n, 2 W], cosines and sines.

    After rotations that are `due` terms are swept. Branches go from a shard to the one at the distance, which
    those who store terms know.
    """

    generators: Array
    cosines: Array
    sines: Array
    due: Array
    distances: Array

    def between(self, first: int, last: int | None = None) -> RotationBatch:
        """Some of them, in a row."""
        return RotationBatch(*(array[first:last] for array in self))


class Terms(Protocol):
    """The terms of one rank; generators are packed words, uint64 [2 W], and a step ends with `end_step`."""

    n_qubits: int
    ledger: Ledger
    ranks: Communicator | None = None
    """Those that share the terms."""
    step_counts: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Of the last step: terms before it and after it, terms split, and branches merged."""

    @property
    def n(self) -> int:
        """How many terms this rank has."""

    @property
    def size_bytes(self) -> int:
        """What this rank's arrays take."""

    @property
    def n_ranks(self) -> int:
        """How many ranks share the terms."""
        return 1 if self.ranks is None else self.ranks.size

    def all_ranks(self, value: Number) -> Number:
        """The sum of a number over the ranks; collective."""
        return value if self.ranks is None else sum(self.ranks.gather_objects(value))

    def batch_limit(self, memory_terms: int | None) -> int:
        """How many rotations `rotate_many` may be given; 0: none. All ranks hold `memory_terms` at most."""
        return 0

    def limit(self, n_terms: int) -> None:
        """Grow arrays past so many terms of this rank only where a step needs it."""
        return None

    def cap(self, cap: TermCap) -> bool:
        """Never have more terms than `cap` allows; False: others must cut after every step."""
        return False

    def count(self, generator: Array) -> int:
        """How many terms of this rank a rotation about `generator` would split, at most."""

    def moved(self) -> Terms:
        """These terms, or those of another device where they have moved there; called between steps."""
        return self

    def reshard(self, generators: Array) -> int:
        """Distribute the terms so that these rotations, which come next, need few exchanges; collective.

        Returns how many of them, at least 1, are to be done before the next call.
        """
        return len(generators)

    def spread(self, run: LocalRun, sample: Sample, costs: Costs) -> int:
        """Move terms between ranks where that saves time in a run; for how many rotations; collective."""
        assert self.ranks is not None
        chosen = run.masks(self.ranks.gather_objects(sample), costs)
        masks, length = self.ranks.broadcast_object(chosen, 0)
        if masks is not None:
            self.move(masks)
        return int(length)

    def move(self, masks: Array) -> None:
        """Take every word to the rank that owns it by other masks of ranks; collective."""
        return None

    def rotate(self, generator: Array, cosine: float, sine: float, cut: float) -> None:
        """Rotate about `generator`; branches whose magnitude is below `cut` are dropped."""

    def rotate_many(self, rotations: RotationBatch, cut: float, limits: TermLimits) -> int:
        """Rotations one after another, each a step; after those that are `due` terms past the limits go.

        Returns how many are done: fewer than all, 1 at least, where the next may not fit in the memory.
        """
        for generator, cosine, sine, is_due, _ in zip(*rotations, strict=True):
            self.rotate(generator, cosine, sine, cut)
            if is_due:
                self.sweep(limits)
            self.end_step()
        return len(rotations.due)

    def transfer(self, step: TransferMatrix, cut: float) -> None:
        """Apply a transfer matrix; contributions below `cut` to other words are dropped."""

    def clifford(self, gates: Sequence[Clifford]) -> None:
        """Apply Cliffords one after another, in one pass."""

    def sweep(self, limits: TermLimits) -> None:
        """Drop terms past the limits, and zeros."""

    def keep_largest(self, count: int) -> None:
        """Of the terms of all ranks keep the `count` largest magnitudes; of equal ones the least words."""

    def end_step(self) -> None:
        """Enter the step in the ledger."""
        before, grown, branched, merged = self.step_counts
        self.ledger.steps.append((before, grown, self.n, branched, merged))

    def local_terms(self) -> PauliSum:
        """The terms of this rank, in rising order of their words."""

    def in_bits(self, bits: str | None = None) -> complex:
        """This rank's part of the value in a computational state; None is all 0."""

    def in_product(self, bloch: Array) -> float:
        """This rank's part of the value of real terms in a product state of Bloch vectors [qubit, 3]."""
        return float(value_in(self.local_terms(), bloch).real)

    def close(self) -> None:
        """Give back threads and memory."""
