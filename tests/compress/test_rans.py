"""The coder `small` on whole numbers alone: what it writes, it reads."""

from __future__ import annotations

import numpy as np
import pytest

from tnplan.compress.cpu import rans
from tnplan.compress.format.bit_tiling import TILE
from tnplan.compress.format.errors import StreamError

N_TILES = 3
SCALES = (0.0, 0.02, 0.4, 3.0, 40.0, 3000.0, 1e9)


def numbers(components: int, scale: float, seed: int) -> np.ndarray:
    """Whole numbers (components, tiles * 4096), two-sided exponential; the largest where they are large."""
    generator = np.random.default_rng(seed)
    drawn = np.rint(generator.laplace(size=(components, N_TILES * TILE)) * scale)
    found = np.clip(drawn, -(2**31) + 2, 2**31 - 1).astype(np.int32)
    if scale > 1e8:
        found[:, 5], found[:, 77] = 2**31 - 1, -(2**31) + 2
    return found


def restored(data: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """What the coder reads."""
    out = np.full(shape, -1, np.int32)
    rans.decode(np.frombuffer(data, np.uint8), out, "test")
    return out


@pytest.mark.parametrize("residuals", [False, True])
@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize("scale", SCALES)
def test_numbers_of_every_size_come_back(scale: float, components: int, residuals: bool) -> None:
    q = numbers(components, scale, 3)
    data = rans.encode(q, 1 << 20, residuals)
    assert data is not None
    np.testing.assert_array_equal(restored(data, q.shape), q)


@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize("place", [0, 31, 32, 63, 2048, TILE - 1, TILE, 2 * TILE + 77])
def test_a_lone_number_among_zeros_comes_back(place: int, components: int) -> None:
    # The last component alone, so that real parts may take the short way and imaginary ones may not.
    q = np.zeros((components, N_TILES * TILE), np.int32)
    q[-1, place] = -12345
    data = rans.encode(q, 1 << 20, residuals=True)
    assert data is not None
    np.testing.assert_array_equal(restored(data, q.shape), q)


def test_a_changed_word_is_refused_or_read_as_other_numbers() -> None:
    q = numbers(1, 3.0, 4)
    data = rans.encode(q, 1 << 20)
    assert data is not None
    refused, generator = 0, np.random.default_rng(1)
    for at in generator.integers(len(data) // 2, len(data), 40).tolist():
        damaged = bytearray(data)
        damaged[at] ^= 0x55
        try:
            assert (restored(bytes(damaged), q.shape) != q).any()
        except StreamError:
            refused += 1
    assert refused >= 30


@pytest.mark.parametrize("n_tokens", [1, 2, 72])
def test_frequencies_add_to_their_total_and_keep_what_is_rare(n_tokens: int) -> None:
    generator = np.random.default_rng(n_tokens)
    counts = np.zeros((5, 72), np.int64)
    counts[:4, :n_tokens] = generator.integers(1, 50, (4, n_tokens))
    counts[1, 0], counts[2, n_tokens - 1] = 10**7, 10**7
    found = rans.normalized(counts)
    assert found.sum(axis=1).tolist() == [4096] * 4 + [0]
    assert ((found > 0) == (counts > 0)).all()
