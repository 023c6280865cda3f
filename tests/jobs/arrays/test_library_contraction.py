"""Contractions by torch or CuPy alone: values in every layout, derivatives, and which calls are made so."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.support.contraction.executor import lattice
from tests.support.contraction.plain_calls import check, network_and_path, plain_call
from tests.support.effort import repeats
from tests.support.kernels.gpus import needs_gpus
from tnplan.calls.contract import compile as compile_contraction
from tnplan.calls.contract import contract
from tnplan.jobs.arrays import contracted
from tnplan.jobs.arrays.library_contraction import (
    LibraryCalls,
    contraction_by,
    library_calls,
    library_key,
)


def numpy_calls() -> LibraryCalls:
    """NumPy in the place of CuPy, which has the same calls; but CuPy's numbers are arrays without axes."""
    calls = library_calls("numpy")

    def as_array(call: Any) -> Any:
        return lambda *given: np.asarray(call(*given))

    numbers = {name: as_array(getattr(calls, name)) for name in ("total", "multiply", "inner")}
    return calls._replace(**numbers)


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_plain_calls_equal_numpy_in_higher_precision(library: str) -> None:
    torch = pytest.importorskip("torch") if library == "torch" else None
    calls = numpy_calls() if torch is None else library_calls("torch")
    for seed in range(repeats(120, 400)):
        rng = random.Random(f"library {seed}")
        equation, arrays, dtype = plain_call(rng)
        network, path = network_and_path(equation, arrays, rng)
        copies = [array.copy() for array in arrays]
        given: list[Any] = arrays
        if torch is not None:
            given = [torch.from_numpy(np.array(array)) for array in arrays]
            given = [_with_strides(tensor, rng) for tensor in given]
        found = contraction_by(calls, network, path)(*given)
        result = found if torch is None else found.resolve_conj().numpy()
        check(result, equation, arrays, dtype)
        assert all(map(np.array_equal, arrays, copies))


def _with_strides(tensor: Any, rng: random.Random) -> Any:
    """The same values with axes in another order in memory, every other element, or a lazy conjugate."""
    order = rng.sample(range(tensor.ndim), tensor.ndim)
    moved = tensor.permute(order).contiguous().permute(np.argsort(order).tolist())
    ways = [tensor, moved, tensor.conj().resolve_conj().conj() if tensor.is_complex() else tensor]
    if tensor.ndim:
        ways.append(tensor.repeat_interleave(2, -1)[..., ::2])
    return rng.choice(ways)


def test_tensors_of_torch_are_contracted_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    contract("a->", np.ones(2))  # the first call imports what contracts
    contracted.forget()
    monkeypatch.setattr(contracted, "contract_arrays", None)  # what is called where torch is not
    x, y = torch.rand(3, 4, dtype=torch.float64), torch.rand(4, dtype=torch.float64, requires_grad=True)
    for _ in range(2):
        torch.testing.assert_close(contract("ab,b->a", x, y), x @ y)
    assert contract("ab,b->a", x, torch.nn.Parameter(y.detach())).requires_grad
    assert torch.autograd.gradgradcheck(lambda a, b: contract("ab,b,b->a", a, b, b), (x, y))
    with torch.no_grad():
        assert not contract("ab,b->a", x, y).requires_grad
    assert contract("ab,b->a", x[:, :1], y).shape == (3,)  # an axis of extent 1 is broadcast
    contracted.forget()


def test_what_torch_would_do_otherwise_is_left_to_schedules() -> None:
    torch = pytest.importorskip("torch")
    x = torch.rand(3)
    assert library_key([x]) is not None
    assert library_key([x.to_sparse()]) is None
    assert library_key([np.ones(3)]) is None
    assert library_key([x, np.ones(3)]) is None
    assert library_key([torch.nested.nested_tensor([x, x], layout=torch.jagged)]) is None
    assert library_key([]) is None
    square = torch.rand(3, 3)
    with compile_contraction("ab,bc->ac", square, square, device="cpu") as product, torch.autocast("cpu"):
        assert (square @ square).dtype == torch.bfloat16
        for _ in range(2):
            assert contract("ab,bc->ac", square, square).dtype == torch.float32
            assert product(square, square).dtype == torch.float32
    assert contract("a,a->", x, x.double()).dtype == torch.float64
    assert contract("a,a->", x.half(), x.half()).dtype == torch.float16
    assert contract("a,a->", torch.arange(3), torch.arange(3)) == 5


def test_an_update_follows_a_call_with_tensors() -> None:
    torch = pytest.importorskip("torch")
    x, y, z = (torch.rand(3, dtype=torch.float64) for _ in range(3))
    with compile_contraction("a,a->", x, y, device="cpu") as product:
        for _ in range(2):
            torch.testing.assert_close(product(x, y), x @ y)
            torch.testing.assert_close(product.update({1: z}), x @ z)
            torch.testing.assert_close(product.update({0: y.numpy()}), y @ z)
            np.testing.assert_allclose(product(x.numpy(), y.numpy()), x @ y)
            np.testing.assert_allclose(product.update({1: z.numpy()}), x @ z)


@needs_gpus(1)
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_plain_calls_on_a_gpu(library: str) -> None:
    module = pytest.importorskip(library)
    for seed in range(60):
        equation, arrays, dtype = plain_call(random.Random(f"gpu {seed}"))
        arrays = [np.array(array) for array in arrays]
        if library == "cupy":
            given, on_host = [module.asarray(array) for array in arrays], module.asnumpy
        else:
            given, on_host = [module.from_numpy(array).cuda() for array in arrays], lambda x: x.cpu().numpy()
        with compile_contraction(equation, *given) as compiled:
            for call in (compiled, lambda *each, equation=equation: contract(equation, *each)):
                for _ in range(2):
                    result = call(*given)
                    assert type(result) is type(given[0])
                    check(on_host(result), equation, arrays, dtype)


@needs_gpus(1)
@pytest.mark.parametrize("kind", ["conjugated", "negative", "bfloat16"])
def test_values_that_torch_computes_late_are_waited_for(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    network = lattice(4, 4, 3, 0, "complex128").network
    generator = torch.Generator().manual_seed(4)
    given = [
        torch.randn(network.shape(number), dtype=torch.complex128, generator=generator).cuda()
        for number in range(len(network.inputs))
    ]
    changed = {
        "conjugated": given[3].conj(), "negative": given[3].conj().imag,
        "bfloat16": given[3].real.bfloat16(),
    }  # fmt: skip
    resolve_conj = torch.Tensor.resolve_conj

    def after_a_while(tensor: Any) -> Any:
        torch.cuda._sleep(100_000_000)
        return resolve_conj(tensor)

    with compile_contraction(network, *given) as compiled:
        given[3] = changed[kind]
        values = [each.resolve_conj().resolve_neg().to(torch.complex128).cpu().numpy() for each in given]
        wanted = contract(network, *values, device="cpu")
        monkeypatch.setattr(torch.Tensor, "resolve_conj", after_a_while)
        result = compiled(*given).cpu().numpy()
    np.testing.assert_allclose(result, wanted, rtol=1e-9, atol=1e-9 * abs(wanted).max())


@needs_gpus(1)
def test_tensors_of_many_kinds_follow_each_other_on_a_gpu() -> None:
    """Those that a schedule takes by their address, and others, which are looked at one by one."""
    torch = pytest.importorskip("torch")
    network = lattice(4, 4, 3, 0, "complex128").network
    generator = torch.Generator().manual_seed(3)

    def tensors() -> list[Any]:
        return [
            torch.randn(network.shape(number), dtype=torch.complex128, generator=generator).cuda()
            for number in range(len(network.inputs))
        ]

    changes = [
        lambda x: x, lambda x: x.conj(), lambda x: x.mT.contiguous().mT, lambda x: x.conj().imag,
        lambda x: x.to(torch.complex64), lambda x: x.requires_grad_(),
        lambda x: torch.view_as_real(x)[..., 1],
    ]  # fmt: skip
    chance = random.Random(8)
    with compile_contraction(network, *tensors()) as compiled:
        for turn in range(40):
            given = tensors()
            if turn % 2:
                number = chance.randrange(len(given))
                given[number] = chance.choice(changes)(given[number])
            on_host = [each.detach().cpu().resolve_conj().numpy() for each in given]
            wanted = contract(network, *on_host, device="cpu")
            result = compiled(*given)
            assert result.requires_grad == any(each.requires_grad for each in given)
            close = {"rtol": 1e-9, "atol": 1e-9 * abs(wanted).max()}
            np.testing.assert_allclose(result.detach().cpu().numpy(), wanted, **close)
        given = tensors()
        with pytest.raises(Exception, match="array 3"):
            compiled(*given[:3], given[3].cpu(), *given[4:])
        with pytest.raises(Exception, match="array 2"):
            compiled(*given[:2], given[2][:1, ...].expand(7, *given[2].shape[1:]), *given[3:])
