"""A tensor network: which index sits on which tensor, and how large it is. No values, no order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod

from tnplan.planner.common.errors import InputError

LARGEST_SIZE = 2**40
"""No index is larger: the planner factorises sizes by trial division."""


@dataclass(frozen=True)
class Network:
    """A sum over products of tensors, written by its indices.

    `inputs[i]` lists the indices of tensor i in the order of its axes; `output` lists the open indices in
    the order of the result's axes. Every other index is summed. An index may sit on any number of tensors
    (a hyper-index), more than once on one tensor (a trace or diagonal), or on a single one (a plain sum).
    """

    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    size_dict: dict[str, int]

    def __post_init__(self) -> None:
        if not self.inputs:
            raise InputError("network inputs", "there is no tensor", "give at least one tensor")
        present = {index for term in self.inputs for index in term}
        for index in sorted(present):
            if index not in self.size_dict:
                raise InputError(
                    "network size_dict", f"index {index!r} has no size", "give every index of inputs a size"
                )
        for index, size in self.size_dict.items():
            if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST_SIZE:
                raise InputError(
                    "network size_dict",
                    f"index {index!r} has size {size!r}",
                    f"sizes are integers from 1 to {LARGEST_SIZE}",
                )
        for index, count in Counter(self.output).items():
            if count > 1:
                raise InputError(
                    "network output", f"index {index!r} stands {count} times", "list each open index once"
                )
            if index not in present:
                raise InputError(
                    "network output", f"index {index!r} is on no tensor", "open indices must be on an input"
                )

    def shape(self, tensor: int) -> tuple[int, ...]:
        """The shape that input `tensor` must have."""
        return tuple(self.size_dict[index] for index in self.inputs[tensor])

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple(self.size_dict[index] for index in self.output)

    @property
    def output_size(self) -> int:
        """The number of elements of the result."""
        return prod(self.output_shape)
