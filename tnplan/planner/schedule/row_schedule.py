"""Many bit strings at once: the steps of their contraction (sparse-state contraction).

And the same as flat steps over one arena, with layouts, loops and offsets, for any device.
"""

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


Modes = tuple[tuple[int, int], ...]
"""Extent and stride in the result, in elements, of each mode."""


@dataclass(frozen=True)
class RowLeaf:
    """An input as it is stored: `sliced` modes first, which `arena_place` holds one value of.

    - `tensor`: Its number.
    - `final`, `bits`: The axes of final qubits of the given array, and the bits of each row, uint8 [row,
      axis].
    - `axes`: How axes of the array with its rows first are ordered: number 0 is the axis of rows.
    - `sliced`: For each of the first axes its position among the sliced modes.
    - `level`: The innermost loop that it depends on; -1 for none.
    """

    tensor: int
    final: tuple[int, ...]
    bits: Array
    axes: tuple[int, ...]
    sliced: tuple[int, ...]
    level: int


@dataclass(frozen=True)
class RowStep:
    """Tensors `left` and `right` become `out`.

    As a product of [batch | m | k] and [batch | n | k] where `pairs` is None: each row of one with each of
    the other, which are modes of m and n. Else as products of pairs of rows, int32 [row, 2], `row_stride`
    elements apart. `precision` is that in which it is multiplied.
    """

    left: int
    right: int
    out: int
    batch: Modes
    m: Modes
    n: Modes
    k: int
    level: int
    precision: str
    pairs: Array | None = None
    row_stride: int = 0


@dataclass(frozen=True)
class RowSchedule:
    """The steps in their order, of outer loops before those of inner ones.

    - `extents`: Of the sliced modes, the last loop innermost.
    - `counts`, `offsets`: Elements of each tensor, by its number, and the byte where it begins.
    - `whole`: The byte where a sliced input is stored with all its slices, by its number.
    - `total`, `workspace`: The bytes where the sum over slices and the workspace begin.
    - `workspace_elements`, `size_bytes`: Of the workspace, and of the arena.
    - `table_bytes`: What pairs of rows take beside it.
    - `rows`: The row of the result for each string, int64 [string].
    """

    extents: tuple[int, ...]
    leaves: tuple[RowLeaf, ...]
    steps: tuple[RowStep, ...]
    counts: tuple[int, ...]
    offsets: tuple[int, ...]
    whole: dict[int, int]
    total: int
    workspace: int
    workspace_elements: int
    size_bytes: int
    table_bytes: int
    rows: Array
