"""A compiled contraction as a function that torch's autograd differentiates. Imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from tnplan.api.contraction.gradients.differentiable import Differentiable


def differentiable_call(contraction: Differentiable, arrays: Sequence[Any]) -> Any:
    """The result of a call that autograd can go back through, to the tensors that require gradients."""
    return _Contract.apply(contraction, *arrays)


class _Contract(torch.autograd.Function):
    """torch's gradients are conjugates of the complex derivatives: that of a real L with respect to a complex
    x is dL/dRe(x) + i dL/dIm(x)."""

    @staticmethod
    def forward(ctx: Any, contraction: Differentiable, *arrays: Any) -> Any:
        """A number with derivatives, which the backward pass scales; of other results the arrays are kept."""
        ctx.contraction = contraction
        plain = [array.detach() if isinstance(array, torch.Tensor) else array for array in arrays]
        wrt = [place for place, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        numbers = [contraction.changing[place] for place in wrt]
        ctx.wrt, ctx.numbers, ctx.n_arrays = wrt, numbers, len(arrays)
        if contraction.schedule.output:
            ctx.plain = plain
            ctx.save_for_backward(*(array for array in arrays if isinstance(array, torch.Tensor)))
            return contraction(*plain)
        value, ctx.derivatives = contraction.value_and_grad(*plain, wrt=numbers)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        """The gradients of the arrays from that of the result."""
        found: list[Any] = [None] * ctx.n_arrays
        if ctx.contraction.schedule.output:
            _ = ctx.saved_tensors  # refuses arrays that were changed in place
            cotangent = gradient.conj().resolve_conj()
            _, derivatives = ctx.contraction.vjp(ctx.plain, cotangent, ctx.numbers)
            gradients = [one.conj().resolve_conj() for one in derivatives]
        else:
            gradients = [gradient * one.conj().resolve_conj() for one in ctx.derivatives]
        for place, one in zip(ctx.wrt, gradients, strict=True):
            found[place] = one
        return None, *found
