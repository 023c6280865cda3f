"""`einsum`, `tensordot` and `transpose`: `contract` by the names that opt_einsum and cotengra call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import index
from typing import Any

from tnplan.calls.contract import contract
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.arrays import MOST_AXES, as_array

TOPIC = "contractions in Python"

LABELS = "".join(map(chr, range(0x100, 0x100 + 2 * MOST_AXES)))
"""Letters that name the axes of two arrays."""


def einsum(equation: Any, *arrays: Any, **options: Any) -> Any:
    """Contract arrays: `tnplan.contract` by its name in NumPy.

    With `tensordot` it is what `backend="tnplan"` of opt_einsum, and of cotengra
    `implementation=(tnplan.einsum, tnplan.tensordot)`, contract with, in the order that they find.

    Parameters
    ----------
    equation, *arrays, **options
        As of `contract`.

    Returns
    -------
    array
        As of `contract`.

    Raises
    ------
    InputError
        As of `contract`.

    Examples
    --------
    >>> import numpy as np
    >>> tnplan.einsum("ab,bc->ac", np.eye(2), np.ones((2, 3))).shape
    (2, 3)
    """
    return contract(equation, *arrays, **options)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Sum the products of two arrays over pairs of axes, as `numpy.tensordot` does; see `einsum`.

    Parameters
    ----------
    a, b : array_like
        As in `contract`.
    axes : int or pair
        How many of the last axes of `a` are summed with the first of `b`, in their order; or the axes of `a`,
        and as many of `b`.

    Returns
    -------
    array
        As of `contract`: the other axes of `a`, then those of `b`.

    Raises
    ------
    InputError
        Where axes are not there, stand twice, or differ in extent.

    Examples
    --------
    >>> import numpy as np
    >>> tnplan.tensordot(np.ones((2, 3)), np.ones((3, 4)), axes=1).shape
    (2, 4)
    """
    a, b = as_array(a, 0), as_array(b, 1)
    try:
        pairs: Any = index(axes) if hasattr(axes, "__index__") else tuple(map(_numbers, axes))
        text = _product(tuple(a.shape), tuple(b.shape), pairs)
    except (TypeError, ValueError, IndexError):
        text = None
    if text is None:
        problem = f"are {axes!r} for shapes {tuple(a.shape)} and {tuple(b.shape)}"
        raise InputError("axes", problem, "name as many axes of both, of equal extents")
    return contract(text, a, b)


def _numbers(axes: Any) -> tuple[int, ...]:
    return (index(axes),) if hasattr(axes, "__index__") else tuple(map(index, axes))


@lru_cache(1024)
def _product(a: Sequence[int], b: Sequence[int], axes: Any) -> str | None:
    """The equation; None where shapes and axes do not fit."""
    if isinstance(axes, int):
        axes = range(len(a) - axes, len(a)), range(axes)
    of_a, of_b = [range(len(a))[axis] for axis in axes[0]], [range(len(b))[axis] for axis in axes[1]]
    terms = list(LABELS[: len(a)]), list(LABELS[MOST_AXES : MOST_AXES + len(b)])
    for i, k in zip(of_a, of_b, strict=True):
        if a[i] != b[k]:
            return None
        terms[1][k] = terms[0][i]
    left = [label for axis, label in enumerate(terms[0]) if axis not in of_a]
    left += [label for axis, label in enumerate(terms[1]) if axis not in of_b]
    is_once = len(set(of_a)) == len(of_a) and len(set(of_b)) == len(of_b) and len(axes) == 2
    return f"{''.join(terms[0])},{''.join(terms[1])}->{''.join(left)}" if is_once else None


def transpose(array: Any, axes: Sequence[int] | None = None) -> Any:
    """A view of an array with its axes in another order, as `numpy.transpose` gives it.

    Parameters
    ----------
    array : array_like
        As in `contract`.
    axes : sequence of int, optional
        Its axes in their new order. Default: from the last to the first.

    Returns
    -------
    array
        As of `contract`: a view on the host, for an array of NumPy.

    Raises
    ------
    InputError
        Where not every axis stands there once.

    Examples
    --------
    >>> import numpy as np
    >>> tnplan.transpose(np.ones((2, 3)), (1, 0)).shape
    (3, 2)
    """
    array = as_array(array, 0)
    numbers = range(len(array.shape))
    try:
        order = numbers[::-1] if axes is None else [numbers[axis] for axis in axes]
    except (TypeError, IndexError):
        order = []
    if sorted(order) != list(numbers):
        raise InputError("axes", f"are {axes!r} for shape {tuple(array.shape)}", "name each axis once")
    text = LABELS[: len(numbers)]
    return contract(f"{text}->{''.join(text[axis] for axis in order)}", array)
