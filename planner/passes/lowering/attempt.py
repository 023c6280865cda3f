"""An attempt: what one pass through the pipeline comes to, and what is wrong with one that does not fit."""

from __future__ import annotations

from dataclasses import dataclass

from tnplan.planner.common.errors import OverLimitError
from tnplan.planner.common.units import size_text
from tnplan.planner.hardware.process_grid import Grid
from tnplan.planner.passes.lowering.buffer_assignment import Arena
from tnplan.planner.passes.lowering.lower import Program
from tnplan.planner.passes.sharding.search import Distribution
from tnplan.planner.passes.tree.loop_levels import Nesting


@dataclass(frozen=True)
class Attempt:
    """One pass through the pipeline under one limit a step."""

    nesting: Nesting
    grid: Grid
    chosen: Distribution
    program: Program
    arena: Arena
    threshold_bytes: int

    @property
    def total_s(self) -> float:
        """Predicted seconds of all slices in one group."""
        n_slices = self.nesting.n_slices
        return sum(
            step.predicted_s * (1 if step.once else n_slices * step.often) for step in self.program.steps
        )

    def refusal(self, limit_bytes: float, ranks: int) -> OverLimitError:
        """Why the program does not fit: by how much, and its largest step."""
        steps = self.program.steps
        worst = max(range(len(steps)), key=lambda number: steps[number].size_bytes, default=None)
        over = self.arena.size_bytes - limit_bytes
        return OverLimitError(
            "tensor 0" if worst is None else f"step {worst}",
            f"a rank of {ranks} needs {size_text(self.arena.size_bytes)}, {size_text(over)} more than the "
            f"limit of {size_text(limit_bytes)}",
            "allow more memory, use more ranks, or search a path that is sliced further",
        )
