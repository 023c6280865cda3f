"""A contraction with a bond limit without values: the same steps on shapes, which count what they take.

`ShapeLibrary` stands for NumPy. What an array takes is free again as soon as nothing refers to it: as that of
NumPy's arrays, by the counts of references.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from tnplan.executor.bond_limited.network import BondLimitedStep, contract_with_bond_limit
from tnplan.executor.bond_limited.over_ranks import HEADER, ArrayExchange, contract_over_ranks
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import Communicator

OF_VALUES = 1.5
"""Any number that is read: tensors are scaled, and no singular value is below a cutoff."""


class StepWork:
    """What steps take: the bytes that are there, and at most, and how many pairs are contracted.

    `operations` counts products, decompositions and copies by their kind, their dtype and their extents.
    `cuts` says how many bonds lose singular values. `messages` go to other ranks or come from there, with
    so many bytes each way.
    """

    def __init__(self) -> None:
        self.live_bytes, self.peak_bytes = 0, 0
        self.pairs, self.cuts = 0, 0
        self.messages, self.sent_bytes, self.received_bytes = 0, 0, 0
        self.operations: Counter[tuple[Any, ...]] = Counter()

    def take(self, size_bytes: int) -> None:
        """Take memory, or give it back where it is negative."""
        self.live_bytes += size_bytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)


class _Memory:
    """The memory of an array and of its views."""

    def __init__(self, work: StepWork, size_bytes: int) -> None:
        self._work, self._size_bytes = work, size_bytes
        work.take(size_bytes)

    def __del__(self) -> None:
        self._work.take(-self._size_bytes)


class ShapeArray:
    """An array of NumPy without values: its shape, its strides in elements, and whose memory it is."""

    def __init__(
        self, work: StepWork, shape: Sequence[int], dtype: Any, strides: Sequence[int] | None = None,
        memory: _Memory | None = None,
    ) -> None:  # fmt: skip
        self.shape, self.dtype, self._work = tuple(shape), np.dtype(dtype), work
        self.size, self.ndim = prod(self.shape), len(self.shape)
        self._strides = _row_major(self.shape) if strides is None else tuple(strides)
        self._memory = _Memory(work, self.size * self.dtype.itemsize) if memory is None else memory

    def _view(self, shape: Sequence[int], strides: Sequence[int]) -> ShapeArray:
        return ShapeArray(self._work, shape, self.dtype, strides, self._memory)

    def _new(self, shape: Sequence[int], dtype: Any = None) -> ShapeArray:
        return ShapeArray(self._work, shape, self.dtype if dtype is None else dtype)

    def _copy(self, shape: Sequence[int]) -> ShapeArray:
        """A copy in another order."""
        # As a cube of float64, which `rates` copies.
        side = (self.size * self.dtype.itemsize / 8) ** (1 / 3)
        self._work.operations["copy", "float64", side, side, side] += 1
        return self._new(shape)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def T(self) -> ShapeArray:  # noqa: N802
        """As NumPy has it."""
        return self.transpose(range(self.ndim)[::-1])

    @property
    def real(self) -> ShapeArray:
        """A view of half of it, or itself."""
        return self

    imag = real

    @property
    def strides(self) -> tuple[int, ...]:
        """As NumPy has them."""
        return tuple(stride * self.dtype.itemsize for stride in self._strides)

    def transpose(self, order: Sequence[int]) -> ShapeArray:
        """A view."""
        return self._view([self.shape[axis] for axis in order], [self._strides[axis] for axis in order])

    def reshape(self, *shape: Any) -> ShapeArray:
        """A view where the strides allow it, or a copy."""
        wanted = list(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        if -1 in wanted:
            wanted[wanted.index(-1)] = self.size // max(1, -prod(wanted))
        strides = _strides_of_view(self.shape, self._strides, wanted)
        return self._copy(wanted) if strides is None else self._view(wanted, strides)

    def contiguous(self) -> ShapeArray:
        """Itself, or a copy in the order of its axes."""
        flat = _strides_of_view(self.shape, self._strides, [self.size])
        return self if flat in ([0], [1]) else self._copy(self.shape)

    def astype(self, dtype: Any, copy: bool = True) -> ShapeArray:
        """A copy, or itself where that is enough."""
        return self if not copy and self.dtype == dtype else self._new(self.shape, dtype)

    def conj(self) -> ShapeArray:
        """A copy of complex values."""
        return self._new(self.shape) if self.dtype.kind == "c" else self

    def view(self, dtype: Any) -> ShapeArray:
        """Parts of complex values: for their largest alone."""
        return self

    def max(self) -> float:
        """Any number."""
        return OF_VALUES

    min = item = max

    def sum(self) -> int:
        """Of truth values: all are true."""
        return self.size

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int | np.integer):
            return OF_VALUES
        keys = key if isinstance(key, tuple) else (key,)
        shape, strides = list(self.shape), list(self._strides)
        for axis, one in enumerate(keys):
            shape[axis] = len(range(shape[axis])[one])
            strides[axis] *= one.step or 1
        return self._view(shape, strides)

    def __matmul__(self, other: ShapeArray) -> ShapeArray:
        dtype = np.result_type(self.dtype, other.dtype)
        # NumPy casts an operand of another dtype to that of the result first.
        cast = [one.astype(dtype, copy=False) for one in (self, other)]
        batch = max(self.shape[:-2], other.shape[:-2], key=len)
        m, k, n = self.shape[-2], self.shape[-1], other.shape[-1]
        self._work.operations["product", dtype.name, m, k, n] += prod(batch)
        return cast[0]._new((*batch, m, n), dtype)

    def _by_element(self, other: Any = None, dtype: Any = None) -> ShapeArray:
        both = (self, other) if isinstance(other, ShapeArray) else (self,)
        shape = np.broadcast_shapes(*(one.shape for one in both))
        return self._new(shape, dtype or np.result_type(*(one.dtype for one in both)))

    def _in_place(self, other: Any) -> ShapeArray:
        return self

    __mul__ = __rmul__ = __sub__ = __truediv__ = __pow__ = _by_element
    __imul__ = __iadd__ = __itruediv__ = _in_place

    def __gt__(self, other: Any) -> ShapeArray:
        return self._by_element(other, np.bool_)


class ShapeLibrary:
    """What the steps take of NumPy, for arrays without values."""

    def __init__(self, work: StepWork) -> None:
        self._work = work
        self.linalg = SimpleNamespace(cholesky=self._cholesky, eigh=self._eigh, qr=self._qr, svd=self._svd)
        self.moveaxis, self.ascontiguousarray = self._moveaxis, ShapeArray.contiguous

    def array(self, shape: Sequence[int], dtype: Any) -> ShapeArray:
        """A new array."""
        return ShapeArray(self._work, shape, dtype)

    def eye(self, n: int, dtype: Any) -> ShapeArray:
        """A unit matrix."""
        return self.array((n, n), dtype)

    def asarray(self, values: np.ndarray) -> ShapeArray:
        """One without the values."""
        return self.array(values.shape, values.dtype)

    def vdot(self, a: ShapeArray, b: ShapeArray) -> np.float64:
        """Any number."""
        return np.float64(OF_VALUES)

    def sqrt(self, array: ShapeArray) -> ShapeArray:
        """Another array."""
        return array._by_element()

    def where(self, condition: ShapeArray, array: ShapeArray, other: float) -> ShapeArray:
        """Another array."""
        return array._by_element()

    def tensordot(self, a: ShapeArray, b: ShapeArray, axes: tuple[int, int] | int) -> ShapeArray:
        """As NumPy does it: as a product of matrices, which may be copies."""
        if isinstance(axes, int):
            return (a.reshape(-1, 1) @ b.reshape(1, -1)).reshape(*a.shape, *b.shape)
        first = [axis for axis in range(a.ndim) if axis != axes[0]]
        second = [axis for axis in range(b.ndim) if axis != axes[1]]
        left = a.transpose([*first, axes[0]]).reshape(-1, a.shape[axes[0]])
        right = b.transpose([axes[1], *second]).reshape(b.shape[axes[1]], -1)
        return (left @ right).reshape([a.shape[k] for k in first] + [b.shape[k] for k in second])

    def _moveaxis(self, array: ShapeArray, source: int, target: int) -> ShapeArray:
        order = [axis for axis in range(array.ndim) if axis != source]
        order.insert(target % array.ndim, source)
        return array.transpose(order)

    def _counted(self, kind: str, matrix: ShapeArray) -> None:
        self._work.operations[kind, matrix.dtype.name, *matrix.shape] += 1

    def _cholesky(self, matrix: ShapeArray) -> ShapeArray:
        self._counted("cholesky", matrix)
        return self.array(matrix.shape, matrix.dtype)

    def _eigh(self, matrix: ShapeArray) -> tuple[ShapeArray, ShapeArray]:
        self._counted("eigh", matrix)
        return self.array(matrix.shape[:1], np.float64), self.array(matrix.shape, matrix.dtype)

    def _qr(self, matrix: ShapeArray, mode: str = "reduced") -> Any:
        self._counted("qr" if mode == "r" else "qr of two", matrix)
        copy, n = self.array(matrix.shape, matrix.dtype), min(matrix.shape)  # LAPACK overwrites it
        q = None if mode == "r" else self.array((matrix.shape[0], n), matrix.dtype)
        del copy
        r = self.array((n, matrix.shape[1]), matrix.dtype)
        return r if q is None else (q, r)

    def _svd(self, matrix: ShapeArray, full_matrices: bool = False) -> tuple[ShapeArray, ...]:
        self._counted("svd", matrix)
        n = min(matrix.shape)
        shapes = (matrix.shape[0], n), (n,), (n, matrix.shape[1])
        return tuple(self.array(shape, matrix.dtype) for shape in shapes)


def dry_run(
    network: Sequence[Mapping[int, int]], steps: Sequence[BondLimitedStep], max_bond: int, dtype: str
) -> StepWork:
    """What steps take of a network, whose tensors have the extents of their bonds by the neighbour."""
    work = StepWork()
    library = ShapeLibrary(work)
    arrays = [library.array([*bonds.values()], dtype) for bonds in network]
    value = contract_with_bond_limit(
        arrays, [list(bonds) for bonds in network], steps, max_bond, 0.0, library
    )
    work.pairs, work.cuts = len(network) - 1, len(value.discarded)
    return work


class ShapeExchange(ArrayExchange):
    """What brings shapes from rank to rank, and counts the messages of what has values."""

    def __init__(self, ranks: Communicator, library: ShapeLibrary, work: StepWork) -> None:
        super().__init__(ranks, np)
        self._library, self._work = library, work

    def send(self, peer: int, numbers: Sequence[int], array: ShapeArray | None = None) -> None:
        """Send numbers, and perhaps a shape."""
        super().send(peer, numbers, array)
        self._work.sent_bytes += self._counted(array)

    def receive(self, peer: int) -> tuple[list[int], Any]:
        """What the peer sends next."""
        numbers, array = super().receive(peer)
        self._work.received_bytes += self._counted(array)
        return numbers, array

    def _counted(self, array: ShapeArray | None) -> int:
        """The bytes of a header and an array, each a message."""
        self._work.messages += 1 if array is None else 2
        header_bytes = HEADER * np.dtype(np.int64).itemsize
        return header_bytes + (0 if array is None else array.size * array.dtype.itemsize)

    def _send_array(self, peer: int, array: ShapeArray) -> None:
        array.contiguous()

    def _receive_array(self, peer: int, shape: Sequence[int], dtype: str) -> ShapeArray:
        return self._library.array(shape, dtype)


def dry_run_over_ranks(
    network: Sequence[Mapping[int, int]], steps: Sequence[BondLimitedStep], max_bond: int, dtype: str,
    owners: Sequence[int],
) -> list[StepWork]:  # fmt: skip
    """What steps take of each rank, where tensors have owners."""

    def on_rank(ranks: Communicator) -> StepWork:
        work = StepWork()
        library = ShapeLibrary(work)
        arrays = [
            library.array([*bonds.values()], dtype) if owner == ranks.rank else None
            for bonds, owner in zip(network, owners, strict=False)
        ]
        neighbours = [list(bonds) for bonds in network]
        exchange = ShapeExchange(ranks, library, work)
        contract_over_ranks(arrays, neighbours, steps, owners, (max_bond, 0.0), exchange, dtype, library)
        return work

    return run_ranks(max(owners) + 1, on_rank)


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _strides_of_view(shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> list[int] | None:
    """The strides of a view with another shape; None where only a copy has it."""
    runs: list[list[int]] = []
    """Extents and strides of axes that lie one in another."""
    for extent, stride in zip(shape, strides, strict=True):
        if extent != 1:
            if runs and runs[-1][1] == extent * stride:
                runs[-1] = [runs[-1][0] * extent, stride]
            else:
                runs.append([extent, stride])
    found, left = [], [list(run) for run in reversed(runs)]
    for extent in reversed(wanted):
        if extent == 1 or not left:
            found.append(0)
            continue
        if left[0][0] % extent:
            return None
        found.append(left[0][1])
        left[0] = [left[0][0] // extent, left[0][1] * extent]
        if left[0][0] == 1:
            left.pop(0)
    return found[::-1]
