"""Arrays of other types and byte orders: every value is kept, or refused."""

from __future__ import annotations

import numpy as np
import pytest

from tnplan.compress.cpu.codec import encode
from tnplan.compress.format.errors import CodecError
from tnplan.compress.interface import compress, decompress

RANDOM = np.random.default_rng(5)
VALUES = RANDOM.standard_normal(3000)
SMALL = ("i1", "i2", "u1", "u2")


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">c8", ">c16", "<f2", ">f2"])
@pytest.mark.parametrize("bound", [0, 1e-3])
def test_other_byte_orders_and_halves(dtype: str, bound: float) -> None:
    array = (VALUES + (1j * VALUES[::-1] if "c" in dtype else 0)).astype(dtype).reshape(30, 100)
    back = decompress(compress(array, bound, mode="absolute"))
    assert back.dtype == ("float32" if dtype[1:] == "f2" else np.dtype(dtype).newbyteorder("="))
    assert back.dtype.isnative
    assert np.abs(back - array.astype(back.dtype)).max() <= bound * 2**0.5
    assert bound or np.array_equal(back, array)


@pytest.mark.parametrize("dtype", [*SMALL, "i4", "u4", "i8", "u8", ">i4", ">i8"])
def test_integers_are_kept_exactly(dtype: str) -> None:
    limits = np.iinfo(dtype)
    low, high = max(limits.min, -(2**53)), min(limits.max, 2**53)
    drawn = RANDOM.integers(low, high, 500, np.dtype(dtype).newbyteorder("="))
    array = np.array([low, high, 0, 1, *drawn], dtype)
    back = decompress(compress(array, 0))
    assert back.dtype == ("float32" if dtype in SMALL else "float64")
    assert back.astype(np.dtype(dtype).newbyteorder("=")).tolist() == array.tolist()
    with pytest.raises(CodecError, match="holds integers"):
        compress(array, 1e-3)


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, -(2**63)])
def test_an_integer_that_is_no_float_is_refused(value: int) -> None:
    with pytest.raises(CodecError, match=r"beyond 2\^53"):
        encode(np.array([value], np.int64), 0)
    with pytest.raises(CodecError, match=r"beyond 2\^53"):
        encode(np.array([2**64 - 1], np.uint64), 0)


@pytest.mark.parametrize("array", [np.array([True]), np.array(["a"]), np.array([None]), np.zeros(2, "M8[s]")])
def test_what_is_no_number_is_refused(array: np.ndarray) -> None:
    with pytest.raises(CodecError, match="has dtype"):
        compress(array, 0)
