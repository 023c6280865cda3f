"""What can be asked of a circuit, as plain data that is the same for every engine. Knows no engine."""

from __future__ import annotations

from dataclasses import dataclass

from tnplan.executor.observables.pauli_sum import PauliSum
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.checks import check_count
from tnplan.planner.common.errors import InputError
from tnplan.planner.networks.circuits.circuit import GateSequence
from tnplan.planner.networks.circuits.program import CircuitProgram, final_measurements


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

    How a contraction draws them: `sampling`, "chain" or "rejection", with `open_qubits` and `fidelity`.
    """

    shots: int
    sampling: str = "chain"
    open_qubits: int = 0
    fidelity: float = 1.0
    name = "sample"


@dataclass(frozen=True, eq=False)
class ExpectationValues:
    """<psi|O|psi> of every sum of Pauli words O; `is_single`: one value, not a list.

    `names`: the parameters by which derivatives are asked for.
    """

    sums: tuple[PauliSum, ...]
    is_single: bool
    names: tuple[str, ...] = ()
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
    """<other|psi>."""

    other: GateSequence
    name = "overlap"


@dataclass(frozen=True, eq=False)
class Trace:
    """Tr(A U^dagger B U) / 2^n; with a state, <state|A U^dagger B U|state>."""

    a: PauliSum
    b: PauliSum
    state: str | None
    name = "trace"


Question = (
    Amplitudes | OpenAmplitudes | Sample | ExpectationValues | Probabilities | ReducedDensityMatrix
    | Overlap | Trace
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class AskedCircuit:
    """A circuit with its noise, and a question.

    `gates` has the gates alone, without final measurements; it is None where the program measures, resets,
    branches or is noisy on its way. Where derivatives are asked for, gates that parameters change are
    `VariedGate`s.
    """

    program: CircuitProgram
    gates: GateSequence | None
    question: Question

    @property
    def n_qubits(self) -> int:
        """How many qubits the circuit has."""
        return self.program.n_qubits

    @property
    def has_gradient(self) -> bool:
        """Whether derivatives are asked for."""
        return isinstance(self.question, ExpectationValues) and bool(self.question.names)

    @property
    def is_random(self) -> bool:
        """Whether the program ends in another state in each run."""
        return final_measurements(self.program) is None


def checked_state(state: str | None, n_qubits: int) -> str | None:
    """A computational state of all qubits, or None."""
    if state is not None and (
        not isinstance(state, str) or len(state) != n_qubits or set(state) - {"0", "1"}
    ):
        raise InputError("--state", f"{str(state)[:40]!r} is no state", f"give 0 or 1 for {n_qubits} qubits")
    return state


def checked_shots(shots: int, most: int) -> int:
    """A number of shots."""
    return check_count("--shots", shots, 1, most)
