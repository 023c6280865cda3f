"""Gradients of compiled contractions: values, memory, ranks and torch."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from math import inf
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.mpirun import SCRIPTS, mpirun, needs_mpi
from tests.support.networks import random_arrays, random_path, window
from tests.support.slow import slow_after
from tnplan.executor.contraction.bind.program import arena_bytes

TRACE, PRODUCT = "ij,jk,ki->", "ij,jk,kl->il"
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")


def matrices(dtype: str = "complex128", extent: int = 4) -> list[np.ndarray]:
    """Three random matrices."""
    generator = np.random.default_rng(1)
    real, imaginary = generator.normal(size=(2, 3, extent, extent))
    return [np.asarray(one if dtype.startswith("c") else one.real, dtype) for one in real + 1j * imaginary]


def test_value_and_grad_of_a_trace() -> None:
    a, b, c = matrices()
    with tnplan.compile(TRACE, a, b, c, device="cpu") as trace:
        value, gradients = trace.value_and_grad(a, b, c)
        assert np.isclose(value, np.trace(a @ b @ c), rtol=1e-13)
        for found, wanted in zip(gradients, ((b @ c).T, (c @ a).T, (a @ b).T), strict=True):
            assert np.allclose(found, wanted, rtol=1e-12)
        _, (second, first) = trace.value_and_grad(a, b, c, wrt=[1, 0])
        assert np.array_equal(second, gradients[1])
        assert np.array_equal(first, gradients[0])


def compare_with_differences(seed: int) -> None:
    """The derivative of a random network along a random change of all tensors is that of differences."""
    step, path = 1e-6, random_path(seed, 500)
    arrays = [one.real.astype(np.float64) for one in random_arrays(path, seed)]
    shape = tuple(path.network.size_dict[index] for index in path.network.output)
    generator = np.random.default_rng(seed)
    cotangent = generator.normal(size=shape)
    with tnplan.compile(path, *arrays, dtype="float64", device="cpu") as contraction:
        _, gradients = contraction.vjp(arrays, cotangent)
        for changed in ([k] for k in range(len(arrays))) if seed < 12 else (range(len(arrays)),):
            moves = {k: generator.normal(size=arrays[k].shape) for k in changed}
            ends = [
                contraction(*(one + sign * step * moves.get(k, 0.0) for k, one in enumerate(arrays)))
                for sign in (1, -1)
            ]
            wanted = np.sum(cotangent * (ends[0] - ends[1])) / (2 * step)
            found = sum(np.sum(gradients[k] * move) for k, move in moves.items())
            assert abs(found - wanted) <= 1e-6 * max(1, abs(wanted)), seed


def test_finite_differences() -> None:
    for seed in range(12):
        compare_with_differences(seed)


@pytest.mark.slow
def test_300_random_networks_have_the_gradients_of_differences() -> None:
    for seed in range(1000, 1300):
        compare_with_differences(seed)


def test_constants_take_no_part() -> None:
    a, b, c = matrices()
    with tnplan.compile(TRACE, a, b, c, constants={1: b}, device="cpu") as trace:
        value, gradients = trace.value_and_grad(a, c)
        assert np.isclose(value, np.trace(a @ b @ c), rtol=1e-13)
        assert np.allclose(gradients[0], (b @ c).T, rtol=1e-12)
        assert np.allclose(gradients[1], (a @ b).T, rtol=1e-12)
        with pytest.raises(tnplan.InputError, match="tensor 1"):
            trace.value_and_grad(a, c, wrt=[1])


@pytest.mark.parametrize("devices", slow_after(1, [2, 3, 4]))
def test_several_ranks_give_the_same(devices: int) -> None:
    for seed in range(4):
        path = random_path(seed, 2000)
        arrays = random_arrays(path, seed)
        shape = tuple(path.network.size_dict[index] for index in path.network.output)
        cotangent = np.ones(shape, path.dtype)
        with (
            tnplan.compile(path, device="cpu") as one,
            tnplan.compile(path, device="cpu", devices=devices) as many,
        ):
            alone, spread = one.vjp(arrays, cotangent), many.vjp(arrays, cotangent)
            rounding = 1e-5 if path.dtype in ("float32", "complex64") else 1e-12
            for here, there in zip((alone[0], *alone[1]), (spread[0], *spread[1]), strict=True):
                assert np.abs(here - there).max(initial=0) <= rounding * max(1, np.abs(here).max(initial=0))


@needs_mpi
def test_mpi_ranks() -> None:
    done = mpirun(2, SCRIPTS / "gradients.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["equal"] * 3


@needs_mpi
@needs_torch
def test_torch_has_the_gradients_on_all_mpi_ranks() -> None:
    done = mpirun(2, SCRIPTS / "gradients.py", "torch", PYTHONPATH=os.pathsep.join(sys.path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["equal"] * 4


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("length", [0, 1, 4, 7])
def test_gradients_of_a_batch(dtype: str, length: int) -> None:
    a, b, c = (one[:3, :3] for one in matrices(dtype))
    scales = np.arange(1, length + 1, dtype=dtype)
    rows, weights = scales[:, None, None] * a, scales + 1
    with tnplan.compile(
        TRACE, a, b, c, dtype=dtype, device="cpu", batch=4, batched=[0], constants={2: c}
    ) as trace:
        calls = (trace.value_and_grad(rows, b), scales**0), (trace.vjp((rows, b), weights), weights)
        for (value, (by_rows, by_shared)), weight in calls:
            np.testing.assert_allclose(value, scales * np.trace(a @ b @ c), rtol=1e-5)
            np.testing.assert_allclose(by_rows, weight[:, None, None] * (b @ c).T, rtol=1e-4)
            wanted = sum(weight * scales) * (c @ a).T
            np.testing.assert_allclose(by_shared, wanted, rtol=1e-4, atol=1e-5)


def test_the_gradients_of_a_batch_take_a_part_of_it_where_memory_is_short() -> None:
    generator = np.random.default_rng(0)
    rows, others = generator.normal(size=(2, 64, 40, 40))
    c, d = generator.normal(size=(2, 40, 40))
    with tnplan.compile(
        "ij,jk,kl,li->", *[(40, 40)] * 4, dtype="float64", device="cpu", batch=64, batched=[0, 1],
        memory=3_000_000,
    ) as trace:  # fmt: skip
        _, gradients = trace.value_and_grad(rows, others, c, d)
        assert trace._gradient_calls((0, 1, 2, 3)).schedule.output_shape[0] < 64
    np.testing.assert_allclose(gradients[2], (d @ (rows @ others).sum(0)).T, rtol=1e-9, atol=1e-9)


def test_the_memory_that_is_stated_holds_both() -> None:
    path = window(24, 12)
    arrays = random_arrays(path, 0)
    shape = tuple(path.network.size_dict[index] for index in path.network.output)
    cotangent, found = np.ones(shape, path.dtype), []
    for memory in (inf, 1_000_000):
        with tnplan.compile(path, device="cpu", memory=memory) as contraction:
            found.append(contraction.vjp(arrays, cotangent)[1])
            calls = contraction._gradient_calls(tuple(range(25)))
            found_bytes = arena_bytes(contraction.schedule) + arena_bytes(calls.schedule)
            assert found_bytes <= memory
    assert found_bytes > 500_000
    for here, there in zip(*found, strict=True):
        assert np.allclose(here, there, rtol=1e-4, atol=1e-4 * np.abs(here).max())
    with tnplan.compile(path, device="cpu", memory=300_000) as contraction:
        with pytest.raises(tnplan.InputError, match="memory"):
            contraction.vjp(arrays, cotangent)
        assert contraction(*arrays).shape == shape


@needs_torch
@pytest.mark.parametrize("equation", [TRACE, PRODUCT])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_torch_goes_back_through_a_call(equation: str, dtype: str) -> None:
    import torch

    tensors = [torch.tensor(one, requires_grad=True) for one in matrices(dtype)]
    with tnplan.compile(equation, *matrices(dtype), device="cpu") as contraction:
        assert torch.autograd.gradcheck(contraction, tensors)
        first, *rest = tensors
        assert torch.autograd.gradcheck(lambda one: contraction(one, *(x.detach() for x in rest)), (first,))

        def gradients(function: Any) -> tuple[Any, ...]:
            return torch.autograd.grad((function(*tensors).abs() ** 2).sum(), tensors)

        ours, theirs = gradients(contraction), gradients(lambda *some: torch.einsum(equation, *some))
        for here, there in zip(ours, theirs, strict=True):
            assert (here - there).abs().max() <= 1e-10 * there.abs().max()
        with torch.no_grad():
            assert not contraction(*tensors).requires_grad


def compare_with_torch(seed: int, devices: int = 1) -> bool:
    """Gradients of a random network, and those of their square, are torch's own, on so many ranks; whether
    the network is sliced."""
    import torch

    path = random_path(seed, 1000)
    arrays = [one.astype(np.complex128) for one in random_arrays(path, seed)]
    tensors = [torch.tensor(one, requires_grad=True) for one in arrays]
    letters = {index: number for number, index in enumerate(path.network.size_dict)}
    operands: list[Any] = []
    for tensor, term in zip(tensors, path.network.inputs, strict=True):
        operands += [tensor, [letters[index] for index in term]]

    def gradients(value: Any) -> list[Any]:
        first = torch.autograd.grad((value.abs() ** 2).sum(), tensors, create_graph=True)
        second = torch.autograd.grad(sum((one.abs() ** 2).sum() for one in first), tensors, allow_unused=True)
        pairs = zip(tensors, second, strict=True)
        return [*first, *(torch.zeros_like(x) if one is None else one for x, one in pairs)]

    theirs = gradients(torch.einsum(*operands, [letters[index] for index in path.network.output]))
    with tnplan.compile(
        path, *arrays, dtype="complex128", device="cpu", devices=devices, threads=1
    ) as contraction:
        ours = gradients(contraction(*tensors))
    for here, there in zip(ours, theirs, strict=True):
        assert (here - there).abs().max() <= 1e-10 * max(1.0, there.abs().max()), (seed, devices)
    return bool(path.sliced_inds)


@needs_torch
def test_torch_through_random_networks() -> None:
    for seed in range(40, 70):
        compare_with_torch(seed)


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_300_random_networks_have_the_gradients_of_torch(devices: int) -> None:
    """150 networks on one rank and 50 on each of two to four: sliced ones among them."""
    first, count = (1000, 150) if devices == 1 else (1100 + 50 * (devices - 1), 50)
    sliced = [compare_with_torch(seed, devices) for seed in range(first, first + count)]
    assert 5 < sum(sliced) < count - 5
