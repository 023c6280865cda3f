"""Every wrong command line of `tnplan workload`: status 2, one line with place and value, no file touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.bad_input import refused
from tnplan.common.errors import InputError
from tnplan.planner.workloads.qaoa import cut_network, edge_network

LATTICE = "lattice --rows 3 --columns 3 --layers 2"

# fmt: off
CIRCUITS: list[tuple[str, str]] = [
    ("zuchongzhi --qubits 61 --cycles 2", "'61' is not one of '56', '60'"),
    ("zuchongzhi --cycles 0", "0 is not in the range"), ("zuchongzhi", "Missing option '--cycles'"),
    ("zuchongzhi --cycles 1 --amplitude 01", "has 2 characters; give one for each of 60"),
    ("zuchongzhi --cycles 1 --qsim absent/c", "absent/c"), ("zuchongzhi --cycles 1 --seed -1", "-1 is not"),
    ("lattice --rows 0 --columns 3 --layers 2", "0 is not in the range x>=2"),
    ("lattice --rows 3 --columns 1 --layers 2", "1 is not in the range x>=2"),
    (f"{LATTICE} --layers 0", "0 is not in"), (f"{LATTICE} --geometry square", "'square' is not one of"),
    (f"{LATTICE} --kind random", "'random' is not one of 'generic', 'trotter'"),
    (f"{LATTICE} --time-step 0.1", "--time-step: stands beside --kind generic"),
    (f"{LATTICE} --kind trotter --time-step 0", "--time-step: is 0.0"),
    (f"{LATTICE} --kind trotter --time-step nan", "--time-step: is nan"),
    (f"{LATTICE} --amplitude 0x", "--amplitude: has 2 characters"),
    ("qaoa --vertices 5 --degree 3 --layers 1", "--degree: 3 on 5 vertices makes no graph"),
    ("qaoa --vertices 6 --layers 1 --edge 9", "--edge: is 9; give 0 to 8"),
    ("qaoa --vertices 6 --layers 2 --gamma 1 --beta 1", "are 1 and 1 for 2 layers"),
    ("qaoa --vertices 6 --layers 1 --gamma inf --beta 1", "--gamma: is inf"),
    ("kings --rows 0", "0 is not in the range"), ("kings --density 0", "--density: is 0.0"),
    ("kings --density 1.5", "--density: is 1.5"),
    ("kings --rows 2 --columns 2 --density 0.1", "keeps no site"),
    ("kings --rows 3 --columns 3 --weight 0", "--weight: is 0.0"),
    ("kings --weight 1e300", "too near float64"),
    ("surface", "No such command 'surface'"),
]
MODELS: list[tuple[str, str]] = [
    ("", "m.dem: error model: has no errors"), ("error(0) D0", "m.dem: error 0: has probability 0; leave"),
    ("error(1) D0", "error 0: has probability 1; leave it out, and flip"),
    ("error(1.5) D0", "m.dem: is no model that stim reads"),
    ("error(-0.1) D0", "is no model that stim reads"),
    ("error(nan) D0", "m.dem: is no model that stim reads"),
    ("nonsense", "m.dem: is no model that stim reads"), ("error D0", "is no model that stim reads"),
    ("error(0.1) Q0", "is no model that stim reads"),
    ("error(0.1) D0\n\0", "m.dem: has a character of value 0"),
    ("repeat 1000000000 {\nerror(0.1) D0\nshift_detectors 1\n}", "has 1000000000 errors, detectors"),
    ("error(0.1) D99999999", "has 100000000 errors, detectors"),
    ("error(0.1) " + " ".join(f"D{i}" for i in range(17)), "error 0: flips 17 detectors and observables"),
    ("error(0.1) D0 L30", "has 31 observables; give at most 20"),
]
DECODING: list[tuple[str, str]] = [
    ("--distance 1", "1 is not in the range"),
    ("--distance 99", "--distance: is 99; give an integer from 2 to 51"),
    ("--distance 3 --rounds 0", "0 is not in the range"), ("--distance 3 --rounds 1001", "--rounds: is 1001"),
    *[(f"--distance 3 --noise {noise}", f"--noise: is {noise}")
      for noise in ("0.0", "1.0", "0.5", "-0.1", "nan")],
    ("--distance 3 --kind phase", "'phase' is not one of 'circuit', 'capacity'"),
    ("--distance 3 --syndrome 01", "--syndrome: has 2 characters; give one for each of 24 detectors"),
    ("--distance 3 --kind capacity --syndrome 0000000x", "has the character 'x'"),
    ("--distance 3 --kind capacity --syndrome 00000001", "has a 1 for detector 7; no error flips it"),
    ("--model m.dem --distance 3", "--distance: stands beside --model"),
    ("--model m.dem --noise 0.1", "--noise: stands beside --model"),
    ("--model m.dem -o m.dem", "m.dem: is an input"),
    ("--model absent", "absent: cannot be read"), ("--model folder", "folder"),
    ("--distance 3 -o absent/n.json", "absent/n.json"), ("--distance 3 --seed -1", "-1 is not in"),
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


@pytest.mark.parametrize(("arguments", "says"), CIRCUITS)
def test_a_refusal_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: str, says: str
) -> None:
    refused(capsys, line_of(arguments), says)


@pytest.mark.parametrize(("arguments", "says"), DECODING)
def test_a_wrong_code_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: str, says: str
) -> None:
    pytest.importorskip("stim", reason="needs the extra qec")
    refused(capsys, line_of(f"decoding {arguments}"), says)


@pytest.mark.parametrize(("model", "says"), MODELS)
def test_a_wrong_model_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], model: str, says: str
) -> None:
    pytest.importorskip("stim", reason="needs the extra qec")
    (folder / "m.dem").write_text(model)
    refused(capsys, "workload decoding --model m.dem -o n.json", says)


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
