"""Every tutorial runs from its text alone, in a process of its own and in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.root import ROOT

OF_TORCH_AND_JAX = {"force-matching", "variational-peps"}
"""Pages that the site does not run, since it has neither; tests/house/test_docs.py does."""
PAGES = [
    path for path in sorted((ROOT / "docs" / "tutorials").glob("*.md"))
    if path.stem not in {"index", *OF_TORCH_AND_JAX}
]  # fmt: skip
CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LIBRARIES = {
    "molecule": ("pyscf",), "gallery": ("pyscf",),
    "quimb-on-four-ranks": ("quimb",), "peps-bond-limits": ("quimb",), "circuit-questions": ("qiskit",),
    "gradients": ("scipy",), "vqe-molecule": ("pyscf", "qiskit", "scipy"), "qaoa-light-cones": ("scipy",),
}  # fmt: skip
"""What a tutorial needs beside tnplan."""


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_runs(page: Path, tmp_path: Path) -> None:
    for library in LIBRARIES.get(page.stem, ()):
        pytest.importorskip(library)
    cells = CELL.findall(page.read_text(encoding="utf-8"))
    assert cells, f"{page.name} has no code"
    (tmp_path / "tutorial.py").write_text("\n".join(cells), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "tutorial.py"], cwd=tmp_path, env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_every_tutorial_is_in_the_table_of_contents() -> None:
    index = (ROOT / "docs" / "tutorials" / "index.md").read_text(encoding="utf-8")
    assert {page.stem for page in PAGES} <= set(index.split())


def test_every_tutorial_has_a_number() -> None:
    """By the question that it answers; the numbers of a question follow each other."""
    index = (ROOT / "docs" / "tutorials" / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d)\.(\d) \| [^|]+ \| \[[^]]+\]\((\S+)\.md\) \|$", index, re.MULTILINE)
    assert {name for _, _, name in rows} == {page.stem for page in PAGES} | OF_TORCH_AND_JAX
    assert len(rows) == len({name for _, _, name in rows})
    for question in {row[0] for row in rows}:
        numbers = [int(row[1]) for row in rows if row[0] == question]
        assert numbers == list(range(1, len(numbers) + 1))
