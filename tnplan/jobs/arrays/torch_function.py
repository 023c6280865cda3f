"""A compiled contraction as a function that torch differentiates, to any order, and maps. Imports torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd.forward_ad import unpack_dual

from tnplan.common.errors import InputError
from tnplan.jobs.arrays.arrays import host_array, is_mapped, is_traced, library_of, stated_dtype
from tnplan.jobs.arrays.compiled import CompiledContraction
from tnplan.jobs.arrays.gradient_calls import directional


def differentiable_call(contraction: CompiledContraction, arrays: Sequence[Any]) -> Any:
    """The result of a call that torch can differentiate by its tensors, backward and forward, and map."""
    if is_traced():
        problem = "is traced by torch (make_fx, torch.func.linearize), which sees nothing of a contraction"
        raise InputError("call", problem, "contract outside of what is traced")
    tensors = [_operand(contraction, array, number) for number, array in enumerate(arrays)]
    # A number has its derivatives computed with it; the backward pass scales them. Forward mode and
    # torch.func differentiate what the backward pass does, also where they do not say so.
    scaled: tuple[int, ...] = ()
    if not (contraction.schedule.output or is_mapped() or any(map(_has_tangent, tensors))):
        scaled = tuple(k for k, tensor in enumerate(tensors, 1) if _requires_grad(tensor))
    return _apply(contraction, scaled, None, *tensors)[0]


def _operand(contraction: CompiledContraction, array: Any, number: int) -> Any:
    """A tensor in the dtype of the contraction, as far as that loses nothing; other arrays as copies, whose
    values nobody changes until the backward pass."""
    if isinstance(array, torch.Tensor):
        dtype = contraction.schedule.dtype
        expected = getattr(torch, dtype)
        fits = array.dtype is expected or np.can_cast(stated_dtype(array), dtype)
        return array.to(expected) if fits else array
    return np.array(host_array(array, f"array {number}")) if library_of(array) == "numpy" else array


def _requires_grad(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.requires_grad


def _has_tangent(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and unpack_dual(tensor).tangent is not None


class _Derivatives(torch.autograd.Function):
    """The D_k of gradient_calls.py: the result, and the derivatives by some tensors. Backward and forward
    passes are made of the same function, so that torch differentiates them too.

    torch's gradients are conjugates of the complex derivatives: that of a real L with respect to a complex
    x is dL/dRe(x) + i dL/dIm(x).
    """

    @staticmethod
    def forward(contraction: CompiledContraction, wrt: Sequence[int], *tensors: Any) -> tuple[Any, ...]:
        """D_0, and D_k for the k of `wrt`; a cotangent that is None stands for one."""
        cotangent, *arrays = map(_detached, tensors)
        if not wrt:
            return (contraction(*arrays),)
        numbers = [contraction.changing[k - 1] for k in wrt]
        if cotangent is None:
            value, gradients = contraction.value_and_grad(*arrays, wrt=numbers)
        else:
            value, gradients = contraction.vjp(arrays, cotangent, numbers)
        return value, *gradients

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        """Keep the tensors: torch refuses those that are changed in place before they are used."""
        ctx.contraction, ctx.wrt, *tensors = inputs
        ctx.tracked = tuple(k for k, needed in enumerate(ctx.needs_input_grad[2:]) if needed)
        # Missing gradients stay None instead of zeros, so that nothing is contracted for them.
        ctx.set_materialize_grads(False)
        ctx.constants = [None if isinstance(tensor, torch.Tensor) else tensor for tensor in tensors]
        own = [tensor if isinstance(tensor, torch.Tensor) else None for tensor in tensors]
        ctx.is_scaled = tensors[0] is None and len(output) > 1
        scaled = output[1:] if ctx.is_scaled else ()
        if scaled:
            ctx.mark_non_differentiable(*scaled)
        # Invariant: tensors go through `save_for_backward` alone. As attributes of ctx they
        # would make cycles of references, and changes in place would go unseen.
        ctx.save_for_backward(*own, *scaled)
        ctx.save_for_forward(*own)

    @staticmethod
    def backward(ctx: Any, *weights: Any) -> tuple[Any, ...]:
        """The gradients of the tensors from those of the D_k."""
        tensors, scaled = _saved(ctx)
        if ctx.is_scaled and weights[0] is not None and not torch.is_grad_enabled():
            gradients = {k: weights[0] * scale.conj() for k, scale in zip(ctx.wrt, scaled, strict=True)}
        else:
            directions = {k: weight.conj() for k, weight in _by_number(ctx.wrt, weights).items()}
            changes = directional(_derivatives_of(ctx.contraction), tensors, directions, ctx.tracked)
            gradients = {k: change.conj() for k, change in changes.items()}
        every = (gradients[k].resolve_conj() if k in gradients else None for k in range(len(tensors)))
        return None, None, *every

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        """The changes of the D_k with the tensors."""
        tensors, _ = _saved(ctx)
        _refuse_nested_forward_mode()
        directions = {k: tangent for k, tangent in enumerate(tangents[2:]) if tangent is not None}
        which = (0, *ctx.wrt)
        changes = directional(_derivatives_of(ctx.contraction), tensors, directions, which)
        return tuple(changes.get(k) for k in which)

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, contraction: CompiledContraction, wrt: Sequence[int], *tensors: Any
    ) -> tuple[tuple[Any, ...], Any]:
        """Of a batch one value after the other."""
        rows = []
        for row_number in range(info.batch_size):
            row = [
                tensor if dim is None else tensor.select(dim, row_number)
                for tensor, dim in zip(tensors, in_dims[2:], strict=True)
            ]
            rows.append(_apply(contraction, wrt, *row))
        return tuple(torch.stack(column) for column in zip(*rows, strict=True)), (0,) * (1 + len(wrt))


def _detached(tensor: Any) -> Any:
    try:
        return tensor.detach() if isinstance(tensor, torch.Tensor) else tensor
    except RuntimeError as error:  # a batch of torch's own loops in autograd
        problem = f"is given what has no values ({' '.join(str(error).split())})"
        remedy = "leave out vectorize=True and is_grads_batched=True, or use torch.func"
        raise InputError("call", problem, remedy) from None


class _OutsideOfFunc(_Derivatives):
    """The same where no transform of torch.func is at work: torch takes less time for a call then."""

    setup_context = torch.autograd.Function.setup_context

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Any, ...]:
        """Compute, and keep the tensors."""
        output = _Derivatives.forward(*inputs)
        _Derivatives.setup_context(ctx, inputs, output)
        return output


def _apply(*inputs: Any) -> tuple[Any, ...]:
    """The D_k, as torch differentiates them."""
    function = _Derivatives if is_mapped() else _OutsideOfFunc
    results: tuple[Any, ...] = function.apply(*inputs)
    return results


def _refuse_nested_forward_mode() -> None:
    """torch gives zeros for forward derivatives of forward derivatives of a function of its users."""
    try:
        from torch._functorch.pyfunctorch import TransformType, retrieve_all_functorch_interpreters

        levels = [level.key() for level in retrieve_all_functorch_interpreters()]
        is_nested = levels.count(TransformType.Jvp) > 1
    except ImportError:
        is_nested = True
    if is_nested:
        remedy = "take one of the two backward: torch.func.jacfwd(torch.func.jacrev(f))"
        raise InputError("call", "is differentiated forward twice, where torch gives zeros", remedy)


def _saved(ctx: Any) -> tuple[list[Any], Sequence[Any]]:
    """The cotangent and the arrays of a call, and the derivatives that were computed with it."""
    count = len(ctx.constants)
    saved = ctx.saved_tensors
    pairs = zip(saved[:count], ctx.constants, strict=True)
    return [constant if tensor is None else tensor for tensor, constant in pairs], saved[count:]


def _by_number(wrt: Sequence[int], values: Sequence[Any]) -> dict[int, Any]:
    """What is given of D_0 and the D_k of `wrt`, by k."""
    return {k: value for k, value in zip((0, *wrt), values, strict=True) if value is not None}


def _derivatives_of(contraction: CompiledContraction) -> Any:
    """The D_k of a contraction, as torch differentiates them."""

    def derivatives(tensors: Sequence[Any], wrt: tuple[int, ...]) -> Mapping[int, Any]:
        is_plain = not (torch.is_grad_enabled() or is_mapped() or any(map(_has_tangent, tensors)))
        compute = _Derivatives.forward if is_plain else _apply
        return _by_number(wrt, compute(contraction, wrt, *tensors))

    return derivatives
