"""Compiled questions: values and derivatives of direct calls, and what is no direct call."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.circuit_families import FAMILIES, graph
from tests.support.root import ROOT
from tests.support.varied_circuits import NAMES, random_sums, random_varied_circuit, text_of
from tnplan.circuits.pauli_sum import pauli_sum
from tnplan.circuits.qasm.gate_calls import INCLUDED
from tnplan.executor.statevector import gate_list

CPU: Any = {"device": "cpu", "threads": 1}
needs_qasm = pytest.mark.skipif(find_spec("openqasm3") is None, reason="needs the extra qasm")
HEAD = 'OPENQASM 3.0;\ninclude "stdgates.inc";\ninput float a;\ninput float b;\nqubit[3] q;\n'


def circuit_of(folder: Path, body: str, head: str = HEAD) -> tnplan.Circuit:
    path = folder / "circuit.qasm"
    path.write_text(head + body)
    return tnplan.Circuit(path)


def check_random_circuit(n: int, n_gates: int, seed: int, folder: Path) -> None:
    """Against differences in extended precision, at several points of one compiled circuit."""
    varied, sums = random_varied_circuit(n, n_gates, seed), random_sums(n, 3, seed)
    path, texts = folder / "circuit.qasm", [text_of(one) for one in sums]
    path.write_text(varied.text)
    circuit = tnplan.Circuit(path)
    values = circuit.compile(expectation=texts, **CPU)
    both = circuit.compile(expectation=texts, gradient=True, **CPU)
    single = circuit.compile(expectation=texts[1], gradient=True, parameters=["c", "a", "b"], **CPU)
    assert values.is_direct
    assert both.is_direct
    assert both.method == "statevector"
    assert both.names == NAMES
    for at in (np.zeros(3), *np.random.default_rng(seed).uniform(-9, 9, (2, 3))):
        given = dict(zip(NAMES, at.tolist(), strict=True))
        expected, wanted = varied.values(sums, given).astype(float), varied.gradients(sums, given)
        np.testing.assert_allclose(values(at), expected, rtol=0, atol=1e-12)
        found, rows = both(given)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(rows, wanted, rtol=0, atol=1e-10)
        value, row = single([at[2], at[0], at[1]])
        assert value == pytest.approx(expected[1], abs=1e-12)
        np.testing.assert_allclose(row, wanted[1, [2, 0, 1]], rtol=0, atol=1e-10)


@needs_qasm
@pytest.mark.parametrize("n", [3, 5, 8])
def test_values_and_derivatives(n: int, tmp_path: Path) -> None:
    check_random_circuit(n, 56, n, tmp_path)


@pytest.mark.slow
@needs_qasm
@pytest.mark.parametrize("seed", range(30))
def test_random_circuits(seed: int, tmp_path: Path) -> None:
    check_random_circuit(3 + seed % 5, 30 + 2 * seed, seed, tmp_path)


@needs_qasm
@pytest.mark.parametrize("modifier", ["", "ctrl @ ", "inv @ "])
def test_every_standard_gate(modifier: str, tmp_path: Path) -> None:
    """Gates with angles, on all orders of three qubits, against the ordinary question."""
    lines, random = ["h q;"], np.random.default_rng(1)
    for name, kind in sorted(INCLUDED.items()):
        n = kind.n_qubits + ("ctrl" in modifier)
        # Of gates with a modifier, derivatives are known where there is one angle and one axis.
        is_turn = kind.n_params == 1 and kind.n_qubits == 1 and name != "u0"
        if n > 3 or not kind.n_params or (modifier and not is_turn):
            continue
        angles = [f"{random.normal():.3f} * a - b / 3 + {k}" for k in range(kind.n_params)]
        qubits = ", ".join(f"q[{q}]" for q in random.permutation(3)[:n])
        lines.append(f"{modifier}{name}({', '.join(angles)}) {qubits};")
    assert len(lines) > 5
    circuit, sums = circuit_of(tmp_path, "\n".join(lines)), ["X0 Y1 + 0.5*Z2", "Z0 Z1", "Y2 - I"]
    compiled = circuit.compile(expectation=sums, gradient=True, **CPU)
    assert compiled.is_direct
    for at in ({"a": 0.4, "b": 1.3}, {"a": -7.0, "b": 0.0}):
        answer = circuit.bind(at).expectation(sums, gradient=True, method="statevector", **CPU)
        values, rows = compiled(at)
        np.testing.assert_allclose(values, answer.value, rtol=0, atol=1e-13)
        assert answer.gradient is not None
        np.testing.assert_allclose(rows, np.array([*answer.gradient.values()]).T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_circuits_without_parameters(family: str) -> None:
    """Circuits of every family, in several input states, with complex coefficients too."""
    random = np.random.default_rng(sum(map(ord, family)))
    n, edges = graph("ring", 6, random)
    circuit = tnplan.Circuit(tnplan.GateSequence(n, tuple(FAMILIES[family](n, edges, 4, random))))
    sums: list[Any] = ["Z0 Z1 - 0.3*X2", pauli_sum([(3, 5, 0.5 + 2j), (1, 0, 1j)], n), "Y1 Y2"]
    for state in (None, "+-01rl"[:n], ["X0 X1", *(f"Z{q}" for q in range(2, n)), "Z0 Z1"]):
        wanted = circuit.expectation(sums, state=state, method="contraction", **CPU).value
        compiled = circuit.compile(expectation=sums, state=state, **CPU)
        assert compiled.is_direct
        np.testing.assert_allclose(compiled(), wanted, rtol=0, atol=1e-12)
    assert isinstance(circuit.compile(expectation="Z0", **CPU)(), float)


def check_with_bounds() -> None:
    """Gates with one to five targets and with selectors, near both ends of the index, back and forth."""
    random = np.random.default_rng(0)
    gates: list[Any] = [tnplan.Gate("h", (q,), np.array([[1, 1], [1, -1]]) / np.sqrt(2)) for q in range(7)]
    for q in range(1, 6):
        matrix = np.linalg.qr(random.normal(size=(2**q, 2**q)) + 1j * random.normal(size=(2**q, 2**q)))[0]
        controlled = np.eye(2 ** (q + 1), dtype=complex)
        controlled[2**q :, 2**q :] = matrix
        for qubits in (range(q), range(7 - q, 7), random.permutation(7)[:q]):
            gates.append(tnplan.Gate("u", tuple(qubits), matrix))
        gates.append(tnplan.Gate("c", (*random.permutation(7)[: q + 1],), controlled))
        phases = np.diag(np.exp(1j * random.normal(size=2**q)))
        gates.append(tnplan.Gate("d", (*random.permutation(7)[:q],), phases))
    for q in (1, 2, 3):
        for qubits in (range(q), range(7 - q, 7)):
            hermitian = random.normal(size=(2, 2**q, 2**q))
            terms = hermitian + 1j * hermitian[::-1]
            gates.append(gate_list.TrigonometricGate(tuple(qubits), (0,), np.array([[0.5], [-0.5]]), terms))
    listed = gate_list.GateList(7, 1, gates)
    words = listed.words([pauli_sum([(3, 65, 1.0)], 7), pauli_sum([(0, 64, 1.0)], 7)])
    values, rows = listed.gradients(np.ones(1), words)
    assert values.shape == (2,)
    assert rows.shape == (2, 1)


@pytest.mark.slow
@pytest.mark.timeout(300)  # compiles every kernel anew
def test_no_index_is_out_of_bounds(tmp_path: Path) -> None:
    """In a process of its own, whose kernels are compiled with checks: an IndexError, not spoilt memory."""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    text = "import tests.conftest, tests.questions.test_compiled as case; case.check_with_bounds()"
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_wide_gates_give_the_ordinary_values() -> None:
    random = np.random.default_rng(3)
    gates = [tnplan.Gate("h", (q,), np.array([[1, 1], [1, -1]]) / np.sqrt(2)) for q in range(7)]
    for q in (1, 2, 3, 4, 5):
        for _ in range(3):
            matrix = np.linalg.qr(random.normal(size=(2**q, 2**q)) + 1j * random.normal(size=(2**q,) * 2))[0]
            gates.append(tnplan.Gate("u", (*random.permutation(7)[:q],), matrix))
        phases = np.diag(np.exp(1j * random.normal(size=2**q)))
        gates.append(tnplan.Gate("d", (*random.permutation(7)[:q],), phases))
    circuit, sums = tnplan.Circuit(tnplan.GateSequence(7, tuple(gates))), ["X0 Y3 Z6 + X1", "Z5"]
    wanted = circuit.expectation(sums, method="contraction", **CPU).value
    np.testing.assert_allclose(circuit.compile(expectation=sums, **CPU)(), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_small_questions_have_the_answers_of_jobs(family: str) -> None:
    """A limit of the memory makes a job of a question."""
    random = np.random.default_rng(sum(map(ord, family)))
    n, edges = graph("line", 7, random)
    circuit = tnplan.Circuit(tnplan.GateSequence(n, tuple(FAMILIES[family](n, edges, 4, random))))
    other = tnplan.GateSequence(n, tuple(FAMILIES[family](n, edges, 2, random)))
    strings = ["".join(map(str, row)) for row in random.integers(0, 2, (5, n))]
    asked: list[tuple[str, Any, dict[str, Any]]] = [
        ("expectation", ["Z0 Y1", "X6 - 0.5*Z3"], {}), ("expectation", "Z0", {"state": "+" * n}),
        ("expectation", pauli_sum([(3, 5, 0.5 + 2j)], n), {}),
        ("amplitudes", strings, {}), ("amplitudes", strings[0], {"state": "r" * n}),
        ("amplitudes", "01..1.0"[:n], {"open_qubits": [5, 2, 3]}), ("probabilities", [4, 1, 6], {}),
        ("probabilities", None, {"state": "-" * n}), ("reduced_density_matrix", [4, 0], {}),
        ("reduced_density_matrix", [5, 1, 3], {"state": "l" * n}), ("overlap", other, {}),
        ("overlap", other, {"state": "+" * n}), ("sample", 500, {"seed": 3}),
        ("sample", 1, {"seed": 4, "state": "+" * n}),
    ]  # fmt: skip
    for name, argument, options in asked:
        direct, by_job = (
            getattr(circuit, name)(argument, method="statevector", **options, **limits, **CPU)
            for limits in ({}, {"memory": 1 << 30})
        )
        assert type(direct.value) is type(by_job.value)
        assert direct.details.keys() == by_job.details.keys()
        if name == "sample":
            assert direct.value == by_job.value
            continue
        assert np.asarray(direct.value).dtype == np.asarray(by_job.value).dtype
        np.testing.assert_allclose(direct.value, by_job.value, rtol=0, atol=1e-13)
    a = pauli_sum([(3, 5, 0.5 + 2j), (1, 0, 1j), (0, 0, 0.7)], 6)
    for state in (None, "+0-1rl"):
        small = tnplan.Circuit(tnplan.GateSequence(6, tuple(FAMILIES[family](6, edges[:5], 3, random))))
        direct, by_job = (
            small.trace(a, "X2 Z3 - 0.5*Y0 + 2", state=state, method="statevector", **limits, **CPU)
            for limits in ({}, {"memory": 1 << 30})
        )
        assert direct.value == pytest.approx(by_job.value, abs=1e-13)


@needs_qasm
def test_observables_that_do_not_fit_are_swept_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    circuit = circuit_of(tmp_path, "rx(a) q;\ncx q[0], q[1];\ncrz(b - a) q[1], q[2];\nh q;\n")
    compiled = circuit.compile(expectation=["Z0", "X1", "Z2", "Y2", "X0"], gradient=True, **CPU)
    wanted = compiled([0.3, 0.9])[1]
    monkeypatch.setattr(gate_list, "SWEEP_BYTES", 2 * 16 * 8)
    np.testing.assert_array_equal(compiled([0.3, 0.9])[1], wanted)
    assert np.abs(wanted).max() > 0.1


@needs_qasm
def test_calls_from_threads_give_the_same_values(tmp_path: Path) -> None:
    path = tmp_path / "circuit.qasm"
    path.write_text(random_varied_circuit(9, 60, 0).text)
    compiled = tnplan.Circuit(path).compile(expectation=["Z0", "X1 Y2"], gradient=True, **CPU)
    points = np.random.default_rng(0).uniform(-3, 3, (40, 3))
    alone = [compiled(at) for at in points]
    with ThreadPoolExecutor(4) as pool:
        for (values, rows), (value, row) in zip(alone, pool.map(compiled, points), strict=True):
            np.testing.assert_array_equal(value, values)
            np.testing.assert_array_equal(row, rows)


def test_parameters_of_qiskit() -> None:
    qiskit = pytest.importorskip("qiskit", reason="needs the extra qiskit")
    angles = qiskit.circuit.ParameterVector("p", 3)
    source = qiskit.QuantumCircuit(3)
    source.ry(angles[0], 0)
    source.cu(angles[0] / 2, angles[1], 0.3 - angles[2], angles[1], 0, 1)
    source.ryy(2 * angles[2] + angles[0], 1, 2)
    source.u(angles[1], 0.2, angles[2], 2)
    source.cx(2, 0)
    circuit = tnplan.Circuit(source)
    compiled = circuit.compile(expectation=["X0 Z2", "Y1"], gradient=True, **CPU)
    assert compiled.is_direct
    values = {one: 0.3 + 0.7 * k for k, one in enumerate(angles)}
    answer = circuit.bind(values).expectation(["X0 Z2", "Y1"], gradient=True, method="statevector", **CPU)
    found, rows = compiled(values)
    np.testing.assert_allclose(found, answer.value, rtol=0, atol=1e-13)
    assert answer.gradient is not None
    np.testing.assert_allclose(
        rows, np.array([answer.gradient[name] for name in compiled.names]).T, rtol=0, atol=1e-12
    )
    source.rx(abs(angles[0]), 0)
    assert not tnplan.Circuit(source).compile(expectation="Z0", **CPU).is_direct


OTHERS = {
    "no linear angle": "rx(sin(a)) q[0];\nry(a * b) q[1];\n",
    "a remainder": "rx(mod(a, 3.0)) q[0];\nry(b) q[0];\n",
    "a branch": "if (a > 0.35) rx(b) q[0];\nelse ry(2 * b) q[0];\n",
    "a comparison": "rx(b * float(a > 0.35)) q[0];\n",
}


@needs_qasm
@pytest.mark.parametrize("name", OTHERS)
def test_other_circuits_are_asked_again(name: str, tmp_path: Path) -> None:
    circuit = circuit_of(tmp_path, OTHERS[name])
    compiled = circuit.compile(expectation=["Z0", "Y0"], **CPU)
    assert (compiled.is_direct, compiled.method) == (False, "auto")
    for at in ([0.3, 0.7], [0.4, 0.7]):
        wanted = circuit.bind(a=at[0], b=at[1]).expectation(["Z0", "Y0"], **CPU).value
        np.testing.assert_array_equal(compiled(at), wanted)
    if name == "no linear angle":
        values, rows = circuit.compile(expectation=["Z0", "Y0"], gradient=True, **CPU)([0.3, 0.7])
        assert rows[0, 0] == pytest.approx(-np.sin(np.sin(0.3)) * np.cos(0.3), abs=1e-12)
        assert values.shape == (2,)


@needs_qasm
@pytest.mark.parametrize(
    "options",
    [{"method": "pauli"}, {"precision": "fp32"}, {"depolarizing": 0.1}, {"memory": 1 << 30}, {"ranks": 1}],
)
def test_other_options_are_those_of_the_question(options: dict[str, Any], tmp_path: Path) -> None:
    circuit = circuit_of(tmp_path, "rx(a) q[0];\nry(b) q[1];\n")
    compiled = circuit.compile(expectation="Z0 Z1", gradient=True, **options, **CPU)
    assert (compiled.is_direct, compiled.method) == (False, options.get("method", "auto"))
    value, row = compiled({"b": 0.7, "a": 0.3})
    answer = circuit.bind(a=0.3, b=0.7).expectation("Z0 Z1", gradient=True, **options, **CPU)
    assert value == answer.value
    assert row.tolist() == [*(answer.gradient or {}).values()]


def test_programs_and_large_states_are_asked_again() -> None:
    wide = tnplan.Circuit(tnplan.GateSequence(17, ())).compile(expectation="Z0", **CPU)
    middle = tnplan.CircuitProgram(1, 1, (tnplan.Measurement(0, 0), tnplan.Reset(0)))
    compiled = tnplan.Circuit(middle).compile(expectation="Z0", trajectories=2, **CPU)
    assert (wide.is_direct, compiled.is_direct) == (False, False)
    assert (wide(), compiled()) == (1.0, 1.0)


@needs_qasm
def test_bad_calls_are_one_line(tmp_path: Path) -> None:
    circuit = circuit_of(tmp_path, "rx(a) q[0];\nry(b) q[1];\n")
    compiled = circuit.compile(expectation="Z0", **CPU)
    for given, message in (
        ({"a": 1.0}, "parameter b: has no value; give a value for each of `names`"),
        ({"a": 1.0, "b": 2.0, "c": 3.0}, "parameter c: is not a parameter of the compiled circuit; choose"),
        ([1.0], r"parameters: are float64 of shape \(1,\); give 2 real numbers"),
        (np.ones((2, 2)), r"parameters: are float64 of shape \(2, 2\)"),
        ([1.0, 2j], "parameters: are complex128 of shape"),
        (["1", "2"], "parameters: are <U1 of shape"),
        ((), r"parameters: are float64 of shape \(0,\)"),
        (3.0, r"parameters: are float64 of shape \(\); give 2"),
        ([[1.0], 2.0], "parameters: are object of shape"),
        ([1.0, float("nan")], "parameter b: is nan; give a finite real number"),
        ({"a": float("inf"), "b": 0}, "parameter a: is inf"),
    ):
        with pytest.raises(tnplan.InputError, match=message):
            compiled(given)  # type: ignore[arg-type]


@needs_qasm
def test_bad_questions_are_one_line(tmp_path: Path) -> None:
    circuit = circuit_of(tmp_path, "rx(a) q[0];\nry(b) q[1];\n")
    for asked, message in (
        ({"expectation": "Z7"}, "observable: names qubit 7"),
        (
            {"expectation": "Z0", "parameters": ["a"]},
            "parameter b: has no value; bind a value, or name it in `parameters`",
        ),
        ({"expectation": "Z0", "parameters": ["a", "c"]}, "parameter c: is not a parameter of"),
        ({"expectation": "Z0", "parameters": "ab"}, "parameters: are 'ab'; give a list of names, each once"),
        ({"expectation": pauli_sum([(0, 1, 1j)], 3), "gradient": True}, "complex coefficients"),
    ):
        with pytest.raises(tnplan.InputError, match=message):
            circuit.compile(**asked, **CPU)
    with pytest.raises(tnplan.InputError, match="gradient: is by the parameters of calls"):
        circuit.bind(a=1, b=2).compile(expectation="Z0", gradient=True, **CPU)
    with pytest.raises(TypeError, match="shots"):
        circuit.compile(expectation="Z0", shots=3)  # type: ignore[call-arg]
