"""The instruction for the backward pass through a chain: only schedules of gradients have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class FusedAdjoint:
    """The gradients of a chain of `branches` on `operand` from `cotangent`, that of its result.

    The cotangent is stored as the result is. `gradients` are those of the branches and `out` that of the
    operand, with their modes in any order; None: not wanted. What lies between the steps is made again. All
    on this rank's shards alone: over a digit that spreads a mode of the chain, a gradient that lacks the mode
    is partial. `steps` are the numbers of the annotations, two a branch.
    """

    op: ClassVar[str] = "fused_adjoint"
    operand: int
    branches: tuple[int, ...]
    cotangent: int
    out: int | None
    gradients: tuple[int | None, ...]
    steps: tuple[int, ...]

    @property
    def made(self) -> tuple[int, ...]:
        """The buffers that it writes."""
        return tuple(buffer for buffer in (self.out, *self.gradients) if buffer is not None)
