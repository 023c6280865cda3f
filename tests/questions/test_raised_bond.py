"""`error=` of questions: bonds that are raised, which methods and when, what ends it, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.engines.unseen_circuits import unseen_circuit
from tnplan.circuits.qsim import save_qsim
from tnplan.cli.main import run
from tnplan.planner.workloads.dynamics import kicked_ising
from tnplan.questions import ask, chooser, raised_bond

pytest.importorskip("quimb")
CPU: Any = {"device": "cpu", "threads": 1}


def circuit(steps: int = 4, n_qubits: int = 12) -> tnplan.Circuit:
    return tnplan.Circuit(kicked_ising("line", n_qubits, steps, 0.7, -0.6))


@pytest.fixture
def no_quick_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every exact method took longer than it may."""
    known = chooser.chosen_with_time
    monkeypatch.setattr(raised_bond, "chosen_with_time", lambda *those: (known(*those)[0], 1e5))


def test_an_exact_method_that_is_quick_comes_first() -> None:
    answer = circuit(2, 12).expectation("Z6", error=1e-3, **CPU)
    assert answer.error_kind == "exact"
    assert "approximate" not in answer.details


@pytest.mark.usefixtures("no_quick_exact")
@pytest.mark.parametrize("wished", [1e-1, 1e-4])
def test_the_bond_is_raised_until_the_error_is_as_small_as_wished(wished: float) -> None:
    exact = circuit().expectation(["Z6", "X3 X4"], **CPU)
    assert exact.error_kind == "exact"
    answer = circuit().expectation(["Z6", "X3 X4"], error=wished, **CPU)
    assert (answer.error_kind, answer.details["wished_error"]) == ("estimate", wished)
    assert answer.method in ("mps", "peps", "mpo")
    assert max(answer.error) <= wished
    assert (abs(answer.value - exact.value) <= answer.error + 1e-12).all()
    assert answer.details["ended_by"] == "the estimate of the error is as small as wished"
    assert f"an error of {wished:g} is asked for" in repr(answer)
    assert answer.details["runs"][-1]["error"] == max(answer.error)


@pytest.mark.parametrize("method", ["mps", "peps", "mpo"])
def test_a_method_that_is_named_is_the_only_one(method: str) -> None:
    answer = circuit(4).expectation("Z6", method=method, error=1e-3, **CPU)
    assert answer.method == method
    assert {run["method"] for run in answer.details["runs"]} == {method}
    bonds = [run["max_bond"] for run in answer.details["runs"]]
    assert bonds == [8 << k for k in range(len(bonds))]
    assert answer.error <= 1e-3


def test_what_ends_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Any = {"method": "mpo", "error": 1e-9, **CPU}
    answer = circuit(5).expectation("Z6", max_bond=10, **asked)
    assert answer.details["ended_by"] == "the bond of 10"
    assert [run["max_bond"] for run in answer.details["runs"]] == [8, 10]
    assert answer.error == min(run["error"] for run in answer.details["runs"]) > 1e-9
    monkeypatch.setattr(raised_bond, "LONGEST_S", 0.0)
    answer = circuit().expectation("Z6", **asked)
    assert answer.details["ended_by"].startswith("the time: a larger bond")
    answer = circuit(1).expectation("Z6", **asked | {"method": "peps", "error": 1e-300})
    assert answer.error == 0 or answer.details["ended_by"].startswith("the memory, or a larger bond")


@pytest.mark.usefixtures("no_quick_exact")
def test_an_exact_method_follows_where_it_takes_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "LONGEST_S", 1e6)
    answer = circuit().expectation("Z6", error=1e-9, max_bond=4, **CPU)
    assert answer.error_kind == "exact"


def test_where_nothing_exact_fits_an_estimate_is_given_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*those: Any) -> Any:
        raise chooser.NoMethodFitsError("--method", "no method fits the memory", "allow more")

    exact = circuit(3).expectation("Z6", **CPU).value
    monkeypatch.setattr(raised_bond, "chosen_with_time", nothing)
    answer = circuit(3).expectation("Z6", **CPU)
    assert answer.error_kind == "estimate"
    assert abs(answer.value - exact) <= answer.error + 1e-12 < raised_bond.ERROR
    assert "no exact method fits; ended by: the estimate of the error is as small as wished" in repr(answer)
    with pytest.raises(tnplan.InputError, match="no method fits the memory"):
        circuit(3).sample(10, **CPU)
    with pytest.raises(tnplan.InputError, match="no method fits the memory"):
        circuit(3).expectation("Z6", truncation=tnplan.Truncation(max_terms=9), **CPU)


@pytest.mark.usefixtures("no_quick_exact")
def test_overlaps_and_traces_have_one_too() -> None:
    asked = circuit(3, 12)
    for found, exact in (
        (asked.overlap(circuit(2, 12), error=1e-2, **CPU), asked.overlap(circuit(2, 12), **CPU)),
        (asked.trace("Z6", "Z6", error=1e-2, **CPU), asked.trace("Z6", "Z6", **CPU)),
    ):
        assert found.error_kind == "estimate"
        assert abs(found.value - exact.value) <= max(found.error, 1e-7)


def test_what_has_no_bond_to_raise_is_refused() -> None:
    refused: list[tuple[Any, str]] = [
        (lambda: circuit().expectation("Z0", error=0), r"^error: is 0; give a number above 0"),
        (lambda: circuit().expectation("Z0", error=float("nan")), r"^error: is nan"),
        (lambda: circuit().expectation("Z0", error=1, method="statevector"), r"^error: .* no bond to raise"),
        (lambda: circuit().sample(9, error=1e-3), r"^error: is for expectation values, overlaps and traces"),
        (lambda: circuit().estimate(expectation="Z0", error=1e-3), r"^error: is given, but errors are known"),
        (lambda: circuit().expectation("Z0", error=1, method="peps", memory=500), r"^circuit: needs bonds"),
    ]  # fmt: skip
    for question, message in refused:
        with pytest.raises(tnplan.InputError, match=message):
            question()


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_qsim(unseen_circuit("qaoa", 10, 2), tmp_path / "qaoa.qsim")
    output = tmp_path / "answer.json"
    line = ["expectation", str(tmp_path / "qaoa.qsim"), "--observable", "Z0 Z1", "--device", "cpu"]
    line += ["--method", "mps", "--output", str(output)]
    assert run([*line, "--error", "1e-2"]) == 0
    assert "an error of 0.01 is asked for; ended by: the estimate of the error" in capsys.readouterr().out
    document = json.loads(output.read_text())
    assert document["ended_by"] == "the estimate of the error is as small as wished"
    assert np.max(document["error"]) <= 1e-2
    assert run([*line, "--error", "0"]) == 2
    assert "--error: is 0" in capsys.readouterr().err
