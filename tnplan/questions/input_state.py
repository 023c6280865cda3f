"""The state that a circuit begins with: what Pauli words are measured in, and what makes it of |0...0>."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.program import Channel
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra.preparation import (
    bit_preparation,
    product_preparation,
    stabilizer_preparation,
)
from tnplan.executor.pauli.algebra.states import ProductState, StabilizerState, State, given_state


@dataclass(frozen=True, eq=False)
class InputState:
    """A state of all qubits.

    Parameters
    ----------
    measured
        Gives Pauli words their values in the state: a bit string, or a `State`.
    preparation
        Makes the state of |0...0>.
    """

    measured: str | State
    preparation: tuple[Gate | Channel, ...]

    @property
    def is_mixed(self) -> bool:
        """Whether it is no pure state."""
        return any(isinstance(one, Channel) for one in self.preparation)

    def circuit(self, n_qubits: int) -> GateSequence:
        """The gates that make a pure state."""
        return GateSequence(n_qubits, tuple(one for one in self.preparation if isinstance(one, Gate)))


def read_state(given: Any, n_qubits: int) -> InputState | None:
    """A state as `propagate` takes it; None, which is |0...0>, stays None."""
    state = given_state(given, n_qubits)
    if state is None:
        return None
    if isinstance(state, str):
        if len(state) != n_qubits:
            problem, remedy = f"{state[:40]!r} is no state", f"give one of 0 1 + - r l for {n_qubits} qubits"
            raise InputError("--state", problem, remedy)
        return InputState(state, bit_preparation(state))
    if isinstance(state, ProductState):
        return InputState(state, product_preparation(state))
    assert isinstance(state, StabilizerState)
    return InputState(state, stabilizer_preparation(state, n_qubits))
