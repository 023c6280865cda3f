"""The interface of a device, as replay uses it. Knows boxes, strides, flat buffers; not schedules or ranks.

A device owns one arena of bytes. Everything else is a flat typed view of it, made once. Heavy work is bound
once to its views and shapes and becomes a callable without arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

from numpy.typing import NDArray

from tnplan.executor.device.protocols.copy import Copy, row_major

Call = Callable[[], None]
View = Any
"""A flat typed view of a device's memory: a NumPy array on the CPU."""
Mark = Any
"""A point in a device's work, made by `Device.marks`."""


@dataclass(frozen=True)
class ContractShape:
    """One local contraction: a as [batch | m | k], b as [batch | n | k], both row-major and contiguous.

    `batch`, `m` and `n` hold (extent, stride in c) of each mode, in elements; `k` is the contracted extent.
    """

    batch: tuple[tuple[int, int], ...]
    m: tuple[tuple[int, int], ...]
    n: tuple[tuple[int, int], ...]
    k: int

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The extents of batch, m, n and k."""
        b, m, n = (prod(extent for extent, _ in part) for part in (self.batch, self.m, self.n))
        return b, m, n, self.k

    @property
    def direct(self) -> str | None:
        """'mn' or 'nm' where c is stored exactly as [batch | m | n] or [batch | n | m], else None."""
        for name, parts in (("mn", self.batch + self.m + self.n), ("nm", self.batch + self.n + self.m)):
            modes = [mode for mode in parts if mode[0] != 1]
            if tuple(stride for _, stride in modes) == row_major([extent for extent, _ in modes]):
                return name
        return None


@dataclass(frozen=True)
class FusedShape:
    """A chain: `operand` contracted with each of `branches` in turn, done in one pass over the large tensors.

    Each tensor lists (mode, extent) as it is stored, row-major and contiguous; mode numbers are labels. A
    mode that a branch shares with what the chain holds by then is summed; its others join. A chain that
    `adds` adds to `out`; one that `closes` reads it, and only sums up the products with it; others write it.
    """

    operand: tuple[tuple[int, int], ...]
    branches: tuple[tuple[tuple[int, int], ...], ...]
    out: tuple[tuple[int, int], ...]
    adds: bool = False
    closes: bool = False


def nothing() -> None:
    """The call of work that has no elements."""


def call_in_turn(calls: Sequence[Call]) -> Call:
    """One call that makes all calls in order."""
    if len(calls) < 2:
        return calls[0] if calls else nothing

    def run() -> None:
        for call in calls:
            call()

    return run


class Device(Protocol):
    """What replay needs of a device.

    Work is done in the order of its calls. A call may return before its work is done; `synchronize`, and what
    hands values to the host, waits.
    """

    name: str
    peak_bytes: int
    """The most bytes that the device layer held for tensor data at once."""

    def allocate(self, size_bytes: int) -> None:
        """Allocate the arena, once; raises InputError where there is too little memory."""

    def view(self, offset_bytes: int, count: int, dtype: str) -> View:
        """A flat view of `count` elements of the arena."""

    def bind_copy(
        self, target: View, source: View, copy: Copy, target_start: int = 0, source_start: int = 0,
        rows: tuple[int, int] | None = None, add: bool = False,
    ) -> Call:  # fmt: skip
        """Copy a box, or the given range of its leading rows; with `add`, add it to the target."""

    def bind_load(self, target: View, array: NDArray[Any] | None, copy: Copy, source_start: int) -> Call:
        """Copy a box of a flat host array to the device."""

    def bind_block(self, target: View, source: View, start: Callable[[], int]) -> Call:
        """Copy the contiguous block of the target's length that begins at element `start()` of the source."""

    def bind_sum(self, target: View, source: View, extents: tuple[int, ...], kept: tuple[bool, ...]) -> Call:
        """Sum a row-major source of `extents` over the axes that are not kept."""

    def bind_contract(
        self, shape: ContractShape, a: View, b: View, c: View, workspace: View | None,
        precision: str = "fp32", engine: str = "gemm",
    ) -> Call:  # fmt: skip
        """c = the sum over k of a times b; `workspace` is a tile of the product if c has another order.

        `precision` and `engine` are those of `schedule.Contract`: values are multiplied at least
        that precisely (a type of 64 bits a real number always in fp64).
        """

    def prepare_contract(self, products: Iterable[tuple[ContractShape, str, str]], dtype: str) -> None:
        """Take the memory that `bind_contract` will need beside its arguments for products of these shapes,
        precisions and engines: once, since they run one after the other."""

    def bind_fused(
        self, shape: FusedShape, operand: View, branches: Sequence[View], out: View, capacity_bytes: int,
        precision: str = "fp32", closing: View | None = None,
    ) -> Call:  # fmt: skip
        """out = the operand contracted with every branch in turn, in tiles of at most `capacity_bytes`. With
        `closing` the sum of the products with that, formed in double precision, is added to the number `out`.

        `precision` is that of `schedule.Fused`, as in `bind_contract`. Raises ValueError where
        `tnplan.planner.hardware.fusion_tile` finds no tile.
        """

    def prepare_fused(
        self, chains: Iterable[tuple[FusedShape, str]], dtype: str, capacity_bytes: int
    ) -> None:
        """Compile what `bind_fused` will need for chains of these shapes and precisions, all at once."""

    def bind_accumulate(self, target: View, source: View) -> Call:
        """Add the source to the target."""

    def zero(self, target: View) -> None:
        """Fill with zeros."""

    def to_host(self, source: View) -> NDArray[Any]:
        """The contents as a flat host array (on a CPU the view itself)."""

    def from_host(self, target: View, array: NDArray[Any]) -> None:
        """Set the contents from a flat host array."""

    def synchronize(self) -> None:
        """Wait until all work is done."""

    def marks(self, count: int) -> Sequence[Mark]:
        """Points in time, made beforehand and set as often as wanted."""

    def mark(self, point: Mark) -> None:
        """Set a point to the time at which the work given so far is done."""

    def elapsed_s(self, first: Mark, second: Mark) -> float:
        """The seconds between two points; to be asked after `synchronize`."""

    def named(self, name: str, call: Call) -> Call:
        """The call under a name that profilers show, where the device has one to show it."""

    def memory(self) -> tuple[int, int]:
        """The bytes of memory that the device has for a rank, and those that are free."""

    def facts(self) -> dict[str, Any]:
        """What result.json says of the device: kind, name, versions of its libraries."""
