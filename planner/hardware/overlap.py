"""Exchanges in parts beside contractions: what cuts them, what may run at once, how long it takes.

A tensor is made by one step, exchanged, and read by another. Modes that stand first in it and are whole on
every rank cut it into equal parts, each one range of a shard. A part is exchanged while others are still
made, or already read. Pure arithmetic on layouts and ranges of bytes; knows no schedule and no device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from planner.hardware.layout import Grid, Layout

MOST_PARTS = 8
"""More parts would hide little more: what is left to wait for is at most one of them."""


@dataclass(frozen=True)
class Span:
    """Bytes `start` .. `stop` - 1 of every rank's arena."""

    start: int
    stop: int

    def meets(self, other: Span) -> bool:
        """Whether both have bytes in common."""
        return self.start < other.stop and other.start < self.stop

    def part(self, number: int, parts: int) -> Span:
        """Part `number` of `parts` equal ones."""
        size = (self.stop - self.start) // parts
        return Span(self.start + number * size, self.start + (number + 1) * size)


@dataclass(frozen=True)
class Spans:
    """Where the tensors of an exchange and of the steps beside it lie.

    `operand` and `branches` are what the step before reads, `result` what the step after writes; None where
    there is no such step beside the exchange. `others` are what the step after reads besides.
    """

    source: Span
    out: Span
    operand: Span | None = None
    branches: tuple[Span, ...] = ()
    result: Span | None = None
    others: tuple[Span, ...] = ()


def cut_modes(
    modes: Sequence[int], layout: Layout, extents: Mapping[int, int], grid: Grid, parts: int
) -> tuple[int, ...] | None:
    """The first modes, together of extent `parts`, that cut every rank's shard into the same ranges; None
    without, as where shards differ in size.

    Modes of which a rank holds one value do not count: their place says nothing of memory.
    """
    radix = {mode: digit.radix for mode, digit in zip(layout, grid, strict=True) if mode is not None}
    if any(extents[mode] % n_parts for mode, n_parts in radix.items()):
        return None
    cut: list[int] = []
    product = 1
    for mode in modes:
        if product == parts:
            break
        if radix.get(mode) == extents[mode]:
            continue
        if mode in radix:
            return None
        cut.append(mode)
        product *= extents[mode]
    return tuple(cut) if product == parts else None


def part_order(parts: int, falling: bool) -> tuple[int, ...]:
    """The numbers of the parts in the order in which they are made, exchanged and read."""
    return tuple(range(parts))[:: -1 if falling else 1]


def hazards(spans: Spans, parts: int, falling: bool) -> Iterator[str]:
    """Why parts cannot be exchanged beside their neighbours, a line for each reason; nothing where they can.

    A part is exchanged by all ranks between two meetings: the first comes after each has made the part, the
    second before any reads it. Between them a rank may be making later parts or reading earlier ones, while
    its part of the source is read, and that of `out` written, by any other.
    """
    order = part_order(parts, falling)
    for place, number in enumerate(order):
        source, out = spans.source.part(number, parts), spans.out.part(number, parts)
        if spans.operand is not None:
            for later in order[place + 1 :]:
                read = (spans.operand.part(later, parts), *spans.branches)
                if any(out.meets(span) for span in read):
                    yield f"part {number} would be written where the step before still reads for part {later}"
                if out.meets(spans.source.part(later, parts)):
                    yield f"part {number} would be written where part {later} is being made"
        if spans.result is not None:
            for earlier in order[:place]:
                written = spans.result.part(earlier, parts)
                if source.meets(written) or out.meets(written):
                    yield f"part {number} would be overwritten by what the step after makes of part {earlier}"
                read = (spans.out.part(earlier, parts), *spans.others)
                if any(out.meets(span) for span in read):
                    yield f"part {number} would be written where the step after reads for part {earlier}"


def exposed_s(made_s: Sequence[float], exchange_s: Sequence[float], read_s: Sequence[float]) -> float:
    """Seconds that parts take beyond making and reading them: all of one length, zeros where not beside.

    Making and reading follow each other in one lane, exchanges in another.
    """
    made = list(accumulate(made_s))
    exchanged = 0.0
    now = made[-1]
    for ready_s, moving_s, reading_s in zip(made, exchange_s, read_s, strict=True):
        exchanged = max(exchanged, ready_s) + moving_s
        now = max(now, exchanged) + reading_s
    return now - sum(made_s) - sum(read_s)
