"""Threads, ranks, precision and memory: the terms of one thread, and limits that hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.oracles.pauli import propagate_sorted
from tests.support.engines.pauli import (
    amplitude_damping,
    chain_edges,
    eagle_edges,
    ising_trotter,
    kicked_ising,
)
from tests.support.kernels.gpus import needs_gpus
from tests.support.mpirun import SCRIPTS, mpirun, needs_mpi
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import PauliSum, commuting_groups, pack, pack_all, parse
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.threads import ThreadCommunicator, run_ranks
from tnplan.executor.pauli import resharding
from tnplan.executor.pauli.algebra.expectation import value_in
from tnplan.executor.pauli.algebra.gates import Clifford, PauliStep, circuit_steps, depolarizing, rotation
from tnplan.executor.pauli.propagate import Propagation, prepared, propagate
from tnplan.executor.pauli.resharding import Costs, LinearHash, LocalRun, Sample
from tnplan.executor.pauli.resources import Resources, term_bytes
from tnplan.executor.pauli.terms import hash_table as hash_terms
from tnplan.executor.pauli.terms import sharded as sharded_terms
from tnplan.executor.pauli.terms.hash_table import HashTerms
from tnplan.executor.pauli.terms.protocol import RotationBatch
from tnplan.executor.pauli.terms.sharded import ShardedTerms
from tnplan.executor.pauli.terms.truncation import Truncation

CASES = {
    "rotations": Truncation(branch_cut=1e-3, merged_cut=1e-3),
    "letters": Truncation(branch_cut=1e-4, merged_cut=1e-3, max_weight=5, max_frequency=30),
    "largest": Truncation(max_terms=200, every=5),
}


def workload(name: str) -> list[PauliStep]:
    """Kicked Ising on 70 qubits, with noise between where letters are looked at."""
    steps = kicked_ising(70, chain_edges(70), 0.7, 4)
    if name == "letters":
        steps += [rotation("XYZ", (1, 33, 65), 0.3), depolarizing((32, 33), 0.1), amplitude_damping(34, 0.2)]
        steps += kicked_ising(70, chain_edges(70), 0.3, 1)
    return steps


def run(name: str, **resources: object) -> Propagation:
    start = parse("Z34 + 0.5*X3 - Y40 Z41", 70)
    return propagate(workload(name), start, CASES[name], Resources(**resources))  # type: ignore[arg-type]


def run_sorted(name: str, **resources: object) -> Propagation:
    start = parse("Z34 + 0.5*X3 - Y40 Z41", 70)
    return propagate_sorted(workload(name), start, CASES[name], Resources(**resources))  # type: ignore[arg-type]


def check_same(found: Propagation, expected: Propagation, is_cut_after_steps: bool = False) -> None:
    """`is_cut_after_steps`: a GPU makes all terms of a step before it keeps the largest."""
    assert found.result.n_terms > 100
    assert np.array_equal(found.result.keys, expected.result.keys)
    np.testing.assert_allclose(found.result.coefficients, expected.result.coefficients, rtol=0, atol=1e-14)
    assert replace(found.record, grown=()) == replace(expected.record, grown=())
    if is_cut_after_steps:
        assert all(np.greater_equal(found.record.grown, expected.record.grown))
    else:
        assert found.record.grown == expected.record.grown
    assert (found.n_terms, found.value) == (
        found.result.n_terms,
        pytest.approx(value_in(found.result), abs=1e-13),
    )
    assert found.dropped.terms == expected.dropped.terms > 0
    assert found.dropped.l1 == pytest.approx(expected.dropped.l1, rel=1e-12)
    assert found.dropped.l2 == pytest.approx(expected.dropped.l2, rel=1e-12)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("threads", "alone"), [(2, 0), (2, 200), (3, 0)])
def test_threads_give_the_terms_of_one(
    name: str, threads: int, alone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharded_terms, "SERIAL_BELOW", 0)
    monkeypatch.setattr(sharded_terms, "SINGLE_SHARD_BELOW", alone)
    found, again, expected = run(name, threads=threads), run(name, threads=threads), run(name)
    assert np.array_equal(found.result.coefficients, again.result.coefficients)
    if name != "letters":  # which has transfers
        assert np.array_equal(found.result.coefficients, expected.result.coefficients)
    check_same(found, expected)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_shards_begin_small_and_grow_between_rotations(
    name: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown, reserve = [], HashTerms.reserve

    def counted(shard: HashTerms, n_terms: int, listed: int = 0) -> None:
        grown.append(n_terms > shard.capacity and listed > 0)
        reserve(shard, n_terms, listed)

    monkeypatch.setattr(hash_terms, "SMALLEST_CAPACITY", 4)
    monkeypatch.setattr(sharded_terms, "SINGLE_SHARD_BELOW", 20)
    monkeypatch.setattr(sharded_terms, "MOST_ROTATIONS", 50)
    monkeypatch.setattr(HashTerms, "reserve", counted)
    check_same(run(name, threads=threads), run_sorted(name))
    assert sum(grown) >= (0 if name == "largest" else 2 * threads)


def test_every_thread_has_the_terms_of_its_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded_terms, "SINGLE_SHARD_BELOW", 100)
    rotations = [rotation(word, (q, q + 1), 0.4) for word in ("YX", "ZY", "XZ") for q in range(12)]
    generators = pack_all([(turn.x, turn.z) for turn in rotations], 13)
    terms = ShardedTerms(parse("Z6", 13), 2)
    cosines, sines, zeros = np.full(36, np.cos(0.4)), np.full(36, np.sin(0.4)), np.zeros(36, np.int64)
    terms.rotate_many(RotationBatch(generators, cosines, sines, zeros > 0, zeros), 0.0, Truncation().limits)
    assert min(shard.n for shard in terms.shards) > 100
    for number, shard in enumerate(terms.shards):
        assert np.all(terms.linear_hash.of(shard.rows().keys) == number)
    expected = propagate(rotations[::-1], parse("Z6", 13)).result
    assert np.array_equal(terms.local_terms().keys, expected.keys)
    assert np.array_equal(terms.local_terms().coefficients, expected.coefficients)
    record = terms.ledger.record()
    assert record.before[1:] == record.terms[:-1]
    terms.close()


def test_a_shard_without_numbers_for_its_rows_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_terms, "MOST_ROWS", 1500)
    with pytest.raises(InputError, match=r"terms: may be \d+ in a shard, which has at most 1500; drop terms"):
        propagate(ising_trotter(20, 0.6, 4), parse("Z10", 20))


def test_a_memory_that_is_not_full_changes_nothing() -> None:
    expected = run("rotations")
    room = 3 * expected.largest
    check_same(run("rotations", memory_bytes=float(room * term_bytes(70, 8)), threads=2), expected)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("n_ranks", "threads"), [(2, 1), (4, 1), (2, 2)])
def test_ranks_give_the_terms_of_one(name: str, n_ranks: int, threads: int) -> None:
    def work(world: ThreadCommunicator) -> Propagation:
        return run(name, ranks=world, threads=threads)

    expected = run(name)
    for found in run_ranks(n_ranks, work):
        check_same(found, expected)


@pytest.mark.parametrize("name", ["rotations", "letters"])
@pytest.mark.parametrize(("n_ranks", "threads"), [(2, 1), (4, 1), (2, 2)])
def test_words_move_to_other_ranks_between_stretches(
    n_ranks: int, threads: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = {"move": 0, "exchange": 0}

    def count(method: str) -> None:
        counted = getattr(ShardedTerms, method)

        def called(*arguments: object) -> object:
            calls[method] += 1
            return counted(*arguments)

        monkeypatch.setattr(ShardedTerms, method, called)

    monkeypatch.setattr(resharding, "FEW_TERMS", 20)
    count("move")
    count("exchange")
    expected = run(name)
    for found in run_ranks(n_ranks, lambda world: run(name, ranks=world, threads=threads)):
        check_same(found, expected)
    assert calls["move"] >= 2 * n_ranks
    assert calls["exchange"] < n_ranks * len(expected.record.terms) / 4


def test_ranks_share_the_terms_evenly_and_keep_their_own() -> None:
    steps, both = kicked_ising(127, eagle_edges(), 0.5, 20), Truncation(branch_cut=1e-3, merged_cut=1e-3)

    def work(world: ThreadCommunicator) -> PauliSum:
        return propagate(steps, parse("Z62", 127), both, Resources(ranks=world), keep="own").result

    parts = run_ranks(4, work)
    whole = propagate(steps, parse("Z62", 127), both).result
    assert sum(part.n_terms for part in parts) == whole.n_terms > 1000
    assert max(part.n_terms for part in parts) < 0.3 * whole.n_terms
    assert sum(value_in(part) for part in parts) == pytest.approx(value_in(whole), abs=1e-14)


@needs_gpus(1)
@pytest.mark.parametrize("precision", ["fp64", "fp32"])
@pytest.mark.parametrize("name", CASES)
def test_a_gpu_gives_the_terms_of_a_thread(name: str, precision: str) -> None:
    found = run(name, device="gpu", precision=precision)
    check_same(found, run(name, precision=precision), is_cut_after_steps=name == "largest")


def test_blocks_have_as_many_threads_as_their_kernels_are_compiled_for() -> None:
    pytest.importorskip("cupy")
    from tnplan.executor.device.cuda.runtime.kernel_cache import source
    from tnplan.executor.pauli.cuda.table import COOPERATIVE_THREADS, ROTATIONS_FILE

    assert f"#define THREADS {COOPERATIVE_THREADS}\n" in source(ROTATIONS_FILE)
    assert COOPERATIVE_THREADS % 32 == 0


@needs_gpus(1)
def test_a_gpu_whose_memory_ends_says_so_in_one_line() -> None:
    import cupy

    pool = cupy.get_default_memory_pool()
    rotations, start = [rotation("X", (q,), 0.3) for q in range(24)], " ".join(f"Z{q}" for q in range(24))
    pool.free_all_blocks()
    pool.set_limit(size=pool.used_bytes() + (64 << 20))
    try:
        with pytest.raises(InputError, match=r"GPU: has no memory for .* terms; drop terms"):
            propagate(rotations, parse(start, 24), None, Resources(device="gpu"))
    finally:
        pool.set_limit(size=0)


def test_three_ranks_are_refused() -> None:
    with pytest.raises(InputError, match="start a power of two"):
        run_ranks(3, lambda world: run("rotations", ranks=world))


@needs_mpi
@pytest.mark.mpi
def test_three_ranks_of_mpi_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "c.qsim").write_text("2\n0 h 0\n")
    refused = mpirun(3, "-m", "tnplan", "pauli", tmp_path / "c.qsim", "--observable", "Z0")
    assert refused.returncode == 2
    assert refused.stderr.count("start a power of two") == 1
    assert "Abort" not in refused.stderr


@needs_mpi
@pytest.mark.mpi
@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=needs_gpus(2))])
def test_ranks_of_mpi(device: str) -> None:
    done = mpirun(2, "-m", "mpi4py", SCRIPTS / "pauli_ranks.py", device)
    assert done.returncode == 0, done.stderr
    assert "2 ranks agree with one" in done.stdout


def test_groups_are_of_words_in_a_row_that_commute() -> None:
    rows = np.array([pack(1, 0, 71), pack(2, 0, 71), pack(0, 2, 71), pack(0, 3, 71), pack(0, 1 << 70, 71)])
    members, left = commuting_groups(rows, 8, np.zeros(5, bool))
    assert members.tolist() == [0, 1, 0, 1, 2]
    assert left.tolist() == [2, 1, 3, 2, 1]
    members, left = commuting_groups(rows, 2, np.zeros(5, bool))
    assert members.tolist() == [0, 1, 0, 1, 0]
    assert left.tolist() == [2, 1, 2, 1, 1]
    members, left = commuting_groups(rows, 8, np.array([True, False, False, True, False]))
    assert members.tolist() == [0, 0, 0, 1, 0]
    assert left.tolist() == [1, 1, 2, 1, 1]


def test_the_shard_of_a_product_is_a_constant_distance_away() -> None:
    sharding, rng = LinearHash(100, 3), np.random.default_rng(1)
    keys, generator = (
        rng.integers(2**64, size=(50, 4), dtype=np.uint64),
        rng.integers(2**64, size=4, dtype=np.uint64),
    )
    distance = sharding.distance(generator)
    assert np.array_equal(sharding.of(keys ^ generator), sharding.of(keys) ^ distance)
    assert set(sharding.of(keys).tolist()) == set(range(8))


def test_masks_of_a_stretch_are_even_and_crossed_by_none_of_its_rotations() -> None:
    sharding, costs = LinearHash(70, 2), Costs(1.0, 1.0, 0.0)
    steps = kicked_ising(70, chain_edges(70), 0.7, 4)
    rotations = prepared(steps, parse("Z34", 70), False)[0][::-1]
    generators = np.array([pack(turn.x, turn.z, 70) for turn in rotations])  # type: ignore[union-attr]
    end = propagate(steps, parse("Z34", 70), Truncation(branch_cut=1e-3)).result.keys
    sample = Sample(end, 10**6)
    masks, length = LocalRun(generators, sharding.masks).masks([sample] * 2, costs)
    assert masks is not None
    assert masks.shape == (2, 4)
    assert 70 <= length < len(generators)
    sharding.masks = masks
    assert not np.any(sharding.of(generators[:length]))
    assert np.any(sharding.of(generators[length:]))
    assert np.bincount(sharding.of(end)).max() <= resharding.EVEN_LOAD * len(end) / 4
    alone, none = costs._replace(alone_below=10**7), np.zeros_like(masks)
    given = LocalRun(generators, LinearHash(70, 2).masks).masks([sample] * 2, alone)[0]
    assert np.array_equal(given, none)
    assert LocalRun(generators, none).masks([sample] * 2, alone)[0] is None
    assert LocalRun(generators, none).masks([sample, Sample(end[:0], 0)], costs)[0].any()
    again = LocalRun(generators[:length], masks)
    assert again.masks([sample] * 4, costs)[0] is None
    assert again.masks([sample] * 3 + [Sample(end[:0], 0)], costs)[0] is not None


def test_cliffords_move_no_word_to_another_shard() -> None:
    sharding, start = LinearHash(70, 4), parse("X0 Z1 Y66 + Z66 + Y1 X69 + X1", 70)
    gates = [
        gate("cnot", (1, 66)),
        gate("s", (66,)),
        gate("h", (1,)),
        gate("is", (69, 1)),
        gate("cz", (0, 69)),
    ]
    before = sharding.of(start.keys)
    steps = circuit_steps(GateSequence(70, tuple(gates)))
    end = start
    for step in reversed(steps):
        assert isinstance(step, Clifford)
        sharding.carry(step)
        end = propagate([step], end, keep_cliffords=True).result
    assert sorted(sharding.of(end.keys)) == sorted(before)


def test_single_precision_is_near() -> None:
    double = run("letters")
    single = run("letters", precision="fp32")
    assert single.result.coefficients.dtype == np.float32
    assert value_in(single.result) == pytest.approx(value_in(double.result), abs=1e-5)
    assert single.size_bytes < double.size_bytes
    twin = run_sorted("letters", precision="fp32")
    assert np.array_equal(single.result.keys, twin.result.keys)
    np.testing.assert_allclose(single.result.coefficients, twin.result.coefficients, rtol=0, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_full_memory_truncates_or_stops(threads: int) -> None:
    steps, start = ising_trotter(20, 0.6, 4), parse("Z10", 20)
    room = 3000
    memory = room * term_bytes(20, 8)
    with pytest.raises(InputError, match=r"step \d+: may make \d+ terms, and the memory holds 3000"):
        propagate(steps, start, resources=Resources(memory_bytes=memory, threads=threads))
    use = Resources(memory_bytes=memory, threads=threads, when_full="truncate")
    done = propagate(steps, start, resources=use)
    assert done.full > 0
    assert done.largest <= room
    assert done.size_bytes <= memory
    assert done.dropped.l1 > 0
    assert abs(value_in(done.result) - value_in(propagate(steps, start).result)) <= done.dropped.l1


# fmt: off
BAD_RESOURCES: list[Row] = [
    ({"memory_bytes": 800.0}, "memory", "holds 5 terms", "give more memory: the"),
    ({"threads": 0}, "threads", "is 0", "give an integer from 1"),
    ({"threads": 1.5}, "threads", "is 1.5", "give an integer from 1"),
    ({"memory_bytes": float("nan")}, "memory", "is nan", "give a positive number"),
    ({"memory_bytes": "1GB"}, "memory", "is '1GB'", "give a positive number"),
    ({"memory_bytes": -1}, "memory", "is -1", "give a positive number"),
    ({"precision": "fp16"}, "precision", "is 'fp16'", "use fp64 or fp32"),
    ({"when_full": "crash"}, "when_full", "is 'crash'", "use stop or truncate"),
]
# fmt: on


@table(BAD_RESOURCES)
def test_bad_resources_are_one_line(refusal: Refusal) -> None:
    refusal.raised_by(lambda: run("rotations", **refusal.given))
