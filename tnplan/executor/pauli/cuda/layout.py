"""What the kernels of Pauli words are compiled with, and their structs as NumPy's types. Imports no CuPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tnplan.executor.pauli.terms.truncation import NO_LIMIT, TermLimits

MEMBERS = ((8, 32, 8), (64, 8, 8))
"""Commuting rotations for which the keys are read once, at most, where rows have so many words or fewer, by
passes and one by one: a pattern's bits; one where they have more."""
ROTATION_FIELDS = (("sweep", np.int32), ("member", np.int16), ("left", np.int16))
"""The last fields of the struct of a rotation in rotations.cu."""
EVENT = np.dtype(
    [(name, np.uint64) for name in ("n", "added", "listed", "hits", "merged", "revived", "gone")]
    + [(name, np.float64) for name in ("l1", "squares")]
    + [(name, np.uint64) for name in ("passed", "swept", "zeros", "left")]
    + [(name, np.float64) for name in ("swept_l1", "swept_squares")]
    + [(name, np.uint64) for name in ("dead", "packed", "alive", "holes", "movers", "fresh")]
)
"""The kernels' struct Event."""
LIMITS = np.dtype(
    [("merged_cut", np.float64)]
    + [(name, np.int32) for name in ("max_weight", "max_xy", "max_frequency", "has_letters")]
    + [("event", np.int64)]
)
"""The kernels' struct Limits."""


def limits_struct(limits: TermLimits, event: int) -> Any:
    """What a sweep drops, as kernels take it; -1 is no limit of frequencies, which are not followed then."""
    frequency = -1 if limits.max_frequency == NO_LIMIT else limits.max_frequency
    values = limits.merged_cut, limits.max_weight, limits.max_xy, frequency, limits.has_letters, event
    return np.array([values], LIMITS)[0]


def rotation_type(words: int, last: Sequence[tuple[str, type]]) -> np.dtype[Any]:
    """A kernel's struct of a rotation, for rows of `words` words, with these fields at its end."""
    numbers = [(name, np.float64) for name in ("cosine", "sine", "cut")]
    return np.dtype([("generator", np.uint64, (words,)), *numbers, *last])


def pauli_defines(words: int, dtype: str) -> dict[str, str | int]:
    """The definitions of table.cu: 64-bit words of a row, and the type of coefficients."""
    return {"WORDS": words, "REAL": {"float32": "float", "float64": "double"}[dtype]}


def rotations_defines(words: int, dtype: str, by_passes: bool) -> dict[str, str | int]:
    """The definitions of rotations.cu, whose form for few rows is `by_passes`."""
    members = most_members(words, by_passes)
    return {**pauli_defines(words, dtype), "MEMBERS": members, "BY_PASSES": int(by_passes)}


def most_members(words: int, by_passes: bool) -> int:
    """How many rotations are a group, at most."""
    limits = next((limits for max_words, *limits in MEMBERS if words <= max_words), (1, 1))
    return limits[0] if by_passes else limits[1]
