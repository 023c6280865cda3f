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
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
Function = Callable[..., Any]


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
def both(case: Case, call: str) -> Iterator[tuple[Function, Function]]:
    """The contraction of the variables by a call of tnplan and by torch."""
    dtype = getattr(torch, case.promoted if call == "contract" else case.dtype)
    options: dict[str, Any] = {"memory": "1GiB"} if call == "compile, row by row" else {}
    with tnplan.compile(
        case.equation, *case.shapes, dtype=case.dtype, device="cpu", threads=1, **options
    ) as compiled:

        def ours(*variables: Any) -> Any:
            operands = inputs_of(case, variables, lambda one: one)
            return tnplan.contract(case.equation, *operands) if call == "contract" else compiled(*operands)

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
    return (
        []
        if last is None or not last.requires_grad
        else torch.autograd.grad((last * last.conj()).real.sum(), tensors, allow_unused=True)
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
"""What is differentiated, the contraction or a loss, and how: a function of it, the variables, directions."""


CALLS = ("compile", "compile, row by row", "contract")
"""Of a stated memory no batch takes more at once."""
OF_REAL_VARIABLES = (
    "functional.hessian", "functional.hessian, forward", "functional.jacobian", "func.hessian",
    "func.jacrev of jacrev", "func.jacfwd of jacfwd", "func.jacrev of jacfwd", "func.vmap of a Hessian",
)  # fmt: skip
"""Modes that torch refuses for complex tensors."""


def leaves(found: Any) -> list[Any]:
    """All tensors of a result; None where torch has no gradient."""
    if found is None or isinstance(found, torch.Tensor):
        return [None if found is None else found.detach()]
    return [leaf for one in found for leaf in leaves(one)]


def compare(case: Case, mode: str, call: str) -> None:
    """The values of a mode equal those of torch's einsum."""
    kind, differentiate = MODES[mode]
    variables, directions = (list(map(torch.as_tensor, some)) for some in (case.variables, case.directions))

    def values(function: Function) -> list[Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of its own modes
            given = function if kind == "result" else loss_of(case, function)
            return leaves(differentiate(given, variables, directions))

    with both(case, call) as (ours, theirs):
        found, wanted = values(ours), values(theirs)
    largest = max((float(one.abs().max()) for one in wanted if one is not None), default=0.0)
    for here, there in zip(found, wanted, strict=True):
        if here is None or there is None:
            rest = there if here is None else here
            assert rest is None or float(rest.abs().max()) <= case.rounding * largest, (case, mode, call)
            continue
        assert (here.dtype, here.shape) == (there.dtype, there.shape), (case, mode, call)
        assert float((here - there).abs().max()) <= case.rounding * max(1.0, largest), (case, mode, call)


def compare_all(seeds: Sequence[int]) -> None:
    """All modes that torch has for a random network."""
    for seed in seeds:
        case = random_case(seed)
        is_real = not case.dtype.startswith("c")
        for mode in MODES:
            if is_real or mode not in OF_REAL_VARIABLES:
                for call in CALLS:
                    compare(case, mode, call)


def test_random_networks_have_the_derivatives_of_torch_in_all_modes() -> None:
    compare_all(range(2))


def test_a_batch_that_is_not_first_in_memory_has_forward_derivatives() -> None:
    compare(random_case(2014), "functional.hessian, forward", "contract")


@pytest.mark.slow
def test_many_random_networks_have_the_derivatives_of_torch_in_all_modes() -> None:
    compare_all(range(1000, 1000 + repeats(20, 200)))


@pytest.mark.parametrize("equation", ["ij,jk,ki->", "ij,jk->ki", "ii,ij->j"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_second_derivatives_are_those_of_differences(equation: str, dtype: str) -> None:
    torch.manual_seed(0)
    shapes = [(2, 2)] * (equation.count(",") + 1)
    tensors = [torch.randn(*shape, dtype=getattr(torch, dtype), requires_grad=True) for shape in shapes]
    with tnplan.compile(equation, *shapes, dtype=dtype, device="cpu", threads=1) as contraction:
        assert torch.autograd.gradcheck(contraction, tensors, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(
            contraction, tensors, check_fwd_over_rev=True, check_rev_over_rev=True
        )


def test_a_real_tensor_in_a_complex_contraction_has_a_real_gradient() -> None:
    real, other = torch.rand(3, dtype=torch.float64), torch.rand(3, dtype=torch.complex128)
    with tnplan.compile("a,a->", (3,), (3,), dtype="complex128", device="cpu") as product:
        found = torch.autograd.grad(product(real.requires_grad_(), other).abs(), real)[0]
        wanted = torch.autograd.grad((real * other).sum().abs(), real)[0]
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("equation", ["a,a->", "a,a->a"])
def test_arrays_that_are_changed_before_the_backward_pass_are_noticed(equation: str) -> None:
    x, fixed = torch.rand(3, dtype=torch.float64, requires_grad=True), np.arange(3.0)
    with tnplan.compile(equation, (3,), (3,), dtype="float64", device="cpu") as product:
        found = product(x, fixed).sum()
        fixed[:] = 7
        assert torch.equal(torch.autograd.grad(found, x, retain_graph=True)[0], torch.arange(3.0).double())
        with torch.no_grad():
            x += 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(found, x)


def test_what_torch_cannot_follow_is_refused() -> None:
    x = torch.rand(3, dtype=torch.float64)
    forward = torch.autograd.forward_ad
    with tnplan.compile("a,a->", (3,), (3,), dtype="float64", device="cpu") as product:
        with forward.dual_level(), pytest.raises(tnplan.InputError, match="differentiated, mapped or traced"):
            product.value_and_grad(forward.make_dual(x, x), x)
        with pytest.raises(tnplan.InputError, match="cotangent: is differentiated"):
            product.vjp([x, x], torch.ones((), dtype=torch.float64, requires_grad=True))
        with pytest.raises(tnplan.InputError, match="3 arrays"):
            product(x.requires_grad_(), x, x)
        assert not product(x.detach(), x.detach()).requires_grad
    # Of eight tensors: torch's own steps, of fewer, need the contraction no more.
    with tnplan.compile(",".join("a" * 8) + "->", *[(3,)] * 8, dtype="float64", device="cpu") as product:
        found = product(*[x] * 8)
    with pytest.raises(tnplan.InputError, match="closed"):
        torch.autograd.grad(found, x, create_graph=True)
    stripped = tnplan.compile("a->", (3,), dtype="float64", device="cpu", strip_exponent=True)
    with stripped, pytest.raises(tnplan.InputError, match="exponent"):
        stripped(x)
    with pytest.raises(tnplan.InputError, match="strip_exponent: is asked for, but torch traces"):
        tnplan.contract("a->", x, strip_exponent=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one.to("meta"), "is a meta tensor of torch"),
        (lambda one: one.to_sparse(), "is a sparse tensor of torch"),
        (lambda one: one.to(torch.float8_e5m2), "float8|Float8"),
        (lambda one: "text", "shape"),
    ],
)
def test_tensors_without_readable_values_are_refused(change: Function, message: str) -> None:
    x = torch.rand(3, 3, dtype=torch.float64, requires_grad=True)
    with tnplan.compile("ij,jk->ik", (3, 3), (3, 3), dtype="float64", device="cpu") as compiled:
        for call in (compiled, lambda *some: tnplan.contract("ij,jk->ik", *some)):
            with pytest.raises(tnplan.InputError, match=message):
                call(x, change(x.detach()))


@pytest.mark.parametrize("in_a_graph", [False, True])
@pytest.mark.parametrize("change", [lambda one: one[:2], lambda one: one.double(), lambda one: one[0]])
def test_a_map_refuses_what_a_call_refuses(change: Function, in_a_graph: bool) -> None:
    rows, other = torch.rand(3, 4, 4), change(torch.rand(4, 4))
    with tnplan.compile("ij,jk->ik", (4, 4), (4, 4), dtype="float32", device="cpu") as compiled:
        call = torch.func.vmap(lambda one: compiled(one, other))
        if in_a_graph:
            call = in_graph(call, "aot_eager")
        with pytest.raises(tnplan.InputError, match="array 1: has"):
            call(rows)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bool])
@pytest.mark.parametrize("length", [0, 1, 3])
def test_a_map_of_any_length_and_dtype(dtype: Any, length: int) -> None:
    rows = (torch.rand(length, 3, 3) * 3).to(dtype)
    found = torch.func.vmap(lambda one: tnplan.contract("ij,jk->ik", one, one))(rows)
    assert (found.dtype, found.shape) == (dtype, rows.shape)
    if dtype is torch.bool:
        rows = rows.long()
    torch.testing.assert_close(found, torch.func.vmap(lambda one: one @ one)(rows).to(dtype))


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_batch_has_derivatives(length: int) -> None:
    torch.manual_seed(0)
    rows, shared = torch.rand(length, 2, 3).double(), torch.rand(3, 2).double()
    with tnplan.compile(
        "ij,jk->ik", (2, 3), (3, 2), dtype="float64", device="cpu", batch=2, batched=[0]
    ) as batched:
        inputs = rows.requires_grad_(), shared.requires_grad_()
        assert torch.autograd.gradcheck(batched, inputs, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(batched, inputs)


def test_a_result_of_one_tensor_is_a_view_as_that_of_einsum_is() -> None:
    x = torch.rand(2, 3, dtype=torch.float64, requires_grad=True)
    with tnplan.compile("ab->ba", (2, 3), dtype="float64", device="cpu") as transposed:
        einsums = [partial(einsum, "ab->ba") for einsum in (tnplan.contract, torch.einsum)]
        for call in (transposed, *einsums):
            with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
                call(x).mul_(2)
            y = x.detach().clone()
            call(y).mul_(2)
            torch.testing.assert_close(y, 2 * x.detach())


def in_graph(function: Function, backend: str) -> Function:
    """A function that torch compiles as one graph."""
    torch.compiler.reset()
    return torch.compile(function, backend=backend, fullgraph=True)


def traced(function: Function, *inputs: Any) -> Function:
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function)(*inputs)


def gradients(function: Function, *inputs: Any) -> Any:
    """Those of what requires gradients, by a function of plain tensors."""
    tensors = [one.clone().requires_grad_() for one in inputs]
    return torch.autograd.grad(function(*tensors), tensors)


GRAPHS: dict[str, Function] = {
    "gradient": lambda f, a, b, by: gradients(in_graph(f, by), a, b),
    "func.grad": lambda f, a, b, by: in_graph(torch.func.grad(f), by)(a, b),
    "func.hessian": lambda f, a, b, by: in_graph(torch.func.hessian(f), by)(a, b),
    "func.vmap": lambda f, a, b, by: in_graph(torch.func.vmap(f, (0, None)), by)(torch.stack([a, 3 * a]), b),
    "make_fx": lambda f, a, b, by: gradients(traced(f, a, b), 2 * a, b),
    "make_fx of a Hessian": lambda f, a, b, by: traced(torch.func.hessian(f), a, b)(2 * a, b),
}
WITHOUT: dict[str, Function] = {
    "gradient": gradients,
    "func.grad": lambda f, a, b: torch.func.grad(f)(a, b),
    "func.hessian": lambda f, a, b: torch.func.hessian(f)(a, b),
    "func.vmap": lambda f, a, b: torch.func.vmap(f, (0, None))(torch.stack([a, 3 * a]), b),
    "make_fx": lambda f, a, b: gradients(f, 2 * a, b),
    "make_fx of a Hessian": lambda f, a, b: torch.func.hessian(f)(2 * a, b),
}
"""What is computed in a graph that torch writes down, and the same without one."""


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex")
@pytest.mark.filterwarnings("ignore:.*torch._prims_common.check:FutureWarning")
def test_a_contraction_is_a_step_of_a_graph(graph: str, backend: str) -> None:
    torch.manual_seed(0)
    a, b, fixed = (torch.rand(3, 3, dtype=torch.float64) for _ in range(3))
    equation, fixed = "ij,jk,kl->li", fixed + 1j * fixed.sin()

    def loss_of(contraction: Function) -> Function:
        def loss(x: Any, y: Any) -> Any:
            found = contraction(2 * x, y, fixed)
            return (found.sin().abs() ** 2).sum() + contraction(x, y, fixed).real.sum()

        return loss

    def einsum(*tensors: Any) -> Any:
        return torch.einsum(equation, *(one.to(torch.complex128) for one in tensors))

    wanted = WITHOUT[graph](loss_of(einsum), a, b)
    with tnplan.compile(equation, *[(3, 3)] * 3, dtype="complex128", device="cpu") as compiled:
        for call in (compiled, lambda *tensors: tnplan.contract(equation, *tensors)):
            torch.testing.assert_close(GRAPHS[graph](loss_of(call), a, b, backend), wanted)


def test_a_graph_has_the_contraction_of_a_call_or_a_compiled_one() -> None:
    x = torch.rand(3, dtype=torch.float64)
    of_call = traced(lambda one: tnplan.contract("a,a->", one, one), x)
    torch.testing.assert_close(of_call(2 * x), 4 * x @ x)
    compiled = tnplan.compile("a,a->", (3,), (3,), dtype="float64", device="cpu")
    graph = traced(lambda one: compiled(one, one), x)
    torch.testing.assert_close(graph(2 * x), 4 * x @ x)
    compiled.close()
    with pytest.raises(tnplan.InputError, match="is closed"):
        graph(x)


def test_parameters_of_torch_serve_as_shapes() -> None:
    x = torch.nn.Parameter(torch.rand(3, dtype=torch.float64))
    with tnplan.compile("a,a->", x, x, device="cpu") as product:
        torch.testing.assert_close(torch.autograd.grad(product(x, x), x)[0], 2 * x.detach())
    with pytest.raises(tnplan.InputError, match="constant 1: is differentiated"):
        tnplan.compile("a,a->", x, x, device="cpu", constants={1: x})
