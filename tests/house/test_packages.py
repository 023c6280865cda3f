"""The wheel and the sdist install into an empty environment, and all commands run there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.robustness.packages import build, faults_of


@pytest.mark.slow
def test_every_command_runs_from_the_packages(tmp_path: Path) -> None:
    pytest.importorskip("build")
    try:
        packages = build(tmp_path)
    except RuntimeError as error:
        if "No matching distribution" in str(error) or "connection" in str(error).lower():
            pytest.skip(f"needs a package index: {str(error)[-200:]}")
        raise
    assert [package.suffix for package in packages] == [".whl", ".gz"]
    for package in packages:
        folder = tmp_path / package.suffix[1:]
        found = faults_of(package, sys.executable, folder)
        if any("No matching distribution" in one for one in found):
            pytest.skip(f"needs a package index: {found[0][-200:]}")
        assert found == []
