"""What a report of a run says of the program that ran."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.root import ROOT
from tnplan.executor.contraction.run.run_report import commit


def test_the_commit_is_that_of_the_checkout() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout, which this is not")
    head = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    found = commit()
    assert found is not None
    assert found.removesuffix("+") == head.stdout.strip()
