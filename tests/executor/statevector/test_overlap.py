"""Exchanges beside passes: what is divided, the same bits, and the order of what streams of ranks do."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.circuits import state_vector
from tests.support.engines.statevector import hadamards, on_ranks, qft
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import gate
from tnplan.executor.device.cuda.runtime import signals as stream_signal
from tnplan.executor.device.cuda.runtime.signals import COUNTER_BYTES, Signals
from tnplan.executor.statevector.distributed_state import PreparedOverlap
from tnplan.executor.statevector.gates.multiplexed_gate import from_gate
from tnplan.executor.statevector.scheduling.overlap import Overlap, with_overlaps
from tnplan.executor.statevector.scheduling.qubit_cover import QubitExchange, first_places
from tnplan.executor.statevector.scheduling.tiled_passes import SHORT_BITS, Pass, Tile, compile_gates


def layers(n: int, depth: int) -> GateSequence:
    """Random rotations on all qubits, and CZ between random pairs, in turn."""
    generator = np.random.default_rng(n + depth)
    gates = []
    for _ in range(depth):
        gates += [gate("ry", (q,), (generator.uniform(-3, 3),)) for q in range(n)]
        pairs = generator.permutation(n)[: n // 2 * 2].reshape(-1, 2)
        gates += [gate("cz", tuple(map(int, pair))) for pair in pairs]
    return GateSequence(n, tuple(gates))


@pytest.mark.parametrize("n_ranks", [2, 4, 8])
def test_exchanges_beside_passes_change_no_bit(n_ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are exchanged between passes on others; each step of a part is done once, in its order."""
    parts: list[int] = []
    turned: list[bool] = []
    whole = PreparedOverlap.run

    def counted(prepared: PreparedOverlap) -> None:
        parts.append(len(prepared.before))
        turned.append(len(prepared.after) != len(prepared.awaits) or prepared.awaits[0] > 0)
        whole(prepared)

    monkeypatch.setattr(PreparedOverlap, "run", counted)
    circuit = layers(14, 9)
    runs = [on_ranks(circuit, n_ranks, "compiled", Tile(6, 1, 3, 3, True), least) for least in (20, 1)]
    assert {simulator.exchanges for run in runs for simulator in run} == {runs[0][0].exchanges}
    assert len(parts) > n_ranks
    assert max(parts) > 2
    assert any(turned)
    for alone, beside in zip(*runs, strict=True):
        np.testing.assert_array_equal(alone.state.shard(), beside.state.shard())
        assert alone.where == beside.where
    axes = [13 - runs[0][0].where[q] for q in range(14)]
    found = np.concatenate([simulator.state.shard() for simulator in runs[1]]).reshape((2,) * 14)
    np.testing.assert_allclose(found.transpose(axes), state_vector(circuit), rtol=0, atol=1e-12)


def test_overlaps_take_the_steps_in_their_order() -> None:
    circuit = layers(30, 12)
    gates = [from_gate(item) for item in circuit.gates]
    tile = Tile(13, 3, 1, 5, True)
    steps = compile_gates(gates, range(29, -1, -1), tile, "compiled", 28).steps
    passes = [isinstance(step, Pass) for step in steps]
    found = with_overlaps(steps, passes, 28, tile, 11)
    flat: list[Pass | QubitExchange] = []
    for step in found:
        flat += (*step.before, step.exchange, *step.after) if isinstance(step, Overlap) else (step,)
    assert list(map(id, flat)) == list(map(id, steps))
    overlaps = [step for step in found if isinstance(step, Overlap)]
    assert len(overlaps) > 1
    for step in overlaps:
        for items, bits in ((step.before, step.bits), (step.after, step.after_bits)):
            held = {bit for item in items for bit in item.held_bits}
            assert not {*held, *(inside for inside, _ in step.exchange.pairs)} & set(bits)
            assert list(bits) == sorted(set(bits))
            assert SHORT_BITS <= bits[0] <= bits[-1] < 28
    assert with_overlaps(steps, [False] * len(steps), 28, tile, 11) == list(steps)
    assert with_overlaps(steps, passes, 28, tile, 15) == list(steps)


@pytest.mark.parametrize("make", [hadamards, lambda n: GateSequence(n, qft(n).gates[: -(n // 2)])])
@pytest.mark.parametrize(("n", "n_inside", "share", "wide"), [(31, 30, 1, False), (33, 31, 2, True)])
def test_an_exchange_of_more_has_more_room(
    make: Callable[[int], GateSequence], n: int, n_inside: int, share: int, wide: bool
) -> None:
    """Pieces before the turn are beside the two passes before, with wide tiles at 33 qubits on four ranks."""
    tile = Tile(13, 3, 1, 5, True, 14)
    gates = [from_gate(item) for item in make(n).gates]
    plan = compile_gates(gates, first_places(gates, n, n_inside), tile, "compiled", n_inside)
    (found,) = with_overlaps(plan.steps, [isinstance(s, Pass) for s in plan.steps], n_inside, tile)
    assert isinstance(found, Overlap)
    assert (len(found.before), len(found.after), found.share) == (2, 1, share)
    wide_pieces, n_divided = [wide] * found.n_undivided, 1 << len(found.after_bits)
    assert found.overlaps_wide(tile.bits) == wide_pieces + [False] * n_divided


class Machine:
    """Streams of all ranks as queues, whose first entries are done in any order; memory and events."""

    def __init__(self) -> None:
        self.memory: dict[int, int] = {}
        self.queues: dict[Any, deque[tuple[str, Any, Any]]] = {}
        self.log: list[Any] = []

    def put(self, stream: Any, *what: Any) -> int:
        self.queues.setdefault(stream, deque()).append(what)  # type: ignore[arg-type]
        return 0

    def run(self, chance: random.Random) -> None:
        while waiting := [stream for stream, queue in self.queues.items() if queue]:
            chance.shuffle(waiting)
            assert any(self.step(stream) for stream in waiting), "all streams wait for ever"

    def step(self, stream: Any) -> bool:
        kind, what, value = self.queues[stream][0]
        if kind == "wait" and self.memory.get(what, 0) < value:
            return False
        if kind == "write":
            self.memory[what] = value
        elif kind == "do":
            self.log.append(what)
        self.queues[stream].popleft()
        return True


@pytest.mark.parametrize("seed", range(12))
def test_streams_exchange_what_all_have_done_and_go_on_with_what_has_come(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy_swap = pytest.importorskip("tnplan.executor.statevector.cuda.bit_swap")
    machine, chance = Machine(), random.Random(seed)
    n_ranks, n_parts, rounds = 2 << seed % 2, chance.choice((1, 4, 8)), 2
    turn = chance.randrange(n_parts.bit_length()) if seed > 5 else 0
    addresses = {rank: 1000 * (rank + 1) for rank in range(n_ranks)}
    monkeypatch.setattr(stream_signal, "stream_operations", lambda: (
        lambda stream, address, value, flags: machine.put(stream, "write", address, value),
        lambda stream, address, value, flags: machine.put(stream, "wait", address, value),
    ))  # fmt: skip
    monkeypatch.setattr(cupy_swap, "record", lambda event, stream: event.put(stream.ptr))
    assert COUNTER_BYTES * n_ranks < 1000
    places = count(1000 * (n_ranks + 2))

    class Event:
        def __init__(self, disable_timing: bool) -> None:
            self.times, self.place = 0, next(places)

        def put(self, stream: Any) -> None:
            self.times += 1
            machine.put(stream, "write", self.place, self.times)

    for rank in range(n_ranks):
        main, beside = (
            SimpleNamespace(
                ptr=(rank, name),
                wait_event=lambda event, name=name, rank=rank: machine.put(
                    (rank, name), "wait", event.place, event.times
                ),
            )
            for name in ("main", "beside")
        )
        cuda = SimpleNamespace(Event=Event, get_current_stream=lambda main=main: main)
        monkeypatch.setattr(cupy_swap, "cupy", SimpleNamespace(cuda=cuda))

        def act(stream: Any, *what: Any) -> Any:
            return lambda: machine.put(stream.ptr, "do", what, None)

        peers = [peer for peer in range(n_ranks) if peer != rank]
        bits = tuple(range(n_parts.bit_length() - 1))
        step = Overlap((), QubitExchange(()), (), bits, bits if not turn else (5, 6, 7), turn)
        n_after, n_pieces = len(step.awaits), len(step.pieces)
        kernels = [act(beside, "swap", rank, piece) for piece in range(n_pieces)]
        swap = cupy_swap.PiecewiseSwap(kernels, Signals(rank, addresses).bind(peers, beside), beside)
        prepared = PreparedOverlap(
            step.exchange, [[act(main, "before", rank, part)] for part in range(n_parts)], step.begins, swap,
            step.awaits, [[act(main, "after", rank, part)] for part in range(n_after)],
        )  # fmt: skip
        for _ in range(rounds):
            prepared.run()
    machine.run(chance)
    done: dict[Any, int] = {}
    for kind, own, part in machine.log:
        done[kind, own, part] = times = done.get((kind, own, part), 0) + 1
        if kind == "before":
            assert all(done.get(("after", own, other), 0) == times - 1 for other in range(n_after))
        elif kind == "swap":
            needed = next(before for before, pieces in enumerate(step.begins) if part in pieces)
            assert all(done.get(("before", rank, needed)) == times for rank in range(n_ranks))
        else:
            pieces = range(step.awaits[part] + 1) if turn else (part,)
            assert all(done.get(("swap", rank, k)) == times for rank in range(n_ranks) for k in pieces)
    assert set(done.values()) == {rounds}
    assert len(done) == n_ranks * (n_parts + n_pieces + n_after)


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_pieces_are_all_amplitudes_once_when_their_parts_are_done(turn: int) -> None:
    step = Overlap((), QubitExchange(()), (), (2, 3, 5), (2, 3, 5) if not turn else (1, 2), turn)
    index = np.arange(64)

    def chosen(bits: tuple[int, ...], value: int) -> np.ndarray:
        return np.all([index >> bit & 1 == value >> k & 1 for k, bit in enumerate(bits)], axis=0)

    ready, come, begun = np.zeros(64, bool), np.zeros(64, bool), 0
    for part, pieces in enumerate(step.begins):
        ready |= chosen(step.bits, part)
        for piece in pieces:
            assert piece == begun
            begun += 1
            found = chosen(*step.pieces[piece])
            assert ready[found].all()
            assert not come[found].any()
            come |= found
    assert come.all()
    assert begun == len(step.pieces)
    for part, last in enumerate(step.awaits):
        come = np.any([chosen(*piece) for piece in step.pieces[: last + 1]], axis=0)
        assert come[chosen(step.after_bits, part)].all()
