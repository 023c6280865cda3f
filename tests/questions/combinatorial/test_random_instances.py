"""Random instances: all questions, sliced and not, on one rank and on several, against all configurations."""

from __future__ import annotations

from typing import Any

import pytest

import tnplan
from tests.oracles.configurations import PROBLEMS, answers, random_instance
from tests.support.effort import repeats
from tests.support.engines.counting_checks import check, residues, slices, trees
from tests.support.slow import slow_after
from tnplan.jobs.arrays import planning
from tnplan.questions.combinatorial import counting

AT_ONCE = 17
"""Instances of a test; 6 problems with one quick test each are 102 quick instances."""
TESTS, FEW = 10, 6


@pytest.mark.parametrize("first", slow_after(1, range(0, TESTS * AT_ONCE, AT_ONCE)))
@pytest.mark.parametrize("problem", PROBLEMS)
def test_answers_are_those_of_all_configurations(problem: str, first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        check(random_instance(problem, seed), seed)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_trees_answer_as_tables_do(problem: str) -> None:
    with trees():
        for seed in range(FEW):
            check(random_instance(problem, seed), seed)


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, FEW), *(pytest.param(AT_ONCE * k, AT_ONCE, marks=pytest.mark.slow) for k in range(TESTS))],
)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_slices_change_nothing(problem: str, first: int, count: int) -> None:
    with slices() as numbers:
        for seed in range(first, first + count):
            check(random_instance(problem, seed), seed)
    assert max(numbers) > 2


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_number_may_be_found_by_residues(problem: str) -> None:
    with residues():
        for seed in range(1000, 1000 + repeats(4, 10)):
            check(random_instance(problem, seed), seed)


@pytest.mark.parametrize("problem", [each for each in PROBLEMS if each != "ising"])
def test_no_number_is_above_its_bounds(problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of the model, and that of the number in floating point."""
    closer = []

    def noted(bound: int, *arguments: Any) -> int:
        closer.append((bound, counting_at_most(bound, *arguments)))
        return closer[-1][1]

    counting_at_most = counting.at_most
    monkeypatch.setattr(counting, "at_most", noted)
    for seed in range(2000, 2000 + repeats(10, 30)):
        instance = random_instance(problem, seed)
        with residues():
            found = tnplan.count(problem, instance.given, colours=instance.colours).value
        assert found == answers(instance).count
        bound, closest = closer[-1]
        assert found <= closest <= bound
        assert closest <= found * (1 + 2**-11)


def test_little_memory_makes_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def noted(*arguments: Any) -> Any:
        planned = planning.find_schedule(*arguments)
        seen.append(planned.schedule.n_slices)
        return planned

    monkeypatch.setattr(counting, "find_schedule", noted)
    found = tnplan.count("independent-sets", "grid 14x14", memory="100KiB")
    assert found.value == 338752110195939290445247645371206783
    best = tnplan.optimize("independent-sets", "grid 11x11", memory="60KiB")
    assert (best.value, best.n_optima) == (61, 1)
    assert min(seen) > 1
