"""A contraction as a function that torch differentiates, to any order, maps, traces and compiles.

An `autograd.Function` has forward mode and maps. In graphs that torch writes down (`torch.compile`,
`torch.export`, `make_fx`) the contraction is the operation `tnplan::derivatives`. Imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd.forward_ad import _set_fwd_grad_enabled, unpack_dual

from tnplan.common.errors import InputError
from tnplan.jobs.arrays.arrays import host_array, is_mapped, is_traced, library_of
from tnplan.jobs.arrays.gradient_calls import Differentiable, directional, numbered

if not hasattr(torch.library, "register_vmap"):
    problem = f"is version {torch.__version__}, which does not follow contractions"
    raise InputError("torch", problem, "install torch 2.5 or newer", topic="installation")

PROMOTED = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)
"""Dtypes whose values another holds."""


def differentiable_call(contraction: Differentiable, arrays: Sequence[Any]) -> Any:
    """The result of a call that torch can differentiate by its tensors, map and trace."""
    tensors = [_operand(contraction, array, number) for number, array in enumerate(arrays)]
    # A number has its derivatives computed with it; the backward pass scales them. Forward mode and
    # torch.func differentiate what the backward pass does, also where they do not say so.
    scaled: tuple[int, ...] = ()
    is_plain = not (is_mapped() or is_traced() or any(map(_has_tangent, tensors)))
    if is_plain and contraction.result_shape([tensor.shape for tensor in tensors]) == ():
        scaled = tuple(k for k, tensor in enumerate(tensors, 1) if getattr(tensor, "requires_grad", False))
    return _apply(contraction, scaled, None, *tensors)[0]


def compiled_call(contraction: Differentiable, arrays: Sequence[Any]) -> Any:
    """The same in a graph of torch.compile, which reads this function instead of running it."""
    tensors = [_in_dtype(torch.as_tensor(array), contraction.dtype) for array in arrays]
    return _in_graph(contraction.number, *tensors)


@torch.compiler.allow_in_graph
def _in_graph(number: int, *tensors: Any) -> Any:
    """A node of such a graph, which torch runs with tensors that have no values, also under torch.func."""
    return _apply(numbered(number), (), None, *tensors)[0]


@torch.compiler.allow_in_graph
def contract_in_graph(network: Any, settings: tuple[Any, ...], *tensors: Any) -> Any:
    """A call of `contract` as such a node."""
    from tnplan.jobs.arrays.contracted import contract_anew

    return contract_anew(network, tensors, settings)


def _operand(contraction: Differentiable, array: Any, number: int) -> Any:
    """A tensor in the dtype of the contraction, as far as that loses nothing; other arrays as copies, whose
    values nobody changes until the backward pass."""
    if isinstance(array, torch.Tensor):
        return _in_dtype(array, contraction.dtype)
    return np.array(host_array(array, f"array {number}")) if library_of(array) == "numpy" else array


def _in_dtype(tensor: Any, dtype: str) -> Any:
    expected = getattr(torch, dtype)
    fits = tensor.dtype in PROMOTED and torch.promote_types(tensor.dtype, expected) == expected
    return tensor.to(expected) if fits else tensor


def _has_tangent(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and unpack_dual(tensor).tangent is not None


def _computed(contraction: Differentiable, wrt: Sequence[int], tensors: Sequence[Any]) -> tuple[Any, ...]:
    """D_0, and the D_k of `wrt`, of values alone."""
    cotangent, *arrays = tensors
    value, *gradients = contraction.derivatives(arrays, cotangent, wrt)
    # Of one array of which nothing is summed the result is a view, and torch sees no views here.
    return (value.clone() if len(arrays) == 1 else value), *gradients


class _Derivatives(torch.autograd.Function):
    """The D_k of gradient_calls.py: the result, and the derivatives by some tensors. Backward and forward
    passes are made of the same function, so that torch differentiates them too.

    torch's gradients are conjugates of the complex derivatives: that of a real L with respect to a complex
    x is dL/dRe(x) + i dL/dIm(x).
    """

    @staticmethod
    def forward(contraction: Differentiable, wrt: Sequence[int], *tensors: Any) -> tuple[Any, ...]:
        """D_0, and D_k for the k of `wrt`; a cotangent that is None stands for one."""
        if is_traced():
            values = [tensor.detach() if _has_tangent(tensor) else tensor for tensor in tensors]
            return _recorded(contraction, wrt, values)
        values = [tensor.detach() if isinstance(tensor, torch.Tensor) else tensor for tensor in tensors]
        return _computed(contraction, wrt, values)

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
            gradients = {k: gradient.resolve_conj() for k, gradient in gradients.items()}
        else:
            gradients = _gradients(ctx.contraction, ctx.wrt, tensors, weights, ctx.tracked)
        return None, None, *(gradients.get(k) for k in range(len(tensors)))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        """The changes of the D_k with the tensors."""
        (saved, _), contraction = _saved(ctx), ctx.contraction
        tensors = [unpack_dual(x).primal if isinstance(x, torch.Tensor) else x for x in saved]
        directions = {k: tangent for k, tangent in enumerate(tangents[2:]) if tangent is not None}
        which = (0, *ctx.wrt)
        # torch has turned dual numbers off here, and would give zeros for those of levels around this one.
        with _set_fwd_grad_enabled(_is_nested()):
            changes = directional(_derivatives_of(contraction), tensors, directions, which)
        if is_traced():  # where torch takes no None for zeros
            like = next(iter(directions.values()))
            own = [tensor.shape for tensor in tensors[1:]]
            shapes = [contraction.result_shape(own), *own]
            changes = {k: like.new_zeros(shapes[k]) for k in which} | changes
        return tuple(changes.get(k) for k in which)

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, contraction: Differentiable, wrt: Sequence[int], *tensors: Any
    ) -> tuple[tuple[Any, ...], Any]:
        """Of each value of a batch, first in the results."""
        axes = {k: axis for k, axis in enumerate(in_dims[2:]) if axis is not None}
        results = _of_rows(contraction, wrt, tensors, axes, info.batch_size)
        return results, (0,) * len(results)


class _OutsideOfFunc(_Derivatives):
    """The same where no transform of torch.func is at work: torch takes less time for a call then."""

    setup_context = torch.autograd.Function.setup_context

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Any, ...]:
        """Compute, and keep the tensors."""
        output = _Derivatives.forward(*inputs)
        _Derivatives.setup_context(ctx, inputs, output)
        return output


def _apply(contraction: Differentiable, wrt: Sequence[int], *tensors: Any) -> tuple[Any, ...]:
    """The D_k, as torch differentiates them."""
    results: tuple[Any, ...]
    if is_mapped():
        results = _Derivatives.apply(contraction, wrt, *tensors)
    elif any(map(_is_row, tensors)):
        results = _in_loop(contraction, wrt, tensors)
    elif is_traced() and not any(map(_has_tangent, tensors)):
        results = _recorded(contraction, wrt, tensors)
    else:
        results = _OutsideOfFunc.apply(contraction, wrt, *tensors)
    return results


def _is_nested() -> bool:
    """Whether torch.func differentiates forward inside of a forward derivative."""
    from torch._functorch.pyfunctorch import TransformType, retrieve_all_functorch_interpreters

    levels = [level.key() for level in retrieve_all_functorch_interpreters()]
    return levels.count(TransformType.Jvp) > 1


def _of_rows(
    contraction: Differentiable, wrt: Sequence[int], tensors: Sequence[Any], axes: Mapping[int, int],
    length: int,
) -> tuple[Any, ...]:  # fmt: skip
    """The D_k for each row of some tensors along their axis: at once, or one after the other."""
    # A tensor has a gradient for each row where it is one of the batch.
    batched = sorted({k for k in axes if k > 0} | set(wrt)) or [1]
    mapped = contraction.mapped(batched, length)
    if mapped is None:
        if not length:
            raise InputError("call", "maps a batch without values", "leave it out")
        rows = [
            _apply(
                contraction, wrt,
                *(tensor.select(axes[k], row) if k in axes else tensor for k, tensor in enumerate(tensors)),
            )
            for row in range(length)
        ]  # fmt: skip
        return tuple(torch.stack(column) for column in zip(*rows, strict=True))
    moved = list(tensors)
    for k, tensor in enumerate(tensors):
        if k in axes:
            moved[k] = tensor.movedim(axes[k], 0)
        elif k in batched or (k == 0 and tensor is not None):
            moved[k] = torch.as_tensor(tensor).expand(length, *tensor.shape)
    return _apply(mapped, wrt, *moved)


def _is_row(tensor: Any) -> bool:
    """Whether a tensor stands for each of a batch in the loops of torch.autograd: `vectorize=True` and
    `is_grads_batched=True`."""
    return isinstance(tensor, torch.Tensor) and torch._C._functorch.is_legacy_batchedtensor(tensor)


def _in_loop(contraction: Differentiable, wrt: Sequence[int], tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The D_k in such a loop, which has no rule for functions of its users."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    if level < 1:
        problem = "is given a batch of a loop that another thread of torch runs"
        raise InputError("call", problem, "leave out vectorize=True and is_grads_batched=True")
    whole = [torch._remove_batch_dim(x, level, 1, 0) if _is_row(x) else x for x in tensors]
    axes = {k: 0 for k, tensor in enumerate(tensors) if _is_row(tensor)}
    results = _of_rows(contraction, wrt, whole, axes, whole[next(iter(axes))].shape[0])
    # Such a loop takes strides of tensors where the axis of the batch comes first in memory.
    return tuple(torch._add_batch_dim(tensor.contiguous(), 0, level) for tensor in results)


def _saved(ctx: Any) -> tuple[list[Any], Sequence[Any]]:
    """The cotangent and the arrays of a call, and the derivatives that were computed with it."""
    count = len(ctx.constants)
    saved = ctx.saved_tensors
    pairs = zip(saved[:count], ctx.constants, strict=True)
    return [constant if tensor is None else tensor for tensor, constant in pairs], saved[count:]


def _by_number(wrt: Sequence[int], values: Sequence[Any]) -> dict[int, Any]:
    """What is given of D_0 and the D_k of `wrt`, by k."""
    return {k: value for k, value in zip((0, *wrt), values, strict=True) if value is not None}


def _derivatives_of(contraction: Differentiable) -> Any:
    """The D_k of a contraction, as torch differentiates them."""

    def derivatives(tensors: Sequence[Any], wrt: tuple[int, ...]) -> Mapping[int, Any]:
        is_watched = torch.is_grad_enabled() or is_mapped()
        is_plain = not (is_watched or any(_has_tangent(tensor) or _is_row(tensor) for tensor in tensors))
        compute = _Derivatives.forward if is_plain else _apply
        return _by_number(wrt, compute(contraction, wrt, *tensors))

    return derivatives


def _gradients(
    contraction: Differentiable, wrt: Sequence[int], tensors: Sequence[Any], weights: Sequence[Any],
    tracked: Sequence[int],
) -> dict[int, Any]:  # fmt: skip
    """The gradients of the tracked tensors from those of D_0 and the D_k of `wrt`, by number."""
    directions = {k: weight.conj() for k, weight in _by_number(wrt, weights).items()}
    changes = directional(_derivatives_of(contraction), tensors, directions, tracked)
    return {k: change.conj().resolve_conj() for k, change in changes.items()}


@torch.library.custom_op(
    "tnplan::derivatives", mutates_args=(),
    schema="(Tensor? cotangent, Tensor[] arrays, int number, int[] wrt) -> Tensor[]",
)  # fmt: skip
def _operation(cotangent: Any, arrays: Sequence[Any], number: int, wrt: Sequence[int]) -> list[Any]:
    """The D_k of the contraction of that number."""
    return [tensor.contiguous() for tensor in _computed(numbered(number), wrt, (cotangent, *arrays))]


def _recorded(contraction: Differentiable, wrt: Sequence[int], tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The D_k, as a graph has them."""
    cotangent, *arrays = tensors
    return tuple(_operation(cotangent, list(map(torch.as_tensor, arrays)), contraction.number, list(wrt)))


@_operation.register_fake
def _(cotangent: Any, arrays: Sequence[Any], number: int, wrt: Sequence[int]) -> list[Any]:
    """Tensors of the shapes of the D_k."""
    contraction, shapes = numbered(number), [array.shape for array in arrays]
    dtype = getattr(torch, contraction.dtype)
    own = [contraction.result_shape(shapes), *(shapes[k - 1] for k in wrt)]
    return [arrays[0].new_empty(shape, dtype=dtype) for shape in own]


@_operation.register_vmap
def _(
    info: Any, in_dims: Any, cotangent: Any, arrays: Sequence[Any], number: int, wrt: Sequence[int]
) -> tuple[list[Any], list[int]]:
    """Of each value of a batch, first in the results."""
    axes = {k: axis for k, axis in enumerate((in_dims[0], *in_dims[1])) if axis is not None}
    results = _of_rows(numbered(number), wrt, (cotangent, *arrays), axes, info.batch_size)
    return list(results), [0] * len(results)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    cotangent, arrays, ctx.number, ctx.wrt = inputs
    ctx.save_for_backward(cotangent, *arrays)


def _go_back(ctx: Any, weights: Sequence[Any]) -> tuple[Any, ...]:
    """The gradients of the cotangent and the arrays of the operation."""
    tracked = [k for k, needed in enumerate((ctx.needs_input_grad[0], *ctx.needs_input_grad[1])) if needed]
    tensors = ctx.saved_tensors
    gradients = _gradients(numbered(ctx.number), ctx.wrt, tensors, weights, tracked)
    by_number = [gradients.get(k) for k in range(len(tensors))]
    return by_number[0], by_number[1:], None, [None] * len(ctx.wrt)


_operation.register_autograd(_go_back, setup_context=_keep)
