"""The engine on the CPU against dense states: every gate, both precisions, every mode, several threads."""

from __future__ import annotations

import numpy as np
import pytest

import tnplan
from tests.oracles.statevector import apply_pass
from tests.support.circuits import random_circuit, state_vector
from tests.support.engines.statevector import TOLERANCE, hadamards, many_kinds, plan_of, qft, simulator_of
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.program import CircuitProgram, Measurement
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.scheduling.tiled_passes import MODES, TILES, Tile

DTYPES = ("complex64", "complex128")


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_circuits_of_every_gate(dtype: str) -> None:
    one = GateSequence(1, tuple(gate(name, (0,)) for name in ("h", "t", "x_1_2", "s", "hz_1_2", "y")))
    for circuit in (one, *(random_circuit(n, 30 * n, n) for n in range(2, 13))):
        found = simulator_of(circuit, dtype).array()
        np.testing.assert_allclose(found, state_vector(circuit).reshape(-1), rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tile", [Tile(7, 2, 5), Tile(10, 3, 5), Tile(16, 5, 5)], ids=str)
def test_unitaries_up_to_five_qubits_in_every_mode(dtype: str, mode: str, tile: Tile) -> None:
    for circuit in (many_kinds(11, 20, 4), qft(9)):
        found = simulator_of(circuit, dtype, mode, tile).array()
        np.testing.assert_allclose(found, state_vector(circuit).reshape(-1), rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_passes_equal_their_twin(dtype: str) -> None:
    """On random amplitudes, so that every one of them counts, and with runs of every length."""
    generator = np.random.default_rng(5)
    for circuit, tile in ((random_circuit(12, 150, 8), Tile(8, 2, 3)), (many_kinds(12, 25, 9), Tile(9, 0, 4)),
                          (qft(12), Tile(11, 3, 4))):  # fmt: skip
        state = HostState(12, dtype, 2)
        start = generator.normal(size=2**12) + 1j * generator.normal(size=2**12)
        start /= np.linalg.norm(start)
        state.load(start)
        expected = state.amplitudes.astype(np.complex128)
        plan = plan_of(circuit, tile)
        for item, tables in zip(plan.passes, state.prepare(plan.steps), strict=True):
            apply_pass(expected, item)
            state.apply(tables)
            np.testing.assert_allclose(state.amplitudes, expected, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("ranks", [1, 2])
def test_circuits_without_a_pass(ranks: int) -> None:
    """Nothing but identities, or exchanges of qubits, which are changes of names."""
    flip, swap = gate("x", (0,)), gate("sw", (0, 5))
    for gates in ((gate("id1", (0,)),), (gate("rz", (1,), (0.0,)), gate("id2", (2, 0))), (swap,)):
        done = tnplan.simulate(GateSequence(6, gates), ranks=ranks)
        assert (done.report["passes"], done.answer.norm) == (0, 1)
    between = CircuitProgram(6, 2, (flip, Measurement(0, 0), swap, Measurement(5, 1)))
    assert tnplan.simulate(between, ranks=ranks, shots=3).answer.counts == {"11": 3}


def test_the_transform_is_that_of_fourier() -> None:
    n, number = 13, 2741
    bits = [gate("x", (q,)) for q in range(n) if number >> (n - 1 - q) & 1]
    found = simulator_of(GateSequence(n, (*bits, *qft(n).gates))).array()
    expected = np.exp(2j * np.pi * number * np.arange(2**n) / 2**n) / np.sqrt(2**n)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_tiles_beyond_one_and_threads_change_nothing() -> None:
    circuit = GateSequence(18, (*hadamards(18).gates, *qft(18).gates))
    tile = Tile(12, 4, 3)
    one, two = (simulator_of(circuit, "complex128", tile=tile, threads=threads) for threads in (1, 2))
    assert np.array_equal(one.state.to_host(), two.state.to_host())
    expected = np.zeros(2**18)
    expected[0] = 1
    np.testing.assert_allclose(one.array(), expected, rtol=0, atol=1e-12)


def test_single_precision_is_single() -> None:
    for dtype, item_bytes in (("complex64", 8), ("complex128", 16)):
        assert HostState(5, dtype).amplitudes.nbytes == 32 * item_bytes
        assert TILES[dtype].bits < 20
