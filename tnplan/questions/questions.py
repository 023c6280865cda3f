"""What can be asked of a circuit, as plain data that is the same for every engine."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from tnplan.circuits.bond_bounds import chain_order, log2_bonds
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.compose import composed
from tnplan.circuits.known_qubits import acting_gates
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.circuits.program import (
    Channel,
    CircuitProgram,
    Measurement,
    Operation,
    Reset,
    final_measurements,
    gates_of,
    touched,
    without_final_measurements,
)
from tnplan.common.arrays import Array
from tnplan.common.checks import check_count
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra.states import (
    ProductState,
    StabilizerState,
    State,
    bit_preparation,
    given_state,
    product_preparation,
    stabilizer_preparation,
)
from tnplan.planner.networks.of_circuits.deferred import deferred

ONCE = ("statevector", "mps", "stabilizer", "peps")
"""The methods that go once through a circuit of gates for the values after several parts of it."""
IN_SWEEPS = "pauli"
"""The method that goes back through a circuit, in as few sweeps as there can be for these values."""

# The state that a circuit begins with: what Pauli words are measured in, and what makes it of |0...0>.


@dataclass(frozen=True, eq=False)
class InputState:
    """A state of all qubits.

    - `measured`: Gives Pauli words their values in the state: a bit string, or a `State`.
    - `preparation`: Makes the state of |0...0>.
    """

    measured: str | State
    preparation: tuple[Gate | Channel, ...]

    @property
    def is_mixed(self) -> bool:
        """Whether it is no pure state."""
        return any(isinstance(operation, Channel) for operation in self.preparation)

    def circuit(self, n_qubits: int) -> GateSequence:
        """The gates that make a pure state."""
        gates = tuple(operation for operation in self.preparation if isinstance(operation, Gate))
        return GateSequence(n_qubits, gates)


def read_state(state: Any, n_qubits: int) -> InputState | None:
    """A state as `propagate` takes it; None, which is |0...0>, stays None."""
    state = given_state(state, n_qubits)
    if state is None:
        return None
    if isinstance(state, str):
        if len(state) != n_qubits:
            problem, remedy = (
                f"{state[:40]!r} is not a state",
                f"give one of 0 1 + - r l for each of {n_qubits} qubits",
            )
            raise InputError("--state", problem, remedy)
        return InputState(state, bit_preparation(state))
    if isinstance(state, ProductState):
        return InputState(state, product_preparation(state))
    assert isinstance(state, StabilizerState)
    return InputState(state, stabilizer_preparation(state, n_qubits))


@dataclass(frozen=True, eq=False)
class Amplitudes:
    """The amplitudes <bits|psi>; `bits` is uint8 [string, qubit]. `is_single`: one value, not a list."""

    bits: Array
    is_single: bool
    name = "amplitudes"


@dataclass(frozen=True, eq=False)
class OpenAmplitudes:
    """All amplitudes of the open qubits, complex [2] * m in their order; the others have fixed values."""

    fixed: dict[int, int]
    open_qubits: tuple[int, ...]
    name = "amplitudes"


@dataclass(frozen=True)
class Sample:
    """Counts of the outcomes of so many shots.

    How a contraction draws them: `sampling`, "auto", "chain", "gates" or "rejection", the last with
    `open_qubits` and `fidelity`, or with the linear cross-entropy `xeb` that samples are to reach.
    """

    shots: int
    sampling: str = "auto"
    open_qubits: int = 0
    fidelity: float = 1.0
    xeb: float | None = None
    name = "sample"


@dataclass(frozen=True, eq=False)
class ExpectationValues:
    """<psi|O|psi> of every sum of Pauli words O; `is_single`: one value, not a list.

    `names`: the parameters by which derivatives are asked for. `after`: numbers of operations of the circuit,
    rising, after each of which the values are asked for; none: at the end.
    """

    sums: tuple[PauliSum, ...]
    is_single: bool
    names: tuple[str, ...] = ()
    after: tuple[int, ...] = ()
    name = "expectation"


@dataclass(frozen=True)
class Probabilities:
    """The probability of every value of some qubits, float64 [2] * m in their order."""

    qubits: tuple[int, ...]
    name = "probabilities"


@dataclass(frozen=True)
class ReducedDensityMatrix:
    """The density matrix of some qubits, complex [2^m, 2^m], the first qubit most significant."""

    qubits: tuple[int, ...]
    name = "reduced_density_matrix"


@dataclass(frozen=True, eq=False)
class Overlap:
    """<other|psi>; both circuits begin in the same input state."""

    other: GateSequence
    name = "overlap"


@dataclass(frozen=True, eq=False)
class Trace:
    """Tr(A U^dagger B U) / 2^n; in an input state, the value of A U^dagger B U in it."""

    a: PauliSum
    b: PauliSum
    name = "trace"


Question = (
    Amplitudes | OpenAmplitudes | Sample | ExpectationValues | Probabilities | ReducedDensityMatrix
    | Overlap | Trace
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class CircuitQuery:
    """A circuit with its noise, and a question.

    `gates` has the gates alone, without final measurements; it is None where the program measures, resets,
    branches or is noisy on its way. Where derivatives are asked for, gates that parameters change are
    `VariedGate`s. Both begin with the preparation of the input state, if there is one: but for traces, which
    take the circuit both ways. `stops`: how many gates, or where there is more operations, of the circuit
    itself come before each of several values; the last value is at the end.
    """

    program: CircuitProgram
    gates: GateSequence | None
    question: Question
    start: InputState | None = None
    stops: tuple[int, ...] = ()

    @property
    def n_qubits(self) -> int:
        """How many qubits the circuit has."""
        return self.program.n_qubits

    @property
    def circuit(self) -> GateSequence | CircuitProgram:
        """The gates, or where there is more the program."""
        return self.program if self.gates is None else self.gates

    @property
    def has_gradient(self) -> bool:
        """Whether derivatives are asked for."""
        return isinstance(self.question, ExpectationValues) and bool(self.question.names)

    @cached_property
    def is_random(self) -> bool:
        """Whether the program ends in another state in each run, or begins in one."""
        return self.is_mixed or final_measurements(self.program) is None

    @property
    def is_mixed(self) -> bool:
        """Whether the input state is mixed."""
        return self.start is not None and self.start.is_mixed

    @property
    def circuit_operations(self) -> tuple[Operation, ...]:
        """The operations of the circuit itself, without the preparation of an input state."""
        return self.program.operations[self._n_prepared :]

    @property
    def circuit_gates(self) -> GateSequence | None:
        """The gates of the circuit itself."""
        if self.gates is None or not self._n_prepared:
            return self.gates
        return GateSequence(self.n_qubits, self.gates.gates[self._n_prepared :])

    @cached_property
    def circuit_program(self) -> CircuitProgram:
        """The operations of the circuit itself."""
        return replace(self.program, operations=self.circuit_operations) if self._n_prepared else self.program

    @cached_property
    def divided_program(self) -> CircuitProgram:
        """The same, or of a circuit of gates these alone, large controlled ones divided."""
        gates = self.circuit_gates
        if gates is None or gates.gates == self.circuit_operations:
            return self.circuit_program
        return replace(self.program, operations=gates.gates)

    def pieces(self, gates: Sequence[Gate]) -> list[Sequence[Gate]]:
        """The gates, with the preparation, from each stop to the next; where there are none, all."""
        ends = [self._n_prepared + stop for stop in self.stops] or [len(gates)]
        return [gates[begin:end] for begin, end in pairwise([0, *ends])]

    def is_series(self, method: str) -> bool:
        """Whether a method answers the circuit up to each stop anew, and does not go through it once."""
        return bool(self.stops) and method != IN_SWEEPS and (self.is_random or method not in ONCE)

    def circuits_of(self, method: str) -> float:
        """How many whole circuits a method answers, by their operations."""
        if self.stops and method == IN_SWEEPS:
            lengths = [len(sweep.operations) for sweep in self.sweeps]
            return sum(lengths) / max(1, lengths[0])
        if not self.is_series(method):
            return 1.0
        last = self._n_prepared + self.stops[-1]
        return sum(self._n_prepared + stop for stop in self.stops) / max(1, last)

    @cached_property
    def sweeps(self) -> list[Sweep]:
        """The sweeps back that give the values at all stops."""
        gates = self.circuit_gates
        operations = self.circuit_operations if gates is None else gates.gates
        bodies = [without_final_measurements(operations[:stop])[0] for stop in self.stops]
        is_product = self.start is None or not isinstance(self.start.measured, StabilizerState)
        return sweeps_of(bodies, is_product)

    @property
    def beginnings(self) -> Iterator[CircuitQuery]:
        """The circuit up to each stop, and the question for the values there."""
        question, gates, program = self.question, self.gates, self.program
        assert isinstance(question, ExpectationValues)
        for stop in self.stops:
            end = self._n_prepared + stop
            some = None if gates is None else GateSequence(self.n_qubits, gates.gates[:end])
            operations = program.operations[:end] if some is None else some.gates
            whole = replace(program, operations=operations)
            yield CircuitQuery(whole, some, replace(question, after=()), self.start)

    @cached_property
    def deferred(self) -> CircuitQuery:
        """For samples by contraction: measurements at the end alone, on more qubits; raises InputError."""
        operations, _ = without_final_measurements(self.program.operations)
        if all(isinstance(operation, Gate | Channel | Reset) for operation in operations):
            return self
        program = deferred(self.program)
        gates = None if final_measurements(program) is None else gates_of(program)
        return replace(self, program=program, gates=gates)

    @property
    def n_drawn(self) -> int:
        """How many of the first qubits decide on the outcomes."""
        program = self.program
        _, measured = without_final_measurements(program.operations)
        has_bits = measured and program.n_bits > program.n_scratch
        return 1 + max(measured.values()) if has_bits else program.n_qubits

    @cached_property
    def chain(self) -> tuple[list[int], Array]:
        """The order of the qubits in a matrix product state, and bounds of its log2 bonds."""
        gates = self.acting
        order = chain_order(gates)
        return order, log2_bonds(gates, order)

    @cached_property
    def acting(self) -> GateSequence:
        """The gates as they act on |0...0>; all of them where values on the way or other inputs count."""
        assert self.gates is not None
        return self.gates if self.stops or isinstance(self.question, Trace) else acting_gates(self.gates)

    @property
    def _n_prepared(self) -> int:
        return 0 if self.start is None or isinstance(self.question, Trace) else len(self.start.preparation)


def prepared(query: CircuitQuery, start: InputState) -> CircuitQuery:
    """The circuit after the preparation of its input state, as the question needs it."""
    question, gates, program = query.question, query.gates, query.program
    # A trace has its input state among the operators, not before the circuit.
    if isinstance(question, Trace):
        return query
    operations = program.operations
    if gates is not None:  # these are on so few qubits that every engine takes them
        others = (operation for operation in operations if not isinstance(operation, Gate))
        operations = (*gates.gates, *others)
    whole = replace(program, operations=(*start.preparation, *operations))
    if gates is None or start.is_mixed:
        return replace(query, program=whole, gates=None, start=start)
    # Both states begin with the same input: <0|C^dagger V^dagger U C|0>.
    if isinstance(question, Overlap):
        question = Overlap(composed(start.circuit(query.n_qubits), question.other))
    together = composed(start.circuit(query.n_qubits), gates)
    return replace(query, program=whole, gates=together, question=question, start=start)


def checked_shots(shots: int, most: int) -> int:
    """A number of shots."""
    return check_count("--shots", shots, 1, most)


@dataclass(frozen=True, eq=False)
class Sweep:
    """One sweep back, and the beginnings of a circuit whose values it meets, by their numbers, rising.

    `operations` are those of the longest, whose first `n_first` go into the state. Those of the k-th are
    these first ones, and the last `lengths[k]`.
    """

    operations: Sequence[Operation]
    n_first: int
    numbers: tuple[int, ...]
    lengths: tuple[int, ...]


def sweeps_of(beginnings: Sequence[Sequence[Operation]], has_product: bool) -> list[Sweep]:
    """The sweeps for all beginnings of a circuit, the longest first.

    First operations on one qubit each, such as those that prepare a state, may be others than those of a
    layer where the state is a product (`has_product`).
    """
    known: dict[Hashable, int] = {}
    contents = [
        np.array([known.setdefault(_content(operation), len(known)) for operation in each], np.int64)
        for each in beginnings
    ]
    left, sweeps = [*range(len(beginnings))], []
    while left:
        longest, whole = beginnings[left[-1]], contents[left[-1]]
        n_local = next((k for k, each in enumerate(longest) if len(touched(each)[0]) > 1), len(longest))
        own = {k: _unequal(contents[k], whole) for k in left}
        own = {k: n for k, n in own.items() if n <= (n_local if has_product else 0)}
        n_first = max(own.values())
        # Final measurements are left out of each, so that shorter ones may begin in another way.
        numbers = tuple(k for k in own if np.array_equal(contents[k][:n_first], whole[:n_first]))
        sweeps.append(Sweep(longest, n_first, numbers, tuple(len(contents[k]) - n_first for k in numbers)))
        left = [k for k in left if k not in numbers]
    return sweeps


def _unequal(own: np.ndarray, whole: np.ndarray) -> int:
    """How many first elements are to be left out, so that the rest is the end of the whole."""
    differs = np.flatnonzero(own != whole[len(whole) - len(own) :])
    return 1 + int(differs[-1]) if len(differs) else 0


def _content(operation: Operation) -> Hashable:
    """What is equal for operations that do the same."""
    if isinstance(operation, Gate):
        return operation.qubits, operation.matrix.tobytes()
    if isinstance(operation, Channel):
        return operation.qubits, *(matrix.tobytes() for matrix in operation.kraus)
    return (type(operation), operation.qubit) if isinstance(operation, Measurement | Reset) else id(operation)
