"""Inputs of a compiled contraction on a GPU: neighbours are sent in one copy, nothing else is touched."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.support.kernels.gpus import needs_gpus, opened


def test_neighbours() -> None:
    pytest.importorskip("cupy")
    from tnplan.executor.device.cuda.input_block import neighbours

    rng = random.Random(0)
    for _ in range(200):
        numbers = [rng.randrange(12) for _ in range(rng.randint(0, 12))]
        runs = neighbours(numbers)
        assert [n for first, last in runs for n in range(first, last + 1)] == sorted(set(numbers))
        assert all(last + 1 < first for (_, last), (first, _) in pairwise(runs))


@needs_gpus(1)
def test_values_of_the_host_and_of_the_gpu_go_side_by_side() -> None:
    import cupy

    rng = random.Random(1)
    generator = np.random.default_rng(0)
    with opened("gpu") as device:
        shapes = [(3, 5), (7,), (), (2, 2, 2), (64, 64)]
        block = device.input_block([int(np.prod(shape)) for shape in shapes], "complex64")
        wanted: list[Any] = [np.zeros(shape, "complex64") for shape in shapes]
        for _ in range(60):
            for number in rng.sample(range(5), rng.randint(1, 5)):
                values = generator.random(shapes[number]).astype("complex64")
                wanted[number] = values
                if rng.random() < 0.5:
                    block.set(number, values)
                else:
                    with device.stream:
                        turned = cupy.asarray(values.T.copy()).T
                    block.set(number, turned)
                block.send()
            device.synchronize()
            for view, values in zip(block.views, wanted, strict=True):
                np.testing.assert_array_equal(view.get(), values.reshape(-1))
