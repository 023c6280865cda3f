"""Which chains leave their result where their operand was, and the modes of both in order.

What a chain brings takes the places of what it sums, mode by mode, and all else stays where it is, so that a
tile is written where it was read. A larger result goes on behind its operand: the modes that it has more are
in front. A smaller one slides: the chain is done in parts, each of which is written in front of the parts
that are still to be read. Knows modes in storage order; not buffers, and not when a chain has a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

Modes = tuple[tuple[int, int], ...]
"""(mode, extent on a rank) in storage order."""

SLIDING_PARTS = 16
"""A chain that slides needs room for one of so many parts of its result beside its operand."""


@dataclass(frozen=True)
class Move:
    """A chain by its ends: the nodes of its operand and its result, the modes of both, those that are spread
    over ranks, and whether it has a tile with these ends in a given order."""

    operand: int
    result: int
    operand_modes: Modes
    result_modes: Modes
    spread: frozenset[int]
    fits: Callable[[Modes, Modes], bool]


@dataclass(frozen=True)
class Place:
    """A result in its operand's place: its modes in order, and the parts in which its chain is done."""

    modes: tuple[int, ...]
    parts: int = 1


_Found = tuple[Place | None, ...] | None


def moved_in_place(moves: Sequence[Move], resizing: bool) -> dict[int, Place]:
    """The results that can take their operand's place, by node, if the next chain can read their order.

    Only with `resizing` may a result be larger or smaller, or slide.
    """
    found: dict[int, Place] = {}
    lives = _lives(moves) if resizing else {}
    first = 0
    for end in range(1, len(moves) + 1):
        if end < len(moves) and moves[end].operand == moves[end - 1].result:
            continue
        run = moves[first:end]
        first = end
        places = _places(run, 0, run[0].operand_modes, lives, resizing, {}) or ()
        found |= {
            move.result: place for move, place in zip(run, places, strict=False) if place is not None
        }
    return found


def _places(
    run: Sequence[Move], number: int, operand: Modes, lives: Mapping[int, int], resizing: bool,
    known: dict[tuple[int, Modes], _Found],
) -> _Found:  # fmt: skip
    """The places of a run's results from chain `number` on, whose operand has the given order; None for those
    that have places of their own, as the last has. None if some chain had no tile."""
    move = run[number]
    if number + 1 == len(run):
        return (None,) if move.fits(operand, move.result_modes) else None
    if (number, operand) not in known:
        found: _Found = None
        for place, cut, result in _choices(move, operand, lives, resizing):
            if result is None or not move.fits(_without(operand, cut), _without(result, cut)):
                continue
            rest = _places(run, number + 1, result, lives, resizing, known)
            if rest is not None:
                found = (place, *rest)
                break
        known[number, operand] = found
    return known[number, operand]


def _choices(
    move: Move, operand: Modes, lives: Mapping[int, int], resizing: bool
) -> Iterator[tuple[Place | None, frozenset[int], Modes | None]]:
    """Places of a result, with the modes that cut it and its order; the best first, its own place last."""
    whole = frozenset[int]()
    for preferred in (lives, {}) if resizing else ({},):
        result = _in_the_place_of(operand, move.result_modes, preferred)
        if result is not None and (resizing or len(result) == len(operand)):
            yield Place(_numbers(result)), whole, result
    if resizing:
        cut, result = _slid(operand, move)
        if result is not None:
            yield Place(_numbers(result), SLIDING_PARTS), cut, result
    yield None, whole, move.result_modes


def _lives(moves: Sequence[Move]) -> dict[int, int]:
    """By mode the number of the last chain that leaves it."""
    return {mode: number for number, move in enumerate(moves) for mode, _ in move.result_modes}


def _in_the_place_of(operand: Modes, result: Modes, lives: Mapping[int, int]) -> Modes | None:
    """The modes of a result in an order in which those of the operand keep their places; None if none is, or
    if the result has fewer. In front are those that live longest, where `lives` says so."""
    kept = {mode for mode, _ in result}
    held = {mode for mode, _ in operand}
    brought = [item for item in result if item[0] not in held]
    brought.sort(key=lambda item: -lives.get(item[0], 0))
    more = len(result) - len(operand)
    if more < 0:
        return None
    ordered, brought = brought[:more], brought[more:]
    for mode, extent in operand:
        found = (mode, extent)
        if mode not in kept:
            found = next((item for item in brought if item[1] == extent), (-1, 0))
            if found[0] < 0:
                return None
            brought.remove(found)
        ordered.append(found)
    return tuple(ordered)


def _slid(operand: Modes, move: Move) -> tuple[frozenset[int], Modes | None]:
    """The first modes of the operand that cut it into `SLIDING_PARTS`, and an order of the result in which
    they are in front; None if the result is larger, lacks them, or no rank holds them whole."""
    kept = {mode for mode, _ in move.result_modes}
    first, parts = list[tuple[int, int]](), 1
    for mode, extent in operand:
        if parts >= SLIDING_PARTS:
            break
        if extent > 1 and (mode not in kept or mode in move.spread):
            break
        first.append((mode, extent))
        parts *= extent
    cut = frozenset(mode for mode, _ in first)
    if parts != SLIDING_PARTS or _elements(move.result_modes) > _elements(operand):
        return cut, None
    return cut, (*first, *_without(move.result_modes, cut))


def _elements(modes: Modes) -> int:
    return prod(extent for _, extent in modes)


def _numbers(modes: Modes) -> tuple[int, ...]:
    return tuple(mode for mode, _ in modes)


def _without(modes: Modes, gone: frozenset[int]) -> Modes:
    return tuple(item for item in modes if item[0] not in gone)
