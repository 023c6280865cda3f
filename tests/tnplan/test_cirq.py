"""The simulator of Cirq against Cirq's own: samples, amplitudes and expectation values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

cirq = pytest.importorskip("cirq")

import sympy  # noqa: E402

from tnplan.cirq import Simulator  # noqa: E402
from tnplan.common.errors import InputError  # noqa: E402

CPU: Any = {"device": "cpu", "threads": 1}
REFERENCE = cirq.Simulator(dtype=np.complex128)


def ansatz(seed: int) -> Any:
    """A random circuit on four qubits with names, and an angle."""
    circuit = cirq.testing.random_circuit(4, 6, 0.9, random_state=seed)
    names = {qubit: cirq.NamedQubit(f"q{k}") for k, qubit in enumerate(cirq.NamedQubit.range(4, prefix=""))}
    circuit = circuit.transform_qubits(lambda qubit: names.get(qubit, qubit))
    return circuit + cirq.rx(sympy.Symbol("t")).on_each(*names.values())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("method", ["statevector", "contraction"])
def test_amplitudes_equal_those_of_cirq(seed: int, method: str) -> None:
    circuit, sweep = ansatz(seed), cirq.Linspace("t", 0, 1, 3)
    order = [cirq.NamedQubit("idle"), *sorted(circuit.all_qubits(), reverse=True)]
    ours = Simulator(method=method, **CPU)
    for given in ({}, {"qubit_order": order}):
        found = ours.compute_amplitudes_sweep(circuit, range(16), sweep, **given)
        wanted = REFERENCE.compute_amplitudes_sweep(circuit, range(16), sweep, **given)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)  # Cirq's gates are in single precision
    assert ours.compute_amplitudes(circuit, [], {"t": 0}) == []
    found = ours.compute_amplitudes(circuit, [3, 5], {"t": 0.3})
    np.testing.assert_allclose(found, REFERENCE.compute_amplitudes(circuit, [3, 5], {"t": 0.3}), atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("method", ["statevector", "pauli", "contraction"])
def test_expectation_values_equal_those_of_cirq(seed: int, method: str) -> None:
    circuit, sweep = ansatz(seed), cirq.Linspace("t", 0, 1, 2)
    a, b, c, d = sorted(circuit.all_qubits())
    sums = [cirq.X(a) * cirq.Y(c) - 0.5 * cirq.Z(d) + 2, -cirq.Z(b) * cirq.Z(d), cirq.Y(a)]
    ours = Simulator(method=method, **CPU)
    order = [d, cirq.NamedQubit("idle"), b, a, c]
    for given in ({}, {"qubit_order": order}, {"qubit_order": order, "initial_state": 5}):
        found = ours.simulate_expectation_values_sweep(circuit, sums, sweep, **given)
        wanted = REFERENCE.simulate_expectation_values_sweep(circuit, sums, sweep, **given)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
    (found,) = ours.simulate_expectation_values(circuit, sums[0], {"t": 0.3})
    (wanted,) = REFERENCE.simulate_expectation_values(circuit, sums[0], {"t": 0.3})
    assert found == pytest.approx(wanted, abs=1e-6)


def test_samples_have_the_keys_and_shapes_of_cirq() -> None:
    a, b, c = cirq.LineQubit.range(3)
    circuit = cirq.Circuit(
        cirq.X(b), cirq.measure(b, c, key="pair"), cirq.measure(a, key="again"), cirq.X(a),
        cirq.measure(a, key="again"), cirq.H(c), cirq.measure(c, key="coin"),
    )  # fmt: skip
    found = Simulator(seed=1, **CPU).run(circuit, repetitions=400)
    wanted = REFERENCE.run(circuit, repetitions=4)
    assert found.repetitions == 400
    for key, record in wanted.records.items():
        assert found.records[key].shape == (400, *record.shape[1:])
    assert found.records["pair"].tolist() == [[[1, 0]]] * 400
    assert found.records["again"].tolist() == [[[0], [1]]] * 400
    coin = found.records["coin"][:, 0, 0]
    assert 140 < coin.sum() < 260
    assert 100 < np.count_nonzero(coin[1:] != coin[:-1]) < 300  # outcomes are in random order


def test_subcircuits_keep_their_keys() -> None:
    qubit = cirq.LineQubit(0)
    part = cirq.FrozenCircuit(cirq.X(qubit), cirq.measure(qubit, key="m"))
    for has_ids in (False, True):
        repeated = cirq.CircuitOperation(part, use_repetition_ids=has_ids).repeat(3)
        circuit = cirq.Circuit(repeated)
        found, wanted = Simulator(**CPU).run(circuit), REFERENCE.run(circuit)
        assert {key: one.tolist() for key, one in found.records.items()} == {
            key: one.tolist() for key, one in wanted.records.items()
        }


def test_records_are_those_of_cirq() -> None:
    a, b = cirq.LineQubit.range(2)
    circuit = cirq.Circuit(
        cirq.X(a), cirq.measure(a, b, key="m", invert_mask=(True, True)), cirq.H(a), cirq.CX(a, b),
        cirq.measure_single_paulistring(cirq.X(a) * cirq.X(b), key="word"),
        cirq.X(b).with_classical_controls("m"),
        cirq.measure_single_paulistring(cirq.Z(a) * cirq.Z(b), key="zz"),
        cirq.measure(a, key="last"),
    )  # fmt: skip
    found, wanted = (one.run(circuit, repetitions=20) for one in (Simulator(**CPU), REFERENCE))
    assert found.records.keys() == wanted.records.keys()
    for key in ("m", "word", "zz"):  # these have one outcome
        np.testing.assert_array_equal(found.records[key], wanted.records[key])
    assert found.records["last"].shape == (20, 1, 1)


def test_samples_of_a_sweep_follow_the_angle() -> None:
    qubit = cirq.LineQubit(0)
    circuit = cirq.Circuit(cirq.rx(sympy.Symbol("t"))(qubit), cirq.measure(qubit, key="m"))
    found = Simulator(seed=2, **CPU).run_sweep(circuit, cirq.Points("t", [0, np.pi / 2, np.pi]), 1000)
    means = [one.measurements["m"].mean() for one in found]
    np.testing.assert_allclose(means, [0, 0.5, 1], atol=0.08)
    assert means[0] == 0
    assert means[2] == 1
    again = Simulator(seed=2, **CPU).run(circuit, {"t": np.pi / 2}, 1000)
    assert again == found[1]


def test_what_cannot_be_simulated_is_refused_in_one_line() -> None:
    ours, (a, b) = Simulator(**CPU), cirq.LineQubit.range(2)
    value = ours.simulate_expectation_values
    circuit = cirq.Circuit(cirq.H(a), cirq.CX(a, b))
    measured = circuit + cirq.measure(a, b, key="m")
    once = cirq.FrozenCircuit(cirq.H(a), cirq.measure(a, key="m"))
    until = cirq.KeyCondition(cirq.MeasurementKey("m"))
    repeated = cirq.CircuitOperation(once, use_repetition_ids=False, repeat_until=until)
    bad = [
        (lambda: ours.compute_amplitudes(circuit, [4]), "is 4; give an integer from 0 to 3"),
        (lambda: value(measured, cirq.Z(a)), "ends in measurements"),
        (lambda: value(circuit, cirq.Z(a), initial_state=np.ones(4)), "initial_state"),
        (lambda: value(circuit, cirq.Z(cirq.LineQubit(7))), "list all its qubits"),
        (lambda: ours.run(cirq.Circuit(cirq.measure(a, confusion_map={(0,): np.eye(2)}))), "confusion_map"),
        (lambda: ours.run(cirq.Circuit(repeated)), "without a number of repetitions"),
        (lambda: ours.compute_amplitudes(cirq.Circuit(cirq.rx(sympy.Symbol("t"))(a)), [0]), "has no value"),
    ]  # fmt: skip
    for call, message in bad:
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="no measurements"):
        ours.run(circuit)
    with pytest.raises(TypeError, match="noise"):
        Simulator(noise=1)
    permitted = value(measured, cirq.X(a) * cirq.X(b), permit_terminal_measurements=True)
    assert permitted == [pytest.approx(1)]
