"""What a precision promises: its types and its error as a function of k. Pure arithmetic, no GPU.

dtype says how values are stored, precision how they are multiplied.
"""

from __future__ import annotations

from math import sqrt

SINGLE = ("float32", "complex64")
DOUBLE = ("float64", "complex128")
PRECISIONS = {"fp32": SINGLE, "tf32": SINGLE, "fp16x3": SINGLE, "fp64": DOUBLE}
"""The types of each precision."""


def supported(dtype: str) -> tuple[str, ...]:
    """The precisions of a type, the default first."""
    return tuple(name for name, dtypes in PRECISIONS.items() if dtype in dtypes)


def check_precision(precision: str, dtype: str) -> str:
    """The precision in which values of a type are multiplied: always fp64 for 64 bits a real number.

    Raises ValueError for a precision that there is not, or that the type does not have.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"there is no precision {precision!r}, only {', '.join(PRECISIONS)}")
    if dtype in DOUBLE:
        return "fp64"
    if dtype not in PRECISIONS[precision]:
        raise ValueError(f"values of type {dtype} cannot be multiplied in {precision}")
    return precision


BLOCK_REALS = 1024
"""fp16x3 sums at most so many products of real numbers on tensor cores before it adds to c in fp32."""


def expected_error(precision: str, k: int) -> float:
    """A bound that errors of a sum over k products keep in practice, relative to the sum of absolute values.

    |c - exact| <= expected_error |a| |b|, element by element. fp64, fp32: independent rounding errors grow as
    sqrt(k). tf32: both operands lose 13 bits, whatever k, and sums are fp32. fp16x3: tensor cores round every
    step towards zero, so that for operands of one sign errors grow as k until a block's end; others stay far
    below, and only operands whose numbers are all alike may come to more. fp16x3 also loses what is below
    2^-37 of the largest of its row (mma.cu, wgmma.cu), and in chains part of numbers below 2^-114.
    """
    if precision == "tf32":
        return 2.0**-9 + 2.0**-23 * k
    if precision == "fp16x3":
        return 1e-6 + 9e-6 * min(2 * k, BLOCK_REALS) / BLOCK_REALS
    unit = {"fp64": 2.0**-53, "fp32": 2.0**-24}[precision]
    return unit * (4 + sqrt(k))
