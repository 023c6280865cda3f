"""Many rotations at once on the shards of a rank: their arrays, the threads, and the ledger.

Knows nothing of other ranks: the rotations leave every branch on its rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.pauli.terms.hash_table import HashTerms, ShardArrays
from tnplan.executor.pauli.terms.ledger import Ledger, Loss
from tnplan.executor.pauli.terms.protocol import RotationBatch
from tnplan.executor.pauli.terms.truncation import TermLimits

NO_BOUND = 1 << 62
"""More terms than there can be."""


class Bound(NamedTuple):
    """Where rotations stop: before one with more than `before` terms, and, for a lone shard, before one after
    which there may be more than `after`."""

    before: int = NO_BOUND
    after: int = NO_BOUND


UNBOUNDED = Bound()
SHARD_COUNTERS = ("n", "n_spare", "is_swept", "n_hits", "n_changed")
"""The first columns of a shard's numbers."""


class ShardTables(NamedTuple):
    """What the threads of a rank share: a row for each shard, and a word to `stop` all of them.

    `addresses` are those of the `ShardArrays`; `batched_rotations_kernel` has the columns of `numbers` and
    of `log` [shard, rotation, column]. `done` counts the phases behind a shard; `losses` [shard, rotation, 4]
    are L1 norms and squares of branches and of sweeps. `coefficients` is an empty array of their type.
    """

    addresses: Array
    numbers: Array
    done: Array
    stop: Array
    log: Array
    losses: Array
    coefficients: Array


def rotate_all(
    shards: Sequence[HashTerms], rotations: RotationBatch, cut: float, limits: TermLimits, ledger: Ledger,
    pool: ThreadPoolExecutor | None = None, threads: int = 1, bound: Bound = UNBOUNDED,
) -> int:  # fmt: skip
    """Do rotations, and enter them in the ledger; each is a step. Branches below `cut` are dropped.

    With a pool its `threads` share the shards, else this thread has all of them. Returns how many are done,
    fewer than all where the `bound` of a lone shard stops them.
    """
    from tnplan.executor.pauli.terms import batched_rotations_kernel as kernel

    # Kernels allocate nothing: they stop where a list does not fit, the host enlarges the arrays, and they go
    # on at the same phase of the same rotation. `done` has the phases, so nothing is done twice.
    rotations = rotations._replace(generators=np.array(rotations.generators))
    width = rotations.generators.shape[1]
    tables = shard_tables(shards, len(rotations.generators))
    numbers = tables.numbers
    workers = 1 if pool is None else threads

    def work(first: int) -> None:
        try:
            cuts = cut, limits, limits.has_frequency
            kernel.rotate_shards(tables, rotations, cuts, bound, first, workers)
        # The other threads would wait for this one for ever.
        except BaseException:
            tables.stop[0] = 1
            raise

    kernel.begin_rotations(tables, width)
    while True:
        running = [pool.submit(work, first) for first in range(1, threads)] if pool is not None else []
        work(0)
        for task in running:
            task.result()
        if not numbers[:, kernel.LACKS].any():
            break
        for s, shard in enumerate(shards):
            lacks, listed = numbers[s, [kernel.LACKS, kernel.LISTED]].tolist()
            _take(shard, numbers[s])
            # Other shards are enlarged as well if they are nearly full: stops are costly.
            nearly_full = min(shard.max_rows, 5 * (shard.n - shard.n_spare) // 4)
            shard.reserve(shard.capacity + lacks if lacks else nearly_full, listed)
            _give(shard, tables.addresses[s], numbers[s])
        tables.stop[0] = 0
    kernel.end_rotations(tables, width)
    for s, shard in enumerate(shards):
        _take(shard, numbers[s])
    finished = int(tables.done.max()) // kernel.PHASES
    log, losses = (table[:, :finished].sum(axis=0) for table in (tables.log, tables.losses))
    _enter(ledger, log, losses, rotations.due)
    return finished


def shard_tables(shards: Sequence[HashTerms], n: int) -> ShardTables:
    """The tables of shards for `n` rotations."""
    from tnplan.executor.pauli.terms import batched_rotations_kernel as kernel

    n_shards = len(shards)
    tables = ShardTables(
        np.empty((n_shards, len(ShardArrays._fields)), np.int64),
        np.zeros((n_shards, kernel.NUMBERS), np.int64), np.zeros(kernel.WORDS_A_LINE * n_shards, np.int64),
        np.zeros(1, np.int64), np.zeros((n_shards, n, kernel.COUNTED), np.int64), np.zeros((n_shards, n, 4)),
        shards[0].arrays.coefficients[:0],
    )  # fmt: skip
    for s, shard in enumerate(shards):
        _give(shard, tables.addresses[s], tables.numbers[s])
    return tables


def _give(shard: HashTerms, addresses: Array, numbers: Array) -> None:
    """Tell the kernel where a shard's arrays lie, and its numbers."""
    from tnplan.executor.pauli.terms.batched_rotations_kernel import CAPACITY, LACKS, N_SLOTS

    shard.refresh()
    addresses[:] = [array.ctypes.data for array in shard.arrays]
    numbers[: len(SHARD_COUNTERS)] = [getattr(shard, name) for name in SHARD_COUNTERS]
    numbers[[CAPACITY, N_SLOTS, LACKS]] = shard.capacity, len(shard.arrays.slots), 0


def _take(shard: HashTerms, numbers: Array) -> None:
    """Tell a shard its numbers."""
    for name, number in zip(SHARD_COUNTERS, numbers.tolist(), strict=False):
        setattr(shard, name, number)


def _enter(ledger: Ledger, log: Array, losses: Array, due: Array) -> None:
    """Enter rotations, a line of the log each, with their losses: of branches, and of sweeps if due."""
    lost = np.zeros((len(log), 2, len(Loss._fields)))
    lost[:, :, :2] = losses.reshape(-1, 2, 2)
    lost[:, :, 2] = log[:, 5:]
    happened = np.stack([np.ones(len(log), bool), due[: len(log)]], axis=1)
    ledger.enter(log[:, :5], lost[happened])
