"""A schedule bound to a library that contracts tensors in any order of modes and exchanges blocks.

It takes the schedules of `lowering.unfuse`. What the library does not do is the device's. Knows the
library's interface alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from tnplan.executor.contraction.bind.binder import Binder
from tnplan.executor.contraction.bind.block_layout import block_exchange, local_tensors
from tnplan.executor.contraction.bind.program import BoundProgram
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.device.protocols.device import Call, Device
from tnplan.executor.device.protocols.tensor_library import TensorLibrary, UnsupportedError
from tnplan.planner.common.errors import InputError
from tnplan.planner.schedule.schedule import Contract, Redistribute, ReduceScatter, Schedule


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
        """The library takes what it needs when it is asked for a plan."""

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
        "plan with --policy paper, or take --engine native",
    )  # fmt: skip
