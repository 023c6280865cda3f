"""Random redistributions on threads, and the arrays that they must give."""

from __future__ import annotations

from math import prod

import numpy as np

from tnplan.executor.contraction.redistribute.packed import bind_redistribution
from tnplan.executor.contraction.redistribute.plan import Redistribution, ShardedTensor, plan_redistribution
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.planner.hardware.process_grid import Digit, box, box_shape, grid_size, rank_digits

GRIDS = ((2,), (2, 2), (2, 2, 2), (3, 2), (2, 3), (5,), (3, 2, 2))


def random_layout(rng, modes, grid, partial):
    free = list(rng.permutation(modes))
    layout = []
    for number in range(len(grid)):
        take = number not in partial and free and rng.random() < 0.65
        layout.append(int(free.pop()) if take else None)
    return tuple(layout)


def random_case(rng, summing):
    grid = tuple(Digit(radix, tier) for tier, radix in enumerate(GRIDS[rng.integers(len(GRIDS))]))
    rank = int(rng.integers(1, 7))
    modes = tuple(int(mode) for mode in rng.permutation(10)[:rank])
    extents = {mode: int(rng.choice([1, 2, 2, 3, 5])) for mode in modes}
    digits = list(range(len(grid)))
    partial = tuple(d for d in digits if rng.random() < (0.6 if summing else 0.2))
    kept = tuple(d for d in partial if not summing or rng.random() < 0.3)
    source = ShardedTensor(modes, random_layout(rng, modes, grid, partial), partial)
    order = tuple(int(mode) for mode in rng.permutation(modes)) if rng.random() < 0.3 else modes
    out = ShardedTensor(order, random_layout(rng, modes, grid, kept), kept)
    return grid, extents, source, out


def local(whole, modes, order, bounds):
    """The part of `whole` (axes `modes`) within `bounds` (over `order`), in the order of `order`."""
    turned = whole.transpose([modes.index(mode) for mode in order])
    return np.ascontiguousarray(turned[tuple(slice(a, b) for a, b in bounds)])


def run_case(grid, extents, source, out, capacity, dtype=np.float64, seed=0):
    """Exchange on thread ranks; checks every rank's shard against the global array."""
    rng = np.random.default_rng(seed)
    shape = [extents[mode] for mode in source.modes]
    terms = {}
    for rank in range(grid_size(grid)):
        key = tuple(rank_digits(rank, grid)[digit] for digit in source.partial)
        if key not in terms:
            terms[key] = rng.standard_normal(shape).astype(dtype)
    summed = [digit for digit in source.partial if digit not in out.partial]

    def expected(digits):
        total = None
        for key in sorted(terms):
            values = dict(zip(source.partial, key, strict=True))
            if any(values[digit] != digits[digit] for digit in out.partial):
                continue
            total = terms[key].copy() if total is None else total + terms[key]
        return total

    def work(communicator):
        digits = rank_digits(communicator.rank, grid)
        own_key = tuple(digits[digit] for digit in source.partial)
        bounds = box(source.modes, source.layout, extents, digits, grid)
        held = local(terms[own_key], source.modes, source.modes, bounds)
        out_bounds = box(out.modes, out.layout, extents, digits, grid)
        result = np.full(prod(box_shape(out_bounds)), np.nan, dtype)
        call = bind_redistribution(
            Redistribution(source, out, extents, grid, communicator.rank), NumpyDevice(), communicator,
            (held.ravel(), result), np.full(capacity, np.nan, dtype),
        )  # fmt: skip
        call()
        wanted = local(expected(digits), source.modes, out.modes, out_bounds).ravel()
        assert np.array_equal(result, wanted), (communicator.rank, summed)
        return True

    assert all(run_ranks(grid_size(grid), work))


def transfers(grid, extents, source, out, rank, capacity=1 << 20):
    return plan_redistribution(Redistribution(source, out, extents, grid, rank), capacity)
