"""Gates on many qubits against dense states: every mode and precision, several ranks, indices checked."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tnplan
from tests.support.circuits import state_vector
from tests.support.engines.statevector import NO_BITS, TOLERANCE, random_unitary, simulator_of
from tests.support.root import ROOT
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import parse
from tnplan.circuits.program import Channel, CircuitProgram
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.distributed_state import DistributedState
from tnplan.executor.statevector.gates.multiplexed_gate import LARGEST_TARGETS, MultiplexedGate, from_gate
from tnplan.executor.statevector.prepared_program import Segment, prepare_program
from tnplan.executor.statevector.scheduling.pass_tables import pass_tables
from tnplan.executor.statevector.scheduling.tiled_passes import MODES, Pass, Tile
from tnplan.executor.statevector.simulator import Simulator

DTYPES = ("complex64", "complex128")
LARGEST_MATRIX = 7
"""Gates on so many qubits are given as whole matrices, others multiplexed, with fewer elements."""
TILES = (
    None, Tile(6, 1, 1), Tile(7, 2, 5), Tile(9, 0, 3), Tile(13, 3, 1, 4), Tile(8, 2, 1, 3),
    Tile(13, 3, 1, 5, True), Tile(8, 3, 1, 4, True),
)  # fmt: skip
"""The one of this precision on a CPU, small ones, and such as GPUs have."""


@dataclass(frozen=True, eq=False)
class Wide:
    """For each value of the controls a matrix on the targets.

    `matrices` is complex128 [2^controls, 2^targets, 2^targets].
    """

    targets: tuple[int, ...]
    controls: tuple[int, ...]
    matrices: np.ndarray = field(repr=False)

    def applied(self, state: np.ndarray) -> np.ndarray:
        """The gate on a state with one axis a qubit."""
        axes = (*self.controls, *self.targets)
        front = np.moveaxis(state, axes, range(len(axes)))
        rows = front.reshape(*self.matrices.shape[:2], -1)
        return np.moveaxis((self.matrices @ rows).reshape(front.shape), range(len(axes)), axes)

    def multiplexed(self) -> MultiplexedGate:
        """The gate as the engine has it."""
        if len(self.controls) + len(self.targets) > LARGEST_MATRIX:
            return MultiplexedGate(self.targets, self.controls, self.matrices)
        n, side = self.matrices.shape[:2]
        matrix = np.zeros((n, side, n, side), np.complex128)
        matrix[np.arange(n), :, np.arange(n), :] = self.matrices
        return from_gate(Gate("wide", (*self.controls, *self.targets), matrix.reshape(n * side, -1)))


def wide(n_qubits: int, n_targets: int, n_controls: int, only_ones: bool, seed: int) -> Wide:
    """A random gate on random qubits; with `only_ones` it acts where all controls are 1, as of `ctrl @`."""
    generator = np.random.default_rng(seed)
    n_targets = min(n_targets, n_qubits)
    qubits = tuple(int(q) for q in generator.permutation(n_qubits)[: n_targets + n_controls])
    n = 2 ** (len(qubits) - n_targets)
    matrices = np.array([random_unitary(n_targets, generator) for _ in range(n)])
    if only_ones:
        matrices[:-1] = np.eye(2**n_targets)
    return Wide(qubits[:n_targets], qubits[n_targets:], matrices)


@st.composite
def circuits(draw: st.DrawFn) -> tuple[int, list[Wide]]:
    """How many qubits, and gates on up to all of them with gates on one qubit between."""
    n = draw(st.integers(6, 12))
    seeds = st.integers(0, 2**32 - 1)
    gates = []
    for _ in range(draw(st.integers(1, 4))):
        alone = draw(st.integers(0, 2**n - 1))
        gates += [Wide((q,), (), wide(1, 1, 0, False, draw(seeds)).matrices)
                  for q in range(n) if alone >> q & 1]  # fmt: skip
        n_targets = draw(st.integers(0, LARGEST_TARGETS))
        n_controls = draw(st.integers(int(not n_targets), 12))
        gates.append(wide(n, n_targets, n_controls, draw(st.booleans()), draw(seeds)))
    return n, gates


def simulated(
    n: int, gates: Sequence[Wide], dtype: str, mode: str, tile: Tile | None, rank_bits: int
) -> np.ndarray:
    """All amplitudes after gates, over 2^rank_bits ranks of this process."""
    segment = Segment(tuple(one.multiplexed() for one in gates))

    def work(ranks: Communicator) -> np.ndarray:
        own = HostState(n - rank_bits, dtype, 1, ranks.rank)
        own.tile = tile or own.tile
        simulator = Simulator(DistributedState(own, ranks) if rank_bits else own, n, mode, 3)
        simulator.apply(segment)
        return simulator.array()

    return run_ranks(1 << rank_bits, work)[0]


@given(circuits(), st.sampled_from(DTYPES), st.sampled_from(MODES), st.sampled_from(TILES), st.integers(0, 2))
def test_wide_gates_give_dense_states(
    circuit: tuple[int, list[Wide]], dtype: str, mode: str, tile: Tile | None, rank_bits: int
) -> None:
    n, gates = circuit
    expected = np.zeros((2,) * n, np.complex128)
    expected[(0,) * n] = 1
    for one in gates:
        expected = one.applied(expected)
    found = simulated(n, gates, dtype, mode, tile, min(rank_bits, n - LARGEST_TARGETS))
    np.testing.assert_allclose(found, expected.reshape(-1), rtol=0, atol=TOLERANCE[dtype])


def check_with_bounds() -> None:
    """Called where numba checks every index: that it does, then tests of this file and what is measured."""
    from tnplan.executor.statevector.cpu.matrix_kernel import apply_matrix
    from tnplan.executor.statevector.cpu.tile_scratch import TileScratch

    re, im = np.zeros((2, 2**6))
    matrix = np.eye(2**6).reshape(-1)
    reals, numbers = np.zeros(1), np.zeros(1, np.int64)
    lanes = np.zeros(1, np.uint64)
    room = TileScratch(reals, np.zeros((4, 1)), reals, numbers, lanes, numbers, *6 * (reals,))
    with pytest.raises(IndexError):
        apply_matrix(re, im, 6, np.arange(6), 6, 0, matrix, matrix, room)
    for dtype in DTYPES:
        test_controlled_gates_beside_gates_on_their_qubits(dtype, "compiled")
        simulator = simulator_of(GateSequence(7, tuple(gate("h", (q,)) for q in range(7))), dtype)
        assert simulator.norm() == pytest.approx(1, abs=1e-5)
        assert len(simulator.sample(50)) == 50
        assert simulator.probabilities((1, 6)).sum() == pytest.approx(1, abs=1e-5)
        assert simulator.expectation(parse("X0 Y3 Z6 + X1", 7)) == pytest.approx(1, abs=1e-5)
    test_wide_gates_give_dense_states()


@pytest.mark.slow
@pytest.mark.timeout(300)  # compiles every kernel anew, for both precisions
def test_no_index_is_out_of_bounds(tmp_path: Path) -> None:
    """In a process of its own, whose kernels are compiled with checks: an IndexError, not spoilt memory."""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    text = (
        "import tests.conftest, tests.executor.statevector.test_wide_gates as case; case.check_with_bounds()"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, env=environment, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def hadamards_around(n: int, qubits: tuple[int, ...], corner: np.ndarray) -> GateSequence:
    """H on all, a gate that has `corner` in the corner of an identity, H on all."""
    matrix = np.eye(2 ** len(qubits), dtype=np.complex128)
    matrix[-len(corner) :, -len(corner) :] = corner
    layer = tuple(gate("h", (q,)) for q in range(n))
    return GateSequence(n, (*layer, Gate("controlled", qubits, matrix), *layer))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_controlled_gates_beside_gates_on_their_qubits(dtype: str, mode: str) -> None:
    flip, sign = gate("x", (0,)).matrix, -np.eye(1)
    random = random_unitary(2, np.random.default_rng(1))
    for circuit in (hadamards_around(6, tuple(range(6)), flip), hadamards_around(9, tuple(range(9)), sign),
                    hadamards_around(8, (7, 1, 3, 4, 6, 0), random)):  # fmt: skip
        found = tnplan.simulate(
            circuit, precision={"complex64": "fp32", "complex128": "fp64"}[dtype], mode=mode, threads=1
        ).simulator.array()
        np.testing.assert_allclose(found, state_vector(circuit).reshape(-1), rtol=0, atol=TOLERANCE[dtype])


def test_what_changes_too_many_qubits_is_refused_in_one_line() -> None:
    matrix = random_unitary(7, np.random.default_rng(2))
    noisy = (np.sqrt(0.5) * matrix, np.sqrt(0.5) * np.eye(128) + 0j)
    lossy = (matrix @ np.diag(np.linspace(0, 1, 128)), np.diag(np.sqrt(1 - np.linspace(0, 1, 128) ** 2)) + 0j)
    for operation, place in (
        (Gate("mine", tuple(range(7)), matrix), r"gate 0 \(mine\)"),
        (Channel(tuple(range(7)), noisy), r"operation 0 \(channel\)"),
        (Channel(tuple(range(7)), lossy), r"operation 0 \(channel\)"),
    ):
        with pytest.raises(InputError, match=f"{place}: changes 7 qubits at once; split it"):
            tnplan.simulate(CircuitProgram(8, 0, (operation,)), shots=1)


def test_a_channel_on_many_qubits_may_change_few() -> None:
    phases = np.diag(np.exp(1j * np.arange(64)))
    script = prepare_program([Channel(tuple(range(6)), (phases,))])
    simulator = Simulator(HostState(7, "complex128"), 7)
    simulator.run(script, NO_BITS)
    assert simulator.amplitudes(["0" * 7])[0] == pytest.approx(1)


def test_kernels_are_given_no_gate_with_more_targets_than_they_take() -> None:
    item = Pass(tuple(range(8)), (MultiplexedGate(tuple(range(6)), (), np.eye(64)[None] + 0j),))
    with pytest.raises(ValueError, match="a gate has 6 targets, and kernels take 5"):
        pass_tables(item, 8, 0)
    with pytest.raises(InputError, match="tile: has clusters of 6 bits; use 5 bits or fewer"):
        Tile(10, 2, 6)
