"""The wheel and the sdist install into an empty environment, and all commands run there."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.platforms import SUPPORT
from tests.support.robustness.packages import build, faults_of, faults_of_contents
from tests.support.root import ROOT

WITHOUT_PIP_MB = 25
"""What pip takes, which these environments lack."""


def test_every_place_names_the_same_versions_of_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stated = [text.rpartition(" ")[2] for text in project["classifiers"] if ":: Python :: " in text]
    tried = re.findall(r"python: \[(.+)\]", (ROOT / ".github/workflows/ci.yml").read_text())
    assert stated == SUPPORT["python"]
    assert {tuple(re.findall(r"[\d.]+", one)) for one in tried} == {tuple(stated)}
    assert project["requires-python"] == f">={stated[0]}"


@pytest.mark.slow
def test_every_command_runs_from_the_packages(tmp_path: Path) -> None:
    pytest.importorskip("build")
    try:
        packages = build(tmp_path)
    except RuntimeError as error:
        if "No matching distribution" in str(error) or "connection" in str(error).lower():
            pytest.skip(f"needs a package index: {str(error)[-200:]}")
        raise
    wheel, sdist = packages
    assert (wheel.suffix, sdist.suffix) == (".whl", ".gz")
    assert faults_of_contents(wheel, sdist) == []
    for package in packages:
        folder = tmp_path / package.suffix[1:]
        found = faults_of(package, sys.executable, folder)
        if any("No matching distribution" in one for one in found):
            pytest.skip(f"needs a package index: {found[0][-200:]}")
        assert found == []
        files = [path for path in (folder / "environment").rglob("*") if not path.is_symlink()]
        size_mb = sum(path.stat().st_size for path in files if path.is_file()) / 1e6
        assert size_mb <= SUPPORT["install_mb"] - WITHOUT_PIP_MB
