"""A schedule's text is that of `json.dumps`, and nothing looks for cycles while one is made."""

from __future__ import annotations

import gc
import json
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, nan
from random import Random
from typing import Any, ClassVar

import numpy as np
import pytest

from tnplan.common.collector import collector_at_rest
from tnplan.common.files import plain
from tnplan.planner.schedule.file import JsonText


@dataclass(frozen=True)
class Entry:
    op: ClassVar[str] = "zz"
    b: Any
    a: Any = ()
    unsaved: int = field(default=0, init=False)


NUMBERS = (0, -7, 2**70, True, False, None, 0.0, -0.0, 1e-5, 1e22, 0.1, np.float64(1 / 3))
LEAVES = (*NUMBERS, "", 'a"\\\n\x01', "ä€😀")


def random_value(chance: Random, depth: int) -> Any:
    kind = chance.randrange(5) if depth else 0
    if kind == 0:
        return chance.choice(LEAVES)
    values = [random_value(chance, depth - 1) for _ in range(chance.randrange(4))]
    if kind == 1:
        return Entry(*random_value_pair(chance, depth))
    return values if kind == 2 else tuple(values) if kind == 3 else dict(zip("zöa\n", values, strict=False))


def random_value_pair(chance: Random, depth: int) -> tuple[Any, Any]:
    return random_value(chance, depth - 1), random_value(chance, depth - 1)


def with_op(value: Any) -> Any:
    """Plain values, with the `op` of the dataclasses among them."""
    if isinstance(value, Entry):
        return {"op": value.op, "b": with_op(value.b), "a": with_op(value.a)}
    if isinstance(value, dict):
        return {key: with_op(entry) for key, entry in value.items()}
    return [with_op(entry) for entry in value] if isinstance(value, list | tuple) else plain(value)


@pytest.mark.parametrize("sort", [False, True])
def test_the_text_is_that_of_the_json_module(sort: bool) -> None:
    writer, chance = JsonText(sort=sort), Random(1)
    for _ in range(500):
        value = random_value(chance, 4)
        assert writer.text(value) == json.dumps(with_op(value), sort_keys=sort, separators=(",", ":"))


@pytest.mark.parametrize(
    ("value", "error"), [(nan, ValueError), ((1.0, -inf), ValueError), ({1, 2}, TypeError)]
)
def test_what_is_no_json_is_refused(value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="JSON"):
        JsonText(sort=True).text({"a": value})


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was(enabled: bool) -> None:
    try:
        (gc.enable if enabled else gc.disable)()
        with collector_at_rest():
            with suppress(KeyError), collector_at_rest():
                assert not gc.isenabled()
                raise KeyError
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
