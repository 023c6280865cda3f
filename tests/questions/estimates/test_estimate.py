"""Estimates: what they name, and what they hold against the engines' own counts."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.circuits import random_circuit
from tests.support.engines.pauli import chain_edges
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.cli.main import run
from tnplan.questions.estimates import contraction_cost, pauli_pilot, state_cost
from tnplan.questions.estimates import cost as cost_module
from tnplan.questions.estimates import cost as costs_of
from tnplan.questions.estimates.pauli_pilot import PILOT_FACTOR


def kicked_chain(n_qubits: int, theta: float, layers: int) -> GateSequence:
    """RX on every qubit and ZZ on every bond of an open chain, so often."""
    diagonal = np.exp(-0.25j * np.pi * np.array([1, -1, -1, 1]))
    gates: list[Gate] = []
    for _ in range(layers):
        gates += [gate("rx", (q,), (theta,)) for q in range(n_qubits)]
        gates += [Gate("rzz", edge, np.diag(diagonal)) for edge in chain_edges(n_qubits)]
    return GateSequence(n_qubits, tuple(gates))


def row(found: tnplan.CircuitEstimate, method: str, devices: int = 1) -> tnplan.MethodEstimate:
    return next(one for one in found.rows if (one.method, one.devices) == (method, devices))


def test_every_question_has_an_estimate_and_a_choice() -> None:
    circuit = tnplan.Circuit(random_circuit(4, 40, 1))
    questions: list[dict[str, Any]] = [
        {"amplitudes": ["0000"]}, {"open_qubits": [1, 2]}, {"sample": 10}, {"expectation": ["Z0", "X1 Y2"]},
        {"probabilities": [0]}, {"reduced_density_matrix": [1, 2]}, {"trace": ("Z0", "X1")},
        {"overlap": random_circuit(4, 40, 2)},
    ]  # fmt: skip
    for question in questions:
        found = circuit.estimate(**question)
        assert found.method == "statevector"
        assert row(found, "statevector").cost is not None
        assert "auto takes statevector" in str(found)
        json.dumps(found.document, allow_nan=False)


def test_memory_is_that_of_the_state() -> None:
    found = tnplan.Circuit(GateSequence(35, ())).estimate(
        expectation="Z0", devices=[1, 2, 4, 6, 8], hardware="h200-nvlink", precision="fp64", state_fidelity=1
    )
    rows = [row(found, "statevector", count) for count in (1, 2, 4, 6, 8)]
    assert [one.cost is None for one in rows] == [True, True, False, True, False]
    assert {one.needs_devices for one in rows} == {4}
    assert rows[2].cost is not None
    assert rows[2].cost.memory_bytes == pytest.approx(16 * 2**35 / 4, rel=0.01)


def test_more_devices_and_less_precision_take_less_time() -> None:
    circuit = tnplan.Circuit(random_circuit(31, 200, 3))
    times = {
        (precision, count): row(found, "statevector", count).cost.time_s  # type: ignore[union-attr]
        for precision in ("fp64", "fp32")
        for found in [circuit.estimate(
            sample=10, devices=[1, 4], hardware="h200-nvlink", precision=precision, method="statevector"
        )]
        for count in (1, 4)
    }  # fmt: skip
    assert times["fp64", 4] < times["fp64", 1]
    assert times["fp32", 1] < times["fp64", 1]


@pytest.mark.parametrize(
    ("n_qubits", "hardware", "devices", "least", "most"),
    [
        (26, "h100-nvlink", 1, 2, 3),
        (26, "h100-nvlink", 2, 4, 40),
        (24, "h100-nvlink", 1, 2, 20),
        (20, "cpu", 1, 2, 3),
    ],
)
def test_a_gradient_takes_its_way_back(
    n_qubits: int, hardware: str, devices: int, least: float, most: float, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """In parts of the passes there: both states at once on one device, from 26 qubits on if it is a GPU."""
    layer = [f"ry({q + 1} * t) q[{q}]; rz({q + 2} * t) q[{q}];" for q in range(n_qubits)]
    layer += [f"cz q[{q}], q[{q + 1}];" for q in range(n_qubits - 1)]
    path = tmp_path / "layers.qasm"
    head = f'OPENQASM 3.0; include "stdgates.inc"; input float t; qubit[{n_qubits}] q;'
    path.write_text("\n".join([head, *(4 * layer)]))
    monkeypatch.setattr(state_cost, "process_time", lambda: 0.0)
    monkeypatch.setattr(state_cost, "START_S", 0.0)
    monkeypatch.setattr(state_cost, "GATE_S", 0.0)
    monkeypatch.setattr(costs_of, "GPU_TAKE_S", 0.0)
    circuit = tnplan.Circuit(path, {"t": 0.3})
    there, both = (
        row(
            circuit.estimate(
                expectation="Z0", gradient=gradient, method="statevector", hardware=hardware,
                precision="fp32", devices=[devices],
            ), "statevector", devices,
        ).cost
        for gradient in (False, True)
    )  # fmt: skip
    assert there is not None
    assert both is not None
    assert least < both.time_s / there.time_s - 1 < most


@pytest.mark.parametrize("method", ["statevector", "contraction", "pauli"])
def test_preparing_goes_with_the_speed_of_python(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A circuit so small that preparing it is nearly all."""
    circuit = tnplan.Circuit(random_circuit(4, 40, 1))
    monkeypatch.setattr(pauli_pilot, "process_time", lambda: 0.0)

    def time_s(slow: float) -> float:
        for one in (state_cost, contraction_cost, pauli_pilot):
            monkeypatch.setattr(one, "slowness", lambda: slow)
        cost = row(circuit.estimate(expectation="Z0", method=method, threads=1), method).cost
        assert cost is not None
        return cost.time_s

    assert 2 < time_s(4.0) / time_s(1.0) < 4.5


def test_the_speed_of_python_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least seconds of all tests of a process count, not those that were disturbed."""
    seconds = iter([4.0, 50.0, 3.0, 4.0, *[9.0] * 4, 4.0, 2.0, 7.0, 2.0])
    clock = (at for one in seconds for at in (0.0, one))
    monkeypatch.setattr(cost_module, "thread_time", lambda: next(clock))
    monkeypatch.setattr(cost_module, "least_s", inf)
    monkeypatch.setattr(cost_module, "tested_at_s", -inf)
    times = iter([0.0, 0.0, 0.1, 0.3, 0.3, 0.6, 0.6])  # the second call comes too soon for a test
    monkeypatch.setattr(cost_module, "perf_counter", lambda: next(times))
    measured = [cost_module.slowness() * cost_module.REFERENCE_S for _ in range(4)]
    assert measured == pytest.approx([3, 3, 3, 2])


def test_tiles_of_zeros_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """24 qubits, of which gates on a few leave all others 0, or on which the same gates come after all."""
    few = [gate("rx", (20 + n % 4,), (0.1 * n,)) for n in range(1, 120)]
    few += [gate("cz", (20, 23))]
    spread = [gate("h", (q,)) for q in range(24)]
    monkeypatch.setattr(state_cost, "slowness", lambda: 0.0)
    monkeypatch.setattr(state_cost, "process_time", lambda: 0.0)
    monkeypatch.setattr(state_cost, "first_use_s", lambda *_: 0.0)
    shares = {}
    for name, gates in (("few", few), ("spread", spread + few)):
        circuit = tnplan.Circuit(GateSequence(24, tuple(gates)))
        cost = row(circuit.estimate(sample=1, method="statevector", threads=1), "statevector").cost
        assert cost is not None
        shares[name] = cost.time_s
    copy_s = 2 * 16 * 2.0**24 / tnplan.load_profile("cpu").memory_bytes_per_s
    assert shares["few"] < 2.1 * copy_s  # the one reading of the state
    assert shares["spread"] > 3 * copy_s


def test_kernels_that_the_first_plan_compiles_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with empty caches the first plan takes 5 s, and others 1 ms."""
    now, seconds = [0.0], iter([5.0])
    plan = state_cost.compile_gates

    def slow_at_first(*given: Any, **named: Any) -> Any:
        now[0] += next(seconds, 1e-3)
        return plan(*given, **named)

    monkeypatch.setattr(state_cost, "compile_gates", slow_at_first)
    monkeypatch.setattr(state_cost, "process_time", lambda: now[0])
    circuit = tnplan.Circuit(random_circuit(16, 60, 5))  # a smaller one is not planned
    cost = row(circuit.estimate(expectation="Z0", method="statevector", threads=1), "statevector").cost
    assert cost is not None
    assert 1e-3 < cost.time_s < 1


@pytest.mark.parametrize("method", ["statevector", "contraction"])
def test_the_first_use_of_memory_takes_time(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As much as reading or writing all of it four times, on a CPU."""
    for one in (state_cost, contraction_cost):
        monkeypatch.setattr(one, "slowness", lambda: 1.0)
    monkeypatch.setattr(state_cost, "process_time", lambda: 0.0)
    circuit = tnplan.Circuit(random_circuit(14, 60, 4))
    question: dict[str, Any] = {"open_qubits": range(14)}
    costs = []
    for times in (0.0, 4.0):
        monkeypatch.setattr(costs_of, "FIRST_USE", times)
        found = row(circuit.estimate(method=method, threads=1, hardware="cpu", **question), method).cost
        assert found is not None
        costs.append(found)
    used_bytes = costs[1].memory_bytes if method == "contraction" else 16 * 2**14
    rate = tnplan.load_profile("cpu").memory_bytes_per_s
    assert costs[1].time_s - costs[0].time_s == pytest.approx(4 * used_bytes / rate)


def test_passes_of_small_states_on_gpus_are_read_from_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass takes several times as many copies of a small state as of a large one, which has kernels."""
    monkeypatch.setattr(state_cost, "slowness", lambda: 0.0)
    monkeypatch.setattr(state_cost, "process_time", lambda: 0.0)
    monkeypatch.setattr(costs_of, "GPU_TAKE_S", 0.0)
    rate = tnplan.load_profile("h200-nvlink").memory_bytes_per_s
    copies = {}
    for n in (24, 30):
        gates = [gate("x_1_2", (q,)) for _ in range(3) for q in range(n)]
        gates += [gate("cz", (q, q + 1)) for q in range(n - 1)]
        gates += [gate("y_1_2", (q,)) for q in range(n)]
        circuit = tnplan.Circuit(GateSequence(n, tuple(gates)))
        found = circuit.estimate(sample=1, method="statevector", hardware="h200-nvlink", precision="fp32")
        cost = row(found, "statevector").cost
        assert cost is not None
        copies[n] = cost.time_s * rate / (2 * 8 * 2.0**n)
    assert copies[24] > 3 * copies[30]


def test_a_pilot_that_reaches_the_end_knows_the_terms() -> None:
    circuit = tnplan.Circuit(kicked_chain(30, 0.4, 6))
    found = circuit.estimate(expectation="Z15", method="pauli")
    cost = row(found, "pauli").cost
    assert cost is not None
    assert cost.factor == PILOT_FACTOR
    done = circuit.expectation("Z15", method="pauli", device="cpu", threads=1)
    term_bytes = cost.memory_bytes / (2 * done.details["largest_terms"])
    assert term_bytes == pytest.approx(round(term_bytes))


def test_growth_is_extrapolated_with_its_uncertainty() -> None:
    circuit = tnplan.Circuit(kicked_chain(40, 0.6, 16))
    cost = row(circuit.estimate(expectation="Z20", method="pauli", devices=[1]), "pauli")
    assert cost.cost is None or cost.cost.factor > 2
    limited = circuit.estimate(expectation="Z20", method="pauli", truncation=tnplan.Truncation(max_terms=500))
    few = row(limited, "pauli").cost
    assert few is not None
    assert few.time_s < 60
    assert row(limited, "pauli").error_kind == "truncation"


def test_the_choice_of_large_circuits_answers() -> None:
    """80 qubits: no state vector; a shallow chain, whose light cone is small."""
    circuit = tnplan.Circuit(kicked_chain(80, 0.3, 3))
    found = circuit.estimate(expectation="Z40")
    assert found.method in ("pauli", "contraction", "mps")
    assert "not possible" in row(found, "statevector").reason
    given = circuit.expectation("Z40", device="cpu", threads=1)
    assert given.method in ("pauli", "contraction", "mps")
    other = "pauli" if given.method == "contraction" else "contraction"
    again = circuit.expectation("Z40", method=other, device="cpu", threads=1)
    assert given.value == pytest.approx(again.value, abs=1e-10)


def test_samples_of_more_qubits_than_a_state_holds_are_contracted() -> None:
    found = tnplan.Circuit(kicked_chain(40, 0.3, 1)).sample(20, seed=1, device="cpu", threads=1)
    assert found.method in ("contraction", "mps")
    assert sum(found.value.values()) == 20


def test_samples_of_a_chain_are_predicted_by_their_batches() -> None:
    circuit = tnplan.Circuit(kicked_chain(40, 0.3, 1))
    few, many = (row(circuit.estimate(sample=shots), "contraction") for shots in (10, 100_000))
    assert few.cost is not None
    assert many.cost is not None
    assert few.error_kind == "statistical"
    assert few.cost.time_s < many.cost.time_s < 10_000 * few.cost.time_s
    assert few.cells[-1].startswith("range ")


@pytest.mark.parametrize("method", ["contraction", "statevector"])
def test_threads_of_a_cpu_share_the_work_but_not_more_than_that(method: str) -> None:
    """A state of 24 qubits, and a contraction of about as many operations."""
    circuit = tnplan.Circuit(random_circuit(24, 500, 7))
    seconds = []
    for threads in (1, 8):
        question: dict[str, Any] = {"amplitudes": ["0" * 24], "method": method, "threads": threads}
        cost = circuit.estimate(**question, hardware="cpu", search_time=0.0).rows[0].cost
        assert cost is not None
        seconds.append(cost.time_s)
    assert seconds[0] > 0.3
    assert 2 < seconds[0] / seconds[1] <= 8.5


@pytest.mark.slow
def test_what_fits_nowhere_is_refused() -> None:
    random = np.random.default_rng(1)
    gates = [gate("fs", random.permutation(40)[:2].tolist(), (0.7, 0.4)) for _ in range(600)]
    gates += [gate("rx", (q,), (0.3,)) for q in range(40)]
    circuit = tnplan.Circuit(GateSequence(40, tuple(gates)))
    too_little = r"^(method: no method fits the memory|the path: has about 2\^\d+ slices, more than a float)"
    with pytest.raises(tnplan.InputError, match=too_little):
        circuit.expectation("Z0 X20", memory="1KiB", device="cpu", threads=1)


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.qsim").write_text("2\n0 h 0\n1 cz 0 1\n")
    line = "estimate c.qsim --expectation Z0 --devices 1,8,64 --hardware h200-nvlink"
    assert run(line.split()) == 0
    shown = capsys.readouterr().out
    assert shown.count("contraction ") >= 3
    assert "auto takes statevector" in shown
    assert run([*line.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == "statevector"
    assert run(["estimate", "c.qsim", "--trace", "Z0", "X1", "--max-terms", "5"]) == 0
    assert "auto takes pauli" in capsys.readouterr().out


def test_an_estimate_of_one_method_says_nothing_of_auto() -> None:
    circuit = tnplan.Circuit(random_circuit(4, 6, 0))
    for method in ("contraction", "pauli"):
        found = circuit.estimate(expectation="Z0", method=method)
        assert [choice.auto for choice in found.choices] == [None]
        assert "auto" not in str(found)
