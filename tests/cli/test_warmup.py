"""`tnplan warmup`: what it compiles and says, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

import tnplan
from tnplan.calls import warmup as module
from tnplan.cli.main import run
from tnplan.common.errors import InputError
from tnplan.executor.statevector.scheduling.qubit_cover import COVERS

PART = "sorting of gates"


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty caches, and one part of all, for the time that it takes."""
    monkeypatch.setenv("TNPLAN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(module, "CPU_PARTS", {PART: module.CPU_PARTS[PART]})
    return tmp_path


def test_kernels_are_compiled_once(caches: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["warmup", "--device", "cpu"]) == 0
    said = capsys.readouterr()
    assert said.err == f"1 of 1: {PART}\n"
    n_kernels = len(COVERS.all())
    assert said.out.startswith(f"{n_kernels} files compiled in ")
    assert said.out.endswith(f" s, in {caches}\n")
    assert len(list((caches / "cpu-kernels").iterdir())) == n_kernels
    assert tnplan.warmup(device="cpu").compiled == 0


def test_what_cannot_be_done_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "sees_gpu", lambda: False)
    with pytest.raises(InputError, match="needs a GPU"):
        tnplan.warmup(device="gpu")
    monkeypatch.setattr(module, "CPU_PARTS", {"no such part": None})
    with pytest.raises(InputError, match="warmup of no such part: failed"):
        tnplan.warmup(device="cpu")
    monkeypatch.setenv("TNPLAN_CACHE_DIR", "0")
    with pytest.raises(InputError, match="TNPLAN_CACHE_DIR"):
        tnplan.warmup(device="cpu")
