"""`tnplan pauli` from a circuit file to a result, and what it refuses with one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tnplan
from planner.errors import InputError
from planner.networks.circuits.circuit import Circuit
from planner.networks.circuits.gates import gate
from planner.networks.circuits.qsim import save_qsim
from tnplan.cli.main import run


@pytest.fixture
def circuit(tmp_path: Path) -> Path:
    """H and CNOT, then RX on both qubits."""
    gates = (gate("h", (0,)), gate("cnot", (0, 1)), gate("rx", (0,), (0.3,)), gate("rx", (1,), (0.3,)))
    save_qsim(Circuit(2, gates), tmp_path / "bell.qsim")
    return tmp_path / "bell.qsim"


def test_a_file_gives_its_value(circuit: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from math import cos

    output = tmp_path / "result.json"
    assert run(["pauli", str(circuit), "--observable", "Z0 Z1", "--json", "-o", str(output)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(output.read_text())
    assert (printed["format"], printed["version"]) == ("tnplan.pauli", 1)
    assert printed["expectation"] == pytest.approx(cos(0.6), abs=1e-15)
    assert tnplan.propagate(circuit, "ZZ").value == pytest.approx(cos(0.6), abs=1e-15)
    assert run(["pauli", str(circuit), "--observable", "ZZ", "--depolarizing", "0.1"]) == 0
    assert "error at most 0" in capsys.readouterr().out


def test_truncation_reports_its_bound(circuit: Path) -> None:
    from executor.pauli.truncation import Truncation

    done = tnplan.propagate(circuit, "Z0 Z1", Truncation(max_xy=0))
    assert done.report["dropped"]["l1"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--observable", "Z2"], "names qubit 2"), (["--observable", "ZZZ"], "has a word of 3 letters"),
        (["--observable", "Z0", "--state", "012"], "'012' is no state"),
        (["--observable", "Z0", "--max-weight", "-1"], "is -1"),
        (["--observable", "Z0", "--depolarizing", "2"], "probability is 2"),
        (["--observable", "Z0 + Z1", "--max-terms", "1"], "the observable has 2 terms"),
    ],
)  # fmt: skip
def test_bad_options_are_one_line(
    circuit: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert run(["pauli", str(circuit), *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("tnplan: error:")
    assert error.count("\n") == 1
    assert message in error


def test_a_missing_file_is_refused() -> None:
    with pytest.raises(InputError):
        tnplan.propagate("nowhere.qsim", "Z0")
