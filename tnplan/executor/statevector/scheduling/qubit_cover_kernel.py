"""The numba kernels behind `qubit_cover`. Imported lazily (numba loads slowly).

Gate k has `targets[k]`, the mask of its targets, and `masks[k]`, that of all its bits; `left` are the
numbers of the gates that are left, in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.executor.device.cpu.bits_kernel import count_bits, jit


@jit
def lowest(mask: int) -> int:
    """The lowest bit of a mask that is not 0."""
    return count_bits(np.uint64((mask & -mask) - 1))


@jit
def grow(targets: Any, masks: Any, left: Any, always: int, size: int) -> int:
    """The mask of `size` bits or fewer that the first gates want, the bits of `always` among them."""
    held = always
    blocked = fixed = 0
    for k in left:
        wanted = held | targets[k]
        if masks[k] & blocked or targets[k] & fixed or count_bits(np.uint64(wanted)) > size:
            blocked |= targets[k]
            fixed |= masks[k]
        else:
            held = wanted
    return held


@jit
def remaining(targets: Any, masks: Any, left: Any, held: int, out: Any) -> int:
    """Write the gates left when those that can be done with the bits of `held` are; return how many."""
    blocked = fixed = count = 0
    for k in left:
        if targets[k] & ~held or masks[k] & blocked or targets[k] & fixed:
            blocked |= targets[k]
            fixed |= masks[k]
            out[count] = k
            count += 1
    return count


@jit
def n_done(targets: Any, masks: Any, left: Any, held: int) -> int:
    """How many gates can be done with the bits of `held`."""
    blocked = fixed = count = 0
    for k in left:
        if targets[k] & ~held or masks[k] & blocked or targets[k] & fixed:
            blocked |= targets[k]
            fixed |= masks[k]
            if not held & ~(blocked | fixed):
                break
        else:
            count += 1
    return count


@jit
def climb(targets: Any, masks: Any, left: Any, held: int, always: int, tries: int, room: Any) -> int:
    """Exchange a held bit for another target while that lets more gates be done, the best one first.

    `room` is for numbers of each of 64 bits, int64 [3 or more, 64].
    """
    every = 0
    for k in left:
        every |= targets[k]
    taken = n_done(targets, masks, left, held)
    if taken == len(left):
        return held
    counts, blocked, fixed = room[0], room[1], room[2]
    for _ in range(tries):
        best = held
        for out in range(64):
            if not (held & ~always) >> out & 1:
                continue
            kept, others = held & ~(1 << out), every & ~held
            count_each(targets, masks, left, kept, others, counts, blocked, fixed)
            for new in range(64):
                if others >> new & 1 and counts[new] > taken:
                    best, taken = kept | 1 << new, counts[new]
        if best == held:
            break
        held = best
    return held


@jit
def count_each(
    targets: Any, masks: Any, left: Any, kept: int, others: int, counts: Any, blocked: Any, fixed: Any
) -> None:  # fmt: skip
    """In `counts`, for each bit of `others` at once, the `n_done` of `kept` and this bit.

    Sets of bits of `others` are masks: those with which a gate is done, or stays behind; those with which a
    bit is a target (`blocked`) or any bit (`fixed`) of a gate left behind; those with which a held bit is
    not fixed yet (`alive`): with the others no more gates count. `common` gates, done with all that were
    alive then, are not in `counts` yet.
    """
    counts[:] = 0
    blocked[:] = 0
    fixed[:] = 0
    alive = others
    common = 0
    for k in left:
        outside = targets[k] & ~kept
        done = alive
        if outside:
            done = alive & outside if not outside & (outside - 1) else 0
        rest = masks[k] if done else 0
        while rest:
            bit = lowest(rest)
            rest &= rest - 1
            done &= ~(fixed[bit] if targets[k] >> bit & 1 else blocked[bit])
        behind = alive & ~done
        if not behind:
            common += 1
            continue
        while done:
            counts[lowest(done)] += 1
            done &= done - 1
        grown, rest = 0, masks[k]
        while rest:
            bit = lowest(rest)
            rest &= rest - 1
            grown |= behind & ~fixed[bit]
            fixed[bit] |= behind
            if targets[k] >> bit & 1:
                blocked[bit] |= behind
        if grown:
            still, rest = 0, kept
            while rest and still != alive:
                still |= alive & ~fixed[lowest(rest)]
                rest &= rest - 1
            rest = alive & ~still
            while rest:
                bit = lowest(rest)
                rest &= rest - 1
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
def next_passes(
    targets: Any, masks: Any, left: Any, window: int, always: int, size: int, tries: int, seed: int,
    room: Any, held: Any, rest: Any, counts: Any,
) -> int:  # fmt: skip
    """Choose the bits of the next pass in several ways: `held[0]` from those that the first gates want, the
    others from random ones, all made better by `climb`.

    The gates that `held[k]` leaves are rest[k, : counts[k]]. The random bits follow from `seed`; what is
    returned is the seed of others. `room` is int64 [4, 64].
    """
    near, bits = left[:window], room[3]
    wanted = n_bits = 0
    for k in near:
        wanted |= targets[k] & ~always
    while wanted:
        bits[n_bits] = lowest(wanted)
        wanted &= wanted - 1
        n_bits += 1
    n_drawn = min(n_bits, size - int(count_bits(np.uint64(always))))
    for number in range(len(held)):
        start = always
        if number == 0:
            start = grow(targets, masks, left, always, size)
        else:
            for place in range(n_drawn):  # the first places of a random order
                seed = (1103515245 * seed + 12345) & 0x7FFFFFFF
                other = place + (seed >> 8) % (n_bits - place)
                bits[place], bits[other] = bits[other], bits[place]
                start |= 1 << bits[place]
        held[number] = climb(targets, masks, near, start, always, tries, room)
        counts[number] = remaining(targets, masks, left, held[number], rest[number])
    return seed


@jit
def fill_rounds(
    targets: Any, masks: Any, always: int, size: int, window: int, tries: int, room: Any, left: Any,
    numbers: Any, held: Any,
) -> int:  # fmt: skip
    """Write in `numbers` the round in which each gate is done, and in `held` the bits of each round; return
    how many rounds there are.

    Bits are chosen as by `grow` and `climb`. `left` is for the numbers of the gates that are left.
    """
    for k in range(len(left)):
        left[k] = k
    count, n_rounds = len(left), 0
    while count:
        now = left[:count]
        chosen = climb(
            targets, masks, now[:window], grow(targets, masks, now, always, size), always, tries, room
        )
        for k in now:
            numbers[k] = n_rounds
        held[n_rounds] = chosen
        count = remaining(targets, masks, now, chosen, left)  # which overtakes no number that is not read
        n_rounds += 1
    return n_rounds
