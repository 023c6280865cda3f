"""benchmarks/several_gpus.py on the CPU: what runs, is ended or left out, and what the file says of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mpirun import needs_mpi
from tests.support.root import ROOT

RANKS = 2


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "contraction"))


@needs_mpi
@pytest.mark.slow
def test_slices_are_compared_with_those_of_one_device(tmp_path: Path) -> None:
    output = tmp_path / "several.json"
    chosen = ("--only", "one GPU, fp32, zu", "--only", "fp32, other", "--only", "cuTENSORMp")
    words = ("--device", "cpu", "--ranks", str(RANKS), *chosen, "--note", "a note", "-o", output)
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "several_gpus.py", *words], capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    document = json.loads(output.read_text())
    assert document["note"] == "a note"
    reasons = {stage["stage"]: stage["status"] for stage in document["stages"]}
    assert reasons["slices, cuTENSORMp"].startswith("left out: ")
    assert reasons["slices, fp32, other networks"] == "done"
    assert [entry["devices"] for entry in document["slices"]] == [1, RANKS]
    assert all(entry["R"] == pytest.approx(1) for entry in document["slices"])
    assert "== slices, fp32, other networks: done" in output.with_suffix(".log").read_text()


def test_a_stage_is_ended_at_its_limit_and_later_ones_are_left_out(tmp_path: Path) -> None:
    from several_gpus import Machine, Run, Stage

    output = tmp_path / "several.json"
    run = Run(Machine((), RANKS, "cpu", ""), output, 6.0, "")
    write = "import sys, time; open(sys.argv[2], 'w').write('{\"rows\": []}'); time.sleep(60)"
    run.batch([Stage("long", ("-c", write), 0.5), Stage("fails", ("-c", "sys"), 5, result=False)])
    run.batch([Stage("late", ("-c", "0"), 60), Stage("absent", ("-c", "0"), 1, refusal="no input")])
    run.close()
    long, fails, late, absent = json.loads(output.read_text())["stages"]
    assert long["status"] == "ended at its limit of 2 s"
    assert long["results"] == {"rows": []}
    assert fails["status"] == "ended with status 1"
    assert "NameError" in fails["last_lines"][-1]
    assert late["status"].startswith("left out: it takes 60 s, and ")
    assert absent["status"] == "left out: no input"
    assert late["results"] is absent["results"] is None


def test_paths_of_every_stage_are_there() -> None:
    from several_gpus import SHARED, SMALL, Machine, batches, path_file

    for ranks in (1, 2, 4, 8):
        machine = Machine(("NVIDIA H100",) * ranks, ranks, "dgx-h100", "75GiB")
        for batch in batches(machine):
            assert len({stage.gpu for stage in batch}) == len(batch)
            for stage in batch:
                words = [Path(word) for word in stage.words if word.endswith((".py", ".json"))]
                assert words
                assert all(word.exists() for word in words)
    assert all(path_file(stem).exists() for stem in (*SHARED, SMALL))
