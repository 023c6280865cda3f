"""The check that no module keeps what a test has changed: see `tests.support.patches`."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from tests.support.patches import NotedPatch

CHANGED = ModuleType("tnplan.changed_by_a_test")


@pytest.mark.parametrize(("kept", "said"), [(3, ["tnplan.imported_meanwhile.LIMIT"]), (64, [])])
def test_a_module_that_keeps_a_changed_name_is_found(kept: int, said: list[str]) -> None:
    patch = NotedPatch()
    imported = ModuleType("tnplan.imported_meanwhile")
    imported.__dict__["LIMIT"] = kept
    patch.setattr(CHANGED, "LIMIT", 3, raising=False)
    patch.setitem(sys.modules, imported.__name__, imported)
    try:
        assert patch.left_behind() == said
    finally:
        patch.undo()
    assert not hasattr(CHANGED, "LIMIT")


def test_a_module_that_was_there_before_is_left_alone() -> None:
    patch = NotedPatch()
    imported = ModuleType("tnplan.imported_before")
    imported.__dict__["LIMIT"] = 3
    patch.setitem(sys.modules, imported.__name__, imported)
    patch.setattr(CHANGED, "LIMIT", 3, raising=False)
    try:
        assert patch.left_behind() == []
    finally:
        patch.undo()


def test_numba_forgets_its_variables() -> None:
    import numba

    patch = NotedPatch()
    patch.setenv("NUMBA_DISABLE_JIT", "1")
    try:
        numba.config.reload_config()
        assert numba.config.DISABLE_JIT
    finally:
        patch.undo()
    assert not numba.config.DISABLE_JIT
