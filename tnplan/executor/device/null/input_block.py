"""Inputs of a device that holds no values."""

from __future__ import annotations

from typing import Any


class NullInputBlock:
    """Views without values; see `InputBlock`."""

    def __init__(self, views: list[Any]) -> None:
        self.views = views

    def set(self, number: int, values: Any) -> None:
        """Nothing holds the values."""

    def send(self) -> None:
        """Nothing is sent."""
