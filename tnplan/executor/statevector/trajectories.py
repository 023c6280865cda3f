"""Runs of a program that share their states as long as their outcomes are equal.

All shots begin as one row of a `Batch`. Where their outcomes differ, a row becomes several; numbers of shots
are drawn from binomial and multinomial distributions. Batches are divided where rows might take too much
memory. Knows prepared programs and states on a CPU; no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tnplan.circuits.program import BitAssignment, Channel, Measurement, Reset
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.statevector.cpu.state import apply_to_rows, prepare_passes
from tnplan.executor.statevector.cpu.vector_tables import VectorPass
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, from_matrix
from tnplan.executor.statevector.prepared_program import (
    IMPOSSIBLE,
    Branch,
    Mixture,
    PreparedStep,
    Rounds,
    Segment,
)
from tnplan.executor.statevector.scheduling.tiled_passes import Tile, compile_gates
from tnplan.executor.statevector.simulator import MOST_ROUNDS

# States of runs that went different ways, as rows of one array, and what is done to all of them at once.
#
# Qubit q is bit n - 1 - q of an index. Knows gates and numbers; no program and no kernel.


class Batch:
    """Rows of amplitudes, complex [rows, 2^n], each with its classical bits and the shots that went its way.

    - `amplitudes`: The rows, normalized.
    - `bits`: Classical bits, uint8 [rows, bits].
    - `shots`: How many shots a row stands for, int64 [rows]; one or more.
    """

    def __init__(self, amplitudes: Array, bits: Array, shots: Array) -> None:
        self._buffer = amplitudes
        self.bits, self.shots = bits, shots

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.shots)

    @property
    def amplitudes(self) -> Array:
        """The rows themselves, contiguous; they may be changed."""
        return self._buffer[: self.rows]

    @amplitudes.setter
    def amplitudes(self, value: Array) -> None:
        self._buffer = value

    @property
    def n_qubits(self) -> int:
        """Qubits of a row."""
        return int(self._buffer.shape[1]).bit_length() - 1

    def chosen(self, rows: Array) -> Batch:
        """Some rows, copied."""
        return Batch(self.amplitudes[rows], self.bits[rows], self.shots[rows])

    def divided(self) -> tuple[Batch, Batch]:
        """Two with half of the rows each, or with half of the shots of the only row."""
        half = self.rows // 2
        if half:
            return self.chosen(np.arange(half)), self.chosen(np.arange(half, self.rows))
        first, second = self.chosen(np.arange(1)), self
        first.shots, second.shots = self.shots // 2, self.shots - self.shots // 2
        return first, second

    def joined(self, other: Batch) -> Batch:
        """The rows of both."""
        return Batch(
            np.concatenate([self.amplitudes, other.amplitudes]), np.concatenate([self.bits, other.bits]),
            np.concatenate([self.shots, other.shots]),
        )  # fmt: skip

    def copy_rows(self, rows: Array, shots: Array) -> slice:
        """Append copies of rows, with other numbers of shots; gives where they are."""
        first, last = self.rows, self.rows + len(rows)
        if last > len(self._buffer):
            larger = np.empty((max(last, 2 * len(self._buffer)), self._buffer.shape[1]), self._buffer.dtype)
            larger[:first] = self.amplitudes
            self._buffer = larger
        self._buffer[first:last] = self._buffer[rows]
        self.bits = np.concatenate([self.bits, self.bits[rows]])
        self.shots = np.concatenate([self.shots, shots])
        return slice(first, last)

    def measure(self, qubit: int, random: np.random.Generator) -> Array:
        """Measure a qubit in every row, and give the values, uint8.

        A row whose shots see both values becomes two.
        """
        # The probabilities of both values, float64 [rows, 2].
        weights = np.asarray(_probabilities(self._halves(qubit)).sum(axis=(1, 3)))
        weights[weights <= IMPOSSIBLE * weights.sum(axis=1, keepdims=True)] = 0
        ones = random.binomial(self.shots, weights[:, 1] / weights.sum(axis=1))
        both = np.flatnonzero((ones > 0) & (ones < self.shots))
        values = (ones > 0).astype(np.uint8)
        values[both] = 0
        new = self.copy_rows(both, ones[both])
        self.shots[both] -= ones[both]
        values = np.concatenate([values, np.ones(len(both), np.uint8)])
        weights = np.concatenate([weights, weights[both]])
        assert new.stop == self.rows
        scales = 1 / np.sqrt(weights[np.arange(self.rows), values])
        view = self._halves(qubit)
        for value in (0, 1):
            scale = np.where(values == value, scales, 0).astype(view.real.dtype)
            view[:, :, value] *= scale[:, None, None]
        return values

    def _halves(self, qubit: int) -> Array:
        return self.amplitudes.reshape(self.rows, 1 << qubit, 2, -1)

    def reset(self, qubit: int, random: np.random.Generator) -> None:
        """Measure a qubit and set it to 0."""
        rows = self.measure(qubit, random) == 1
        view = self._halves(qubit)
        view[rows, :, 0] = view[rows, :, 1]
        view[rows, :, 1] = 0

    def sample(self, random: np.random.Generator) -> Array:
        """Values of all qubits for every shot, int64, row after row, the first qubit most significant."""
        values = np.empty(int(self.shots.sum()), np.int64)
        drawn, first = random.random(len(values)), 0
        for row, shots in zip(self.amplitudes, self.shots.tolist(), strict=True):
            reached = np.cumsum(_probabilities(row))
            thresholds = drawn[first : first + shots] * reached[-1]
            values[first : first + shots] = np.searchsorted(reached, thresholds, side="right")
            first += shots
        return values

    def densities(self, qubits: Sequence[int]) -> Array:
        """The density matrices of some qubits, complex128 [rows, 2^m, 2^m], the first most significant."""
        m = len(qubits)
        tensor = self.amplitudes.reshape((self.rows,) + (2,) * self.n_qubits)
        moved = np.moveaxis(tensor, [1 + q for q in qubits], range(1, m + 1))
        columns = moved.reshape(self.rows, 1 << m, -1).astype(np.complex128)
        return np.asarray(columns @ columns.conj().transpose(0, 2, 1))

    def branch(self, weights: Array, random: np.random.Generator) -> list[Array]:
        """Draw one of several operators for every shot; gives the rows of each, which are not changed.

        `weights` are probabilities, float64 [rows, operators] or [operators]. The first operator that a row's
        shots draw keeps the row.
        """
        weights = np.broadcast_to(weights, (self.rows, weights.shape[-1]))
        rising = np.argsort(weights, axis=1)  # the last takes what is left, so that it has to be possible
        drawn = random.multinomial(
            self.shots, np.take_along_axis(weights, rising, 1) / weights.sum(axis=1, keepdims=True)
        )
        counts = np.empty_like(drawn)
        np.put_along_axis(counts, rising, drawn, 1)
        owner = np.argmax(counts > 0, axis=1)
        rows_of = []
        own_shots = counts[np.arange(len(counts)), owner]
        for number in range(counts.shape[1]):
            owned = np.flatnonzero(owner == number)
            copied = np.flatnonzero((counts[:, number] > 0) & (owner != number))
            new = self.copy_rows(copied, counts[copied, number])
            rows_of.append(np.concatenate([owned, np.arange(new.start, new.stop)]))
        self.shots[: len(counts)] = own_shots
        return rows_of

    def apply_to(self, rows: Array, gates: Sequence[MultiplexedGate], normalize: bool = False) -> None:
        """Apply gates to some rows."""
        chosen = self.amplitudes[rows]
        for gate in gates:
            chosen = apply_gate(chosen, gate)
        if normalize:
            norms = _probabilities(chosen).sum(axis=1)
            chosen *= (1 / np.sqrt(norms)).astype(chosen.real.dtype)[:, None]
        self.amplitudes[rows] = chosen


def _probabilities(amplitudes: Array) -> Array:
    """The squared moduli, float64."""
    return np.square(amplitudes.real, dtype=np.float64) + np.square(amplitudes.imag, dtype=np.float64)


def apply_gate(rows: Array, gate: MultiplexedGate) -> Array:
    """A gate on qubits applied to every row; changes the rows, and gives them."""
    n = int(rows.shape[1]).bit_length() - 1
    axes = rows.reshape((len(rows),) + (2,) * n)
    if not gate.targets:
        order = np.argsort(gate.selectors)
        factor = gate.matrices.reshape((2,) * len(order)).transpose(order).astype(rows.dtype)
        axes *= factor.reshape([2 if q in gate.selectors else 1 for q in range(n)])
        return rows
    for value, matrix in enumerate(gate.matrices):
        if np.array_equal(matrix, np.eye(len(matrix))):
            continue
        where: list[slice] = [slice(None)] * (n + 1)
        for k, qubit in enumerate(gate.selectors):
            bit = value >> len(gate.selectors) - 1 - k & 1
            where[1 + qubit] = slice(bit, bit + 1)
        view = np.moveaxis(axes[tuple(where)], [1 + q for q in gate.targets], range(len(gate.targets)))
        if len(gate.targets) == 1:
            (a, b), (c, d) = matrix.astype(rows.dtype)
            zero = view[0].copy()
            view[0] = a * zero + b * view[1]
            view[1] = c * zero + d * view[1]
        else:
            product = matrix.astype(rows.dtype) @ view.reshape(len(matrix), -1)
            view[...] = product.reshape(view.shape)
    return rows


BATCH_BYTES = 1 << 25
"""What the rows of a batch may take."""
FEW = 1 << 16
"""Amplitudes times gates below which gates are applied one by one: preparing passes would take longer."""
MANY = 1 << 62
"""More rows than there may be."""


def most_rows(n_qubits: int, dtype: str) -> int:
    """How many rows of so many qubits a batch may have."""
    return BATCH_BYTES // (np.dtype(dtype).itemsize << n_qubits)


class BranchingRuns:
    """Runs of one program.

    - `n_qubits`, `dtype`, `tile`, `threads`: The states, and how passes over them are made.
    - `random`: Draws all outcomes.
    """

    def __init__(
        self, n_qubits: int, dtype: str, tile: Tile, threads: int, random: np.random.Generator
    ) -> None:  # fmt: skip
        self.n_qubits, self.dtype, self.tile, self.threads = n_qubits, dtype, tile, threads
        self.random = random
        self.most_rows = most_rows(n_qubits, dtype)
        self.passes = 0
        """Passes over all rows done so far."""
        self._prepared: dict[Segment, tuple[list[VectorPass], tuple[int, ...]]] = {}

    def run(self, steps: Sequence[PreparedStep], bits: Array, shots: int) -> Iterator[Batch]:
        """Run a program so many times from |0...0>, and classical bits that have these values.

        The batches have all shots together, and the states and bits after the last step.
        """
        # Depth first: of the batches that wait, the newest goes on, so that few are there at a time.
        amplitudes = np.zeros((1, 1 << self.n_qubits), self.dtype)
        amplitudes[0, 0] = 1
        waiting = [(0, Batch(amplitudes, bits[None].copy(), np.array([shots], np.int64)))]
        while waiting:
            number, batch = waiting.pop()
            while number < len(steps):
                while self._is_too_large(batch, steps[number]):
                    batch, other = batch.divided()
                    waiting.append((number, other))
                batch = self._do(steps[number], batch)
                number += 1
            yield batch

    def _is_too_large(self, batch: Batch, step: PreparedStep) -> bool:
        """Whether a step may make more rows than `most_rows`, and fewer shots would not."""
        most = min(int(batch.shots.sum()), batch.rows * _most_ways(step))
        return most > self.most_rows and batch.shots.sum() > 1

    def _do(self, step: PreparedStep, batch: Batch) -> Batch:
        if isinstance(step, Segment):
            self._apply(step, batch)
        elif isinstance(step, Mixture):
            self._disturb_by(step, batch)
        elif isinstance(step, Measurement):
            values = batch.measure(step.qubit, self.random)
            batch.bits[:, step.bit] = values
        elif isinstance(step, Reset):
            batch.reset(step.qubit, self.random)
        elif isinstance(step, Channel):
            self._disturb(step, batch)
        elif isinstance(step, BitAssignment):
            batch.bits[:, step.bit] = np.array(step.table, np.uint8)[_values(batch, step.bits)]
        elif isinstance(step, Rounds):
            return self._repeat(step, batch)
        else:
            return self._choose(step, batch)
        return batch

    def _apply(self, segment: Segment, batch: Batch) -> None:
        """Apply gates to all rows."""
        if len(segment.gates) * batch.amplitudes.size <= FEW:
            rows = batch.amplitudes
            for gate in segment.gates:
                apply_gate(rows, gate)
            return
        passes, after = self._prepare(segment)
        for tables in passes:
            apply_to_rows(batch.amplitudes, tables, self.threads)
        self.passes += len(passes)
        n = self.n_qubits
        axes = [n - 1 - after[q] for q in range(n)]
        if axes != [*range(n)]:
            rows = batch.amplitudes.reshape((batch.rows,) + (2,) * n)
            batch.amplitudes = np.ascontiguousarray(
                rows.transpose([0, *(1 + axis for axis in axes)])
            ).reshape(batch.rows, -1)

    def _prepare(self, segment: Segment) -> tuple[list[VectorPass], tuple[int, ...]]:
        if segment not in self._prepared:
            where = tuple(range(self.n_qubits - 1, -1, -1))
            plan = compile_gates(segment.gates, where, self.tile)
            self._prepared[segment] = prepare_passes(plan.passes, self.n_qubits, self.dtype), plan.after
        return self._prepared[segment]

    def _disturb_by(self, mixture: Mixture, batch: Batch) -> None:
        """One of several unitaries acts."""
        weights = np.diff(mixture.reached, prepend=0.0)
        for rows, segment in zip(batch.branch(weights, self.random), mixture.segments, strict=True):
            if segment is not None and len(rows):
                batch.apply_to(rows, segment.gates)

    def _disturb(self, channel: Channel, batch: Batch) -> None:
        """One operator of a channel acts; the rows stay normalized."""
        # Operator k acts with probability tr(K rho K^dagger), rho being the reduced density matrix
        # of the channel's qubits: no row is copied for operators that are not drawn.
        densities = batch.densities(channel.qubits)
        weights = np.stack(
            [np.einsum("ij,rjk,ik->r", k, densities, k.conj()).real for k in channel.kraus], axis=1
        )
        weights[weights <= IMPOSSIBLE * weights.sum(axis=1, keepdims=True)] = 0
        for rows, operator in zip(batch.branch(weights, self.random), channel.kraus, strict=True):
            if len(rows):
                batch.apply_to(rows, [from_matrix(channel.qubits, operator, "channel")], normalize=True)

    def _choose(self, branch: Branch, batch: Batch) -> Batch:
        """Rows whose bits have a value go one way, the others the other."""
        holds = _values(batch, branch.bits) == branch.value
        ways = ((np.flatnonzero(holds), branch.body), (np.flatnonzero(~holds), branch.otherwise))
        if all(isinstance(step, Segment) for _, body in ways for step in body):
            for rows, body in ways:
                gates: list[MultiplexedGate] = [gate for step in body for gate in step.gates]  # type: ignore[union-attr]
                if len(rows) and gates:
                    batch.apply_to(rows, gates)
            return batch
        parts = []
        for rows, body in ways:
            if len(rows):
                chosen = batch if len(rows) == batch.rows else batch.chosen(rows)
                parts.append(self._all(body, chosen))
        return parts[0] if len(parts) == 1 else parts[0].joined(parts[1])

    def _all(self, steps: Sequence[PreparedStep], batch: Batch) -> Batch:
        for step in steps:
            batch = self._do(step, batch)
        return batch

    def _repeat(self, rounds: Rounds, batch: Batch) -> Batch:
        done: Batch | None = None
        for _ in range(MOST_ROUNDS):
            goes_on = _values(batch, rounds.bits) == rounds.value
            if not goes_on.all():
                finished = batch if not goes_on.any() else batch.chosen(np.flatnonzero(~goes_on))
                done = finished if done is None else done.joined(finished)
            if not goes_on.any():
                assert done is not None
                return done
            batch = self._all(rounds.body, batch if goes_on.all() else batch.chosen(np.flatnonzero(goes_on)))
        raise InputError(
            "while", f"is still true after {MOST_ROUNDS} rounds", "let the body of the loop make it false"
        )


def _values(batch: Batch, bits: Sequence[int]) -> Array:
    """The value of some classical bits in each row, the first least significant."""
    values = np.zeros(batch.rows, np.int64)
    for k, bit in enumerate(bits):
        values |= batch.bits[:, bit].astype(np.int64) << k
    return values


def _most_ways(step: PreparedStep) -> int:
    """In how many ways a step may go on from one row."""
    if isinstance(step, Measurement | Reset):
        return 2
    if isinstance(step, Mixture):
        return len(step.segments)
    if isinstance(step, Channel):
        return len(step.kraus)
    if isinstance(step, Rounds):
        return MANY
    if isinstance(step, Branch):
        return max(_most_ways_of(step.body), _most_ways_of(step.otherwise))
    return 1


def _most_ways_of(steps: Sequence[PreparedStep]) -> int:
    ways = 1
    for step in steps:
        ways = min(MANY, ways * _most_ways(step))
    return ways
