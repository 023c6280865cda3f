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
from tests.support.kernels.idle_gpu import Compilations, Kernel, put_in_place
from tests.support.networks import random_path, window
from tests.support.root import ROOT
from tnplan.common.errors import InputError
from tnplan.executor.contraction.run.compiled_program import CompiledProgram
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.host_memory import cores
from tnplan.executor.device.protocols.device import ContractShape, RowShape
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.reverse.reverse import reverse
from tnplan.planner.schedule.schedule import Schedule

pytestmark = [
    pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy, which brings the compiler"),
    pytest.mark.skipif(count_gpus() > 0, reason="functions that are cached would keep kernels of no GPU"),
]
SINGLE = {"few_columns.cu", "fma.cu", "halves.cu", "long_sums.cu", "mma.cu", "products.cu", "rows.cu"}
DOUBLE = {"few_columns.cu", "long_sums.cu", "products.cu", "rows.cu"}
FAMILIES = {"float32": SINGLE, "complex64": SINGLE | {"wgmma.cu"}, "float64": DOUBLE, "complex128": DOUBLE}
"""The kernels that products of a type ask for."""
DEVICE_NUMBERS = count(1000)
"""What is cached for a device, by other tests too, is not for the next."""


class UncheckedKernel(Kernel):
    """tests/executor/test_launches.py holds launches against kernels."""

    def check(self, threads: int, arguments: Any, shared_bytes: int) -> None:
        """Nothing."""


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
    """Small and large, long and thin, with c in any order and operands with k first."""
    while True:
        batch, m, n, k = (tuple(1 << chance.randint(0, most) for _ in range(2)) for most in (2, 7, 6, 7))
        batch = chance.choice(((), (), batch))
        shape = shape_of(batch, m, n, prod(k) - chance.choice((0, 0, 1)), chance.sample(range(len(batch) + 4), len(batch) + 4))
        n_batch, rows, columns, terms = shape.sizes
        if terms and n_batch * max(rows * columns, rows * terms, columns * terms) <= 1 << 22:
            first = chance.choice(("", "", "a", "b", "ab"))
            return replace(shape, k_first=first if min(rows, columns, terms) > 1 else "")


@pytest.mark.parametrize("dtype", FAMILIES)
def test_products_of_all_kinds_compile_nothing_where_they_are_bound(
    dtype: str, compilations: Compilations
) -> None:
    import cupy

    from tnplan.executor.device.cuda.device import CupyDevice

    device, chance, itemsize = CupyDevice(0), Random(f"90210 {dtype}"), np.dtype(dtype).itemsize
    precisions = ("fp32", "tf32", "fp16x3") if dtype in ("float32", "complex64") else ("fp64",)
    binds = []
    workspace = cupy.empty(1 << 16, dtype)
    for _ in range(300):
        shape = random_shape(chance)
        n_batch, m, n, k = shape.sizes
        start = chance.choice((0, 0, 1))
        a, b, c = (
            cupy.empty(size + start, dtype)[start:] for size in (n_batch * m * k, n_batch * n * k, n_batch * m * n)
        )
        binds.append(partial(device.bind_contract, shape, a, b, c, workspace, chance.choice(precisions)))
    device.prepare_contract([(bind.args[0], bind.args[5], "gemm") for bind in binds], dtype)
    pairs = np.stack(np.divmod(np.arange(100, dtype=np.int32), 40), axis=1)
    for m, k in ((16, 70), (1, 4)):
        of_rows = RowShape(shape_of((1,), (m,), (1,), k, (0, 1, 2)), 100, m)
        a, b, c = (cupy.empty(size, dtype) for size in (5 * m * k, 40 * k, 100 * m))
        binds.append(partial(device.bind_rows, of_rows, pairs, a, b, c, workspace))
    assert len(device.bind_together(binds)) == len(binds)
    all_were_ahead(compilations)
    assert FAMILIES[dtype] <= files(compilations.loaded)


def all_were_ahead(compilations: Compilations) -> None:
    """Neither too little was compiled ahead nor too much, and nothing twice."""
    assert not files(compilations.late)
    assert sorted(compilations.ahead) == sorted(compilations.loaded)
