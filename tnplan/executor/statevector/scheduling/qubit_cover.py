"""Which bits are held and which gates are done with them: the choice behind passes and stages of ranks.

A gate can be done while its targets are held, if no gate left behind that does not commute comes before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate

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

    targets, masks, left = _columns(gates)
    numbers, held = np.empty_like(left), np.empty_like(left)
    count = kernel.fill_rounds(
        targets, masks, always, size, WINDOW, EXCHANGES_TRIED, _room(), left, numbers, held
    )
    made: list[tuple[int, list[MultiplexedGate]]] = [(bits, []) for bits in held[:count].tolist()]
    for gate, number in zip(gates, numbers.tolist(), strict=True):
        made[number][1].append(gate)
    return made


def cover(gates: Sequence[MultiplexedGate], always: int, size: int, several: bool = True) -> list[int]:
    """The masks of `size` bits or fewer that do all gates one after another: as few as are found.

    The best bits for one pass after another, unless fewer come of following `several` ways at once.
    """
    targets, masks, _ = _columns(gates)
    return list(_cover(targets.tobytes(), masks.tobytes(), always, size, several))


@lru_cache(COVERS_KEPT)
def _cover(targets: bytes, masks: bytes, always: int, size: int, several: bool) -> tuple[int, ...]:
    """The same for the masks of gates."""
    if not targets:
        return ()
    columns = (
        np.frombuffer(targets, np.int64).copy(), np.frombuffer(masks, np.int64).copy(),
        np.arange(len(targets) // 8),
    )  # fmt: skip
    every = always | int(np.bitwise_or.reduce(columns[0]))
    greedy = _search(columns, always, size, 1, 0, len(columns[0]))
    assert greedy is not None
    if not several or len(greedy) == 1:
        return tuple(greedy)
    if len(greedy) == 1 - (size - every.bit_count()) // (size - always.bit_count()):
        return tuple(greedy)
    return tuple(_search(columns, always, size, WAYS_KEPT, STARTS, len(greedy) - 1) or greedy)


def forget_covers(n_gates: int) -> None:
    """Free what `cover` keeps, where a plan of so many gates made it large."""
    if n_gates > REMEMBERED_GATES:
        _cover.cache_clear()


def _search(
    columns: tuple[Any, Any, Any], always: int, size: int, kept: int, starts: int, most: int
) -> list[int] | None:  # fmt: skip
    """The masks of a cover, `most` or fewer, if one is found.

    After each pass the ways that leave fewest gates with targets are kept, but none that leave more targets
    than the passes to come have room for.
    """
    targets, seed = columns[0], 0
    ways: list[tuple[Any, list[int]]] = [(columns[2], [])]
    for n_done in range(most):
        found: dict[bytes, tuple[Any, list[int]]] = {}
        for left, done in ways:
            held, rests, seed = _next_passes(columns, left, always, size, starts, seed)
            for bits, rest in zip(held, rests, strict=True):
                found.setdefault(rest.tobytes(), (rest, [*done, bits]))
        ways = sorted(found.values(), key=lambda way: np.count_nonzero(targets[way[0]]))[:kept]
        if not len(ways[0][0]):
            return ways[0][1]
        room = (most - n_done - 1) * (size - always.bit_count())
        ways = [way for way in ways if _n_bits(targets[way[0]] & ~always) <= room]
        if not ways:
            break
    return None


def _next_passes(
    columns: tuple[Any, Any, Any], left: Any, always: int, size: int, starts: int, seed: int
) -> tuple[list[int], list[Any], int]:  # fmt: skip
    """Masks of bits that may be held next, one and `starts` more, the gates that each leaves, and a seed."""
    from tnplan.executor.statevector.scheduling import qubit_cover_kernel as kernel

    targets, masks, _ = columns
    held, counts = np.empty((2, 1 + starts), np.int64)
    rest = np.empty((1 + starts, len(left)), np.int64)
    seed = kernel.next_passes(
        targets, masks, left, WINDOW, always, size, EXCHANGES_TRIED, seed, _room(), held, rest, counts
    )
    return held.tolist(), [row[:count] for row, count in zip(rest, counts.tolist(), strict=True)], int(seed)


def _remaining(targets: Any, masks: Any, left: Any, held: int) -> Any:
    """The gates that are left when those that can be done with the bits of `held` are."""
    from tnplan.executor.statevector.scheduling import qubit_cover_kernel as kernel

    out = np.empty_like(left)
    return out[: kernel.remaining(targets, masks, left, held, out)]


def _room() -> Any:
    return np.empty((4, 64), np.int64)


def _n_bits(masks: Any) -> int:
    return int(np.bitwise_or.reduce(masks, initial=0)).bit_count()


def _columns(gates: Sequence[MultiplexedGate]) -> tuple[Any, Any, Any]:
    """Masks of targets and of all bits, int64, and the numbers of the gates."""
    return (
        np.array([gate.target_mask for gate in gates], np.int64),
        np.array([gate.mask for gate in gates], np.int64), np.arange(len(gates)),
    )  # fmt: skip


def sweep(gates: Sequence[MultiplexedGate], held: int) -> tuple[list[MultiplexedGate], list[MultiplexedGate]]:
    """The gates that can be done while the bits of `held` are in the tile, and those left, both in order."""
    waits = np.zeros(len(gates), bool)
    waits[_remaining(*_columns(gates), held)] = True
    pairs = list(zip(gates, waits.tolist(), strict=True))
    return [gate for gate, is_left in pairs if not is_left], [gate for gate, is_left in pairs if is_left]


def index_of(value: Any, bits: Any) -> Any:
    """The index in which bit bits[k] is bit k of a value, or of each of several."""
    return sum(((value >> k & 1) << bit for k, bit in enumerate(bits)), 0 * value)


def tile_runs(held: Array) -> tuple[int, Array]:
    """How many of the lowest bits of the index a tile holds, and where in it each run of 2^that begins."""
    return _tile_runs(tuple(held.tolist()))


@lru_cache(RUNS_KEPT)
def _tile_runs(held: tuple[int, ...]) -> tuple[int, Array]:
    run_bits = next((k for k, bit in enumerate(held) if bit != k), len(held))
    starts = index_of(np.arange(1 << (len(held) - run_bits), dtype=np.int64), held[run_bits:])
    starts.flags.writeable = False
    return run_bits, starts
