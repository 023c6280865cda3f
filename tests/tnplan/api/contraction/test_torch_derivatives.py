"""Derivatives of any order through torch, in every mode of its, beside those of torch's own einsum."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.contraction.derivatives import Case, Operand, random_case
from tests.support.effort import repeats

torch = pytest.importorskip("torch", reason="needs torch")
Function = Callable[..., Any]

TRACE = "ij,jk,ki->"


def laid_out(tensor: Any, layout: str) -> Any:
    """The tensor with other strides; of an expanded one all rows are the first."""
    if not tensor.ndim or layout == "whole":
        return tensor
    if layout == "transposed":
        back = tuple(range(tensor.ndim))[::-1]
        return tensor.permute(back).contiguous().permute(back)
    if layout == "strided":
        return torch.stack([tensor, 2 * tensor], -1)[..., 0]
    return tensor[:1].expand(tensor.shape)


def inputs_of(case: Case, variables: Sequence[Any], convert: Function) -> list[Any]:
    """The operands for values of the variables."""

    def tensor(operand: Operand) -> Any:
        given = operand.values if operand.variable is None else variables[operand.variable]
        return convert(laid_out(torch.as_tensor(given), operand.layout))

    return [tensor(operand) for operand in case.operands]


@contextmanager
def both(case: Case) -> Iterator[tuple[Function, Function]]:
    """The contraction of the variables by tnplan and by torch."""
    dtype = getattr(torch, case.dtype)
    with tnplan.compile(case.equation, *case.shapes, dtype=case.dtype, device="cpu", threads=1) as compiled:

        def ours(*variables: Any) -> Any:
            return compiled(*inputs_of(case, variables, lambda one: one))

        def theirs(*variables: Any) -> Any:
            return torch.einsum(case.equation, *inputs_of(case, variables, lambda one: one.to(dtype)))

        yield ours, theirs


def loss_of(case: Case, function: Function) -> Function:
    """A real number that is not linear in the result."""
    weight = torch.as_tensor(case.weight)

    def loss(*variables: Any) -> Any:
        result = function(*variables)
        return (result * weight).sum().real + (result * result.conj()).real.sum()

    return loss


def second_order(loss: Function, variables: Sequence[Any], create_graph: bool = True) -> Any:
    """A gradient, and that of its square, of what requires gradients."""
    tensors = [one.clone().requires_grad_() for one in variables]
    first = torch.autograd.grad(loss(*tensors), tensors, create_graph=True)
    penalty = sum((one * one.conj()).real.sum() for one in first)
    second = torch.autograd.grad(penalty, tensors, create_graph=create_graph, allow_unused=True)
    return [*first, *second]


def third_order(loss: Function, variables: Sequence[Any]) -> Any:
    tensors = [one.clone().requires_grad_() for one in variables]
    *_, last = second_order(loss, tensors)
    return [] if last is None or not last.requires_grad else torch.autograd.grad(
        (last * last.conj()).real.sum(), tensors, allow_unused=True
    )


def penalty_by_one(loss: Function, variables: Sequence[Any]) -> Any:
    """The gradient by one tensor, and then by all."""
    tensors = [one.clone().requires_grad_() for one in variables]
    (first,) = torch.autograd.grad(loss(*tensors), tensors[:1], create_graph=True)
    return torch.autograd.grad(loss(*tensors) + (first * first.conj()).real.sum(), tensors)


def forward_mode(function: Function, variables: Sequence[Any], directions: Sequence[Any]) -> Any:
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        found = function(*map(forward.make_dual, variables, directions))
        return [one for one in forward.unpack_dual(found) if one is not None]


def forward_over_reverse(loss: Function, variables: Sequence[Any], directions: Sequence[Any]) -> Any:
    """The change of a gradient, without a graph of the gradient."""
    forward = torch.autograd.forward_ad
    tensors = [one.clone().requires_grad_() for one in variables]
    with forward.dual_level():
        found = torch.autograd.grad(loss(*map(forward.make_dual, tensors, directions)), tensors)
        return [part for one in found for part in forward.unpack_dual(one)]


def reverse_over_forward(loss: Function, variables: Sequence[Any], directions: Sequence[Any]) -> Any:
    forward = torch.autograd.forward_ad
    tensors = [one.clone().requires_grad_() for one in variables]
    with forward.dual_level():
        change = forward.unpack_dual(loss(*map(forward.make_dual, tensors, directions))).tangent
    return torch.autograd.grad(change, tensors, allow_unused=True)


def checkpointed(loss: Function, variables: Sequence[Any]) -> Any:
    from torch.utils.checkpoint import checkpoint

    return second_order(partial(checkpoint, loss, use_reentrant=False), variables)


def batch_of(variables: Sequence[Any]) -> list[Any]:
    return [torch.stack([one, 2 * one, one * one]) for one in variables]


def nth(variables: Sequence[Any]) -> tuple[int, ...]:
    return tuple(range(len(variables)))


def batched_gradients(function: Function, variables: Sequence[Any]) -> Any:
    """Gradients for a batch of weights of the result."""
    tensors = [one.clone().requires_grad_() for one in variables]
    found = function(*tensors)
    weights = torch.stack([torch.ones_like(found), 2 * torch.ones_like(found)])
    return torch.autograd.grad(found, tensors, weights, is_grads_batched=True, allow_unused=True)


def hessian_over_batch(loss: Function, variables: Sequence[Any]) -> Any:
    func = torch.func
    return func.vmap(func.jacrev(func.grad(loss)))(*batch_of(variables))


autograd = torch.autograd.functional
MODES: dict[str, tuple[str, Function]] = {
    "gradient and its square": ("loss", lambda f, x, v: second_order(f, x)),
    "gradient of a penalty": ("loss", lambda f, x, v: second_order(f, x, False)),
    "third order": ("loss", lambda f, x, v: third_order(f, x)),
    "penalty by one tensor": ("loss", lambda f, x, v: penalty_by_one(f, x)),
    "checkpoint": ("loss", lambda f, x, v: checkpointed(f, x)),
    "forward_ad": ("result", forward_mode),
    "forward_ad of a loss": ("loss", forward_mode),
    "forward over reverse": ("loss", forward_over_reverse),
    "reverse over forward": ("loss", reverse_over_forward),
    "batched gradients": ("result", lambda f, x, v: batched_gradients(f, x)),
    "functional.hessian": ("loss", lambda f, x, v: autograd.hessian(f, tuple(x))),
    "functional.hessian, forward": ("loss", lambda f, x, v: autograd.hessian(
        f, tuple(x), vectorize=True, outer_jacobian_strategy="forward-mode")),
    "functional.hvp": ("loss", lambda f, x, v: autograd.hvp(f, tuple(x), tuple(v))),
    "functional.vhp": ("loss", lambda f, x, v: autograd.vhp(f, tuple(x), tuple(v))),
    "functional.jvp": ("result", lambda f, x, v: autograd.jvp(f, tuple(x), tuple(v))),
    "functional.jacobian": ("result", lambda f, x, v: autograd.jacobian(f, tuple(x))),
    "functional.jacobian, vectorized": ("result", lambda f, x, v: autograd.jacobian(
        f, tuple(x), vectorize=True)),
    "functional.jacobian, forward": ("result", lambda f, x, v: autograd.jacobian(
        f, tuple(x), vectorize=True, strategy="forward-mode")),
    "func.grad": ("loss", lambda f, x, v: torch.func.grad(f, nth(x))(*x)),
    "func.grad of func.grad": ("loss", lambda f, x, v: torch.func.grad(
        lambda *y: sum((one * one.conj()).real.sum() for one in torch.func.grad(f, nth(x))(*y)), nth(x))(*x)),
    "func.jvp": ("result", lambda f, x, v: torch.func.jvp(f, tuple(x), tuple(v))),
    "func.jvp of func.grad": ("loss", lambda f, x, v: torch.func.jvp(
        torch.func.grad(f, nth(x)), tuple(x), tuple(v))),
    "func.jvp of func.jvp": ("loss", lambda f, x, v: torch.func.jvp(
        lambda *y: torch.func.jvp(f, y, tuple(v))[1], tuple(x), tuple(v))),
    "func.grad of func.jvp": ("loss", lambda f, x, v: torch.func.grad(
        lambda *y: torch.func.jvp(f, y, tuple(v))[1])(*x)),
    "func.vjp": ("loss", lambda f, x, v: torch.func.vjp(f, *x)[1](torch.tensor(2.0, dtype=v[0].real.dtype))),
    "func.linearize": ("loss", lambda f, x, v: torch.func.linearize(f, *x)[1](*v)),
    "func.hessian": ("loss", lambda f, x, v: torch.func.hessian(f, nth(x))(*x)),
    "func.jacrev of jacrev": ("loss", lambda f, x, v: torch.func.jacrev(torch.func.jacrev(f))(*x)),
    "func.jacfwd of jacfwd": ("loss", lambda f, x, v: torch.func.jacfwd(torch.func.jacfwd(f))(*x)),
    "func.jacrev of jacfwd": ("loss", lambda f, x, v: torch.func.jacrev(torch.func.jacfwd(f))(*x)),
    "func.vmap": ("result", lambda f, x, v: torch.func.vmap(f)(*batch_of(x))),
    "func.vmap along the last axis": ("result", lambda f, x, v: torch.func.vmap(f, in_dims=-1)(
        *(one.movedim(0, -1) for one in batch_of(x)))),
    "func.vmap of func.grad": ("loss", lambda f, x, v: torch.func.vmap(torch.func.grad(f))(*batch_of(x))),
    "func.vmap of a Hessian": ("loss", lambda f, x, v: hessian_over_batch(f, x)),
    "func.grad of func.vmap": ("loss", lambda f, x, v: torch.func.grad(
        lambda *y: torch.func.vmap(f)(*y).sum())(*batch_of(x))),
}  # fmt: skip
"""What is differentiated, the contraction or a loss, and how: a function of it, the variables and directions."""


def leaves(found: Any) -> list[Any]:
    """All tensors of a result; None where torch has no gradient."""
    if found is None or isinstance(found, torch.Tensor):
        return [found]
    return [leaf for one in found for leaf in leaves(one)]


def compare(case: Case, mode: str) -> None:
    """The values of a mode equal those of torch's einsum."""
    kind, differentiate = MODES[mode]
    variables, directions = (list(map(torch.as_tensor, some)) for some in (case.variables, case.directions))
    with both(case) as functions, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of its own modes
        found, wanted = (
            leaves(differentiate(one if kind == "result" else loss_of(case, one), variables, directions))
            for one in functions
        )
    assert len(found) == len(wanted)
    largest = max((float(one.abs().max()) for one in wanted if one is not None and one.numel()), default=0.0)
    for ours, theirs in zip(found, wanted, strict=True):
        zero = torch.zeros(()) if theirs is None else torch.zeros_like(theirs)
        theirs = zero if theirs is None else theirs
        ours = zero if ours is None else ours
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert float((ours - theirs).abs().max()) <= case.rounding * max(1.0, largest), (case, mode)
