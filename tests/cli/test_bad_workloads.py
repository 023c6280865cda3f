"""Every wrong command line of `tnplan workload`: status 2, one line with place and value, no file touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.bad_input import refused
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.common.errors import InputError
from tnplan.planner.workloads.qaoa import cut_network, edge_network

LATTICE = "lattice --rows 3 --columns 3 --layers 2"

# fmt: off
CIRCUITS: list[Row] = [
    ("zuchongzhi --qubits 61 --cycles 2", "Invalid value for '--qubits'",
     "'61' is not one of '56', '60'", "see 'tnplan workload"),
    ("zuchongzhi --cycles 0", "Invalid value for '--cycles'",
     "0 is not in the range", "see 'tnplan workload"),
    ("zuchongzhi", "Missing option '--cycles'", "", "see 'tnplan workload"),
    ("zuchongzhi --cycles 1 --amplitude 01", "--amplitude", "has 2 characters", "give one character"),
    ("zuchongzhi --cycles 1 --qsim absent/c", "absent/c",
     "its folder does not exist or", "choose a folder that"),
    ("zuchongzhi --cycles 1 --seed -1", "Invalid value for '--seed'", "-1 is not", "see 'tnplan workload"),
    ("lattice --rows 0 --columns 3 --layers 2", "Invalid value for '--rows'",
     "0 is not in the range x>=2", "see 'tnplan workload"),
    ("lattice --rows 3 --columns 1 --layers 2", "Invalid value for '--columns'",
     "1 is not in the range x>=2", "see 'tnplan workload"),
    (f"{LATTICE} --layers 0", "Invalid value for '--layers'", "0 is not in", "see 'tnplan workload"),
    (f"{LATTICE} --geometry square", "Invalid value for '--geometry'",
     "'square' is not one of", "see 'tnplan workload"),
    (f"{LATTICE} --kind random", "Invalid value for '--kind'",
     "'random' is not one of 'generic', 'trotter'", "see 'tnplan workload"),
    (f"{LATTICE} --time-step 0.1", "--time-step", "is given together with --kind generic",
    "give it for --kind"),
    (f"{LATTICE} --kind trotter --time-step 0", "--time-step", "is 0.0", "give a finite number"),
    (f"{LATTICE} --kind trotter --time-step nan", "--time-step", "is nan", "give a finite number"),
    (f"{LATTICE} --amplitude 0x", "--amplitude", "has 2 characters", "give one character for each of 9"),
    ("qaoa --vertices 5 --degree 3 --layers 1", "--degree",
     "3 on 5 vertices makes no graph", "make degree times"),
    ("qaoa --vertices 6 --layers 1 --edge 9", "--edge", "is 9", "give 0 to 8"),
    ("qaoa --vertices 6 --layers 2 --gamma 1 --beta 1", "--gamma and --beta",
     "are 1 and 1 for 2 layers", "give both once per layer"),
    ("qaoa --vertices 6 --layers 1 --gamma inf --beta 1", "--gamma", "is inf", "give a finite angle in"),
    ("kings --rows 0", "Invalid value for '--rows'", "0 is not in the range", "see 'tnplan workload"),
    ("kings --density 0", "--density", "is 0.0", "give a share above 0"),
    ("kings --density 1.5", "--density", "is 1.5", "give a share above 0"),
    ("kings --rows 2 --columns 2 --density 0.1", "--density", "0.1 keeps no site", "give a larger share"),
    ("kings --rows 3 --columns 3 --weight 0", "--weight", "is 0.0", "give a finite number"),
    ("kings --weight 1e300", "the sum over independent sets",
     "may reach 2^nan, too near float64", "give fewer sites or a"),
    ("surface", "No such command 'surface'", "", "see 'tnplan workload"),
]
MODELS: list[Row] = [
    ("", "m.dem: error model", "has no errors", "give noise above 0"),
    ("error(0) D0", "m.dem: error 0", "has probability 0", "leave out"),
    ("error(1) D0", "m.dem: error 0", "has probability 1", "leave it out, and flip"),
    ("error(1.5) D0", "m.dem", "is not a model that stim reads", "correct the file"),
    ("error(-0.1) D0", "m.dem", "is not a model that stim reads", "correct the file"),
    ("error(nan) D0", "m.dem", "is not a model that stim reads", "correct the file"),
    ("nonsense", "m.dem", "is not a model that stim reads", "correct the file"),
    ("error D0", "m.dem", "is not a model that stim reads", "correct the file"),
    ("error(0.1) Q0", "m.dem", "is not a model that stim reads", "correct the file"),
    ("error(0.1) D0\n\0", "m.dem", "has a character of value 0", "give plain text"),
    ("repeat 1000000000 {\nerror(0.1) D0\nshift_detectors 1\n}", "m.dem: error model",
     "has 1000000000 errors, detectors", "give at most 1000000 of"),
    ("error(0.1) D99999999", "m.dem: error model",
     "has 100000000 errors, detectors", "give at most 1000000 of"),
    ("error(0.1) " + " ".join(f"D{i}" for i in range(17)), "error 0",
     "flips 17 detectors and observables", "give errors that flip"),
    ("error(0.1) D0 L30", "error model", "has 31 observables", "give at most 20"),
]
DECODING: list[Row] = [
    ("--distance 1", "Invalid value for '--distance'", "1 is not in the range", "see 'tnplan workload"),
    ("--distance 99", "--distance", "is 99", "give an integer from 2 to 51"),
    ("--distance 3 --rounds 0", "Invalid value for '--rounds'",
     "0 is not in the range", "see 'tnplan workload"),
    ("--distance 3 --rounds 1001", "--rounds", "is 1001", "give an integer from 1"),
    *((f"--distance 3 --noise {noise}", "--noise", f"is {noise}", "give a probability")
      for noise in ("0.0", "1.0", "0.5", "-0.1", "nan")),
    ("--distance 3 --kind phase", "Invalid value for '--kind'",
     "'phase' is not one of 'circuit', 'capacity'", "see 'tnplan workload"),
    ("--distance 3 --syndrome 01", "--syndrome", "has 2 characters", "give one character for each"),
    ("--distance 3 --kind capacity --syndrome 0000000x", "--syndrome",
     "has the character 'x'", "write 0 or 1 for each"),
    ("--distance 3 --kind capacity --syndrome 00000001", "--syndrome",
     "has a 1 for detector 7, which no error flips", "write 0"),
    ("--model m.dem --distance 3", "--distance", "is given together with --model", "give either --"),
    ("--model m.dem --noise 0.1", "--noise", "is given together with --model", "give either --"),
    ("--model m.dem -o m.dem", "m.dem", "is an input", "give the output another"),
    ("--model absent", "absent", "cannot be read", "check the name and the"),
    ("--model folder", "folder", "cannot be read (it is a", "give the name of a file"),
    ("--distance 3 -o absent/n.json", "absent/n.json",
     "its folder does not exist or", "choose a folder that"),
    ("--distance 3 --seed -1", "Invalid value for '--seed'", "-1 is not in", "see 'tnplan workload"),
]
# fmt: on


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: an error model, a folder, and old files that no refusal may touch."""
    (tmp_path / "m.dem").write_text("error(0.1) D0 L0\n")
    (tmp_path / "folder").mkdir()
    for name in ("n.json", "n.npz"):
        (tmp_path / name).write_text("old")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def line_of(arguments: str) -> str:
    return f"workload {arguments}" + ("" if " -o " in arguments else " -o n.json")


@table(CIRCUITS)
def test_a_refusal_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str], refusal: Refusal) -> None:
    refusal.ends(line_of(refusal.given), capsys)


@table(DECODING)
def test_a_wrong_code_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str], refusal: Refusal) -> None:
    pytest.importorskip("stim", reason="needs the extra qec")
    refusal.ends(line_of(f"decoding {refusal.given}"), capsys)


@table(MODELS)
def test_a_wrong_model_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], refusal: Refusal
) -> None:
    pytest.importorskip("stim", reason="needs the extra qec")
    (folder / "m.dem").write_text(refusal.given)
    refusal.ends("workload decoding --model m.dem -o n.json", capsys)


def test_without_stim_the_extra_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "stim", None)
    refused(capsys, "workload decoding --distance 3 -o n.json", "pip install 'tnplan[qec]'")


@pytest.mark.parametrize("edges", [[(0, 1), (2, 2)], [(1, 1)]])
def test_self_loops_are_named(edges: list[tuple[int, int]]) -> None:
    with pytest.raises(InputError, match="is a self-loop"):
        edge_network(edges, 0, [0.1], [0.2])
    with pytest.raises(InputError, match="is a self-loop"):
        cut_network(edges, [0.1], [0.2])
