"""Files of every format with random damage: status 0, or 2 with one line, in little time and memory."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.effort import repeats
from tests.support.robustness.good_files import good_files
from tests.support.robustness.mutated_files import FORMATS, LIMIT_S, trials
from tests.support.root import ROOT

QUICK, SLOW = 6, repeats(300, 2000)
SEED = 11


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({*FORMATS} - {"network"}))  # a search compiles much
def test_a_few_mutated_files_are_read_or_refused_in_one_line(name: str) -> None:
    done = list(trials(name, SEED, range(QUICK)))
    assert [trial for trial in done if trial.fault] == []
    assert 2 in {trial.status for trial in done}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FORMATS)
def test_mutated_files_are_read_or_refused_in_one_line(name: str) -> None:
    first, faults = 0, []
    while first < SLOW:
        numbers = (str(number) for number in (SEED, first, SLOW))
        command = ["tests.support.robustness.mutated_files", name, *numbers, str(good_files())]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", *command], capture_output=True, text=True, check=False,
            cwd=ROOT, timeout=SLOW * LIMIT_S,
        )  # fmt: skip
        lines = done.stdout.splitlines()
        found = [json.loads(line) for line in lines if line.startswith("[")]
        faults += [one for one in found if len(one) > 3]
        first = max(int(line) for line in lines if not line.startswith("[")) + 1
        if done.returncode:
            faults.append([name, first - 1, f"status {done.returncode}", done.stderr[-500:]])
    assert faults == []
