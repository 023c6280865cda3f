"""The kernel of sums over axes, emulated: sums of one thread, of a warp and of a block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.kernels.emulator import EmulatedKernels, needs_compiler, source
from tests.support.root import ROOT

KERNEL = ROOT / "tnplan" / "executor" / "device" / "cuda" / "copy" / "sum.cu"


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("lanes", [1, 32, 256])
def test_sums_of_rows_and_columns(dtype: str, lanes: int) -> None:
    """The middle and the last axis are summed; sums are no multiple of those of a block."""
    permute: Any = pytest.importorskip("tnplan.executor.device.cuda.copy.permute")
    generator = np.random.default_rng(1)
    values = generator.normal(size=(11, 37, 3)) + 1j * generator.normal(size=(11, 37, 3))
    given = np.ascontiguousarray((values if dtype.startswith("c") else values.real).astype(dtype))
    assert lanes in (1, permute.WARP, permute.SUM_THREADS)
    kernels = EmulatedKernels(source(KERNEL), permute.sum_defines(np.dtype(dtype), lanes))
    lengths = 11, 1, 37, 3
    starts = [np.arange(11) * 111, np.zeros(1), np.arange(37) * 3, np.arange(3)]
    found = np.full(11, np.nan, dtype)
    kernels(
        "sum_axes", (2, 1), permute.SUM_THREADS, found, given, np.concatenate(starts).astype(np.uint64),
        *map(np.uint32, lengths),
    )  # fmt: skip
    np.testing.assert_allclose(found, given.astype(complex).sum(axis=(1, 2)), rtol=1e-5, atol=1e-5)
