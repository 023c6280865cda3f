"""Families of determinants: what closures make of one of them, and the largest families of a list."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.engines.sbd_growth import every_determinant, keys_of
from tnplan.executor.sbd.selected_ci.spin_families import Closure, SpinFamilies

N = 5
CASES = [
    (closure, counts, words)
    for closure, counts, words in product(Closure, ((2, 2), (3, 1), (1, 3), (5, 2), (2, 0)), (1, 2))
    # Flips need as many spins up as down; strings that are there twice have other shells.
    if (closure is not Closure.FLIPS or counts[0] == counts[1])
    and (closure is not Closure.PLACEMENTS or words == 1)
]


def kin(closure: Closure, one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two determinants are of one family."""
    if closure is Closure.FLIPS:
        return other in (one, one[::-1])
    if closure is Closure.PLACEMENTS:
        return (one[0] & one[1], one[0] ^ one[1]) == (other[0] & other[1], other[0] ^ other[1])
    return one == other


def wide(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The same determinants with their strings in the second of two words, and again in the first."""
    return np.concatenate([keys[:, :1], keys[:, :1], keys[:, 1:], keys[:, 1:]], 1)


@pytest.mark.parametrize(("closure", "counts", "words"), CASES)
def test_families_are_those_of_all_determinants(
    closure: Closure, counts: tuple[int, int], words: int
) -> None:
    every = every_determinant(N, counts)
    keys = keys_of(every) if words == 1 else wide(keys_of(every))
    families = SpinFamilies(closure, counts[0])
    names = families.names(keys)
    sizes = families.counts(names)
    for at, one in enumerate(every):
        expected = [number for number, other in enumerate(every) if kin(closure, one, other)]
        assert np.flatnonzero((names == names[at]).all(1)).tolist() == expected
        assert sizes[at] == len(expected)
        closed = families.closed(keys[at : at + 1])
        assert sorted(map(tuple, closed.tolist())) == sorted(map(tuple, keys[expected].tolist()))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("closure", Closure)
def test_the_largest_families_are_whole(closure: Closure, seed: int) -> None:
    chance = np.random.default_rng(seed)
    every = every_determinant(N, (2, 2))
    keys, families = keys_of(every), SpinFamilies(closure, 2)
    names = families.names(keys)
    sizes, most = chance.random(len(keys)), int(chance.integers(0, len(keys) + 5))
    chosen, is_all = families.largest(keys, sizes, most)
    assert chosen.sum() <= most
    assert is_all == chosen.all()
    groups: dict[bytes, list[int]] = {}
    for at, name in enumerate(names):
        groups.setdefault(name.tobytes(), []).append(at)
    falling = sorted(groups.values(), key=lambda group: -sizes[group].max())
    expected: list[int] = []
    for group in falling:
        if len(expected) + len(group) > most:
            break
        expected += group
    assert sorted(expected) == np.flatnonzero(chosen).tolist()


def test_nothing_has_no_families() -> None:
    chosen, is_all = SpinFamilies(Closure.FLIPS, 2).largest(np.empty((0, 2), np.uint64), np.empty(0), 3)
    assert (len(chosen), is_all) == (0, True)
