"""The lower bounds of pyproject.toml hold: all commands run with the lowest versions that it allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.robustness.lowest_versions import faults, install, lowest


@pytest.mark.slow
def test_every_command_runs_with_the_lowest_versions(tmp_path: Path) -> None:
    wrong = install(tmp_path / "lowest", lowest())
    if "No matching distribution" in wrong or "connection" in wrong.lower():
        pytest.skip(f"needs a package index with the lowest versions: {wrong[-200:]}")
    assert wrong == ""
    assert faults(tmp_path / "lowest", tmp_path / "work") == []
