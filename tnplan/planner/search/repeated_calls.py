"""A path for a contraction that is made many times with the same values of some tensors.

What depends on those alone is contracted once. The search sees an index more, on the tensors that change,
whose extent is the number of calls: so a step costs as often as it is made.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf, log2

from tnplan.planner.hardware.profile import Profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_in_proportion import search_in_proportion

CALLS = "calls..."
"""The index of the calls: no equation has this label."""


def search_for_calls(
    network: Network,
    dtype: str,
    profile: Profile,
    changing: Collection[int],
    calls: int,
    max_elements: float = inf,
) -> ContractionPath:
    """The path with the least time of all calls, in which the tensors `changing` have new values each time.

    Where the largest tensor of that path has more than `max_elements`, it is one that suits a single call.
    """
    inputs = tuple(
        (CALLS, *term) if number in changing else term for number, term in enumerate(network.inputs)
    )
    weighted = Network(inputs, (CALLS, *network.output), {CALLS: calls, **network.size_dict})
    weighted_path = search_in_proportion(weighted, dtype, profile, max_elements=max_elements * calls)
    sliced = tuple(index for index in weighted_path.sliced_inds if index != CALLS)
    path = ContractionPath(network, weighted_path.ssa_path, sliced, dtype)
    if path_cost(path).log2_largest <= log2(max_elements):
        return path
    return search_in_proportion(network, dtype, profile, max_elements=max_elements)
