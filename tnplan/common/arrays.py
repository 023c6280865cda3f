"""The type of arrays."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
"""A NumPy array; what it holds, and of which shape, is said where it is used."""
