"""Kernels that a schedule's steps ask for are compiled at once, before the steps are bound.

On a GPU that does nothing, with a compiler that notes who asks (tests/support/kernels/idle_gpu.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import count
from math import inf, prod
from pathlib import Path
from random import Random
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from tests.support.contraction.fused import fusing_profile
from tests.support.kernels.contract import shape_of
from tests.support.kernels.gpus import count_gpus
from tests.support.kernels.idle_gpu import Compilations, UncheckedKernel, put_in_place
from tests.support.networks import random_path, window
from tests.support.root import ROOT
from tnplan.common.errors import InputError
from tnplan.common.system_calls import cores
from tnplan.executor.contraction.run.compiled_program import CompiledProgram
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.device import Call, ContractShape, RowShape
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.reverse import reverse
from tnplan.planner.schedule.schedule import Schedule

pytestmark = [
    pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy, which brings the compiler"),
    pytest.mark.skipif(count_gpus() > 0, reason="functions that are cached would keep kernels of no GPU"),
]
SINGLE = {"few_columns.cu", "fma.cu", "halves.cu", "long_sums.cu", "mma.cu", "products.cu", "rows.cu"}
DOUBLE = {"few_columns.cu", "long_sums.cu", "products.cu", "rows.cu"}
FAMILIES = {"float32": SINGLE, "complex64": SINGLE | {"wgmma.cu"}, "float64": DOUBLE, "complex128": DOUBLE}
"""The kernels that products of a type ask for."""
ADD_FILE = ROOT / "tnplan" / "executor" / "device" / "cuda" / "copy" / "add.cu"
DEVICE_NUMBERS = count(1000)
"""What is cached for a device, by other tests too, is not for the next."""


@pytest.fixture
def compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compilations:
    """A GPU that does nothing, new, with an empty cache of kernels."""
    from cupy.cuda import runtime

    from tnplan.executor.device.cuda.runtime import kernel_cache

    noted, number = Compilations(), next(DEVICE_NUMBERS)
    monkeypatch.delenv(kernel_cache.NEVER_COMPILE, raising=False)
    monkeypatch.setenv(kernel_cache.CACHE_FOLDER, str(tmp_path / "kernels"))
    put_in_place(monkeypatch, UncheckedKernel, noted)
    monkeypatch.setattr(runtime, "getDevice", lambda: number)
    return noted


def files(kernels: Any) -> set[str]:
    return {file.name for file, *_ in kernels}


def shipped(name: str, precision: str) -> Schedule:
    path = load_path(ROOT / "paths" / f"{name}.json")
    return plan(path, load_profile("h200-nvlink"), memory_bytes=4e9, precision=precision)


def random_schedule(seed: int, dtype: str) -> Schedule:
    return plan(replace(random_path(seed), dtype=dtype), fusing_profile(1 << 15), memory_bytes=inf)


def gradients(steps: int) -> Schedule:
    path: ContractionPath = replace(window(steps, 10), dtype="complex64")
    forward = plan(path, fusing_profile(1 << 15), memory_bytes=inf, goes_back=True)
    return reverse(forward, range(len(path.network.inputs)))


SCHEDULES: dict[str, Callable[[], Schedule]] = {
    **{
        f"{name.split('_')[0]}-{precision}": partial(shipped, name, precision)
        for name in ("rectangular_5x7_l20_b27_fused", "sycamore_n53_m10_b24_flops")
        for precision in ("fp32", "tf32", "fp16x3")
    },
    **{
        f"random-{dtype}": partial(random_schedule, seed, dtype)
        for seed, dtype in enumerate(("float32", "float64", "complex64", "complex128"), 7301)
    },
    "gradients": partial(gradients, 17),
}


@pytest.mark.parametrize("made", SCHEDULES.values(), ids=SCHEDULES)
def test_schedules_compile_nothing_where_they_are_bound(
    made: Callable[[], Schedule], compilations: Compilations
) -> None:
    from tnplan.executor.device.cuda.device import CupyDevice

    schedule = made()
    program = CompiledProgram(schedule, CupyDevice(0), run_ranks(1, lambda own: own)[0])
    program.run()
    all_were_ahead(compilations)


def random_shape(chance: Random) -> ContractShape:
    """Small, long and thin, or large, with c in any order; some have operands with k first, or odd sums."""
    while True:
        is_large = chance.random() < 0.2
        least, batch = (9, ()) if is_large else (0, chance.choice(((), (), (2,), (8,))))
        m, n, k = (1 << chance.randint(least, 12) for _ in range(3))
        rows = 1 << chance.randint(0, m.bit_length() - 1)
        order = chance.sample(range(len(batch) + 3), len(batch) + 3)
        k -= k > 2 and not is_large and chance.random() < 0.3
        shape = shape_of(batch, (rows, m // rows), (n,), k, order)
        if prod(batch) * max(m * n, m * k, n * k) <= 1 << 22:
            is_plain = is_large or min(m, n, k) == 1
            return replace(shape, k_first="" if is_plain else chance.choice(("", "", "a", "b", "ab")))


@pytest.mark.parametrize("dtype", FAMILIES)
def test_products_of_all_kinds_compile_nothing_where_they_are_bound(
    dtype: str, compilations: Compilations
) -> None:
    import cupy

    from tnplan.executor.device.cuda.device import CupyDevice

    device, chance = CupyDevice(0), Random(f"90210 {dtype}")
    precisions = ("fp32", "tf32", "fp16x3") if dtype in ("float32", "complex64") else ("fp64",)
    workspace = cupy.empty(1 << 20, dtype)

    def views(*sizes: int) -> list[Any]:
        starts = (chance.choice((0, 0, 1)) for _ in sizes)  # not always on a boundary of 16 bytes
        return [cupy.empty(size + start, dtype)[start:] for size, start in zip(sizes, starts, strict=False)]

    binds: list[Callable[[], Call]] = []
    for _ in range(80):
        shape, precision = random_shape(chance), chance.choice(precisions)
        n_batch, m, n, k = shape.sizes
        given = views(n_batch * m * k, n_batch * n * k, n_batch * m * n)
        binds.append(partial(device.bind_contract, shape, *given, workspace, precision))
    pairs = np.stack(np.divmod(np.arange(100, dtype=np.int32), 40), axis=1)
    for m, k in ((16, 70), (1, 4)):
        of_rows = RowShape(shape_of((1,), (m,), (1,), k, (0, 1, 2)), 100, m)
        binds.append(partial(device.bind_rows, of_rows, pairs, *views(5 * m * k, 40 * k, 100 * m), workspace))
    assert len(device.bind_together(binds)) == len(binds)
    all_were_ahead(compilations)
    assert files(compilations.loaded) >= FAMILIES[dtype]


def all_were_ahead(compilations: Compilations) -> None:
    """Neither too little was compiled ahead nor too much, and nothing twice."""
    assert not files(compilations.late)
    assert sorted(compilations.ahead) == sorted(compilations.loaded)


def test_kernels_that_are_missing_are_compiled_at_the_same_time(
    compilations: Compilations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that wait for each other; each maker is begun anew at most once for each kernel."""
    from tnplan.executor.device.cuda.runtime import kernel_cache

    if cores() < 2:
        pytest.skip("needs two cores")
    meeting, calls = Barrier(2), []

    def compiled(*_: object) -> bytes:
        meeting.wait(60)
        return b"kernel"

    def load(*numbers: int) -> int:
        calls.append(numbers)
        for number in numbers:
            kernel_cache.load_kernel(ADD_FILE, "add", {"NUMBER": number})
        return sum(numbers)

    monkeypatch.setattr(kernel_cache, "compile_cubin", compiled)
    makers = [partial(load, *numbers) for numbers in ((1, 3), (2,), (1, 4), (2, 2), ())]
    assert kernel_cache.made_together(makers) == [4, 2, 5, 4, 0]
    assert [calls.count(maker.args) for maker in makers] == [3, 2, 3, 2, 1]


@pytest.mark.parametrize("refused", [False, True])
def test_what_does_not_compile_ahead_raises_as_where_it_is_bound(
    refused: bool, compilations: Compilations, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tnplan.executor.device.cuda.runtime import kernel_cache

    def failing(file: Path, defines: dict[str, str], arch: str) -> bytes:
        raise ValueError(f"{file.name} does not compile for {arch}")

    monkeypatch.setattr(kernel_cache, "compile_cubin", failing)
    if refused:
        monkeypatch.setenv(kernel_cache.NEVER_COMPILE, "1")
    load = partial(kernel_cache.load_kernel, ADD_FILE, "add", {"NUMBER": 1})
    with pytest.raises((InputError, ValueError)) as alone:
        load()
    with pytest.raises(type(alone.value)) as together:
        kernel_cache.made_together([load, load])
    assert isinstance(alone.value, InputError) == refused
    assert str(together.value) == str(alone.value)
