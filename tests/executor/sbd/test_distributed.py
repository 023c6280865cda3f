"""States over ranks: products, sums, solves and memory on 1 to 4 ranks, gathered and round a ring."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracles.sbd import CountingBatch, NumpyBatch
from tests.support.engines.sbd import (
    every_string,
    fcidump_text,
    lines_of,
    random_integrals,
    some_strings,
    string_set,
)
from tests.support.kernels.gpus import needs_gpus
from tests.support.mpirun import SCRIPTS, mpirun, needs_mpi
from tests.support.slow import slow_after, slow_unless
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.sbd.basis.excitations import find_singles
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.strings import StringSet
from tnplan.executor.sbd.sigma import cost_model as cost
from tnplan.executor.sbd.sigma.batched import BatchedHamiltonian
from tnplan.executor.sbd.sigma.cost_model import partition_rows
from tnplan.executor.sbd.sigma.distributed import DistributedHamiltonian
from tnplan.executor.sbd.sigma.product_hamiltonian import EVEN, NEITHER, ODD, ProductHamiltonian, row_costs
from tnplan.executor.sbd.solver import setup as site_module
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.executor.sbd.solver.memory_estimate import (
    batched_bytes,
    exchange_bytes,
    fit_product,
    tables_bytes,
)
from tnplan.executor.sbd.solver.setup import ChosenDevice, SolveRequest, set_up_solve
from tnplan.executor.sbd.solver.solve import solve
from tnplan.executor.sbd.solver.vector_backend import DistributedVectors, HostVectors

Strings = tuple[StringSet, StringSet | None]
TIGHT = Criteria(residual=1e-9)


def case(equal: bool, seed: int = 4) -> tuple[Integrals, Strings]:
    integrals = random_integrals(7, 3, 3 if equal else 2, seed)
    alpha = string_set(some_strings(7, 3, 26, 9), integrals)
    return integrals, (alpha, None if equal else string_set(some_strings(7, 2, 17, 5), integrals))


def backend_of(
    integrals: Integrals, strings: Strings, ranks: Communicator, batched: bool, gathers: bool, dense: bool
) -> tuple[ProductHamiltonian, DistributedVectors]:
    """The rows of a rank by threads or by batches, and where its vectors lie."""
    h = ProductHamiltonian(integrals, *strings, rank_of=(ranks.rank, ranks.size), dense=dense, threads=1)
    make: Callable[[str], Any] = h.as_type
    if batched:
        make = lambda dtype: BatchedHamiltonian(h, NumpyBatch(dtype))  # noqa: E731
    return h, DistributedVectors(h, ranks, make, gathers)


# Any two of these factors meet in a quick case.
@pytest.mark.parametrize(
    ("size", "way", "gathers", "equal"),
    slow_unless(
        lambda size, way, gathers, equal: gathers == (size + way) % 2 and equal == (size // 2 + way) % 2,
        (1, 2, 3, 4), tuple(product((False, True), (True, False))), (True, False), (True, False),
    ),
)  # fmt: skip
def test_ranks_give_the_product(size: int, way: tuple[bool, bool], gathers: bool, equal: bool) -> None:
    batched, dense = way
    integrals, strings = case(equal)
    whole = ProductHamiltonian(integrals, *strings, threads=1)
    states = [
        (whole.project(np.random.default_rng(parity + 1).standard_normal(whole.shape), parity), parity)
        for parity in ((EVEN, ODD, NEITHER) if equal else (NEITHER,))
    ]

    def work(ranks: Communicator) -> list[Any]:
        _, backend = backend_of(integrals, strings, ranks, batched, gathers, dense)
        operator = backend.operator("float64")
        made = []
        for state, parity in states:
            part = backend.put(backend.local(state if ranks.rank == 0 else None), "float64")
            product = backend.collect(operator.apply(part, parity, np.empty_like(part)))
            made.append((product, operator.total(np.array([np.vdot(part, part)]))))
        return made

    results = run_ranks(size, work)
    for number, (state, parity) in enumerate(states):
        expected = whole.apply(state, parity)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(results[0][number][0], expected, atol=1e-12 * scale)
        totals = {float(made[number][1][0]) for made in results}
        assert len(totals) == 1
        np.testing.assert_allclose(totals.pop(), np.vdot(state, state), rtol=1e-13)


def test_more_ranks_than_strings() -> None:
    integrals = random_integrals(4, 1, 2, 6)
    strings = string_set([0b0010], integrals), string_set([3, 5, 6, 9, 12], integrals)
    expected = solve(ProductHamiltonian(integrals, *strings, threads=1), integrals, 2)

    def work(ranks: Communicator) -> Any:
        h, backend = backend_of(integrals, strings, ranks, True, False, True)
        return solve(h, integrals, 2, backend=backend)

    found = run_ranks(3, work)
    np.testing.assert_allclose(found[0].energies, expected.energies, atol=1e-11)
    assert found[1].states == []


@pytest.mark.parametrize(
    ("size", "batched", "mixed"),
    slow_unless(
        lambda size, batched, mixed: size in (1, 2) and mixed == (size + batched) % 2,
        (1, 2, 3, 4), (False, True), (False, True),
    ),
)  # fmt: skip
def test_ranks_find_the_states(
    size: int, batched: bool, mixed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathers = not batched
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.DETERMINANTS", 10)
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.WHOLE", 0)
    integrals, strings = case(True)
    h = ProductHamiltonian(integrals, *strings, threads=1)
    expected = solve(h, integrals, 3, criteria=TIGHT)

    def work(ranks: Communicator) -> Any:
        own, backend = backend_of(integrals, strings, ranks, batched, gathers, True)
        begin = [expected.states[0] + 0.1] if ranks.rank == 0 else []
        found = solve(own, integrals, 3, criteria=TIGHT, backend=backend, mixed_precision=mixed, start=begin)
        held = tmp_path / "x.ckpt"
        short = solve(own, integrals, 3, criteria=Criteria(steps=4), backend=backend, checkpoint=held)
        again = solve(own, integrals, 3, criteria=TIGHT, backend=backend, checkpoint=held, resume=True)
        return found, short, again

    for rank, (found, short, again) in enumerate(run_ranks(size, work)):
        assert found.converged
        assert again.converged
        assert not short.converged
        assert (found.early_multiplications > 0) == mixed
        for some in (found, again):
            np.testing.assert_allclose(some.energies, expected.energies, atol=1e-10)
        assert found.residuals.max() < TIGHT.residual
        assert len(found.states) == (3 if rank == 0 else 0)
        for state, energy in zip(found.states, found.energies, strict=False):
            assert state.dtype == np.float64
            np.testing.assert_allclose(np.vdot(state, h.apply(state)) + integrals.core, energy, atol=1e-10)


def test_a_solve_that_refuses_its_start_ends_on_all_ranks() -> None:
    integrals, strings = case(False)

    def work(ranks: Communicator) -> str:
        h, backend = backend_of(integrals, strings, ranks, False, True, True)
        with pytest.raises(InputError, match="start: has a state with only zeros") as refusal:
            solve(h, integrals, 1, backend=backend, start=[np.zeros(h.shape)])
        return str(refusal.value)

    assert len(set(run_ranks(3, work))) == 1


def test_fp32_saves_products_in_fp64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.DETERMINANTS", 10)
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.WHOLE", 0)
    integrals, strings = case(True, 8)
    h = ProductHamiltonian(integrals, *strings, threads=1)
    double = solve(h, integrals, 1, criteria=TIGHT)
    mixed = solve(h, integrals, 1, criteria=TIGHT, mixed_precision=True)
    assert mixed.early_multiplications > 0
    assert mixed.multiplications < double.multiplications
    np.testing.assert_allclose(mixed.energies, double.energies, atol=1e-11)
    assert HostVectors(h).operator("float32").diagonal().dtype == np.float32


@pytest.mark.parametrize("size", [1, 2, 5, 16])
def test_shares_balance_the_work(size: int) -> None:
    work = np.random.default_rng(0).integers(1, 50, 400).astype(float)
    shares = partition_rows(work, size)
    parts = [work[slice(*shares.rows(rank))].sum() for rank in range(size)]
    assert shares.bounds[0] == 0
    assert sum(shares.count(rank) for rank in range(size)) == len(work)
    assert max(parts) <= work.sum() / size + work.max()
    assert partition_rows([1.0], 3).bounds[-1] == 1


def test_rows_of_more_excitations_cost_more() -> None:
    integrals, (strings, _) = case(True)
    singles = find_singles(strings, 1)
    for symmetric, rates in product((True, False), (cost.CPU, cost.GPU)):
        costs = row_costs(singles, singles, symmetric, rates)
        assert costs.shape == (26,)
        counts = np.diff(singles.start)
        assert costs[counts.argmax()] > costs[counts.argmin()] > 0
    ranks = [ProductHamiltonian(integrals, strings, rank_of=(rank, 3)).rows for rank in range(3)]
    assert [first for first, _ in ranks] == [0, *(last for _, last in ranks[:2])]


@pytest.mark.parametrize("roots", [1, 3])
@pytest.mark.parametrize(
    "criteria", [Criteria(residual=1e-12, energy=0.0, steps=12), Criteria(residual=1e-4, vectors=6)]
)
def test_memory_is_predicted(roots: int, criteria: Criteria) -> None:
    integrals = random_integrals(10, 3, 3, 4)
    strings = string_set(every_string(10, 3), integrals)
    solve(ProductHamiltonian(integrals, strings, threads=1), integrals, roots, criteria=Criteria(steps=1))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        h = ProductHamiltonian(integrals, strings, threads=1)
        predicted = fit_product(h, tables_bytes(h), roots, criteria, np.inf).predicted_bytes
        found = solve(h, integrals, roots, criteria=criteria)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert (found.steps == 12) != (found.test_multiplications > 0)
    assert 0.85 * predicted < peak < 1.05 * predicted


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("dense", [True, False])
def test_memory_of_batches_is_predicted(equal: bool, dense: bool) -> None:
    integrals, strings = case(equal)

    def work(ranks: Communicator) -> tuple[int, int]:
        h = ProductHamiltonian(integrals, *strings, dense=dense, rank_of=(ranks.rank, ranks.size))
        steps = CountingBatch()
        rows = BatchedHamiltonian(h, steps)
        DistributedHamiltonian(rows, h.partition, ranks)
        exchanged = exchange_bytes(h, h.partition.count(ranks.rank), True)
        return steps.held_bytes, batched_bytes(h) + exchanged

    for held, predicted in run_ranks(2, work):
        assert abs(held - predicted) <= 0.01 * held


def test_memory_decides_between_gathering_and_a_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    integrals, strings = case(False)
    monkeypatch.setattr(site_module, "tables_bytes", lambda product: 0)
    few = Criteria(vectors=6)

    def site(memory_bytes: float) -> Any:
        def work(ranks: Communicator) -> Any:
            chosen = ChosenDevice("device: cpu", ranks, None, lambda: None, lambda: None)  # type: ignore[arg-type, return-value]
            return set_up_solve(integrals, strings, chosen, ranks, SolveRequest(1, few, memory_bytes, 1))

        return run_ranks(4, work)[0]

    whole = site(1e9)
    assert whole.gathers
    ring = site(whole.predicted_bytes - 1)
    assert not ring.gathers
    assert ring.predicted_bytes < whole.predicted_bytes
    with pytest.raises(InputError, match="memory: is"):
        site(ring.predicted_bytes - 1)


@needs_mpi
@pytest.mark.mpi
@pytest.mark.parametrize("size", slow_after(1, [2, 3, 1]))
def test_mpirun_gives_one_result(size: int, tmp_path: Path) -> None:
    integrals = random_integrals(6, 3, 3, 12)
    (tmp_path / "h.fcidump").write_text(fcidump_text(integrals))
    (tmp_path / "a.txt").write_text(lines_of(some_strings(6, 3, 14, 1), 6))
    out = tmp_path / "out.npz"
    arguments = (
        "-m",
        "tnplan",
        "sbd",
        tmp_path / "h.fcidump",
        "--alpha",
        tmp_path / "a.txt",
        "--device",
        "cpu",
        "--rdm",
    )
    done = mpirun(size, *arguments, "--roots", "2", "--threads", "1", "-o", out, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["ranks"] == size
    expected = solve(
        ProductHamiltonian(integrals, string_set(some_strings(6, 3, 14, 1), integrals)), integrals, 2
    )
    np.testing.assert_allclose(report["energies_hartree"], expected.energies, atol=1e-10)
    with np.load(out) as file:
        assert file["states"].shape == (2, 14, 14)
    refused = mpirun(size, *arguments[:6], "--memory", "10kB")
    assert refused.returncode == 2
    lines = [line for line in refused.stderr.splitlines() if line.startswith("tnplan: error: memory")]
    assert len(lines) == 1, refused.stderr
    refused = mpirun(size, *arguments[:6], "--roots", "197")
    assert refused.returncode == 2
    assert refused.stderr == (
        "tnplan: error: roots: are 197, but the space has only 196 determinants; ask for 1 to 196 "
        "(see docs/explanation/sbd.md#files)\n"
    )


DEVICES = [
    pytest.param("cpu", 2, id="cpu"),
    pytest.param("gpu", 2, id="gpu", marks=needs_gpus(2)),
    pytest.param("gpu", 3, id="3gpus", marks=needs_gpus(3)),
]


@needs_mpi
@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize(("device", "size"), DEVICES)
def test_processes_agree_with_one(device: str, size: int) -> None:
    done = mpirun(size, "-m", "mpi4py", SCRIPTS / "sbd_ranks.py", device)
    assert done.returncode == 0, done.stderr
    assert f"{size} ranks agree with one" in done.stdout


@needs_gpus(1)
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("roots", [1, 3])
def test_memory_on_a_gpu_is_predicted(roots: int, mixed: bool) -> None:
    """Also where the caller has arrays on the GPU."""
    import cupy

    callers = cupy.zeros(1 << 23)
    integrals = random_integrals(12, 4, 4, 4)
    strings = string_set(every_string(12, 4), integrals)
    criteria = Criteria(residual=1e-12, energy=0.0, steps=12)

    def work(ranks: Communicator) -> tuple[int, int]:
        chosen = site_module.choose_device("gpu", ranks, 1)
        try:
            with chosen.on_stream():
                request = SolveRequest(roots, criteria, np.inf, 1)
                site = set_up_solve(integrals, (strings, None), chosen, ranks, request)
                solve(
                    site.hamiltonian,
                    integrals,
                    roots,
                    criteria=criteria,
                    backend=site.backend,
                    mixed_precision=mixed,
                )
                return site.predicted_bytes or 0, site.peak_bytes() or 0
        finally:
            chosen.close()

    predicted, peak = run_ranks(1, work)[0]
    assert not callers.any()
    assert 0.5 * predicted < peak < 1.05 * predicted
