"""Circuits into passes: the forms of gates, what is done together, and how few passes are enough."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.statevector import apply_pass
from tests.support.circuits import random_circuit, state_vector
from tests.support.engines.statevector import (
    dense_matrix,
    hadamards,
    many_kinds,
    plan_of,
    qft,
    random_unitary,
)
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import KINDS, gate
from tnplan.executor.statevector.gates.multiplexed_gate import (
    MultiplexedGate,
    as_swap,
    commute,
    expanded,
    from_gate,
    from_matrix,
    merged,
)
from tnplan.executor.statevector.gates.phase_polynomial import PhasePolynomial, phases_of, split
from tnplan.executor.statevector.scheduling import qubit_cover_kernel as grouping_kernel
from tnplan.executor.statevector.scheduling import tiled_passes as passes
from tnplan.executor.statevector.scheduling.fusion import fuse
from tnplan.executor.statevector.scheduling.qubit_cover import choose, cover, first_places, rounds, sweep
from tnplan.executor.statevector.scheduling.tiled_passes import MODES, Pass, Tile, compile_gates

TILES = (Tile(4, 1, 3), Tile(3, 0, 2), Tile(6, 2, 3), Tile(10, 2, 4))


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_gate_is_its_block(name: str) -> None:
    kind = KINDS[name]
    item = gate(name, range(kind.n_qubits), [0.3, 0.7][: kind.n_params])
    multiplexed = from_gate(item).on(list(range(kind.n_qubits))[::-1])
    np.testing.assert_allclose(dense_matrix([multiplexed], kind.n_qubits), item.matrix, atol=1e-14)


def test_targets_are_the_qubits_that_change() -> None:
    forms = {name: from_gate(gate(name, range(KINDS[name].n_qubits), [0.3, 0.7][: KINDS[name].n_params]))
             for name in KINDS}  # fmt: skip
    assert (forms["cnot"].targets, forms["cnot"].selectors) == ((1,), (0,))
    assert (forms["cz"].targets, forms["cz"].selectors) == ((), (0, 1))
    assert (forms["fs"].targets, forms["fs"].selectors) == ((0, 1), ())
    toffoli = np.eye(8, dtype=np.complex128)[[0, 1, 2, 3, 4, 5, 7, 6]]
    assert from_matrix((4, 2, 7), toffoli).targets == (7,)
    idle = from_matrix((0, 1), np.kron(np.eye(2), random_unitary(1, np.random.default_rng(1))))
    assert (idle.targets, idle.selectors) == ((1,), ())


def test_exchanges_are_seen_with_their_phases() -> None:
    for name in ("sw", "is"):
        item = gate(name, (0, 1))
        phases = as_swap(from_gate(item))
        assert phases is not None
        swapped = dense_matrix([phases.on([1, 0])], 2)[[0, 2, 1, 3]]
        np.testing.assert_allclose(swapped, item.matrix, atol=1e-15)
    assert as_swap(from_gate(gate("fs", (0, 1), (0.3, 0.1)))) is None
    assert as_swap(from_gate(gate("cz", (0, 1)))) is None


def random_gate(generator: np.random.Generator, n_bits: int) -> MultiplexedGate:
    bits = [int(b) for b in generator.permutation(n_bits)]
    t, s = int(generator.integers(0, 3)), int(generator.integers(0, 3))
    matrices = np.array([random_unitary(t, generator) for _ in range(2**s)])
    return MultiplexedGate(tuple(bits[:t]), tuple(bits[t : t + s]), matrices)


@given(st.integers(0, 10**9))
def test_merging_is_multiplying(seed: int) -> None:
    generator = np.random.default_rng(seed)
    first, second = random_gate(generator, 5), random_gate(generator, 5)
    expected = dense_matrix([first, second], 5)
    held = first.target_mask | second.target_mask | int(generator.integers(32))
    np.testing.assert_allclose(dense_matrix([merged(first, second, held)], 5), expected, atol=1e-13)
    if commute(first, second):
        np.testing.assert_allclose(dense_matrix([second, first], 5), expected, atol=1e-13)
    every = (4, 3, 2, 1, 0)
    wide = MultiplexedGate(every, (), expanded(first, every, ()))
    np.testing.assert_allclose(dense_matrix([wide], 5), dense_matrix([first], 5), atol=1e-13)


@given(st.integers(0, 10**9))
def test_diagonals_gather_into_a_quadratic_form(seed: int) -> None:
    generator = np.random.default_rng(seed)
    gates = []
    for _ in range(6):
        s = int(generator.integers(1, 3))
        bits = tuple(int(b) for b in generator.choice(5, size=s, replace=False))
        gates.append(MultiplexedGate((), bits, np.exp(1j * generator.uniform(-3, 3, size=(2**s, 1, 1)))))
    expected = np.diag(dense_matrix(gates, 5))
    phases = phases_of(gates, 5)
    np.testing.assert_allclose(phases.elements(range(4, -1, -1)), expected, atol=1e-13)
    held = int(generator.integers(32))
    near, rest = split(phases, held)
    product = np.ones(32, np.complex128)
    if near is not None:
        assert not near.mask & ~held
        product *= np.diag(dense_matrix([near], 5))
    if rest is not None:
        inside = [bit for bit in range(5) if held >> bit & 1]
        assert not np.any(rest.pairs[np.ix_(inside, inside)])
        product *= rest.elements(range(4, -1, -1))
    np.testing.assert_allclose(product, expected, atol=1e-13)


@given(st.integers(0, 10**9), st.integers(1, 4))
def test_fused_blocks_do_the_same(seed: int, width: int) -> None:
    generator = np.random.default_rng(seed)
    gates = [random_gate(generator, 6) for _ in range(12)]
    held = 0
    for one in gates:
        held |= one.target_mask
    state = generator.normal(size=64) + 1j * generator.normal(size=64)
    expected = dense_matrix(gates, 6) @ state
    steps = fuse(gates, held, 6, width)
    apply_pass(state, Pass(tuple(range(6)), steps))
    np.testing.assert_allclose(state, expected, atol=1e-12)
    assert sum(isinstance(step, MultiplexedGate) and bool(step.targets) for step in steps) <= 12


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_plans_equal_dense_states(mode: str, tile: Tile) -> None:
    for circuit in (random_circuit(3, 40, 1), random_circuit(7, 120, 2), many_kinds(5, 12, 3), qft(6)):
        if max(len(from_gate(item).targets) for item in circuit.gates) > tile.bits - tile.run_bits:
            continue
        n = circuit.n_qubits
        plan = plan_of(circuit, tile, mode)
        state = np.zeros(2**n, np.complex128)
        state[0] = 1
        for item in plan.passes:
            assert len(item.held_bits) == min(n, tile.bits)
            assert item.held_bits[: tile.run_bits] == tuple(range(tile.run_bits))
            held = sum(1 << bit for bit in item.held_bits)
            assert all(
                isinstance(step, PhasePolynomial) or not step.target_mask & ~held for step in item.steps
            )
            apply_pass(state, item)
        found = state.reshape((2,) * n).transpose([n - 1 - plan.after[q] for q in range(n)])
        np.testing.assert_allclose(found, state_vector(circuit), atol=1e-12)


@pytest.mark.parametrize(("n", "counts"), [(26, (4, 3, 3, 3)), (30, (5, 4, 3, 3)), (33, (5, 4, 3, 3))])
def test_as_few_passes_as_the_bits_of_a_tile_allow(n: int, counts: tuple[int, ...]) -> None:
    """The counts are 1 + ceil((n - k) / (k - c)) for k bits in a tile and runs of 2^c amplitudes."""
    for (k, c), expected in zip(((10, 4), (12, 4), (13, 3), (14, 4)), counts, strict=True):
        assert expected == 1 + ceil((n - k) / (k - c))
        for circuit in (hadamards(n), qft(n)):
            assert len(plan_of(circuit, Tile(k, c, 3)).passes) == expected
        gates = [Gate(g.name, tuple(n - 1 - q for q in g.qubits), g.matrix, g.params) for g in qft(n).gates]
        reversed_order = GateSequence(n, tuple(gates))
        assert len(plan_of(reversed_order, Tile(k, c, 3)).passes) == expected


@pytest.mark.parametrize("seed", range(5))
def test_rounds_are_the_best_bits_one_after_another(seed: int) -> None:
    gates = [from_gate(item) for item in random_circuit(12, 40 * seed, seed).gates]
    left, found = gates, rounds(gates, 3, 6)
    for held, part in found:
        assert held == choose(left, 3, 6)
        done, left = sweep(left, held)
        assert part == done
    assert not left


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_several_ways_take_fewer_passes_than_the_best_bits_of_each(seed: int) -> None:
    n, generator = 20, np.random.default_rng(seed)
    multiplexed: list[MultiplexedGate] = []
    for _ in range(12):
        order = [int(q) for q in generator.permutation(n)]
        gates = [gate("x_1_2", (q,)) for q in range(n)]
        gates += [gate("cz", pair) for pair in zip(order[::2], order[1::2], strict=True)]
        multiplexed += [from_gate(item) for item in gates]
    left, n_greedy = multiplexed, 0
    while left:
        _, left = sweep(left, choose(left, 3, 9))
        n_greedy += 1
    held = cover(multiplexed, 3, 9)
    left = multiplexed
    for mask in held:
        assert mask.bit_count() <= 9
        assert mask & 3 == 3
        _, left = sweep(left, mask)
    assert not left
    assert len(held) < n_greedy


@pytest.mark.parametrize("n", [22, 23])
def test_small_states_are_not_searched_for_fewer_passes(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def recorded(gates: Any, always: int, size: int, several: bool = True) -> list[int]:
        asked.append(several)
        return cover(gates, always, size, several)

    monkeypatch.setattr(passes, "cover", recorded)
    for tile in (Tile(12, 4, 4, rotations=True), Tile(12, 3, 2)):
        plan_of(random_circuit(n, 60, 3), tile)
    assert {*asked} == {n == 23}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_bits_of_the_next_pass_leave_what_they_say(seed: int) -> None:
    gates = [from_gate(item) for item in random_circuit(14, 90, seed).gates]
    targets = np.array([gate.target_mask for gate in gates], np.int64)
    masks = np.array([gate.mask for gate in gates], np.int64)
    every, always, size = np.arange(len(gates))[5:], 3, 6
    held, counts = np.zeros((2, 12), np.int64)
    rest, room = np.zeros((12, len(every)), np.int64), np.zeros((4, 64), np.int64)
    # No exchange of bits, so that those are seen that the pass begins with.
    columns, choices = (targets, masks), grouping_kernel.Choices(held, rest, counts)
    search = grouping_kernel.CoverSearch(always, size, window=70, tries=0)
    later = grouping_kernel.next_passes(columns, every, search, 9, room, choices)
    assert held[0] == grouping_kernel.grow(columns, every, always, size)
    wanted = int(np.bitwise_or.reduce(targets[every[:70]])) | always
    for mask in held[1:].tolist():
        assert mask & always == always
        assert not mask & ~wanted
        assert mask.bit_count() == size
    assert len({*held.tolist()}) > 6
    for number, mask in enumerate(held.tolist()):
        out = np.zeros_like(every)
        count = grouping_kernel.remaining(columns, every, mask, out)
        assert counts[number] == count
        assert rest[number, :count].tolist() == out[:count].tolist()
    better = held.copy()
    search, choices = search._replace(tries=64), choices._replace(chosen=better)
    again = grouping_kernel.next_passes(columns, every, search, 9, room, choices)
    assert again == later  # random bits are the same
    for mask, other in zip(held.tolist(), better.tolist(), strict=True):
        done = [grouping_kernel.n_done(columns, every[:70], one) for one in (mask, other)]
        assert done[1] >= done[0]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_blocks_are_counted_for_all_bits_at_once_as_for_each(seed: int) -> None:
    generator = np.random.default_rng(seed)
    n, n_blocks = 24, 300
    targets, masks = np.zeros((2, n_blocks), np.int64)
    for k in range(n_blocks):
        bits = [1 << int(bit) for bit in generator.permutation(n)[: generator.integers(1, 5)]]
        targets[k], masks[k] = sum(bits[: generator.integers(0, 3)]), sum(bits)
    left = np.arange(n_blocks)[20:]
    scratch, seen = np.full((3, 64), -1), set()
    for _ in range(20):
        drawn = [1 << int(bit) for bit in generator.permutation(n)]
        kept, others = sum(drawn[:10]), sum(drawn[10:22])
        grouping_kernel.count_each((targets, masks), left, kept, others, scratch)
        for bit in range(n):
            if others >> bit & 1:
                count = grouping_kernel.n_done((targets, masks), left, kept | 1 << bit)
                assert scratch[0, bit] == count
                seen.add(count)
    assert len(seen) > 3


def test_stages_are_those_of_the_source() -> None:
    for circuit in (hadamards(9), GateSequence(9, qft(9).gates[:-4])):
        assert len(plan_of(circuit, Tile(6, 2, 2), "stages").passes) == 9
    assert len(plan_of(qft(5), Tile(6, 2, 2), "gates").passes) == len(qft(5).gates)


def test_diagonals_and_exchanges_take_no_pass_of_their_own() -> None:
    far = [gate("cz", (0, 11)), gate("sw", (0, 11)), gate("cp", (0, 5), (0.3,)), gate("h", (11,))]
    assert len(plan_of(GateSequence(12, tuple(far)), Tile(4, 1, 2)).passes) == 1


# fmt: off
BAD_GATES: list[Row] = [
    (lambda: from_gate(Gate("odd", (0,), 2 * np.eye(2, dtype=np.complex128)), "gate 3 (odd)"), "gate 3 (odd)",
     "is not unitary", "give a unitary matrix"),
    (lambda: from_matrix(tuple(range(6)), random_unitary(6, np.random.default_rng(0)), "gate 1"), "gate 1",
     "changes 6 qubits at once", "split it into gates on 5 or fewer"),
    (lambda: plan_of(qft(3), Tile(4, 1, 2), "fast"), "mode", "is 'fast'", "use compiled, stages"),
    (lambda: Tile(3, 2, 2), "tile", "has 3 bits, but", "let runs and a cluster"),
]
# fmt: on


@table(BAD_GATES)
def test_bad_gates_are_one_line(refusal: Refusal) -> None:
    refusal.raised_by(refusal.given)


@pytest.mark.parametrize(
    ("n", "n_inside", "price", "wide", "sizes"),
    [(31, 30, 0.2, 14, "13 13 X 13"), (33, 31, 0.1, 0, "13 13 X 13"), (33, 31, 0.9, 0, "13 13 13 X 13"),
     (33, 31, 0.2, 14, "14 14 X 13"), (32, 32, 0.2, 14, "14 14 14"), (30, 30, 0.2, 14, "13 13 13"),
     (32, 32, 0.0, 14, "13 13 13")],
)  # fmt: skip
def test_passes_are_put_off_where_that_takes_less_time(
    n: int, n_inside: int, price: float, wide: int, sizes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H on all: 13 + 9 + 9 bits have runs of 2^4; more need 13 + 10 + 10, wide tiles, or a fourth pass."""
    monkeypatch.setattr(passes, "SHORT_PRICE", price)
    gates = [from_gate(item) for item in hadamards(n).gates]
    places = first_places(gates, n, n_inside)
    plan = compile_gates(gates, places, Tile(13, 3, 1, 5, True, wide), "compiled", n_inside)
    found = [str(len(step.held_bits)) if isinstance(step, Pass) else "X" for step in plan.steps]
    assert found == sizes.split()
    short = any(3 not in item.held_bits for item in plan.passes)
    assert short == (len(plan.passes) == 3 and price < 0.2)


def test_blocks_on_the_same_bits_with_the_same_matrix_are_merged_once() -> None:
    first, second = from_gate(gate("h", (0,))), from_gate(gate("is", (0, 1)))
    moved, back = first.on((2, 1, 0)), first.on((2, 1, 0)).on((2, 1, 0))
    assert moved != first
    assert back == first
    assert hash(back) == hash(first)
    assert from_gate(gate("h", (0,))) == first
    assert from_gate(gate("h", (2,))) == moved
    assert from_matrix((0,), gate("h", (0,)).matrix) != first
    assert merged(back, second, 0b11) is merged(first, second, 0b11)
