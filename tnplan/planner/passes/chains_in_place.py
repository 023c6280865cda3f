"""Which chains leave their result where their operand was, and the modes of both in order.

What a chain brings takes the places of what it sums, mode by mode, and all else stays where it is, so that a
tile is written where it was read. A larger result goes on behind its operand: the modes that it has more are
in front. All others slide: the chain is done in parts, each of which is written beside the parts that are
still to be read. Knows modes in storage order; not buffers, and not when a chain has a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod

Modes = tuple[tuple[int, int], ...]
"""(mode, extent on a rank) in storage order."""

SLIDING_PARTS = 16
"""A chain that slides needs memory for one of so many parts of the smaller one of its operand and result
besides the other."""
FRONT = 4
"""So many modes in front, which cut what slides, had better stay for long."""
WIDTH = 12
"""Orders of a result that are followed on."""
SLIDING_SHARE = 64
"""Only tensors slide that are at least the largest of their run over this: each part is a launch."""


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
class InPlaceResult:
    """A result: its modes in order, and the parts in which its chain puts it into its operand's place; 0: it
    has a buffer of its own."""

    modes: tuple[int, ...]
    parts: int = 1


@dataclass(frozen=True)
class _State:
    """The results of the first chains of a run: the most elements that live in one of these chains, those
    of all results in buffers of their own, the order of the last one, and all results, the last one first."""

    most: float
    separate: int
    order: Modes
    results: tuple[InPlaceResult | None, _State | None] = (None, None)


def moved_in_place(moves: Sequence[Move], resizing: bool) -> dict[int, InPlaceResult]:
    """The results that take their operand's place, or another order so that later ones can, by node.

    Only with `resizing` may a result be larger or smaller, or slide.
    """
    by_node: dict[int, InPlaceResult] = {}
    # By mode the number of the last chain that leaves it.
    last_uses = {mode: k for k, move in enumerate(moves) for mode, _ in move.result_modes} if resizing else {}
    first = 0
    for end in range(1, len(moves) + 1):
        if end < len(moves) and moves[end].operand == moves[end - 1].result:
            continue
        by_node |= _best_orders(moves[first:end], last_uses, resizing)
        first = end
    return by_node


def _best_orders(
    run: Sequence[Move], last_uses: Mapping[int, int], resizing: bool
) -> dict[int, InPlaceResult]:
    """The orders of a run's results with which its chains hold least at once, and all have a tile.

    Of the orders in which a result may be, those of the `WIDTH` best ways there go on, and its own.
    """
    # Dynamic programming over the orders of one result after the other, with a beam of WIDTH: the order of a
    # result decides whether the next one can take its place.
    least = max(elements(move.operand_modes) for move in run) / SLIDING_SHARE if resizing else inf
    states = [_State(0, 0, run[0].operand_modes)]
    for move in run[:-1]:
        by_order: dict[Modes, _State] = {}
        for state in states:
            for moved, cut, result in _choices(move, state.order, last_uses, elements(state.order) >= least):
                if not move.fits(_without(state.order, cut), _without(result, cut)):
                    continue
                most = max(state.most, _live_elements(state.order, result, moved))
                separate = state.separate + (elements(result) if moved is None or not moved.parts else 0)
                # Least memory of the worst chain first, then fewest bytes in buffers of their own.
                if result not in by_order or (most, separate) < (
                    by_order[result].most,
                    by_order[result].separate,
                ):
                    by_order[result] = _State(most, separate, result, (moved, state))
        states = sorted(
            by_order.values(), key=lambda state: (state.most, state.separate, -_front(state.order, last_uses))
        )
        # Invariant: the plain order is always among the states where it fits, so that a run in which all
        # chains have tiles in it is never left without a way.
        unmoved = [state for state in states[WIDTH:] if state.order == move.result_modes]
        states = [*states[:WIDTH], *unmoved]
    last = run[-1]
    # The last result keeps its order: what takes it is no chain of this run. The best state whose order it
    # fits.
    for state in states:
        if last.fits(state.order, last.result_modes):
            return dict(_named(run, state))
    return {}


def _named(run: Sequence[Move], state: _State) -> Iterator[tuple[int, InPlaceResult]]:
    """The results that led to a state, by node."""
    for move in reversed(run[:-1]):
        moved, before = state.results
        assert before is not None
        if moved is not None:
            yield move.result, moved
        state = before


def _live_elements(operand: Modes, result: Modes, moved: InPlaceResult | None) -> float:
    """The elements that live while a chain works."""
    sizes = elements(operand), elements(result)
    if moved is None or moved.parts == 0:
        return sum(sizes)
    # In place only the larger of the two lives; a sliding chain needs one part of the smaller besides.
    return max(sizes) + (min(sizes) / moved.parts if moved.parts > 1 else 0)


def _front(order: Modes, last_uses: Mapping[int, int]) -> int:
    """The chain up to which the modes in front stay."""
    return min((last_uses.get(mode, 0) for mode, _ in order[:FRONT]), default=0)


def _choices(
    move: Move, operand: Modes, last_uses: Mapping[int, int], slides: bool
) -> Iterator[tuple[InPlaceResult | None, frozenset[int], Modes]]:
    """Ways to write a result, with the modes that cut it and its order."""
    uncut = frozenset[int]()
    for preferred in (last_uses, {}) if last_uses else ({},):
        result = _in_the_place_of(operand, move.result_modes, preferred)
        if result is not None and (last_uses or len(result) == len(operand)):
            yield InPlaceResult(_numbers(result)), uncut, result
    if slides:
        cut, slid = _slid(operand, move)
        if slid is not None:
            yield InPlaceResult(_numbers(slid), SLIDING_PARTS), cut, slid
    if last_uses:
        front = sorted(move.result_modes, key=lambda item: -last_uses.get(item[0], 0))[:FRONT]
        turned = (*front, *(item for item in move.result_modes if item not in front))
        yield InPlaceResult(_numbers(turned), 0), uncut, turned
    yield None, uncut, move.result_modes


def _in_the_place_of(operand: Modes, result: Modes, last_uses: Mapping[int, int]) -> Modes | None:
    """The modes of a result in an order in which those of the operand keep their places; None if none is, or
    if the result has fewer. In front are those that live longest, where `last_uses` says so."""
    in_result = {mode for mode, _ in result}
    of_operand = {mode for mode, _ in operand}
    brought = [item for item in result if item[0] not in of_operand]
    brought.sort(key=lambda item: -last_uses.get(item[0], 0))
    # Modes of one extent take each other's places one by one: strides of all that stays are the same, so that
    # a tile is written to the addresses that it was read from.
    more = len(result) - len(operand)
    if more < 0:
        return None
    ordered, brought = brought[:more], brought[more:]
    for mode, extent in operand:
        successor = (mode, extent)
        if mode not in in_result:
            successor = next((item for item in brought if item[1] == extent), (-1, 0))
            if successor[0] < 0:
                return None
            brought.remove(successor)
        ordered.append(successor)
    return tuple(ordered)


def _slid(operand: Modes, move: Move) -> tuple[frozenset[int], Modes | None]:
    """The first modes of the operand that cut it into `SLIDING_PARTS`, and an order of the result in which
    they are in front; None if the result lacks them, or no rank holds them whole."""
    in_result = {mode for mode, _ in move.result_modes}
    first, parts = list[tuple[int, int]](), 1
    for mode, extent in operand:
        if parts >= SLIDING_PARTS:
            break
        # Parts are contiguous ranges of both only if they are cut by leading modes, whole on every rank.
        if extent > 1 and (mode not in in_result or mode in move.spread):
            break
        first.append((mode, extent))
        parts *= extent
    cut = frozenset(mode for mode, _ in first)
    if parts != SLIDING_PARTS:
        return cut, None
    return cut, (*first, *_without(move.result_modes, cut))


def elements(modes: Modes) -> int:
    """The elements of a tensor on a rank."""
    return prod(extent for _, extent in modes)


def _numbers(modes: Modes) -> tuple[int, ...]:
    return tuple(mode for mode, _ in modes)


def _without(modes: Modes, gone: frozenset[int]) -> Modes:
    return tuple(item for item in modes if item[0] not in gone)
