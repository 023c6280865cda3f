"""Modules whose types are named in signatures, and that are imported when somebody looks these up."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LaterModule:
    """Stands for a module until one of its names is asked for.

    A call imports what it needs while a GPU begins, so that its own module imports little. With this
    `typing.get_type_hints` finds the types all the same. Type checkers see the module itself.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)
