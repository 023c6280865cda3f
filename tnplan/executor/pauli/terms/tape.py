"""Terms that keep a tape of what every step did to them, so that it can be run backwards.

The tape names terms of a rank by numbers of their own, given when a word appears and never again: a word that
was dropped and comes back has a new one. It takes memory for every term that a rotation splits, and for every
term at Cliffords and transfers. Terms stay on the rank that has their word: between ranks go only branches,
and in the backward pass what they give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tnplan.circuits.pauli_sum import PauliSum, product_powers
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.executor.device.protocols.communicator import Communicator, messages
from tnplan.executor.pauli.algebra.expectation import state_values
from tnplan.executor.pauli.algebra.gates import Clifford, TransferMatrix
from tnplan.executor.pauli.terms.hash_table import Branches, HashTerms
from tnplan.executor.pauli.terms.ledger import Loss, loss_of, total_loss
from tnplan.executor.pauli.terms.protocol import Terms
from tnplan.executor.pauli.terms.selection import Arrivals, is_past
from tnplan.executor.pauli.terms.sharded import SINGLE_SHARD_BELOW, ShardedTerms
from tnplan.executor.pauli.terms.truncation import TRUNCATE, TermLimits

ONE = np.uint64(1)
MOST_NUMBERS = 1 << 32
"""Terms of a rank that a tape can name."""


@dataclass(frozen=True, eq=False)
class Split:
    """What a step did to terms of one shard: they were scaled by `factors`.

    `coefficients` are those before a rotation; other steps have none.
    """

    terms: Array
    factors: Any
    coefficients: Array | None = None


@dataclass(frozen=True, eq=False)
class Sent:
    """Contributions that a step sent from term to term.

    Term `positions[s][k]` of those that were scaled in shard s sent `scale` times `weights[s][k]`. Its list
    went to shard s ^ `within` of the rank at distance `across`, whose list met the terms `targets`.
    """

    positions: list[Array]
    weights: list[Array]
    scale: float
    across: int
    within: int
    targets: list[Array]


@dataclass(frozen=True, eq=False)
class TapedStep:
    """A step, with an element of `splits` for each shard. Of a rotation it has cosine and sine."""

    splits: list[Split]
    sent: tuple[Sent, ...] = ()
    turn: tuple[float, float] | None = None

    @property
    def size_bytes(self) -> int:
        """What its arrays take; the weights of a transfer are counted as if all were arrays."""
        arrays: list[Any] = [a for s in self.splits for a in (s.terms, s.factors, s.coefficients)]
        arrays += [a for sent in self.sent for a in (*sent.positions, *sent.weights, *sent.targets)]
        return sum(a.nbytes for a in arrays if isinstance(a, np.ndarray))


class TapedTerms(ShardedTerms):
    """The terms of this rank with a tape; terms that are 0 stay.

    `memory_bytes` bounds what terms and tape take; past it the next step raises InputError, on all ranks.
    """

    def __init__(
        self, start: PauliSum, threads: int = 1, ranks: Communicator | None = None,
        memory_bytes: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(start, threads, ranks)
        self.n_numbers = 0
        self.numbers = [self._fresh(shard.n) for shard in self.shards]
        self.tape: list[TapedStep] = []
        self.tape_bytes = 0
        self.memory_bytes = memory_bytes
        self.slopes: Array = np.zeros(0)
        """The derivatives of the value by the coefficients of this rank, from `weigh` on."""

    @property
    def size_bytes(self) -> int:
        """What the arrays of terms and of the tape take."""
        return super().size_bytes + sum(numbers.nbytes for numbers in self.numbers) + self.tape_bytes

    # Steps are taped one by one, and terms stay where they are.
    batch_limit, cap, reshard = Terms.batch_limit, Terms.cap, Terms.reshard
    rotate_many = Terms.rotate_many

    def rotate(self, generator: Array, cosine: float, sine: float, cut: float) -> None:
        """Rotate about the packed word `generator`; branches below `cut` are dropped."""
        before = self._begin_step()

        def split(shard: HashTerms, numbers: Array) -> tuple[Split, Array, Array, Branches, int, Loss]:
            # The tape has what the reverse needs: which terms split, their coefficients before,
            # where each branch went, and its sign. Words are not needed.
            hits = shard.arrays.hits[: shard.count(generator)].copy()
            terms = Split(numbers[hits], cosine, shard.arrays.coefficients[hits])
            branches, branched, loss = shard.split(generator, cosine, sine, cut)
            signs = branch_signs(branches.keys[branches.senders], generator)
            positions = np.searchsorted(hits, branches.senders).astype(np.uint32)
            return terms, positions, signs, branches, branched, loss

        splits, positions, signs, lists, branched, losses = map(
            list, zip(*self._each(split, self.numbers), strict=True)
        )
        self.ledger.losses.append(total_loss(losses))
        merged, sent = self._send(lists, positions, signs, sine)
        self._record(TapedStep(splits, (sent,), (cosine, sine)))
        self.step_counts = (before, self.n, sum(branched), merged)

    def transfer(self, step: TransferMatrix, cut: float) -> None:
        """Apply a transfer; contributions below `cut` to other words are dropped."""
        before = self._begin_step()

        def split(shard: HashTerms) -> tuple[Array, list[Branches], int, Loss]:
            words = local_word_numbers(shard.rows().keys, step.qubits)
            return words, *shard.transfer(step, cut)

        # Words are read before the transfer, since the tape needs the local word that each term had.
        words, branch_lists, branched, losses = map(list, zip(*self._each(split), strict=True))
        self.ledger.losses.append(total_loss(losses))
        splits = [
            # Word a keeps T[a, a] of its coefficient and gives T[a ^ d, a] to a ^ d: backwards
            # slopes go by the transposed matrix.
            Split(numbers, np.diag(step.matrix)[local])
            for numbers, local in zip(self.numbers, words, strict=True)
        ]
        merged, sent = 0, []
        for lists_of_word in zip(*branch_lists, strict=True):
            d = int(local_word_numbers(lists_of_word[0].generator[None], step.qubits)[0])
            senders = [branches.senders for branches in lists_of_word]
            sources = [local[rows] for local, rows in zip(words, senders, strict=True)]
            weights = [step.matrix[source ^ d, source] for source in sources]
            n_met, sent_list = self._send(lists_of_word, senders, weights, 1.0)
            merged += n_met
            sent.append(sent_list)
        self._record(TapedStep(splits, tuple(sent)))
        self.step_counts = (before, self.n, sum(branched), merged)

    def clifford(self, gates: Sequence[Clifford]) -> None:
        """Apply Cliffords one after another."""

        def signs_of(shard: HashTerms) -> Array:
            coefficients = shard.arrays.coefficients[: shard.n]
            before = coefficients.copy()
            coefficients[:] = 1
            shard.clifford(gates)
            signs = coefficients.real.astype(np.int8)
            coefficients *= before
            return signs

        signs = self._each(signs_of, least=SINGLE_SHARD_BELOW)
        self.linear_hash.carry(*gates)
        self._record(TapedStep([Split(*both) for both in zip(self.numbers, signs, strict=True)]))
        self.step_counts = (self.n, self.n, 0, 0)

    def sweep(self, limits: TermLimits) -> None:
        """Drop terms past the limits."""

        def past(shard: HashTerms) -> Array:
            rows, frequencies = shard.rows(), shard.arrays.frequencies[: shard.n]
            return is_past(Arrivals(rows.keys, rows.coefficients, frequencies), limits)

        self._drop(self._each(past, least=SINGLE_SHARD_BELOW))

    def keep_largest(self, count: int) -> None:
        """Keep the `count` largest magnitudes of all ranks; of equal ones the least words."""
        if self.all_ranks(self.n) <= count:
            return
        rows = [shard.rows() for shard in self.shards]
        sizes = [np.abs(terms.coefficients).astype(np.float64) for terms in rows]
        keys = [terms.keys.__getitem__ for terms in rows]
        self._drop([~stays for stays in self._largest(sizes, keys, count)])

    def end_step(self) -> None:
        """Enter the step in the ledger; refuse to go on where the memory is full."""
        super().end_step()
        if self.memory_bytes is None:
            return
        sizes = [self.size_bytes] if self.ranks is None else self.ranks.gather_objects(self.size_bytes)
        if max(sizes) > self.memory_bytes:
            raise InputError(
                f"step {len(self.tape)}",
                f"brings terms and the tape of a gradient to {size_text(max(sizes))}, and the memory is "
                f"{size_text(self.memory_bytes)}",
                f"give more memory or more ranks, or {TRUNCATE}",
                topic="memory",
            )  # fmt: skip

    def weigh(self, state: Any) -> Any:
        """Begin the backward pass with the value of each word in a state; this rank's part of the value."""
        rows = [shard.rows() for shard in self.shards]
        weights = [state_values(terms, state) for terms in rows]
        kind = np.result_type(np.float64, rows[0].coefficients, *weights)
        self.slopes = np.zeros(self.n_numbers, kind)
        for numbers, values in zip(self.numbers, weights, strict=True):
            self.slopes[numbers] = values
        return sum((w * terms.coefficients).sum().item() for w, terms in zip(weights, rows, strict=True))

    def back(self) -> Array:
        """Take the slopes back to before all steps; this rank's part of the derivatives by the angles of
        rotations, in the order of the steps."""
        derivatives = [(step, self._back(step)) for step in reversed(self.tape)]
        of_rotations = [derivative for step, derivative in derivatives if step.turn is not None]
        return np.array(of_rotations, self.slopes.dtype)

    def _back(self, step: TapedStep) -> Any:
        """Take the slopes from after a step to before it; this rank's part of the derivative by its angle.

        All slopes are read before any is written: a term may send to one that is scaled too.
        """
        # Forward: c_P' = cos t c_P and c_Q += s sin t c_P, s as in `branch_signs`. With slopes v =
        # d value / d c, the
        # transpose of this is v_P = cos t v_P' + s sin t v_Q', and d value / dt = sum of c_P (s cos
        # t v_Q' - sin t v_P').
        slopes = self.slopes
        after = [slopes[split.terms] for split in step.splits]
        arrived = [self.returned(sent, slopes) for sent in step.sent]
        derivative: Any = 0.0
        for s, (split, values) in enumerate(zip(step.splits, after, strict=True)):
            before = split.factors * values
            for sent, lists in zip(step.sent, arrived, strict=True):
                before[sent.positions[s]] += sent.scale * sent.weights[s] * lists[s]
            if step.turn is not None and split.coefficients is not None:
                (cosine, sine), positions = step.turn, step.sent[0].positions[s]
                weighted = step.sent[0].weights[s] * arrived[0][s]
                coefficients = split.coefficients
                derivative += cosine * (coefficients[positions] @ weighted) - sine * (coefficients @ values)
            slopes[split.terms] = before
        return derivative

    def returned(self, sent: Sent, slopes: Array) -> list[Array]:
        """The backward pass of a step's lists: for each shard the slopes of the terms that its contributions
        met; collective where they went to another rank."""
        arrived = [slopes[numbers] for numbers in sent.targets]
        if sent.across:
            assert self.ranks is not None
            peer = self.rank ^ sent.across
            lengths = [len(sent.positions[s ^ sent.within]) for s in range(self.n_local)]
            peer_slopes = [np.empty(n, slopes.dtype) for n in lengths]
            self.ranks.exchange(messages(peer, arrived), messages(peer, peer_slopes))
            arrived = peer_slopes
        return [arrived[s ^ sent.within] for s in range(self.n_local)]

    def start_values(self, n_terms: int) -> Array:
        """The slopes of the terms of the start after the backward pass, in their order there; collective."""
        values = np.zeros(n_terms, self.slopes.dtype)
        started = np.concatenate(self.started)  # they have the numbers 0, 1, ...
        values[started] = self.slopes[: len(started)]
        return np.asarray(self.all_ranks(values))  # type: ignore[type-var]

    def _send(
        self, lists: Sequence[Branches], positions: list[Array], weights: list[Array], scale: float
    ) -> tuple[int, Sent]:
        """Take lists of branches to their words; how many met a term, and what the tape has of it."""
        generator = lists[0].generator
        distance = self.linear_hash.distance(generator) if self.is_distributed else 0
        delivered = self._delivered(lists, generator)
        merged = sum(self._each(HashTerms.merge, delivered))
        targets = []
        for s, (shard, branches) in enumerate(zip(self.shards, delivered, strict=True)):
            self.numbers[s] = np.concatenate([self.numbers[s], self._fresh(shard.n - len(self.numbers[s]))])
            targets.append(self.numbers[s][shard.arrays.targets[: branches.n]])
        across, within = divmod(distance, self.n_local)
        return merged, Sent(positions, weights, scale, across, within, targets)

    def _fresh(self, n: int) -> Array:
        """Numbers that no term has had."""
        first = self.n_numbers
        self.n_numbers += n
        if self.n_numbers > MOST_NUMBERS:
            raise InputError("gradient", f"has more than {MOST_NUMBERS} terms per rank", TRUNCATE)
        return np.arange(first, self.n_numbers, dtype=np.uint32)

    def _record(self, step: TapedStep) -> None:
        self.tape.append(step)
        self.tape_bytes += step.size_bytes

    def _distribute(self) -> None:
        """Give every shard its terms, if the first one has all, with their numbers."""
        if self.is_distributed:
            return
        first, numbers = self.shards[0], self.numbers[0]
        owners = self.linear_hash.of(first.arrays.keys[: first.n])
        super()._distribute()
        self.numbers = [numbers[owners == s] for s in range(self.n_local)]

    def _drop(self, dropped: Sequence[Array]) -> None:
        """Drop terms of each shard, by masks: one event."""
        lost = [
            np.abs(shard.rows().coefficients[mask]) for shard, mask in zip(self.shards, dropped, strict=True)
        ]
        self.ledger.losses.append(loss_of(np.concatenate(lost).astype(np.float64)))
        for s, mask in enumerate(dropped):
            if mask.any():
                surviving = np.flatnonzero(~mask)
                self.shards[s].keep(surviving)
                self.numbers[s] = self.numbers[s][surviving]


def local_word_numbers(keys: Array, qubits: Sequence[int]) -> Array:
    """The numbers of the local words that packed words have on `qubits`, int64."""
    half = keys.shape[1] // 2
    words = np.zeros(len(keys), np.int64)
    for j, qubit in enumerate(qubits):
        w, bit = qubit // 64, np.uint64(qubit % 64)
        words |= (keys[:, w] >> bit & ONE).astype(np.int64) << 2 * j
        words |= (keys[:, half + w] >> bit & ONE).astype(np.int64) << 2 * j + 1
    return words


def branch_signs(keys: Array, generator: Array) -> Array:
    """s, 1 or -1, in: a rotation about G takes P to cos P + s sin Q, where Q is G P up to its phase.

    `keys` are packed words P that anticommute with the packed word G.
    """
    return np.where(product_powers(generator, keys) & 3 == 1, -1, 1).astype(np.int8)
