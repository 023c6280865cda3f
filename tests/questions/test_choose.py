"""The choice of `method="auto"`: it takes a small share of the time of what it chooses."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.circuits import state_vector
from tests.support.engines.statevector import random_unitary
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.program import CircuitProgram, Conditional, Measurement
from tnplan.questions import ask
from tnplan.questions.estimates import estimate
from tnplan.questions.estimates.cost import Cost

CIRCUIT = tnplan.Circuit(GateSequence(24, tuple(gate("rx", (q,), (0.3,)) for q in range(24))))
METHODS = ("statevector", "contraction", "pauli")


def predict(monkeypatch: pytest.MonkeyPatch, times: dict[str, float]) -> dict[str, float]:
    """Methods are predicted to take these times; gives those that are looked at, with seconds of search."""
    asked: dict[str, float] = {}

    def rows(method: str, *rest: Any) -> list[tnplan.MethodEstimate]:
        asked[method] = rest[3]
        time_s = times[method]
        return [tnplan.MethodEstimate(method, 1, None if time_s == inf else Cost(1, 1.0, time_s), "exact")]

    monkeypatch.setattr(estimate, "method_rows", rows)
    return asked


def looked_at(monkeypatch: pytest.MonkeyPatch, times: dict[str, float]) -> dict[str, float]:
    """What `auto` looks at where methods are predicted to take these times, and the seconds of search."""
    asked = predict(monkeypatch, times)
    CIRCUIT.expectation("Z0", device="cpu")
    return asked


@pytest.mark.parametrize("number", range(3))
def test_no_further_method_is_looked_at_where_one_answers_at_once(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = dict.fromkeys(METHODS, inf) | {METHODS[number]: estimate.ENOUGH_S / 2}
    assert tuple(looked_at(monkeypatch, times)) == METHODS[: number + 1]


def test_searches_take_a_share_of_the_best_time_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = looked_at(monkeypatch, {"statevector": 4.0, "contraction": 2.0, "pauli": 0.3})
    assert asked["statevector"] == ask.SEARCH_S
    assert asked["contraction"] == pytest.approx(ask.SEARCH_SHARE * 4.0 * 1.5)
    assert asked["pauli"] == pytest.approx(ask.SEARCH_SHARE * 2.0 * 1.5)


def test_a_search_is_short_where_nothing_else_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = looked_at(monkeypatch, {"statevector": inf, "contraction": 2.0, "pauli": inf})
    assert asked["contraction"] == ask.SEARCH_S


def test_an_estimate_without_time_to_search_still_makes_a_pilot() -> None:
    found = CIRCUIT.estimate(expectation="Z0", method="pauli", search_time=0)
    assert found.rows[0].cost is not None
    assert found.rows[0].cost.time_s < 1


@pytest.mark.parametrize(
    ("contraction_s", "auto", "said"),
    [(0.05, "contraction", "auto takes contraction: it needs"), (0.5, "pauli", "auto takes pauli")],
)
def test_an_estimate_names_the_best_method_and_that_of_auto(
    contraction_s: float, auto: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    predict(monkeypatch, {"statevector": inf, "contraction": contraction_s, "pauli": 0.01})
    found = CIRCUIT.estimate(expectation="Z0")
    assert found.method == "pauli"
    assert found.auto == auto
    assert str(found).splitlines()[-1].startswith(said)


WIDE = GateSequence(
    7, (Gate("wide", tuple(range(6)), random_unitary(6, np.random.default_rng(0))), gate("h", (6,)))
)
PROJECTED = GateSequence(2, (gate("h", (0,)), Gate("zero", (0,), np.diag([1, 0])), gate("h", (1,))))


@pytest.mark.parametrize(
    ("circuit", "problem"),
    [
        (WIDE, {"statevector": "changes 6 qubits at once", "pauli": "acts on 6 qubits"}),
        (PROJECTED, {"statevector": "is not unitary", "pauli": "is not unitary"}),
    ],
)
def test_gates_that_one_method_alone_takes(circuit: GateSequence, problem: dict[str, str]) -> None:
    asked, state = tnplan.Circuit(circuit), state_vector(circuit).ravel()
    found = asked.expectation("X6" if circuit is WIDE else "X1", device="cpu")
    assert found.method == "contraction"
    assert found.value == pytest.approx(np.vdot(state, state).real, abs=1e-12)
    assert asked.estimate(expectation="X0").method == "contraction"
    for method, text in problem.items():
        with pytest.raises(tnplan.InputError, match=rf"gate \d \(\w+\): {text}; use contraction"):
            asked.expectation("X0", method=method, device="cpu")


def test_gates_of_conditions_count_too() -> None:
    wide = Gate("wide", tuple(range(6)), random_unitary(6, np.random.default_rng(0)))
    program = CircuitProgram(6, 1, (Measurement(0, 0), Conditional((0,), 1, (wide,))))
    with pytest.raises(tnplan.InputError, match=r"gate 1 \(wide\): changes 6 qubits at once"):
        tnplan.Circuit(program).sample(3, device="cpu")


def test_a_state_of_norm_zero_has_no_samples() -> None:
    gates = (Gate("one", (0,), np.diag([0, 1])), gate("h", (1,)))
    with pytest.raises(tnplan.InputError, match="circuit: ends in a state of norm 0"):
        tnplan.Circuit(GateSequence(2, gates)).sample(5, device="cpu")
