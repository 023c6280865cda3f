"""Memory that threads keep: who shares it, and that no result does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tests.support.kernels.smooth_arrays import smooth_array
from tnplan.compress import compress, decompress
from tnplan.compress.cpu.workspace import MOST_KEPT_BYTES, workspace


def test_a_name_has_the_same_memory_in_one_thread_alone() -> None:
    first, other = workspace("a", (40, 3), np.int32), workspace("b", (40, 3), np.int32)
    again = workspace("a", (7,), np.float64)
    with ThreadPoolExecutor(1) as threads:
        elsewhere = threads.submit(workspace, "a", (40, 3), np.int32).result()
    assert (again.shape, again.dtype) == ((7,), np.float64)
    assert np.shares_memory(first, again)
    assert not np.shares_memory(first, other)
    assert not np.shares_memory(first, elsewhere)


def test_larger_arrays_are_not_kept() -> None:
    shape = (MOST_KEPT_BYTES + 1,)
    assert not np.shares_memory(workspace("large", shape, np.uint8), workspace("large", shape, np.uint8))


def test_arrays_of_one_thread_and_of_many_become_the_same_streams_and_come_back() -> None:
    shapes = (37, 41, 13), (200, 170), (3, 60, 71), (12_000,), (2, 9, 8, 7, 11)
    arrays = [smooth_array(shape, kind, 71) for shape in shapes for kind in ("float32", "complex64")]
    alone = [compress(array, 1e-4, setting="small").data for array in arrays]
    before = [decompress(data) for data in alone]
    copies = [array.copy() for array in before]
    with ThreadPoolExecutor(4) as threads:
        many = list(threads.map(lambda array: compress(array, 1e-4, setting="small").data, arrays * 3))
    assert many == alone * 3
    for array, copy in zip(before, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
