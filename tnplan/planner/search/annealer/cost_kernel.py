"""Sizes and costs of single tensors and steps, for the compiled moves of the joint search."""

from __future__ import annotations

from typing import Any

from tnplan.common.kernels.bits_kernel import count_bits as ones_of
from tnplan.common.kernels.kernel import kernel
from tnplan.planner.search.annealer.anneal_state import LARGEST

EXACT = 2.0**53
jit = kernel(nogil=True, error_model="numpy")


@jit
def size_of(problem: Any, kept: Any, a: Any, b: Any) -> float:
    """Elements over the union of two sets of legs, without sliced bits."""
    size = 1.0
    for s in range(problem.segments.size - 1):
        ones = 0
        for i in range(problem.segments[s], problem.segments[s + 1]):
            ones += ones_of((a[i] | b[i]) & kept[i])
        size *= problem.powers[s, ones]
    return min(size, LARGEST)


@jit
def step_cost(weight: float, span: float, a: float, b: float, c: float) -> float:
    """What a step costs whose tensors have so many elements."""
    return max(span, weight * (a + b + c))


@jit
def excess(limit: float, size: float) -> float:
    """What a tensor is over the limit, in limits."""
    return max(size / limit - 1.0, 0.0)
