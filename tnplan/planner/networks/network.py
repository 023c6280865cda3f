"""A tensor network: which index sits on which tensor, and how large it is. No values, no order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod

from tnplan.common.errors import InputError
from tnplan.common.units import plural

LARGEST_SIZE = 2**40
"""No index is larger: the planner factorises sizes by trial division."""


@dataclass(frozen=True, repr=False)
class Network:
    """A sum over products of tensors, written by its indices.

    Indices that are not open are summed. An index may sit on any number of tensors (a hyper-index), more than
    once on one tensor (a trace or diagonal), or on a single one (a plain sum).

    Parameters
    ----------
    inputs : tuple of tuples of str
        The indices of each tensor in the order of its axes.
    output : tuple of str
        The open indices in the order of the result's axes.
    size_dict : dict of str to int
        The extent of every index.

    Raises
    ------
    InputError
        For an index without an extent, an open one on no tensor, or extents that cannot be.

    Examples
    --------
    >>> tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 4, "b": 8, "c": 2})
    Network(2 tensors, 3 indices, 2 open)
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

    def __repr__(self) -> str:
        return f"Network({self.sizes}, {len(self.output)} open)"

    @property
    def sizes(self) -> str:
        """How many tensors and indices there are, in words."""
        tensors = plural(len(self.inputs), "tensor", "tensors")
        return f"{tensors}, {plural(len(self.size_dict), 'index', 'indices')}"

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
