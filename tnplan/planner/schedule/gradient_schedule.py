"""The schedule of a contraction and its gradients: a schedule with instructions after its slices as well."""

from __future__ import annotations

from dataclasses import dataclass

from tnplan.planner.schedule.schedule import Instruction, LoopLevel, Schedule


@dataclass(frozen=True)
class TensorGradient:
    """The gradient of input `tensor`, in `buffer` at the end. It is constant along modes of the tensor that
    the buffer lacks: no other tensor and not the output has them."""

    tensor: int
    buffer: int


@dataclass(frozen=True, repr=False)
class GradientSchedule(Schedule):
    """A contraction and the gradients of its inputs; the pass `reverse` makes it.

    The last of `leaves` is the cotangent of the result: it has the indices of `output`. `after` mirrors
    `outer` and `once`: the first stands for the deepest of them, the last for `once`. A part of it is
    replayed after the body wherever the one that it stands for has served its last slice. It takes up the
    sums that slices have added to since that one was replayed. It has no file.

    Parameters
    ----------
    after : tuple of LoopLevel
        The parts after the body, their depths falling to 0; none where no index is sliced.
    gradients : tuple of TensorGradient
        Where the gradients are at the end, in the order in which they were asked for.

    Examples
    --------
    >>> from tnplan.planner.passes.reverse.reverse import reverse
    >>> matrices = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 4, "b": 8, "c": 2})
    >>> schedule = reverse(tnplan.plan(tnplan.ContractionPath(matrices, ((0, 1),))), [0])
    >>> schedule.leaves[-1], [gradient.tensor for gradient in schedule.gradients]
    (('a', 'c'), [0])
    """

    after: tuple[LoopLevel, ...] = ()
    gradients: tuple[TensorGradient, ...] = ()

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions of all parts."""
        return (*super().instructions, *(item for part in self.after for item in part.instructions))

    @property
    def cotangent(self) -> int:
        """The number of the input that is the cotangent of the result."""
        return len(self.leaves) - 1
