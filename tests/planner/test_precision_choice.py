"""Which precision the planner gives a product: the most exact of those allowed that costs no time."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from tests.support.networks import window
from tnplan.planner.hardware.profile import Profile, load_profile
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.schedule.schedule import Contract


def profile(memory_bytes_per_s: float, **rates: float) -> Profile:
    """A machine without chains, whose products in complex64 have these peak rates."""
    return replace(
        load_profile("h200-nvlink"), memory_bytes_per_s=memory_bytes_per_s, fused_bytes=0,
        flop_per_s={"complex64": rates}, gemm_curves={}, scattered_curves={},
    )  # fmt: skip


def taken(machine: Profile, precision: str) -> set[str]:
    schedule = plan(window(4, 12), machine, memory_bytes=inf, precision=precision)
    return {item.precision for item in schedule.once if isinstance(item, Contract)}


def test_a_product_bound_by_memory_is_exact() -> None:
    rates = {"fp32": 50e12, "fp16x3": 100e12}
    assert taken(profile(4e12, **rates), "fp16x3") == {"fp32"}
    assert taken(profile(1e18, **rates), "fp16x3") == {"fp16x3"}


@pytest.mark.parametrize(
    ("asked", "tf32", "expected"),
    [
        ("tf32", 80e12, "fp16x3"),
        ("tf32", 104e12, "fp16x3"),
        ("tf32", 106e12, "tf32"),
        ("fp16x3", 900e12, "fp16x3"),
    ],
)
def test_a_product_takes_the_most_exact_precision_that_costs_no_time(
    asked: str, tf32: float, expected: str
) -> None:
    assert taken(profile(1e18, fp32=50e12, fp16x3=100e12, tf32=tf32), asked) == {expected}
