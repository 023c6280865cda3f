"""Benchmarks use names that exist: they run seldom, and on machines that are rented."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys

import pytest

from tests.support.root import ROOT

FOLDERS = sorted({script.parent.name for script in (ROOT / "benchmarks").glob("*/*.py")})
TOOLS = {
    "pauli_cupauliprop.py": "a rival, started by pauli.py",
    "pauli_rivals.py": "rivals, started by pauli.py",
    "pauli_plot.py": "draws results",
    "published.py": "a table of what others published",
    "small_questions.py": "a table of times without bounds",
    "tracker.py": "values of open questions, beside published ones",
}
"""Scripts without a goal, and why."""
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


def test_every_benchmark_says_its_goal_and_ends_with_a_status() -> None:
    scripts = {path.name: path.read_text() for path in (ROOT / "benchmarks").rglob("*.py")}
    scripts = {name: text for name, text in scripts.items() if "__main__" in text}
    assert TOOLS.keys() <= scripts.keys()
    for name, text in scripts.items():
        says_goal = re.search(r"\bgoals?\b", ast.get_docstring(ast.parse(text)) or "", re.IGNORECASE)
        has_status = re.search(r"(sys\.exit|SystemExit)\(", text)
        assert (says_goal is not None and has_status is not None) != (name in TOOLS), name
