"""Rows of work over threads."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from tests.support.engines.sbd import random_integrals, some_strings, string_set
from tnplan.executor.device.cpu.parallel_rows import blas_threads, over_rows, over_spans, thread_pools
from tnplan.executor.sbd.sigma.product_hamiltonian import ProductHamiltonian
from tnplan.executor.sbd.solver.solve import solve


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("n_rows", "longest"), [(0, None), (1, None), (7, 2), (100, None)])
def test_every_row_is_done_once(threads: int, n_rows: int, longest: int | None) -> None:
    done, sizes, users = np.zeros(n_rows, int), [], set()

    def work(first: int, last: int) -> None:
        done[first:last] += 1
        sizes.append(last - first)
        users.add(threading.get_ident())

    over_rows(n_rows, threads, work, longest)
    assert (done == 1).all()
    assert max(sizes, default=0) <= (longest or n_rows)
    assert len(users) <= threads


def test_an_error_is_raised_when_no_chunk_runs_any_more() -> None:
    running, begun = [], []

    def work(first: int, last: int) -> None:
        begun.append(first)
        if first == 0:
            raise ZeroDivisionError
        running.append(first)
        time.sleep(0.02)
        running.remove(first)

    with pytest.raises(ZeroDivisionError):
        over_rows(64, 2, work)
    assert not running
    assert len(begun) < 16
    over_rows(64, 2, lambda first, last: begun.clear())
    assert not begun


def widest_blas() -> int:
    """The most threads that a BLAS takes which was there when the first product was made."""
    return max(pool["num_threads"] for pool in thread_pools().info() if pool["user_api"] == "blas")


def test_blas_keeps_to_the_threads_of_a_solve() -> None:
    integrals = random_integrals(7, 3, 3, 4)
    h = ProductHamiltonian(integrals, string_set(some_strings(7, 3, 20, 9), integrals), threads=1)
    seen = []
    with blas_threads(2):
        before = widest_blas()
        solve(h, integrals, progress=lambda step: seen.append(widest_blas()))
        assert widest_blas() == before
    assert before == 2
    assert set(seen) == {1}


@pytest.mark.parametrize(("n_rows", "least", "most"), [(1000, 300, 4), (1000, 1, 16), (10, 300, 1)])
def test_chunks_have_so_many_rows_at_least(n_rows: int, least: int, most: int) -> None:
    spans: list[tuple[int, int]] = []
    over_rows(n_rows, 2, lambda first, last: spans.append((first, last)), least=least)
    spans.sort()
    assert len(spans) <= most
    assert [first for first, _ in spans] == [0, *(last for _, last in spans[:-1])]
    assert spans[-1][1] == n_rows
    assert all(last - first >= least for first, last in spans[:-1])


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("count", "length"), [(0, 1), (1, 1), (17, 4), (64, 64), (30, 7)])
def test_spans_cover_every_number_once(count: int, length: int, threads: int) -> None:
    found: list[tuple[int, int]] = []
    over_spans(count, length, threads, lambda first, last: found.append((first, last)))
    expected = [(first, min(count, first + length)) for first in range(0, count, length)]
    assert sorted(found) == expected


@pytest.mark.parametrize("bad", [0, 3, 39])
def test_an_error_in_a_span_is_raised_and_ends_the_rest(bad: int) -> None:
    def work(first: int, last: int) -> None:
        if first == bad:
            raise ValueError(f"span {first}")
        time.sleep(1e-3)

    with pytest.raises(ValueError, match=f"span {bad}"):
        over_spans(40, 1, 3, work)
    done: list[int] = []
    over_spans(8, 1, 3, lambda first, last: done.append(first))
    assert sorted(done) == list(range(8))


def test_spans_within_spans_end() -> None:
    done: list[tuple[int, int]] = []
    over_spans(6, 1, 2, lambda a, _: over_spans(6, 1, 2, lambda b, _: done.append((a, b))))
    assert sorted(done) == [(a, b) for a in range(6) for b in range(6)]
