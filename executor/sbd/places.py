"""How a place of `PairTiles` is written in a word of 32 bits: element + SIGN if subtracted + 2 SIGN target."""

from __future__ import annotations

SIGN = 1 << 12
"""What says that the element is subtracted; elements are below it."""
NONE = 0xFFFFFFFF
"""No element."""
