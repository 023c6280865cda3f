"""A network as arrays: which tensor has which indices, and the other way round. Knows no order and no tree.

The result is one more tensor, the last, where indices are open: a tree over all of them is then one without a
root, and every order may treat open indices like others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import log2
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Hypergraph(NamedTuple):
    """Tensors 0 .. T-1 and indices 0 .. I-1 of extents above 1."""

    tensor_starts: Ints
    """(T + 1): where the indices of each tensor begin in `indices`."""
    indices: Ints
    index_starts: Ints
    """(I + 1): where the tensors of each index begin in `tensors`."""
    tensors: Ints
    weights: Floats
    """(I): log2 of the extents."""

    @property
    def n_tensors(self) -> int:
        """Tensors, the result among them where indices are open."""
        return len(self.tensor_starts) - 1


class Structure(NamedTuple):
    """A network as arrays, with the names of its indices."""

    graph: Hypergraph
    names: list[str]
    closed: NDArray[np.bool_]
    """(I): the indices that are summed, which may be sliced."""


def make_structure(
    inputs: Sequence[Sequence[str]], output: Sequence[str], sizes: Mapping[str, float]
) -> Structure:
    """The arrays of a network. Indices stand once on a tensor at most; those of extent 1 are left out."""
    names = index_names(inputs, output, sizes)
    numbers = dict(zip(names, range(len(names)), strict=True))
    terms = [*inputs, output] if any(sizes[index] > 1 for index in output) else [*inputs]
    bits = {size: log2(size) for size in {*sizes.values()}}
    if min(bits.values(), default=1.0) <= 0.0:
        terms = [[index for index in term if sizes[index] > 1] for term in terms]
    starts = np.zeros(len(terms) + 1, np.int64)
    np.cumsum(list(map(len, terms)), out=starts[1:])
    indices = np.fromiter(map(numbers.__getitem__, chain.from_iterable(terms)), np.int64, int(starts[-1]))
    graph = transposed(starts, indices, np.array([bits[sizes[index]] for index in names]))
    closed = np.ones(len(names), bool)
    closed[[numbers[index] for index in output if index in numbers]] = False
    return Structure(graph, names, closed)


def make_hypergraph(
    inputs: Sequence[Sequence[str]], output: Sequence[str], sizes: Mapping[str, float]
) -> Hypergraph:
    """The arrays of a network without names."""
    return make_structure(inputs, output, sizes).graph


def index_names(
    inputs: Sequence[Sequence[str]], output: Sequence[str], sizes: Mapping[str, float]
) -> list[str]:
    """The name of each index of the arrays."""
    names = dict.fromkeys(chain.from_iterable((*inputs, output)))
    return [index for index in names if sizes[index] > 1]


def transposed(starts: Ints, indices: Ints, weights: Floats) -> Hypergraph:
    """The same with the tensors of each index."""
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.argsort(indices, kind="stable")
    index_starts = np.zeros(len(weights) + 1, np.int64)
    np.cumsum(np.bincount(indices, minlength=len(weights)), out=index_starts[1:])
    return Hypergraph(starts, indices, index_starts, owners[order].astype(np.int64), weights)
