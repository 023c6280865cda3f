"""Exchanges in chunks that overlap with contractions: what cuts them, what may run at once, its seconds.

A tensor is made by steps in a row, exchanged, and read by others. Modes that stand first in all their tensors
and are whole on every rank cut them into equal chunks, each one range of a shard. A chunk is exchanged while
others are still made, or already read. Pure arithmetic on layouts and ranges of bytes; knows no schedule and
no device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

from tnplan.planner.hardware.process_grid import Grid, Layout

MOST_CHUNKS = 8
"""More chunks would hide little more: what is left to wait for is at most one of them."""


@dataclass(frozen=True)
class Span:
    """Bytes `start` .. `stop` - 1 of every rank's arena."""

    start: int
    stop: int

    def meets(self, other: Span) -> bool:
        """Whether both have bytes in common."""
        return self.start < other.stop and other.start < self.stop

    def chunk(self, number: int, chunks: int) -> Span:
        """Chunk `number` of `chunks` equal ones."""
        size = (self.stop - self.start) // chunks
        return Span(self.start + number * size, self.start + (number + 1) * size)


@dataclass(frozen=True)
class Spans:
    """Where the tensors of an exchange and of the steps that overlap with it lie.

    `made` are the operand of the first step before and what each of those makes, the exchanged tensor last;
    `read` is that as it arrives, and what each step after makes. Where there are no such steps, it is
    all there is. `branches` are what each step, before and after, reads besides. `number` is what the last
    step after adds to, where it leaves no tensor.
    """

    made: tuple[Span, ...]
    read: tuple[Span, ...]
    branches: tuple[tuple[Span, ...], ...] = ()
    number: Span | None = None


def cut_modes(
    modes: Sequence[int], layout: Layout, extents: Mapping[int, int], grid: Grid, chunks: int
) -> tuple[int, ...] | None:
    """The first modes, together of extent `chunks`, that cut every rank's shard into the same ranges; None
    without, as where shards differ in size.

    Modes of which a rank holds one value do not count: their place says nothing of memory.
    """
    # Unequal shards have chunks of unequal lengths: no common ranges.
    radix = {mode: digit.radix for mode, digit in zip(layout, grid, strict=True) if mode is not None}
    if any(extents[mode] % n_parts for mode, n_parts in radix.items()):
        return None
    cut: list[int] = []
    product = 1
    for mode in modes:
        if product == chunks:
            break
        if radix.get(mode) == extents[mode]:
            continue
        if mode in radix:
            return None
        cut.append(mode)
        product *= extents[mode]
    return tuple(cut) if product == chunks else None


def chunk_order(chunks: int, falling: bool) -> tuple[int, ...]:
    """The numbers of the chunks in the order in which they are made, exchanged and read."""
    return tuple(range(chunks))[:: -1 if falling else 1]


@dataclass(frozen=True)
class _Moment:
    """A step on one chunk, or the exchange of one: not before `earliest` and not after `latest` in the lane
    of the steps. Exchanges come in the order of their `turn`."""

    earliest: float
    latest: float
    turn: int | None = None

    def precedes(self, other: _Moment) -> bool:
        """Whether it is always done before the other one begins."""
        if self.turn is not None and other.turn is not None:
            return self.turn < other.turn
        return self.latest < other.earliest


@dataclass(frozen=True)
class _Lifetime:
    """A chunk of a tensor where it lies: from the moment that writes it to the last one that needs it."""

    name: str
    span: Span
    first: _Moment
    last: _Moment

    def harms(self, other: _Lifetime) -> bool:
        """Whether both may need the same bytes at once; what one moment reads and writes is checked apart."""
        # Intervals of use may overlap only where bytes do not. A last use and a first use in the same moment
        # are one step, which reads and writes its own chunk.
        if not self.span.meets(other.span):
            return False
        return not any(
            earlier.last.precedes(later.first) or earlier.last == later.first
            for earlier, later in ((self, other), (other, self))
        )


def hazards(spans: Spans, chunks: int, falling: bool) -> Iterator[str]:
    """Why chunks cannot be exchanged while their neighbours work, a line a reason; nothing where they can.

    A chunk goes through all steps before, then the next one does; after the last of them chunks go likewise
    through the steps after. A chunk is exchanged by all ranks between two meetings: the first comes after
    each has made the chunk, the second before any reads it. Between them a rank may be making later chunks or
    reading earlier ones, while its chunk of the source is read, and that of what arrives written, by others.
    """
    lifetimes = list(_lifetimes(spans, chunk_order(chunks, falling)))
    for number, first in enumerate(lifetimes):
        for other in lifetimes[number + 1 :]:
            if first.harms(other):
                yield f"{first.name} and {other.name} lie in the same bytes, and both may be needed at once"


def _lifetimes(spans: Spans, order: Sequence[int]) -> Iterator[_Lifetime]:
    """How long each chunk of every tensor, and every branch, is needed where it lies."""
    # The lane of steps in whole numbers: chunk `turn` is at step `turn * n_before + step`; steps after come
    # behind all steps before. An exchange lies between its chunk's last step before and first step after, at
    # half numbers, since it may be any time between the two.
    chunks = len(order)
    n_before, n_after = len(spans.made) - 1, len(spans.read) - 1 + (spans.number is not None)
    start, end = _Moment(-inf, -inf), _Moment(inf, inf)

    def before(turn: int, step: int) -> _Moment:
        return _Moment(turn * n_before + step, turn * n_before + step)

    def after(turn: int, step: int) -> _Moment:
        return before(chunks, turn * n_after + step)

    def exchange(turn: int) -> _Moment:
        earliest = before(turn, n_before - 1).latest if n_before else -inf
        latest = after(turn, 0).earliest if n_after else inf
        return _Moment(earliest + 0.5, latest - 0.5, turn)

    for turn, number in enumerate(order):
        moments = [start, *(before(turn, step) for step in range(n_before)), exchange(turn)]
        for step, span in enumerate(spans.made):
            name = f"part {number} of operand {step} before"
            yield _Lifetime(name, span.chunk(number, chunks), *moments[step : step + 2])
        moments = [exchange(turn), *(after(turn, step) for step in range(n_after)), end]
        for step, span in enumerate(spans.read):
            name = f"part {number} of operand {step} after"
            yield _Lifetime(name, span.chunk(number, chunks), *moments[step : step + 2])
    if spans.number is not None:
        yield _Lifetime("the number that is left", spans.number, after(0, n_after - 1), end)
    # Branches are read for every chunk, to the last.
    last = [before(chunks - 1, step) for step in range(n_before)]
    last += [after(chunks - 1, step) for step in range(n_after)]
    for number, (branches, moment) in enumerate(zip(spans.branches, last, strict=True)):
        for span in branches:
            yield _Lifetime(f"a branch of chain {number}", span, start, moment)


def exposed_s(made_s: Sequence[float], exchange_s: Sequence[float], read_s: Sequence[float]) -> float:
    """Seconds that chunks take beyond making and reading them: all of one length, zeros without overlap.

    Making and reading follow each other in one lane, exchanges in another.
    """
    # Two lanes: exchange i begins when chunk i is made and exchange i - 1 is done; reading i begins when
    # exchange i and reading i - 1 are done, and not before all is made.
    ready = list(accumulate(made_s))
    exchanged = 0.0
    now = ready[-1]
    for ready_s, moving_s, reading_s in zip(ready, exchange_s, read_s, strict=True):
        exchanged = max(exchanged, ready_s) + moving_s
        now = max(now, exchanged) + reading_s
    return now - sum(made_s) - sum(read_s)
