"""The numba kernels behind `qubit_cover`. Imported lazily (numba loads slowly).

`gates` are two arrays: gate k has targets[k], the mask of its targets, and masks[k], that of all its bits;
`pending` are the numbers of the gates still to be done, in order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tnplan.executor.device.cpu.bits_kernel import count_bits, jit


class CoverSearch(NamedTuple):
    """How bits are chosen: `size` or fewer, those of `always` among them, for the next `window` gates; a bit
    is exchanged for another `tries` times at most."""

    always: int
    size: int
    window: int
    tries: int


class Choices(NamedTuple):
    """For each choice its bits, the gates that it leaves, and how many these are: rest[k, : counts[k]]."""

    chosen: Any
    rest: Any
    counts: Any


# Bits are held while their gates are done. A gate is a matrix on its `targets` and diagonal on its
# other bits (selectors). It needs its targets held; a selector may be anywhere. Two gates commute
# if no target of either is a bit of the other. So, when a gate is left behind:
#       blocked   its targets: no later gate with any bit there may be done;
#       fixed     all its bits: no later gate with a target there may be done.
@jit
def lowest(mask: int) -> int:
    """The lowest bit of a mask that is not 0."""
    return count_bits(np.uint64((mask & -mask) - 1))


@jit
def grow(gates: Any, pending: Any, always: int, size: int) -> int:
    """The mask of `size` bits or fewer that the first gates want, the bits of `always` among them."""
    # Greedy, in the order of the gates: each adds its targets while they fit.
    targets, masks = gates
    chosen = always
    blocked = fixed = 0
    for k in pending:
        enlarged = chosen | targets[k]
        if masks[k] & blocked or targets[k] & fixed or count_bits(np.uint64(enlarged)) > size:
            blocked |= targets[k]
            fixed |= masks[k]
        else:
            chosen = enlarged
    return chosen


@jit
def remaining(gates: Any, pending: Any, chosen: int, out: Any) -> int:
    """Write the gates left when those that can be done with the bits of `chosen` are; return how many."""
    targets, masks = gates
    blocked = fixed = count = 0
    for k in pending:
        if targets[k] & ~chosen or masks[k] & blocked or targets[k] & fixed:
            blocked |= targets[k]
            fixed |= masks[k]
            out[count] = k
            count += 1
    return count


@jit
def n_done(gates: Any, pending: Any, chosen: int) -> int:
    """How many gates can be done with the bits of `chosen`."""
    targets, masks = gates
    blocked = fixed = count = 0
    for k in pending:
        if targets[k] & ~chosen or masks[k] & blocked or targets[k] & fixed:
            blocked |= targets[k]
            fixed |= masks[k]
            # Every held bit is closed to targets: no further gate with a target can be done.
            if not chosen & ~(blocked | fixed):
                break
        else:
            count += 1
    return count


@jit
def climb(gates: Any, pending: Any, chosen: int, always: int, tries: int, scratch: Any) -> int:
    """Exchange a held bit for another target while that lets more gates be done, the best one first.

    `scratch` is for numbers of each of 64 bits, int64 [3 or more, 64].
    """
    # Local search: of all exchanges of one held bit for one target outside, the best; until none is better.
    every = 0
    for k in pending:
        every |= gates[0][k]
    most = n_done(gates, pending, chosen)
    if most == len(pending):
        return chosen
    counts = scratch[0]
    for _ in range(tries):
        best = chosen
        for out in range(64):
            if not (chosen & ~always) >> out & 1:
                continue
            fewer, others = chosen & ~(1 << out), every & ~chosen
            # One walk over the gates counts for all new bits at once, where `n_done` would take a
            # walk for each.
            count_each(gates, pending, fewer, others, scratch)
            for new in range(64):
                if others >> new & 1 and counts[new] > most:
                    best, most = fewer | 1 << new, counts[new]
        if best == chosen:
            break
        chosen = best
    return chosen


@jit
def count_each(gates: Any, pending: Any, fewer: int, others: int, scratch: Any) -> None:
    """In scratch[0], for each bit of `others` at once, the `n_done` of `fewer` and this bit.

    Sets of bits of `others` are masks: those with which a gate is done, or stays behind; those with which a
    bit is a target (`blocked`) or any bit (`fixed`) of a gate left behind; those with which a held bit is
    not fixed yet (`alive`): with the others no more gates count. `common` gates, done with all that were
    alive then, are not in `counts` yet.
    """
    # Bit-parallel: a set of candidates for the new bit is a mask. blocked[bit] and fixed[bit] are the sets of
    # candidates with which this bit is so. `done` is the set with which gate k is done, `behind` the others.
    # Gates that are done with every candidate alive are counted once, in `common`.
    (targets, masks), counts, blocked, fixed = gates, scratch[0], scratch[1], scratch[2]
    counts[:] = 0
    blocked[:] = 0
    fixed[:] = 0
    alive = others
    common = 0
    for k in pending:
        # A gate with one target outside is done by that candidate alone; with two, by none.
        outside = targets[k] & ~fewer
        done = alive
        if outside:
            done = alive & outside if not outside & (outside - 1) else 0
        bits = masks[k] if done else 0
        while bits:
            bit = lowest(bits)
            bits &= bits - 1
            done &= ~(fixed[bit] if targets[k] >> bit & 1 else blocked[bit])
        behind = alive & ~done
        # Done with all that are alive.
        if not behind:
            common += 1
            continue
        while done:
            counts[lowest(done)] += 1
            done &= done - 1
        # Left behind: its bits become fixed, its targets blocked, for the candidates in `behind`.
        grown, bits = 0, masks[k]
        while bits:
            bit = lowest(bits)
            bits &= bits - 1
            grown |= behind & ~fixed[bit]
            fixed[bit] |= behind
            if targets[k] >> bit & 1:
                blocked[bit] |= behind
        # A candidate dies where all its held bits and itself are fixed: later gates cannot count.
        # This is `n_done`'s early end for each candidate.
        if grown:
            still, bits = 0, fewer
            while bits and still != alive:
                still |= alive & ~fixed[lowest(bits)]
                bits &= bits - 1
            bits = alive & ~still
            while bits:
                bit = lowest(bits)
                bits &= bits - 1
                still |= ~fixed[bit] & 1 << bit
            closed = alive & ~still
            while closed:
                counts[lowest(closed)] += common
                closed &= closed - 1
            alive &= still
            if not alive:
                break
    while alive:
        counts[lowest(alive)] += common
        alive &= alive - 1


@jit
def next_passes(gates: Any, pending: Any, search: Any, seed: int, scratch: Any, choices: Any) -> int:
    """Choose the bits of the next pass in several ways: the first `Choices` from those that the first gates
    want, the others from random ones, all made better by `climb`.

    The random bits follow from `seed`; what is returned is the seed of others. `scratch` is int64 [4, 64].
    """
    # The first choice is greedy; the others begin with random bits among those that the next
    # `window` gates want, a linear congruential generator giving the same ones on every machine.
    always, size, window, tries = search
    near, bits = pending[:window], scratch[3]
    candidates = n_bits = 0
    for k in near:
        candidates |= gates[0][k] & ~always
    while candidates:
        bits[n_bits] = lowest(candidates)
        candidates &= candidates - 1
        n_bits += 1
    n_drawn = min(n_bits, size - int(count_bits(np.uint64(always))))
    for number in range(len(choices.chosen)):
        start = always
        if number == 0:
            start = grow(gates, pending, always, size)
        else:
            for position in range(n_drawn):  # the first places of a random order
                seed = (1103515245 * seed + 12345) & 0x7FFFFFFF
                other = position + (seed >> 8) % (n_bits - position)
                bits[position], bits[other] = bits[other], bits[position]
                start |= 1 << bits[position]
        chosen = choices.chosen[number] = climb(gates, near, start, always, tries, scratch)
        choices.counts[number] = remaining(gates, pending, chosen, choices.rest[number])
    return seed


@jit
def fill_rounds(gates: Any, search: Any, scratch: Any, pending: Any, numbers: Any, round_bits: Any) -> int:
    """Write in `numbers` the round in which each gate is done, and in `round_bits` the bits of each round.

    Returns how many rounds there are.

    Bits are chosen as by `grow` and `climb`. `pending` is for the numbers of the gates that are left.
    """
    always, size, window, tries = search
    for k in range(len(pending)):
        pending[k] = k
    count, n_rounds = len(pending), 0
    while count:
        now = pending[:count]
        first = grow(gates, now, always, size)
        chosen = climb(gates, now[:window], first, always, tries, scratch)
        # Every gate left gets this round's number, and those that stay get a later one.
        for k in now:
            numbers[k] = n_rounds
        round_bits[n_rounds] = chosen
        count = remaining(gates, now, chosen, pending)  # which overtakes no number that is not read
        n_rounds += 1
    return n_rounds
