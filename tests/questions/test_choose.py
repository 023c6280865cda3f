"""The choice of `method="auto"`: it takes a small share of the time of what it chooses."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.circuit_families import random_case
from tests.support.circuits import random_circuit, state_vector
from tests.support.engines.statevector import random_unitary
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import parse
from tnplan.circuits.program import CircuitProgram, Conditional, Measurement, circuit_program
from tnplan.jobs.job_options import JobOptions
from tnplan.planner.hardware.profile import Profile, load_profile
from tnplan.questions import chooser
from tnplan.questions.estimates import chain_cost, quick
from tnplan.questions.estimates.cost import Cost
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import CircuitQuery, ExpectationValues

GATES = GateSequence(24, tuple(gate("rx", (q,), (0.3,)) for q in range(24)))
CIRCUIT = tnplan.Circuit(GATES)
METHODS = ("statevector", "mps", "contraction", "pauli")


def looked_at(monkeypatch: pytest.MonkeyPatch, times: dict[str, float]) -> tuple[str, dict[str, float]]:
    """The method that `auto` takes where methods are predicted to take these times, and the seconds that each
    that is looked at may take."""
    allowed: dict[str, float] = {}

    def cost(method: str, *rest: Any) -> Cost | None:
        allowed[method] = rest[-1].limit_s
        return None if times.get(method, inf) == inf else Cost(1, 1.0, times[method])

    monkeypatch.setattr(quick, "quick_cost", cost)
    chooser.choices.clear()
    query = CircuitQuery(circuit_program(GATES), GATES, ExpectationValues((parse("Z0", 24),), True))
    try:
        return chooser.chosen_method(query, QuestionOptions.of(device="cpu")), allowed
    finally:
        chooser.choices.clear()


@pytest.mark.parametrize("method", METHODS)
def test_the_least_time_is_taken(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    times = dict.fromkeys(METHODS, 5.0) | {method: 4.0}
    assert looked_at(monkeypatch, times)[0] == method


def test_no_further_method_is_built_where_one_answers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chooser, "thread_time", iter(np.arange(0, 1, 0.012).tolist()).__next__)
    assert list(looked_at(monkeypatch, {"statevector": 1e-4})[1]) == ["statevector"]


def test_looks_take_a_share_of_the_best_time_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chooser, "thread_time", lambda: 0.0)
    allowed = looked_at(monkeypatch, {"statevector": 4.0, "contraction": 2.0, "pauli": 0.3})[1]
    assert allowed["statevector"] == chooser.LONGEST_PREDICTION_S
    assert allowed["contraction"] == pytest.approx(chooser.CHOOSER_SHARE * 4.0 + chooser.CHOOSER_S)
    assert allowed["pauli"] == pytest.approx((chooser.CHOOSER_SHARE * 2.0 + chooser.CHOOSER_S) / 2)


def test_another_method_answers_where_a_sum_outgrows_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many terms a sum of Pauli words will have is only estimated. The next call need not try it."""
    tried: list[str] = []

    def cost(method: str, *rest: Any) -> Cost:
        tried.append(method)
        return Cost(1, 1.0, {"pauli": 1.0, "contraction": 2.0}.get(method, 3.0))

    monkeypatch.setattr(quick, "quick_cost", cost)
    monkeypatch.setattr(chooser, "choices", OrderedDict())
    gates = random_circuit(16, 500, 3)
    circuit = tnplan.Circuit(gates)
    expected = circuit.expectation("Z3", method="statevector", device="cpu").value
    for _ in range(2):
        answer = circuit.expectation("Z3", device="cpu", memory="20MB", threads=1)
        assert answer.method == "contraction"
        assert answer.value == pytest.approx(expected, abs=1e-9)
    assert tried.count("pauli") == 1
    with pytest.raises(tnplan.InputError, match="the memory holds"):
        circuit.expectation("Z3", method="pauli", device="cpu", memory="20MB", threads=1)


def test_a_choice_is_kept_for_other_angles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same gates with other angles are not looked at again; other qubits, gates and questions are."""
    calls: list[str] = []
    original = quick.quick_cost

    def cost(method: str, *rest: Any) -> Cost | None:
        calls.append(method)
        return original(method, *rest)

    monkeypatch.setattr(quick, "quick_cost", cost)
    chooser.choices.clear()

    def ask(angle: float, word: str, partner: int = 1) -> bool:
        calls.clear()
        gates = [gate("t", (0,)), *(gate("rx", (q,), [angle]) for q in range(22)), gate("cz", (0, partner))]
        tnplan.Circuit(GateSequence(22, tuple(gates))).expectation(word, device="cpu")
        return bool(calls)

    assert ask(0.3, "Z0")
    assert not ask(0.4, "Z0")
    assert ask(0.4, "Z0 Z1")
    assert ask(0.4, "Z0", partner=2)
    assert ask(np.pi / 2, "Z0")  # a quarter turn may be a Clifford gate


def test_an_estimate_without_time_to_search_still_makes_a_pilot() -> None:
    found = CIRCUIT.estimate(expectation="Z0", method="pauli", search_time=0)
    assert found.rows[0].cost is not None
    assert found.rows[0].cost.time_s < 1


WIDE = GateSequence(
    7, (Gate("wide", tuple(range(6)), random_unitary(6, np.random.default_rng(0))), gate("h", (6,)))
)
PROJECTED = GateSequence(2, (gate("h", (0,)), Gate("zero", (0,), np.diag([1, 0])), gate("h", (1,))))


@pytest.mark.parametrize(
    ("circuit", "problem"),
    [
        (WIDE, {"statevector": "changes 6 qubits at once", "pauli": "acts on 6 qubits"}),
        (PROJECTED, dict.fromkeys(("statevector", "pauli", "mps"), "is not unitary")),
    ],
)
def test_gates_that_some_methods_do_not_take(circuit: GateSequence, problem: dict[str, str]) -> None:
    query, state = tnplan.Circuit(circuit), state_vector(circuit).ravel()
    found = query.expectation("X6" if circuit is WIDE else "X1", device="cpu")
    assert found.method in {"contraction", "mps"} - problem.keys()
    assert found.value == pytest.approx(np.vdot(state, state).real, abs=1e-12)
    assert query.estimate(expectation="X0").method in {"contraction", "mps"} - problem.keys()
    for method, text in problem.items():
        with pytest.raises(tnplan.InputError, match=rf"gate \d \(\w+\): {text}; use contraction"):
            query.expectation("X0", method=method, device="cpu")


def test_gates_of_conditions_count_too() -> None:
    wide = Gate("wide", tuple(range(6)), random_unitary(6, np.random.default_rng(0)))
    program = CircuitProgram(6, 1, (Measurement(0, 0), Conditional((0,), 1, (wide,))))
    with pytest.raises(tnplan.InputError, match=r"changes 6 qubits at once; use contraction"):
        tnplan.Circuit(program).sample(3, method="statevector", device="cpu")
    assert tnplan.Circuit(program).sample(3, device="cpu").method == "contraction"


def test_a_state_of_norm_zero_has_no_samples() -> None:
    gates = (Gate("one", (0,), np.diag([0, 1])), gate("h", (1,)))
    with pytest.raises(tnplan.InputError, match="circuit: ends in a state of norm 0"):
        tnplan.Circuit(GateSequence(2, gates)).sample(5, device="cpu")


def test_a_state_too_large_for_the_gpu_is_answered_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU with 256 KiB free, and a host with enough, for a state of 16 qubits whose bonds are large."""
    gpu = replace(load_profile("h200-nvlink"), name="this machine", memory_bytes=1 << 18, reserved_bytes=0)
    host = replace(load_profile("cpu"), name="this machine")

    def this_machine(options: JobOptions, measure: bool = False) -> Profile:
        return host if options.device == "cpu" else gpu

    for module in ("circuit", "chooser", "estimates.state_cost"):
        monkeypatch.setattr(f"tnplan.questions.{module}.this_machine", this_machine)
    chooser.choices.clear()
    circuit = tnplan.Circuit(random_circuit(16, 200, 1))
    estimate = circuit.estimate(expectation="Z0", method="statevector", devices=[1, 2])
    alone, two = estimate.rows
    assert alone.cost is not None
    assert alone.remark == "on the host, whose memory suffices"
    assert two.error_kind == "rounding"  # each GPU holds a part in few bits
    exact = circuit.estimate(expectation="Z0", method="statevector", devices=[2], state_fidelity=1)
    assert exact.rows[0].cost is None
    assert "on the host" in str(estimate)
    assert estimate.method == "statevector"
    answer = circuit.expectation("Z0", method="statevector")
    assert answer.details["device"] == "cpu"
    state = state_vector(random_circuit(16, 200, 1))
    weights = np.abs(state.reshape(2, -1)) ** 2
    assert abs(answer.value - (weights[0].sum() - weights[1].sum())) < 1e-12
    # A device that is named is not left.
    named: dict[str, Any] = {"expectation": "Z0", "method": "statevector", "device": "gpu"}
    assert circuit.estimate(**named, state_fidelity=1).rows[0].cost is None
    assert circuit.estimate(**named).rows[0].error_kind == "rounding"


@pytest.mark.parametrize(("layers", "device"), [(3, "cpu"), (2000, "auto")])
def test_small_states_stay_on_the_host(layers: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job on a GPU takes longer before its first gate than the host's cores for few gates."""
    gates = GateSequence(16, tuple(gate("rx", (q % 16,), (0.3,)) for q in range(16 * layers)))
    query = CircuitQuery(circuit_program(gates), gates, ExpectationValues((parse("Z0", 16),), True))
    monkeypatch.setattr(chooser, "this_machine", lambda _: load_profile("h200-nvlink"))
    assert chooser.device_of(query, "statevector", QuestionOptions.of()) == device
    assert chooser.device_of(query, "statevector", QuestionOptions.of(device="gpu")) == "gpu"


def test_a_poor_greedy_path_brings_no_long_pilot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The greedy path is predicted to take hours, and a searched one less than a second."""
    pilots: list[float] = []
    monkeypatch.setattr(chain_cost, "pilot_s", lambda *arguments: pilots.append(arguments[-1]))
    case = random_case(9336, most_qubits=200, most_depth=40)
    answer = tnplan.Circuit(case.circuit).amplitudes(case.argument, device="cpu", threads=1)
    assert answer.method == "contraction"
    assert max(pilots, default=0.0) < 2.0
