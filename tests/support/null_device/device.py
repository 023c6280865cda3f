"""A device and a communicator without arrays: they replay schedules of any size and count what would happen.

For one rank of a group of any size: bytes sent and received by interconnect tier, messages, operations, peak.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from numpy.typing import NDArray

from tests.support.null_device.codec import NullCodec
from tests.support.null_device.view import NullInputBlock, NullView
from tnplan.executor.device.cpu.device import HostDevice
from tnplan.executor.device.protocols.communicator import BlockingExchange, Message
from tnplan.executor.device.protocols.copy import Copy
from tnplan.executor.device.protocols.device import (
    AdjointShape,
    Call,
    ContractShape,
    Exponents,
    FusedShape,
    call_in_turn,
    nothing,
)
from tnplan.planner.hardware.process_grid import Grid, grid_size, slowest_tier


@dataclass
class Counts:
    """What one rank did. `flops` are real operations; bytes by tier are indexed by the tier's number."""

    flops: float = 0.0
    messages: int = 0
    sent_bytes: list[int] = field(default_factory=list)
    received_bytes: list[int] = field(default_factory=list)


class NullDevice(HostDevice):
    """Counts the operations and bytes of bound calls in `counts`; see `Device`."""

    name = "null"

    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        self.peak_bytes = 0

    def allocate(self, size_bytes: int) -> None:
        """Count the arena."""
        self.peak_bytes += size_bytes

    def view(self, offset_bytes: int, count: int, dtype: str) -> NullView:
        """A view of `count` elements; raises where it does not lie in the arena."""
        view = NullView(count, dtype)
        if offset_bytes < 0 or offset_bytes + view.nbytes > self.peak_bytes:
            raise ValueError(
                f"{view.nbytes} bytes at {offset_bytes} are outside an arena of {self.peak_bytes}"
            )
        return view

    def input_block(self, counts: Sequence[int], dtype: str) -> NullInputBlock:
        """Views of values that nobody has."""
        return NullInputBlock([NullView(count, dtype) for count in counts])

    def bind_copy(
        self, target: NullView, source: NullView, copy: Copy, target_start: int = 0, source_start: int = 0,
        rows: tuple[int, int] | None = None, add: bool = False,
    ) -> Call:  # fmt: skip
        """Nothing: copies are not counted."""
        return nothing

    def bind_load(self, target: NullView, array: NDArray[Any] | None, copy: Copy, source_start: int) -> Call:
        """Nothing: copies are not counted."""
        return nothing

    def bind_block(self, target: NullView, source: NullView, start: Callable[[], int]) -> Call:
        """Raises in replay where the block is outside the source."""

        def run() -> None:
            if not 0 <= start() <= len(source) - len(target):
                raise ValueError(f"a block at element {start()} is outside a source of {len(source)}")

        return run

    def bind_add_block(self, target: NullView, source: NullView, start: Callable[[], int]) -> Call:
        """Count the added bytes; raises in replay where the block is outside the target."""
        return self.bind_block(source, target, start)

    def bind_sum(
        self, target: NullView, source: NullView, extents: tuple[int, ...], kept: tuple[bool, ...]
    ) -> Call:
        """Nothing: copies are not counted."""
        return nothing

    def bind_contract(
        self, shape: ContractShape, a: NullView, b: NullView, c: NullView, workspace: NullView | None,
        precision: str = "fp32", engine: str = "gemm",
    ) -> Call:  # fmt: skip
        """Count the operations; raises where a workspace is missing."""
        n_batch, m, n, k = shape.sizes
        if shape.direct is None and not workspace and n_batch * m * n * k:
            raise ValueError("a contraction whose result is stored in another order needs a workspace")
        return self._multiplies(float(n_batch) * m * n * k, c.dtype)

    def bind_fused(
        self, shape: FusedShape, operand: NullView, branches: Sequence[NullView], out: NullView,
        capacity_bytes: int, precision: str = "fp32", closing: NullView | None = None,
    ) -> Call:  # fmt: skip
        """Count the operations of every step."""
        held = dict(shape.operand)
        products = 0.0
        for branch in shape.branches:
            met = held | dict(branch)
            products += prod(met.values())
            summed = held.keys() & dict(branch).keys()
            held = {mode: extent for mode, extent in met.items() if mode not in summed}
        products += prod(held.values()) if shape.closes else 0
        return self._multiplies(products, out.dtype)

    def bind_adjoint(
        self, shape: AdjointShape, operand: NullView, branches: Sequence[NullView], cotangent: NullView,
        outputs: Sequence[NullView | None], capacity_bytes: int,
    ) -> Call:  # fmt: skip
        """Count the operations of every step, twice; values that are made again are not counted."""
        count = self.bind_fused(shape.chain, operand, branches, cotangent, capacity_bytes)
        return call_in_turn((count, count))

    def _multiplies(self, products: float, dtype: str) -> Call:
        flops = products * (8 if dtype.startswith("complex") else 2)
        counts = self.counts

        def run() -> None:
            counts.flops += flops

        return run

    def bind_accumulate(self, target: NullView, source: NullView) -> Call:
        """Nothing: copies are not counted."""
        return nothing

    def exponents(self, count: int, dtype: str) -> Exponents:
        """Nothing is known of values that nobody has."""
        raise ValueError("a null device holds no values to scale")

    def codec(self) -> NullCodec:
        """Counts on the planned ratio."""
        return NullCodec()

    def zero(self, target: NullView) -> None:
        """Nothing to fill."""

    def to_host(self, source: NullView) -> NDArray[Any]:
        """There are no values to give."""
        raise ValueError("a null device holds no values")

    def to_hosts(self, sources: Sequence[NullView]) -> list[NDArray[Any]]:
        """There are no values to give."""
        raise ValueError("a null device holds no values")

    def from_host(self, target: NullView, array: NDArray[Any]) -> None:
        """There is nowhere to put values."""
        raise ValueError("a null device holds no values")

    def memory(self) -> tuple[int, int]:
        """As much as is held, and none free."""
        return self.peak_bytes, 0

    def facts(self) -> dict[str, Any]:
        """The kind of the device."""
        return {"device": "null"}


class NullCommunicator(BlockingExchange):
    """Rank `rank` of a grid whose other ranks do not exist: counts messages and bytes by tier in `counts`."""

    name = "null"

    def __init__(self, rank: int, grid: Grid, counts: Counts) -> None:
        self.rank = rank
        self.size = grid_size(grid)
        self._grid = grid
        self._counts = counts
        n_tiers = 1 + max((digit.tier for digit in grid), default=0)
        counts.sent_bytes = [0] * n_tiers
        counts.received_bytes = [0] * n_tiers

    def tier(self, peer: int) -> int:
        """The slowest tier between this rank and a peer."""
        return slowest_tier(self.rank, peer, self._grid)

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """Count; nothing moves."""
        for peer, view in sends:
            self._counts.sent_bytes[self.tier(peer)] += view.nbytes
            self._counts.messages += 1
        for peer, view in receives:
            self._counts.received_bytes[self.tier(peer)] += view.nbytes

    def broadcast_object(self, value: Any, root: int) -> Any:
        """This rank's value."""
        return value

    def gather_objects(self, value: Any) -> list[Any]:
        """This rank's value alone."""
        return [value]

    def split(self, color: int, key: int) -> NullCommunicator:
        """The same rank."""
        return self

    def abort(self, message: str, status: int) -> None:
        """Raise here."""
        raise RuntimeError(message)
