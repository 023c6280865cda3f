"""Another version of numba, with other inner names: its own calls take the place of compiled kernels."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.house import rules
from tests.support.effort import is_thorough
from tests.support.renamed_numba import INNER, inner_names
from tests.support.root import ROOT

PUBLIC = ("numba", "numba.extending", "numba.core.cgutils")
"""What numba documents for code beside its own, and keeps."""
MAY_LACK = "numba.np.arraymath"
"""A module that is imported early where it is there, and else not."""
ANSWERS = "numba: 10\nkernel: 19\nkept: 10 10\n"


def calls(names: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """What calls give where numba has other names, with empty caches in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "tests.support.renamed_numba", ",".join(names)],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=300,
        env={**os.environ, "TNPLAN_CACHE_DIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip


def test_the_names_are_found() -> None:
    names = inner_names()
    wanted = {"mangler", "_nrt", "_final_module", "load_additional_registries", "_rebuild", "dumps"}
    assert wanted <= set(names)


def test_a_version_with_other_names_calls_kernels_itself(tmp_path: Path) -> None:
    done = calls(["_final_module", "load_additional_registries", "_rebuild"], tmp_path)
    assert (done.returncode, done.stdout) == (0, ANSWERS), done.stderr
    assert len(re.findall("Each call of a kernel takes longer", done.stderr)) == 1


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_name_may_be_another(tmp_path: Path) -> None:
    """One after the other. A name that numba's compiled parts or outer modules need cannot be another."""
    names = inner_names() if is_thorough() else ["mangler", "CompileResult", "get_call_template", "_nrt"]
    n_possible = 0
    for name in names:
        done = calls([name], tmp_path / name)
        if done.stdout.startswith("numba: 10"):
            n_possible += 1
            assert (done.returncode, done.stdout) == (0, ANSWERS), (name, done.stderr)
    assert n_possible > len(names) // 2


def test_no_other_module_uses_inner_names() -> None:
    found = []
    for path in rules.sources(ROOT):
        text = path.read_text()
        if "numba" not in text or str(path.relative_to(ROOT)) in INNER:
            continue
        for one in rules.imports(path, ROOT):
            module = one.name.rpartition(".")[0] or one.name
            if rules.within(one.name, "numba") and not {one.name, module} & {*PUBLIC, MAY_LACK}:
                found.append(str(one))
        if re.search(r"^\s*(import|from) numba", text, re.MULTILINE):
            nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)]
            found += [
                f"{path}:{node.lineno} uses {node.attr}" for node in nodes
                if re.match("_[a-z]", node.attr) and node.attr != "_getvalue"  # which numba documents
                and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
            ]  # fmt: skip
    assert found == []


def test_versions_of_numba_have_bounds() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (numba,) = [one for one in needed if one.startswith("numba")]
    assert re.fullmatch(r"numba>=0\.\d+,<0\.\d+", numba)
