"""Hostile calls of einsum with first and second derivatives, by torch and JAX: right, or refused in a line.

The reference is the library's own einsum in double precision. JAX runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.contraction.derivatives import random_values
from tests.support.contraction.hostile import ERRORS, SPOILED, HostileCall, hostile_call
from tests.support.effort import repeats
from tests.support.root import ROOT

Function = Callable[..., Any]
Tensors = Sequence[Any]
LIBRARIES = ("torch", "jax")
CALLS = ("contract", "compile")


class Torch:
    """What the comparison takes from torch."""

    def __init__(self) -> None:
        import torch

        self.library = torch

    def variable(self, values: Any) -> Any:
        return self.library.tensor(values)

    def constant(self, values: Any) -> Any:
        return self.library.tensor(values)

    def held(self, tensor: Any, form: str) -> Any:
        """The same values, held in another way."""
        torch = self.library
        if form == "conjugate":
            return torch.conj(torch.conj(tensor).resolve_conj())
        is_mapped = torch._C._functorch.is_batchedtensor(tensor)  # torch itself maps no negative views
        if form == "imaginary" and tensor.dtype in (torch.float32, torch.float64) and not is_mapped:
            return torch.complex(tensor, -tensor).conj().imag  # a negative view
        if not tensor.ndim or form == "whole":
            return tensor
        if form == "transposed":
            return tensor.mT.contiguous().mT if tensor.ndim > 1 else tensor
        if form == "strided":
            return torch.stack([tensor, tensor], -1)[..., 0]
        return tensor[:1].expand(tensor.shape) if form == "expanded" and tensor.shape[0] else tensor

    def double(self, tensor: Any, is_complex: bool) -> Any:
        return tensor.to(self.library.complex128 if is_complex else self.library.float64)

    def derivatives(self, loss: Function, result: Function, variables: Tensors, moves: Tensors) -> Any:
        """A gradient, that of its square, and the change of the result."""
        torch = self.library
        tensors = [one.clone().requires_grad_() for one in variables]
        first = torch.autograd.grad(loss(*tensors), tensors, create_graph=True, allow_unused=True)
        first = [torch.zeros_like(x) if one is None else one for x, one in zip(tensors, first, strict=True)]
        square = sum((abs(one) ** 2).sum() for one in map(self._wide, first))
        second: Any = [None] * len(tensors)
        if square.requires_grad:
            second = torch.autograd.grad(square, tensors, allow_unused=True)
        second = [torch.zeros_like(x) if one is None else one for x, one in zip(tensors, second, strict=True)]
        change = torch.func.jvp(result, tuple(variables), tuple(moves))[1]
        mapped = torch.func.vmap(result)(*(torch.stack([one, 2 * one]) for one in variables))
        found = [*first, *second], [change, mapped]
        return [[one.detach().resolve_conj().resolve_neg() for one in part] for part in found]

    def _wide(self, tensor: Any) -> Any:
        return tensor.float() if tensor.dtype is self.library.float16 else tensor


class Jax:
    """What the comparison takes from JAX, which has double precision here."""

    def __init__(self) -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        self.library, self.jax = jax.numpy, jax

    def variable(self, values: Any) -> Any:
        return self.library.asarray(values)

    def constant(self, values: Any) -> Any:
        return self.library.asarray(values)

    def held(self, tensor: Any, form: str) -> Any:
        return tensor[:1] + 0 * tensor if form == "expanded" and tensor.ndim and tensor.shape[0] else tensor

    def double(self, tensor: Any, is_complex: bool) -> Any:
        return tensor.astype("complex128" if is_complex else "float64")

    def derivatives(self, loss: Function, result: Function, variables: Tensors, moves: Tensors) -> Any:
        jax, jnp = self.jax, self.library
        numbers = tuple(range(len(variables)))

        def square(*some: Any) -> Any:
            found = jax.grad(loss, numbers)(*some)
            wide = [one.astype("float32") if one.dtype == "float16" else one for one in found]
            return sum((abs(one) ** 2).sum() for one in wide)

        first, second = jax.grad(loss, numbers)(*variables), jax.grad(square, numbers)(*variables)
        change = jax.jvp(jax.jit(result), tuple(variables), tuple(moves))[1]
        mapped = jax.vmap(result)(*(jnp.stack([one, 2 * one]) for one in variables))
        return [*first, *second], [change, mapped]


def operands_of(case: HostileCall, library: Any, variables: Sequence[Any], plain: bool) -> list[Any]:
    """The operands for values of the variables."""
    operands = []
    for number, (values, form) in enumerate(zip(case.values, case.forms, strict=True)):
        own = case.same.get(number, number)
        if own in case.variables:
            operands.append(library.held(variables[case.variables.index(own)], form))
        elif plain and case.is_plain:
            operands.append(values.tolist() if values.dtype == "float64" and values.size else values)
        else:
            operands.append(values if values.dtype.kind in "US" else library.constant(values))
    return operands


def functions(case: HostileCall, library: Any, call: str) -> tuple[Function, Function]:
    """The contraction of the variables by a call of tnplan, and by the library in double precision."""

    def ours(*variables: Any) -> Any:
        operands = operands_of(case, library, variables, call == "contract")
        if call == "contract":
            return tnplan.contract(*case.arguments(operands))
        shapes = [operand.shape for operand in operands]
        dtype = "float32" if case.dtype == "float16" else case.dtype
        # The graph of the backward pass keeps the contraction: it is closed by nobody.
        return tnplan.compile(*case.arguments(shapes), dtype=dtype, device="cpu", threads=1)(*operands)

    def theirs(*variables: Any) -> Any:
        operands = operands_of(case, library, variables, False)
        is_complex = case.dtype.startswith("c")
        return library.library.einsum(case.equation, *(library.double(one, is_complex) for one in operands))

    return ours, theirs


def compare(seed: int, library: Any, call: str) -> None:
    """Derivatives of a random call equal the reference."""
    case = hostile_call(seed)
    generator = np.random.default_rng(seed)
    variables = [library.variable(case.values[number]) for number in case.variables]
    moves = [
        library.variable(random_values(generator, tuple(one.shape), case.values[number].dtype.name))
        for one, number in zip(variables, case.variables, strict=True)
    ]
    is_complex = case.dtype.startswith("c")

    def loss_of(function: Function) -> Function:
        def loss(*some: Any) -> Any:
            found = library.double(function(*some), is_complex)
            return (found.real if is_complex else found).sum() + (abs(found) ** 2).sum() / 2

        return loss

    is_empty = any(0 in one.shape for one in case.values)
    if call == "compile" and is_empty:
        with pytest.raises(tnplan.InputError, match="extent 0"):
            functions(case, library, call)[0](*variables)
        return
    ours, theirs = functions(case, library, call)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, wanted = (library.derivatives(loss_of(f), f, variables, moves) for f in (ours, theirs))
    for here, there in zip(found[0], [*variables, *variables], strict=True):
        assert (here.dtype, here.shape) == (there.dtype, there.shape), (seed, call)
    values = [
        [np.asarray(library.double(one, is_complex)) for part in some for one in part]
        for some in (found, wanted)
    ]
    if not all(np.isfinite(one).all() for one in values[1]):  # gradients beyond float16
        assert case.rounding == ERRORS["float16"]
        assert not all(np.isfinite(one).all() for one in values[0])
        return
    largest = max(float(np.abs(one).max(initial=0)) for one in values[1])
    for number, (here, there) in enumerate(zip(*values, strict=True)):
        assert here.shape == there.shape, (seed, call, number)
        error = float(np.abs(here - there).max(initial=0))
        assert error <= case.rounding * max(1.0, largest), (seed, call, number, error, largest, case)


def refuse(seed: int, library: Any, call: str) -> None:
    """A spoiled call is refused in one line, whatever follows it."""
    spoil = list(SPOILED)[seed % len(SPOILED)]
    case = SPOILED[spoil](hostile_call(seed))
    variables = [library.variable(case.values[number]) for number in case.variables]

    def loss(*some: Any) -> Any:
        return abs(functions(case, library, call)[0](*some)).sum()

    with pytest.raises(tnplan.InputError) as caught:
        library.derivatives(loss, loss, variables, variables)
    assert "\n" not in str(caught.value), (seed, spoil)


def compare_all(first: int, count: int, library: Any) -> None:
    """Five calls that are compared for each that is refused, which is every sixth from the sixth."""
    for seed in range(first, first + count):
        check = refuse if seed % 6 == 5 else compare
        check(seed, library, CALLS[seed // 6 % 2])


def test_hostile_calls_through_torch_are_right_or_refused() -> None:
    pytest.importorskip("torch", reason="needs torch")
    compare_all(0, 100, Torch())


@pytest.mark.slow
def test_many_hostile_calls_through_torch_are_right_or_refused() -> None:
    pytest.importorskip("torch", reason="needs torch")
    compare_all(1000, repeats(300, 1000), Torch())


@pytest.mark.skipif(find_spec("jax") is None, reason="needs jax")
@pytest.mark.parametrize(
    ("first", "count"), [(5, 1), pytest.param(1000, repeats(60, 1000), marks=pytest.mark.slow)]
)
def test_hostile_calls_through_jax_are_right_or_refused(first: int, count: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.jobs.arrays.test_hostile_derivatives", str(first), str(count)],
        capture_output=True, text=True, timeout=5000, check=False, cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "right or refused"


if __name__ == "__main__":
    compare_all(int(sys.argv[1]), int(sys.argv[2]), Jax())
    print("right or refused")
