"""What is compiled ahead is what compression calls."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.kernels.samples import check_called, forget
from tnplan.compress import compress, decompress
from tnplan.compress.cpu.kernel_samples import CODING


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_compressions_call_what_samples_say(dtype: str) -> None:
    samples = [sample for kind in CODING for sample in kind.all()]
    forget(samples)
    for length in (1, 40):  # numbers as they are, and residuals
        wave = np.exp(1j * np.arange(1 << 14) / length)
        values = (wave if np.dtype(dtype).kind == "c" else wave.real).astype(dtype)
        decompress(compress(values, 1e-3))
    check_called(samples)


def test_subnormal_numbers_are_kept() -> None:
    values = np.linspace(0, 1e-310, 1 << 14)
    assert np.abs(decompress(compress(values, 1e-313, mode="absolute")) - values).max() <= 1e-313
