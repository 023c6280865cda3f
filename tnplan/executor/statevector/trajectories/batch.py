"""States of runs that went different ways, as rows of one array, and what is done to all of them at once.

Qubit q is bit n - 1 - q of an index. Knows gates and numbers; no program and no kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate
from tnplan.executor.statevector.prepared_program import IMPOSSIBLE


class Batch:
    """Rows of amplitudes, complex [rows, 2^n], each with its classical bits and the shots that went its way.

    Parameters
    ----------
    amplitudes
        The rows, normalized.
    bits
        Classical bits, uint8 [rows, bits].
    shots
        How many shots a row stands for, int64 [rows]; one or more.
    """

    def __init__(self, amplitudes: Array, bits: Array, shots: Array) -> None:
        self._room = amplitudes
        self.bits, self.shots = bits, shots

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.shots)

    @property
    def amplitudes(self) -> Array:
        """The rows themselves, contiguous; they may be changed."""
        return self._room[: self.rows]

    @amplitudes.setter
    def amplitudes(self, value: Array) -> None:
        self._room = value

    @property
    def n_qubits(self) -> int:
        """Qubits of a row."""
        return int(self._room.shape[1]).bit_length() - 1

    def chosen(self, rows: Array) -> Batch:
        """Some rows, copied."""
        return Batch(self.amplitudes[rows], self.bits[rows], self.shots[rows])

    def divided(self) -> tuple[Batch, Batch]:
        """Two with half of the rows each, or with half of the shots of the only row."""
        half = self.rows // 2
        if half:
            return self.chosen(np.arange(half)), self.chosen(np.arange(half, self.rows))
        one, other = self.chosen(np.arange(1)), self
        one.shots, other.shots = self.shots // 2, self.shots - self.shots // 2
        return one, other

    def joined(self, other: Batch) -> Batch:
        """The rows of both."""
        return Batch(
            np.concatenate([self.amplitudes, other.amplitudes]), np.concatenate([self.bits, other.bits]),
            np.concatenate([self.shots, other.shots]),
        )  # fmt: skip

    def copy_rows(self, rows: Array, shots: Array) -> slice:
        """Append copies of rows, with other numbers of shots; gives where they are."""
        first, last = self.rows, self.rows + len(rows)
        if last > len(self._room):
            room = np.empty((max(last, 2 * len(self._room)), self._room.shape[1]), self._room.dtype)
            room[:first] = self.amplitudes
            self._room = room
        self._room[first:last] = self._room[rows]
        self.bits = np.concatenate([self.bits, self.bits[rows]])
        self.shots = np.concatenate([self.shots, shots])
        return slice(first, last)

    def measure(self, qubit: int, random: np.random.Generator) -> Array:
        """Measure a qubit in every row, and give the values, uint8.

        A row whose shots see both values becomes two.
        """
        weights = self._weights(qubit)
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
        kept = 1 / np.sqrt(weights[np.arange(self.rows), values])
        view = self._halves(qubit)
        for value in (0, 1):
            scale = np.where(values == value, kept, 0).astype(view.real.dtype)
            view[:, :, value] *= scale[:, None, None]
        return values

    def _halves(self, qubit: int) -> Array:
        return self.amplitudes.reshape(self.rows, 1 << qubit, 2, -1)

    def _weights(self, qubit: int) -> Array:
        """The probabilities of both values of a qubit, float64 [rows, 2]."""
        view = self._halves(qubit)
        sizes = np.square(view.real, dtype=np.float64) + np.square(view.imag, dtype=np.float64)
        return np.asarray(sizes.sum(axis=(1, 3)))

    def reset(self, qubit: int, random: np.random.Generator) -> None:
        """Measure a qubit and set it to 0."""
        rows = self.measure(qubit, random) == 1
        view = self._halves(qubit)
        view[rows, :, 0] = view[rows, :, 1]
        view[rows, :, 1] = 0

    def sample(self, random: np.random.Generator) -> Array:
        """Values of all qubits for every shot, int64, row after row, the first qubit most significant."""
        found = np.empty(int(self.shots.sum()), np.int64)
        drawn, first = random.random(len(found)), 0
        for row, shots in zip(self.amplitudes, self.shots.tolist(), strict=True):
            reached = np.cumsum(np.square(row.real, dtype=np.float64) + np.square(row.imag, dtype=np.float64))
            wanted = drawn[first : first + shots] * reached[-1]
            found[first : first + shots] = np.searchsorted(reached, wanted, side="right")
            first += shots
        return found

    def densities(self, qubits: Sequence[int]) -> Array:
        """The density matrices of some qubits, complex128 [rows, 2^m, 2^m], the first most significant."""
        m = len(qubits)
        moved = np.moveaxis(self._axes(), [1 + q for q in qubits], range(1, m + 1))
        columns = moved.reshape(self.rows, 1 << m, -1).astype(np.complex128)
        return np.asarray(columns @ columns.conj().transpose(0, 2, 1))

    def _axes(self) -> Array:
        return self.amplitudes.reshape((self.rows,) + (2,) * self.n_qubits)

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
        found = []
        own_shots = counts[np.arange(len(counts)), owner]
        for number in range(counts.shape[1]):
            kept = np.flatnonzero(owner == number)
            copied = np.flatnonzero((counts[:, number] > 0) & (owner != number))
            new = self.copy_rows(copied, counts[copied, number])
            found.append(np.concatenate([kept, np.arange(new.start, new.stop)]))
        self.shots[: len(counts)] = own_shots
        return found

    def apply_to(self, rows: Array, gates: Sequence[MultiplexedGate], normalize: bool = False) -> None:
        """Apply gates to some rows."""
        part = self.amplitudes[rows]
        for gate in gates:
            part = apply_gate(part, gate)
        if normalize:
            sizes = np.square(part.real, dtype=np.float64) + np.square(part.imag, dtype=np.float64)
            part *= (1 / np.sqrt(sizes.sum(axis=1))).astype(part.real.dtype)[:, None]
        self.amplitudes[rows] = part


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
        for place, qubit in enumerate(gate.selectors):
            bit = value >> len(gate.selectors) - 1 - place & 1
            where[1 + qubit] = slice(bit, bit + 1)
        part = np.moveaxis(axes[tuple(where)], [1 + q for q in gate.targets], range(len(gate.targets)))
        if len(gate.targets) == 1:
            (a, b), (c, d) = matrix.astype(rows.dtype)
            zero = part[0].copy()
            part[0] = a * zero + b * part[1]
            part[1] = c * zero + d * part[1]
        else:
            made = matrix.astype(rows.dtype) @ part.reshape(len(matrix), -1)
            part[...] = made.reshape(part.shape)
    return rows
