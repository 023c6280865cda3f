"""The documents: examples in Python run as they are printed, and versions of files are those written."""

from __future__ import annotations

import re
import sys
from math import cos
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.engines.sbd import every_string, random_integrals
from tnplan import diagonalize
from tnplan.executor.contraction.run import result
from tnplan.executor.contraction.run import run_report as record
from tnplan.executor.sbd.basis.integrals import dense_two
from tnplan.planner.networks import path_file
from tnplan.planner.schedule import schedule

DOCS = Path(__file__).resolve().parent.parent / "docs"
QASM = 'OPENQASM 2.0;\ninclude "qelib1.inc";\nqreg q[2];\ncreg c[2];\nh q[0];\ncx q[0],q[1];\n'


def run_example(page: str, number: int, **names: Any) -> dict[str, Any]:
    """What a block of a page leaves behind; its last line is shown to the reader, and asked for."""
    block = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)[number]
    exec(block, names)
    return names


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_formats_have_the_versions_that_are_written() -> None:
    stated = re.findall(r"\(`(tnplan\.\w+)`, version (\d+)\)", (DOCS / "formats.md").read_text())
    written = {module.FORMAT: module.VERSION for module in (path_file, schedule, record, result)}
    assert {name: int(version) for name, version in stated} == written


def test_an_expectation_value() -> None:
    Path("circuit.qsim").write_text("63\n0 rx 62 0.3\n1 h 0\n2 cz 61 62\n")
    assert run_example("pauli.md", 0)["done"].value == pytest.approx(cos(0.3))


def test_a_gradient() -> None:
    found = run_example("pauli.md", 1)["found"]
    assert found.derivatives[2] != 0 == found.derivatives[1]


def test_a_simulation() -> None:
    pytest.importorskip("qiskit", reason="needs the extra qasm")
    Path("circuit.qasm").write_text(QASM + "measure q -> c;\n")
    done = run_example("statevector.md", 0)["done"]
    assert set(done.answer.counts) == {"00", "11"}
    assert done.answer.expectation == pytest.approx(1)


def test_a_diagonalization() -> None:
    integrals = random_integrals(6, 5, 5, 0)
    found = run_example(
        "sbd.md", 0, h1=integrals.one, eri=dense_two(integrals), alpha_integers=every_string(6, 5),
        mol=SimpleNamespace(energy_nuc=lambda: integrals.core),
    )["result"]  # fmt: skip
    assert found.energies[0] < found.energies[1]


def test_configuration_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    """With stand-ins for what the example takes from qiskit-addon-sqd, of the same parameters."""

    def recover(
        one: Any, two: Any, bit_array: Any, samples_per_batch: int, norb: int, nelec: tuple[int, int], *,
        sci_solver: Any,
    ) -> Any:  # fmt: skip
        strings = np.array(every_string(norb, nelec[0]))
        return sci_solver([(strings, strings)], one, two, norb, nelec)[0]

    fermion = SimpleNamespace(
        SCIState=lambda *fields: fields, SCIResult=lambda energy, *more: SimpleNamespace(energy=energy),
        diagonalize_fermionic_hamiltonian=recover,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "qiskit_addon_sqd", fermion)
    monkeypatch.setitem(sys.modules, "qiskit_addon_sqd.fermion", fermion)
    integrals = random_integrals(6, 5, 5, 0)
    names = {"h1": integrals.one, "eri": dense_two(integrals), "samples": np.ones((1, 12), bool)}
    found = run_example("sbd.md", 1, **names)["found"]
    expected = diagonalize(integrals, every_string(6, 5)).energies[0] - integrals.core
    assert found.energy == pytest.approx(expected)
