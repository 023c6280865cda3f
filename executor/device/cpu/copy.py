"""One permuting copy on the CPU: its tables in wide units and the kernel that carries it out."""

from __future__ import annotations

from collections.abc import Callable
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
        target, source, unit = self.units(target), self.units(source), self.unit
        kernel, sizes = self._kernel(target, source)
        t_table, s_table, outer = self.tables.target, self.tables.source, self.tables.outer
        return lambda start: kernel(target, source, t_table, s_table, start // unit, 0, 0, outer, *sizes)

    def bind(
        self, target: Array, source: Array, target_start: int, source_start: int, first: int, last: int
    ) -> Call:
        """The copy of the outer entries first .. last-1; arrays and starts in units."""
        kernel, sizes = self._kernel(target, source)
        t_table, s_table = self.tables.target, self.tables.source
        return lambda: kernel(
            target, source, t_table, s_table, target_start, source_start, first, last, *sizes
        )

    def _kernel(self, target: Array, source: Array) -> tuple[Callable[..., None], tuple[int, ...]]:
        """The kernel, compiled by copying nothing, and its arguments after the range of entries."""
        from tnplan.executor.device.cpu.copy_kernel import copy_elements, copy_runs

        table = self.tables
        sizes: tuple[int, ...] = (table.outer, table.middle, table.columns)
        kernel: Callable[..., None] = copy_elements
        if table.run > 1 or self._add:
            kernel, sizes = copy_runs, (*sizes, table.run, self._add)
        kernel(target, source, table.target, table.source, 0, 0, 0, 0, *sizes)
        return kernel, sizes
