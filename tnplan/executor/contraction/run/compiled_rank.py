"""One rank's part of a contraction that is called again and again: its slices, the sum over the groups, the
result on rank 0. Knows no files and no checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from tnplan.executor.contraction.run.compiled_program import CompiledProgram
from tnplan.executor.contraction.run.result import gather_results
from tnplan.executor.contraction.run.slice_partition import (
    active_groups,
    bind_sum_groups,
    share_of,
    slices_of_group,
)
from tnplan.executor.device.selection.select import Chosen
from tnplan.planner.schedule.schedule import Schedule


class CompiledRank:
    """A schedule bound to this rank's device. Every call but `exponent` is collective.

    Parameters
    ----------
    schedule : Schedule
        Verified. Without slices, or with fewer than there are groups, some ranks have no work.
    chosen : Chosen
        This rank's device, and all ranks.
    scaled : bool
        Keep tensors within the range of the dtype by powers of two; for one rank alone.

    Attributes
    ----------
    program : CompiledProgram
        This rank's slices.
    """

    def __init__(self, schedule: Schedule, chosen: Chosen, scaled: bool = False) -> None:
        self._chosen: Chosen = chosen
        self.device = chosen.device
        world = chosen.ranks
        self._share = share_of(schedule, world.size, world.rank, 0, schedule.n_slices)
        self._group = world.split(self._share.group, self._share.rank_in_group)
        slices = slices_of_group(self._share.group, self._share.n_groups, 0, schedule.n_slices)
        self.program = CompiledProgram(schedule, self.device, self._group, slices, scaled)
        self._is_ready = False
        if world.size > 1:
            across = world.split(self._share.rank_in_group, self._share.group)
            active = active_groups(schedule.n_slices, self._share.n_groups)
            self._sum_groups = bind_sum_groups(self.program.bound, self.device, across, active)
            world.barrier()
            self._group.connect()
            across.connect()
            self.device.synchronize()

    def run(self, values: Mapping[int, Any]) -> None:
        """Contract with new values of some inputs, the others as before; the first time, of all.

        A run that fails leaves nothing to be used again. Without new values the last result stays.
        """
        if self._is_ready and not values:
            return
        changed = frozenset(values) if self._is_ready else None
        self._is_ready = False
        for number, array in values.items():
            self.program.set(number, array)
        self.program.run(changed)
        if self._chosen.ranks.size > 1:
            self._sum_groups()
        self._is_ready = True

    def gathered(self) -> list[NDArray[Any]] | None:
        """The flat result of the last run and the flat gradients, on rank 0; None on the others."""
        return gather_results(self.program.bound, self._share, self._group, self.device)

    @property
    def exponent(self) -> int:
        """The power of two by which the result is to be multiplied; 0 without scaling."""
        return self.program.exponent

    def close(self) -> None:
        """Give the memory back."""
        self.device.synchronize()
        self._chosen.ranks.close()
        self._chosen.close()
