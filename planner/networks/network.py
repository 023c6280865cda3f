"""A tensor network: which index sits on which tensor, and how large it is. No values, no order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod

from planner.errors import InputError


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
            size = self.size_dict.get(index)
            if size is None:
                raise InputError(
                    "network size_dict", f"index {index!r} has no size", "give every index of inputs a size"
                )
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise InputError(
                    "network size_dict", f"index {index!r} has size {size!r}", "sizes are integers from 1 up"
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
