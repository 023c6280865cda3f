"""What numba kernels over packed bits share: how they are compiled, and the count of set bits.

Imported lazily (numba loads slowly).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

ONE = np.uint64(1)

jit = numba.njit(nogil=True, cache=True, error_model="numpy")
inline = numba.njit(nogil=True, cache=True, error_model="numpy", inline="always")


def _count_bits(typing_context: Any, word: Any) -> tuple[Any, Any]:
    """How many bits of a 64-bit word are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


count_bits: Any = intrinsic(_count_bits)
