"""Products by batches, as a GPU forms them: one body for NumPy's steps and for CuPy's on a GPU."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.oracles.sbd import NumpyBatch
from tests.support.engines.sbd import random_integrals, some_strings, string_set
from tests.support.kernels.emulator import needs_compiler
from tests.support.kernels.gpus import needs_gpus
from tests.support.slow import slow_unless
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.sbd.sigma import batched as batched_module
from tnplan.executor.sbd.sigma import cost_model as cost
from tnplan.executor.sbd.sigma.batched import BatchedHamiltonian
from tnplan.executor.sbd.sigma.cost_model import RowPartition
from tnplan.executor.sbd.sigma.distributed import DistributedHamiltonian
from tnplan.executor.sbd.sigma.opposite_spin import (
    DEEP,
    LANES,
    MOST,
    NONE,
    PADDING,
    PART,
    PARTS,
    ROWS,
    SIGN,
    beta_entries,
    pair_tiles,
    tile_counts,
)
from tnplan.executor.sbd.sigma.product_hamiltonian import (
    EVEN,
    NEITHER,
    ODD,
    ProductHamiltonian,
    balance_rows,
    row_costs,
    tile_work,
)
from tnplan.executor.sbd.solver.davidson import Criteria, davidson
from tnplan.executor.sbd.solver.vector_backend import HostVectors


def gpu_steps(dtype: str = "float64") -> Any:
    from tnplan.executor.sbd.cuda.steps import CupyBatch

    return CupyBatch(dtype)


STEPS = [
    pytest.param(NumpyBatch, id="cpu"),
    pytest.param(gpu_steps, id="gpu", marks=needs_gpus(1)),
]


def on_one_rank(h: ProductHamiltonian, steps: Any) -> DistributedHamiltonian:
    """The whole of H, all rows at once."""
    rows = BatchedHamiltonian(h, steps)
    return run_ranks(1, lambda ranks: DistributedHamiltonian(rows, RowPartition((0, h.shape[0])), ranks))[0]


@pytest.mark.parametrize("make", STEPS)
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(
    ("n", "electrons", "counts"),
    [
        (7, (3, 3), (29, 31)),
        (9, (4, 3), (101, 40)),
        (6, (3, 2), (20, 15)),
        (5, (2, 0), (7, 1)),
        (4, (1, 4), (3, 1)),
        (2, (1, 1), (1, 2)),
    ],
)
def test_batches_give_the_product(
    make: Any, dense: bool, n: int, electrons: tuple[int, int], counts: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    integrals = random_integrals(n, *electrons, seed=4)
    sets = [
        string_set(some_strings(n, spin, count, 9), integrals)
        for spin, count in zip(electrons, counts, strict=True)
    ]
    h = ProductHamiltonian(integrals, *sets, dense=dense, threads=1)
    x = np.random.default_rng(0).standard_normal(h.shape)
    y = h.apply(x)
    monkeypatch.setattr(batched_module, "ROWS_TRANSPOSED", 4)
    steps = make()
    operator = on_one_rank(h, steps)
    made = steps.get(operator.apply(steps.put(x), NEITHER))
    np.testing.assert_allclose(made, y, atol=1e-13 * max(1, np.abs(y).max() * 100))
    np.testing.assert_array_equal(steps.get(operator.diagonal()), h.diagonal())


@pytest.mark.parametrize("make", STEPS)
@pytest.mark.parametrize(
    ("dtype", "dense"),
    slow_unless(lambda dtype, dense: dtype == dense, ["float64", "float32"], [True, False]),
)
@pytest.mark.parametrize("parity", [EVEN, ODD, NEITHER])
@pytest.mark.parametrize(("n", "electrons", "count"), [(7, 3, 30), (9, 4, 101), (12, 6, 260)])
def test_batches_give_the_product_of_equal_sets(
    make: Any, dtype: str, dense: bool, parity: int, n: int, electrons: int, count: int
) -> None:
    integrals = random_integrals(n, electrons, electrons, seed=4)
    strings = string_set(some_strings(n, electrons, count, 9), integrals)
    h = ProductHamiltonian(integrals, strings, dense=dense)
    steps = make(dtype)
    operator = on_one_rank(h, steps)
    x = h.project(np.random.default_rng(0).standard_normal(h.shape), parity)
    expected = h.apply(x, parity)
    made = steps.get(operator.apply(steps.put(x.astype(dtype)), parity))
    assert made.dtype == dtype
    error = np.abs(made - expected).max() / np.abs(expected).max()
    assert error < (1e-13 if dtype == "float64" else 3e-6)


@pytest.mark.parametrize("make", STEPS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("parity", [EVEN, NEITHER])
@pytest.mark.parametrize("at_once", [4, 200, 1584])
def test_rows_in_several_pieces_give_the_product(
    make: Any, dtype: str, parity: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tnplan.executor.sbd.sigma.product_hamiltonian.WARPS_AT_ONCE", at_once)
    integrals = random_integrals(12, 6, 6, seed=4)
    h = ProductHamiltonian(integrals, string_set(some_strings(12, 6, 90, 9), integrals))
    spare = h.row_tasks(h.block(0, 90)).spare
    assert spare == 0 if at_once == 4 else spare > 20
    steps = make(dtype)
    operator = on_one_rank(h, steps)
    x = h.project(np.random.default_rng(0).standard_normal(h.shape), parity)
    expected = h.apply(x, parity)
    made = [steps.get(operator.apply(steps.put(x.astype(dtype)), parity)) for _ in range(2)]
    np.testing.assert_array_equal(*made)
    error = np.abs(made[0] - expected).max() / np.abs(expected).max()
    assert error < (1e-13 if dtype == "float64" else 3e-6)


@pytest.mark.parametrize(("n_rows", "at_once"), [(500, 40), (30, 40), (500, 1)])
def test_pieces_have_all_tiles_once_and_end_together(n_rows: int, at_once: int) -> None:
    random = np.random.default_rng(0)
    work = random.random((n_rows, 20)) * (random.random((n_rows, 20)) > 0.3)
    work[7::50] *= 9
    work[9::50] = 0
    pieces = balance_rows(work, at_once)
    met = np.zeros(work.shape)
    for row, first, last, _ in pieces.table:
        met[row, first:last] += 1
    np.testing.assert_array_equal(met, np.broadcast_to(work.any(1, keepdims=True), work.shape))
    spare = {int(place): int(row) for row, _, _, place in pieces.table if place >= 0}
    assert [spare[k] for k in range(pieces.spare)] == np.repeat(pieces.split, np.diff(pieces.bounds)).tolist()
    assert (pieces.table[pieces.table[:, 3] < 0, 1] == 0).all()
    assert (pieces.spare > 0) == (n_rows * at_once > 500)
    ends = np.zeros(at_once)
    for row, first, last, _ in pieces.table:
        ends[ends.argmin()] += work[row, first:last].sum()
    assert ends.max() - ends.mean() <= (0 if at_once == 1 else work.sum(1).mean() / 2 + 1)
    assert balance_rows(work[:0], at_once).spare == 0


def test_tiles_are_counted_and_their_work() -> None:
    integrals = random_integrals(12, 6, 6, seed=4)
    h = ProductHamiltonian(integrals, string_set(some_strings(12, 6, 300, 9), integrals), threads=1)
    tiles, singles = h.tiles, h.alpha.singles
    places, counts = h.beta.matching.active[singles.pairs], np.diff(singles.start)
    n_columns = LANES * tiles.columns.shape[1]
    n_tiles = tile_counts(places // ROWS, singles.other, len(tiles.start) - 1, n_columns)
    np.testing.assert_array_equal(n_tiles, np.diff(tiles.start))
    for half in (True, False):
        work = tile_work(counts, places if half else None, n_tiles)
        for row, m in ((0, 0), (17, 1), (299, len(n_tiles) - 1)):
            own = places[singles.start[row] : singles.start[row + 1]]
            depth = int((own < ROWS * (m + 1)).sum()) if half else len(own)
            seconds = cost.STEP_S * -(-depth // DEEP) + cost.VISIT_S * -(-depth // MOST)
            np.testing.assert_allclose(work[row, m], n_tiles[m] * seconds)


@pytest.mark.parametrize("symmetric", [True, False])
def test_rows_that_are_read_from_far_cost_more(symmetric: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    integrals = random_integrals(12, 6, 6, seed=4)
    h = ProductHamiltonian(integrals, string_set(some_strings(12, 6, 300, 9), integrals), threads=1)
    tiles, singles = h.tiles, h.alpha.singles
    monkeypatch.setattr(cost, "FAR", 100)
    costs = row_costs(singles, singles, symmetric, cost.GPU)
    monkeypatch.setattr(cost, "FAR", 300)
    more = costs - row_costs(singles, singles, symmetric, cost.GPU)
    for row in (0, 17, 299):
        own = slice(singles.start[row], singles.start[row + 1])
        places = h.beta.matching.active[singles.pairs[own]][np.abs(singles.other[own] - row) > 100]
        met = sum(int(tiles.start[-1] - tiles.start[place // ROWS if symmetric else 0]) for place in places)
        seconds = cost.FAR_S * met * LANES * tiles.columns.shape[1]
        assert seconds > 0
        np.testing.assert_allclose(more[row], seconds / 300)


@pytest.mark.parametrize("make", STEPS)
def test_a_solve_by_batches(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.DETERMINANTS", 10)
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.WHOLE", 0)
    integrals = random_integrals(7, 3, 3, seed=4)
    h = ProductHamiltonian(integrals, string_set(some_strings(7, 3, 30, 9), integrals), dense=True)
    backend = HostVectors(h)
    few = backend.lowest(3)
    lowest = enumerate(few.states[:3])
    start = [(backend.start(state, few.low, 0.1, seed), state.parity) for seed, state in lowest]
    steps = make()
    criteria = Criteria(residual=1e-8, steps=200)
    found = davidson(
        on_one_rank(h, steps), 3, [(steps.put(vector), parity) for vector, parity in start], criteria
    )
    expected = davidson(h, 3, start, criteria)
    assert found.converged
    np.testing.assert_allclose(found.energies, expected.energies, atol=1e-10)


@pytest.mark.parametrize(("warps", "count"), [(1, 300), (2, 300), (6, 300), (6, 924)])
def test_tiles_have_every_excitation_once_and_targets_of_one_thread_or_four(warps: int, count: int) -> None:
    integrals = random_integrals(12, 6, 6, seed=4)
    strings = string_set(some_strings(12, 6, count, 9), integrals)
    beta = ProductHamiltonian(integrals, strings, threads=1).beta
    bounds, entries = beta_entries(beta.singles, beta.matching)
    tiles = pair_tiles(bounds, entries, len(beta.matching.pairs), warps)
    n_parts = len(tiles.more) - 1
    assert (tiles.slots[n_parts : n_parts + PARTS] == NONE).all()
    part_of = np.full(len(tiles.slots), -1)
    part_of[:n_parts] = np.arange(n_parts)
    for part, (first, last) in enumerate(itertools.pairwise(tiles.more)):
        part_of[first:last] = part
    turn, thread, at = np.nonzero(tiles.slots != NONE)
    place = tiles.slots[turn, thread, at].astype(np.int64)
    part, target = part_of[turn], place // (2 * SIGN)
    order = np.lexsort((at, thread, turn, target, part))
    edges = np.flatnonzero(np.diff(part[order], prepend=-1) | np.diff(target[order], prepend=-1))
    sizes = np.diff(edges, append=len(order))
    for entry, size in zip(np.split(order, edges[1:]), sizes, strict=True):
        threads = np.unique(thread[entry])
        assert len(set(turn[entry])) == 1
        for one in threads:
            own = at[entry][thread[entry] == one]
            assert (np.diff(own) == 1).all()
            assert len(threads) == 1 or own[-1] == 3
        assert len(threads) == (1 if size <= 4 else 4)
        if size > 4:
            assert threads[0] % 4 == 0
            np.testing.assert_array_equal(threads, threads[0] + np.arange(4))
            of_warp = tiles.slots[turn[entry[0]], threads[0] // LANES * LANES + np.arange(2), 3]
            assert len(set(of_warp // (2 * SIGN))) == 1
    assert (sizes > 4).any() or count == 300
    columns = tiles.columns.transpose(0, 1, 3, 2).reshape(-1, LANES * warps)
    row, column = np.divmod(place % SIGN, LANES * warps + PADDING)
    m = np.searchsorted(tiles.start, part // PARTS, side="right") - 1
    pair = (m * PARTS + part % PARTS) * PART + row
    found = np.stack([target, pair, columns[part // PARTS, column], (place & SIGN) > 0], 1)
    own = np.repeat(np.arange(len(strings)), np.diff(bounds[::2]))
    minus = np.arange(len(entries)) >= bounds[1::2][own]
    expected = np.column_stack([own, entries, minus])
    np.testing.assert_array_equal(np.unique(found, axis=0), np.unique(expected, axis=0))
    assert len(found) == len(expected)


@needs_gpus(1)
def test_what_a_gpu_cannot_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from tnplan.executor.sbd.cuda import steps as cupy_batch

    cupy_batch.check_gpu(262_144)
    with pytest.raises(InputError, match="beta strings: are 262145, more than the 262144"):
        cupy_batch.check_gpu(262_145)
    monkeypatch.setattr(cupy_batch, "LEAST_CAPABILITY", 1000)
    with pytest.raises(InputError, match="device: has compute capability"):
        cupy_batch.check_gpu(1)


@needs_compiler
@pytest.mark.parametrize("size", [1, 3])
def test_opposite_excitations_of_the_kernel(size: int) -> None:
    pytest.importorskip("cupy", reason="needs CuPy")
    from tests.support.kernels.list_emulator import EmulatedFile
    from tnplan.executor.sbd.cuda.steps import THREADS, excite_defines

    kernels = EmulatedFile("excite.cu", excite_defines("float64"))

    class Steps(NumpyBatch):
        """NumPy's steps, with this one by the kernel."""

        def add_exchange(self, block: Any, active: Any, partners: Any, factor: float, x: Any, y: Any) -> None:
            n_rows, n_beta = y.shape
            kernels(
                "exchange", n_rows * -(-n_beta // THREADS), *map(np.int64, (*y.shape, x.shape[1])),
                *block.singles, block.up, active, partners, np.float64(factor), x, y,
            )  # fmt: skip

    integrals = random_integrals(7, 3, 2, 4)
    sets = [string_set(some_strings(7, spin, 20, 9), integrals) for spin in (3, 2)]
    whole = ProductHamiltonian(integrals, *sets, threads=1)
    x = np.random.default_rng(0).standard_normal(whole.shape)

    def work(ranks: Any) -> np.ndarray:
        h = ProductHamiltonian(integrals, *sets, threads=1, rank_of=(ranks.rank, ranks.size))
        made = []
        for steps in (Steps(), NumpyBatch()):
            operator = DistributedHamiltonian(BatchedHamiltonian(h, steps), h.partition, ranks, size == 1)
            made.append(operator.apply_spin_square(x[slice(*h.rows)].copy()))
        np.testing.assert_allclose(*made, atol=1e-14)
        return made[0]

    found = np.concatenate(run_ranks(size, work))
    np.testing.assert_allclose(found, whole.apply_spin_square(x), atol=1e-13)


@needs_gpus(1)
def test_a_gpu_gives_the_spin() -> None:
    integrals = random_integrals(9, 4, 3, 4)
    sets = [string_set(some_strings(9, spin, 60, 9), integrals) for spin in (4, 3)]
    h = ProductHamiltonian(integrals, *sets, threads=1)
    steps = gpu_steps()
    x = np.random.default_rng(0).standard_normal(h.shape)
    made = steps.get(on_one_rank(h, steps).apply_spin_square(steps.put(x)))
    np.testing.assert_allclose(made, h.apply_spin_square(x), atol=1e-12)
