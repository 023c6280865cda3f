"""The NumPy device over an algebra: what the other adds or multiplies, this one does as the algebra."""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.executor.device.cpu.algebra import Algebra, Array
from tnplan.executor.device.cpu.copy import strided
from tnplan.executor.device.cpu.device import PARALLEL_PRODUCTS, NumpyDevice
from tnplan.executor.device.protocols.copy import Copy
from tnplan.executor.device.protocols.device import Call, nothing


class AlgebraDevice(NumpyDevice):
    """A CPU on which schedules without chains are carried out over an algebra.

    Exponents, codecs and chains are those of numbers: what is planned for an algebra has none of them.
    """

    def __init__(self, algebra: Algebra, threads: int = 1) -> None:
        super().__init__(threads)
        self._algebra, self._add = algebra, algebra.add
        self._multiply = lambda a, b, c: algebra.bind_product(a, b, c)()

    def zero(self, target: Array) -> None:
        """Fill with what adds nothing."""
        target.fill(self._algebra.zero)

    def bind_copy(
        self, target: Array, source: Array, copy: Copy, target_start: int = 0, source_start: int = 0,
        rows: tuple[int, int] | None = None, add: bool = False,
    ) -> Call:  # fmt: skip
        """Copy a box, or add it as the algebra does."""
        if not add:
            return super().bind_copy(target, source, copy, target_start, source_start, rows)
        if copy.elements == 0 or (rows is not None and rows[0] == rows[1]):
            return nothing
        # The first row that is added may lie before the start's view: rows are found one by one.
        row, pairs = Copy((), copy.axes, copy.run), []
        leading = [extent for extent, *_ in copy.lead]
        for number in range(*(rows if rows is not None and leading else (0, copy.rows))):
            places = np.unravel_index(number, leading) if leading else ()
            into, terms = (
                strided(view, start + _offset(places, copy, side), row, side)
                for view, start, side in ((target, target_start, 2), (source, source_start, 1))
            )
            pairs.append((into, terms))

        def run() -> None:
            for into, terms in pairs:
                self._add(into, terms, out=into)

        return run

    def bind_sum(
        self, target: Array, source: Array, extents: tuple[int, ...], in_target: tuple[bool, ...]
    ) -> Call:
        """Sum over axes."""
        axes = tuple(axis for axis, is_kept in enumerate(in_target) if not is_kept)
        shape = [extent for extent, is_kept in zip(extents, in_target, strict=True) if is_kept]
        return self._algebra.bind_sum(source.reshape(extents), axes, target.reshape(shape))

    def _bind_product(self, a: Array, b: Array, c: Array) -> Call:
        """A product, its batch or its rows over the threads."""
        n_batch, m, _ = c.shape
        parts = min(self._threads, max(n_batch, m))
        if self._pool is None or parts == 1 or c.size * a.shape[2] < PARALLEL_PRODUCTS:
            return self._algebra.bind_product(a, b, c)
        calls = []
        for part in range(parts):
            # Invariant: parts write different elements, so that they may be formed at once.
            batch, rows = slice(None), slice(None)
            if n_batch >= m:
                batch = slice(n_batch * part // parts, n_batch * (part + 1) // parts)
            else:
                rows = slice(m * part // parts, m * (part + 1) // parts)
            calls.append(self._algebra.bind_product(a[batch, rows], b[batch], c[batch, rows]))
        return self._bind_parallel(calls)


def _offset(places: Any, copy: Copy, side: int) -> int:
    """The offset of a row of the leading axes on one side (1: source, 2: target)."""
    return sum(int(place) * axis[side] for place, axis in zip(places, copy.lead, strict=True))
