"""The backward pass through a fused chain, as gradients use it: the part of the interface of a device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tnplan.executor.device.protocols.device import Call, FusedShape, View


@dataclass(frozen=True)
class AdjointShape:
    """The backward pass through a chain: from the cotangent of its result, stored as that is, to those of its
    branches and of its operand.

    `gradients` has the modes of each branch's, and `back` those of the operand's, as they are stored, (mode,
    extent) each; None for what is not wanted.

    Examples
    --------
    >>> from tnplan.executor.device.protocols.device import FusedShape
    >>> chain = FusedShape(((0, 4), (1, 2)), (((2, 2), (1, 2)),), ((0, 4), (2, 2)))
    >>> shape = AdjointShape(chain, (((1, 2), (2, 2)),), None)  # the branch's gradient alone, transposed
    """

    chain: FusedShape
    gradients: tuple[tuple[tuple[int, int], ...] | None, ...]
    back: tuple[tuple[int, int], ...] | None


class AdjointDevice(Protocol):
    """What a `Device` does in the backward pass through chains."""

    def bind_adjoint(
        self, shape: AdjointShape, operand: View, branches: Sequence[View], cotangent: View,
        gradients: Sequence[View | None], out: View | None, capacity_bytes: int,
    ) -> Call:  # fmt: skip
        """Bind the backward pass through a chain.

        Parameters
        ----------
        shape
            The chain, and the modes of all gradients as they are stored.
        operand, branches, cotangent
            Flat views of one dtype: what the chain reads, and the cotangent of its result.
        gradients, out
            Those of the branches and of the operand; None where the shape has none.
        capacity_bytes
            As in `bind_fused`.

        Raises
        ------
        ValueError
            Where `tnplan.planner.hardware.fusion_tile` finds no tile.
        """

    def prepare_adjoints(self, shapes: Iterable[AdjointShape], dtype: str, capacity_bytes: int) -> None:
        """Compile what `bind_adjoint` will need, all at once.

        Parameters
        ----------
        shapes
            Those of all backward passes.
        dtype
            That of their values.
        capacity_bytes
            As in `bind_fused`.
        """
