"""Which rank gets which tensor of a contraction with a bond limit: whole subtrees, of even work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tnplan.planner.search.bond_limited_order import BondLimitedOrder

STEP_MADDS = 1e5
"""Multiply-adds that take as long as the calls of a step do."""
SPLITS = 8
"""Subtrees for each rank at most."""


def owners_of(network: Sequence[Mapping[int, int]], order: BondLimitedOrder, count: int) -> list[int]:
    """The rank of each tensor, those of results behind those of the network; the last one is rank 0's.

    The heaviest subtree is split again and again, and subtrees go to the rank that has the least. What is
    above them stays where its heavier operand is. Of these divisions the one is taken whose steps end first.

    Examples
    --------
    >>> order = BondLimitedOrder([(0, 1), (2, 3), (4, 5)], 3 * [[]], 0.0, 0, 0, [1e9, 1e9, 1.0])
    >>> owners_of(4 * [{}], order, 2)
    [1, 1, 0, 0, 1, 0, 0]
    """
    n = len(network)
    if count == 1:
        return [0] * (n + len(order.pairs))
    if order.sides:  # rows are cut as a whole: each side is one rank's
        return order.sides
    pairs, works = order.pairs, [STEP_MADDS + work for work in order.step_madds]
    total = [0.0] * n
    for (left, right), work in zip(pairs, works, strict=True):
        total.append(total[left] + total[right] + work)
    subtrees, best = [len(total) - 1], (float("inf"), [0] * len(total))
    for _ in range(SPLITS * count):
        owners = _dealt(n, pairs, total, subtrees, count)
        best = min(best, (_end(n, order, owners), owners))
        heaviest = max(subtrees, key=lambda root: (total[root], root))
        if heaviest < n:
            break
        subtrees.remove(heaviest)
        subtrees += pairs[heaviest - n]
    owners = best[1]
    # The rank of the last tensor becomes rank 0, and rank 0 that one.
    names = {owners[-1]: 0, 0: owners[-1]}
    return [names.get(owner, owner) for owner in owners]


def _dealt(
    n: int, pairs: Sequence[tuple[int, int]], total: Sequence[float], subtrees: Sequence[int], count: int
) -> list[int]:
    """The owners of all tensors, where subtrees are dealt."""
    owners = [-1] * len(total)
    loads = [0.0] * count
    for root in sorted(subtrees, key=lambda root: (-total[root], root)):
        owners[root] = loads.index(min(loads))
        loads[owners[root]] += total[root]
    for new, (left, right) in reversed([*enumerate(pairs, n)]):
        if owners[new] >= 0:  # all below is there, too
            owners[left] = owners[right] = owners[new]
    for new, pair in enumerate(pairs, n):
        if owners[new] < 0:
            owners[new] = owners[max(pair, key=lambda operand: (total[operand], operand))]
    return owners


def share_of_time(parts: Sequence[tuple[int, BondLimitedOrder, Sequence[int]]]) -> float:
    """The time of ranks over that of one, for parts of a network in turn, by the work of their steps.

    Each part is the number of its tensors, its order and its owners. Messages take no time here.

    Examples
    --------
    >>> order = BondLimitedOrder([(0, 1), (2, 3), (4, 5)], 3 * [[]], 0.0, 0, 0, [1e9, 1e9, 1.0])
    >>> round(share_of_time([(4, order, [1, 1, 0, 0, 1, 0, 0])]), 3)
    0.5
    """
    alone = sum(STEP_MADDS + work for _, order, _ in parts for work in order.step_madds)
    return sum(_end(*part) for part in parts) / alone if alone else 1.0


def _end(n: int, order: BondLimitedOrder, owners: Sequence[int]) -> float:
    """When the last step ends, where ranks wait for each other as the steps have it."""
    clocks, ends = [0.0] * (max(owners) + 1), [0.0] * len(owners)
    works = [STEP_MADDS + work for work in order.step_madds]
    steps = zip(order.pairs, order.compressions, works, strict=True)
    for new, ((left, right), cuts, work) in enumerate(steps, n):
        owner = owners[new]
        start = max(clocks[owner], ends[left], ends[right])
        if owners[left] != owner or owners[right] != owner:  # the sender comes to this step as well
            start = max(start, clocks[owners[left]], clocks[owners[right]])
        others = {owners[other] for _, other, _ in cuts} - {owner}
        start = max([start, *(clocks[other] for other in others)])
        # Both ends of a bond make their factors at the same time.
        end = start + work / (1.0 + bool(others))
        for rank in (owner, *others):
            clocks[rank] = end
        ends[new] = end
    return ends[-1]
