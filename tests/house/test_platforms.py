"""Platforms: the page says what support.toml says, and tnplan works without what Windows lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.platforms import PAGE, SUPPORT, with_tables
from tests.support.robustness.windows import MEMORY
from tests.support.root import ROOT

ON_WINDOWS = [sys.executable, "-m", "tests.support.robustness.windows"]
CONTRACT = """
import numpy as np
import tnplan
from tnplan.common.system_calls import installed_memory
a = np.random.default_rng(0).random((8, 8))
print(abs(tnplan.contract("ij,jk,ki->", a, a, a) - np.trace(a @ a @ a)) < 1e-9, installed_memory())
"""
LOCKS = """
import sys
from pathlib import Path
from tnplan.common.errors import InputError
from tnplan.jobs.outputs import lock_file, locked
output = Path(sys.argv[1]) / "r.npy"
with locked(output):
    try:
        with locked(output):
            print("twice")
    except InputError as error:
        print(error.problem)
print(lock_file(output).exists())
"""


def on_windows(home: Path, *words: str) -> str:
    """What a command prints on a Python that lacks what Windows lacks, with a home of its own."""
    surroundings = {"HOME": str(home), "USERPROFILE": str(home), "PYTHONPATH": str(ROOT), "PATH": "/usr/bin"}
    done = subprocess.run(
        [*ON_WINDOWS, *words], cwd=home, env=surroundings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_has_the_tables_of_the_data() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_tables(text) == text
    assert f"less than {SUPPORT['install_mb']} MB" in text


def test_a_table_that_is_not_of_the_data_is_seen() -> None:
    text = PAGE.read_text(encoding="utf-8").replace("| Linux | x86-64 |", "| Linux | sparc |")
    assert with_tables(text) != text


def test_arrays_are_contracted_on_windows(tmp_path: Path) -> None:
    assert on_windows(tmp_path, "-c", CONTRACT).split("\n")[0] == f"True ({MEMORY}, {MEMORY // 2})"


def test_an_output_is_locked_on_windows(tmp_path: Path) -> None:
    lines = on_windows(tmp_path, "-c", LOCKS, str(tmp_path)).splitlines()
    assert lines[0].startswith("is used by another run (process ")
    assert lines[1:] == ["False"]


@pytest.mark.slow
def test_kernels_are_kept_in_the_users_folder_on_windows(tmp_path: Path) -> None:
    code = "import tnplan; print(tnplan.count('independent-sets', 'grid 3x3').value)"
    assert on_windows(tmp_path, "-c", code).split() == ["63"]
    assert list((tmp_path / "AppData/Local/tnplan/numba").iterdir())


@pytest.mark.slow
def test_a_schedule_is_planned_and_carried_out_on_windows(tmp_path: Path) -> None:
    for line in (
        "workload lattice --rows 3 --columns 3 --layers 4 -o net.json",
        "search net.json --unlimited --time 1 -o path.json",
        "plan path.json --devices 2 --hardware cpu -o schedule.json",
        "execute schedule.json -o result.npy --device cpu",
    ):
        on_windows(tmp_path, "-m", "tnplan", *line.split())
    assert (tmp_path / "result.npy").exists()
