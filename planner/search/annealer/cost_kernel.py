"""Sizes and costs of single tensors and steps, for the compiled moves of the joint search.

numba caches compiled functions by the file of the outermost one: after a change here, or of waist_kernel,
delete the cache of anneal_kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.extending import intrinsic

from tnplan.planner.common.numba_cache import cached_njit
from tnplan.planner.search.annealer.anneal_state import LARGEST

EXACT = 2.0**53
BARE: dict[str, Any] = {"nogil": True, "_nrt": False}
"""No counts of references to arrays, which would take four times as long as a move; nothing is allocated."""
INLINE: dict[str, Any] = {**BARE, "forceinline": True}
"""Taken apart, the records have some 150 fields: handing them over takes longer than a move."""


def _set_bits(typing_context: Any, word: Any) -> tuple[Any, Callable[..., Any]]:
    """The number of set bits of a 64-bit word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


ones_of: Any = intrinsic(_set_bits)


@cached_njit(**INLINE)
def size_of(problem: Any, kept: Any, a: Any, b: Any) -> float:
    """Elements over the union of two sets of legs, without sliced bits."""
    size = 1.0
    for s in range(problem.segments.size - 1):
        ones = 0
        for i in range(problem.segments[s], problem.segments[s + 1]):
            ones += ones_of((a[i] | b[i]) & kept[i])
        size *= problem.powers[s, ones]
    return min(size, LARGEST)


@cached_njit(**INLINE)
def step_cost(weight: float, span: float, a: float, b: float, c: float) -> float:
    """What a step costs whose tensors have so many elements."""
    return max(span, weight * (a + b + c))


@cached_njit(**INLINE)
def excess(limit: float, size: float) -> float:
    """What a tensor is over the limit, in limits."""
    return max(size / limit - 1.0, 0.0)
