"""The numba kernel of many rotations: what every thread of a rank does, from one rotation to the next.

Imported lazily (numba loads slowly). Each thread has some of the shards, and takes each of them as far as it
comes. A rotation has three phases on a shard: its terms are split; the lists of the shard at the rotation's
distance are taken; and terms past the limits go, if that is due. `done` says how many phases a shard has
behind it. The second phase waits until the other shard has done the first, so that its lists are there, the
third until the other has done the second, so that it has read what is changed here. So a shard waits for one
other alone, and for none in a rotation that leaves branches where they are.

A shard that has no room for a list stops all threads. They return, the host makes room, and calls again.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from tnplan.executor.device.cpu.bits_kernel import inline, jit
from tnplan.executor.pauli.terms.hash_table_kernel import (
    anticommuting,
    close_gaps,
    may_split,
    merge_branches,
    split,
    sweep,
    unite,
)
from tnplan.executor.pauli.terms.intrinsics_kernel import (
    load_acquire,
    pointer,
    store_release,
    yield_processor,
)

ARRAYS = (
    "keys", "coefficients", "tags", "frequencies", "slots", "where", "spare", "union", "hits", "index",
    "values", "counts", "targets",
)  # fmt: skip
"""The columns of `addresses`: addresses of a shard's arrays."""
KEYS, COEFFICIENTS, TAGS, FREQUENCIES, SLOTS, WHERE, SPARE, UNION = range(8)
HITS, INDEX, VALUES, COUNTS, TARGETS = range(8, 13)
N, N_SPARE, IS_SWEPT, N_HITS, N_CHANGED, CAPACITY, N_SLOTS, LISTED, LACKS, NUMBERS = range(10)
"""The columns of `numbers`: those of a shard. LACKS: for how many rows it has no room."""
BEFORE, GROWN, AFTER, BRANCHED, MERGED, CUT, SWEPT, COUNTED = range(8)
"""The columns of the log: terms before a rotation, after it, after the sweep; terms split, branches merged,
branches cut, terms swept."""
PHASES = 3
"""Phases of a rotation on a shard: split, merge, sweep."""
WORDS_A_LINE = 8
"""Words between the shards' counts of phases, each of which is a line of memory of its own."""
SPINS_BEFORE_YIELD = 2000
"""Rounds in which a thread finds no work before it gives the processor to another."""
ROWS_A_GAP = 4
"""Gaps are closed when more than a row in so many is spare."""


@inline
def terms_of(numbers: Any, s: Any) -> Any:
    """The terms of shard s."""
    return numbers[s, N] - numbers[s, N_SPARE]


@inline
def rows_of(at: Any, own: Any, width: int, kind: Any) -> Any:
    """The arrays of a shard's terms: keys, coefficients, tags, frequencies, slots, where, spare."""
    room = own[CAPACITY]
    return (
        numba.farray(pointer(at[KEYS]), (room, width), np.uint64),
        numba.carray(pointer(at[COEFFICIENTS]), room, kind.dtype),
        numba.carray(pointer(at[TAGS]), room, np.uint32),
        numba.carray(pointer(at[FREQUENCIES]), room, np.int32),
        numba.carray(pointer(at[SLOTS]), own[N_SLOTS], np.uint64),
        numba.carray(pointer(at[WHERE]), room, np.uint32),
        numba.carray(pointer(at[SPARE]), room, np.uint32),
    )


@jit
def split_shard(
    addresses: Any, numbers: Any, s: int, kind: Any, generator: Any, cosine: float, sine: float, cut: float,
    follow: bool, log: Any, losses: Any,
) -> None:  # fmt: skip
    """The first phase: split the terms of shard s, and list their branches."""
    at, own = addresses[s], numbers[s]
    log[BEFORE] = own[N] - own[N_SPARE]
    own[N_HITS] = own[LISTED] = own[N_CHANGED] = 0
    if not may_split(numba.carray(pointer(at[UNION]), generator.size, np.uint64), generator):
        return
    n, room = own[N], own[CAPACITY]
    keys = numba.farray(pointer(at[KEYS]), (room, generator.size), np.uint64)
    hits = numba.carray(pointer(at[HITS]), room, np.uint32)
    own[N_HITS] = own[N_CHANGED] = anticommuting(keys, n, generator, hits)
    own[LISTED], losses[0], losses[1], log[CUT] = split(
        keys,
        numba.carray(pointer(at[COEFFICIENTS]), room, kind.dtype),
        numba.carray(pointer(at[FREQUENCIES]), room, np.int32),
        numba.carray(pointer(at[WHERE]), room, np.uint32),
        follow, generator, cosine, sine, cut, hits, own[N_HITS],
        numba.carray(pointer(at[INDEX]), room, np.uint32),
        numba.carray(pointer(at[VALUES]), room, kind.dtype),
        numba.carray(pointer(at[COUNTS]), room, np.int32),
    )  # fmt: skip
    log[BRANCHED] = own[N_HITS]


@jit
def merge_shard(
    addresses: Any, numbers: Any, s: int, other: int, kind: Any, generator: Any, generator_tag: Any,
    follow: bool, log: Any,
) -> bool:  # fmt: skip
    """The second phase: take the list of shard `other` to shard s; False where there is no room for it."""
    at, own, to, its = addresses[s], numbers[s], addresses[other], numbers[other]
    listed = its[LISTED]
    if listed:
        lacks = own[N] - own[N_SPARE] + listed - own[CAPACITY]
        if lacks > 0:
            own[LACKS] = lacks
            return False
        room, width = own[CAPACITY], generator.size
        keys, coefficients, tags, frequencies, slots, where, spare = rows_of(at, own, width, kind)
        own[N], own[N_SPARE], fresh, log[MERGED] = merge_branches(
            keys, coefficients, tags, frequencies, slots, where, spare,
            numba.carray(pointer(at[UNION]), width, np.uint64),
            own[N], own[N_SPARE],
            numba.farray(pointer(to[KEYS]), (its[CAPACITY], width), np.uint64),
            numba.carray(pointer(to[TAGS]), its[CAPACITY], np.uint32),
            numba.carray(pointer(to[INDEX]), listed, np.uint32),
            numba.carray(pointer(to[VALUES]), listed, kind.dtype),
            numba.carray(pointer(to[COUNTS]), listed, np.int32),
            listed, generator, generator_tag, s == other, follow,
            numba.carray(pointer(at[TARGETS]), room, np.uint32),
            numba.carray(pointer(at[HITS]), room, np.uint32),
            own[N_HITS],
        )  # fmt: skip
        own[N_CHANGED] = own[N_HITS] + fresh
    log[GROWN] = terms_of(numbers, s)
    return True


@jit
def close_shard(addresses: Any, numbers: Any, s: int, kind: Any, width: int) -> None:
    """Put the last terms of shard s into its spare rows."""
    own = numbers[s]
    keys, coefficients, tags, frequencies, slots, where, spare = rows_of(addresses[s], own, width, kind)
    own[N] = close_gaps(
        keys, coefficients, tags, frequencies, slots, where, spare, own[N], own[N_SPARE]
    )  # fmt: skip
    own[N_SPARE] = 0


@jit
def sweep_shard(
    addresses: Any, numbers: Any, s: int, kind: Any, width: int, limits: Any, is_due: bool, follow: bool,
    log: Any, losses: Any,
) -> None:  # fmt: skip
    """The third phase: drop terms of shard s that are past the limits, if that is due."""
    at, own = addresses[s], numbers[s]
    if is_due:
        keys, coefficients, tags, frequencies, slots, where, spare = rows_of(at, own, width, kind)
        own[N_SPARE], losses[2], losses[3], log[SWEPT] = sweep(
            keys, coefficients, tags, frequencies, slots, where, spare,
            own[N], own[N_SPARE], limits[0], int(limits[1]), int(limits[2]), int(limits[3]), limits[4] != 0,
            follow,
            numba.carray(pointer(at[HITS]), own[CAPACITY], np.uint32),
            own[N_HITS], own[N_CHANGED] if own[IS_SWEPT] else -1,
        )  # fmt: skip
        if ROWS_A_GAP * own[N_SPARE] > own[N]:
            close_shard(addresses, numbers, s, kind, width)
    own[IS_SWEPT] = is_due or (own[IS_SWEPT] and own[N_CHANGED] == 0)
    log[AFTER] = terms_of(numbers, s)


@jit
def rotate_shards(
    addresses: Any, numbers: Any, done: Any, stop: Any, kind: Any, generators: Any, tags: Any, cosines: Any,
    sines: Any, cut: float, distances: Any, due: Any, limits: Any, follow: bool, most: int, log: Any,
    losses: Any, first: int, threads: int,
) -> None:  # fmt: skip
    """Take the shards first, first + threads, ... through the rotations, as far as they come.

    Stops before a rotation when all shards together have more than `most` terms.
    """
    n_shards, phases, width = len(addresses), PHASES * len(generators), generators.shape[1]
    spins = 0
    while True:
        moved, left = False, False
        for s in range(first, n_shards, threads):
            while done[WORDS_A_LINE * s] < phases:
                number, phase = divmod(done[WORDS_A_LINE * s], PHASES)
                other = s ^ distances[number]
                if load_acquire(stop, 0):
                    return
                if phase == 0:
                    total = 0
                    for t in range(n_shards):
                        total += terms_of(numbers, t)
                    if total > most:
                        store_release(stop, 0, 1)
                        return
                    split_shard(
                        addresses, numbers, s, kind, generators[number], cosines[number], sines[number], cut,
                        follow, log[s, number], losses[s, number],
                    )  # fmt: skip
                elif load_acquire(done, WORDS_A_LINE * other) < PHASES * number + phase:
                    break
                elif phase == 1:
                    if not merge_shard(
                        addresses, numbers, s, other, kind, generators[number], tags[number], follow,
                        log[s, number],
                    ):  # fmt: skip
                        store_release(stop, 0, 1)
                        return
                else:
                    sweep_shard(
                        addresses, numbers, s, kind, width, limits, due[number], follow, log[s, number],
                        losses[s, number],
                    )  # fmt: skip
                store_release(done, WORDS_A_LINE * s, done[WORDS_A_LINE * s] + 1)
                moved = True
            left = left or done[WORDS_A_LINE * s] < phases
        if not left:
            return
        spins = 0 if moved else spins + 1
        if spins > SPINS_BEFORE_YIELD:
            yield_processor()


@jit
def begin_rotations(addresses: Any, numbers: Any, width: int) -> None:
    """Find the bits that the rows of every shard have."""
    for s in range(len(addresses)):
        keys = numba.farray(pointer(addresses[s, KEYS]), (numbers[s, CAPACITY], width), np.uint64)
        unite(keys, numbers[s, N], numba.carray(pointer(addresses[s, UNION]), width, np.uint64))


@jit
def end_rotations(addresses: Any, numbers: Any, width: int, kind: Any) -> None:
    """Close the gaps in all shards."""
    for s in range(len(addresses)):
        close_shard(addresses, numbers, s, kind, width)
