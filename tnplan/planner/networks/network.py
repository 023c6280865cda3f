"""A tensor network: which index sits on which tensor, and how large it is. No values, no order.

`structure_key` tells networks that are the same but for names and order; paths of such may be compared. In a
`PairNetwork` two tensors share one bond at most, and each bond has two ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from math import frexp, prod
from typing import Any

import numpy as np

from tnplan.common.errors import InputError
from tnplan.common.files import identity_of
from tnplan.common.units import plural

LARGEST_SIZE = 2**40
"""No index is larger: the planner factorises sizes by trial division."""
Colours = list[int]
MOST_ROUNDS = 32
MOST_MARKED = 100_000
"""Tensors to mark times tensors of the network: regular networks beyond are compared by name."""


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
        try:
            self._check()
        except InputError:
            raise
        except (AttributeError, TypeError, ValueError):
            problem = "has inputs, an output or a size_dict of a wrong type"
            remedy = "give tuples of names of indices, and a dict of extents"
            raise InputError("network", problem, remedy) from None

    def _check(self) -> None:
        if not self.inputs:
            raise InputError("network inputs", "there is no tensor", "give at least one tensor")
        present = set().union(*self.inputs)
        for index in sorted(present - self.size_dict.keys()):
            raise InputError(
                "network size_dict", f"index {index!r} has no size", "give a size for each index of inputs"
            )
        for index, size in self.size_dict.items():
            if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST_SIZE:
                raise InputError(
                    "network size_dict",
                    f"index {index!r} has size {size!r}",
                    f"give an integer from 1 to {LARGEST_SIZE}",
                )
        if len(set(self.output)) == len(self.output) and present.issuperset(self.output):
            return
        for index, count in Counter(self.output).items():
            if count > 1:
                raise InputError(
                    "network output", f"index {index!r} appears {count} times", "list each open index once"
                )
            if index not in present:
                raise InputError(
                    "network output", f"index {index!r} is on no tensor", "list only indices of the tensors"
                )

    def __repr__(self) -> str:
        return f"Network({self.sizes}, {len(self.output)} open)"

    @property
    def sizes(self) -> str:
        """How many tensors and indices there are, in words."""
        tensors = plural(len(self.inputs), "tensor", "tensors")
        return f"{tensors}, {plural(len(self.size_dict), 'index', 'indices')}"

    @property
    def characters(self) -> dict[str, str]:
        """A character for each index on a tensor: its name where all names are single characters."""
        from cotengra import get_symbol

        names = list(dict.fromkeys(index for term in self.inputs for index in term))
        if all(len(name) == 1 for name in names):
            return {name: name for name in names}
        return {name: get_symbol(number) for number, name in enumerate(names)}

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


def structure_key(network: Network) -> str:
    """A key that two networks share if one becomes the other by renaming and reordering.

    Colours of tensors and indices are refined by their neighbours until they split no further, once for the
    network as it is and once for every tensor of the smallest class of equals, marked as different. Networks
    that are not the same have other keys, but for contrived ones that this does not tell apart. Large
    networks of which all tensors look alike share a key only if names and order are equal too.
    """
    names = list(network.size_dict)
    numbers = {index: number for number, index in enumerate(names)}
    terms = [[numbers[index] for index in term] for term in network.inputs]
    counts = [Counter(term) for term in terms]
    is_open = set(network.output)
    start = [hash((network.size_dict[index], index in is_open)) for index in names]
    carriers: list[list[int]] = [[] for _ in names]
    for number, count in enumerate(counts):
        for index in count:
            carriers[index].append(number)
    tensors, summary = _refined([0] * len(terms), start, counts, carriers)
    classes = Counter(tensors)
    marked = []
    if terms and max(classes.values()) > 1:
        size, chosen = min((size, colour) for colour, size in classes.items() if size > 1)
        if size * len(terms) > MOST_MARKED:
            return identity_of([network.inputs, network.output, network.size_dict])
        for number, colour in enumerate(tensors):
            if colour == chosen:
                first = [int(other == number) for other in range(len(terms))]
                marked.append(_refined(first, start, counts, carriers)[1])
    return identity_of([summary, sorted(marked)])


def _refined(
    tensors: Colours, indices: Colours, counts: Sequence[Counter[int]], carriers: Sequence[Sequence[int]]
) -> tuple[Colours, int]:
    """Colours of the tensors when they split no further, and one number for all colours together."""
    n_classes = 0
    for _ in range(MOST_ROUNDS):
        tensors = [
            hash((tensors[number], tuple(sorted((indices[index], times) for index, times in count.items()))))
            for number, count in enumerate(counts)
        ]
        indices = [
            hash((indices[index], tuple(sorted((tensors[n], counts[n][index]) for n in carried))))
            for index, carried in enumerate(carriers)
        ]
        n_colours = len(set(tensors)) + len(set(indices))
        if n_colours <= n_classes:
            break
        n_classes = n_colours
    return tensors, hash((tuple(sorted(tensors)), tuple(sorted(indices))))


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
