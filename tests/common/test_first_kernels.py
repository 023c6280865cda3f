"""How many kernels a first call compiles: each takes 0.1 to 3 s where caches are empty."""

from __future__ import annotations

import gc

import pytest

from tests.support.first_call import kernels_of_a_first_call
from tnplan.common.kernels.kernel import no_garbage_search

COMPRESS = """
from tnplan.compress import compress, decompress
values = np.sin(np.arange(1 << 16))
assert np.abs(decompress(compress(values, 1e-3)) - values).max() <= 2e-3
"""
DIAGONALIZE = """
hopping = np.random.default_rng(0).normal(size=(6, 6))
integrals = tnplan.from_arrays(hopping + hopping.T, np.zeros((6, 6, 6, 6)), 3, 3)
strings = [bits for bits in range(64) if bits.bit_count() == 3]
tnplan.diagonalize(integrals, strings, device="cpu")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("call", "count"), [(COMPRESS, 12), (DIAGONALIZE, 11)])
def test_a_first_call_has_few_kernels(call: str, count: int) -> None:
    names = kernels_of_a_first_call(call)
    assert len(names) == count, names
    assert len(set(names)) >= count - 1, "the same kernel for several types"


@pytest.mark.parametrize("searches", [True, False])
def test_searches_for_garbage_are_afterwards_what_they_were(searches: bool) -> None:
    assert gc.isenabled()
    try:
        if not searches:
            gc.disable()
        with no_garbage_search():
            assert not gc.isenabled()
        assert gc.isenabled() == searches
    finally:
        gc.enable()
