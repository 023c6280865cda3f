"""The way back through fused chains: the kernel on the CPU, threads made fibers, and where there is a GPU."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.contraction.fused import TOLERANCE, arrays_of, normal, random_chain
from tests.support.kernels.exponent_emulator import HAS_EMULATOR
from tests.support.kernels.gpus import needs_gpus
from tests.support.slow import slow_after
from tnplan.executor.device.protocols.device import AdjointShape
from tnplan.jobs.calibration import chain_shape
from tnplan.planner.hardware.fusion_tile import ADJOINT_STAGES, ADJOINT_TILE_BYTES, fused_tile

RUNNERS = [
    pytest.param("emulated", marks=pytest.mark.skipif(not HAS_EMULATOR, reason="needs g++ and CuPy")),
    pytest.param("gpu", marks=needs_gpus(1)),
]


def random_adjoint(chance: random.Random, chain, wanted=1.0) -> AdjointShape:
    """Gradients in any order, each wanted with a probability."""

    def shuffled(modes):
        return tuple(chance.sample(modes, len(modes))) if chance.random() < wanted else None

    back = chain.operand if chance.random() < 0.5 else shuffled(chain.operand)
    return AdjointShape(chain, tuple(map(shuffled, chain.branches)), back)


def run(
    runner: str, shape: AdjointShape, arrays, cotangent, capacity: int, patch, room: int = 1 << 20
) -> list[Any]:  # fmt: skip
    """The gradients of branches and that of the operand, as the shape orders them."""
    from tnplan.executor.device.cuda.fused import adjoint

    outs = [
        None if modes is None else np.full([extent for _, extent in modes], np.nan, cotangent.dtype)
        for modes in (*shape.gradients, shape.back)
    ]
    if runner == "gpu":
        import cupy

        put, get, stream = cupy.asarray, cupy.asnumpy, cupy.cuda.Stream.null
        scratch = partial(cupy.empty, dtype=np.uint8)
    else:
        from tests.support.kernels.adjoint_emulator import emulate_adjoints
        from tests.support.kernels.emulator import Arrays

        emulate_adjoints(patch, room)
        put, get, stream = (lambda array: array.view(Arrays)), np.asarray, SimpleNamespace(ptr=0)
        scratch = partial(Arrays, dtype=np.uint8)
    held = [None if out is None else put(out.ravel()) for out in outs]
    operand, *branches, last = (put(array.ravel()) for array in (*arrays, cotangent))
    call = adjoint.bind_adjoint(
        shape, operand, branches, last, held, stream,
        capacity * cotangent.itemsize, scratch,
    )  # fmt: skip
    found = []
    for _ in range(2):
        call()
        found.append([None if one is None else get(one).copy() for one in held])
    for one, again in zip(*found, strict=True):
        assert (one is None) == (again is None)
        assert one is None or one.tobytes() == again.tobytes()
    return found[0]


def expected(shape: AdjointShape, arrays, cotangent):
    """Each by einsum from all other tensors."""
    chain = shape.chain
    labels = [[mode for mode, _ in modes] for modes in (*chain.branches, chain.operand, chain.out)]
    tensors = [*arrays[1:], arrays[0], cotangent]
    for number, modes in enumerate((*shape.gradients, shape.back)):
        if modes is None:
            yield None
            continue
        terms = []
        for one, (array, own) in enumerate(zip(tensors, labels, strict=True)):
            if one != number:
                terms += [array, own]
        yield np.einsum(*terms, [mode for mode, _ in modes], optimize=True).ravel()


def check(
    runner, shape: AdjointShape, dtype: str, capacity: int, rng, patch, room: int = 1 << 20
) -> None:  # fmt: skip
    """Assert an error that is small beside the contraction of absolute values."""
    arrays = arrays_of(shape.chain, lambda extents: normal(rng, extents, dtype))
    cotangent = normal(rng, [extent for _, extent in shape.chain.out], dtype)
    found = run(runner, shape, arrays, cotangent, capacity, patch, room)
    exact, exact_cotangent = (
        [array.astype(np.complex128) for array in arrays],
        cotangent.astype(np.complex128),
    )
    wanted = expected(shape, exact, exact_cotangent)
    scales = expected(shape, [np.abs(array) for array in exact], np.abs(exact_cotangent))
    for one, value, scale in zip(found, wanted, scales, strict=True):
        assert (one is None) == (value is None)
        if one is not None:
            assert np.all(np.abs(one - value) <= TOLERANCE[dtype] * scale), shape


@pytest.mark.parametrize("dtype", slow_after(2, TOLERANCE))
@pytest.mark.parametrize("runner", RUNNERS)
def test_random_chains(runner, dtype, monkeypatch):
    chance, rng = random.Random(7), np.random.default_rng(7)
    capacity = 32768 // np.dtype(dtype).itemsize
    shapes: list[AdjointShape] = []
    while len(shapes) < (3 if runner == "emulated" else 12):
        chain = random_chain(chance, 13 if runner == "emulated" else 17)
        if fused_tile(chain.operand, chain.branches, chain.out, capacity) is not None:
            shapes.append(random_adjoint(chance, chain, 0.8 if len(shapes) % 2 else 1.0))
    if runner == "gpu":
        from tnplan.executor.device.cuda.fused.adjoint import prepare_adjoints

        prepare_adjoints(shapes, dtype, 32768)
    for shape in shapes:
        check(runner, shape, dtype, capacity, rng, monkeypatch)


@pytest.mark.parametrize("logs", [(5, 4), (3, 3, 3), (2, 1, 2, 4)])
@pytest.mark.parametrize("runner", RUNNERS)
def test_chains_of_circuits(runner, logs, monkeypatch):
    """Gates side by side: branches that bring as many modes as they sum."""
    chain = chain_shape(15, logs)
    shape = AdjointShape(chain, chain.branches, chain.operand)
    assert prod(extent for _, extent in chain.operand) == 1 << 15
    check(runner, shape, "complex64", 4096, np.random.default_rng(3), monkeypatch)


@pytest.mark.parametrize("wanted", [(), (0,), (2,), (1, 2)])
@pytest.mark.parametrize("back", [True, False])
@pytest.mark.parametrize("runner", RUNNERS)
def test_some_gradients_alone(runner, back, wanted, monkeypatch):
    """What no gradient needs is not made: values behind the last, cotangents before the first."""
    chain = chain_shape(14, (2, 3, 2))
    gradients = tuple(modes if number in wanted else None for number, modes in enumerate(chain.branches))
    shape = AdjointShape(chain, gradients, chain.operand if back else None)
    check(runner, shape, "complex64", 4096, np.random.default_rng(4), monkeypatch)


@pytest.mark.parametrize("runner", RUNNERS)
def test_gradients_of_a_chain_without_tiles_are_zero(runner, monkeypatch):
    """Where a mode has no values, sums over it have no terms."""
    chain = chain_shape(12, (2, 3))
    chain = replace(chain, operand=((50, 0), *chain.operand), out=((50, 0), *chain.out))
    shape = AdjointShape(chain, chain.branches, chain.operand)
    check(runner, shape, "complex64", 4096, np.random.default_rng(6), monkeypatch)


@pytest.mark.skipif(not HAS_EMULATOR, reason="needs g++ and CuPy")
def test_blocks_with_less_memory_take_smaller_tiles(monkeypatch):
    from tnplan.executor.device.cuda.fused.adjoint import chosen

    chain = chain_shape(14, (3, 2, 3))
    shape = AdjointShape(chain, chain.branches, chain.operand)
    wide, narrow = (chosen(shape, "complex64", 32768, room) for room in (1 << 20, 48 << 10))
    assert wide.shared_bytes > 48 << 10 >= narrow.shared_bytes
    assert narrow.n_tiles > wide.n_tiles
    check("emulated", shape, "complex64", 4096, np.random.default_rng(5), monkeypatch, 48 << 10)


@pytest.mark.parametrize("itemsize", [4, 8, 16])
def test_any_chain_that_a_plan_makes_fits_the_memory_on_chip(itemsize):
    """Of GPUs with 164 KB a multiprocessor or more: as many steps as a plan takes, in tiles that it takes."""
    adjoint_tables = pytest.importorskip("tnplan.executor.device.cuda.fused.adjoint_tables").adjoint_tables
    dtype = {4: "float32", 8: "complex64", 16: "complex128"}[itemsize]
    done = 0
    for logs in ((4,) * 4, (5, 5, 4), (6,), (2,) * 4, (5, 4), (3, 4, 3, 4)):
        chain = chain_shape(20, logs)
        assert len(logs) <= ADJOINT_STAGES
        if fused_tile(chain.operand, chain.branches, chain.out, ADJOINT_TILE_BYTES // itemsize) is not None:
            tables = adjoint_tables(
                AdjointShape(chain, chain.branches, chain.operand), 32768 // itemsize, dtype
            )
            assert tables.shared_bytes <= 163 << 10
            done += 1
    assert done > 1


@pytest.mark.skipif(not HAS_EMULATOR, reason="needs g++ and CuPy")
def test_scratch_memory_is_known_beforehand(monkeypatch):
    """What is prepared is the most that a call takes; a way back without gradients of branches takes none."""
    from tests.support.kernels.adjoint_emulator import emulate_adjoints
    from tests.support.kernels.emulator import Arrays
    from tnplan.executor.device.cuda.fused import adjoint

    emulate_adjoints(monkeypatch)
    taken: list[int] = []

    def scratch(size_bytes: int):
        taken.append(size_bytes)
        return Arrays(size_bytes, dtype=np.uint8)

    chains = [chain_shape(12, logs) for logs in ((2, 3), (1, 1))]
    shapes = [AdjointShape(chain, chain.branches, chain.operand) for chain in chains]
    shapes.append(AdjointShape(chains[0], (None, None), chains[0].operand))
    for shape in shapes:
        operand, *branches = (
            array.ravel().view(Arrays)
            for array in arrays_of(shape.chain, lambda extents: np.zeros(extents, "complex64"))
        )
        cotangent = np.zeros(operand.size, "complex64").view(Arrays)
        made = [
            None if modes is None else np.empty_like(one)
            for modes, one in zip(shape.gradients, branches, strict=True)
        ]
        adjoint.bind_adjoint(
            shape, operand, branches, cotangent, (*made, np.empty_like(operand)), None, 32768, scratch
        )
    assert taken[0] > taken[1] > taken[2] == 0
    assert adjoint.prepare_adjoints(shapes, "complex64", 32768) == taken[0]
