"""Every block of Python of every page runs, in its order, in a folder with small files of the names in it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

import pytest

from tests.docs.page_files import FILES, FILES_OF_PAGES, make
from tests.support.root import ROOT

PAGES = [
    path for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "_build" not in path.parts and "jupyter_execute" not in path.parts and path.name != "cli.md"
]  # fmt: skip
FENCE = re.compile(r"^ *```+ *(\S.*)$", re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BASH = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"\"([A-Za-z][\w.-]*\.[a-z]\w+)\"")
LIBRARIES = {
    "torch", "jax", "cirq", "qiskit", "quimb", "pyscf", "pennylane", "scipy", "qiskit_addon_sqd",
    "matplotlib",
}  # fmt: skip
"""What a block may import that tnplan does not bring; without it the page ends there."""
LONGEST_S = 500

CIRCUIT = 'import tnplan\ncircuit = tnplan.Circuit("circuit.qasm")\n'
INTEGRALS = """
from types import SimpleNamespace
import numpy as np
from tests.support.engines.sbd import every_string, random_integrals
from tnplan.executor.sbd.basis.integrals import dense_two
integrals = random_integrals(6, 5, 5, 0)
h1, eri, alpha_integers = integrals.one, dense_two(integrals), every_string(6, 5)
mol = SimpleNamespace(energy_nuc=lambda: integrals.core)
samples = np.random.default_rng(0).random((50, 12)) < 5 / 6
"""
TREE = """
import cotengra
import tnplan
inputs, sizes = [("a", "b"), ("b", "c"), ("c", "a")], {"a": 4, "b": 5, "c": 6}
tree = cotengra.GreedyOptimizer().search(inputs, (), sizes)
"""
SUPPOSED = {
    "compression.md": "import numpy as np\narray = np.random.default_rng(0).standard_normal((32, 32))\n",
    "how-many-gpus.md": TREE, "sbd.md": INTEGRALS,
    **dict.fromkeys(("methods.md", "samples.md", "large-circuits.md"), CIRCUIT),
    "circuit-gradients.md": "import tnplan\n", "statevector.md": "import tnplan\n",
}  # fmt: skip
"""What a page supposes that the reader has."""
FILES_LIKE = {"samples.md": "questions.md", "large-circuits.md": "questions.md", "methods.md": "questions.md"}
"""Pages that take the files of another one."""

LANGUAGES = {
    "python": "runs here",
    "{code-cell} python": "test_tutorials.py",
    "bash": "test_commands_run.py, but for the installations below",
    "qasm": "files of the examples, by page_files.py",
    "toml": "tests/house/test_docs.py", "json": "tests/house/test_docs.py",
    "text": "no commands: a file format, or formulas",
    "bibtex": "no commands: an entry for a list of references",
    "{toctree}": "Sphinx, in make docs", "{include} ../../CHANGELOG.md": "Sphinx, in make docs",
}  # fmt: skip
"""The languages of blocks, and where they are run or read."""
INSTALLS = ("module ", "python -m venv ", "source ", "pip ", "conda ", "srun -n 1 ")
"""The lines of blocks of bash that are no job script: they install on a cluster."""


def blocks_of(page: Path) -> list[str]:
    """The blocks of Python up to the first whose libraries are not here: later ones may need it."""
    blocks = PYTHON.findall(page.read_text(encoding="utf-8"))
    return list(takewhile(lambda block: not missing(block), blocks))


def missing(block: str) -> set[str]:
    """The libraries that a block imports and that are not here."""
    imported: set[str] = set()
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            imported.add(node.module.partition(".")[0])
            imported |= {node.module.partition(".")[2]} & LIBRARIES
    return {name for name in imported & LIBRARIES if find_spec(name) is None}


def run(page: Path, folder: Path) -> None:
    """Run the blocks of a page as one program, in a folder with the files that they name."""
    blocks = blocks_of(page)
    if not blocks:
        pytest.skip("needs libraries that are not here")
    text = "\n".join(blocks)
    if ".qasm" in text or SUPPOSED.get(page.name) == CIRCUIT:
        pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    supposed = SUPPOSED.get(page.name, "")
    for name in FILE.findall(supposed + text):
        if name in FILES or (page.name, name) in FILES_OF_PAGES:
            make(FILES_LIKE.get(page.name, page.name), folder / name)
    (folder / "page.py").write_text(f"{supposed}\n{text}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=folder, capture_output=True, text=True, timeout=LONGEST_S,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if PYTHON.search(page.read_text(encoding="utf-8"))],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)  # fmt: skip
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    run(page, tmp_path)


def test_every_block_has_a_language_that_is_run_or_listed() -> None:
    found = {name for page in PAGES for name in FENCE.findall(page.read_text(encoding="utf-8"))}
    assert found == LANGUAGES.keys()


def test_blocks_of_bash_are_job_scripts_or_installations() -> None:
    texts = [text for page in PAGES for text in BASH.findall(page.read_text(encoding="utf-8"))]
    others = [text for text in texts if not text.startswith("#!/bin/bash\n")]
    assert len(others) < len(texts)
    for text in others:
        assert [line for line in text.splitlines() if not line.startswith(INSTALLS)] == []


def test_a_block_that_fails_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```python\nassert x == 2, 'of the second block'\n```\n")
    with pytest.raises(AssertionError, match="of the second block"):
        run(page, tmp_path)
