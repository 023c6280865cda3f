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
    from tnplan.executor.device.cuda.device import neighbours

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
        shapes = [(3, 5), (7,), (), (2, 2, 2), (64, 64), (5,), (3,), (8, 8, 8, 8, 8), (2,)]
        block = device.input_block([int(np.prod(shape)) for shape in shapes], "complex64")
        wanted: list[Any] = [np.zeros(shape, "complex64") for shape in shapes]
        for turn in range(60):
            present = []
            n_set = rng.randint(1, len(shapes)) if turn else len(shapes)  # what was never set may be anything
            for number in rng.sample(range(len(shapes)), n_set):
                values = generator.random(shapes[number]).astype("complex64")
                wanted[number] = values
                way = rng.choice(["host", "strided", "address", "address"])
                if way == "host":
                    block.set(number, values)
                elif way == "address":
                    # Aligned to 8 bytes, not to 16, half of the time.
                    padded = np.concatenate([np.zeros(rng.randrange(2), values.dtype), values.reshape(-1)])
                    with device.stream:
                        present.append(cupy.asarray(padded))
                    block.set(number, present[-1].data.ptr + padded.nbytes - values.nbytes)
                else:
                    with device.stream:
                        turned = cupy.asarray(values.T.copy()).T
                    block.set(number, turned)
                block.send()
            device.synchronize()
            for view, values in zip(block.views, wanted, strict=True):
                np.testing.assert_array_equal(view.get(), values.reshape(-1))
