"""Which bits are held and which gates are done with them: the choice behind passes and stages of ranks.

A gate can be done while its targets are held, if no gate left behind that does not commute comes before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.kernels.ahead import Sample, Samples
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, mask_of
from tnplan.executor.statevector.scheduling import qubit_cover_kernel

# What the kernels that sort gates into passes are called with, so that they are compiled ahead.


COVERS = Samples(__name__, "of_covers")
"""What sorts gates into passes, for states on CPUs and GPUs."""


def of_covers() -> list[Sample]:
    """The kernels with their arguments."""
    masks, rows, scratch = np.zeros(1, np.int64), np.zeros((1, 1), np.int64), np.zeros((4, 64), np.int64)
    gates, search = (masks, masks), qubit_cover_kernel.CoverSearch(0, 0, 0, 0)
    choices = qubit_cover_kernel.Choices(masks, rows, masks)
    return [
        (qubit_cover_kernel.next_passes, (gates, masks, search, 0, scratch, choices)),
        (qubit_cover_kernel.remaining, (gates, masks, 0, masks)),
        (qubit_cover_kernel.fill_rounds, (gates, search, scratch, masks, masks, masks)),
    ]


EXCHANGES_TRIED = 64
"""Times that one held bit is exchanged for another."""
WINDOW = 2000
"""So many of the gates left are looked at when bits are chosen."""
WAYS_KEPT, STARTS = 8, 8
"""The ways to do the first passes that are followed, and the random bits from which each goes on."""
COVERS_KEPT = 256
"""A plan asks for most covers several times, and so does that of the same circuit with other angles: so many
of the last are kept."""
RUNS_KEPT = 256
"""Tiles whose runs are remembered."""
REMEMBERED_GATES = 20_000
"""Covers of more gates are forgotten when a plan is made: each keeps 16 bytes a gate."""


def choose(gates: Sequence[MultiplexedGate], always: int, size: int) -> int:
    """The mask of `size` bits or fewer, those of `always` among them, that let many gates be done."""
    columns = _columns(gates)
    return int(_next_passes(columns, columns[2], always, size, 0, 0)[0][0])


def rounds(
    gates: Sequence[MultiplexedGate], always: int, size: int
) -> list[tuple[int, list[MultiplexedGate]]]:  # fmt: skip
    """The bits that are held, chosen anew until no gate is left, and the gates done with them, in order."""
    from tnplan.executor.statevector.scheduling import qubit_cover_kernel as kernel

    *columns, pending = _columns(gates)
    numbers, round_masks = np.empty_like(pending), np.empty_like(pending)
    search = kernel.CoverSearch(always, size, WINDOW, EXCHANGES_TRIED)
    count = kernel.fill_rounds(tuple(columns), search, _scratch(), pending, numbers, round_masks)
    by_round: list[tuple[int, list[MultiplexedGate]]] = [(bits, []) for bits in round_masks[:count].tolist()]
    for gate, number in zip(gates, numbers.tolist(), strict=True):
        by_round[number][1].append(gate)
    return by_round


def cover(gates: Sequence[MultiplexedGate], always: int, size: int, several: bool = True) -> list[int]:
    """The masks of `size` bits or fewer that do all gates one after another: as few as are found.

    The best bits for one pass after another, unless fewer come of following `several` ways at once.
    """
    targets, masks, _ = _columns(gates)
    return list(_cover(targets.tobytes(), masks.tobytes(), always, size, several))


@lru_cache(COVERS_KEPT)
def _cover(targets: bytes, masks: bytes, always: int, size: int, try_several: bool) -> tuple[int, ...]:
    """The same for the masks of gates."""
    if not targets:
        return ()
    columns = (
        np.frombuffer(targets, np.int64).copy(), np.frombuffer(masks, np.int64).copy(),
        np.arange(len(targets) // 8),
    )  # fmt: skip
    all_bits = always | int(np.bitwise_or.reduce(columns[0]))
    greedy = _search(columns, always, size, 1, 0, len(columns[0]))
    assert greedy is not None
    if not try_several or len(greedy) == 1:
        return tuple(greedy)
    if len(greedy) == 1 - (size - all_bits.bit_count()) // (size - always.bit_count()):
        return tuple(greedy)
    return tuple(_search(columns, always, size, WAYS_KEPT, STARTS, len(greedy) - 1) or greedy)


def forget_covers(n_gates: int) -> None:
    """Free what `cover` keeps, where a plan of so many gates made it large."""
    if n_gates > REMEMBERED_GATES:
        _cover.cache_clear()


def _search(
    columns: tuple[Any, Any, Any], always: int, size: int, most_ways: int, starts: int, most: int
) -> list[int] | None:  # fmt: skip
    """The masks of a cover, `most` or fewer, if one is found.

    After each pass the ways that leave fewest gates with targets are kept, but none that leave more targets
    than the passes to come can hold.
    """
    targets, seed = columns[0], 0
    ways: list[tuple[Any, list[int]]] = [(columns[2], [])]
    for n_done in range(most):
        reached: dict[bytes, tuple[Any, list[int]]] = {}
        for pending, done in ways:
            next_masks, all_waiting, seed = _next_passes(columns, pending, always, size, starts, seed)
            for mask, waiting in zip(next_masks, all_waiting, strict=True):
                reached.setdefault(waiting.tobytes(), (waiting, [*done, mask]))
        ways = sorted(reached.values(), key=lambda way: np.count_nonzero(targets[way[0]]))[:most_ways]
        if not len(ways[0][0]):
            return ways[0][1]
        free_bits = (most - n_done - 1) * (size - always.bit_count())
        masks = [int(np.bitwise_or.reduce(targets[way[0]] & ~always, initial=0)) for way in ways]
        ways = [way for way, mask in zip(ways, masks, strict=True) if mask.bit_count() <= free_bits]
        if not ways:
            break
    return None


def _next_passes(
    columns: tuple[Any, Any, Any], pending: Any, always: int, size: int, starts: int, seed: int
) -> tuple[list[int], list[Any], int]:  # fmt: skip
    """Masks of bits that may be held next, one and `starts` more, the gates that each leaves, and a seed."""
    from tnplan.executor.statevector.scheduling import qubit_cover_kernel as kernel

    masks, counts = np.empty((2, 1 + starts), np.int64)
    choices = kernel.Choices(masks, np.empty((1 + starts, len(pending)), np.int64), counts)
    search = kernel.CoverSearch(always, size, WINDOW, EXCHANGES_TRIED)
    seed = kernel.next_passes(columns[:2], pending, search, seed, _scratch(), choices)
    remaining = [row[:count] for row, count in zip(choices.rest, counts.tolist(), strict=True)]
    return masks.tolist(), remaining, int(seed)


def _remaining(targets: Any, masks: Any, pending: Any, held_mask: int) -> Any:
    """The gates that are left when those that can be done with the bits of `held_mask` are."""
    from tnplan.executor.statevector.scheduling import qubit_cover_kernel as kernel

    out = np.empty_like(pending)
    return out[: kernel.remaining((targets, masks), pending, held_mask, out)]


def _scratch() -> Any:
    return np.empty((4, 64), np.int64)


def _columns(gates: Sequence[MultiplexedGate]) -> tuple[Any, Any, Any]:
    """Masks of targets and of all bits, int64, and the numbers of the gates."""
    return (
        np.array([gate.target_mask for gate in gates], np.int64),
        np.array([gate.mask for gate in gates], np.int64), np.arange(len(gates)),
    )  # fmt: skip


def sweep(
    gates: Sequence[MultiplexedGate], held_mask: int
) -> tuple[list[MultiplexedGate], list[MultiplexedGate]]:
    """The gates that can be done with the bits of `held_mask` in the tile, and those left, both in order."""
    waits = np.zeros(len(gates), bool)
    waits[_remaining(*_columns(gates), held_mask)] = True
    pairs = list(zip(gates, waits.tolist(), strict=True))
    return [gate for gate, wait in pairs if not wait], [gate for gate, wait in pairs if wait]


def index_of(value: Any, bits: Any) -> Any:
    """The index in which bit bits[k] is bit k of a value, or of each of several."""
    return sum(((value >> k & 1) << bit for k, bit in enumerate(bits)), 0 * value)


def tile_runs(held_bits: Array) -> tuple[int, Array]:
    """How many of the lowest bits of the index a tile holds, and where in it each run of 2^that begins."""
    return _tile_runs(tuple(held_bits.tolist()))


@lru_cache(RUNS_KEPT)
def _tile_runs(held_bits: tuple[int, ...]) -> tuple[int, Array]:
    run_bits = next((k for k, bit in enumerate(held_bits) if bit != k), len(held_bits))
    starts = index_of(np.arange(1 << (len(held_bits) - run_bits), dtype=np.int64), held_bits[run_bits:])
    starts.flags.writeable = False
    return run_bits, starts


# Several ranks: which qubits are inside a rank, and when index bits are exchanged. Knows no communicator.
#
# The highest bits of the index number the ranks. Targets must be bits inside a rank; selectors may be
# anywhere. So a circuit falls into stages, each with a set of wires inside the ranks, and an exchange
# between two stages swaps bits of the rank number with bits inside. The set of a stage is chosen like the
# bits of a pass: as many gates as are found, then as few bits moved as that allows.


@dataclass(frozen=True)
class QubitExchange:
    """Bit `inside` of a pair is swapped with bit `outside`, which numbers ranks; all pairs at once."""

    pairs: tuple[tuple[int, int], ...]

    def on(self, where: Sequence[int]) -> QubitExchange:
        """The same exchange with bit j renamed to where[j]."""
        return QubitExchange(tuple((where[inside], where[outside]) for inside, outside in self.pairs))


class ExchangePartners(NamedTuple):
    """With whom a rank exchanges: what has value v in the bits `inside` goes to rank r, (v, r) in `peers`.

    It replaces what has `value` there, this rank's value of the bits outside. Bit k of a value is
    that of inside[k].
    """

    inside: Sequence[int]
    value: int
    peers: Sequence[tuple[int, int]]

    @property
    def ranks(self) -> list[int]:
        """The ranks of the peers."""
        return [rank for _, rank in self.peers]


@dataclass(frozen=True, eq=False)
class Stage:
    """What comes first, if anything, and the gates on bits that every rank then does alone."""

    exchange: QubitExchange | None
    gates: tuple[MultiplexedGate, ...]


def make_stages(
    gates: Sequence[MultiplexedGate], n_bits: int, n_inside: int, block_bits: int = 0
) -> tuple[tuple[Stage, ...], tuple[int, ...]]:
    """The stages of gates on bits, and where each of the bits at the start is at the end.

    The lowest `block_bits` stay where they are; the largest gate has to fit into the others inside.
    """
    bit_of = list(range(n_bits))
    if n_inside == n_bits:
        return (Stage(None, tuple(gates)),) if gates else (), tuple(bit_of)
    stages = []
    pending = list(gates)
    exchange = None
    while pending:
        inside = mask_of([wire for wire in range(n_bits) if bit_of[wire] < n_inside])
        done, pending = sweep(pending, inside)
        if done or exchange:
            stages.append(Stage(exchange, tuple(gate.on(bit_of) for gate in done)))
        if pending:
            inside = wires_inside(pending, inside, n_bits, n_inside, block_bits)
            exchange = _exchange(inside, bit_of, n_inside)
            for inner, outer in exchange.pairs:
                a, b = bit_of.index(inner), bit_of.index(outer)
                bit_of[a], bit_of[b] = outer, inner
    return tuple(stages), tuple(bit_of)


def wires_inside(
    gates: Sequence[MultiplexedGate], inside: int, n_bits: int, n_inside: int, block_bits: int = 0
) -> int:
    """The mask of the wires that the next stage has inside, those of `inside` by preference.

    The lowest `block_bits` always are.
    """
    chosen = choose(gates, (1 << block_bits) - 1, n_inside)
    others = [wire for wire in range(n_bits) if not chosen >> wire & 1]
    others.sort(key=lambda wire: (not inside >> wire & 1, _next_use(gates, wire), wire))
    return chosen | mask_of(others[: n_inside - chosen.bit_count()])


def _next_use(gates: Sequence[MultiplexedGate], wire: int) -> int:
    return next((k for k, gate in enumerate(gates) if gate.target_mask >> wire & 1), len(gates))


def _exchange(inside: int, bit_of: Sequence[int], n_inside: int) -> QubitExchange:
    enter = [bit_of[w] for w in range(len(bit_of)) if inside >> w & 1 and bit_of[w] >= n_inside]
    leave = [bit_of[w] for w in range(len(bit_of)) if not inside >> w & 1 and bit_of[w] < n_inside]
    return QubitExchange(tuple(zip(sorted(leave), sorted(enter), strict=True)))


def first_places(gates: Sequence[MultiplexedGate], n_bits: int, n_inside: int) -> tuple[int, ...]:
    """Where the wires are best placed for the first stage, where they may be anywhere; the first highest."""
    usual = tuple(range(n_bits - 1, -1, -1))
    if n_inside == n_bits:
        return usual
    inside = wires_inside(gates, mask_of(range(n_bits - n_inside, n_bits)), n_bits, n_inside)
    inner = iter(range(n_inside - 1, -1, -1))
    outer = iter(range(n_bits - 1, n_inside - 1, -1))
    return tuple(next(inner) if inside >> wire & 1 else next(outer) for wire in range(n_bits))
