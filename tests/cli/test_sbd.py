"""`tnplan sbd` from files to files, stopped and resumed, and where memory or a GPU is short."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.engines.sbd import (
    every_string,
    fcidump_text,
    interleaved,
    lines_of,
    random_integrals,
    some_strings,
    string_set,
)
from tests.support.kernels.gpus import count_gpus
from tnplan.calls import diagonalize as diagonalization
from tnplan.cli.main import run
from tnplan.executor.sbd.basis.determinants import read_determinants
from tnplan.executor.sbd.basis.fcidump import read_fcidump
from tnplan.executor.sbd.basis.integrals import dense_two, from_arrays
from tnplan.executor.sbd.basis.string_files import read_spin_strings
from tnplan.executor.sbd.basis.strings import from_integers
from tnplan.jobs.diagonalization_result import FORMAT, VERSION, CarryOver

N = 6
INTEGRALS = random_integrals(N, 3, 3, 12)
STRINGS = some_strings(N, 3, 14, 1)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with h.fcidump and a.txt, which is the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h.fcidump").write_text(fcidump_text(INTEGRALS))
    (tmp_path / "a.txt").write_text(lines_of(STRINGS, N))
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], arguments: list[str], status: int = 2) -> str:
    assert run(["sbd", *arguments]) == status
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tnplan: error:")]
    assert len(lines) == 1
    return lines[0]


def test_files_come_back_as_they_were(files: Path) -> None:
    read = read_fcidump("h.fcidump")
    np.testing.assert_array_equal(read.one, INTEGRALS.one)
    np.testing.assert_allclose(read.two, INTEGRALS.two, rtol=0, atol=1e-16)
    assert (read.core, read.n_alpha, read.n_beta) == (INTEGRALS.core, 3, 3)
    assert read.identity == read_fcidump("h.fcidump").identity
    strings = read_spin_strings("a.txt", N, (3, 3), 0).strings
    assert strings.lines() == (files / "a.txt").read_text()
    assert strings.same_as(from_integers(STRINGS, N))


def test_other_ways_of_writing_an_fcidump(files: Path) -> None:
    text = fcidump_text(INTEGRALS, f"&FCI NORB = {N} , NELEC= 6, MS2=0, UHF=.FALSE.\n/").replace("e-", "D-")
    (files / "other").write_text(text)
    assert read_fcidump("other").n_alpha == 3
    lines = text.splitlines()
    (files / "other").write_text("\n".join([*lines[:2], "-1.25 3 0 0 0", "", *reversed(lines[2:])]))
    np.testing.assert_array_equal(read_fcidump("other").one, INTEGRALS.one)


def test_arrays_of_every_shape() -> None:
    four = dense_two(INTEGRALS)
    triangle = np.tril_indices(N)
    matrix = four[triangle][:, *triangle]
    packed = matrix[np.tril_indices(len(matrix))]
    for two in (four, matrix, packed):
        np.testing.assert_allclose(from_arrays(INTEGRALS.one, two, 3, 3).two, INTEGRALS.two, atol=1e-15)


@pytest.mark.usefixtures("files")
def test_a_solve_from_files_to_files(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sbd", "h.fcidump", "--alpha", "a.txt", "--roots", "2", "--rdm", "-o", "out.npz", "--json"]
    assert run([*arguments, "--carryover", "next", "--carryover-ratio", "0.25"]) == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert report == json.loads(Path("out.json").read_text())
    assert (report["format"], report["version"]) == (FORMAT, VERSION)
    steps = [line for line in shown.err.splitlines() if line.startswith("step ")]
    assert len(steps) == report["measured"]["steps"]
    assert all("s per multiplication" in line and "residual" in line for line in steps)
    assert report["converged"]
    assert not Path("out.npz.ckpt").exists()
    with np.load("out.npz") as out:
        np.testing.assert_allclose(out["energies"], report["energies_hartree"])
        assert out["states"].shape == (2, 14, 14)
        np.testing.assert_allclose(np.einsum("spp->s", out["rdm_one"]), 6, atol=1e-10)
    assert len(Path("next.alpha.txt").read_text().split()) == 4
    assert set(Path("next.beta.txt").read_text().split()) <= set(Path("a.txt").read_text().split())
    assert run(["sbd", "h.fcidump", "--alpha", "a.txt", "--roots", "2", "--start", "out.npz"]) == 0
    assert "S^2" in capsys.readouterr().out


@pytest.mark.usefixtures("files")
def test_beta_strings_and_lists_give_the_energies_of_python_calls(capsys: pytest.CaptureFixture[str]) -> None:
    integrals = random_integrals(N, 3, 2, 3)
    other = every_string(N, 2)[:9]
    Path("odd.fcidump").write_text(fcidump_text(integrals))
    Path("b.txt").write_text(lines_of(other, N))
    determinants = list(product(STRINGS, other))
    Path("all.txt").write_text(interleaved(determinants, N))
    assert run(["sbd", "odd.fcidump", "--alpha", "a.txt", "--beta", "b.txt", "--json"]) == 0
    halves = json.loads(capsys.readouterr().out)
    assert run(["sbd", "odd.fcidump", "--determinants", "all.txt", "--json", "--rdm", "-o", "l.npz"]) == 0
    listed = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(listed["energies_hartree"], halves["energies_hartree"], atol=1e-10)
    np.testing.assert_allclose(listed["spin_square"], halves["spin_square"], atol=1e-5)
    assert listed["space"]["pairs_contributing"] == halves["space"]["pairs_contributing"]
    result = tnplan.diagonalize(integrals, STRINGS, string_set(other, integrals))
    np.testing.assert_allclose(result.energies, halves["energies_hartree"], atol=1e-10)
    with np.load("l.npz") as file:
        given = np.zeros(len(determinants))
        given[file["order"]] = file["states"][0]
    assert abs(abs(given @ result.states[0].ravel()) - 1) < 1e-9


@pytest.mark.usefixtures("files")
def test_a_solve_that_stops_early_is_resumed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.DETERMINANTS", 8)
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.WHOLE", 0)
    arguments = ["h.fcidump", "--alpha", "a.txt", "-o", "out.npz"]
    assert "above 1e-06 after 2 steps" in refused(capsys, [*arguments, "--steps", "2"], 1)
    assert not json.loads(Path("out.json").read_text())["converged"]
    assert "continue it with --resume" in refused(capsys, arguments)
    assert run(["sbd", *arguments, "--resume"]) == 0
    assert not Path("out.npz.ckpt").exists()
    assert json.loads(Path("out.json").read_text())["converged"]


def test_bits_of_a_list_are_alpha_and_beta_in_turn(files: Path) -> None:
    (files / "one.txt").write_text("000000000110\n")
    one = read_determinants("one.txt", replace(INTEGRALS, n_alpha=1, n_beta=1))
    assert one.alpha_strings.occupied[0].tolist() == [False, True, False, False, False, False]
    assert one.beta_strings.occupied[0].tolist() == [True, False, False, False, False, False]


@pytest.mark.usefixtures("files")
def test_integrals_that_the_host_cannot_hold(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagonalization, "host_memory", lambda: (2**40, 2**30))
    Path("large").write_text("&FCI NORB=1000,NELEC=2,MS2=0 &END\n 0.5 1 1 1 1\n")
    said = refused(capsys, ["large", "--alpha", "a.txt"])
    assert "large: NORB: is 1000, and the integrals need 1.82 TiB, but the limit is 1.00 GiB" in said


def test_reading_holds_the_integrals_once(files: Path) -> None:
    (files / "large").write_text("&FCI NORB=50,NELEC=2,MS2=0 &END\n 0.5 2 1 1 1\n 0.25 2 1 0 0\n")
    tracemalloc.start()
    try:
        read = read_fcidump("large")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.1 * read.two.nbytes
    assert (read.two[50, 0], read.two[0, 50], read.one[0, 1], read.one[1, 0]) == (0.5, 0.5, 0.25, 0.25)


@pytest.mark.usefixtures("files")
def test_states_that_depend_on_each_other_are_a_start(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sbd", "h.fcidump", "--alpha", "a.txt", "--json", "--roots"]
    assert run([*arguments, "2", "-o", "out.npz"]) == 0
    expected = json.loads(capsys.readouterr().out)["energies_hartree"]
    with np.load("out.npz") as out:
        np.savez("twice.npz", states=out["states"][[0, 0]])
    assert run([*arguments, "2", "--start", "twice.npz"]) == 0
    np.testing.assert_allclose(json.loads(capsys.readouterr().out)["energies_hartree"], expected, atol=1e-9)


def test_a_residual_that_rounding_errors_keep_away(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    large = replace(INTEGRALS, one=1e4 * INTEGRALS.one, two=1e4 * INTEGRALS.two)
    (files / "large").write_text(fcidump_text(large))
    said = refused(capsys, ["large", "--alpha", "a.txt", "--residual", "1e-12"], 1)
    assert "residuals are above 1e-12 and rounding errors keep them at " in said
    assert said.endswith("; give a larger --residual")


@pytest.mark.usefixtures("files")
def test_numbers_of_numpy_and_names_as_text_are_taken() -> None:
    integrals = from_arrays(
        INTEGRALS.one, dense_two(INTEGRALS), np.int64(3), np.int32(3), core=np.array(INTEGRALS.core)
    )
    carry = CarryOver("next", ratio=0.5)
    result = tnplan.diagonalize(integrals, np.array(STRINGS), roots=np.int64(1), carry=carry, device="cpu")
    np.testing.assert_allclose(result.energies, tnplan.diagonalize(INTEGRALS, STRINGS).energies, atol=1e-9)
    assert Path("next.alpha.txt").read_text().count("\n") == 7


@pytest.mark.usefixtures("files")
def test_the_device_is_said_and_fp32_counted(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sbd", "h.fcidump", "--alpha", "a.txt", "--precision", "mixed", "--json"]
    assert run(arguments) == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert f"device: {report['device']}" in shown.err
    assert report["measured"]["early_multiplications"] > 0
    assert (report["ranks"], report["gathers"]) == (1, True)


@pytest.mark.skipif(count_gpus() > 0, reason="needs a machine without GPUs")
@pytest.mark.usefixtures("files")
def test_a_gpu_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, ["h.fcidump", "--alpha", "a.txt", "--device", "gpu"])


def test_print_shows_the_report_on_the_rank_that_has_it() -> None:
    integrals = tnplan.from_arrays(np.diag([-1.0, 1.0]), np.zeros((2, 2, 2, 2)), 1, 1)
    result = tnplan.diagonalize(integrals, [0b01, 0b10], device="cpu")
    head, row, work = str(result).splitlines()
    assert head.split() == ["root", "energy", "(Ha)", "residual", "S^2"]
    assert row.split()[:2] == ["0", "-2.0000000000"]
    assert "to prepare" in work
    elsewhere = replace(result, report={})
    assert str(elsewhere) == repr(elsewhere)
