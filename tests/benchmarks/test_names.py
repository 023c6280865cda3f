"""Benchmarks use names that exist: they run seldom, and on machines that are rented."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.support.root import ROOT

FOLDERS = sorted({script.parent.name for script in (ROOT / "benchmarks").glob("*/*.py")})
WRONG_NAME = re.compile(r"(benchmarks/.*\[(?:attr-defined|call-arg|name-defined)\])")


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_benchmarks_use_names_that_exist(folder: str) -> None:
    scripts = [str(script.relative_to(ROOT)) for script in (ROOT / "benchmarks" / folder).glob("*.py")]
    command = [sys.executable, "-m", "mypy", *scripts]  # other options would make mypy read the package anew
    environment = {**os.environ, "MYPYPATH": f"benchmarks/{folder}"}
    checked = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert "source file" in checked.stdout, checked.stdout + checked.stderr
    assert WRONG_NAME.findall(checked.stdout) == []
