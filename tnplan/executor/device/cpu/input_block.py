"""Inputs whose values change between runs, on the CPU: arrays of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class NumpyInputBlock:
    """Flat arrays; see `InputBlock`."""

    def __init__(self, counts: Sequence[int], dtype: str) -> None:
        self.views: list[Any] = [np.zeros(count, dtype) for count in counts]

    def set(self, number: int, values: NDArray[Any]) -> None:
        """Copy the values."""
        np.copyto(self.views[number].reshape(values.shape), values)

    def send(self) -> None:
        """They are there."""
