"""What `tnplan.diagonalize`, `tnplan sbd` and the files and values that they take refuse."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.engines.sbd import fcidump_text, lines_of, random_integrals, some_strings
from tests.support.engines.sbd_growth import chain, labelled_text
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.executor.sbd.basis.determinants import read_determinants
from tnplan.executor.sbd.basis.integrals import dense_two, from_arrays
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.executor.sbd.solver.solve import SpinPenalty
from tnplan.jobs.diagonalization_result import CarryOver

N = 6
INTEGRALS = random_integrals(N, 3, 3, 12)
STRINGS = some_strings(N, 3, 14, 1)
COMPLEX = np.ones((14, 14)) * 1j
FOUR = dense_two(INTEGRALS)
TRIANGLE = np.tril_indices(N)
PAIRS = FOUR[TRIANGLE][:, *TRIANGLE]
STATES = np.ones((1, 14, 14))
GROWTH = tnplan.Growth((0.3, 0.1, 0.03), stable=0.0)


def saved(**arrays: np.ndarray) -> bytes:
    """The bytes of an .npz, or of an .npy with an array called `single`."""
    stream = io.BytesIO()
    if "single" in arrays:
        np.save(stream, arrays["single"])
    else:
        np.savez(stream, **arrays)
    return stream.getvalue()


# fmt: off
CALLS: list[Row] = [
    ({"alpha": 5}, "strings", "are 5", "give integers whose bit"),
    ({"alpha": [7, 11.0]}, "strings: line 2", "is 11.0", "give an integer from 0"),
    ({"alpha": ["000111"]}, "strings: line 1", "is '000111'", "give an integer from 0"),
    ({"alpha": [True]}, "strings: line 1", "is True", "give an integer from 0"),
    ({"alpha": [-7]}, "strings: line 1", "is -7", "give an integer from 0"),
    ({"alpha": [[7]]}, "strings: line 1", "is [7]", "give an integer from 0"),
    ({"beta": 5}, "strings", "are 5", "give integers whose bit"),
    ({"roots": 1.5}, "roots", "is 1.5", "give an integer from 1"),
    ({"roots": "1"}, "roots", "is '1'", "give an integer from 1"),
    ({"roots": True}, "roots", "is True", "give an integer from 1"),
    ({"roots": 0}, "roots", "is 0", "give an integer from 1"),
    ({"threads": "2"}, "--threads", "is '2'", "give an integer from 1"),
    ({"threads": 0}, "--threads", "is 0", "give an integer from 1"),
    ({"threads": 1.5}, "--threads", "is 1.5", "give an integer from 1"),
    ({"memory": np.nan}, "--memory", "is nan", "give a positive number"),
    ({"memory": "much"}, "--memory", "'much' is not a size", "write bytes, or a"),
    ({"memory": 0}, "--memory", "is 0", "give a positive number"),
    ({"penalty": 0}, "penalty", "is 0", "give a SpinPenalty"),
    ({"criteria": 1e-6}, "criteria", "is 1e-06", "give a Criteria"),
    ({"carry": "next"}, "carry", "is 'next'", "give a CarryOver"),
    ({"start": 5}, "start", "holds no states ('int' object", "give a list of arrays"),
    ({"start": ["x"]}, "start", "holds values that are not real", "give states of real"),
    ({"start": [COMPLEX]}, "start", "holds values that are not real", "give states of real"),
    ({"start": [None]}, "start", "holds values that are not real", "give states of real"),
    ({"resume": True}, "--resume", "has no checkpoint", "give the --output of"),
]
VALUES: list[Row] = [
    *((partial(Criteria, **{name: value}), f"criteria: {name}", f"is {value!r}", remedy)
      for name, values, remedy in [
          ("residual", (np.nan, 0, -1, "1e-6", True), "a positive number"),
          ("energy", (np.nan, -1), "a positive number"),
          ("orthogonality", (np.nan, 0), "a positive number"),
          ("steps", (0, 1.5, "9"), "an integer from 1 up"),
          ("vectors", (3, 8.0), "an integer from 4 up"),
      ] for value in values),
    *((partial(SpinPenalty, value), "--spin", f"is {value!r}", "give 0, 0.5, 1")
      for value in (np.nan, np.inf, -1, "0", None)),
    *((partial(SpinPenalty, 0, value), "--spin-weight", f"is {value!r}", "above 0 and below 1000")
      for value in (np.nan, 0, 1000, "1")),
    *((partial(CarryOver, value, ratio=0.5), f"file {value!r}", "is not the name of a file", "give its path")
      for value in (5, "", None)),
    (partial(CarryOver, "next"), "--carryover", "needs a share or a weight", "--carryover-missing"),
    (partial(CarryOver, "next", ratio=0.5, missing=0.5), "--carryover",
     "one of the two", "--carryover-ratio"),
    *((partial(CarryOver, "next", ratio=value), "--carryover-ratio", f"is {value!r}", "a share above 0")
      for value in (np.nan, 0, 1.5, 2, "1")),
    *((partial(CarryOver, "next", missing=value), "--carryover-missing", f"is {value!r}", "less than 1")
      for value in (np.nan, -1, 1, "0")),
    *((partial(from_arrays, INTEGRALS.one, INTEGRALS.two, value, 3), "n_alpha", f"is {value!r}", "from 0 up")
      for value in (1.5, "3", True)),
    *((partial(from_arrays, INTEGRALS.one, FOUR, 3, 3, core=value), "core", f"is {value!r}", "Hartrees")
      for value in (np.nan, np.inf, "1", [1.0], None, 1j)),
]
GROWTH_VALUES: list[Row] = [
    ({"epsilons": (0.1, 0.2)}, "--epsilon", "is 0.2 after 0.1", "give thresholds that"),
    ({"epsilons": (-0.1,)}, "--epsilon", "is -0.1", "give Hartrees of 0 or"),
    ({"epsilons": (np.nan,)}, "--epsilon", "is nan", "give Hartrees of 0 or"),
    ({"epsilons": 0.1}, "--epsilon", "is 0.1", "give a tuple of"),
    ({"epsilons": "x"}, "--epsilon", "is 'x'", "give Hartrees of 0 or"),
    ({"surplus": 0.5}, "growth: surplus", "is 0.5", "give 1 to 100"),
    ({"determinants": 0}, "--grow-to", "is 0", "give an integer from 1"),
    ({"epsilon_pt2": "x"}, "--epsilon-pt2", "is 'x'", "give Hartrees of 0 or"),
    ({"pt2_error": -1e-5}, "--pt2-error", "is -1e-05", "give Hartrees above 0"),
    ({"pt2_error": 0}, "--pt2-error", "is 0", "give Hartrees above 0"),
    ({"pt2_error": 1e-5, "epsilon_pt2": None}, "--pt2-error", "is given without a correction", "leave it"),
    ({"stable": 1.0}, "growth: stable", "is 1.0", "give a share"),
]
GROWTH_CALLS: list[Row] = [
    ({"alpha": [0b111]}, "--alpha", "cannot be combined with --grow", "start from"),
    ({"penalty": tnplan.SpinPenalty(0.5)}, "--spin",
     "is 0.5 for 3 alpha and 3 beta electrons", "give 0 to 3, in steps"),
    ({"penalty": tnplan.SpinPenalty(0.0), "grow": tnplan.Growth(flips=False)}, "--no-flips",
     "cannot be combined with --spin", "leave one of them out"),
    ({"start": [np.ones(1)]}, "--start", "cannot be combined with --grow", "start from"),
    ({"precision": "mixed"}, "--precision", "cannot be combined with --grow", "leave it out: lists"),
    ({"symmetry": 2}, "--symmetry", "is 2, and orbitals have no labels", "give an FCIDUMP with"),
    ({"grow": 3}, "grow", "is 3", "give a Growth"),
    ({"roots": 500}, "roots",
     "are 500, but the space has only 400 determinants that were selected", "ask for 1 to 400"),
]
ARRAYS: list[Row] = [
    ((INTEGRALS.one[:3], FOUR), "one-electron integrals", "have the shape (3, 6)", "give a square matrix"),
    ((INTEGRALS.one + np.triu(np.ones((N, N)), 1), FOUR), "one-electron integrals",
     "are not symmetric: [p, q]", "give real, symmetric"),
    ((INTEGRALS.one, FOUR + np.arange(N)), "two-electron integrals",
     "are not symmetric: (pq|rs) and (pq|sr)", "give real, symmetric"),
    ((INTEGRALS.one, PAIRS + np.triu(np.ones(PAIRS.shape), 1)), "two-electron integrals",
     "are not symmetric: (pq|rs) and (rs|pq)", "give real, symmetric"),
    ((INTEGRALS.one, FOUR[:3]), "two-electron integrals",
     "for 6 orbitals", "give an array of shape (6, 6, 6, 6), (21"),
    ((INTEGRALS.one, FOUR * np.nan), "two-electron integrals", "NaN", "correct the integrals"),
    ((INTEGRALS.one * 1j, FOUR), "one-electron integrals",
     "are not symmetric: [p, q]", "give Hermitian integrals"),
    ((INTEGRALS.one, FOUR, 9), "electrons", "asks for 9 alpha electrons in 6 orbitals", "give numbers of"),
]
COMMANDS: list[Row] = [
    ("none.fcidump --alpha a.txt", "none.fcidump", "cannot be read", "check the name and the"),
    ("h.fcidump", "space", "is not given", "give alpha strings (--alpha FILE"),
    ("h.fcidump --alpha a.txt --determinants a.txt", "space", "is given twice", "give either strings"),
    ("h.fcidump --alpha none.txt", "none.txt", "cannot be read", "check the name and the"),
    ("h.fcidump --alpha a.txt --roots 1000", "roots", "are 1000, but the space has only 196",
    "ask for 1 to 196"),
    ("h.fcidump --alpha a.txt --memory 10kB --device cpu", "memory",
     "is 9.77 KiB, but the", "give fewer strings"),
    ("h.fcidump --alpha a.txt --memory 32kB --device cpu", "memory",
     "is 31.2 KiB, but the", "give fewer strings"),
    ("h.fcidump --alpha a.txt --spin 0.3", "--spin", "is 0.3", "give 0 to 3, in steps"),
    ("h.fcidump --alpha a.txt --spin 1 --spin-weight -1", "--spin-weight", "is -1", "give Hartrees above 0"),
    ("h.fcidump --alpha a.txt --residual nan", "criteria: residual", "is nan", "give a positive"),
    ("h.fcidump --alpha a.txt --resume", "--resume", "has no checkpoint", "give the --output of"),
    ("h.fcidump --alpha a.txt --carryover c", "--carryover", "needs a share", "give --carryover-ratio"),
    ("h.fcidump --alpha a.txt --carryover-ratio 0.1", "--carryover-ratio", "is given without --", "add"),
    ("h.fcidump --alpha a.txt -o out.txt", "out.txt", "is not an .npz file", "give the output a name"),
    ("h.fcidump --alpha a.txt -o .", ".", "is not an .npz file", "give the output a name"),
    ("h.fcidump --alpha a.txt -o no/out.npz", "no/out.npz",
     "its folder does not exist", "choose a folder that"),
    ("h.fcidump --alpha a.txt --start a.txt", "a.txt", "holds no states", "give the .npz of an"),
    ("h.fcidump --alpha a.txt --spin nan", "--spin", "is nan", "give 0, 0.5, 1 and so on"),
    ("h.fcidump --alpha a.txt --spin inf", "--spin", "is inf", "give 0, 0.5, 1 and so on"),
    ("h.fcidump --alpha a.txt --spin 1e300", "--spin", "is 1e+300 for 3 alpha", "give 0 to 3, in steps"),
    ("h.fcidump --alpha a.txt --spin 4", "--spin",
     "is 4 for 3 alpha and 3 beta", "give 0 to 3, in steps of 1"),
    ("h.fcidump --alpha a.txt --spin-weight nan", "--spin-weight", "is given without --spin", "add"),
    ("h.fcidump --alpha a.txt --spin 0 --roots 106", "roots",
     "are 106, but the space has only 105 states", "ask for 1 to 105"),
    ("h.fcidump --alpha a.txt --spin 1 --roots 92", "roots",
     "are 92, but the space has only 91 states", "ask for 1 to 91"),
    ("h.fcidump --alpha a.txt -o o.npz --no-checkpoint --resume", "--resume",
     "has no checkpoint", "give the --output of"),
    ("h.fcidump --alpha a.txt --memory 1kB", "h.fcidump: NORB",
     "is 6, and the integrals need 3.73", "give fewer orbitals or"),
    ("odd.fcidump --alpha a.txt", "beta", "has 2 electrons where alpha has 3", "give beta strings of"),
    ("odd.fcidump --alpha a.txt --beta a.txt", "a.txt: line 1",
     "fills 3 orbitals, not 2", "give strings of the"),
]
GROWTHS: list[Row] = [
    ("h.fcidump --epsilon 1e-2", "--epsilon", "is given without --grow", "add --grow, or leave it out"),
    ("h.fcidump --epsilon-pt2 1e-2", "--epsilon-pt2", "is given without --grow", "add --grow, or leave it"),
    ("h.fcidump --no-pt2 --alpha a.txt", "--no-pt2", "is given without --grow", "add --grow, or leave it"),
    ("h.fcidump --grow --no-pt2 --epsilon-pt2 1e-6", "--epsilon-pt2",
     "is given without --pt2", "add --pt2, or leave it out"),
    ("h.fcidump --grow --epsilon 1e-3,1e-2", "--epsilon", "is 0.01 after 0.001", "give thresholds that"),
    ("h.fcidump --grow --epsilon '1e-3;1e-4'", "Invalid value for '--epsilon'",
     "'1e-3;1e-4' holds no numbers", "write them with commas"),
    ("h.fcidump --grow --epsilon=-1", "--epsilon", "is -1.0", "give Hartrees of 0 or more"),
    ("h.fcidump --grow-to 0", "Invalid value for '--grow-to'", "'0' is not a count", "write a positive"),
    ("h.fcidump --grow --alpha a.txt", "--alpha", "cannot be combined with --grow",
    "start from --determinants"),
    ("h.fcidump --grow --start start.npz", "--start", "cannot be combined with --grow", "start from"),
    ("h.fcidump --grow --precision mixed", "--precision", "cannot be combined with --grow",
    "leave it out: lists"),
    ("h.fcidump --grow --symmetry 9", "Invalid value for '--symmetry'",
     "9 is not in the range", "see 'tnplan sbd --help'"),
    ("labelled.fcidump --grow --symmetry 3", "--grow",
     "finds no determinant of symmetry 3 to start from", "give --determinants"),
    ("h.fcidump --grow --memory 5000", "memory", "is 1.22 KiB, but", "give more memory or"),
    ("h.fcidump --grow --roots 401 --epsilon 0.1", "roots", "are 401, but the space has only",
    "ask for 1 to 301"),
    ("h.fcidump --grow -o h.npz --determinants h.determinants.txt", "h.determinants.txt",
     "is an input and would be", "give the output another"),
]
FCIDUMPS: list[Row] = [
    ("", "bad: line 1", "does not begin with &FCI", "give an FCIDUMP file of"),
    ("&FCI NORB=2\n1.0 1 1 0 0", "bad", "has a header without &END or /", "give an FCIDUMP file of"),
    ("&FCI NELEC=2,MS2=0 /", "bad: NORB", "is missing", "give an integer in the"),
    ("&FCI NORB=x,NELEC=2 /", "bad: NORB", "is 'x'", "give an integer in the"),
    ("&FCI NORB=0,NELEC=2 /", "bad: NORB", "is 0", "give 1 to 4096 orbitals"),
    ("&FCI NORB=2,NELEC=5,MS2=1 /", "bad: NELEC",
     "asks for 3 alpha electrons in 2 orbitals", "give numbers of"),
    ("&FCI NORB=2,NELEC=2,MS2=1 /", "bad: MS2", "is 1 with 2 electrons", "give numbers that are"),
    ("&FCI NORB=2,NELEC=2,IUHF=1 /", "bad", "has 0 lines whose four indices are 0", "give 6: after"),
    ("&FCI NORB=2,NELEC=2\n/\n1.0 1 1", "bad: line 3", "has 3 fields", "write a value and four"),
    ("&FCI NORB=2,NELEC=2\n/\n\n(1.0,x) 1 1 0 0", "bad: line 4",
     "'x' is not a real number", "give an FCIDUMP file of"),
    ("&FCI NORB=2,NELEC=2\n/\nnan 1 1 0 0", "bad: line 3",
     "'nan' is not a real number", "give an FCIDUMP file of"),
    ("&FCI NORB=2,NELEC=2\n/\n1.0 1 1 0 x", "bad: line 3",
     "'x' is not the number of an", "give an FCIDUMP file of"),
    ("&FCI NORB=2,NELEC=2\n/\n1.0 1 3 0 0", "bad: line 3",
     "has the indices [1, 3, 0, 0]", "number orbitals from 1"),
    ("&FCI NORB=2,NELEC=2\n/\n1.0 1 0 1 0", "bad: line 3",
     "has the indices [1, 0, 1, 0]", "number orbitals from 1"),
    ("&FCI NORB=2,NELEC=2\n/\n1.0 1 2 0 0\n2.0 2 1 0 0", "bad: line 4",
     "gives h(pq) of line 3 again, 1 apart", "give an FCIDUMP file of"),
    ("&FCI NORB=2,NELEC=2\n/\n1.0 1 2 1 1\n2.0 1 1 2 1", "bad: line 4",
     "gives (pq|rs) of line 3 again, 1 apart", "give an FCIDUMP file of"),
    ("&FCI NORB=2,NELEC=2\n/\n1.0 0 0 0 0\n2.0 0 0 0 0", "bad: line 4",
     "gives the core energy of line 3 again", "give an FCIDUMP file of"),
]
STRING_FILES: list[Row] = [
    ("", "bad.txt", "holds no string", "give at least one"),
    ("000111\n00111\n", "bad.txt: line 2",
     "'00111' is not a string of 6 zeros and ones", "write one bitstring per"),
    ("000111\n\n00x111\n", "bad.txt: line 3", "'00x111' is not a string", "write one bitstring per"),
    ("000111\n001111\n", "bad.txt: line 2", "fills 4 orbitals, not 3", "give strings of the"),
    ("000111 1 2\n", "bad.txt: line 1", "has 3 fields", "write a bitstring and"),
    ("000111 x\n", "bad.txt: line 1", "has the weight 'x'", "give a number of 0 or"),
    ("000111 -1\n", "bad.txt: line 1", "has the weight '-1'", "give a number of 0 or"),
    ("000111 0\n", "bad.txt", "holds no string", "give at least one"),
]
DETERMINANT_FILES: list[Row] = [
    ("", "bad.txt", "holds no determinant", "give at least one"),
    ("0" * 6 + "1" * 5 + "0", "bad.txt: line 1", "has 2 alpha electrons, not 3", "give determinants of"),
    ("0" * 6 + "1" * 6 + "\n" + "0" * 6 + "1" * 6, "bad.txt: line 2",
     "repeats line 1", "give every determinant"),
    ("000111", "bad.txt: line 1", "not a string of 12 zeros and ones", "write one bitstring per"),
]
STATE_FILES: list[Row] = [
    (saved(states=STATES)[:900], "start.npz", "holds no states (is not an .npz file", "give the .npz of an"),
    (saved(states=STATES).replace(STATES.tobytes(), (2 * STATES).tobytes()), "start.npz",
     "holds no states (cannot be read (Bad CRC-32", "give the .npz of an"),
    (saved(single=STATES), "start.npz", "holds no states (holds a single array", "give the .npz of an"),
    (saved(states=STATES + 0j), "start.npz", "holds values that are not real numbers", "give states of real"),
    (saved(states=STATES.astype(str)), "start.npz", "holds values that are not real", "give states of real"),
    (saved(states=STATES[:0]), "start.npz", "holds no states (holds no state", "give the .npz of an"),
    (saved(states=STATES[0]), "start.npz", "holds states of shape (14,)", "give the result of a"),
    (saved(other=STATES), "start.npz",
     "holds no states (an array named states is missing", "give the .npz of an"),
]
# fmt: on


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """FCIDUMPs, strings and lists of determinants in the working folder."""
    monkeypatch.chdir(tmp_path)
    Path("h.fcidump").write_text(fcidump_text(INTEGRALS))
    Path("odd.fcidump").write_text(fcidump_text(random_integrals(N, 3, 2, 3)))
    Path("a.txt").write_text(lines_of(STRINGS, N))
    return tmp_path


@table(CALLS)
def test_a_call_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(
        lambda: tnplan.diagonalize(INTEGRALS, **{"alpha": STRINGS, "device": "cpu", **refusal.given})
    )


@table(VALUES)
def test_a_value_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(refusal.given)


@table(GROWTH_VALUES)
def test_a_value_of_a_growth_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(lambda: tnplan.Growth(**refusal.given))


@table(GROWTH_CALLS)
def test_a_call_that_grows_is_refused(refusal: Refusal) -> None:
    usual = {"grow": GROWTH, "device": "cpu", "threads": 1, "criteria": Criteria(residual=1e-8)}
    refusal.raised_by(lambda: tnplan.diagonalize(chain(N), **{**usual, **refusal.given}))


@table(ARRAYS)
def test_arrays_are_refused(refusal: Refusal) -> None:
    one, two, *n_alpha = refusal.given
    refusal.raised_by(lambda: from_arrays(one, two, *(n_alpha or (3,)), 3))


@pytest.mark.usefixtures("files")
@table(COMMANDS)
def test_a_command_is_refused(refusal: Refusal, capsys: pytest.CaptureFixture[str]) -> None:
    refusal.ends(f"sbd {refusal.given}", capsys, after_progress="--spin" in refusal.given)


@pytest.mark.usefixtures("files")
@table(GROWTHS)
def test_a_growth_is_refused(refusal: Refusal, capsys: pytest.CaptureFixture[str]) -> None:
    Path("h.fcidump").write_text(fcidump_text(chain(N)))
    Path("labelled.fcidump").write_text(labelled_text(chain(N), 1))
    Path("a.txt").write_text(lines_of([0b111, 0b1011], N))
    refusal.ends(f"sbd {refusal.given} --device cpu --threads 1", capsys, after_progress=True)


@pytest.mark.usefixtures("files")
@table(FCIDUMPS)
def test_an_fcidump_is_refused(refusal: Refusal, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad").write_text(refusal.given)
    refusal.ends("sbd bad --alpha a.txt", capsys)


@pytest.mark.usefixtures("files")
@table(STRING_FILES)
def test_a_file_of_strings_is_refused(refusal: Refusal, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.txt").write_text(refusal.given)
    refusal.ends("sbd h.fcidump --alpha bad.txt", capsys)


@pytest.mark.usefixtures("files")
@table(DETERMINANT_FILES)
def test_a_file_of_determinants_is_refused(refusal: Refusal) -> None:
    Path("bad.txt").write_text(refusal.given)
    refusal.raised_by(lambda: read_determinants("bad.txt", INTEGRALS))


@pytest.mark.usefixtures("files")
@table(STATE_FILES)
def test_a_file_of_states_is_refused(refusal: Refusal, capsys: pytest.CaptureFixture[str]) -> None:
    Path("start.npz").write_bytes(refusal.given)
    refusal.ends("sbd h.fcidump --alpha a.txt --start start.npz", capsys)
