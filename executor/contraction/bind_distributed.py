"""A schedule bound to a library that contracts spread tensors and moves their data itself.

It takes schedules of single contractions (`planner.passes.separate`). A contraction that needs other ranks'
data is the library's; one that needs only this rank's shards, and everything else, is the device's. Knows the
library's interface alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from executor.contraction.bind import Binder, Program
from executor.contraction.spread import spread_tensors
from executor.device.communicator import Communicator
from executor.device.device import Call, Device
from executor.device.distributed import DistributedContractor, UnsupportedError
from planner.errors import InputError
from planner.schedule import Buffer, Contract, Gather, Redistribute, ReduceScatter, Schedule


def bind_distributed(
    schedule: Schedule, device: Device, communicator: Communicator, tensors: Sequence[NDArray[Any]] | None,
    start: Callable[[], DistributedContractor],
) -> Program:  # fmt: skip
    """Like `bind.bind`; `start` makes the library's engine where a contraction needs it.

    Raises InputError with the first step that the library does not do. Collective over the group.
    """
    return _DistributedBinder(schedule, device, communicator, tensors, start).program()


class _DistributedBinder(Binder):
    def __init__(
        self, schedule: Schedule, device: Device, communicator: Communicator,
        tensors: Sequence[NDArray[Any]] | None, start: Callable[[], DistributedContractor],
    ) -> None:  # fmt: skip
        super().__init__(schedule, device, communicator, tensors)
        self._start = start
        self._contractor: DistributedContractor | None = None

    def _contract(self, instruction: Contract) -> Call:
        buffers = [self._schedule.buffers[number] for number in (instruction.a, instruction.b, instruction.c)]
        if is_local(buffers):
            return super()._contract(instruction)
        if self._contractor is None:
            self._contractor = self._start()
        a, b, c = (self._shard(number).view for number in (instruction.a, instruction.b, instruction.c))
        try:
            tensors = spread_tensors(
                [buffer.modes for buffer in buffers], [buffer.layout for buffer in buffers],
                self._schedule.extents, self._schedule.grid,
            )  # fmt: skip
            return self._contractor.bind(tensors, (a, b, c), instruction.precision)
        except UnsupportedError as error:
            raise _refusal(instruction.step, str(error)) from None

    def _exchange(self, instruction: Redistribute | Gather | ReduceScatter) -> Call:
        if isinstance(instruction, ReduceScatter):
            source = self._schedule.buffers[instruction.source]
            raise _refusal(
                instruction.step, f"it sums over modes that digits {list(source.partial)} of the ranks spread"
            )
        return super()._exchange(instruction)


def is_local(tensors: Sequence[Buffer]) -> bool:
    """Whether a rank contracts its shards of the first two to its shard of the third without other data."""
    for place in range(len(tensors[0].layout)):
        spread = {tensor.layout[place] for tensor in tensors} - {None}
        if len(spread) > 1:
            return False
        for tensor in tensors:
            if spread & set(tensor.modes) and tensor.layout[place] is None:
                return False
    return True


def _refusal(step: int, problem: str) -> InputError:
    return InputError(
        "--engine cutensormp", f"step {step}: {problem}", "plan with --policy paper, or take --engine native"
    )
