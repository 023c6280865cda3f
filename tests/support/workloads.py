"""Values of networks with many hyper-indices, for tests of the workloads: a greedy path and einsum."""

from __future__ import annotations

from collections.abc import Sequence

import cotengra
import numpy as np

from tnplan.planner.networks.network import Network
from tnplan.planner.networks.simplify import simplify


def greedy_ssa_path(network: Network) -> tuple[tuple[int, int], ...]:
    """A path of pairs in static single assignment."""
    steps = cotengra.array_contract_path(
        network.inputs, network.output, network.size_dict, optimize="greedy", canonicalize=False
    )
    live, path = list(range(len(network.inputs))), []
    for number, (first, second) in enumerate(map(sorted, steps), start=len(live)):
        path.append((live.pop(second), live.pop(first)))
        live.append(number)
    return tuple(path)


def closed_value(network: Network, arrays: Sequence[np.ndarray]) -> complex:
    """The scalar that a network without open indices stands for, simplified and contracted pair by pair."""
    network, values = simplify(network, arrays)
    terms = list(network.inputs)
    live = set(range(len(terms)))
    path = greedy_ssa_path(network) if len(terms) > 1 else ()
    for first, second in path:
        live -= {first, second}
        needed = {index for number in live for index in terms[number]}
        both = dict.fromkeys(terms[first] + terms[second])
        letters = {index: letter for letter, index in enumerate(both)}
        kept = tuple(index for index in both if index in needed)
        operands = [
            item
            for number in (first, second)
            for item in (values[number], [letters[index] for index in terms[number]])
        ]
        values.append(np.einsum(*operands, [letters[index] for index in kept]))
        live.add(len(terms))
        terms.append(kept)
    return complex(values[-1])
