"""What the command line does from a workload to a result, as calls in Python."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.cli.main import run


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(line: str) -> int:
    return run(line.split())


def searched(**options: object) -> tuple[tnplan.TensorNetwork, tnplan.ContractionPath]:
    source = tnplan.workload.lattice(3, 3, 2, kind="trotter", dtype="complex128")
    options = {"unlimited": True, "methods": ["greedy"], "time": 0} | options
    return source, tnplan.search(source, **options)  # type: ignore[arg-type]


def test_a_workload_is_searched_planned_and_executed() -> None:
    source, path = searched()
    assert path.network == source.network
    assert (path.name, path.dtype, path.tensors) == (source.name, source.dtype, None)
    schedule = tnplan.plan(path, hardware="cpu", memory="64MiB", threshold="1kB")
    assert schedule.memory_bytes == 64 << 20
    assert schedule.threshold_bytes == 1000
    whole = tnplan.execute(schedule, source.tensors, device="cpu", memory="1GiB").array
    again = tnplan.plan(searched(seed=1)[1], policy="paper")
    assert tnplan.execute(again, source.tensors, device="cpu").array == pytest.approx(whole)


def test_a_network_of_quimb_is_searched_as_it_is() -> None:
    network = pytest.importorskip("quimb.tensor").TN2D_rand(3, 3, 2, seed=0, dtype="complex128")
    path = tnplan.search(network, unlimited=True, time=0.1)
    assert path.dtype == "complex128"
    found = tnplan.execute(tnplan.plan(path), network.arrays, device="cpu").array
    np.testing.assert_allclose(found, network.contract(), rtol=1e-10)
    assert tnplan.search(network.astype("complex64"), unlimited=True, time=0).dtype == "complex64"


def test_paths_of_one_name_are_told_apart() -> None:
    source, path = searched()
    projection = tnplan.report([path, searched(seed=1)[1]], [1, 2], hardware="cpu", baseline_time=0)
    assert projection.labels == (f"{source.name} #1", f"{source.name} #2")
    lines = str(projection).splitlines()
    assert lines[0].split()[:3] == ["devices", "path", "groups"]
    assert [line.split()[0] for line in lines[1:]] == ["1", "2", "T_1"]
    assert tnplan.report([path], [1, 2], hardware="cpu", baseline_time=0).labels == (source.name,)


def test_files_are_those_of_the_commands(here: Path) -> None:
    (here / "sub").mkdir()
    assert (
        run(
            [
                "workload",
                "lattice",
                "--rows",
                "3",
                "--columns",
                "3",
                "--layers",
                "2",
                "--kind",
                "trotter",
                "-o",
                "a.json",
            ]
        )
        == 0
    )
    source = tnplan.workload.lattice(3, 3, 2, kind="trotter", output="sub")
    name = f"{source.name}.json"
    assert (
        json.loads((here / "sub" / name).read_text())["inputs"]
        == json.loads(Path("a.json").read_text())["inputs"]
    )
    options = {"unlimited": True, "methods": ["greedy"], "time": 0}
    path = tnplan.search(f"sub/{name}", output="b.path.json", **options)  # type: ignore[arg-type]
    assert command("search a.json --unlimited --method greedy --time 0 -o a.path.json") == 0
    written = [json.loads((here / f"{k}.path.json").read_text()) for k in "ab"]
    assert written[0]["ssa_path"] == written[1]["ssa_path"]
    assert written[1]["tensors"] == f"sub/{source.name}.npz"
    assert path.tensors == str(here / "sub" / f"{source.name}.npz")
    schedule = tnplan.plan("b.path.json", output="sub/s.json")
    assert schedule.tensors == path.tensors
    assert tnplan.load_schedule("sub/s.json").tensors == f"{source.name}.npz"
    assert tnplan.load_schedule("sub/s.json").steps == schedule.steps
    values = [tnplan.execute(one, device="cpu").array for one in (schedule, "sub/s.json")]
    assert values[0] == values[1]


def test_values_of_a_network_in_memory_are_written_with_its_path(here: Path) -> None:
    source, path = searched(output="p.json")
    assert path.tensors == str(here / "p.npz")
    assert tnplan.load_path("p.json") == path
    with np.load("p.npz") as arrays:
        assert len(arrays) == len(source.tensors)
    (here / "p.npz").unlink()
    with pytest.raises(tnplan.InputError, match=r"p\.npz"):
        tnplan.execute(tnplan.plan("p.json"), device="cpu")


def test_a_search_says_how_far_it_is() -> None:
    heard: list[tnplan.Progress] = []
    _, path = searched(progress=heard.append)
    assert heard[-1].detail.ssa_path == path.ssa_path
    assert heard[-1].text.startswith("after ")


def test_a_circuit_becomes_a_network() -> None:
    gate = tnplan.Gate("h", (0,), np.array([[1, 1], [1, -1]]) / np.sqrt(2) + 0j)
    bell = tnplan.GateSequence(2, (gate, tnplan.Gate("cx", (0, 1), np.eye(4, dtype=complex)[[0, 1, 3, 2]])))
    source = tnplan.network(bell, open_qubits=[1, 0], dtype="complex128", output="bell.json")
    assert source.meta["what"] == "circuit, amplitude of open qubits 1, 0, rank-simplified"
    path = tnplan.search("bell.json", unlimited=True, methods=["greedy"], time=0)
    amplitudes = tnplan.execute(tnplan.plan(path), device="cpu").array
    assert amplitudes == pytest.approx(np.eye(2) / np.sqrt(2))


def test_methods_are_a_list_or_one_name() -> None:
    network = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 2, "b": 2, "c": 2})
    assert tnplan.search(network, unlimited=True, methods="greedy", time=0).ssa_path == ((0, 1),)
    for methods in 5, None:
        with pytest.raises(tnplan.InputError, match=f"method: is {methods}; give a list of methods"):
            tnplan.search(network, unlimited=True, methods=methods)  # type: ignore[arg-type]


def test_the_large_steps_of_a_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    _, path = searched()
    tnplan.plan(path, threshold=1, output="s.json")
    chain = tnplan.show("s.json", top=2, plot="s.svg")
    assert len(chain.steps) == len(chain.document["steps"]) == 2
    assert "<svg" in Path("s.svg").read_text()
    capsys.readouterr()
    assert command("show s.json --top 2") == 0
    assert capsys.readouterr().out.split() == str(chain).split()


# fmt: off
REFUSED_SEARCHES: list[Row] = [
    ({"unlimited": False}, "limit", "is not given", "give one limit"),
    ({"max_tensor": 4}, "limit", "is given twice", "give one limit"),
    ({"devices": 2}, "limit", "belong together", "give both"),
    ({"resume": True}, "--resume", "is only for --method joint", "leave it out"),
    ({"resume": True, "methods": ["joint"]}, "--resume", "has no checkpoint", "name the checkpoint, or"),
    ({"time": -1}, "--time", "is -1", 'give seconds, or "auto"'),
    ({"time": "soon"}, "--time", "is 'soon'", 'give seconds, or "auto"'),
    ({"start": ["absent"]}, "absent", "cannot be read (No such file", "check the name and the"),
    ({"output": "absent/p.json"}, "absent/p.json", "its folder does not exist or", "choose a folder that"),
    ({"network": [("a", "b")]}, "network", "is of type list", "give a network"),
]
# fmt: on


@table(REFUSED_SEARCHES)
def test_a_search_refuses_what_it_cannot_do(refusal: Refusal) -> None:
    source = tnplan.workload.lattice(3, 3, 2, kind="trotter", dtype="complex128")
    options = {"network": source, "unlimited": True, "methods": ["greedy"], "time": 0} | refusal.given
    refusal.raised_by(lambda: tnplan.search(options.pop("network"), **options))


# fmt: off
REFUSED_PLANS: list[Row] = [
    ({"memory": "much"}, "--memory", "'much' is not a size", "write bytes, or a"),
    ({"memory": "0"}, "--memory", "'0' is not a size", "write bytes, or a"),
    ({"threshold": "unlimited"}, "--threshold", "'unlimited' is not a size", "write bytes, or a"),
    ({"compress": "x"}, "--compress", "'x' is unknown", "give exchange="),
    ({"compress": 5}, "--compress", "is of type int", "give exchange="),
    ({"path": tnplan.workload.lattice(2, 2, 1)}, "path", "is of type TensorNetwork", "give the path of"),
]
# fmt: on


@table(REFUSED_PLANS)
def test_a_plan_refuses_what_it_cannot_do(refusal: Refusal) -> None:
    options = {"path": searched()[1]} | refusal.given
    refusal.raised_by(lambda: tnplan.plan(options.pop("path"), **options))
