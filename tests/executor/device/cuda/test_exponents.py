"""Exponents of two: one body for the CPU, the kernels of a GPU on the CPU, and a GPU where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.contraction.copy import random_values
from tests.support.kernels.exponent_emulator import OR_EMULATED, opened_or_emulated
from tnplan.planner.networks.contraction_path import DTYPES

SMALL, LARGE = 1000, 40_003
"""Elements of a tensor that one block scales, and of one that takes several kernels."""


@pytest.fixture(params=OR_EMULATED)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with opened_or_emulated(request.param, monkeypatch) as made:
        yield made


def placed(device: Any, *arrays: np.ndarray) -> list[Any]:
    """Views that hold these arrays."""
    starts = np.cumsum([0, *(-(-array.nbytes // 256) * 256 for array in arrays)])
    device.allocate(int(starts[-1]) + 256)
    views = []
    for start, array in zip(starts.tolist(), arrays, strict=False):
        views.append(device.view(start, array.size, array.dtype.name))
        device.from_host(views[-1], array)
    return views


def do(device: Any, call: Any) -> None:
    """Call, and wait: a call that is dropped gives back memory that its kernels read."""
    call()
    device.synchronize()


def values(count: int, dtype: str, power: int = 0, seed: int = 0) -> np.ndarray:
    """Values whose largest part is below 2^power."""
    made = random_values(np.random.default_rng(seed), count, dtype)
    reals = made.view(made.real.dtype)
    return np.ldexp(reals, power - np.frexp(np.abs(reals).max())[1]).view(made.dtype)


def total(exponents: Any, slots: list[int]) -> int:
    """The sum of slots."""
    send, total = exponents.bind_total(slots)
    send()
    return int(total())


def power_of(array: np.ndarray) -> int:
    return int(np.frexp(np.abs(array.view(array.real.dtype)).max())[1])


def lowest(dtype: str) -> int:
    """The power of the smallest normal number."""
    return int(np.finfo(dtype).minexp)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 31, SMALL, LARGE])
def test_tensors_are_scaled_to_one(device: Any, dtype: str, count: int) -> None:
    """Also numbers below the normal ones, and ones at the range's end."""
    for power in (0, 7, -9, lowest(dtype) - 5, -lowest(dtype) + 1):
        array = values(count, dtype, power)
        wanted = np.ldexp(array.view(array.real.dtype), -power)
        [view] = placed(device, array)
        exponents = device.exponents(3, dtype)
        do(device, exponents.bind_normalize([view], [1]))
        found = device.to_host(view)
        assert np.array_equal(found.view(found.real.dtype), wanted)
        assert 0.5 <= np.abs(wanted).max() < 1
        assert total(exponents, [1]) == power


def test_many_tensors_have_slots_of_their_own(device: Any) -> None:
    powers = [3, -20, 0, 90, -100]
    arrays = [
        values(count, "complex64", power)
        for count, power in zip([1, 64, LARGE, 700, LARGE], powers, strict=True)
    ]
    views = placed(device, *arrays)
    exponents = device.exponents(5, "complex64")
    do(device, exponents.bind_normalize(views, [4, 3, 2, 1, 0]))
    assert [total(exponents, [slot]) for slot in (4, 3, 2, 1, 0)] == powers
    assert total(exponents, [0, 1, 3, 3]) == -100 + 90 - 40
    for view in views:
        assert power_of(device.to_host(view)) == 0


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize(("power", "left"), [(12, 12), (-12, -12), (13, 0), (-13, 0)])
def test_what_is_tolerated_stays(device: Any, dtype: str, power: int, left: int) -> None:
    array = values(LARGE, dtype, power)
    [view] = placed(device, array)
    exponents = device.exponents(1, dtype)
    do(device, exponents.bind_normalize([view], [0], 12))
    assert power_of(device.to_host(view)) == left
    assert total(exponents, [0]) == power - left


@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan, 0.0])
def test_zeros_and_what_is_not_finite_stay(device: Any, count: int, odd: float) -> None:
    array = np.zeros(count, "complex64")
    array[count // 2] = complex(0.0, odd)
    [view] = placed(device, array)
    exponents = device.exponents(2, "complex64")
    call = exponents.bind_normalize([view], [0])
    for _ in range(2):
        call()
        assert np.array_equal(device.to_host(view), array, equal_nan=True)
        assert total(exponents, [0]) == 0


def set_slot(device: Any, exponents: Any, view: Any, slot: int, power: int | None) -> None:
    """Make a slot that of a tensor of one element; None: of zero."""
    array = np.zeros(1, device.to_host(view).dtype)
    array[0] = 0.0 if power is None else 2.0 ** (power - 1)
    device.from_host(view, array)
    do(device, exponents.bind_normalize([view], [slot]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, SMALL, LARGE])
def test_terms_of_all_sizes_are_added(device: Any, dtype: str, count: int) -> None:
    """The sum is that of the exact terms, to the precision of the largest. Terms stay as they are."""
    target, source, one = placed(device, values(count, dtype), values(count, dtype), np.ones(1, dtype))
    exponents = device.exponents(4, dtype)
    add = exponents.bind_accumulate(target, source, 3, [1, 2])
    for _ in range(2):
        exponents.bind_clear(3)()
        device.zero(target)
        exact, level = np.zeros(count, complex), -240
        for seed, power in enumerate((-240, 0, 80, -80, None, 3, 80, 200, -240)):
            own = seed % 3 - 7
            term = values(count, dtype, own, seed) * np.array(power is not None, dtype)
            device.from_host(source, term)
            set_slot(device, exponents, one, 1, None if power is None else power // 2)
            set_slot(device, exponents, one, 2, None if power is None else power - power // 2)
            add()
            assert np.array_equal(device.to_host(source), term)
            if power is not None:
                new = power + own if seed == 0 else max(level, power + own)
                exact = exact * 2.0 ** (level - new) + term * 2.0 ** (power - new)
                level = new
            assert total(exponents, [3]) == level
            limit = 8 * np.finfo(dtype).eps * np.abs(exact).max()
            assert np.abs(device.to_host(target) - exact).max() <= limit


@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize(("present", "added"), [(5, 5), (30, -20), (-20, 30), (None, 9), (9, None)])
def test_a_call_that_adds_finds_its_factor_scaled(
    device: Any, count: int, present: int | None, added: int | None
) -> None:
    """The factor is as before afterwards."""
    dtype = "complex64"
    held, factor = values(count, dtype, 0, 1) * (present is not None), values(count, dtype, 0, 2)
    target, view, one = placed(device, held.astype(dtype), factor, np.ones(1, dtype))
    exponents = device.exponents(2, dtype)
    set_slot(device, exponents, one, 0, present)
    set_slot(device, exponents, one, 1, added)
    do(device, exponents.bind_aligned(target, view, 0, [1], device.bind_accumulate(target, view)))
    assert np.array_equal(device.to_host(view), factor)
    level = total(exponents, [0])
    assert level == max(power for power in (present, added) if power is not None)
    if added is not None:
        wanted = factor * 2.0 ** (added - level) + held * 2.0 ** ((present or level) - level)
        np.testing.assert_allclose(device.to_host(target), wanted, rtol=0, atol=1e-6)
