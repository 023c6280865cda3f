"""What an engine gives back for a question, before it becomes an answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tnplan.planner.common.arrays import Array

EXACT, STATISTICAL, TRUNCATION = "exact", "statistical", "truncation"
"""Where an error comes from."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """A value, its error with its kind, and what the engine says of its work.

    `gradient` has the derivatives that were asked for, float64 [observable, parameter].
    """

    value: Any
    error: Any
    error_kind: str
    details: dict[str, Any] = field(default_factory=dict)
    gradient: Array | None = None
