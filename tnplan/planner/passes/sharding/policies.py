"""The policies of the distribution pass: which layouts a step tries.

docs/explanation/policies.md explains them.

`ours` tries every state that can be inherited, every partial swap towards longer-lived modes, the paper's
prefix, sums over distributed modes and, where both operands are distributed, their mixtures. `paper` tries
what section IV-B.3 of the paper does: keep the distributed modes or take the fresh leading prefix; where
both operands are distributed, on which the paper is silent, it is given the same mixtures as `ours`.
`waiting` is for `distribute_by_tier`: there `base` is the layout that a step already has.
"""

from __future__ import annotations

from collections.abc import Iterable

from tnplan.planner.passes.sharding.search import StepChoices, restrict
from tnplan.planner.passes.sharding.states import ShardingState, StateSpace

POLICIES = ("ours", "paper")


def ours(choices: StepChoices) -> Iterable[ShardingState]:
    """Candidate layouts of a step: see the module's docstring."""
    space, step, base, *_ = choices
    left, right = (
        [space.settle(base, state) for state in states] for states in (choices.left, choices.right)
    )
    # Local (or as settled), and activate: free digits for the longest-lived modes of the output.
    layouts = {base, space.fill(base, step.out_bits)}
    reduced = step.reduced_mask
    # Sum over distributed modes: work is divided where the output alone has too few modes.
    if reduced:
        layouts.add(space.fill(space.fill(base, step.reduced_bits), step.out_bits))
    operands = ((left, step.left_kept_bits), (right, step.right_kept_bits))
    for states, kept_bits in operands:
        layouts.add(space.fill(base, (*kept_bits, *step.out_bits)))
        # Of every state of an operand: keep it as it is, sum over what it has of summed modes, or
        # redistribute.
        for state in states:
            if state == base:
                continue
            layouts.add(state)
            if any(modes & reduced for modes in state):
                layouts.add(space.fill(state, kept_bits))
            inherited = space.settle(base, restrict(state, step.out_mask))
            layouts.update(_swaps(space, inherited, kept_bits, step.out_bits))
    layouts.update(_merges(choices._replace(left=left, right=right)))
    return sorted(layouts)


def waiting(choices: StepChoices) -> Iterable[ShardingState]:
    """The candidates of `ours`, and those that leave digits of summed modes free, for modes still to come."""
    space, step, base, left, right = choices
    layouts = set(ours(choices))
    for state in (*left, *right):
        inherited = space.settle(base, restrict(state, step.out_mask))
        layouts |= {inherited, space.fill(inherited, step.out_bits)}
    return sorted(layouts)


def _merges(choices: StepChoices) -> Iterable[ShardingState]:
    """Layouts for two distributed operands, from the cheapest few states of each."""
    for first in choices.left[:4]:
        for second in choices.right[:4]:
            if choices.base not in (first, second):
                yield from _mixtures(choices, first, second)


def _swaps(
    space: StateSpace, inherited: ShardingState, kept_bits: tuple[int, ...], out_bits: tuple[int, ...]
) -> Iterable[ShardingState]:
    """The kept modes with free digits filled, and with the shortest-lived of each class replaced."""
    prefer = (*kept_bits, *out_bits)
    base = space.fill(inherited, prefer)
    yield base
    yield space.fill(inherited, kept_bits)
    # Partial redistributions: of each class one mode is replaced, the shortest-lived first. With j of d
    # binary modes replaced only 1 - 2^-j of the shard moves.
    for position in range(space.n_settled, len(space.classes)):
        remaining = list(inherited)
        for bit in reversed(out_bits):
            if remaining[position] & bit:
                remaining[position] &= ~bit
                yield space.fill(tuple(remaining), prefer)


def _mixtures(choices: StepChoices, first: ShardingState, second: ShardingState) -> Iterable[ShardingState]:
    """Layouts between the states of two distributed operands, shared modes first."""
    space, step, base, *_ = choices
    shared = space.settle(base, restrict(first, step.right_mask))
    yield space.fill(shared, step.out_bits)
    spread_first = [bit for bit in (*step.left_kept_bits, *step.reduced_bits) if any(bit & m for m in first)]
    spread_second = [
        bit for bit in (*step.right_kept_bits, *step.reduced_bits) if any(bit & m for m in second)
    ]
    # Both operands are distributed and the digits do not suffice for both sets of modes: the first `count` of
    # one operand, then those of the other, in every proportion.
    for count in range(len(spread_first) + 1):
        yield space.fill(base, (*spread_first[:count], *spread_second, *spread_first[count:], *step.out_bits))


def paper(choices: StepChoices) -> Iterable[ShardingState]:
    """Keep, or the fresh leading prefix (Eq. 4); gather as soon as the step is not large."""
    space, step = choices.space, choices.step
    if not step.large:
        return [space.local]
    layouts = set()
    for states, mask in ((choices.left, step.left_mask), (choices.right, step.right_mask)):
        for state in states:
            if state == space.local:
                continue
            # Keep is possible unless a distributed mode is about to be summed; then redistribution is forced.
            if restrict(state, step.out_mask) == state:
                layouts.add(state)
            layouts.add(space.fill(space.local, [bit for bit in step.out_order_bits if bit & mask]))
    if not layouts:
        layouts.add(space.fill(space.local, step.out_order_bits))
    layouts.update(_merges(choices))
    return sorted(layouts)
