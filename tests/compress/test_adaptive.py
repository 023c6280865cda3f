"""The adaptive coder of residuals: what it writes it reads, how small that is, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.kernels.smooth_arrays import smooth_array
from tnplan.compress import StreamError, compress, decompress
from tnplan.compress.cpu import adaptive, rans
from tnplan.compress.format.bit_tiling import TILE
from tnplan.compress.format.stream import VERSION

N_TILES = 3
ROOM = 1 << 20
LARGEST, LEAST = 2**31 - 1, -(2**31)


def restored(data: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """What the coder reads."""
    out = np.full(shape, -1, np.int32)
    adaptive.decode(np.frombuffer(data, np.uint8), out, "test")
    return out


def sparse_numbers(components: int, share: float, scale: float, seed: int) -> np.ndarray:
    """Whole numbers, of which such a share is not 0, in clusters."""
    r = np.random.default_rng(seed)
    near = np.repeat(r.random((components, N_TILES * TILE // 64)) < 2 * share, 64, axis=1)
    drawn = np.rint(r.laplace(size=near.shape) * scale) + r.choice((-1, 1), near.shape)
    return np.where(near & (r.random(near.shape) < 0.5), np.clip(drawn, -1e9, 1e9), 0).astype(np.int32)


@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize("scale", [0.0, 0.4, 3.0, 40.0, 3000.0, 1e8])
def test_numbers_of_every_size_come_back(scale: float, components: int) -> None:
    for seed, share in enumerate((0.0, 0.001, 0.02, 0.1)):
        q = sparse_numbers(components, share, scale, seed)
        data = adaptive.encode(q, ROOM)
        assert data is not None
        np.testing.assert_array_equal(restored(data, q.shape), q)


@pytest.mark.parametrize("number", [1, -1, 2, -3, 17, 65537, -(1 << 20), LARGEST, LEAST + 1, LEAST])
@pytest.mark.parametrize("place", [0, 31, 32, 63, 64, 2048, TILE - 1, 2 * TILE + 77, N_TILES * TILE - 1])
def test_a_lone_number_among_zeros_comes_back(place: int, number: int) -> None:
    q = np.zeros((1, N_TILES * TILE), np.int32)
    q[0, place] = number
    data = adaptive.encode(q, ROOM)
    assert data is not None
    assert len(data) < 40
    np.testing.assert_array_equal(restored(data, q.shape), q)


def test_carries_go_through_many_full_words() -> None:
    # Long runs of likely decisions, and unlikely ones between them, move the end of the interval beyond words
    # of ones: among so many streams some carry through several.
    r = np.random.default_rng(5)
    for _ in range(200):
        q = np.where(r.random((1, TILE)) < 0.02, r.integers(LEAST, LARGEST, (1, TILE)), 0).astype(np.int32)
        data = adaptive.encode(q, ROOM)
        assert data is not None
        np.testing.assert_array_equal(restored(data, q.shape), q)


def test_clusters_take_less_than_by_tables() -> None:
    q = sparse_numbers(1, 0.02, 1.0, 7)
    data, other = adaptive.encode(q, ROOM), rans.encode(q, ROOM, residuals=True)
    assert data is not None
    assert other is not None
    assert len(data) < 0.8 * len(other)


def test_dense_numbers_and_those_that_do_not_fit_are_left_to_others() -> None:
    dense = np.random.default_rng(1).integers(-9, 9, (1, TILE)).astype(np.int32)
    assert adaptive.encode(dense, ROOM) is None
    sparse = sparse_numbers(1, 0.1, 1e8, 2)
    data = adaptive.encode(sparse, ROOM)
    assert data is not None
    assert adaptive.encode(sparse, len(data) - 2) is None
    assert adaptive.encode(sparse, len(data)) == data


def test_changed_bytes_are_refused_or_read_as_other_numbers() -> None:
    q = sparse_numbers(1, 0.05, 3.0, 4)
    data = adaptive.encode(q, ROOM)
    assert data is not None
    r, refused = np.random.default_rng(1), 0
    for at in r.integers(0, len(data), 200).tolist():
        damaged = bytearray(data)
        damaged[at] ^= int(r.integers(1, 256))
        try:
            restored(bytes(damaged), q.shape)
        except StreamError:
            refused += 1
    assert refused >= 100
    for cut in (data[:-2], data[:-1], data[: len(data) // 2], b"", data + bytes(2)):
        with pytest.raises(StreamError, match="test: is damaged"):
            restored(cut, q.shape)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_sparse_residuals_of_arrays_are_coded_so_and_keep_their_bound(dtype: str) -> None:
    array = smooth_array((90, 200), dtype, 3)
    packed = compress(array, 0.1, setting="small")
    assert packed.header.version == VERSION
    errors = np.abs((decompress(packed) - array).view(array.real.dtype))
    assert errors.max() <= 0.1 * max(np.ptp(array.real), np.ptp(array.imag))
