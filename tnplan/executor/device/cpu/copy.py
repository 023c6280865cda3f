"""One permuting copy on the CPU: its tables in wide units and the kernel that carries it out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.protocols.copy import Copy, tables, widen
from tnplan.executor.device.protocols.device import Call

Array = NDArray[Any]

UNIT_DTYPES: dict[int, np.dtype[Any]] = {
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
    16: np.dtype(np.complex128),
}

SMALL_COPY = 4096
"""Elements up to which NumPy copies as fast as the kernel, and without loading numba."""


def bind_small(
    target: Array, source: Array, copy: Copy, target_start: int, source_start: int, add: bool = False
) -> Call:
    """A small copy by NumPy's own strides."""
    into, values = strided(target, target_start, copy, 2), strided(source, source_start, copy, 1)
    return partial(np.add, into, values, out=into) if add else partial(np.copyto, into, values)


def placed_small(target: Array, source: Array, copy: Copy) -> Callable[[int], None]:
    """A small copy from the start of `source`, called with its start in `target`, of which there are few."""
    values = strided(source, 0, copy, 1)
    views: dict[int, Array] = {}

    def run(start: int) -> None:
        if start not in views:
            views[start] = strided(target, start, copy, 2)
        np.copyto(views[start], values)

    return run


def strided(array: Array, start: int, copy: Copy, side: int) -> Array:
    """One side (1: source, 2: target) of a copy as a view of a flat array."""
    axes = (*copy.lead, *copy.axes, (copy.run, 1, 1))
    strides = [axis[side] * array.itemsize for axis in axes]
    return np.lib.stride_tricks.as_strided(array[start:], [axis[0] for axis in axes], strides)


class CopyKernel:
    """A copy's kernel and tables, in units as wide as the strides and `start_divisor` (see `widen`) allow.

    Copies move units of 4, 8 or 16 bytes whatever the type; adding (`add`) works on elements.
    """

    def __init__(self, copy: Copy, dtype: np.dtype[Any], start_divisor: int, add: bool = False) -> None:
        widest = 1 if add else max(UNIT_DTYPES) // dtype.itemsize
        wide, self.unit = widen(copy, start_divisor, widest)
        self.tables = tables(wide)
        self._dtype = dtype if add else UNIT_DTYPES[self.unit * dtype.itemsize]
        self._add = add

    def units(self, array: Array) -> Array:
        """The array as whole units; a tail that is no whole unit is never touched."""
        return array[: len(array) // self.unit * self.unit].view(self._dtype)

    def placed(self, target: Array, source: Array) -> Callable[[int], None]:
        """The whole copy from the start of `source`, called with its start in `target`, in elements."""
        unit = self.unit
        call = self._bound(self.units(target), self.units(source), ..., 0, 0, self.tables.outer)
        return lambda start: call(start // unit)

    def bind(
        self, target: Array, source: Array, target_start: int, source_start: int, first: int, last: int
    ) -> Call:
        """The copy of the outer entries first .. last-1; arrays and starts in units."""
        return self._bound(target, source, target_start, source_start, first, last)

    def _bound(self, target: Array, source: Array, *places: Any) -> Callable[..., None]:
        """A call of the kernel, with its starts and its range of entries."""
        from tnplan.executor.device.cpu.copy_kernel import copy_elements, copy_runs

        arguments = (target, source), self.tables, *places
        if self.tables.run > 1 or self._add:
            return copy_runs.bound(*arguments, self._add)
        return copy_elements.bound(*arguments)
