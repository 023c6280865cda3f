"""Rows of work over threads: chunks of rising rows, each done by one thread, so that sums keep their order.

Knows threads and BLAS's own; never what is computed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from functools import cache
from threading import Lock
from typing import Any

CHUNKS_A_THREAD = 8
"""So many chunks a thread that none waits long for the last one."""


@cache
def thread_pools() -> Any:
    """The thread pools of the libraries in this process, looked for once."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@cache
def _workers(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads that stay: to start some takes as long as a small product. A forked process has none."""
    return ThreadPoolExecutor(threads)


def blas_threads(threads: int) -> AbstractContextManager[Any]:
    """Where BLAS takes so many threads at most: ranks on one machine would otherwise take all cores each."""
    limit: AbstractContextManager[Any] = thread_pools().limit(limits=threads, user_api="blas")
    return limit


def is_blas_single() -> bool:
    """Whether BLAS takes one thread now: another thread that limits it may have let it take more."""
    pools = thread_pools().lib_controllers
    return all(pool.num_threads == 1 for pool in pools if pool.user_api == "blas")


def over_rows(
    n_rows: int, threads: int, work: Callable[[int, int], None], longest: int | None = None, least: int = 1
) -> None:
    """Call work(first, last) for chunks of all rows, on `threads` threads; BLAS keeps to one thread each.

    No chunk is longer than `longest`, and none but the last is shorter than `least`: to hand a chunk to a
    thread takes as long as many short rows. An error in one chunk is raised. `work` calls no `over_rows`
    itself.
    """
    length = max(1, least, -(-n_rows // (threads * CHUNKS_A_THREAD))) if threads > 1 else max(1, n_rows)
    length = min(length, longest or length)
    with blas_threads(1):
        over_spans(n_rows, length, threads, work)


def over_spans(count: int, length: int, threads: int, work: Callable[[int, int], None]) -> None:
    """Call work(first, last) for spans of `length` of 0 .. count-1, the last one shorter.

    This thread and `threads` - 1 more take them in turn. An error in one is raised, after which none begins.
    """
    starts, lock = iter(range(0, count, length)), Lock()

    def run() -> None:
        try:
            while True:
                with lock:
                    first = next(starts, None)
                if first is None:
                    return
                work(first, min(count, first + length))
        except BaseException:
            with lock:
                # Used up, so that no thread begins another span after an error.
                for _ in starts:
                    pass
            raise

    n_helpers = min(threads, -(-count // length)) - 1
    helpers = [_workers(os.getpid(), threads).submit(run) for _ in range(n_helpers)]
    try:
        run()
    finally:
        # Nothing is left for one that has not begun.
        begun = [helper for helper in helpers if not helper.cancel()]
        wait(begun)
    for helper in begun:
        helper.result()
