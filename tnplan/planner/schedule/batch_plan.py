"""The steps of a contraction for a batch of bit strings (sparse-state contraction): data for an executor."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tnplan.common.arrays import Array
from tnplan.planner.networks.network import Network


@dataclass(frozen=True)
class BatchedStep:
    """Tensors `left` and `right` become a new one, numbered on from the inputs in the order of the steps.

    - `left`, `right`: Numbers of tensors.
    - `pairs`: The rows of both that make each row of the result, int32 [row, 2].
    - `legs`: The indices of the result after its rows.
    - `products`: Multiply-adds of one slice.
    - `elements`: Of the result, its rows among them, of one slice.
    """

    left: int
    right: int
    pairs: Array
    legs: tuple[str, ...]
    products: int
    elements: int


@dataclass(frozen=True)
class BatchPlan:
    """The steps for a batch of strings: flat data for an executor.

    - `network`: Its open indices are the final qubits, in their order.
    - `steps`: In their order.
    - `leaf_bits`: For each input its final indices and the values that they have in each row, uint8 [row,
      index].
    - `leaf_legs`: For each input its indices that are summed.
    - `sliced`: The sliced indices.
    - `rows`: The row of the result for each string, int64 [string].
    """

    network: Network
    steps: tuple[BatchedStep, ...]
    leaf_bits: tuple[tuple[tuple[str, ...], Array], ...]
    leaf_legs: tuple[tuple[str, ...], ...]
    sliced: tuple[str, ...]
    rows: Array

    @property
    def n_slices(self) -> int:
        """The number of slices."""
        return prod(self.network.size_dict[index] for index in self.sliced)

    @property
    def products(self) -> int:
        """Multiply-adds of all slices, each apart."""
        return self.n_slices * sum(step.products for step in self.steps)

    @property
    def largest(self) -> int:
        """Elements of the largest result of a step."""
        return max((step.elements for step in self.steps), default=1)
