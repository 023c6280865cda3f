"""A tensor network: which index sits on which tensor, and how large it is. No values, no order.

`structure_key` tells networks that are the same but for names and order; paths of such may be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

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
