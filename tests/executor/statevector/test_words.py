"""Pauli words between two states: groups of words on tiles, and the kernels of a GPU beside a plain sum."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from tests.support.kernels.gpus import needs_gpus
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.scheduling.qubit_cover import index_of
from tnplan.executor.statevector.scheduling.tiled_passes import word_groups


def random_words(n_bits: int, count: int, seed: int) -> list[tuple[int, int]]:
    """Some on one bit, some on many."""
    generator = np.random.default_rng(seed)
    words = [tuple(int(mask) for mask in generator.integers(0, 1 << n_bits, 2)) for _ in range(count)]
    return words + [(1 << bit, 1 << bit) for bit in range(n_bits)] + [(0, 1 << bit) for bit in range(n_bits)]


def random_state(n_bits: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    made = generator.normal(size=1 << n_bits) + 1j * generator.normal(size=1 << n_bits)
    return np.asarray(made / np.linalg.norm(made))


def plain_sum(a: np.ndarray, b: np.ndarray, x: int, z: int) -> complex:
    index = np.arange(len(a))
    return complex(((-1.0) ** np.bitwise_count(index & z) * b[index ^ x].conj() * a).sum())


@pytest.mark.parametrize(("tile_bits", "run_bits", "most"), [(5, 2, 64), (6, 3, 4), (9, 2, 64), (2, 2, 3)])
def test_words_of_a_group_stay_in_its_tiles(tile_bits: int, run_bits: int, most: int) -> None:
    words = random_words(9, 25, 0)
    groups = word_groups(words, 9, tile_bits, run_bits, most)
    assert sorted(number for group in groups for number in group.words) == list(range(len(words)))
    for group in groups:
        inside = index_of((1 << tile_bits) - 1, group.held_bits)
        assert len(group.held_bits) == tile_bits
        assert group.held_bits[:run_bits] == tuple(range(run_bits))
        assert 0 < len(group.words) <= most
        assert {words[number][0] & ~inside for number in group.words} == {group.far_x}
    assert word_groups([], 9, tile_bits, run_bits, most) == []


def test_a_layer_of_words_shares_tiles() -> None:
    groups = word_groups([(1 << bit, 1 << bit) for bit in range(30)], 30, 13, 4, 64)
    assert [len(group.words) for group in groups] == [13, 9, 8]
    assert len(word_groups([(0, 1 << bit) for bit in range(30)], 30, 13, 4, 64)) == 1


@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy")
def test_the_masks_of_tiles_are_those_of_the_kernel() -> None:
    """What words.cu does, in NumPy: tiles of one state at a time beside those of the other."""
    from tnplan.executor.statevector.cuda.words import word_structs

    n_bits, tile_bits = 8, 5
    words, a, b = random_words(n_bits, 20, 1), random_state(n_bits, 2), random_state(n_bits, 3)
    for group in word_groups(words, n_bits, tile_bits, 2, 64):
        far = [bit for bit in range(n_bits) if bit not in group.held_bits]
        local = np.arange(1 << tile_bits)
        found = np.zeros(len(group.words), np.complex128)
        structs = word_structs([words[number] for number in group.words], group.held_bits)
        for base in index_of(np.arange(1 << len(far)), far):
            places = base + index_of(local, group.held_bits)
            own, other = a[places], b[places ^ group.far_x]
            for k, (x, z, far_z) in enumerate(structs.tolist()):
                signs = (-1.0) ** (np.bitwise_count(local & z) + np.bitwise_count(np.int64(base & far_z)))
                found[k] += (signs * other[local ^ x].conj() * own).sum()
        wanted = [plain_sum(a, b, *words[number]) for number in group.words]
        np.testing.assert_allclose(found, wanted, atol=1e-14)


def both_states(device: str, n_bits: int, dtype: str) -> list:
    states = []
    for seed in (4, 5):
        if device == "gpu":
            from tnplan.executor.statevector.cuda.state import CupyState

            states.append(CupyState(n_bits, dtype))
        else:
            states.append(HostState(n_bits, dtype))
        states[-1].load(random_state(n_bits, seed).astype(dtype))
    return states


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=needs_gpus(1))])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("n_bits", [3, 6, 15])
def test_sums_and_added_words_on_a_device(device: str, dtype: str, n_bits: int) -> None:
    own, other = both_states(device, n_bits, dtype)
    a, b = (state.to_host().astype(np.complex128).copy() for state in (own, other))
    words = random_words(n_bits, 90, 6)
    rounding = 1e-6 if dtype == "complex64" else 1e-14
    wanted = [plain_sum(a, b, x, z) for x, z in words]
    np.testing.assert_allclose(own.between(other, words)(), wanted, atol=rounding)
    index = np.arange(1 << n_bits)
    for x, z in words[:3]:
        own.add_word(other, x, z, 0.3 - 0.2j)
        a += (0.3 - 0.2j) * (-1.0) ** np.bitwise_count(z & (index ^ x)) * b[index ^ x]
    np.testing.assert_allclose(own.to_host(), a, atol=rounding)
    twin = own.twin()
    assert not twin.to_host().any()
    twin.assign(own)
    np.testing.assert_array_equal(twin.to_host(), own.to_host())


@needs_gpus(1)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_state_and_words_of_it_in_turn(dtype: str) -> None:
    import cupy

    from tnplan.executor.statevector.cuda.words import join

    a, index = random_state(9, 7), np.arange(1 << 9)
    words = [(x, z, 0.4 + 0.1j * k) for k, (x, z) in enumerate(random_words(9, 3, 8))]
    both = cupy.empty(1 << 10, dtype)
    join(both, cupy.asarray(a.astype(dtype)), words)
    wanted = sum(
        factor * (-1.0) ** np.bitwise_count(z & (index ^ x)) * a[index ^ x] for x, z, factor in words
    )
    rounding = 1e-6 if dtype == "complex64" else 1e-14
    np.testing.assert_allclose(both.get()[0::2], a, atol=rounding)
    np.testing.assert_allclose(both.get()[1::2], wanted, atol=rounding)
