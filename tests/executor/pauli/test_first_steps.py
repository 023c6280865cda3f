"""First steps on one qubit each, taken into a product state: the same values with fewer steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.engines.pauli import amplitude_damping, chain_edges, kicked_ising
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import parse
from tnplan.executor.pauli.algebra.gates import PauliStep, circuit_steps, depolarizing, rotation
from tnplan.executor.pauli.algebra.states import OverlapWith, ProductState, after_first_steps, given_state
from tnplan.executor.pauli.propagate import propagate
from tnplan.executor.pauli.terms.sharded import ShardedTerms

SUM = parse("Z0 Y1 + 0.5*X2 - 0.3*Z1 Z3 + 0.2*Y0 X3 + 0.1*X0 Z2 Y3", 4)
STATES = [None, "0110", "+r0l"]


def steps_of(seed: int) -> list[PauliStep]:
    """Steps of every kind on four qubits, in a random order."""
    random = np.random.default_rng(seed)
    gates = [gate("h", (0,)), gate("s", (1,)), gate("cnot", (1, 2)), gate("cz", (0, 3)), gate("t", (2,))]
    steps = [*circuit_steps(GateSequence(4, tuple(gates))), amplitude_damping(3, 0.3)]
    steps += [rotation(letter, (int(random.integers(4)),), float(random.normal())) for letter in "XYZXYZ"]
    steps += [rotation("ZX", (0, 1), 0.4), depolarizing((2, 3), 0.1), depolarizing((1,), 0.2)]
    return [steps[k] for k in random.permutation(len(steps))]


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from(STATES))
def test_a_value_is_the_same_with_first_steps_in_the_state(seed: int, letters: str | None) -> None:
    steps, state = steps_of(seed), given_state(letters, 4)
    left, turned = after_first_steps(steps, state, 4)
    exact = propagate(steps, SUM, state=state).value
    assert propagate(left, SUM, state=turned).value == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("letters", STATES)
def test_a_whole_layer_of_rotations_goes_into_the_state(letters: str | None) -> None:
    steps = kicked_ising(4, chain_edges(4), 0.6, 2)
    left, turned = after_first_steps(steps, given_state(letters, 4), 4)
    assert len(left) == len(steps) - 4
    assert left == tuple(steps[4:])
    assert isinstance(turned, ProductState)
    np.testing.assert_allclose(np.linalg.norm(turned.bloch, axis=1), 1, rtol=0, atol=1e-12)


def test_a_step_behind_one_on_its_qubit_and_others_stays() -> None:
    steps = [rotation("ZZ", (0, 1), 0.3), rotation("X", (1,), 0.4), rotation("X", (2,), 0.5)]
    left, turned = after_first_steps(steps, None, 3)
    assert left == tuple(steps[:2])
    assert isinstance(turned, ProductState)
    np.testing.assert_allclose(turned.bloch[:2], [[0, 0, 1]] * 2)
    np.testing.assert_allclose(turned.bloch[2], [0, -np.sin(0.5), np.cos(0.5)], atol=1e-15)


def test_other_states_and_circuits_without_first_steps_stay_as_they_are() -> None:
    steps, other = kicked_ising(4, chain_edges(4), 0.6, 1), OverlapWith(SUM)
    assert after_first_steps(steps, other, 4) == (tuple(steps), other)
    assert after_first_steps(steps[4:], "0101", 4) == (tuple(steps[4:]), "0101")


def test_shards_add_up_to_the_value_in_a_product_state() -> None:
    state = given_state("+r0l", 4)
    assert isinstance(state, ProductState)
    terms = ShardedTerms(SUM, threads=2)
    terms._distribute()
    assert min(shard.n for shard in terms.shards) > 0
    assert terms.in_product(state.bloch) == pytest.approx(propagate([], SUM, state=state).value, abs=1e-15)
    terms.close()
