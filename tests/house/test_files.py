"""Files: their length, what they say of themselves, and what may not stand in them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.house import rules
from tests.support.root import ROOT

LINES_LIMIT = 800


def test_files_are_short() -> None:
    others = [path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    lengths = {path: len(path.read_text().splitlines()) for path in [*rules.sources(ROOT), *others]}
    assert {str(path): lines for path, lines in lengths.items() if lines > LINES_LIMIT} == {}


def test_files_say_what_they_do() -> None:
    begins = re.compile(r'r?"""\S')
    silent = [str(path) for path in rules.sources(ROOT) if not begins.match(path.read_text())]
    assert silent == []


def test_no_path_of_a_machine_stands_in_the_repository() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("needs a git checkout, which this is not")
    machine = re.compile(r"(?<![\w.])/(work|tmp|root|home)/\w")
    found = []
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in {".npz", ".npy", ".png"} or not path.is_file() or path == Path(__file__).resolve():
            continue
        found += [f"{name}: {match.group()}" for match in machine.finditer(path.read_text(errors="replace"))]
    assert found == []


def test_kernels_are_kept_where_tnplan_keeps_what_it_compiles() -> None:
    """Numba's own places are none where installation and home are read-only, and may be written by others."""
    files = rules.sources(ROOT)
    assert [str(path) for path in files if re.search(r"""cache=True|"cache": True""", path.read_text())] == []


def test_no_rank_waits_for_a_whole_device() -> None:
    """CUDA's wait for a device waits for its neighbours in the process, which may wait for this rank."""
    wait = re.compile(r"deviceSynchronize|Device\([^)]*\)\.synchronize|cuCtxSynchronize")
    files = (ROOT / "tnplan" / "executor").rglob("*.py")
    assert [str(path.relative_to(ROOT)) for path in files if wait.search(path.read_text())] == []
