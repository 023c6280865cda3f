"""Contractions of integers and booleans: exact as long as the values fit, refused where they may not."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.simplify import einsum

EXACT_IN_FLOAT64 = 2**53
EXACT_IN_INT64 = 2**63
ROUNDING = 1e-6
"""A bound that was itself computed in floating point is taken this much larger."""


def contract_exactly(
    path: ContractionPath, arrays: Sequence[NDArray[Any]], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Contract integers or booleans to `dtype`.

    No value on the way is larger than the sum of the products of absolute values. Below 2^53 these are
    exact in float64, below 2^63 in int64.

    Raises
    ------
    InputError
        Where a value may be beyond 64 bits, or the result is beyond `dtype`.
    """
    if dtype.kind == "b":
        counts = _contract(path, [array.astype(np.float64) for array in arrays])
        return np.asarray(counts > 0)
    bound: float = _bound(path, arrays)
    if bound >= EXACT_IN_INT64:
        magnitudes = [np.abs(array.astype(np.float64)) for array in arrays]
        bound = float(_contract(path, magnitudes).max(initial=0)) * (1 + ROUNDING)
    if not bound < EXACT_IN_INT64:
        problem = f"are of {dtype}, and sums of their products may be {bound:.3g}, beyond 64 bits"
        raise InputError("arrays", problem, "convert them to float64")
    wide = np.float64 if bound < EXACT_IN_FLOAT64 else np.int64
    result = _contract(path, [array.astype(wide) for array in arrays])
    limits = np.iinfo(dtype)
    if result.size and (result.min() < limits.min or result.max() > limits.max):
        problem = f"are of {dtype}, and the result goes from {result.min():.0f} to {result.max():.0f}"
        raise InputError("arrays", problem, "convert them to int64 or to float64")
    return np.asarray(result.astype(dtype))


def _bound(path: ContractionPath, arrays: Sequence[NDArray[Any]]) -> int:
    """The most that a sum of products of absolute values can be, by the largest value of each array."""
    largest = [max(abs(int(array.max(initial=0))), abs(int(array.min(initial=0)))) for array in arrays]
    network = path.network
    summed = set(network.size_dict) - set(network.output)
    return prod(largest) * prod(network.size_dict[index] for index in summed)


def _contract(path: ContractionPath, arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """A contraction along the path by NumPy alone, in the dtype of the arrays."""
    tensors: dict[int, tuple[tuple[str, ...], NDArray[Any]]] = {
        number: (term, array)
        for number, (term, array) in enumerate(zip(path.network.inputs, arrays, strict=True))
    }
    output = path.network.output
    for number, step in enumerate(path.ssa_path):
        terms, taken = zip(*(tensors.pop(tensor) for tensor in step), strict=True)
        rest = set(output).union(*(term for term, _ in tensors.values()))
        last = not tensors
        term = output if last else tuple(dict.fromkeys(i for one in terms for i in one if i in rest))
        tensors[len(arrays) + number] = term, einsum(taken, terms, term)
    ((term, result),) = tensors.values()
    return result if path.ssa_path and term == output else einsum([result], [term], output)
