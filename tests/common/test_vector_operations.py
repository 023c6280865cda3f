"""Every operation of `vector_operations` gives what its plain loop gives."""

from __future__ import annotations

import copy
from typing import Any

import numba
import numpy as np
import pytest

from tests.support.kernels.plain_operations import (
    CALLS,
    driver,
    operands_of,
    plain_operations,
    sum_signed_products,
)
from tnplan.common.kernels import vector_operations
from tnplan.common.kernels.bits_kernel import count_bits
from tnplan.common.kernels.kernel import kernel

jit = kernel(nogil=True, error_model="numpy", fastmath={"contract"})
sum_signed_products_of_vectors = vector_operations.sum_signed_products
prefetch, unowned_views = vector_operations.prefetch, vector_operations.unowned_views
load_acquire, store_release = vector_operations.load_acquire, vector_operations.store_release
vector_at, columns_at = vector_operations.vector_at, vector_operations.columns_at
EPSILONS = 64
"""Roundings of the largest number that sums of so few products may differ by."""


def arrays_in(operands: Any) -> list[np.ndarray]:
    if isinstance(operands, np.ndarray):
        return [operands]
    return (
        [array for entry in operands for array in arrays_in(entry)]
        if isinstance(operands, (list, tuple))
        else []
    )


def is_close(got: Any, wanted: Any, dtype: str) -> bool:
    size = max(1.0, float(np.max(np.abs(wanted))))
    return bool(np.max(np.abs(got - wanted)) <= EPSILONS * np.finfo(dtype).eps * size)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CALLS)
def test_an_operation_is_its_plain_loop(name: str, dtype: str) -> None:
    lanes = vector_operations.VECTOR_BYTES // np.dtype(dtype).itemsize
    plain = plain_operations(lanes)
    if name not in plain:
        pytest.skip("vectors of float64 have three bits of a lane")
    operation = getattr(vector_operations, name.partition(" ")[0]).value
    operands = operands_of(dtype, len(name))
    before, by_loops = copy.deepcopy(operands), copy.deepcopy(operands)
    driver(CALLS[name], operation, lanes, 1)(*operands)
    driver(CALLS[name], plain[name], lanes, 1).py_func(*by_loops)  # type: ignore[attr-defined]
    results = list(zip(arrays_in(operands), arrays_in(by_loops), arrays_in(before), strict=True))
    assert any(not np.array_equal(wanted, old) for _, wanted, old in results)
    for got, wanted, _ in results:
        assert is_close(got, wanted, dtype)


def test_every_operation_on_vectors_has_a_plain_loop() -> None:
    operations = {
        name for name, value in vars(vector_operations).items()
        if isinstance(value, vector_operations.Late) and not name.startswith("_")
    }  # fmt: skip
    others = {
        "sum_signed_products", "prefetch", "load_acquire", "store_release", "vector_at", "columns_at",
        "yield_processor",
        # Of integers: tests/questions/combinatorial/test_tables.py.
        "lowered", "copy_least", "relax", "relax_reversed", *(f"relax_lane_bit_{bit}" for bit in range(6)),
    }  # fmt: skip
    assert operations == {name.partition(" ")[0] for name in CALLS} | others


@jit
def summed(weights: Any, values: Any, entries: Any, first: int, middle: int, last: int) -> Any:
    return np.float64(sum_signed_products_of_vectors(weights, values, entries, first, middle, last))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("middle", [3, 20, 37])
def test_products_of_a_sparse_row_are_their_sum(dtype: str, middle: int) -> None:
    draw = np.random.default_rng(middle)
    bytes_of_rows = np.zeros(2 * 64 * 128 + 128, np.uint8)
    begin = -bytes_of_rows.ctypes.data % 64
    rows = bytes_of_rows[begin : begin + 64 * 16 * np.dtype(dtype).itemsize].view(dtype).reshape(64, 16)
    rows[:] = draw.standard_normal(rows.shape)
    entries = draw.integers(0, 32, (40, 2)).astype(np.int32)
    weights, values = rows[:32], rows[32:]
    wanted = sum_signed_products(weights, values, entries, 3, middle, 37)
    assert wanted != 0
    assert is_close(summed(weights, values, entries, 3, middle, 37), wanted, dtype)


@jit
def counted(words: Any, out: Any) -> None:
    for k in range(words.size):
        out[k] = count_bits(words[k])


def test_bits_are_counted() -> None:
    draw = np.random.default_rng(5)
    edges = np.array([0, 1, 1 << 63, 2**64 - 1], np.uint64)
    words = np.concatenate([draw.integers(0, 2**64, 1000, np.uint64), edges])
    out = np.empty(words.size, np.int64)
    counted(words, out)
    assert out.tolist() == [word.bit_count() for word in words.tolist()]


@jit
def gathered(numbers: Any, places: Any) -> Any:
    for k in range(places.size):
        prefetch(numbers, places[k])
    total = 0.0
    for k in range(places.size):
        total += numbers[places[k]]
    return total


def test_what_is_asked_for_ahead_stays_as_it_is() -> None:
    numbers = np.random.default_rng(6).integers(0, 100, 1000).astype(np.float64)
    places = np.arange(0, 1000, 7)
    before = numbers.copy()
    assert gathered(numbers, places) == before[::7].sum()
    assert np.array_equal(numbers, before)


@jit
def handed_over(words: Any, numbers: Any) -> Any:
    """Writes where the other half reads; alone, it reads what it wrote."""
    numbers[0] = 7
    store_release(words, 1, load_acquire(words, 0) + 1)
    return load_acquire(words, 1) + numbers[0]


def test_words_between_threads_are_read_as_they_were_written() -> None:
    words = np.array([41, 0])
    assert handed_over(words, np.zeros(1, np.int64)) == 49
    assert words.tolist() == [41, 42]


@jit
def by_address(vector: int, n: int, table: int, width: int) -> Any:
    total = 0.0
    numbers, columns = vector_at(vector, n, np.float64), columns_at(table, n, width, np.uint64)
    for k in range(n):
        for w in range(columns.shape[1]):
            total += numbers[k] * np.float64(columns[k, w])
        numbers[k] = k
    return total


def test_arrays_are_made_of_addresses() -> None:
    numbers, table = np.arange(5.0) + 1, np.asfortranarray(np.arange(15, dtype=np.uint64).reshape(5, 3))
    wanted = float((numbers[:, None] * table).sum())
    assert by_address(numbers.ctypes.data, 5, table.ctypes.data, 3) == wanted
    assert numbers.tolist() == [0, 1, 2, 3, 4]


def test_an_unowned_view_is_the_array() -> None:
    unowned = unowned_views()

    @numba.njit
    def doubled(numbers: Any) -> int:
        view = unowned(numbers)
        for k in range(view.size):
            view[k] *= 2
        return int(view.shape[0])

    numbers = np.arange(6)[::2].copy()
    assert doubled(numbers) == 3
    assert numbers.tolist() == [0, 4, 8]
