"""Arrays without values against NumPy: shapes, views or copies, and the memory of products."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from tnplan.executor.bond_limited.dry_run import ShapeLibrary, StepWork


def arrays(shape: tuple[int, ...], dtype: Any = np.float64) -> tuple[np.ndarray, Any, StepWork]:
    work = StepWork()
    return np.zeros(shape, dtype), ShapeLibrary(work).array(shape, dtype), work


@pytest.mark.parametrize("seed", range(200))
def test_reshaped_arrays_are_views_where_those_of_numpy_are(seed: int) -> None:
    random = np.random.default_rng(seed)
    values, shapes, work = arrays(tuple(random.integers(1, 5, random.integers(1, 5)).tolist()))
    order = random.permutation(values.ndim).tolist()
    values, shapes = values.transpose(order), shapes.transpose(order)
    if seed % 2:  # some axes joined, or all divided anew
        parts = np.sort(random.integers(0, values.ndim + 1, 2))
        wanted = [*values.shape[: parts[0]], -1, *values.shape[parts[1] :]]
    else:
        wanted = [*values.shape[:-1], *((2, -1) if values.shape[-1] % 2 == 0 else (1, -1))]
    before = work.live_bytes
    reshaped, found = values.reshape(wanted), shapes.reshape(*wanted)
    assert found.shape == reshaped.shape
    assert (work.live_bytes > before) != np.shares_memory(values, reshaped)
    is_contiguous = values.flags.c_contiguous
    assert (shapes.contiguous() is shapes) == is_contiguous


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("axes", [(0, 0), (1, 2), (2, 0), (2, 2)])
def test_products_take_the_memory_of_numpy(dtype: str, axes: tuple[int, int]) -> None:
    values, shapes, work = arrays((40, 40, 40), dtype)
    library: Any = ShapeLibrary(work)
    other = np.zeros((40, 40, 40), dtype)
    of_shapes = library.array(other.shape, dtype)
    before = work.peak_bytes = work.live_bytes
    tracemalloc.start()
    try:
        product = np.tensordot(values, other, axes)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    found = library.tensordot(shapes, of_shapes, axes)
    assert found.shape == product.shape
    assert work.peak_bytes - before == pytest.approx(peak_bytes, rel=1e-3)
    del found, of_shapes
    assert work.live_bytes == shapes.size * shapes.dtype.itemsize


def test_what_nobody_names_is_free_again() -> None:
    _, shapes, work = arrays((10, 10))
    view = shapes.T
    del shapes
    assert work.live_bytes == 800
    del view
    assert (work.live_bytes, work.peak_bytes) == (0, 800)
