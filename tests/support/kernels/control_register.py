"""How the processor treats floating-point numbers in this thread."""

from __future__ import annotations

import ctypes
import platform

import numpy as np
import pytest

PLACES = {"x86_64": (28, 0xFFC0), "aarch64": (0, 0xFFFFFFFF)}
"""Where glibc's fenv_t has the register (MXCSR, FPCR), and its bits but for exceptions that were met."""


def control_register() -> int:
    """The bits for rounding, exceptions that trap, and subnormal numbers; skips the test where not known."""
    libm = ctypes.CDLL(None)
    if platform.machine() not in PLACES or not hasattr(libm, "fegetenv"):
        pytest.skip(f"the place of the register is not known on {platform.machine()}")
    offset, bits = PLACES[platform.machine()]
    environment = (ctypes.c_uint8 * 64)()
    assert libm.fegetenv(environment) == 0
    return int.from_bytes(environment[offset : offset + 4], "little") & bits


def flushed(values: np.ndarray) -> np.ndarray:
    """Real numbers, or real and imaginary parts, with 0 of the same sign for those that are subnormal."""
    reals = values.view(values.real.dtype)
    is_subnormal = np.abs(reals) < np.finfo(reals.dtype).tiny
    return np.where(is_subnormal, np.copysign(0, reals), reals).view(values.dtype)


def n_subnormal(values: np.ndarray) -> int:
    """How many real numbers, or real and imaginary parts, are subnormal."""
    return int(np.count_nonzero(flushed(values).view(values.real.dtype) != values.view(values.real.dtype)))
