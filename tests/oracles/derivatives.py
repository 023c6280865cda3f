"""Derivatives of a contraction without automatic differentiation: it is linear in each of its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tests.support.networks import exact
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network


def gradients_by_einsum(
    path: ContractionPath, arrays: Sequence[NDArray[np.generic]], cotangent: NDArray[np.generic]
) -> list[tuple[NDArray[np.generic], NDArray[np.generic]]]:
    """For each tensor the derivative of the sum of cotangent times result, and the sum of absolute values, in
    complex128. It is the contraction of all others and the cotangent; a repeated index of the tensor is open
    once, and one that nothing else has gives equal entries."""
    network, found = path.network, []
    for number, leaf in enumerate(network.inputs):
        others = [term for place, term in enumerate(network.inputs) if place != number]
        values = [array for place, array in enumerate(arrays) if place != number]
        others, values = [*others, network.output], [*values, cotangent]
        present = {index for term in others for index in term}
        distinct = list(dict.fromkeys(leaf))
        open_ = tuple(index for index in distinct if index in present)
        sizes = {index: network.size_dict[index] for term in (*others, leaf) for index in term}
        steps = (tuple(range(len(others))),)
        rest = replace(path, network=Network(tuple(others), open_, sizes), ssa_path=steps, sliced_inds=())
        found.append(tuple(_spread(one, leaf, open_, network.size_dict) for one in exact(rest, values)))
    return found  # type: ignore[return-value]


def _spread(
    values: NDArray[np.generic], leaf: tuple[str, ...], open_: tuple[str, ...], sizes: dict[str, int]
) -> NDArray[np.generic]:
    """The entries of a tensor with the given ones on the diagonals of repeated indices, the others 0."""
    whole = np.zeros([sizes[index] for index in leaf], values.dtype)
    for place in np.ndindex(*whole.shape):
        value_of: dict[str, int] = {}
        if all(value_of.setdefault(index, value) == value for index, value in zip(leaf, place, strict=True)):
            whole[place] = values[tuple(value_of[index] for index in open_)]
    return whole
