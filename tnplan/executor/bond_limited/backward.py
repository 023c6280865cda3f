"""The derivatives [as the tensor] of a number by tensors, back through each change. Nothing is conjugated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any
"""Of NumPy or CuPy."""


def contract_back(
    left: int, right: int, new: int, pair: tuple[Array, Array], axes: tuple[int, int] | int, xp: Any,
    found: dict[int, Array],
) -> None:  # fmt: skip
    """A B along one axis, or along none: dA = G B and dB = A G over all other axes."""
    (a, b), after = pair, found.pop(new)
    if isinstance(axes, int):
        found[left] = xp.tensordot(after, b, ([*range(a.ndim, after.ndim)], [*range(b.ndim)]))
        found[right] = xp.tensordot(a, after, ([*range(a.ndim)], [*range(a.ndim)]))
        return
    rest = [[axis for axis in range(one.ndim) if axis != own] for one, own in zip(pair, axes, strict=True)]
    n_left = a.ndim - 1
    right_axes = [*range(n_left, after.ndim)]
    found[left] = xp.moveaxis(xp.tensordot(after, b, (right_axes, rest[1])), -1, axes[0])
    found[right] = xp.moveaxis(xp.tensordot(a, after, (rest[0], [*range(n_left)])), 0, axes[1])


def scale_back(number: int, factor: float, found: dict[int, Array]) -> None:
    """A tensor times a number."""
    found[number] = found[number] * factor


def move_back(number: int, axis: int, xp: Any, found: dict[int, Array]) -> None:
    """A tensor whose axis became the last one."""
    found[number] = xp.moveaxis(found[number], -1, axis)


def split_back(number: int, shape: Sequence[int], order: Sequence[int], found: dict[int, Array]) -> None:
    """An array whose axes were put in an order and joined."""
    found[number] = found[number].reshape(shape).transpose(np.argsort(order).tolist())


def project_back(number: int, projector: Array, shape: Sequence[int], found: dict[int, Array]) -> None:
    """A P: dA = G P^T."""
    found[number] = (found[number].reshape(-1, projector.shape[0]) @ projector).reshape(shape)


def absorb_back(least: int, most: int, operands: tuple[Any, ...], found: dict[int, Array]) -> None:
    """B A^T and the unit matrix in place of B and A: dB = G A and dA = G^T B."""
    a, b, shape_a, shape_b = operands
    after = found[most].reshape(len(b), len(a))
    found[most], found[least] = (after @ a).reshape(shape_b), (after.T @ b).reshape(shape_a)
