"""The network that words are contracted in: folded, or with a ket and a bra, whichever costs less."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log10

from tnplan.planner.hardware.cost import FLOPS_PER_PRODUCT
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.of_circuits.pauli_leaves import Support
from tnplan.planner.networks.of_circuits.sandwich import WordCone
from tnplan.planner.networks.of_circuits.steps import Step
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_in_proportion import MANY_TENSORS, quick_path
from tnplan.questions.tensor_networks.networks import ClosedNetwork

COMPARED_FROM = 10.5
"""log10 of the operations of all words from which on both networks may be made: a second of a CPU."""


def word_network(steps: Sequence[Step], support: Support, masks: Sequence[tuple[int, int]]) -> ClosedNetwork:
    """The network of the expectation values of some words on a support.

    Dense gates are folded, others are not. The other network is made too, and paths that are found quickly
    are compared, where it may cost less: that of dense gates where two state vectors do, since ket and bra
    can be contracted apart; that of other gates where there is noise.
    """
    cone = WordCone(steps, support)
    first = ClosedNetwork.of(*(cone.folded(masks) if cone.is_dense else cone.unfolded(masks)))
    if not cone.can_fold or (not cone.is_dense and not cone.is_noisy):
        return first
    if len(first.network.inputs) >= MANY_TENSORS:
        return first
    cost = _log10_operations(first)
    apart = inf if cone.is_noisy else cone.log10_apart + log10(FLOPS_PER_PRODUCT["complex64"])
    if cost + log10(first.count) < COMPARED_FROM or (cone.is_dense and cost < apart):
        return first
    other = ClosedNetwork.of(*(cone.unfolded(masks) if cone.is_dense else cone.folded(masks)))
    return min((first, other), key=_log10_operations)


def _log10_operations(one: ClosedNetwork) -> float:
    """Of one word, by a path that is found quickly."""
    if len(one.network.inputs) < 2:
        return 0.0
    path = quick_path(one.network, one.dtype, load_profile("cpu"))
    return path_cost(path).log10_mnk_all_slices + log10(FLOPS_PER_PRODUCT[one.dtype])
