"""The backward pass through fused chains on the CPU, and the readable twin of the GPU's kernel.

For a tile of the operand and of the cotangent of the result: the values between the steps are made again; for
each step, the last one first, the gradient of its branch is added up and the cotangent taken through it.
Knows shapes and flat arrays; not schedules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.protocols.device import AdjointShape, Call
from tnplan.planner.hardware.fusion_tile import fused_tile

Array = NDArray[Any]
Modes = Sequence[tuple[int, int]]
Labels = tuple[int, ...]


def bind_adjoint(
    shape: AdjointShape, operand: Array, branches: Sequence[Array], cotangent: Array,
    outputs: Sequence[Array | None], capacity_bytes: int,
) -> Call:  # fmt: skip
    """From the cotangent of a chain's result to those of its branches and of its operand.

    Arrays are flat, of one dtype. Raises ValueError where the chain has no tile of `capacity_bytes` or less.
    """
    chain = shape.chain
    tile = fused_tile(chain.operand, chain.branches, chain.out, capacity_bytes // operand.itemsize)
    if tile is None:
        raise ValueError(f"a chain of {len(branches)} steps cannot be fused: no tile holds it")
    loops = [entry for entry in chain.operand if entry[0] not in tile.modes]
    *gradients, last = outputs
    back = None if last is None or shape.back is None else (_shaped(last, shape.back), _labels(shape.back))
    ends = (
        (_shaped(operand, chain.operand), _labels(chain.operand)),
        (_shaped(cotangent, chain.out), _labels(chain.out)),
    )
    shaped = [
        (_shaped(array, modes), _labels(modes)) for array, modes in zip(branches, chain.branches, strict=True)
    ]
    wanted = [modes is not None for modes in shape.gradients]

    def run() -> None:
        # With y = x b, summed over k: the gradient of b is x times the cotangent of y, summed over rows, and
        # the cotangent of x is that of y times b, summed over n. Added up over tiles in double precision.
        totals = [np.zeros(array.shape, np.result_type(array.dtype, np.float64)) for array, _ in shaped]
        for fixed in _values(loops):
            first, last = (_part(*end, fixed) for end in ends)
            for number, term in _terms(first, last, shaped, wanted):
                totals[number] += term
            if back is not None:
                taken_back, order = _back(last, shaped)
                view, labels = _part(*back, fixed)
                view[...] = taken_back.transpose([order.index(mode) for mode in labels])
        for total, (_, labels), modes, out in zip(totals, shaped, shape.gradients, gradients, strict=True):
            if out is not None and modes is not None:
                axes = [labels.index(mode) for mode in _labels(modes)]
                out[...] = total.transpose(axes).ravel()

    return run


Tensor = tuple[Array, Labels]


def _terms(
    value: Tensor, cotangent: Tensor, branches: Sequence[Tensor], has_gradient: Sequence[bool]
) -> Iterator[tuple[int, Array]]:
    """What a tile adds to the gradient of each branch that is wanted, as the branch is stored."""
    values = [value]
    # Values are made again rather than kept: the tile fits on chip, all values of all tiles do not.
    for branch in branches[:-1]:
        values.append(_product(values[-1], branch))
    # Invariant: `cotangent` is that of the result of step `number` when its gradient is taken.
    for number in reversed(range(len(branches))):
        _, labels = branches[number]
        if has_gradient[number]:
            term, order = _product(values[number], cotangent)
            yield number, term.transpose([order.index(mode) for mode in labels])
        cotangent = _product(cotangent, branches[number])


def _back(cotangent: Tensor, branches: Sequence[Tensor]) -> Tensor:
    """The cotangent of a tile of the operand."""
    for branch in reversed(branches):
        cotangent = _product(cotangent, branch)
    return cotangent


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Summed over the modes that both have."""
    (a, a_labels), (b, b_labels) = left, right
    shared = [mode for mode in a_labels if mode in b_labels]
    axes = [a_labels.index(mode) for mode in shared], [b_labels.index(mode) for mode in shared]
    return np.tensordot(a, b, axes), tuple(mode for mode in (*a_labels, *b_labels) if mode not in shared)


def _part(array: Array, labels: Labels, fixed: dict[int, int]) -> Tensor:
    """The part of a tensor with some modes fixed: a view."""
    index = tuple(fixed.get(mode, slice(None)) for mode in labels)
    return array[index], tuple(mode for mode in labels if mode not in fixed)


def _values(loops: Modes) -> Iterator[dict[int, int]]:
    for values in product(*(range(extent) for _, extent in loops)):
        yield dict(zip(_labels(loops), values, strict=True))


def _shaped(array: Array, modes: Modes) -> Array:
    return array.reshape([extent for _, extent in modes])


def _labels(modes: Modes) -> Labels:
    return tuple(mode for mode, _ in modes)
