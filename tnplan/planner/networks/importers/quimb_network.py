"""A tensor network of quimb, with its arrays. Reads its attributes; imports no quimb."""

from __future__ import annotations

from typing import Any

from tnplan.common.errors import InputError
from tnplan.planner.networks.importers.checks import index_names
from tnplan.planner.networks.network import Network


def is_quimb_network(value: Any) -> bool:
    """Whether something is a TensorNetwork of quimb."""
    return hasattr(value, "tensor_map") and hasattr(value, "outer_inds")


def from_quimb(network: Any) -> tuple[Network, list[Any]]:
    """The network, its index names as strings, and the arrays of its tensors, of any library.

    Raises InputError for a network with an exponent of its own.
    """
    if getattr(network, "exponent", 0.0):
        raise InputError(
            "network", f"has the exponent {network.exponent}",
            "multiply it into a tensor with equalize_norms or distribute_exponent",
        )  # fmt: skip
    tensors = list(network.tensor_map.values())
    names = index_names((index for tensor in tensors for index in tensor.inds), "network")
    inputs = tuple(tuple(names[index] for index in tensor.inds) for tensor in tensors)
    sizes = {
        names[index]: int(extent)
        for tensor in tensors
        for index, extent in zip(tensor.inds, tensor.shape, strict=True)
    }
    output = tuple(names[index] for index in network.outer_inds())
    return Network(inputs, output, sizes), [tensor.data for tensor in tensors]
