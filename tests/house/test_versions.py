"""The bounds of pyproject.toml hold: commands run with the lowest and the newest versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.robustness.versions import WHICH, faults, install


@pytest.mark.slow
@pytest.mark.parametrize("which", WHICH)
def test_every_command_runs_from_the_wheel(tmp_path: Path, which: str) -> None:
    wrong = install(which, tmp_path)
    if "No matching distribution" in wrong or "connection" in wrong.lower():
        pytest.skip(f"needs a package index with the {which} versions: {wrong[-200:]}")
    assert wrong == ""
    assert faults(which, tmp_path) == []
