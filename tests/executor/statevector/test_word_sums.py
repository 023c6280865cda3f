"""Sums of Pauli words on a CPU: their values and their products with a state, beside dense matrices."""

from __future__ import annotations

import numpy as np
import pytest

from tnplan.executor.statevector.cpu.state import HostState


def applied(words: list[tuple[int, int, complex]], state: np.ndarray) -> np.ndarray:
    """The sum of factor (-1)^|z & i| |i ^ x><i| times a state, complex256."""
    indices, found = np.arange(len(state)), np.zeros(len(state), np.clongdouble)
    for x, z, factor in words:
        found[indices ^ x] += factor * (1 - 2.0 * (np.bitwise_count(indices & z) & 1)) * state
    return found


def random_words(n_bits: int, count: int, seed: int, one_x: bool) -> list[tuple[int, int, complex]]:
    """Words of which some are equal and some have the same x; factors are real or imaginary, or both."""
    random = np.random.default_rng(seed)
    masks = random.integers(0, 1 << n_bits, (count, 2))
    if one_x:
        masks[:, 0] = random.choice(masks[:3, 0], count)
    masks[: count // 4] = masks[-(count // 4) :] if count >= 4 else masks[: count // 4]
    factors = random.normal(size=count) * random.choice([1, 1j, 1 + 0.5j], count)
    return [(int(x), int(z), complex(factor)) for (x, z), factor in zip(masks, factors, strict=True)]


@pytest.mark.parametrize("one_x", [False, True])
@pytest.mark.parametrize(("n_bits", "count"), [(1, 3), (3, 5), (6, 0), (6, 9), (7, 1), (13, 40)])
@pytest.mark.parametrize(("dtype", "rounding"), [("complex64", 1e-6), ("complex128", 1e-14)])
def test_against_dense_words(dtype: str, rounding: float, n_bits: int, count: int, one_x: bool) -> None:
    words = random_words(n_bits, count, n_bits + count, one_x)
    random = np.random.default_rng(1)
    amplitudes = random.normal(size=1 << n_bits) + 1j * random.normal(size=1 << n_bits)
    amplitudes = (amplitudes / np.linalg.norm(amplitudes)).astype(dtype)
    wanted = applied(words, amplitudes.astype(np.clongdouble))
    scale = max(1.0, sum(abs(factor) for _, _, factor in words))
    found = []
    for threads in (1, 2, 3):
        state = HostState(n_bits, dtype, threads)
        state.load(amplitudes)
        out = np.full(1 << n_bits, np.nan, dtype)
        state.write_pauli_sum(words, out)
        np.testing.assert_allclose(out, wanted.astype(dtype), rtol=0, atol=rounding * scale)
        found.append(state.pauli_sum(words))
    value = np.sum(amplitudes.astype(np.clongdouble).conj() * wanted)
    assert abs(found[0] - value) < rounding * scale
    assert found[0] == found[1] == found[2]
    assert abs(found[0] - sum(factor * state.pauli(x, z) for x, z, factor in words)) < 1e-13 * scale
