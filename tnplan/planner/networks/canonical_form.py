"""Which networks are the same but for the names of their indices and the order of their tensors.

Used to tell whose paths may be compared. Knows no paths and no costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tnplan.common.files import identity_of
from tnplan.planner.networks.network import Network

Colours = list[int]
MOST_ROUNDS = 32
MOST_MARKED = 100_000
"""Tensors to mark times tensors of the network: regular networks beyond are compared by name."""


def structure_key(network: Network) -> str:
    """A key that two networks share if one becomes the other by renaming and reordering.

    Colours of tensors and indices are refined by their neighbours until they split no further, once for the
    network as it is and once for every tensor of the smallest class of equals, marked as different. Networks
    that are not the same have other keys, but for contrived ones that this does not tell apart. Large
    networks of which all tensors look alike share a key only if names and order are equal too.
    """
    names = list(network.size_dict)
    place = {index: number for number, index in enumerate(names)}
    terms = [[place[index] for index in term] for term in network.inputs]
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
        found = len(set(tensors)) + len(set(indices))
        if found <= n_classes:
            break
        n_classes = found
    return tensors, hash((tuple(sorted(tensors)), tuple(sorted(indices))))
