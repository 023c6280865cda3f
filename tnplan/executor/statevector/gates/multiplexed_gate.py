"""Multiplexed (uniformly controlled) gates, the one form that every gate takes here.

A gate acts on `targets` with a matrix that the values of its `selectors` choose. A dense gate has no
selectors, a diagonal one no targets; a controlled gate has both. Gates whose shared bits are selectors of
both commute. Knows matrices and bits; no state, no pass and no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError

EXACT = 1e-14
"""Elements nearer than this to 0 are 0: the rounding of a gate's matrix."""
UNITARY = 1e-9
"""How far U U^dagger of a gate may be from 1."""
LARGEST_TARGETS = 5
"""A gate has no more targets: gates that change more qubits are refused, and fusion makes no such gate.

The kernels of CPU and GPU hold 2^LARGEST_TARGETS rows of a gate at once; `pass_tables` checks it.
"""
SWAPPED = (0, 2, 1, 3)
"""The rows of two bits with these two swapped."""
GATES_KEPT = 4096
"""Distinct matrices of gates that are remembered."""
MERGES_KEPT = 4096
"""Products of two gates that are remembered."""


@dataclass(frozen=True, eq=False, init=False)
class MultiplexedGate:
    """The sum over s of |s><s| on `selectors` times matrices[s] on `targets`.

    `matrices` is complex128 [2^selectors, 2^targets, 2^targets]. The first of the targets is the most
    significant bit of a row, the first of the selectors that of s. Gates are equal that are on the same bits
    and share this array.
    """

    targets: tuple[int, ...]
    selectors: tuple[int, ...]
    matrices: Array
    target_mask: int = field(init=False)
    mask: int = field(init=False)
    facts: dict[str, Any] = field(init=False)
    """Properties of the matrices that were computed; gates that differ only by their bits share them."""

    def __init__(
        self, targets: tuple[int, ...], selectors: tuple[int, ...], matrices: Array,
        facts: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        # Plans make many thousands: that of a frozen dataclass takes three times as long.
        mask = target_mask = 1 << targets[0] if len(targets) == 1 else mask_of(targets)
        if selectors:
            mask |= mask_of(selectors)
        self.__dict__.update(
            targets=targets, selectors=selectors, matrices=matrices, target_mask=target_mask, mask=mask,
            facts={} if facts is None else facts,
        )  # fmt: skip

    def __post_init__(self) -> None:
        MultiplexedGate.__init__(self, self.targets, self.selectors, self.matrices)  # of subclasses

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MultiplexedGate):
            return NotImplemented
        return self.matrices is other.matrices and (self.targets, self.selectors) == (
            other.targets, other.selectors,
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self.targets, self.selectors, id(self.matrices)))

    @property
    def is_identity(self) -> bool:
        """Whether the gate does nothing but rounding."""
        if "is_identity" not in self.facts:
            may_be = abs(self.matrices.item(0) - 1) <= EXACT
            self.facts["is_identity"] = may_be and bool(
                np.all(np.abs(self.matrices - np.eye(self.matrices.shape[-1])) <= EXACT)
            )
        is_identity: bool = self.facts["is_identity"]
        return is_identity

    def flat_elements(self) -> list[complex]:
        """The elements of the matrices, row by row."""
        elements: list[complex] = self.matrices.ravel().tolist()
        return elements

    def on(self, where: Sequence[int]) -> MultiplexedGate:
        """The same gate with bit j renamed to where[j]."""
        targets = tuple([where[j] for j in self.targets])
        selectors = tuple([where[j] for j in self.selectors]) if self.selectors else ()
        if targets == self.targets and selectors == self.selectors:
            return self
        return MultiplexedGate(targets, selectors, self.matrices, self.facts)


def mask_of(bits: Sequence[int]) -> int:
    """The integer in which exactly these bits are set."""
    mask = 0
    for bit in bits:
        mask |= 1 << bit
    return mask


def bits_of(mask: int) -> list[int]:
    """The bits set in a mask, rising."""
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def commute(first: MultiplexedGate, second: MultiplexedGate) -> bool:
    """Whether the two commute because every bit that they share is a selector of both."""
    return not (first.target_mask & second.mask or second.target_mask & first.mask)


def from_gate(gate: Gate, place: str = "gate", bits: tuple[int, ...] | None = None) -> MultiplexedGate:
    """A unitary gate on its qubits, or on bits for them, multiplexed.

    Raises InputError where it is none or too large. Gates with the same matrix share the arrays of what they
    become.
    """
    bits = bits or gate.qubits
    if len(bits) > LARGEST_TARGETS:
        multiplexed = from_matrix(bits, gate.matrix, place) if _is_unitary(gate.matrix) else None
    else:
        cached = _cached_gate(gate.matrix.tobytes())
        multiplexed = None if cached is None else cached.on(bits)
    if multiplexed is None:
        raise InputError(place, "is not unitary", "give a unitary matrix or a channel")
    return multiplexed


def inverse(gate: MultiplexedGate) -> MultiplexedGate:
    """The gate that undoes a unitary one."""
    matrices = np.ascontiguousarray(gate.matrices.conj().swapaxes(1, 2))
    return MultiplexedGate(gate.targets, gate.selectors, matrices)


@lru_cache(GATES_KEPT)
def _cached_gate(matrix: bytes) -> MultiplexedGate | None:
    """A unitary matrix on qubits 0, 1, ...; None for another one."""
    values = np.frombuffer(matrix, np.complex128)
    q = (len(values).bit_length() - 1) // 2
    values = values.reshape(2**q, 2**q)
    if not _is_unitary(values):
        return None
    return from_matrix(tuple(range(q)), values)


def _is_unitary(matrix: Array) -> bool:
    return bool(np.all(np.abs(matrix @ matrix.conj().T - np.eye(len(matrix))) <= UNITARY))


def from_matrix(qubits: tuple[int, ...], matrix: Array, place: str = "matrix") -> MultiplexedGate:
    """Any matrix on `qubits`, multiplexed: qubits whose value it never changes become selectors."""
    q = len(qubits)
    values = np.where(np.abs(matrix) <= EXACT, 0, matrix)
    if q == 1:  # most gates of most circuits
        if values.item(1) or values.item(2):
            return MultiplexedGate(qubits, (), values[None])
        return MultiplexedGate((), qubits, values.diagonal().reshape(2, 1, 1).copy())
    values = values.reshape((2,) * (2 * q))
    fixed = [j for j in range(q) if not np.any(np.take(np.take(values, 0, q + j), 1, j))
            and not np.any(np.take(np.take(values, 1, q + j), 0, j))]  # fmt: skip
    changed = [j for j in range(q) if j not in fixed]
    for j in list(fixed):
        matrices = _matrices(values, fixed, changed)
        halves = np.moveaxis(matrices.reshape((2,) * len(fixed) + matrices.shape[1:]), fixed.index(j), 0)
        if len(fixed) + len(changed) > 1 and np.array_equal(halves[0], halves[1]):
            fixed.remove(j)
            values = np.take(np.take(values, [0], j), [0], q + j)
    matrices = _matrices(values, fixed, changed)
    if len(changed) > LARGEST_TARGETS:
        raise InputError(
            place, f"changes {len(changed)} qubits at once",
            f"split it into gates on {LARGEST_TARGETS} or fewer",
        )  # fmt: skip
    return MultiplexedGate(tuple(qubits[j] for j in changed), tuple(qubits[j] for j in fixed), matrices)


def _matrices(values: Array, fixed: Sequence[int], changed: Sequence[int]) -> Array:
    """[selector value, row, column] of a matrix with one axis a bit; axes in neither list have length 1."""
    q = values.ndim // 2
    absent = [j for j in range(q) if j not in fixed and j not in changed]
    order = [*fixed, *(q + j for j in fixed), *changed, *(q + j for j in changed)]
    side = 2 ** len(fixed)
    array = values.transpose([*absent, *(q + j for j in absent), *order])
    array = array.reshape(side, side, 2 ** len(changed), 2 ** len(changed))
    return np.ascontiguousarray(array[np.arange(side), np.arange(side)])


def of_same_form(gate: MultiplexedGate, qubits: tuple[int, ...], matrix: Array) -> Array:
    """The matrices, [2^selectors, 2^targets, 2^targets], of another matrix on the qubits of a gate whose
    `from_matrix` has the same targets and selectors."""
    q = len(qubits)
    values = matrix.reshape((2,) * (2 * q))
    for j, qubit in enumerate(qubits):
        if qubit not in gate.targets and qubit not in gate.selectors:
            values = np.take(np.take(values, [0], j), [0], q + j)
    places = [[qubits.index(qubit) for qubit in bits] for bits in (gate.selectors, gate.targets)]
    return _matrices(values, *places)


def as_swap(gate: MultiplexedGate) -> MultiplexedGate | None:
    """For a gate that exchanges its two targets up to phases: the diagonal gate that acts before it."""
    if len(gate.targets) != 2 or gate.selectors or gate.matrices.item(1):
        return None
    phases = gate.matrices[0][list(SWAPPED), range(4)]
    remainder = gate.matrices[0].copy()
    remainder[list(SWAPPED), range(4)] = 0
    if np.any(remainder) or not np.all(np.abs(phases)):
        return None
    return MultiplexedGate((), gate.targets, phases.reshape(4, 1, 1))


def expanded(gate: MultiplexedGate, targets: tuple[int, ...], selectors: tuple[int, ...]) -> Array:
    """[2^selectors, 2^targets, 2^targets]: the gate on more bits, some selectors made targets."""
    outer = [bit for bit in selectors if bit in gate.selectors]
    inner = [bit for bit in targets if bit in gate.selectors]
    t = len(gate.targets)
    idle = [bit for bit in targets if bit not in gate.targets and bit not in gate.selectors]
    axes = [gate.selectors.index(bit) for bit in (*outer, *inner)]
    values: Array = gate.matrices.reshape((2,) * len(gate.selectors) + (2**t, 2**t))
    values = values.transpose([*axes, len(axes), len(axes) + 1])
    values = values.reshape(2 ** len(outer), 2 ** len(inner), 2**t, 2**t)
    # Selectors that become targets are block diagonal: the bit is the same in the row and in the column.
    dense = np.zeros((2 ** len(outer), 2 ** len(inner), 2**t, 2 ** len(inner), 2**t), np.complex128)
    for value in range(2 ** len(inner)):
        dense[:, value, :, value, :] = values[:, value]
    side = 2 ** (len(inner) + t)
    # Bits on which the gate does not act: the tensor product with the identity.
    wide = np.einsum("oij,kl->oikjl", dense.reshape(-1, side, side), np.eye(2 ** len(idle)))
    all_bits = (*inner, *gate.targets, *idle)
    order = [all_bits.index(bit) for bit in targets]
    shape = (len(dense), *(2,) * (2 * len(all_bits)))
    wide = wide.reshape(shape).transpose(
        [0, *(1 + j for j in order), *(1 + len(all_bits) + j for j in order)]
    ).reshape(len(dense), 2 ** len(all_bits), 2 ** len(all_bits))  # fmt: skip
    numbers = np.arange(2 ** len(selectors))
    # The matrix for each value of all selectors depends on those alone that the gate has; the first
    # selector is the most significant bit of a value.
    chosen = np.zeros_like(numbers)
    for bit in outer:
        chosen = 2 * chosen + (numbers >> (len(selectors) - 1 - selectors.index(bit)) & 1)
    return np.ascontiguousarray(wide[chosen])


@lru_cache(MERGES_KEPT)
def merged(first: MultiplexedGate, second: MultiplexedGate, held_mask: int) -> MultiplexedGate:
    """Both as one gate, `first` acting first; bits in `held_mask` become targets, others stay selectors.

    Runs of a circuit that differ in the noise drawn for them share most merges: the latest are kept.
    """
    bits = [*first.targets, *first.selectors, *second.targets, *second.selectors]
    unique = sorted(set(bits), reverse=True)
    targets = tuple(bit for bit in unique if held_mask >> bit & 1)
    selectors = tuple(bit for bit in unique if not held_mask >> bit & 1)
    return MultiplexedGate(
        targets, selectors, expanded(second, targets, selectors) @ expanded(first, targets, selectors)
    )


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
