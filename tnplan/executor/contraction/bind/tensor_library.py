"""A schedule bound to a library that contracts tensors in any order of modes and exchanges blocks.

It takes the schedules of `lowering.unfuse`. What the library does not do is the device's. Knows the
library's interface alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.executor.contraction.bind.binder import Binder
from tnplan.executor.contraction.bind.program import BoundProgram
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.device.protocols.device import Call, Device
from tnplan.executor.device.protocols.tensor_library import (
    LocalTensor,
    SpreadTensor,
    TensorLibrary,
    UnsupportedError,
    fused_tensors,
)
from tnplan.planner.hardware.process_grid import Grid
from tnplan.planner.schedule.schedule import Buffer, Contract, Redistribute, ReduceScatter, Schedule


def bind_distributed(
    schedule: Schedule, device: Device, communicator: Communicator, tensors: Sequence[NDArray[Any]] | None,
    start: Callable[[], TensorLibrary],
) -> BoundProgram:  # fmt: skip
    """Like `bind.bind`, with every contraction and every exchange of blocks in the library's hands.

    `start` opens the library, once. Exchanges in which ranks' pieces are scattered, and of tensors that are
    repeated over some ranks, stay the device's. Raises InputError with the first step that the library does
    not do. Collective over the group.
    """
    return _LibraryBinder(schedule, device, communicator, tensors, start).program()


class _LibraryBinder(Binder):
    def __init__(
        self, schedule: Schedule, device: Device, communicator: Communicator,
        tensors: Sequence[NDArray[Any]] | None, start: Callable[[], TensorLibrary],
    ) -> None:  # fmt: skip
        super().__init__(schedule, device, communicator, tensors)
        self._library = start()

    def _prepare_products(self) -> None:
        """The library takes what it needs when it makes a plan."""

    def _contract(self, instruction: Contract) -> Call:
        numbers = (instruction.a, instruction.b, instruction.c)
        modes = [self._schedule.buffers[number].modes for number in numbers]
        a, b, c = (self._shard(number) for number in numbers)
        shards = local_tensors(modes, [shard.shape for shard in (a, b, c)])
        return self._library.bind_contract(shards, (a.view, b.view, c.view), instruction.precision)

    def _exchange(self, instruction: Redistribute | ReduceScatter) -> Call:
        schedule = self._schedule
        source, out = schedule.buffers[instruction.source], schedule.buffers[instruction.out]
        if isinstance(instruction, ReduceScatter):
            raise _refusal(instruction.step, "it sums over modes that are spread over ranks")
        blocks = block_exchange(source, out, schedule.extents, schedule.grid)
        if blocks is None:
            return super()._exchange(instruction)
        views = (self._shard(instruction.source).view, self._shard(instruction.out).view)
        try:
            return self._library.bind_exchange(blocks, views)
        except UnsupportedError as error:
            raise _refusal(instruction.step, str(error)) from None


def _refusal(step: int, problem: str) -> InputError:
    return InputError(
        "--engine cutensormp", f"step {step}: {problem}, which cuTENSORMp does not do",
        "plan with --policy paper, or use --engine native",
        topic="cuTENSOR",
    )  # fmt: skip


def local_tensors(
    modes: Sequence[tuple[int, ...]], shapes: Sequence[tuple[int, ...]]
) -> tuple[LocalTensor, LocalTensor, LocalTensor]:
    """The tensors of a contraction of shards, in storage order.

    Modes of one value are left out; modes that are neighbours in every tensor which holds one of them are
    one, with the label of the first.
    """
    extents = {
        mode: extent
        for stored, shape in zip(modes, shapes, strict=True)
        for mode, extent in zip(stored, shape, strict=True)
    }
    wide = [tuple(mode for mode in stored if extents[mode] != 1) for stored in modes]
    a, b, c = fused_tensors(wide, extents)
    return a, b, c


def block_exchange(
    source: Buffer, out: Buffer, extents: Mapping[int, int], grid: Grid
) -> tuple[SpreadTensor, SpreadTensor] | None:
    """Two tensors of the same modes between which ranks exchange contiguous blocks, or None.

    None where nothing moves, where a tensor is repeated over some of the ranks and spread over others, where
    shards are unequal, or where a rank's piece does not lie together on both sides. Modes that either side
    spreads stand first, in one order where that is the grid's for both: of a mode that is spread a rank
    holds one value, so that its place says nothing of memory. What neither spreads is one mode.
    """
    before, after = (tuple(mode for mode in end.layout if mode is not None) for end in (source, out))
    if not before:
        return None
    orders = [(*before, *_without(after, before)), (*after, *_without(before, after))]
    for order in orders:
        if all(_without(order, _without(order, spread)) == spread for spread in (before, after)):
            orders = [order, order]
            break
    ends = [_blocks(end, order, extents, grid) for end, order in zip((source, out), orders, strict=True)]
    if ends[0] is None or ends[1] is None or ends[0][1] != ends[1][1]:
        return None
    rest = ends[0][1]
    tail = ((rest[0], prod(extents[mode] for mode in rest), 1),) if rest else ()
    return SpreadTensor((*ends[0][0], *tail)), SpreadTensor((*ends[1][0], *tail))


def _without(modes: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(mode for mode in modes if mode not in others)


def _blocks(
    tensor: Buffer, order: tuple[int, ...], extents: Mapping[int, int], grid: Grid
) -> tuple[tuple[tuple[int, int, int], ...], tuple[int, ...]] | None:
    """The modes of `order` with their extents and parts, and the others in storage order."""
    radix = {mode: digit.radix for mode, digit in zip(tensor.layout, grid, strict=True) if mode is not None}
    if len(radix) not in (0, len(grid)) or any(extents[mode] != parts for mode, parts in radix.items()):
        return None
    whole_modes = tuple(mode for mode in tensor.modes if mode not in radix)
    moving = tuple(mode for mode in order if mode not in radix)
    if whole_modes[: len(moving)] != moving:
        return None
    return tuple((mode, extents[mode], radix.get(mode, 1)) for mode in order), whole_modes[len(moving) :]
