"""A pass that is read from tables, and what pass.cu is compiled for. Knows launches, no state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tnplan.executor.statevector.cuda.program_launch import ProgramLaunch
from tnplan.executor.statevector.gates.multiplexed_gate import LARGEST_TARGETS, MultiplexedGate
from tnplan.executor.statevector.scheduling.tiled_passes import Pass

TARGETS = (1, 2, LARGEST_TARGETS)
"""For so many targets pass.cu is compiled: for one in a third of the time of all."""


def most_targets(item: Pass) -> int:
    """Of the gates of a pass: one of `TARGETS`."""
    sizes = (len(step.targets) for step in item.steps if isinstance(step, MultiplexedGate))
    return compiled_for(max(sizes, default=0))


def compiled_for(targets: int) -> int:
    """For how many targets pass.cu is compiled where gates have so many."""
    return next((number for number in TARGETS if number >= targets), LARGEST_TARGETS)


class TabledPass:
    """A pass by pass.cu; after `worth` times by a kernel of its own, which is compiled then.

    `launch` takes `arguments`, the amplitudes first; `compiled` makes the launch of the pass's own kernel, or
    gives None where it has none.
    """

    def __init__(
        self, launch: Callable[[tuple[Any, ...]], None], arguments: tuple[Any, ...],
        compiled: Callable[[], ProgramLaunch | None] | None = None, worth: float = 0,
    ) -> None:  # fmt: skip
        self._launch, self._arguments, self._compiled, self._worth = launch, arguments, compiled, worth
        self._times = 0
        self.program: ProgramLaunch | None = None
        """The launch of its own kernel, once it is made."""

    def whole(self) -> None:
        """Do the pass on all tiles."""
        if self.program is None and self._compiled is not None and self._times >= self._worth:
            self.program, self._compiled = self._compiled(), None
        self._times += 1
        if self.program is None:
            self._launch(self._arguments)
        else:
            self.program.whole()

    def on(self, amplitudes: Any) -> TabledPass:
        """The same pass over other amplitudes."""
        return TabledPass(self._launch, (amplitudes, *self._arguments[1:]))
