"""A program: gates with measurements, resets, conditions and noise between them. Knows no file and no engine.

Conventions are those of `circuit.py`. Classical bits are numbered like qubits and start as 0; in a string of
results, character k is bit k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import product

import numpy as np

from tnplan.circuits.circuit import Gate, GateSequence, GlobalPhase, check_qubits, whole_numbers
from tnplan.circuits.gates import I2, X, Y, Z, kronecker
from tnplan.common.errors import InputError

COMPLETE = 1e-9
UNITARY = 1e-9
"""How far an element of U U^dagger of a unitary gate may be from 1 or 0."""


@dataclass(frozen=True)
class Measurement:
    """The value of a qubit goes to a classical bit.

    Parameters
    ----------
    qubit : int
        The qubit that is measured.
    bit : int
        The classical bit.

    Examples
    --------
    >>> tnplan.Measurement(0, 2)
    Measurement(qubit=0, bit=2)
    """

    qubit: int
    bit: int

    def __post_init__(self) -> None:
        (qubit,) = whole_numbers([self.qubit], "measurement", "a qubit")
        (bit,) = whole_numbers([self.bit], "measurement", "a classical bit")
        object.__setattr__(self, "qubit", qubit)
        object.__setattr__(self, "bit", bit)


@dataclass(frozen=True)
class Reset:
    """A qubit is measured, and set to 0.

    Parameters
    ----------
    qubit : int
        The qubit.

    Examples
    --------
    >>> tnplan.Reset(0)
    Reset(qubit=0)
    """

    qubit: int

    def __post_init__(self) -> None:
        (qubit,) = whole_numbers([self.qubit], "reset", "a qubit")
        object.__setattr__(self, "qubit", qubit)


@dataclass(frozen=True, eq=False, repr=False)
class Channel:
    """Noise: one of several operators K acts, with probability |K psi|^2.

    Parameters
    ----------
    qubits : tuple of int
        The q qubits that it acts on; the first is the most significant bit of a row.
    kraus : tuple of arrays
        The operators K, complex128 of shape (2^q, 2^q) each. The sum of K^dagger K is 1.

    Raises
    ------
    InputError
        For operators of other shapes, or that do not keep the trace.

    Examples
    --------
    >>> flip = np.array([[0, 1], [1, 0]]) * np.sqrt(0.1)
    >>> tnplan.Channel((0,), (np.sqrt(0.9) * np.eye(2), flip))
    Channel(2 operators on 0)
    """

    qubits: tuple[int, ...]
    kraus: tuple[np.ndarray, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "qubits", whole_numbers(self.qubits, "channel", "qubits"))
        object.__setattr__(self, "kraus", tuple(np.array(k, np.complex128) for k in self.kraus))
        side = 2 ** len(self.qubits)
        if not self.qubits or not self.kraus or any(k.shape != (side, side) for k in self.kraus):
            raise InputError(
                "channel", f"has no operators for {len(self.qubits)} qubits",
                f"give matrices of shape ({side}, {side})",
            )  # fmt: skip
        # Completeness, sum_k K_k^dagger K_k = 1: the channel keeps the trace.
        total = sum(k.conj().T @ k for k in self.kraus)
        if not np.allclose(total, np.eye(side), rtol=0, atol=COMPLETE):
            raise InputError("channel", "does not keep the trace", "give K with sum of K^dagger K = 1")

    def __repr__(self) -> str:
        return f"Channel({len(self.kraus)} operators on {', '.join(map(str, self.qubits))})"


@dataclass(frozen=True, eq=False, repr=False)
class Conditional:
    """Operations that depend on classical bits.

    Parameters
    ----------
    bits : tuple of int
        The classical bits, the first least significant.
    value : int
        The value that they are compared with.
    body, otherwise : tuple of operations
        What is done where they have this value, and where they have not.

    Examples
    --------
    >>> tnplan.Conditional((0,), 1, (tnplan.Reset(0),))
    Conditional(1 operations where bits 0 are 1, else 0)
    """

    bits: tuple[int, ...]
    value: int
    body: tuple[Operation, ...]
    otherwise: tuple[Operation, ...] = ()

    def __repr__(self) -> str:
        bits = ", ".join(map(str, self.bits))
        return (
            f"Conditional({len(self.body)} operations where bits {bits} are {self.value}, "
            f"else {len(self.otherwise)})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class WhileLoop:
    """Operations that are repeated as long as classical bits have a value, which is looked at first.

    Parameters
    ----------
    bits : tuple of int
        The classical bits, the first least significant.
    value : int
        The value that they are compared with.
    body : tuple of operations
        What is repeated.

    Examples
    --------
    >>> tnplan.WhileLoop((0,), 1, (tnplan.Reset(0), tnplan.Measurement(0, 0)))
    WhileLoop(2 operations while bits 0 are 1)
    """

    bits: tuple[int, ...]
    value: int
    body: tuple[Operation, ...]

    def __repr__(self) -> str:
        bits = ", ".join(map(str, self.bits))
        return f"WhileLoop({len(self.body)} operations while bits {bits} are {self.value})"


@dataclass(frozen=True, repr=False)
class BitAssignment:
    """A classical bit takes a value that depends on others.

    Parameters
    ----------
    bit : int
        The classical bit that is set.
    bits : tuple of int
        The classical bits that are read, the first least significant; `bit` may be one of them.
    table : tuple of bool
        The new value for each of the 2^len(bits) values of these.

    Raises
    ------
    InputError
        For a table of another length.

    Examples
    --------
    >>> tnplan.BitAssignment(2, (0, 1), (False, True, True, False))
    BitAssignment(bit 2 from bits 0, 1)
    """

    bit: int
    bits: tuple[int, ...]
    table: tuple[bool, ...]

    def __post_init__(self) -> None:
        if len(self.table) != 2 ** len(self.bits):
            raise InputError(
                "bit assignment", f"has {len(self.table)} values for {len(self.bits)} bits",
                f"give {2 ** len(self.bits)} values",
            )  # fmt: skip

    def __repr__(self) -> str:
        return f"BitAssignment(bit {self.bit} from bits {', '.join(map(str, self.bits)) or 'none'})"


Operation = Gate | Measurement | Reset | Channel | Conditional | WhileLoop | BitAssignment


def largest_operator(operations: Iterable[Operation]) -> int:
    """The number of qubits of the gate or channel that has most; 0 where there is none.

    Conditions and loops are looked into.
    """
    most = 0
    for operation in operations:
        if isinstance(operation, Gate | Channel):
            most = max(most, len(operation.qubits))
        else:
            most = max(most, largest_operator(inner_operations(operation)))
    return most


@dataclass(frozen=True, eq=False, repr=False)
class CircuitProgram:
    """A circuit with measurements, resets, conditions, loops and noise.

    Parameters
    ----------
    n_qubits, n_bits : int
        Qubits, which start in |0...0>, and classical bits.
    operations : tuple of Gate, Measurement, Reset, Channel, Conditional, WhileLoop or BitAssignment
        The operations in their order.
    start : tuple of int
        What the first classical bits start as; the others start as 0.
    n_scratch : int
        How many of the last classical bits are left out of results.
    barriers : tuple of int
        How many operations come before each barrier of the file or object that was read. They do nothing.

    Raises
    ------
    InputError
        For operations on qubits or bits that are not there.

    Examples
    --------
    >>> tnplan.CircuitProgram(1, 1, (tnplan.Reset(0), tnplan.Measurement(0, 0)))
    CircuitProgram(1 qubits, 1 bits, 2 operations)
    """

    n_qubits: int
    n_bits: int
    operations: tuple[Operation, ...]
    start: tuple[int, ...] = ()
    n_scratch: int = 0
    barriers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_qubits", GateSequence(self.n_qubits, ()).n_qubits)
        (n_bits,) = whole_numbers([self.n_bits], "program", "a number of bits")
        object.__setattr__(self, "n_bits", n_bits)
        object.__setattr__(self, "operations", tuple(self.operations))
        if len(self.start) > self.n_bits or not 0 <= self.n_scratch <= self.n_bits:
            raise InputError(
                "program",
                f"has {self.n_bits} bits, values for {len(self.start)}, and {self.n_scratch} scratch bits",
                f"give at most {self.n_bits} of each",
            )
        _check(self.operations, self.n_qubits, self.n_bits, "operation")

    @cached_property
    def final_measurements(self) -> dict[int, int] | None:
        """The qubit that goes to each bit at the end; None where there is more than gates before."""
        if all(isinstance(operation, Gate) for operation in self.operations):
            return {}
        others, source = without_final_measurements(self.operations)
        return source if all(isinstance(operation, Gate) for operation in others) else None

    @cached_property
    def distinct_gates(self) -> list[tuple[int, Gate]]:
        """The gates that have matrices of their own, with the number of the operation that each is in."""
        gates: dict[bytes, tuple[int, Gate]] = {}
        for number, operation in enumerate(self.operations):
            for gate in [operation] if isinstance(operation, Gate) else _gates_in(operation):
                gates.setdefault(gate.matrix.tobytes(), (number, gate))
        return list(gates.values())

    @cached_property
    def not_unitary(self) -> tuple[int, Gate] | None:
        """The first gate that is not unitary, with its number."""
        by_side: dict[int, list[tuple[int, Gate]]] = {}
        for number, gate in self.distinct_gates:
            by_side.setdefault(len(gate.matrix), []).append((number, gate))
        wrong = []
        for side, gates in by_side.items():
            matrices = np.array([gate.matrix for _, gate in gates])
            error = np.abs(matrices @ matrices.conj().swapaxes(1, 2) - np.eye(side)).max(axis=(1, 2))
            wrong += [gates[k] for k in np.flatnonzero(error > UNITARY)]
        return min(wrong, key=lambda pair: pair[0], default=None)

    def __repr__(self) -> str:
        return (
            f"CircuitProgram({self.n_qubits} qubits, {self.n_bits} bits, {len(self.operations)} operations)"
        )


def circuit_program(circuit: GateSequence) -> CircuitProgram:
    """A circuit as a program."""
    return CircuitProgram(circuit.n_qubits, 0, circuit.gates)


def as_circuit(program: CircuitProgram, place: str) -> GateSequence:
    """The gates of a program whose measurements are all at its end; `place` names it in errors."""
    if final_measurements(program) is None:
        raise InputError(
            place, "measures, resets, branches or is noisy before its end",
            "use only gates and measure at the end, or simulate it: tnplan.simulate",
        )  # fmt: skip
    return gates_of(program)


def gates_of(program: CircuitProgram) -> GateSequence:
    """The gates of a program, without whatever else it does."""
    return GateSequence(
        program.n_qubits, tuple(operation for operation in program.operations if isinstance(operation, Gate))
    )


def inner_operations(operation: Operation) -> tuple[Operation, ...]:
    """What is inside a condition or a loop, of both ways; nothing for all else."""
    if isinstance(operation, Conditional):
        return (*operation.body, *operation.otherwise)
    return operation.body if isinstance(operation, WhileLoop) else ()


def _gates_in(operation: Operation) -> Iterator[Gate]:
    for inner in inner_operations(operation):
        if isinstance(inner, Gate):
            yield inner
        yield from _gates_in(inner)


def with_inner(
    operation: Operation, change: Callable[[tuple[Operation, ...]], tuple[Operation, ...]]
) -> Operation:
    """A condition or a loop with what is inside changed, each way for itself; all else as it is."""
    if isinstance(operation, Conditional):
        return replace(operation, body=change(operation.body), otherwise=change(operation.otherwise))
    return replace(operation, body=change(operation.body)) if isinstance(operation, WhileLoop) else operation


def without_final_measurements(
    operations: Sequence[Operation],
) -> tuple[tuple[Operation, ...], dict[int, int]]:
    """The operations without their final measurements, and the qubit that goes to each bit of these.

    A measurement is final where nothing after it but final ones acts on its qubit, or reads or writes its
    bit: it may as well be done at the end.
    """
    others: list[Operation] = []
    source: dict[int, int] = {}
    qubits: set[int] = set()
    bits: set[int] = set()
    # From the end: a measurement is final where no later operation acts on its qubit or uses its bit.
    for operation in reversed(operations):
        if isinstance(operation, Measurement) and operation.qubit not in qubits and operation.bit not in bits:
            # Of several final measurements into one bit the last is the one that it keeps.
            source.setdefault(operation.bit, operation.qubit)
            continue
        others.append(operation)
        acts, uses = touched(operation)
        qubits |= acts
        bits |= uses
    return tuple(reversed(others)), source


def touched(operation: Operation) -> tuple[set[int], set[int]]:
    """The qubits that an operation acts on, and the bits that it reads or writes."""
    if isinstance(operation, Measurement):
        return {operation.qubit}, {operation.bit}
    if isinstance(operation, Reset):
        return {operation.qubit}, set()
    if isinstance(operation, BitAssignment):
        return set(), {operation.bit, *operation.bits}
    if not isinstance(operation, Conditional | WhileLoop):
        return set(operation.qubits), set()
    # What is inside a condition or a loop counts as if it always ran.
    inner = [touched(item) for item in inner_operations(operation)]
    return (
        set[int]().union(*(qubits for qubits, _ in inner)),
        set(operation.bits).union(*(bits for _, bits in inner)),
    )


def final_measurements(program: CircuitProgram) -> dict[int, int] | None:
    """The qubit that goes to each bit; None unless all else are gates and none acts on a measured qubit."""
    return program.final_measurements


def measures(operations: Sequence[Operation]) -> bool:
    """Whether there is a measurement anywhere."""
    return any(
        isinstance(operation, Measurement) or measures(inner_operations(operation))
        for operation in operations
    )


def _check(operations: Sequence[Operation], n_qubits: int, n_bits: int, place: str) -> None:
    for number, operation in enumerate(operations):
        location = f"{place} {number}"
        if isinstance(operation, Gate):  # most operations of most programs
            check_qubits(operation.qubits, n_qubits, location)
            continue
        if isinstance(operation, Channel):
            check_qubits(operation.qubits, n_qubits, location)
        elif isinstance(operation, Measurement | Reset):
            check_qubits([operation.qubit], n_qubits, location)
        elif not isinstance(operation, Conditional | WhileLoop | BitAssignment):
            raise InputError(
                location, f"is of type {type(operation).__name__}", "give a gate or another operation"
            )
        for bit in _bits(operation):
            if not 0 <= bit < n_bits:
                raise InputError(location, f"names classical bit {bit}", f"use bits 0 to {n_bits - 1}")
        if isinstance(operation, Conditional | WhileLoop):
            _check(inner_operations(operation), n_qubits, n_bits, f"{location}, inner operation")


def _bits(operation: Operation) -> tuple[int, ...]:
    """The classical bits that an operation names itself."""
    if isinstance(operation, Measurement):
        return (operation.bit,)
    if isinstance(operation, BitAssignment):
        return (operation.bit, *operation.bits)
    return operation.bits if isinstance(operation, Conditional | WhileLoop) else ()


LARGEST_NOISY = 3
"""Qubits of a gate after which noise may stand."""


def depolarizing(qubits: tuple[int, ...], probability: float) -> Channel:
    """One of the Pauli words other than I strikes the qubits, each as likely, with `probability` in all."""
    _check_probability(probability)
    if len(qubits) > LARGEST_NOISY:
        raise InputError(
            "depolarizing", f"acts on {len(qubits)} qubits", f"use gates on {LARGEST_NOISY} or fewer"
        )
    return Channel(qubits, _operators(len(qubits), probability))


@lru_cache
def _operators(n_qubits: int, probability: float) -> tuple[np.ndarray, ...]:
    """The Pauli words times square roots of their probabilities: one tuple for all channels of them."""
    words = [kronecker(letters) for letters in product((I2, X, Y, Z), repeat=n_qubits)]
    each = probability / (len(words) - 1)
    weights = [1 - probability] + [each] * (len(words) - 1)
    return tuple(np.sqrt(weight) * word for weight, word in zip(weights, words, strict=True))


def depolarized(program: CircuitProgram, probability: float) -> CircuitProgram:
    """The program with noise after every gate, a global phase being none; itself where that is 0."""
    if probability == 0:
        return program
    _check_probability(probability)
    return replace(program, operations=_noisy(program.operations, probability, ""))


def _check_probability(probability: float) -> None:
    if not 0 <= probability <= 1:
        raise InputError("depolarizing", f"probability is {probability:g}", "give a number from 0 to 1")


def _noisy(operations: tuple[Operation, ...], probability: float, place: str) -> tuple[Operation, ...]:
    result: list[Operation] = []
    for number, operation in enumerate(operations):
        inner = f"{place}operation {number}, inner "
        # Gates in conditions and loops are noisy too.
        result.append(with_inner(operation, partial(_noisy, probability=probability, place=inner)))
        if isinstance(operation, Gate) and not isinstance(operation, GlobalPhase):
            if len(operation.qubits) > LARGEST_NOISY:
                raise InputError(
                    f"{place}gate {number} ({operation.name})",
                    f"acts on {len(operation.qubits)} qubits, but depolarizing noise acts on at most "
                    f"{LARGEST_NOISY}",
                    "split the gate, or leave --depolarizing out",
                )
            result.append(depolarizing(operation.qubits, probability))
    return tuple(result)
