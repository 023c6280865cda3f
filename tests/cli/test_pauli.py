"""`tnplan pauli` from a circuit file to a result, in memory that ends, and beside files that stay."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tnplan
from tests.support.mpirun import mpirun, needs_mpi
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.qsim import save_qsim
from tnplan.cli.main import run
from tnplan.common.errors import InputError
from tnplan.executor.pauli.terms.truncation import Truncation


@pytest.fixture
def circuit(tmp_path: Path) -> Path:
    """H and CNOT, then RX on both qubits."""
    gates = (gate("h", (0,)), gate("cnot", (0, 1)), gate("rx", (0,), (0.3,)), gate("rx", (1,), (0.3,)))
    save_qsim(GateSequence(2, gates), tmp_path / "bell.qsim")
    return tmp_path / "bell.qsim"


def test_a_file_gives_its_value(circuit: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from math import cos

    output = tmp_path / "result.json"
    assert run(["pauli", str(circuit), "--observable", "Z0 Z1", "--json", "-o", str(output)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(output.read_text())
    assert (printed["format"], printed["version"]) == ("tnplan.pauli", 6)
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
    assert "error at most 0\n" in capsys.readouterr().out


def test_where_the_propagation_stands_is_said(
    circuit: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tnplan.executor.pauli.propagate.PROGRESS_INTERVAL_S", 0.0)
    monkeypatch.setattr("tnplan.cli.terminal.LOG_EVERY_S", 0.0)
    assert run(["pauli", str(circuit), "--observable", "Z0 Z1", "--every", "1"]) == 0
    first, *lines = capsys.readouterr().err.splitlines()
    assert first.startswith("device: cpu")
    assert lines
    assert all(
        re.fullmatch(r"step \d of \d: \d terms, \S+ [KM]iB(, about 0 s left)?", line) for line in lines
    )


def test_derivatives_are_given(circuit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from math import sin

    assert run(["pauli", str(circuit), "--observable", "Z0 Z1", "--gradient", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["gradient"]
    assert [(entry["gate"], entry["rotation"]) for entry in found] == [(2, "X0"), (3, "X1")]
    assert [entry["derivative"] for entry in found] == pytest.approx([-sin(0.6)] * 2, abs=1e-14)
    assert run(["pauli", str(circuit), "--observable", "Z0 Z1", "--gradient"]) == 0
    assert "derivative at gate 2, X0, angle 0.3:" in capsys.readouterr().out


def entangled(tmp_path: Path) -> Path:
    """A circuit of rotations on six qubits."""
    path, lines = tmp_path / "entangled.qsim", ["6"]
    for layer in range(2):
        lines += [f"{3 * layer} rx {q} 0.{q + 3}" for q in range(6)]
        lines += [f"{3 * layer + 1} cz {q} {q + 1}" for q in range(layer % 2, 5, 2)]
        lines += [f"{3 * layer + 2} ry {q} 0.{7 - q}" for q in range(6)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_gradients_take_every_option_of_a_cpu(tmp_path: Path) -> None:
    circuit = entangled(tmp_path)

    def derivatives(**options: Any) -> list[float]:
        report = tnplan.propagate(circuit, "Z0 X3 + Y2", gradient=True, device="cpu", **options).report
        assert report["precision"] == options.get("precision", "fp64")
        return [entry["derivative"] for entry in report["gradient"]]

    expected = derivatives(threads=1)
    assert sum(abs(one) > 1e-3 for one in expected) > 5
    for options in ({"threads": 2}, {"ranks": 2, "threads": 1}, {"memory": "8MiB"}):
        assert derivatives(**options) == pytest.approx(expected, abs=1e-14)
    assert derivatives(precision="fp32") == pytest.approx(expected, abs=1e-6)
    assert derivatives(precision="fp32") != expected
    with pytest.raises(InputError, match="give more"):
        derivatives(memory="100KiB", threads=1)


@needs_mpi
@pytest.mark.slow
def test_gradients_on_ranks_of_mpirun(tmp_path: Path) -> None:
    circuit = entangled(tmp_path)
    options = ("pauli", circuit, "--observable", "Z0 X3 + Y2", "--gradient", "--device", "cpu")
    done = mpirun(4, "-m", "tnplan", *options, "-o", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    expected = tnplan.propagate(circuit, "Z0 X3 + Y2", gradient=True, device="cpu").report["gradient"]
    assert report["ranks"] == 4
    assert [one["derivative"] for one in report["gradient"]] == pytest.approx(
        [one["derivative"] for one in expected], abs=1e-14
    )


def test_rotations_that_are_cliffords_have_derivatives(tmp_path: Path) -> None:
    angles, h = [0.0, math.pi / 2, 0.3], 1e-6

    def circuit_of(angles: list[float]) -> Path:
        path = tmp_path / "turns.qsim"
        path.write_text("1\n" + "".join(f"{k} rx 0 {angle!r}\n" for k, angle in enumerate(angles)))
        return path

    found = tnplan.propagate(circuit_of(angles), "Z0", gradient=True).report["gradient"]
    assert [(entry["gate"], entry["rotation"], entry["angle"]) for entry in found] == [
        (k, "X0", angle) for k, angle in enumerate(angles)
    ]
    for k, entry in enumerate(found):
        up, down = (
            tnplan.propagate(circuit_of([*angles[:k], angles[k] + turn, *angles[k + 1 :]]), "Z0").value.real
            for turn in (h, -h)
        )
        assert entry["derivative"] == pytest.approx((up - down) / (2 * h), abs=1e-8)
        assert abs(entry["derivative"]) > 0.9


def test_a_qasm_file_is_read_again_and_again(tmp_path: Path) -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    (tmp_path / "h.qasm").write_text('OPENQASM 2.0;\ninclude "qelib1.inc";\nqreg q[2];\nh q[0];\n')
    code = "import tnplan\nfor _ in range(3): print(tnplan.propagate('h.qasm', 'X0').value)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, ["1.0"] * 3), done.stderr


def test_an_unlimited_memory_is_none(circuit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--gradient"]):
        assert run(["pauli", str(circuit), "--observable", "Z0 Z1", "--memory", "unlimited", *more]) == 0
    assert "error at most 0" in capsys.readouterr().out


@pytest.mark.filterwarnings("error")
def test_what_is_dropped_of_large_coefficients_is_finite(circuit: Path) -> None:
    limits = Truncation(branch_cut=1e250)
    dropped = tnplan.propagate(circuit, "1e200*Z0 Z1", limits).propagation.dropped
    assert dropped.l2 == dropped.l1 > 1e199


def test_the_record_is_written_and_plotted(circuit: Path, tmp_path: Path) -> None:
    for name in ("steps.json", "steps.svg"):
        assert run(["pauli", str(circuit), "--observable", "Z0", "--record", str(tmp_path / name)]) == 0
    steps = json.loads((tmp_path / "steps.json").read_text())
    assert (steps["format"], steps["terms"], steps["branched"]) == ("tnplan.pauli-record", [1, 2], [0, 1])
    assert (tmp_path / "steps.svg").read_text().count("<path") > 5


def test_a_full_memory_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gates = [gate("rx", (q,), (0.4,)) for q in range(8)]
    gates += [gate("rz", (q,), (0.4,)) for q in range(8)]
    save_qsim(GateSequence(8, tuple(gates * 2)), tmp_path / "many.qsim")
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
    done = tnplan.propagate(circuit, "Z0 Z1", Truncation(max_xy=0))
    assert done.report["dropped"]["l1"] > 0


def test_a_record_replaces_no_result(
    circuit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    output, record = tmp_path / "r.json", tmp_path / "link" / "r.json"
    assert run(["pauli", str(circuit), "--observable", "Z0", "-o", str(output), "--record", str(record)]) == 2
    assert "r.json: is also the file of the result" in capsys.readouterr().err
    assert not output.exists()


def test_a_result_replaces_no_circuit(circuit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = circuit.read_text()
    for option in ("-o", "--record"):
        assert run(["pauli", str(circuit), "--observable", "Z0", option, str(circuit)]) == 2
        assert "is an input and would be replaced" in capsys.readouterr().err
    assert circuit.read_text() == before
