"""`tnplan pauli` from a circuit file to a result, and what it refuses with one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from mpi_case import mpirun, needs_mpi

import tnplan
from executor.pauli.propagate import Progress
from planner.errors import InputError
from planner.networks.circuits.circuit import Circuit
from planner.networks.circuits.gates import gate
from planner.networks.circuits.qsim import save_qsim
from tnplan.cli.main import run
from tnplan.cli.pauli import _say


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
    assert (printed["format"], printed["version"]) == ("tnplan.pauli", 2)
    assert printed["expectation"] == pytest.approx(cos(0.6), abs=1e-15)
    assert tnplan.propagate(circuit, "ZZ").value == pytest.approx(cos(0.6), abs=1e-15)
    assert run(["pauli", str(circuit), "--observable", "ZZ", "--depolarizing", "0.1"]) == 0
    assert "error at most 0" in capsys.readouterr().out


def test_both_pictures_threads_and_precisions_agree(
    circuit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from math import cos

    for options in (
        ["--picture", "schroedinger"], ["--threads", "2"], ["--precision", "fp32"], ["--memory", "1MB"],
    ):  # fmt: skip
        assert run(["pauli", str(circuit), "--observable", "Z0 Z1", "--json", *options]) == 0
        assert json.loads(capsys.readouterr().out)["expectation"] == pytest.approx(cos(0.6), abs=1e-6)
    assert run(["pauli", str(circuit), "--observable", "ZZ", "--picture", "schroedinger"]) == 0
    assert "no bound of its error" in capsys.readouterr().out


def test_where_the_propagation_stands_is_said(
    circuit: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("executor.pauli.propagate.SAY_EVERY_S", 0.0)
    assert run(["pauli", str(circuit), "--observable", "Z0 Z1", "--every", "1"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all(re.fullmatch(r"step \d of \d: \d terms, \S+ [KM]iB", line) for line in lines)
    monkeypatch.setattr("executor.device.launcher.launched_size", lambda: 2)
    _say(Progress(1, 2, 0, 80))
    assert capsys.readouterr().err == "step 1 of 2: 0 terms, 80 B on rank 0\n"


def test_derivatives_are_given(circuit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from math import sin

    assert run(["pauli", str(circuit), "--observable", "Z0 Z1", "--gradient", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["gradient"]
    assert [(entry["gate"], entry["rotation"]) for entry in found] == [(2, "X0"), (3, "X1")]
    assert [entry["derivative"] for entry in found] == pytest.approx([-sin(0.6)] * 2, abs=1e-14)
    assert run(["pauli", str(circuit), "--observable", "Z0 Z1", "--gradient"]) == 0
    assert "derivative at gate 2, X0, angle 0.3:" in capsys.readouterr().out


def test_the_record_is_written_and_plotted(circuit: Path, tmp_path: Path) -> None:
    for name in ("steps.json", "steps.svg"):
        assert run(["pauli", str(circuit), "--observable", "Z0", "--record", str(tmp_path / name)]) == 0
    steps = json.loads((tmp_path / "steps.json").read_text())
    assert (steps["format"], steps["terms"], steps["branched"]) == ("tnplan.pauli-record", [1, 2], [0, 1])
    assert (tmp_path / "steps.svg").read_text().count("<path") > 5


def test_a_full_memory_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gates = [gate("rx", (q,), (0.4,)) for q in range(8)]
    gates += [gate("rz", (q,), (0.4,)) for q in range(8)]
    save_qsim(Circuit(8, tuple(gates * 2)), tmp_path / "many.qsim")
    line = ["pauli", str(tmp_path / "many.qsim"), "--observable", "ZZZZZZZZ", "--memory", "40kB"]
    assert run(line) == 2
    assert "terms, and the memory holds" in capsys.readouterr().err
    assert run([*line, "--when-full", "truncate"]) == 0
    assert "times: the largest terms were kept" in capsys.readouterr().out


@needs_mpi
@pytest.mark.mpi
def test_ranks_of_mpi_write_one_result(circuit: Path, tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    code = f"import tnplan; tnplan.propagate({str(circuit)!r}, 'Z0 Z1', output={str(output)!r})"
    done = mpirun(2, "-c", code)
    assert done.returncode == 0, done.stderr
    found = json.loads(output.read_text())
    assert found["ranks"] == 2
    assert found["expectation"] == pytest.approx(0.8253356149096783, abs=1e-15)


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
        (["--observable", "Z0", "--memory", "100"], "the observable has 1, and a rotation may double them"),
        (["--observable", "Z0", "--gradient", "--threads", "2"], "takes one thread in the Heisen"),
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


def test_a_record_of_another_format_is_refused(circuit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pauli", str(circuit), "--observable", "Z0", "--record", "x.png"]) == 2
    assert "x.png: does not end in .json or .svg" in capsys.readouterr().err


def test_a_result_replaces_no_circuit(circuit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = circuit.read_text()
    for option in ("-o", "--record"):
        assert run(["pauli", str(circuit), "--observable", "Z0", option, str(circuit)]) == 2
        assert "is an input and would be replaced" in capsys.readouterr().err
    assert circuit.read_text() == before


def test_a_missing_file_is_refused() -> None:
    with pytest.raises(InputError):
        tnplan.propagate("nowhere.qsim", "Z0")
