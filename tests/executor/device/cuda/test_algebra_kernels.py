"""Kernels of algebras on a CPU: products, sums and adding copies equal those of the algebra."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest

from tests.support.contraction.algebras import PRIMES, make, values
from tests.support.kernels.emulator import EmulatedKernels, needs_compiler, source
from tests.support.slow import slow_after
from tnplan.executor.device.cpu.algebra import Algebra, Tropical, algebra_of

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy, which brings the compiler"),
]
NAMES = slow_after(3, ["residues", "optima", "max-plus in float32", "max-plus", "min-plus", "boolean"])
SIZES = [
    (1, 1, 1, 1), (2, 3, 5, 7), (1, 130, 70, 33), (3, 9, 17, 200), (1, 8, 300, 64), (1, 1, 2, 1300),
    (2, 40, 12, 90), (1, 64, 64, 600),
]  # fmt: skip


def made(name: str) -> Algebra:
    if name == "max-plus in float32":
        return Tropical(False, "float32")
    algebra = algebra_of(make(name, PRIMES[1]))
    assert algebra is not None
    return algebra


def random_values(algebra: Algebra, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    return np.ascontiguousarray(values(algebra.name, shape, PRIMES[1], random).astype(algebra.dtype))


def modulus(algebra: Algebra) -> np.ndarray:
    return getattr(algebra, "modulus", np.ones(1))


@pytest.mark.parametrize("name", NAMES)
def test_products(name: str) -> None:
    """All ways to launch one, with either order of the operands."""
    from tnplan.executor.device.cuda.algebra import products

    algebra, random, ways = made(name), np.random.default_rng(3), set()
    itemsize = np.dtype(algebra.dtype).itemsize
    orders = ((False, False), (True, False), (False, True))
    for (batch, m, n, k), (a_first, b_first) in product(SIZES, orders):
        a, b = (random_values(algebra, (batch, rows, k), random) for rows in (m, n))
        wanted = np.empty((batch, m, n), algebra.dtype)
        algebra.bind_product(a, b, wanted)()
        sides = products.ProductSides(batch, m, n, k, (a_first, m), (b_first, n))
        launch = products.chosen(sides, itemsize)
        tiles = products.TILES[itemsize]
        # Where tiles would be too slow here, they are tried all the same.
        others = tiles if batch * m < 60 else ()
        for way in {launch, *(launch._replace(tile=tile, parts=1, length=k) for tile in others)}:
            ways.add((way.swaps, way.tile, way.parts > 1))
            tile = way.tile or tiles[0]
            kernels = EmulatedKernels(
                source(products.PRODUCT_FILE), products.product_defines(algebra.name, algebra.dtype, tile)
            )
            stored = [
                np.ascontiguousarray(each.swapaxes(1, 2)) if first else each
                for each, first in ((a, a_first), (b, b_first))
            ]
            found = np.full((batch, m, n, way.parts), np.nan, algebra.dtype)
            entry = "product_each" if way.tile is None else "product_tiles"
            given = stored[::-1] if way.swaps else stored
            kernels(
                entry, (min(way.blocks, 7), 1), products.THREADS, *given, found, modulus(algebra),
                *products.arguments(sides, way),
            )  # fmt: skip
            if way.tile is None:
                of_parts = np.moveaxis(found, -1, 0)
            else:
                of_parts = found.reshape(way.parts, batch, m, n)
            total = of_parts[0].copy()
            for part in of_parts[1:]:
                algebra.add(total, np.ascontiguousarray(part), out=total)
            np.testing.assert_array_equal(total, wanted, err_msg=f"{(batch, m, n, k)}, {way}")
    assert len({way for way in ways if way[1] is None or not way[0]}) >= 5
    assert any(swaps for swaps, _, _ in ways)


@pytest.mark.parametrize("name", NAMES)
def test_sums_and_adding_copies(name: str) -> None:
    from tnplan.executor.device.cuda.algebra.kernels import SUMS_FILE, sums_defines

    algebra, random = made(name), np.random.default_rng(4)
    for lanes in (1, 256):
        kernels = EmulatedKernels(source(SUMS_FILE), sums_defines(algebra.name, algebra.dtype, lanes))
        x = random_values(algebra, (3, 50, 7, 11), random)
        table = np.concatenate([
            np.arange(3) * 50 * 77, np.arange(7) * 11, np.arange(50) * 77, np.arange(11),
        ]).astype(np.uint64)  # fmt: skip
        found = np.full((3, 7), np.nan, algebra.dtype)
        wanted = np.empty_like(found)
        algebra.bind_sum(x, (1, 3), wanted)()
        lengths = map(np.int64, (3, 7, 50, 11))
        kernels("sum_axes", (4, 1), 256, found, x, table, modulus(algebra), *lengths)
        np.testing.assert_array_equal(found, wanted)
    filled = np.full(1000, np.nan, algebra.dtype)
    kernels("fill", (3, 1), 256, filled, np.int64(999))
    np.testing.assert_array_equal(filled[:-1], np.full(999, algebra.zero, algebra.dtype))
    assert np.isnan(filled[-1])
    target, terms = (random_values(algebra, (6, 5, 4), random) for _ in range(2))
    wanted = np.ascontiguousarray(target.transpose(1, 0, 2))
    algebra.add(wanted, terms.reshape(5, 6, 4), out=wanted)
    # The source is [5 | 6 | 4], and the target [6 | 5 | 4].
    of_source, of_target = np.arange(5) * 24, np.arange(5) * 4
    pairs = np.concatenate([
        np.stack([of_source, of_target], 1), np.stack([np.arange(6) * 4, np.arange(6) * 20], 1),
    ]).astype(np.uint64)  # fmt: skip
    sizes = map(np.int64, (5, 6, 4))
    kernels("add_box", (2, 1), 256, target, terms, pairs, modulus(algebra), *sizes)
    np.testing.assert_array_equal(target.transpose(1, 0, 2), wanted)
