"""Contractions along a path by NumPy alone: of small arrays, and exactly of integers and booleans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from string import ascii_letters
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.planner.networks.network import Network

Array = NDArray[Any]
Term = tuple[str, ...]
Step = Callable[..., Array]

EXACT_IN_FLOAT64 = 2**53
EXACT_IN_INT64 = 2**63
ROUNDING = 1e-6
"""A bound that was itself computed in floating point is taken this much larger."""
MOST_BY_LOOPS, MOST_SUMMED_BY_LOOPS = 4096, 256
"""Multiply-adds of a small step by the loops of numpy.einsum, and how many of them make one sum: these loops
add one after the other, so that the rounding error of a sum grows with its length."""
MOST_BY_BLAS = 1 << 18
"""Multiply-adds of a small step by BLAS."""
BLAS_FROM = 256
"""Multiply-adds of a product of matrices from which on BLAS is faster than the loops."""


class NumpyContraction:
    """The steps of a contraction as calls of NumPy, made once for its extents.

    Called with arrays of one dtype and of the extents, it gives a new array of that dtype in C order. It
    holds no values, so that any number of threads may call it at once.

    Parameters
    ----------
    network : Network
        What is contracted.
    ssa_path : sequence of tuple of int
        As of `ContractionPath`; no index is sliced.

    Attributes
    ----------
    is_small : bool
        Whether every step takes so little that a plan gains nothing, and rounds no more than a planned one.
    """

    def __init__(self, network: Network, ssa_path: Sequence[tuple[int, ...]]) -> None:
        terms, output = dict(enumerate(network.inputs)), network.output
        self.is_small = True
        self._steps: list[tuple[Step, tuple[int, ...]]] = []
        for step in ssa_path or ((0,),):
            taken = [terms.pop(tensor) for tensor in step]
            rest = set(output).union(*terms.values())
            term = tuple(dict.fromkeys(i for one in taken for i in one if i in rest)) if terms else output
            terms[len(network.inputs) + len(self._steps)] = term
            self._steps.append((self._step(taken, term, network.size_dict), step))

    def __call__(self, arrays: Sequence[Array]) -> Array:
        """The contraction of these arrays."""
        if len(self._steps) == 1:
            call, numbers = self._steps[0]
            return call(*[arrays[number] for number in numbers])
        tensors: list[Any] = list(arrays)
        for call, numbers in self._steps:
            tensors.append(call(*[tensors[number] for number in numbers]))
            for number in numbers:
                tensors[number] = None
        result: Array = tensors[-1]
        return result

    def _step(self, terms: Sequence[Term], term: Term, sizes: Mapping[str, int]) -> Step:
        """The call of a step with operands of these terms; its result is new, and contiguous."""
        present = dict.fromkeys(index for one in terms for index in one)
        products, shape = prod(sizes[index] for index in present), tuple(sizes[index] for index in term)
        product = _matrix_product(terms[0], terms[1], term, sizes) if len(terms) == 2 else None
        if product is not None:
            self.is_small &= products <= MOST_BY_BLAS
            return product
        summed = products // max(prod(shape), 1)
        self.is_small &= products <= (MOST_BY_LOOPS if summed > 1 else MOST_BY_BLAS)
        self.is_small &= summed <= MOST_SUMMED_BY_LOOPS and len(present) <= len(ascii_letters)
        letters = dict(zip(present, ascii_letters, strict=False))
        texts = ["".join(letters.get(index, "?") for index in one) for one in (*terms, term)]
        return partial(_by_loops, f"{','.join(texts[:-1])}->{texts[-1]}", shape)


def _by_loops(subscripts: str, shape: tuple[int, ...], *arrays: Array) -> Array:
    """A new array: without `out`, numpy.einsum may return a view of an operand, or a number."""
    result = np.empty(shape, arrays[0].dtype)
    np.einsum(subscripts, *arrays, out=result)
    return result


def _matrix_product(a: Term, b: Term, term: Term, sizes: Mapping[str, int]) -> Step | None:
    """A step as products of matrices [batch | m | k] and [batch | k | n] by BLAS; None where an index stands
    twice in an operand or is summed on one alone, and where the loops are faster."""
    in_a, in_b, kept = set(a), set(b), set(term)
    if len(in_a) < len(a) or len(in_b) < len(b) or not in_a ^ in_b <= kept:
        return None
    k = tuple(index for index in a if index in in_b and index not in kept)
    batch = tuple(index for index in term if index in in_a and index in in_b)
    m, n = (tuple(index for index in term if index not in other) for other in (in_b, in_a))
    if (*batch, *n, *m) == term != (*batch, *m, *n):
        swapped = _matrix_product(b, a, term, sizes)
        return None if swapped is None else lambda x, y: swapped(y, x)
    n_batch, n_m, n_n, n_k = (prod(sizes[index] for index in group) for group in (batch, m, n, k))
    if n_k == 1 or n_m * n_n * n_k < BLAS_FROM:
        return None
    made = (*batch, *m, *n)
    a_axes, b_axes = ([a.index(one) for one in (*batch, *m, *k)], [b.index(one) for one in (*batch, *k, *n)])
    stack = (n_batch,) if batch else ()
    a_shape, b_shape, c_shape = (*stack, n_m, n_k), (*stack, n_k, n_n), (*stack, n_m, n_n)
    shape, order = tuple(sizes[index] for index in made), [made.index(index) for index in term]

    def product(x: Array, y: Array) -> Array:
        x, y = x.transpose(a_axes).reshape(a_shape), y.transpose(b_axes).reshape(b_shape)
        result = np.empty(shape, x.dtype)
        np.matmul(x, y, out=result.reshape(c_shape))
        return result if made == term else result.transpose(order).copy()

    return product


def contract_exactly(
    contraction: NumpyContraction, summed: int, dtype: np.dtype[Any], arrays: Sequence[Array]
) -> Array:
    """Contract integers or booleans to `dtype`; each entry of the result is a sum of `summed` products.

    No value on the way is larger than the sum of the products of absolute values. Below 2^53 these are
    exact in float64, below 2^63 in int64.

    Raises
    ------
    InputError
        Where a value may be beyond 64 bits, or the result is beyond `dtype`.
    """
    if dtype.kind == "b":
        return np.asarray(contraction([array.astype(np.float64) for array in arrays]) > 0)
    largest = (max(abs(int(array.max(initial=0))), abs(int(array.min(initial=0)))) for array in arrays)
    bound: float = prod(largest) * summed
    if bound >= EXACT_IN_INT64:
        magnitudes = [np.abs(array.astype(np.float64)) for array in arrays]
        bound = float(contraction(magnitudes).max(initial=0)) * (1 + ROUNDING)
    if not bound < EXACT_IN_INT64:
        problem = f"are of {dtype}, and sums of their products may be {bound:.3g}, beyond 64 bits"
        raise InputError("arrays", problem, "convert them to float64")
    wide = np.float64 if bound < EXACT_IN_FLOAT64 else np.int64
    result = contraction([array.astype(wide) for array in arrays])
    limits = np.iinfo(dtype)
    if bound > limits.max and result.size and (result.min() < limits.min or result.max() > limits.max):
        problem = f"are of {dtype}, and the result goes from {result.min():.0f} to {result.max():.0f}"
        raise InputError("arrays", problem, "convert them to int64 or to float64")
    return np.asarray(result.astype(dtype))
