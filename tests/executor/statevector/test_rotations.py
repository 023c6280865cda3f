"""Gates as real rotations and phases, and passes of whole vectors, against dense states."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.statevector import apply_block, apply_pass
from tests.support.engines.statevector import TOLERANCE
from tnplan.circuits.gates import KINDS, gate
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.cpu.vector_tables import vector_pass
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, from_gate, from_matrix
from tnplan.executor.statevector.gates.one_bit import real_between_phases
from tnplan.executor.statevector.gates.rotations import PAULIS, as_rotations
from tnplan.executor.statevector.scheduling.tiled_passes import TILES, Pass, Tile
from tnplan.executor.statevector.simulator import Simulator

DTYPES = ("complex64", "complex128")


def random_unitary(n_bits: int, random: np.random.Generator) -> np.ndarray:
    side = 2**n_bits
    square = random.normal(size=(side, side)) + 1j * random.normal(size=(side, side))
    return np.asarray(np.linalg.qr(square)[0])


@st.composite
def gate_lists(draw: st.DrawFn, n: int) -> list[MultiplexedGate]:
    """Gates of every kind: named, unitary, chosen or signed by bits, other diagonals, no unitaries."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    made: list[MultiplexedGate] = []
    for kind in draw(
        st.lists(st.sampled_from(("named", "dense", "chosen", "signed", "diagonal", "part")), max_size=25)
    ):
        bits = tuple(int(bit) for bit in random.permutation(n))
        if kind == "named":
            name = str(random.choice([one for one in KINDS if KINDS[one].n_qubits <= n]))
            angles = random.choice([0.0, np.pi / 2, 0.3, 1e-9, np.pi], KINDS[name].n_params).tolist()
            made.append(from_gate(gate(name, bits[: KINDS[name].n_qubits], angles)))
        elif kind == "dense":
            m = int(random.integers(1, min(n, 4) + 1))
            made.append(from_matrix(bits[:m], random_unitary(m, random)))
        elif kind == "chosen":
            m = int(random.integers(1, min(n, 3)))
            matrices = np.array([random_unitary(1, random) for _ in range(2**m)])
            made.append(MultiplexedGate(bits[:1], bits[1 : 1 + m], matrices))
        elif kind == "signed":
            unitary, signs = random_unitary(2, random), np.array([1, 1, -1, -1])
            matrices = np.array([unitary, signs[:, None] * unitary * signs])
            made.append(MultiplexedGate(bits[:2], bits[2:3], matrices))
        elif kind == "diagonal":
            m = int(random.integers(1, min(n, 3) + 1))
            made.append(MultiplexedGate((), bits[:m], random.normal(size=(2**m, 1, 1)) + 0j))
        else:
            made.append(from_matrix(bits[:1], random.normal(size=(2, 2)) + 0.5j))
    return made


def applied(gates: Sequence[MultiplexedGate], state: np.ndarray) -> np.ndarray:
    found = state.copy()
    for one in gates:
        apply_block(found, one)
    return found


def random_state(n: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    state = random.normal(size=2**n) + 1j * random.normal(size=2**n)
    return np.asarray(state / np.linalg.norm(state))


@given(gate_lists(5))
def test_rotations_and_phases_do_the_same(gates: list[MultiplexedGate]) -> None:
    state = random_state(5)
    expected = applied(gates, state)
    found = applied(as_rotations(gates, 5), state)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("name", sorted(name for name in KINDS if KINDS[name].n_qubits == 1))
def test_every_matrix_of_one_bit_is_real_between_phases(name: str) -> None:
    rounding = np.array([[1e-17, 1e-16j], [1e-16, -1e-17j]])
    for angle in (0.0, 1e-15, 1e-9, 0.3, np.pi / 2, np.pi, 4.0):
        for extra in (0, rounding):
            matrix = gate(name, (0,), [angle] * KINDS[name].n_params).matrix + extra
            column, real, rows = real_between_phases(tuple(matrix.ravel().tolist()))
            middle = np.eye(2) if real is None else np.array(real).reshape(2, 2)
            assert not np.any(middle.imag)
            product = np.diag(rows) @ middle @ np.diag([1, column])
            np.testing.assert_allclose(product, matrix, rtol=0, atol=1e-13)


@pytest.mark.parametrize("zeros", range(16))
def test_matrices_that_are_not_unitary_are_taken_apart_too(zeros: int) -> None:
    random = np.random.default_rng(zeros)
    for _ in range(20):
        elements = random.normal(size=4) * random.choice([1, 1j, np.exp(0.4j)], 4)
        elements[[k for k in range(4) if zeros >> k & 1]] = 0
        column, real, rows = real_between_phases(tuple(elements.tolist()))
        middle = np.eye(2) if real is None else np.array(real).reshape(2, 2)
        product = np.diag(rows) @ middle @ np.diag([1, column])
        np.testing.assert_allclose(product, elements.reshape(2, 2), rtol=0, atol=1e-12)


def test_single_gates_of_random_circuits_are_one_rotation_each() -> None:
    """Layers of unitaries and of CNOT need no matrix of two bits, and no more than two rotations a qubit."""
    random = np.random.default_rng(3)
    gates = [from_matrix((q,), random_unitary(1, random)) for q in range(6)]
    gates += [from_gate(gate("cnot", (q, q + 1))) for q in (0, 2, 4)]
    gates += [from_matrix((q,), random_unitary(1, random)) for q in range(6)]
    made = as_rotations(gates, 6)
    assert max(one.mask.bit_count() for one in made if one.targets) == 1
    assert sum(bool(one.targets) for one in made) == 12
    assert all(not np.any(one.matrices.imag) for one in made if one.targets)


@pytest.mark.parametrize("seed", range(20))
def test_strings_of_signs_are_phases_of_two_bits(seed: int) -> None:
    """Rotations about words with X or Y on one or two bits and Z on others, as in Fermi-Hubbard circuits."""
    random = np.random.default_rng(seed)
    gates = []
    for _ in range(6):
        bits = tuple(int(bit) for bit in random.permutation(6)[: random.integers(2, 6)])
        flipped = int(random.integers(1, 3))
        letters = [*random.choice(["X", "Y"], flipped), *"Z" * (len(bits) - flipped)][: len(bits)]
        word = reduce(np.kron, [PAULIS[letter != "Z", letter != "X"] for letter in letters])
        angle = random.normal()
        matrix = np.cos(angle) * np.eye(len(word)) - 1j * np.sin(angle) * word
        gates.append(from_matrix(bits, matrix))
    made = as_rotations(gates, 6)
    state = random_state(6, seed)
    np.testing.assert_allclose(applied(made, state), applied(gates, state), rtol=0, atol=1e-13)
    assert not any(gate.targets and gate.selectors for gate in made)
    tables = vector_pass(Pass(tuple(range(6)), tuple(made)), 6, np.dtype(np.float64), 0)
    assert tables.is_of_rounds


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=20)
@given(data=st.data())
def test_passes_of_vectors_equal_their_twin(dtype: str, data: st.DataObject) -> None:
    """On random amplitudes, for states and tiles from less than a vector to several rounds a tile."""
    n = data.draw(st.integers(3, 14))
    size = data.draw(st.integers(2, n))
    random = np.random.default_rng(n)
    held = tuple(sorted(int(bit) for bit in random.permutation(n)[:size]))
    inside = data.draw(gate_lists(size)) if size > 2 else [from_gate(gate("h", (0,)))]
    steps = [one.on(held) for one in inside]
    steps += [MultiplexedGate((), (n - 1, 0), np.exp(1j * np.arange(4.0)).reshape(4, 1, 1))]
    item = Pass(held, tuple(steps))
    state, expected = HostState(n, dtype), random_state(n)
    state.amplitudes[:] = expected
    apply_pass(expected, item)
    (tables,) = state.prepare([item])
    state.apply(tables)
    largest = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(state.amplitudes, expected, rtol=0, atol=TOLERANCE[dtype] * largest)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tiles_of_zeros_are_left_alone(dtype: str) -> None:
    """From |0...0> only tiles that may have amplitudes are done; where those were touched, all are."""
    tile = Tile(6, 2, 2, rotations=True)
    for touched in (False, True):
        state = HostState(9, dtype)
        state.tile = tile
        expected = np.zeros(512, np.complex128)
        expected[0] = 1
        if touched:
            state.amplitudes[300] = expected[300] = 1
        gates = [from_gate(gate("ry", (q,), (0.3 + q,))) for q in range(9)]
        simulator = Simulator(state, 9)
        for one in gates:
            simulator._once([one])
        for one in gates:
            apply_block(expected, one.on(range(8, -1, -1)))
        np.testing.assert_allclose(simulator.array(), expected, rtol=0, atol=TOLERANCE[dtype] * 10)
    assert TILES[dtype].rotations
