"""`tnplan sbd` from files to files, and every input that it refuses with one line."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

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
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.determinants import read_determinants
from tnplan.executor.sbd.basis.fcidump import read_fcidump
from tnplan.executor.sbd.basis.integral_arrays import from_arrays
from tnplan.executor.sbd.basis.integrals import dense_two
from tnplan.executor.sbd.basis.string_files import read_spin_strings
from tnplan.executor.sbd.basis.strings import from_integers
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.executor.sbd.solver.solve import SpinPenalty
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
    for one, two, message in (
        (INTEGRALS.one[:3], four, "have the shape"),
        (INTEGRALS.one + np.triu(np.ones((N, N)), 1), four, "one-electron integrals: are not symmetric"),
        (INTEGRALS.one, four + np.arange(N), "two-electron integrals: are not symmetric"),
        (INTEGRALS.one, matrix + np.triu(np.ones(matrix.shape), 1), "are not symmetric"),
        (INTEGRALS.one, four[:3], "which is none for 6 orbitals"),
        (INTEGRALS.one, four * np.nan, "NaN"),
        (INTEGRALS.one * 1j, four, "are not symmetric"),
    ):
        with pytest.raises(InputError, match=message):
            from_arrays(one, two, 3, 3)
    with pytest.raises(InputError, match="asks for 9 alpha electrons in 6 orbitals"):
        from_arrays(INTEGRALS.one, four, 9, 3)


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
    assert all("s a multiplication" in line and "residual" in line for line in steps)
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


TEXT = fcidump_text(INTEGRALS)
LINES = TEXT.splitlines()
BAD_FCIDUMPS = {
    "": "line 1: does not begin with &FCI",
    "&FCI NORB=2\n1.0 1 1 0 0": "has a header without &END or /",
    "&FCI NELEC=2,MS2=0 /": "NORB: is missing",
    "&FCI NORB=x,NELEC=2 /": "NORB: is 'x'",
    "&FCI NORB=0,NELEC=2 /": "NORB: is 0",
    "&FCI NORB=2,NELEC=5,MS2=1 /": "NELEC: asks for 3 alpha electrons in 2 orbitals",
    "&FCI NORB=2,NELEC=2,MS2=1 /": "MS2: is 1 with 2 electrons",
    "&FCI NORB=2,NELEC=2,IUHF=1 /": "has 0 lines of four zeros",
    "&FCI NORB=2,NELEC=2\n/\n1.0 1 1": "line 3: has 3 fields",
    "&FCI NORB=2,NELEC=2\n/\n\n(1.0,x) 1 1 0 0": "line 4: 'x' is no real number",
    "&FCI NORB=2,NELEC=2\n/\nnan 1 1 0 0": "line 3: 'nan' is no real number",
    "&FCI NORB=2,NELEC=2\n/\n1.0 1 1 0 x": "line 3: 'x' is no orbital's number",
    "&FCI NORB=2,NELEC=2\n/\n1.0 1 3 0 0": "line 3: has the indices [1, 3, 0, 0]",
    "&FCI NORB=2,NELEC=2\n/\n1.0 1 0 1 0": "line 3: has the indices [1, 0, 1, 0]",
    "&FCI NORB=2,NELEC=2\n/\n1.0 1 2 0 0\n2.0 2 1 0 0": "line 4: gives h(pq) of line 3 again, 1 apart",
    "&FCI NORB=2,NELEC=2\n/\n1.0 1 2 1 1\n2.0 1 1 2 1": "line 4: gives (pq|rs) of line 3 again, 1 apart",
    "&FCI NORB=2,NELEC=2\n/\n1.0 0 0 0 0\n2.0 0 0 0 0": "line 4: gives the core energy of line 3 again",
}


@pytest.mark.parametrize("text", BAD_FCIDUMPS)
def test_bad_fcidumps(files: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (files / "bad").write_text(text)
    assert BAD_FCIDUMPS[text] in refused(capsys, ["bad", "--alpha", "a.txt"])


BAD_STRINGS = {
    "": "holds no string",
    "000111\n00111\n": "line 2: '00111' is no string of 6 zeros and ones",
    "000111\n\n00x111\n": "line 3: '00x111' is no string",
    "000111\n001111\n": "line 2: fills 4 orbitals, not 3",
    "000111 1 2\n": "line 1: has 3 fields",
    "000111 x\n": "line 1: has the weight 'x'",
    "000111 -1\n": "line 1: has the weight '-1'",
    "000111 0\n": "holds no string",
}


@pytest.mark.parametrize("text", BAD_STRINGS)
def test_bad_strings(files: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (files / "bad.txt").write_text(text)
    assert BAD_STRINGS[text] in refused(capsys, ["h.fcidump", "--alpha", "bad.txt"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no determinant"),
        ("0" * 6 + "1" * 5 + "0", "line 1: has 2 alpha electrons, not 3"),
        ("0" * 6 + "1" * 6 + "\n" + "0" * 6 + "1" * 6, "line 2: repeats line 1"),
        ("000111", "no string of 12 zeros and ones"),
    ],
)
def test_bad_lists(files: Path, text: str, message: str) -> None:
    (files / "bad.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        read_determinants("bad.txt", INTEGRALS)


def test_bits_of_a_list_are_alpha_and_beta_in_turn(files: Path) -> None:
    (files / "one.txt").write_text("000000000110\n")
    one = read_determinants("one.txt", replace(INTEGRALS, n_alpha=1, n_beta=1))
    assert one.alpha_strings.occupied[0].tolist() == [False, True, False, False, False, False]
    assert one.beta_strings.occupied[0].tolist() == [True, False, False, False, False, False]


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.fcidump", "--alpha", "a.txt"], "none.fcidump: cannot be read"),
        (["h.fcidump"], "space: is not given; give alpha strings (--alpha)"),
        (["h.fcidump", "--alpha", "a.txt", "--determinants", "a.txt"], "space: is given twice"),
        (["h.fcidump", "--alpha", "none.txt"], "none.txt: cannot be read"),
        (["h.fcidump", "--alpha", "a.txt", "--roots", "1000"], "roots: are 1000 in a space of 196"),
        (
            ["h.fcidump", "--alpha", "a.txt", "--memory", "10kB", "--device", "cpu"],
            "memory: holds 9.77 KiB of the ",
        ),
        (
            ["h.fcidump", "--alpha", "a.txt", "--memory", "32kB", "--device", "cpu"],
            "memory: holds 31.2 KiB of the ",
        ),
        (["h.fcidump", "--alpha", "a.txt", "--spin", "0.3"], "--spin: is 0.3"),
        (["h.fcidump", "--alpha", "a.txt", "--spin", "0", "--precision", "mixed"], "mixed is not there for"),
        (["h.fcidump", "--alpha", "a.txt", "--spin", "1", "--spin-weight", "-1"], "--spin-weight: is -1"),
        (["h.fcidump", "--alpha", "a.txt", "--residual", "nan"], "--residual: is nan"),
        (["h.fcidump", "--alpha", "a.txt", "--resume"], "--resume: has no checkpoint"),
        (["h.fcidump", "--alpha", "a.txt", "--carryover", "c"], "--carryover: needs a share"),
        (["h.fcidump", "--alpha", "a.txt", "--carryover-ratio", "0.1"], "--carryover: is missing"),
        (["h.fcidump", "--alpha", "a.txt", "-o", "out.txt"], "out.txt: is no .npz"),
        (["h.fcidump", "--alpha", "a.txt", "-o", "."], ".: is no .npz"),
        (["h.fcidump", "--alpha", "a.txt", "-o", "no/out.npz"], "its folder does not exist"),
        (["h.fcidump", "--alpha", "a.txt", "--start", "a.txt"], "a.txt: holds no states"),
        (["h.fcidump", "--alpha", "a.txt", "--spin", "nan"], "--spin: is nan"),
        (["h.fcidump", "--alpha", "a.txt", "--spin", "inf"], "--spin: is inf"),
        (["h.fcidump", "--alpha", "a.txt", "--spin", "1e300"], "--spin: is 1e+300 for 3 alpha"),
        (["h.fcidump", "--alpha", "a.txt", "--spin", "4"], "give 0 or an integer more, 3 at most"),
        (["h.fcidump", "--alpha", "a.txt", "--spin-weight", "nan"], "--spin-weight: is nan"),
        (["h.fcidump", "--alpha", "a.txt", "--spin", "0", "--roots", "106"], "in a space of 105 states"),
        (["h.fcidump", "--alpha", "a.txt", "--spin", "1", "--roots", "92"], "in a space of 91 states"),
        (["h.fcidump", "--alpha", "a.txt", "-o", "o.npz", "--no-checkpoint", "--resume"], "no checkpoint"),
        (["h.fcidump", "--alpha", "a.txt", "--memory", "1kB"], "NORB: is 6: the integrals take 3.73"),
    ],
)
def test_bad_options(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert message in refused(capsys, arguments)


@pytest.mark.usefixtures("files")
def test_integrals_that_the_host_cannot_hold(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagonalization, "host_memory", lambda: (2**40, 2**30))
    Path("large").write_text("&FCI NORB=1000,NELEC=2,MS2=0 &END\n 0.5 1 1 1 1\n")
    said = refused(capsys, ["large", "--alpha", "a.txt"])
    assert "large: NORB: is 1000: the integrals take 1.82 TiB, and 1.00 GiB may be taken" in said


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


def saved(**arrays: np.ndarray) -> bytes:
    """The bytes of an .npz, or of an .npy with an array called `single`."""
    stream = io.BytesIO()
    if "single" in arrays:
        np.save(stream, arrays["single"])
    else:
        np.savez(stream, **arrays)
    return stream.getvalue()


STATES = np.ones((1, 14, 14))
BAD_STARTS = {
    "is not an .npz file": saved(states=STATES)[:900],
    "Bad CRC-32": saved(states=STATES).replace(STATES.tobytes(), (2 * STATES).tobytes()),
    "holds a single array": saved(single=STATES),
    "holds values that are no real numbers": saved(states=STATES + 0j),
    "holds values that are no real": saved(states=STATES.astype(str)),
    "there is none in it": saved(states=STATES[:0]),
    "states of shape (14,)": saved(states=STATES[0]),
    "an array named states is missing": saved(other=STATES),
}


@pytest.mark.parametrize("message", BAD_STARTS)
def test_bad_files_of_states(files: Path, capsys: pytest.CaptureFixture[str], message: str) -> None:
    (files / "start.npz").write_bytes(BAD_STARTS[message])
    said = refused(capsys, ["h.fcidump", "--alpha", "a.txt", "--start", "start.npz"])
    assert "start.npz: holds" in said
    assert message in said


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


COMPLEX = np.ones((14, 14)) * 1j
BAD_CALLS: list[dict[str, Any]] = [
    {"alpha": 5}, {"alpha": [7, 11.0]}, {"alpha": ["000111"]}, {"alpha": [True]}, {"alpha": [-7]},
    {"alpha": [[7]]}, {"beta": 5}, {"roots": 1.5}, {"roots": "1"}, {"roots": True}, {"roots": 0},
    {"threads": "2"}, {"threads": 0}, {"threads": 1.5}, {"memory": np.nan}, {"memory": "much"},
    {"memory": 0}, {"penalty": 0}, {"criteria": 1e-6}, {"carry": "next"}, {"start": 5},
    {"start": ["x"]}, {"start": [COMPLEX]}, {"start": [None]}, {"resume": True},
]  # fmt: skip
BAD_VALUES: list[Callable[[], object]] = [
    *(lambda value=value: Criteria(residual=value) for value in (np.nan, 0, -1, "1e-6", True)),
    *(lambda value=value: Criteria(energy=value) for value in (np.nan, -1)),
    *(lambda value=value: Criteria(orthogonality=value) for value in (np.nan, 0)),
    *(lambda value=value: Criteria(steps=value) for value in (0, 1.5, "9")),
    *(lambda value=value: Criteria(vectors=value) for value in (3, 8.0)),
    *(lambda value=value: SpinPenalty(value) for value in (np.nan, np.inf, -1, "0", None)),
    *(lambda value=value: SpinPenalty(0, value) for value in (np.nan, 0, 1000, "1")),
    *(lambda value=value: CarryOver(value, ratio=0.5) for value in (5, "", None)),
    *(lambda value=value: CarryOver("next", ratio=value) for value in (None, np.nan, 0, 2, "1")),
    *(lambda value=value: CarryOver("next", missing=value) for value in (np.nan, -1, 1, "0")),
    *(lambda value=value: from_arrays(INTEGRALS.one, INTEGRALS.two, value, 3) for value in (1.5, "3", True)),
    *(
        lambda value=value: from_arrays(INTEGRALS.one, dense_two(INTEGRALS), 3, 3, core=value)
        for value in (np.nan, np.inf, "1", [1.0], None, 1j)
    ),
]


@pytest.mark.parametrize("arguments", BAD_CALLS, ids=str)
def test_wrong_values_from_python(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        tnplan.diagonalize(INTEGRALS, **{"alpha": STRINGS, "device": "cpu", **arguments})


@pytest.mark.parametrize("make", BAD_VALUES)
def test_values_that_cannot_be(make: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        make()


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


@pytest.mark.usefixtures("files")
def test_unequal_spins_need_beta_strings(capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd.fcidump").write_text(fcidump_text(random_integrals(N, 3, 2, 3)))
    assert "beta: has 2 electrons where alpha has 3" in refused(capsys, ["odd.fcidump", "--alpha", "a.txt"])
    assert refused(capsys, ["odd.fcidump", "--alpha", "a.txt", "--beta", "a.txt"]).count("not 2") == 1
