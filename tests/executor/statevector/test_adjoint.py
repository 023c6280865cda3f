"""Adjoint gradients against finite differences, on one rank and several; segments of derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.circuits import random_circuit, state_vector
from tests.support.kernels.gpus import needs_gpus
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import parse
from tnplan.executor.statevector.adjoint_sweep import adjoint_gradients
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.derivative_segments import derivative_segments
from tnplan.executor.statevector.memory_estimate import observables_at_once
from tnplan.executor.statevector.prepared_program import prepare_program
from tnplan.executor.statevector.simulator import Simulator

OBSERVABLE = "0.5*X0 Y1 + 0.3*Z3 - 1.2*Z2 X5 Y4 + 0.25"
STEP = 1e-4


def value(circuit: GateSequence) -> float:
    """The expectation value by dense contraction."""
    state, total = state_vector(circuit), 0.0
    for x, z, coefficient in parse(OBSERVABLE, circuit.n_qubits).masks():
        moved = state
        for qubit in range(circuit.n_qubits):
            if z >> qubit & 1:
                signs = np.array([1, -1]).reshape([2 if k == qubit else 1 for k in range(circuit.n_qubits)])
                moved = moved * signs
            if x >> qubit & 1:
                moved = np.flip(moved, qubit)
        total += (coefficient * 1j ** (x & z).bit_count() * np.vdot(state, moved)).real
    return total


def finite_difference(circuit: GateSequence, number: int, place: int) -> float:
    """The derivative by one angle, of fourth order."""
    item, found = circuit.gates[number], []
    for steps in (2, 1, -1, -2):
        params = list(item.params)
        params[place] += steps * STEP
        gates = list(circuit.gates)
        gates[number] = gate(item.name, item.qubits, params)
        found.append(value(GateSequence(circuit.n_qubits, tuple(gates))))
    return (-found[0] + 8 * found[1] - 8 * found[2] + found[3]) / (12 * STEP)


@pytest.mark.parametrize("seed", range(3))
def test_finite_differences_and_ranks(seed: int) -> None:
    circuit = random_circuit(7, 45, seed)
    wanted_value = value(circuit)
    found = {}
    for ranks in (1, 2, 4):
        done = tnplan.simulate(
            circuit, observable=OBSERVABLE, gradient=True, ranks=ranks, threads=1, device="cpu"
        )
        assert abs(done.answer.expectation - wanted_value) < 1e-12
        assert done.answer.gradient is not None
        found[ranks] = done.answer.gradient
    places = [(one.gate, one.parameter) for one in found[1]]
    assert places == [(k, p) for k, item in enumerate(circuit.gates) for p in range(len(item.params))]
    for one in found[1]:
        assert one.angle == circuit.gates[one.gate].params[one.parameter]
        assert abs(one.derivative - finite_difference(circuit, one.gate, one.parameter)) < 1e-9, one
    for ranks in (2, 4):
        for here, there in zip(found[1], found[ranks], strict=True):
            assert abs(here.derivative - there.derivative) < 1e-12


def test_threads_and_single_precision() -> None:
    circuit = random_circuit(14, 60, 5)
    rows = [
        tnplan.simulate(
            circuit,
            observable="Z0 Z1 + X3",
            gradient=True,
            device="cpu",
            threads=threads,
            precision=precision,
        ).report["gradient"]
        for threads, precision in ((1, "fp64"), (2, "fp64"), (2, "fp32"))
    ]
    values = np.array([[row["derivative"] for row in each] for each in rows])
    assert np.abs(values[1] - values[0]).max() <= 1e-13
    assert np.abs(values[2] - values[0]).max() <= 1e-5
    assert np.abs(values[0]).max() > 1e-3


@needs_gpus(1)
@pytest.mark.parametrize(("precision", "rounding"), [("fp64", 1e-12), ("fp32", 1e-5)])
@pytest.mark.parametrize("n_qubits", [6, 14, 19])
def test_a_gpu_gives_what_a_cpu_gives(n_qubits: int, precision: str, rounding: float) -> None:
    """From tables and from compiled passes, and with words of many qubits."""
    circuit = random_circuit(n_qubits, 5 * n_qubits, 3)
    observable = "0.5*X0 Y1 + 0.3*Z3 - " + " ".join(f"X{qubit}" for qubit in range(n_qubits))
    wanted, found = (
        tnplan.simulate(circuit, observable=observable, gradient=True, device=device, precision=one).answer
        for device, one in (("cpu", "fp64"), ("gpu", precision))
    )
    assert wanted.gradient is not None
    assert found.gradient is not None
    assert abs(wanted.expectation - found.expectation) < rounding
    for here, there in zip(wanted.gradient, found.gradient, strict=True):
        assert abs(here.derivative - there.derivative) < rounding, here
    state = tnplan.simulate(circuit, observable=observable, gradient=True, device="gpu").simulator.array()
    np.testing.assert_allclose(state, state_vector(circuit).reshape(-1), atol=1e-12)


@needs_gpus(1)
@pytest.mark.parametrize(("precision", "rounding"), [("fp64", 1e-12), ("fp32", 1e-5)])
def test_a_gpu_takes_both_states_back_at_once(
    monkeypatch: pytest.MonkeyPatch, precision: str, rounding: float
) -> None:
    from tnplan.executor.statevector.cuda import state as module
    from tnplan.executor.statevector.cuda.state import JointState

    monkeypatch.setattr(module, "JOINT_FROM", 18)
    taken: list[Any] = []
    circuit = random_circuit(19, 80, 4)
    begin = JointState.begin

    def noted(*given: Any) -> None:
        taken.append(given)
        begin(*given)

    monkeypatch.setattr(JointState, "begin", noted)
    rows = [
        tnplan.simulate(circuit, observable=OBSERVABLE, gradient=True, device=device, precision=one).answer
        for device, one in (("cpu", "fp64"), ("gpu", precision), ("gpu", precision))
    ]
    assert len(taken) == 2
    wanted, found, again = ([one.derivative for one in row.gradient or ()] for row in rows)
    np.testing.assert_allclose(found, wanted, atol=rounding)
    assert np.abs(wanted).max() > 1e-2
    assert found == again


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=needs_gpus(1))])
def test_several_observables_share_a_sweep(device: str) -> None:
    circuit, sums = random_circuit(6, 30, 4), ["Z0 X1", OBSERVABLE, "Y5"]
    state: Any = HostState(6, "complex128")
    if device == "gpu":
        from tnplan.executor.statevector.cuda.state import CupyState

        state = CupyState(6, "complex128")
    simulator = Simulator(state, 6)
    simulator.run(prepare_program(circuit.gates), np.zeros(0, np.uint8))
    parsed = [parse(text, 6) for text in sums]
    together = adjoint_gradients(simulator, circuit.gates, parsed)
    for one, found in zip(parsed, together, strict=True):
        (alone,) = adjoint_gradients(simulator, circuit.gates, [one])
        wanted = [row.derivative for row in alone]
        np.testing.assert_allclose([row.derivative for row in found], wanted, atol=1e-14)
        assert np.abs(wanted).max() > 1e-3


@pytest.mark.parametrize(
    ("n_sums", "room", "wanted"),
    [(3, 0, 1), (3, 2.5 * 2**14, 3), (3, 1.5 * 2**14, 2), (20, math.inf, 8), (3, -9, 1)],
)
def test_observables_share_a_sweep_where_there_is_room(n_sums: int, room: float, wanted: int) -> None:
    assert observables_at_once(n_sums, room, 10, "complex128", 1) == wanted
    assert observables_at_once(n_sums, room / 2, 10, "complex64", 1) == wanted
    assert observables_at_once(n_sums, room / 4, 10, "complex128", 4) == wanted


@needs_gpus(1)
def test_repeated_passes_are_compiled_where_that_saves_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from tnplan.executor.statevector.cuda import state as module

    circuit = random_circuit(18, 80, 1)
    found = []
    for compiling_s in (1e9, 0.0):
        monkeypatch.setattr(module, "COMPILING_S", compiling_s)
        done = tnplan.simulate(circuit, observable="Z0 X5", gradient=True, device="gpu")
        found.append([one.derivative for one in done.answer.gradient or ()])
    np.testing.assert_allclose(*found, atol=1e-13)


def test_the_final_state_stays() -> None:
    circuit = random_circuit(6, 30, 2)
    done = tnplan.simulate(circuit, observable="Z0", gradient=True, amplitudes=("000000",), device="cpu")
    state = state_vector(circuit).reshape(-1)
    assert np.allclose(done.simulator.array(), state, atol=1e-12)
    assert np.allclose(done.answer.amplitudes, state[0], atol=1e-12)
    assert done.report["predicted_bytes"] >= 3 * 16 * 2**6


def test_layers_of_rotations_share_segments() -> None:
    gates = []
    for _ in range(3):
        gates += [gate("ry", (q,), (0.3 + q,)) for q in range(6)]
        gates += [gate("rz", (q,), (0.1 + q,)) for q in range(6)]
        gates += [gate("cz", (q, (q + 1) % 6)) for q in range(6)]
    segments = derivative_segments(gates)
    assert [segment.position for segment in segments] == [2 * 18 + 6, 18 + 6, 6]
    assert [len(one.parameters) for one in segments] == [12] * 3
    assert all(len(parameter.words) == 1 for one in segments for parameter in one.parameters)
    # Through Cliffords and rotations about the same word all derivatives are taken at the end.
    commuting = [gate("rx", (0,), (0.2,)), gate("cnot", (0, 1)), gate("rx", (1,), (0.4,)), gate("h", (1,))]
    (one,) = derivative_segments(commuting)
    assert len(one.parameters) == 2
    assert derivative_segments([gate("h", (0,))]) == []
