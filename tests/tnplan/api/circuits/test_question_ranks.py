"""Questions on ranks of mpirun: what one process says, and refusals that all ranks share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tnplan
from tests.support.mpirun import mpirun, needs_mpi

LAYERS = ("h {q}", "rx {q} 0.{q}1", "cz {q} {r}", "ry {q} 0.7")
CIRCUIT = "8\n" + "".join(
    f"{4 * time + k} {layer.format(q=q, r=q + 1)}\n"
    for time in range(2)
    for k, layer in enumerate(LAYERS)
    for q in (range(time, 7, 2) if "cz" in layer else range(8))
)


@needs_mpi
@pytest.mark.parametrize("method", ["statevector", pytest.param("pauli", marks=pytest.mark.slow)])
def test_two_ranks_give_what_one_gives(tmp_path: Path, method: str) -> None:
    file = tmp_path / "c.qsim"
    file.write_text(CIRCUIT)
    options = ("--method", method, "--device", "cpu", "-o", tmp_path / "out.json")
    done = mpirun(
        2, "-m", "tnplan", "expectation", file, "--observable", "X0 Z7", "--observable", "Y3", *options
    )
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads((tmp_path / "out.json").read_text())
    expected = tnplan.Circuit(file).expectation(["X0 Z7", "Y3"], method=method, device="cpu").value
    assert document["ranks"] == 2
    assert document["value"] == pytest.approx(expected.tolist(), abs=1e-12)


@needs_mpi
def test_ranks_refuse_together(tmp_path: Path) -> None:
    file = tmp_path / "c.qsim"
    file.write_text(CIRCUIT)
    for options, line in (
        (("--observable", "Z9"), "--observable: names qubit 9; use qubits 0 to 7"),
        (
            ("--observable", "Z1", "--method", "contraction"),
            "'contraction' answers questions on one; start it",
        ),
    ):
        done = mpirun(2, "-m", "tnplan", "expectation", file, *options)
        assert done.returncode == 2
        assert line in done.stderr
        assert done.stderr.count("tnplan: error") == 1
