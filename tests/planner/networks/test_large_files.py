"""Path files of strangers, ten megabytes and more: each is planned, or refused in one line, within seconds.

The only clock is the limit of every test.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tnplan.calls.plan import plan
from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import BLOCK, ssa_from_linear
from tnplan.planner.passes.load import load_path

Fields = dict[str, Any]


def chain(count: int) -> Fields:
    """Matrices in a row."""
    inputs = [[f"i{number}", f"i{number + 1}"] for number in range(count)]
    sizes = {f"i{number}": 2 for number in range(count + 1)}
    return {"inputs": inputs, "output": ["i0", f"i{count}"], "size_dict": sizes}


def in_a_row(count: int) -> list[list[int]]:
    return [[0, 1], *([count + number, number + 2] for number in range(count - 2))]


def vectors(count: int, size: int = 2) -> Fields:
    """Vectors with open indices: the result has all of them."""
    names = [f"i{number}" for number in range(count)]
    return {"inputs": [[name] for name in names], "output": names, "size_dict": dict.fromkeys(names, size)}


def window(steps: int, width: int) -> Fields:
    """A tensor of `width` indices, one of which is replaced in each step."""
    names = [f"i{number}" for number in range(steps + width)]
    inputs = [names[:width], *([names[number], names[number + width]] for number in range(steps))]
    return {"inputs": inputs, "output": names[steps:], "size_dict": dict.fromkeys(names, 2)}


def odd_extents(count: int) -> Fields:
    fields = vectors(count)
    return {**fields, "size_dict": {name: 2**40 - 2 * k - 1 for k, name in enumerate(fields["output"])}}


HOSTILE: dict[str, tuple[Callable[[], Fields], str]] = {
    "one step of 60,000 numbers": (
        lambda: {"inputs": [[]] * 60_000, "output": [], "size_dict": {}, "ssa_path": [[*range(60_000)]]},
        "has a path of 59,999 steps",
    ),
    "one step of 60,000 matrices": (
        lambda: {**chain(60_000), "path": [[*range(60_000)]]}, "has a path of 59,999 steps",
    ),
    "60,000 steps": (
        lambda: {**chain(60_000), "ssa_path": in_a_row(60_000)}, "has a path of 59,999 steps",
    ),
    "60,000 linear steps": (
        lambda: {**chain(60_000), "path": [[0, 1]] * 59_999}, "has a path of 59,999 steps",
    ),
    "a tensor of 30,000 modes": (
        lambda: {**vectors(30_000), "ssa_path": in_a_row(30_000)}, "has a tensor of more than 2^960 elements",
    ),
    "two tensors of 60,000 modes": (
        lambda: {
            "inputs": [[f"i{k}" for k in range(60_000)]] * 2, "output": [],
            "size_dict": {f"i{k}": 2 for k in range(60_000)}, "ssa_path": [[0, 1]],
        },
        "has a tensor of more than 2^960 elements",
    ),
    "30,000 tensors of 900 modes": (
        lambda: {**window(30_000, 900), "ssa_path": in_a_row(30_001)},
        "has tensors of more than 700,000 modes together",
    ),
    "60,000 slices' indices": (
        lambda: {
            **(fields := vectors(60_000)), "inputs": [fields["output"]], "output": [], "ssa_path": [],
            "sliced_inds": fields["output"],
        },
        "has about 2^60000 slices",
    ),
    "30,000 large extents": (
        lambda: {**odd_extents(30_000), "ssa_path": in_a_row(30_000)}, "has too many large extents",
    ),
}  # fmt: skip


def write(folder: Path, fields: Fields) -> Path:
    file = folder / "p.json"
    file.write_text(json.dumps({"format": "tnplan.path", "version": 1, **fields}))
    return file


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_refused(name: str, tmp_path: Path) -> None:
    fields, problem = HOSTILE[name]
    with pytest.raises(InputError) as refusal:
        plan(write(tmp_path, fields()))
    assert problem in refusal.value.problem
    assert refusal.value.remedy
    assert "\n" not in str(refusal.value)


def test_it_is_planned(tmp_path: Path) -> None:
    trace = {"inputs": [["i"] * 300_000], "output": [], "size_dict": {"i": 2}, "ssa_path": []}
    assert not plan(write(tmp_path, trace)).steps
    ones = {**vectors(20_000, size=1), "ssa_path": [[*range(20_000)]]}
    assert len(plan(write(tmp_path, ones)).steps) == 19_999


def test_a_path_in_python_may_have_more_modes(tmp_path: Path) -> None:
    file = write(tmp_path, {**window(1200, 600), "ssa_path": in_a_row(1201)})
    with pytest.raises(InputError, match=r"more than 700,000 modes.*tnplan\.load_path"):
        plan(file)
    assert len(plan(load_path(file), memory="unlimited").steps) == 1200


@pytest.mark.parametrize("count", [1, 2, 40, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_linear_paths_are_taken_as_a_list_is(count: int) -> None:
    chance, live = Random(count), list(range(count))
    linear, ssa = [], []
    while len(live) > 1:
        step = chance.sample(range(len(live)), min(len(live), chance.choice((1, 2, 2, 3))))
        linear.append(step)
        ssa.append(tuple(live[position] for position in step))
        for position in sorted(step, reverse=True):
            del live[position]
        live.append(count + len(ssa) - 1)
    assert ssa_from_linear(linear, count) == tuple(ssa)
