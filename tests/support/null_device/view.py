"""Views of memory that is not there, and inputs of a device that has no values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class NullView:
    """The extent of a flat view; slicing gives the extent of the slice."""

    count: int
    dtype: str

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, piece: slice) -> NullView:
        return NullView(len(range(*piece.indices(self.count))), self.dtype)

    def reshape(self, shape: int) -> NullView:
        """A flat view is flat."""
        return self

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return np.dtype(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the view."""
        return self.count * self.itemsize


class NullInputBlock:
    """Views without values; see `InputBlock`."""

    def __init__(self, views: list[Any]) -> None:
        self.views = views

    def set(self, number: int, values: Any) -> None:
        """Nothing holds the values."""

    def send(self) -> None:
        """Nothing is sent."""
