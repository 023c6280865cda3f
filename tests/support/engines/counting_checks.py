"""All questions about a random instance beside all of its configurations; trees, slices and residues."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

import tnplan
from tests.oracles.configurations import Instance, answers
from tnplan.jobs.arrays import planning
from tnplan.questions.combinatorial import counting, optimum


@contextmanager
def trees() -> Iterator[None]:
    """Inside, no tables of frontiers are taken."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "LEAST_PLANNED_S", -1.0)
        patch.setattr(counting, "MOST_TABLE_S", -1.0)
        yield


@contextmanager
def slices() -> Iterator[list[int]]:
    """Inside, trees are contracted along sliced paths; it gives the numbers of slices."""
    seen: list[int] = []

    def find_sliced_path(*arguments: Any) -> tnplan.ContractionPath:
        return _sliced(planning.find_path(*arguments))

    def find_sliced_schedule(call: Any, *arguments: Any) -> Any:
        planned = planning.find_schedule(call._replace(path=find_sliced_path(call, *arguments)), *arguments)
        seen.append(planned.schedule.n_slices)
        return planned

    with trees(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "find_schedule", find_sliced_schedule)
        patch.setattr(optimum, "find_path", find_sliced_path)
        yield seen


@contextmanager
def residues() -> Iterator[None]:
    """Inside, every number is taken for too large for floating point."""
    with trees(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "EXACT", 0)
        patch.setattr(optimum, "EXACT", 0)
        yield


def check(instance: Instance, seed: int, device: str = "cpu") -> int:
    """Ask every question about an instance: the number of calls. AssertionError where an answer is wrong."""
    expected, problem, calls = answers(instance), instance.problem, 3
    given, options = instance.given, {"colours": instance.colours, "threads": 1 + seed % 4}
    if problem != "ising":
        calls += 1
        assert tnplan.count(problem, given, device=device, **options).value == expected.count, (problem, seed)
        if seed % 8 == 0:
            on_two = tnplan.count(problem, given, devices=2, **options).value
            assert on_two == expected.count, (problem, seed)
    counted = tnplan.count(problem, given, by_size=True, device=device, **options)
    assert counted.by_size == expected.by_size, (problem, seed)
    assert counted.value == sum(expected.by_size.values()), (problem, seed)
    for count_optima in (True, False):
        best = tnplan.optimize(problem, given, count_optima=count_optima, device=device, **options)
        assert best.value == expected.optimum, (problem, seed)
        if best.value is None:
            assert (best.n_optima, best.configuration) == (None, None), (problem, seed)
            continue
        assert best.n_optima == (len(expected.optima) if count_optima else None), (problem, seed)
        assert _shown(instance, best.configuration) in expected.optima, (problem, seed)
    return calls


def _sliced(path: tnplan.ContractionPath) -> tnplan.ContractionPath:
    """The path with some of its indices sliced: they are too small for any memory to make slices."""
    chance = random.Random(str(path.network.inputs))
    indices = sorted(path.network.size_dict)
    chosen = [index for index in indices if path.network.size_dict[index] > 1 and chance.random() < 0.3]
    return replace(path, sliced_inds=tuple(chosen[:4]))


def _shown(instance: Instance, configuration: Any) -> Any:
    """A configuration as the oracle has it."""
    match instance.problem:
        case "independent-sets" | "sat":
            return set(configuration)
        case "matchings" | "dimers":
            return {frozenset(edge) for edge in configuration}
    return configuration
