"""A network in which two tensors share one bond at most, and each bond has two ends.

Axes of extent 1 go, repeated indices become diagonals, and indices that one tensor alone has are summed. An
index of three or more tensors becomes bonds of copy tensors, which are 1 where all their indices agree. An
open index is a bond too, with a neighbour outside that has a negative number: -1 - k is index k of the
output.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from math import frexp, prod
from typing import Any

import numpy as np

from tnplan.planner.networks.network import Network


class PairNetwork:
    """The structure of such a network, and its tensors from those of the network that it is made of.

    - `network`: Its tensors come first; copy tensors follow.
    - `bonds`: For each tensor the extents of its bonds, by the neighbour, in the order of its axes.
    - `components`: The tensors of each connected part.
    - `n_arrays`: The tensors of the network that it is made of.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        holders: dict[str, list[int]] = defaultdict(list)
        for number, term in enumerate(network.inputs):
            for index in dict.fromkeys(term):
                if network.size_dict[index] > 1:
                    holders[index].append(number)
        for position, index in enumerate(network.output):
            if index in holders:
                holders[index].append(-1 - position)
        self.n_arrays = len(network.inputs)
        shared: list[dict[int, list[str]]] = [defaultdict(list) for _ in range(self.n_arrays)]
        """Of each tensor: the indices that it shares with each neighbour."""
        for index, ends in holders.items():
            first = ends[0]
            for end in ends[1:-1]:  # a chain of copy tensors, with one more end each
                copy = len(shared)
                shared.append(defaultdict(list))
                for other in (first, end):
                    shared[copy][other].append(index)
                    shared[other][copy].append(index)
                first = copy
            if len(ends) > 1:
                shared[first][ends[-1]].append(index)
                if ends[-1] >= 0:
                    shared[ends[-1]][first].append(index)
        self._shared = shared
        self.bonds: list[Mapping[int, int]] = [
            {other: prod(network.size_dict[index] for index in indices) for other, indices in shares.items()}
            for shares in shared
        ]
        self.components = self._components()

    def _components(self) -> list[list[int]]:
        found: list[list[int]] = []
        seen: set[int] = set()
        for start in range(len(self.bonds)):
            if start not in seen:
                seen.add(start)
                reached = [start]
                for number in reached:
                    new = [other for other in self.bonds[number] if other >= 0 and other not in seen]
                    seen.update(new)
                    reached += new
                found.append(sorted(reached))
        return found

    def bonds_within(self, numbers: Sequence[int]) -> list[dict[int, int]]:
        """The bonds of the tensors of a component, whose neighbours have their positions in it."""
        names = {number: name for name, number in enumerate(numbers)}
        return [
            {names.get(other, other): extent for other, extent in self.bonds[number].items()}
            for number in numbers
        ]

    def tensors(
        self, arrays: Sequence[Any], dtype: str, xp: Any, own: Container[int] | None = None
    ) -> tuple[list[Any], int]:
        """The tensors, scaled to largest parts from 0.5 to 1 before indices are summed, and the power of 2 of
        their product.

        - `arrays`: Those of the network, of one floating dtype and of the library `xp`.
        - `own`: The tensors that are made; the others are None, and so may be their arrays. Default: all.
        """
        tensors, exponent = list[Any](), 0
        for number, (term, by_neighbour, bonds, array) in enumerate(
            zip(self._network.inputs, self._shared, self.bonds, arrays, strict=False)
        ):
            if own is not None and number not in own:
                tensors.append(None)
                continue
            power = frexp(largest_component(array))[1]
            # Two factors: one alone may be beyond the range where the numbers are not.
            scaled = array * 2.0 ** (-power // 2) * 2.0 ** (-power - -power // 2)
            exponent += power
            extents = [self._network.size_dict[index] for index in term]
            wide = [axis for axis, extent in enumerate(extents) if extent > 1]
            names = [term[axis] for axis in wide]
            numbers = {index: number for number, index in enumerate(names)}
            kept = [numbers[index] for indices in by_neighbour.values() for index in indices]
            scaled = scaled.reshape([extents[axis] for axis in wide])
            summed = xp.einsum(scaled, [numbers[index] for index in names], kept)
            tensors.append(summed.reshape(tuple(bonds.values())))
        for number, bonds in enumerate(self.bonds[len(arrays) :], len(arrays)):
            if own is not None and number not in own:
                tensors.append(None)
                continue
            extent = next(iter(bonds.values()))
            copy = xp.zeros((extent,) * 3, dtype)
            copy[(xp.arange(extent),) * 3] = 1
            tensors.append(copy)
        return tensors, exponent

    def by_arrays(self, by_tensors: Mapping[int, Any], arrays: Sequence[Any]) -> list[Any]:
        """Derivatives by the arrays of the network from those by the tensors, all NumPy's, as `tensors` makes
        these of them; a tensor without one has 0."""
        results = []
        for number, (term, by_neighbour, array) in enumerate(
            zip(self._network.inputs, self._shared, arrays, strict=False)
        ):
            power = frexp(largest_component(array))[1]
            extents = [self._network.size_dict[index] for index in term]
            names = [index for index, extent in zip(term, extents, strict=True) if extent > 1]
            distinct = list(dict.fromkeys(names))
            numbers = {index: number for number, index in enumerate(distinct)}
            kept = [index for indices in by_neighbour.values() for index in indices]
            found = by_tensors[number].reshape([self._network.size_dict[index] for index in kept])
            result = np.zeros([self._network.size_dict[index] for index in names], found.dtype)
            # Indices that are summed are constant in the derivative, and off diagonals it is 0.
            diagonal = result
            if len(distinct) < len(names):
                diagonal = np.einsum(result, [numbers[index] for index in names], [*range(len(distinct))])
            order = sorted(range(len(kept)), key=lambda axis: numbers[kept[axis]])
            shape = [self._network.size_dict[index] if index in kept else 1 for index in distinct]
            diagonal[...] = found.transpose(order).reshape(shape)
            results.append(result.reshape(extents) * 2.0 ** (-power // 2) * 2.0 ** (-power - -power // 2))
        return results


def largest_component(array: Any) -> float:
    """The largest magnitude of a real or imaginary part; a GPU is waited for once."""
    flat = array.reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    return float(np.maximum(flat.max(), -flat.min()))
