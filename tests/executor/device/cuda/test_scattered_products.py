"""The kernel of products whose results go to any place, emulated: fma.cu as `bind_scattered` launches it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.kernels.contract import shape_of
from tests.support.kernels.emulator import (
    ENTRY,
    Arrays,
    compiled,
    launched_by_addresses,
    needs_compiler,
    source,
)
from tests.support.kernels.exponent_emulator import EmulatedLaunch
from tests.support.slow import slow_unless
from tnplan.executor.device.cuda.contract import Product
from tnplan.executor.device.protocols.device import ContractShape

pytest.importorskip("cupy")

NO_DEVICE = -1
"""A number that no GPU has, so that none takes the emulated kernels for its own."""
STREAM = SimpleNamespace(ptr=0)


class EmulatedKernel:
    """A kernel with the number of its parameters."""

    def __init__(self, file: Path, entry: str, defines: dict[str, Any]) -> None:
        text = source(file)
        found = next(one for one in ENTRY.findall(text) if one[0] == entry)
        self.parameters = found[1].count(",") + 1
        library = compiled(text + launched_by_addresses(found), defines)
        self._call = getattr(library, f"emulated_{entry}")

    def __call__(self, blocks: int, threads: int, arguments: Any) -> None:
        assert len(arguments) == self.parameters
        self._call(blocks, threads, arguments)


@pytest.fixture
def scatter(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, for a device of one multiprocessor on the CPU."""
    from cupy.cuda import runtime

    from tnplan.executor.device.cuda.contract import scatter

    monkeypatch.setattr(runtime, "getDevice", lambda: NO_DEVICE)
    monkeypatch.setattr(scatter, "load_kernel", EmulatedKernel)
    monkeypatch.setattr(scatter, "BoundKernel", EmulatedLaunch)
    monkeypatch.setattr(scatter, "multiprocessors", lambda: 1)
    monkeypatch.setattr(
        scatter, "offset_tables",
        lambda part: tuple(table.view(Arrays) for table in scatter.two_level_offsets(part)),
    )  # fmt: skip
    return scatter


def product(scatter: Any, shape: ContractShape, dtype: str, shift: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel writes, and what is right; c begins `shift` elements after a multiple of 16 bytes."""
    rng, (n_batch, m, n, k) = np.random.default_rng(0), shape.sizes
    parts = [rng.normal(size=(2, n_batch, rows, k)) for rows in (m, n)]
    a, b = ((one[0] + 1j * one[1] if dtype == "complex64" else one[0]).astype(dtype) for one in parts)
    room = np.full(shift + n_batch * m * n + 4, np.nan, dtype)
    begin = -room.ctypes.data % 16 // room.itemsize + shift
    c = room[begin : begin + n_batch * m * n]
    given = [np.ascontiguousarray(one).ravel().view(Arrays) for one in (a, b)]
    scatter.bind_scattered(Product(shape, *given, c.view(Arrays), STREAM), "fp32")()
    outside = np.r_[room[:begin], room[begin + len(c) :]]
    assert np.isnan(outside).all()
    return c, np.einsum("bmk,bnk->bmn", a.astype("complex128"), b)


SIZES = [
    (3, 130, 66, 9), (2, 260, 68, 33), (5, 129, 8, 8), (3, 130, 16, 40), (2, 60, 12, 20), (2, 140, 32, 12),
    (2, 130, 24, 40), (7, 64, 64, 16), (66, 20, 40, 7), (1, 300, 270, 5),
]  # fmt: skip
"""Batch, m, n and k."""


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "few_tiles"),
    slow_unless(lambda dtype, few_tiles: dtype != few_tiles, ["float32", "complex64"], [0, 64]),
)
@pytest.mark.parametrize("size", SIZES)
def test_every_sum_is_written_to_its_place(
    scatter: Any, monkeypatch: pytest.MonkeyPatch, size: tuple[int, ...], dtype: str, few_tiles: int
) -> None:
    """By more tiles than blocks; each mode last in c, and m and n in parts; c at an odd place too."""
    monkeypatch.setattr(scatter, "FEW_TILES", few_tiles)
    batch, m, n, k = size
    for order, shift in (((0, 1, 2), 0), ((0, 2, 1), 0), ((1, 2, 0), 0), ((0, 2, 1), 1)):
        check(scatter, shape_of((batch,), (m,), (n,), k, order), order, dtype, shift)
    m_parts, n_parts = ((extent // 2, 2) if extent % 2 == 0 else (extent,) for extent in (m, n))
    order = (
        0,
        1,
        1 + len(m_parts),
        *range(2, 1 + len(m_parts)),
        *range(2 + len(m_parts), 1 + len(m_parts + n_parts)),
    )
    check(scatter, shape_of((batch,), m_parts, n_parts, k, order), order, dtype)


def check(scatter: Any, shape: ContractShape, order: tuple[int, ...], dtype: str, shift: int = 0) -> None:
    found, right = product(scatter, shape, dtype, shift)
    extents = [extent for extent, _ in (*shape.batch, *shape.m, *shape.n)]
    wanted = right.reshape(extents).transpose(order).ravel()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * shape.k)
