"""Several ranks: which qubits are inside a rank, and when index bits are exchanged. Knows no communicator.

The highest bits of the index number the ranks. Targets must be bits inside a rank; selectors may be anywhere.
So a circuit falls into stages, each with a set of wires inside the ranks, and an exchange between two stages
swaps bits of the rank number with bits inside. The set of a stage is chosen like the bits of a pass: as many
gates as are found, then as few bits moved as that allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, mask_of
from tnplan.executor.statevector.scheduling.qubit_cover import choose, sweep


@dataclass(frozen=True)
class QubitExchange:
    """Bit `inside` of a pair changes places with bit `outside`, which numbers ranks; all pairs at once."""

    pairs: tuple[tuple[int, int], ...]

    def on(self, where: Sequence[int]) -> QubitExchange:
        """The same exchange with bit j renamed to where[j]."""
        return QubitExchange(tuple((where[inside], where[outside]) for inside, outside in self.pairs))


class ExchangePartners(NamedTuple):
    """With whom a rank exchanges: what has value v in the bits `inside` goes to rank r, (v, r) in `peers`.

    It takes the place of what has `value` there, this rank's value of the bits outside. Bit k of a value is
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
    gates: Sequence[MultiplexedGate], n_bits: int, n_inside: int
) -> tuple[tuple[Stage, ...], tuple[int, ...]]:
    """The stages of gates on bits, and where each of the bits at the start is at the end."""
    place = list(range(n_bits))
    if n_inside == n_bits:
        return (Stage(None, tuple(gates)),) if gates else (), tuple(place)
    stages = []
    left = list(gates)
    exchange = None
    while left:
        inside = mask_of([wire for wire in range(n_bits) if place[wire] < n_inside])
        done, left = sweep(left, inside)
        if done or exchange:
            stages.append(Stage(exchange, tuple(gate.on(place) for gate in done)))
        if left:
            exchange = _exchange(wires_inside(left, inside, n_bits, n_inside), place, n_inside)
            for inner, outer in exchange.pairs:
                a, b = place.index(inner), place.index(outer)
                place[a], place[b] = outer, inner
    return tuple(stages), tuple(place)


def wires_inside(gates: Sequence[MultiplexedGate], now: int, n_bits: int, n_inside: int) -> int:
    """The mask of the wires that the next stage has inside, those that are inside `now` by preference."""
    held = choose(gates, 0, n_inside)
    rest = [wire for wire in range(n_bits) if not held >> wire & 1]
    rest.sort(key=lambda wire: (not now >> wire & 1, _next_use(gates, wire), wire))
    return held | mask_of(rest[: n_inside - held.bit_count()])


def _next_use(gates: Sequence[MultiplexedGate], wire: int) -> int:
    return next((k for k, gate in enumerate(gates) if gate.target_mask >> wire & 1), len(gates))


def _exchange(inside: int, place: Sequence[int], n_inside: int) -> QubitExchange:
    enter = [place[w] for w in range(len(place)) if inside >> w & 1 and place[w] >= n_inside]
    leave = [place[w] for w in range(len(place)) if not inside >> w & 1 and place[w] < n_inside]
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
