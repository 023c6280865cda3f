"""The primitives against Qiskit's own: PUBs, sweeps, arrays of observables, shots and precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

qiskit = pytest.importorskip("qiskit")

from qiskit import ClassicalRegister, QuantumCircuit, QuantumRegister  # noqa: E402
from qiskit.circuit import Parameter, ParameterVector  # noqa: E402
from qiskit.primitives import StatevectorEstimator, StatevectorSampler  # noqa: E402
from qiskit.quantum_info import Pauli, SparsePauliOp  # noqa: E402

from tnplan.common.errors import InputError  # noqa: E402
from tnplan.qiskit import Estimator, Sampler  # noqa: E402

CPU: Any = {"device": "cpu", "threads": 1}


def ansatz() -> QuantumCircuit:
    """Three qubits and three parameters."""
    angles, phase = ParameterVector("t", 2), Parameter("phase")
    circuit = QuantumCircuit(3)
    circuit.h(0)
    circuit.cx(0, 1)
    circuit.ry(angles[0], 0)
    circuit.rz(phase, 1)
    circuit.rxx(angles[1], 1, 2)
    circuit.h(2)
    return circuit


OBSERVABLES = [[SparsePauliOp(["XXI", "IYZ"], [0.5, -0.5])], [Pauli("ZIX")], ["IZZ"]]


def test_estimates_equal_those_of_qiskit() -> None:
    sweep = np.random.default_rng(1).uniform(-3, 3, (5, 3))
    measured = QuantumCircuit(2)
    measured.ry(0.4, 0)
    measured.cx(0, 1)
    pubs = [(ansatz(), OBSERVABLES, sweep), (measured, ["ZZ", "XX", "IZ"]), (measured, "YX"),
            (ansatz(), "ZZZ", sweep[0])]  # fmt: skip
    expected = StatevectorEstimator().run(pubs).result()
    for method in ("statevector", "pauli", "contraction"):
        found = Estimator(method=method, **CPU).run(pubs).result()
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.data.evs.shape == theirs.data.evs.shape
            np.testing.assert_allclose(ours.data.evs, theirs.data.evs, rtol=0, atol=1e-10)
            assert np.all(ours.data.stds == 0)


def test_samples_follow_those_of_qiskit() -> None:
    from scipy.stats import chi2_contingency

    qubits, alpha, beta = QuantumRegister(3), ClassicalRegister(2, "alpha"), ClassicalRegister(1, "beta")
    circuit = QuantumCircuit(qubits, alpha, beta)
    circuit.compose(ansatz(), qubits, inplace=True)
    circuit.measure([0, 2], alpha)
    circuit.measure([1], beta)
    sweep = np.random.default_rng(2).uniform(-3, 3, (2, 3))
    pubs = [(circuit, sweep), (circuit, sweep[0], 500)]
    found = Sampler(seed=3, **CPU).run(pubs, shots=4000).result()
    expected = StatevectorSampler(seed=3).run(pubs, shots=4000).result()
    for ours, theirs in zip(found, expected, strict=True):
        for name in ("alpha", "beta"):
            mine, its = getattr(ours.data, name), getattr(theirs.data, name)
            assert (mine.shape, mine.num_bits, mine.num_shots) == (its.shape, its.num_bits, its.num_shots)
        for index in np.ndindex(ours.data.alpha.shape):
            first, second = (one.data.alpha.get_counts(index) for one in (ours, theirs))
            keys = sorted({*first, *second})
            table = [[first.get(key, 0), second.get(key, 0)] for key in keys]
            assert chi2_contingency(np.array(table)).pvalue > 1e-3
    both = found[1].data
    joined = both.alpha.get_bitstrings(), both.beta.get_bitstrings()
    assert len(set(zip(*joined, strict=True))) > 4, "registers of a shot belong together"


def test_circuits_that_branch() -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    circuit = QuantumCircuit(2, 2)
    circuit.h(0)
    circuit.measure(0, 0)
    with circuit.if_test((circuit.clbits[0], 1)):
        circuit.x(1)
    circuit.measure(1, 1)
    counts = Sampler(seed=1, **CPU).run([circuit], shots=50).result()[0].data.c.get_counts()
    assert set(counts) == {"00", "11"}
    data = Estimator(seed=1, **CPU).run([(circuit, ["ZI", "IZ"])], precision=0.1).result()[0].data
    assert data.evs[0] == pytest.approx(data.evs[1])
    assert 0 < data.stds[0] < 0.2


def test_what_cannot_be_meant_is_said_at_once() -> None:
    for primitive in (Sampler, Estimator):
        with pytest.raises(TypeError, match=r"\(\) got an unexpected .* 'methd'; did you mean 'method'\?"):
            primitive(methd="auto")  # type: ignore[call-arg]
        with pytest.raises(InputError, match="device: 'cuda' is unknown"):
            primitive(device="cuda")
    with pytest.warns(UserWarning, match="circuit 1 has no classical registers, so that its result is empty"):
        Sampler().run([QuantumCircuit(1, 1), QuantumCircuit(1)], shots=2).result()


def test_a_register_that_nothing_measures_is_zero() -> None:
    circuit = QuantumCircuit(2, 1)
    circuit.x([0, 1])
    assert Sampler(**CPU).run([circuit], shots=5).result()[0].data.c.get_counts() == {"0": 5}
