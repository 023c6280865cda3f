"""Sizes and starts of memory as multiples of what hardware wants."""

from __future__ import annotations

CACHE_LINE_BYTES = 64
"""Arrays of a CPU, streams of a codec and small arrays of zeros begin at multiples of it."""


def round_down(size: int, unit: int) -> int:
    """The greatest multiple of `unit` that is at most `size`."""
    return size // unit * unit
