"""The backend of Qiskit: circuits are transpiled for it and run, and its results are read by Qiskit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

qiskit = pytest.importorskip("qiskit")

from qiskit import ClassicalRegister, QuantumCircuit, QuantumRegister, transpile  # noqa: E402
from qiskit.circuit import Clbit, Parameter, Qubit  # noqa: E402
from qiskit.circuit.random import random_circuit  # noqa: E402
from qiskit.primitives import BackendEstimatorV2, BackendSamplerV2  # noqa: E402
from qiskit.providers import JobStatus  # noqa: E402
from qiskit.quantum_info import Operator, Statevector  # noqa: E402
from qiskit.transpiler import generate_preset_pass_manager  # noqa: E402

from tnplan.common.errors import InputError  # noqa: E402
from tnplan.qiskit import Backend  # noqa: E402

CPU: Any = {"device": "cpu", "threads": 1}
SHOTS = 4000


def distance(counts: dict[str, int], wanted: dict[str, float]) -> float:
    """Pearson's chi^2 over its number of outcomes, which is about 1; outcomes are bits without spaces."""
    assert set(counts) <= {key for key, value in wanted.items() if value > 1e-12}
    shots = sum(counts.values())
    likely = {key: shots * value for key, value in wanted.items() if shots * value > 5}
    return sum((counts.get(key, 0) - mean) ** 2 / mean for key, mean in likely.items()) / len(likely)


@pytest.mark.parametrize("level", range(4))
def test_a_transpiled_circuit_is_the_same_operator(level: int) -> None:
    backend = Backend(**CPU)
    for seed in range(5):
        circuit = random_circuit(4, 6, max_operands=4, seed=seed)
        for made in (
            transpile(circuit, backend, optimization_level=level, seed_transpiler=seed),
            generate_preset_pass_manager(level, backend=backend, seed_transpiler=seed).run(circuit),
        ):
            assert made.num_qubits == 4
            assert {item.operation.name for item in made.data} <= set(backend.operation_names)
            assert Operator.from_circuit(made).equiv(circuit)


@pytest.mark.parametrize("seed", range(3))
def test_counts_follow_the_state(seed: int) -> None:
    circuit = random_circuit(4, 5, max_operands=3, seed=seed)
    wanted = Statevector(circuit).probabilities_dict()
    circuit.measure_all()
    backend = Backend(seed=seed, **CPU)
    counts = backend.run(transpile(circuit, backend), shots=SHOTS).result().get_counts()
    assert sum(counts.values()) == SHOTS
    assert distance(counts, wanted) < 4


def test_registers_and_measured_bits() -> None:
    qubits, first, second = QuantumRegister(2), ClassicalRegister(1, "a"), ClassicalRegister(2, "b")
    circuit = QuantumCircuit(qubits, first, second)
    circuit.x(0)
    circuit.measure(0, 0)
    circuit.x(1)
    circuit.measure(1, 2)
    backend = Backend(**CPU)
    assert backend.run(circuit).result().get_counts() == {"10 1": 1024}
    loose = QuantumCircuit([Qubit(), Qubit()], [Clbit(), Clbit()])
    loose.x(1)
    loose.measure([0, 1], [0, 1])
    assert backend.run(loose, shots=3).result().get_counts() == {"10": 3}


def test_control_flow_is_transpiled_and_run() -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    qubits, bit, rest = QuantumRegister(3), ClassicalRegister(1, "a"), ClassicalRegister(2, "b")
    circuit = QuantumCircuit(qubits, bit, rest)
    circuit.x(0)
    circuit.measure(0, bit)
    with circuit.if_test((bit, 1)):
        circuit.x(1)
    with circuit.for_loop(range(3)):
        circuit.x(2)
    circuit.measure([1, 2], rest)
    backend = Backend(**CPU)
    made = transpile(circuit, backend)
    assert backend.run(made, shots=7).result().get_counts() == {"11 1": 7}


def test_jobs_have_ended_and_results_say_whose_they_are() -> None:
    circuits = []
    for name in ("first", "second"):
        circuit = QuantumCircuit(2, name=name, metadata={"label": name})
        circuit.h(0)
        circuit.cx(0, 1)
        circuit.measure_all()
        circuits.append(circuit)
    backend = Backend(shots=50, seed=1, **CPU)
    job = backend.run(circuits, memory=True)
    assert job.status() is JobStatus.DONE
    assert job.backend() is backend
    result = job.result()
    assert result.success
    assert result.job_id == job.job_id()
    assert [one.header["metadata"] for one in result.results] == [{"label": "first"}, {"label": "second"}]
    counts = result.get_counts("second")
    memory = result.get_memory("second")
    assert {key: memory.count(key) for key in counts} == counts
    assert set(counts) == {"00", "11"}
    assert len(memory) == 50
    assert memory != sorted(memory)
    again = backend.run(circuits[1], memory=True, seed_simulator=1).result()
    assert again.get_memory() == memory
    assert backend.run(circuits[1], memory=True, seed_simulator=2).result().get_memory() != memory
    backend.set_options(shots=9)
    assert sum(backend.run(circuits[0]).result().get_counts().values()) == 9


def test_what_takes_a_backend_takes_this_one() -> None:
    backend = Backend(seed=3, **CPU)
    circuit = QuantumCircuit(2)
    circuit.h(0)
    circuit.cx(0, 1)
    values = BackendEstimatorV2(backend=backend).run([(circuit, ["ZZ", "XX", "ZI"])]).result()[0].data.evs
    np.testing.assert_allclose(values, [1, 1, 0], atol=0.1)
    circuit.measure_all()
    counts = BackendSamplerV2(backend=backend).run([circuit], shots=100).result()[0].data.meas.get_counts()
    assert set(counts) == {"00", "11"}


def test_noise_is_an_option_of_the_backend() -> None:
    circuit = QuantumCircuit(1)
    circuit.x(0)
    circuit.measure_all()
    counts = Backend(depolarizing=0.3, seed=1, **CPU).run(circuit, shots=SHOTS).result().get_counts()
    assert counts["0"] / SHOTS == pytest.approx(0.2, abs=0.04)  # X and Y of the three letters flip


def free() -> QuantumCircuit:
    circuit = QuantumCircuit(1)
    circuit.rx(Parameter("t"), 0)
    circuit.measure_all()
    return circuit


def measured() -> QuantumCircuit:
    circuit = QuantumCircuit(1)
    circuit.measure_all()
    return circuit


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "no measurements": (lambda: Backend().run(QuantumCircuit(1)), "has no measurements"),
    "the second of a list": (lambda: Backend().run([measured(), QuantumCircuit(1)]), "has no measurements"),
    "a free parameter": (lambda: Backend().run(free()), "parameter t: has no value"),
    "an unknown option": (lambda: Backend().run(measured(), x=1), "x: is not an option of a run"),
    "shots": (lambda: Backend().run(measured(), shots=0), "give an integer from 1"),
    "another object": (lambda: Backend().run("circuit"), "takes no str; give a QuantumCircuit"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_run_is_refused_in_one_line(name: str) -> None:
    call, message = BAD[name]
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_an_unknown_option_of_the_backend_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="noise"):
        Backend(noise=1)
