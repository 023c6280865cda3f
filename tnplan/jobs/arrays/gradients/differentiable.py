"""What the functions of torch and JAX need of a contraction that can be differentiated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tnplan.planner.schedule.schedule import Schedule


class Differentiable(Protocol):
    """A compiled contraction; see `CompiledContraction` for what its methods take and give."""

    @property
    def schedule(self) -> Schedule:
        """The schedule that a call replays."""

    @property
    def changing(self) -> tuple[int, ...]:
        """The numbers of the tensors that a call takes."""

    def __call__(self, *arrays: Any) -> Any:
        """Contract."""

    def value_and_grad(self, *arrays: Any, wrt: Sequence[int] | None = None) -> tuple[Any, tuple[Any, ...]]:
        """Contract to a number, with its derivatives."""

    def vjp(
        self, arrays: Sequence[Any], cotangent: Any, wrt: Sequence[int] | None = None
    ) -> tuple[Any, tuple[Any, ...]]:
        """Contract, with the derivatives contracted with a cotangent."""
