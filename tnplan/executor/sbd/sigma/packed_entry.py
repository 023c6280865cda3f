"""An entry of `PairTiles.places` in 32 bits: element, plus SIGN if it is subtracted, + 2 SIGN target."""

from __future__ import annotations

SIGN = 1 << 12
"""What says that the element is subtracted; elements are below it."""
NONE = 0xFFFFFFFF
"""No element."""
