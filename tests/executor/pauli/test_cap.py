"""--max-terms at every step: the limit holds between truncations too, and engines keep the same terms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.pauli import propagate_sorted
from tests.support.engines.pauli import amplitude_damping, chain_edges, kicked_ising
from tnplan.circuits.pauli_sum import pack, parse
from tnplan.executor.device.comm.threads import ThreadCommunicator, run_ranks
from tnplan.executor.pauli.algebra.gates import PauliStep, depolarizing, rotation
from tnplan.executor.pauli.propagate import Propagation, propagate
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.terms import sharded as sharded_terms
from tnplan.executor.pauli.terms.batched_rotations import Bound, rotate_all
from tnplan.executor.pauli.terms.protocol import RotationBatch
from tnplan.executor.pauli.terms.sharded import ShardedTerms
from tnplan.executor.pauli.terms.truncation import Truncation


def steps_with(noise: bool) -> list[PauliStep]:
    steps = kicked_ising(10, chain_edges(10), 0.7, 4)
    if noise:
        steps += [depolarizing((2, 3), 0.1), amplitude_damping(4, 0.2), rotation("XYZ", (1, 3, 5), 0.3)]
        steps += [amplitude_damping(5, 0.3), *kicked_ising(10, chain_edges(10), 0.4, 1)]
    return steps


@pytest.mark.parametrize(("threads", "n_ranks"), [(1, 1), (2, 1), (1, 2), (2, 2)])
@settings(max_examples=8)
@given(
    most=st.integers(2, 60), every=st.sampled_from([1, 3, 20, 1000]), noise=st.booleans(),
    weight=st.sampled_from([None, 3]),
)  # fmt: skip
def test_there_are_never_more_terms_than_allowed(
    threads: int, n_ranks: int, most: int, every: int, noise: bool, weight: int | None
) -> None:
    limits = Truncation(max_terms=most, every=every, merged_cut=1e-6, max_weight=weight)
    start, steps = parse("Z4 + 0.5*X1", 10), steps_with(noise)

    def on(ranks: ThreadCommunicator) -> Propagation:
        return propagate(steps, start, limits, Resources(threads=threads, ranks=ranks))

    found, expected = run_ranks(n_ranks, on)[0], propagate_sorted(steps, start, limits)
    assert found.largest == max(found.record.grown) <= most
    assert np.array_equal(found.result.keys, expected.result.keys)
    np.testing.assert_allclose(found.result.coefficients, expected.result.coefficients, rtol=0, atol=1e-13)
    assert found.dropped.terms == expected.dropped.terms
    assert found.dropped.l1 == pytest.approx(expected.dropped.l1, rel=1e-12)


def test_arrays_stay_near_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded_terms, "SINGLE_SHARD_BELOW", 64)
    steps, start = kicked_ising(20, chain_edges(20), 0.7, 8), parse("Z10", 20)
    for threads in (1, 2):
        limits = Truncation(max_terms=4096, every=20)
        done = propagate(steps, start, limits, Resources(threads=threads))
        assert done.n_terms == done.largest == 4096
        assert done.size_bytes < 600 * 4096


@given(st.integers(2, 80), st.integers(1, 40))
def test_many_rotations_stop_before_one_that_may_not_fit(most: int, before: int) -> None:
    turns = [*[rotation("X", (q,), 0.3) for q in range(10)], rotation("ZX", (3, 4), 0.3)]
    keys, cosine, sine = np.array([pack(turn.x, turn.z, 10) for turn in turns]), np.cos(0.3), np.sin(0.3)
    ones = np.ones(11)
    batch = RotationBatch(keys, cosine * ones, sine * ones, ones == 0, np.zeros(11, np.int64))
    terms = ShardedTerms(parse("Z0 Z1 Z2 Z3 + X4 Z5 Z7 + Y8", 10))
    sizes = []
    for number in range(11):
        hits, n = terms.count(keys[number]), terms.n
        stops = n > before or (hits and n + hits > most)
        done = rotate_all(
            terms.shards, batch.between(number, number + 1), 0.0, Truncation().limits, terms.ledger,
            bound=Bound(before, most),
        )  # fmt: skip
        assert done == (not stops)
        if stops:
            terms.rotate(keys[number], cosine, sine, 0.0)
        sizes.append(terms.n)
    alone = ShardedTerms(parse("Z0 Z1 Z2 Z3 + X4 Z5 Z7 + Y8", 10))
    assert rotate_all(alone.shards, batch, 0.0, Truncation().limits, alone.ledger) == 11
    found, expected = terms.local_terms(), alone.local_terms()
    assert sizes[-1] == expected.n_terms > 20
    assert np.array_equal(found.keys, expected.keys)
    assert np.array_equal(found.coefficients, expected.coefficients)
