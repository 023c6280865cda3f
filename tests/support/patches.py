"""What a test has changed does not stay in modules that were imported meanwhile."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

PACKAGE = "tnplan."


class NotedPatch(pytest.MonkeyPatch):
    """A MonkeyPatch that notes which names of modules it changes."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: list[tuple[str, Any, set[str]]] = []
        """Names, their new values, and the modules that were there before."""
        self.numba_variables = False

    def setattr(self, target: Any, name: Any, *rest: Any, **options: Any) -> None:
        """As of MonkeyPatch."""
        if isinstance(target, ModuleType) and target.__name__.startswith(PACKAGE) and rest:
            self.changed.append((name, rest[0], set(sys.modules)))
        super().setattr(target, name, *rest, **options)

    def setenv(self, name: str, *rest: Any, **options: Any) -> None:
        """As of MonkeyPatch."""
        self.numba_variables |= name.startswith("NUMBA_")
        super().setenv(name, *rest, **options)

    def undo(self) -> None:
        """As of MonkeyPatch; numba, which reads its variables now and then, reads them again."""
        super().undo()
        if self.numba_variables and "numba" in sys.modules:
            sys.modules["numba"].config.reload_config()
        self.numba_variables = False

    def left_behind(self) -> list[str]:
        """Modules that have taken a changed name for good: they were imported while it was changed."""
        return [
            f"{module}.{name}"
            for name, value, before in self.changed
            for module in sorted(set(sys.modules) - before)
            if module.startswith(PACKAGE)
            if sys.modules[module].__dict__.get(name) is value
        ]
