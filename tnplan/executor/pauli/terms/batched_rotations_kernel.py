"""The numba kernel of many rotations: what every thread of a rank does, from one rotation to the next.

Each thread has some of the shards, and takes each of them as far as it
comes. A rotation has three phases on a shard: its terms are split; the lists of the shard at the rotation's
distance are taken; and terms past the limits go, if that is due. `done` says how many phases a shard has
behind it. The second phase waits until the other shard has done the first, so that its lists are there, the
third until the other has done the second, so that it has read what is changed here. So a shard waits for one
other alone, and for none in a rotation that leaves branches where they are.

A shard where a list does not fit stops all threads. They return, the host enlarges it, and calls again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.vector_operations import (
    columns_at,
    load_acquire,
    store_release,
    vector_at,
    yield_processor,
)
from tnplan.executor.device.cpu.bits_kernel import inline, jit
from tnplan.executor.pauli.terms.hash_table import Branches, ShardArrays
from tnplan.executor.pauli.terms.hash_table_kernel import (
    anticommuting,
    close_gaps,
    may_split,
    merge_branches,
    split,
    sweep,
    unite,
)

N, N_SPARE, IS_SWEPT, N_HITS, N_CHANGED, CAPACITY, N_SLOTS, LISTED, LACKS, NUMBERS = range(10)
"""The columns of `ShardTables.numbers`. LACKS: how many rows a shard has too few."""
BEFORE, GROWN, AFTER, BRANCHED, MERGED, CUT, SWEPT, COUNTED = range(8)
"""The columns of the log: terms before a rotation, after it, after the sweep; terms split, branches merged,
branches cut, terms swept."""
PHASES = 3
"""Phases of a rotation on a shard: split, merge, sweep."""
WORDS_A_LINE = 8
"""Words between the shards' counts of phases, each of which is a separate line of memory."""
SPINS_BEFORE_YIELD = 2000
"""Rounds in which a thread finds no work before it gives the processor to another."""
ROWS_A_GAP = 4
"""Gaps are closed when more than a row in so many is spare."""


@inline
def terms_of(numbers: Any, s: Any) -> Any:
    """The terms of shard s."""
    return numbers[s, N] - numbers[s, N_SPARE]


@inline
def arrays_of(tables: Any, s: Any, width: int) -> Any:
    """The `ShardArrays` of shard s, whose words have `width` 64-bit words."""
    at, capacity = tables.addresses[s], tables.numbers[s, CAPACITY]
    coefficient = tables.coefficients.dtype
    return ShardArrays(
        columns_at(at[0], capacity, width, np.uint64), vector_at(at[1], capacity, coefficient),
        vector_at(at[2], capacity, np.uint32), vector_at(at[3], capacity, np.int32),
        vector_at(at[4], tables.numbers[s, N_SLOTS], np.uint64), vector_at(at[5], capacity, np.uint32),
        vector_at(at[6], capacity, np.uint32), vector_at(at[7], width, np.uint64),
        vector_at(at[8], capacity, np.uint32), vector_at(at[9], capacity, np.uint32),
        vector_at(at[10], capacity, coefficient), vector_at(at[11], capacity, np.int32),
        vector_at(at[12], capacity, np.uint32), vector_at(at[13], width, np.int64),
    )  # fmt: skip


# Threads and memory order. `done` of a shard counts its finished phases. A thread writes it with release
# after it has changed the shard, and others read it with acquire before they read the shard: so what they
# read is there. Three phases suffice, since the partner of shard s at a rotation is s ^ distance, and the
# partner's partner is s itself: two shards only wait for each other.
@jit
def split_shard(tables: Any, s: int, number: int, rotations: Any, cuts: Any, max_terms: int) -> bool:
    """The first phase: split the terms of shard s, and list their branches.

    False, and nothing done, where terms and branches may be more than `max_terms`.
    """
    # Bounds are looked at before anything is changed, so that a rotation is done whole or not at all.
    shard, log, losses = tables.numbers[s], tables.log[s, number], tables.losses[s, number]
    generator, (cut, _, follow) = rotations.generators[number], cuts
    rows = arrays_of(tables, s, generator.size)
    log[BEFORE] = shard[N] - shard[N_SPARE]
    shard[N_HITS] = shard[LISTED] = shard[N_CHANGED] = 0
    # The union of all rows' bits rules out most rotations of a local circuit without a look at the terms.
    if not may_split(rows.union, generator):
        return True
    hits = anticommuting(rows.keys, shard[N], generator, rows.hits, rows.columns)
    if log[BEFORE] + hits > max_terms:
        return False
    shard[N_HITS] = shard[N_CHANGED] = hits
    rotation = generator, rotations.cosines[number], rotations.sines[number]
    shard[LISTED], losses[0], losses[1], log[CUT] = split(rows, shard[N_HITS], follow, rotation, cut)
    log[BRANCHED] = shard[N_HITS]
    return True


@jit
def merge_shard(tables: Any, s: int, other: int, number: int, rotations: Any, follow: bool) -> bool:
    """The second phase: take the list of shard `other` to shard s; False where it does not fit."""
    # Invariant: `other` has split, and has not begun to sweep: its list and its keys stay as they are.
    shard, log, listed = tables.numbers[s], tables.log[s, number], tables.numbers[other, LISTED]
    if listed:
        # The worst case is that every branch makes a new term; where that does not fit, the host
        # enlarges the arrays and calls again, at this phase.
        lacks = shard[N] - shard[N_SPARE] + listed - shard[CAPACITY]
        if lacks > 0:
            shard[LACKS] = lacks
            return False
        generator = rotations.generators[number]
        source = arrays_of(tables, other, generator.size)
        branches = Branches(
            source.keys, source.tags, source.senders[:listed], source.values[:listed],
            source.counts[:listed], generator,
        )  # fmt: skip
        shard[N], shard[N_SPARE], fresh, log[MERGED] = merge_branches(
            arrays_of(tables, s, generator.size), (shard[N], shard[N_SPARE], shard[N_HITS]), branches,
            s == other, follow,
        )  # fmt: skip
        shard[N_CHANGED] = shard[N_HITS] + fresh
    log[GROWN] = terms_of(tables.numbers, s)
    return True


@jit
def sweep_shard(tables: Any, s: int, number: int, width: int, cuts: Any, is_due: bool) -> None:
    """The third phase: drop terms of shard s that are past the limits, if that is due."""
    shard, log, losses = tables.numbers[s], tables.log[s, number], tables.losses[s, number]
    # A sweep looks at the changed rows alone, where all others have been looked at since they changed.
    if is_due:
        rows = arrays_of(tables, s, width)
        n_changed = shard[N_CHANGED] if shard[IS_SWEPT] else -1
        shard[N_SPARE], losses[2], losses[3], log[SWEPT] = sweep(
            rows, shard[N], shard[N_SPARE], cuts[1], cuts[2], (shard[N_HITS], n_changed)
        )
        if ROWS_A_GAP * shard[N_SPARE] > shard[N]:
            shard[N], shard[N_SPARE] = close_gaps(rows, shard[N], shard[N_SPARE]), 0
    shard[IS_SWEPT] = is_due or (shard[IS_SWEPT] and shard[N_CHANGED] == 0)
    log[AFTER] = terms_of(tables.numbers, s)


@jit
def rotate_shards(tables: Any, rotations: Any, cuts: Any, bound: Any, first: int, threads: int) -> None:
    """Take the shards first, first + threads, ... through the `RotationBatch`, as far as they come.

    `cuts` are the cut of branches, the `TermLimits`, and whether frequencies are followed.
    Stops before a rotation when all shards together have more terms than `bound.before`, or where one may
    have more than `bound.after` behind it.
    """
    # Each thread has the shards first, first + threads, ... alone: no two threads change one shard.
    done, stop = tables.done, tables.stop
    n_shards, width = len(tables.numbers), rotations.generators.shape[1]
    phases, spins = PHASES * len(rotations.generators), 0
    while True:
        has_moved, is_unfinished = False, False
        for s in range(first, n_shards, threads):
            # As far as this shard comes: to the end, or until its partner lags behind.
            while done[WORDS_A_LINE * s] < phases:
                number, phase = divmod(done[WORDS_A_LINE * s], PHASES)
                other = s ^ rotations.distances[number]
                if load_acquire(stop, 0):
                    return
                if phase == 0:
                    total = 0
                    for t in range(n_shards):
                        total += terms_of(tables.numbers, t)
                    if total > bound.before or not split_shard(
                        tables, s, number, rotations, cuts, bound.after
                    ):
                        store_release(stop, 0, 1)
                        return
                # Wait: another shard first, if this thread has one. Phase 1 needs the partner's
                # phase 0 of this rotation, phase 2 its phase 1.
                elif load_acquire(done, WORDS_A_LINE * other) < PHASES * number + phase:
                    break
                elif phase == 1:
                    if not merge_shard(tables, s, other, number, rotations, cuts[2]):
                        store_release(stop, 0, 1)
                        return
                else:
                    sweep_shard(tables, s, number, width, cuts, rotations.due[number])
                store_release(done, WORDS_A_LINE * s, done[WORDS_A_LINE * s] + 1)
                has_moved = True
            is_unfinished = is_unfinished or done[WORDS_A_LINE * s] < phases
        if not is_unfinished:
            return
        # No progress: spin, then give the processor away, as there may be more threads than cores.
        spins = 0 if has_moved else spins + 1
        if spins > SPINS_BEFORE_YIELD:
            yield_processor()


@jit
def begin_rotations(tables: Any, width: int) -> None:
    """Find the bits that the rows of every shard have."""
    for s in range(len(tables.numbers)):
        rows = arrays_of(tables, s, width)
        unite(rows.keys, tables.numbers[s, N], rows.union)


@jit
def end_rotations(tables: Any, width: int) -> None:
    """Close the gaps in all shards."""
    for s in range(len(tables.numbers)):
        shard = tables.numbers[s]
        shard[N], shard[N_SPARE] = close_gaps(arrays_of(tables, s, width), shard[N], shard[N_SPARE]), 0
