"""Random instances: all questions, sliced and not, on one rank and on several, against all configurations."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

import tnplan
from tests.oracles.configurations import PROBLEMS, Instance, answers, random_instance
from tests.support.slow import slow_after
from tnplan.jobs.arrays import planning
from tnplan.questions.combinatorial import counting, optimum

AT_ONCE = 17
"""Instances of a test; 6 problems with one quick test each are 102 quick instances."""
TESTS = 10


def sliced(path: tnplan.ContractionPath) -> tnplan.ContractionPath:
    """The path with some of its indices sliced: they are too small for any memory to make slices."""
    chance = random.Random(str(path.network.inputs))
    indices = sorted(path.network.size_dict)
    chosen = [index for index in indices if path.network.size_dict[index] > 1 and chance.random() < 0.3]
    return replace(path, sliced_inds=tuple(chosen[:4]))


@pytest.fixture
def trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside, no tables of frontiers are taken."""
    monkeypatch.setattr(counting, "LEAST_PLANNED_S", -1.0)
    monkeypatch.setattr(counting, "MOST_TABLE_S", -1.0)


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch, trees: None) -> Any:
    """Inside, all paths are sliced; it gives the numbers of slices."""
    seen: list[int] = []

    def find_sliced_path(*arguments: Any) -> tnplan.ContractionPath:
        return sliced(planning.find_path(*arguments))

    def find_sliced_schedule(call: Any, *arguments: Any) -> Any:
        planned = planning.find_schedule(call._replace(path=find_sliced_path(call, *arguments)), *arguments)
        seen.append(planned.schedule.n_slices)
        return planned

    monkeypatch.setattr(counting, "find_schedule", find_sliced_schedule)
    monkeypatch.setattr(optimum, "find_path", find_sliced_path)
    return seen


def shown(instance: Instance, configuration: Any) -> Any:
    """A configuration as the oracle has it."""
    match instance.problem:
        case "independent-sets" | "sat":
            return set(configuration)
        case "matchings" | "dimers":
            return {frozenset(edge) for edge in configuration}
    return configuration


@pytest.mark.parametrize("first", slow_after(1, range(0, TESTS * AT_ONCE, AT_ONCE)))
@pytest.mark.parametrize("problem", PROBLEMS)
def test_answers_are_those_of_all_configurations(problem: str, first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        check(random_instance(problem, seed), seed)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_trees_answer_as_tables_do(problem: str, trees: None) -> None:
    for seed in range(AT_ONCE):
        check(random_instance(problem, seed), seed)


@pytest.mark.parametrize("first", slow_after(1, range(0, TESTS * AT_ONCE, AT_ONCE)))
@pytest.mark.parametrize("problem", PROBLEMS)
def test_slices_change_nothing(problem: str, first: int, slices: list[int]) -> None:
    for seed in range(first, first + AT_ONCE):
        check(random_instance(problem, seed), seed)
    assert max(slices) > 2


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_number_may_be_found_by_residues(
    problem: str, monkeypatch: pytest.MonkeyPatch, trees: None
) -> None:  # fmt: skip
    """Every number is taken for too large for floating point."""
    monkeypatch.setattr(counting, "EXACT", 0)
    monkeypatch.setattr(optimum, "EXACT", 0)
    for seed in range(1000, 1010):
        check(random_instance(problem, seed), seed)


def check(instance: Instance, seed: int) -> None:
    expected, problem = answers(instance), instance.problem
    given, options = instance.given, {"colours": instance.colours, "threads": 1 + seed % 4}
    if problem != "ising":
        assert tnplan.count(problem, given, **options).value == expected.count, (problem, seed)
        if seed % 8 == 0:
            assert tnplan.count(problem, given, devices=2, **options).value == expected.count, (problem, seed)
    counted = tnplan.count(problem, given, by_size=True, **options)
    assert counted.by_size == expected.by_size, (problem, seed)
    assert counted.value == sum(expected.by_size.values())
    for count_optima in (True, False):
        best = tnplan.optimize(problem, given, count_optima=count_optima, **options)
        assert best.value == expected.optimum, (problem, seed)
        if best.value is None:
            assert (best.n_optima, best.configuration) == (None, None)
            continue
        assert best.n_optima == (len(expected.optima) if count_optima else None), (problem, seed)
        assert shown(instance, best.configuration) in expected.optima, (problem, seed)


@pytest.mark.parametrize("problem", [each for each in PROBLEMS if each != "ising"])
def test_no_number_is_above_its_bounds(
    problem: str, monkeypatch: pytest.MonkeyPatch, trees: None
) -> None:  # fmt: skip
    """The bound of the model, and that of the number in floating point."""
    closer = []

    def noted(bound: int, *arguments: Any) -> int:
        closer.append((bound, counting_at_most(bound, *arguments)))
        return closer[-1][1]

    counting_at_most = counting.at_most
    monkeypatch.setattr(counting, "EXACT", 0)
    monkeypatch.setattr(counting, "at_most", noted)
    for seed in range(2000, 2030):
        instance = random_instance(problem, seed)
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
