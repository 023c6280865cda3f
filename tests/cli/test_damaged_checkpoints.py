"""Damaged, exchanged and mixed checkpoints of every kind: refused in one line, or the result is the same."""

from __future__ import annotations

import pytest

from tests.support.effort import repeats
from tests.support.robustness.damaged_checkpoints import REFUSALS, SAME, trials
from tests.support.robustness.interrupted_jobs import HAS_ADDON, KINDS

QUICK, SLOW = 5, repeats(20, 60)
SEEDS = (7, 1107)

LONG = ("growth", "sqd")
"""Kinds whose jobs take seconds."""


def faults(kind: str, seed: int, count: int) -> list[object]:
    """Trials whose damaged checkpoint was used to another result, or refused in another way."""
    found = list(trials(kind, seed, count))
    assert any(trial.outcome == REFUSALS for trial in found)
    return [trial for trial in found if trial.outcome not in (REFUSALS, SAME)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in LONG])
def test_a_few_damaged_checkpoints_are_refused(kind: str) -> None:
    assert faults(kind, SEEDS[0], QUICK) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_checkpoints_are_refused(kind: str) -> None:
    if kind == "sqd" and not HAS_ADDON:
        pytest.skip("needs qiskit-addon-sqd")
    assert faults(kind, SEEDS[1], SLOW) == []
