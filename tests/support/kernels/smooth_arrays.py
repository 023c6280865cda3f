"""Smooth arrays of any shape, and what they may hold besides."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.format.box import EARLY_PREDICTORS, KINDS, Predictor, box_of_shape

SHAPES = (
    (9001,), (60, 71), (1, 65, 64), (17, 12, 25), (3, 4, 20, 22), (20, 21, 8), (2500, 2), (33, 30, 3),
    (4, 3, 5, 9, 8), (2, 3, 2, 3, 2, 9, 3),
)  # fmt: skip
Array = NDArray[Any]


def predictor_of(shape: tuple[int, ...], number: int) -> Predictor:
    """A predictor that arrays of this shape can have, of any kind, axes and order; by numbers."""
    if number % 16 < 4:
        return EARLY_PREDICTORS[number % 16]
    generator, n_axes = np.random.default_rng(number), len(box_of_shape(shape))
    kind = KINDS[number % len(KINDS)]
    axes = generator.permutation(n_axes)[: generator.integers(1, n_axes + 1)].tolist()
    return Predictor(kind, tuple(axes if kind in KINDS[:2] else sorted(axes)))


def smooth_array(shape: tuple[int, ...], dtype: str, seed: int, wild: bool = False) -> Array:
    """Waves of some frequencies, with a little noise; `wild`: and values that are not finite or very
    large."""
    generator = np.random.default_rng(seed)
    grid = np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij")
    values = np.zeros(shape, np.complex128)
    for _ in range(3):
        phase = sum(generator.uniform(1, 12) * one for one in grid)
        values += generator.normal() * np.exp(1j * phase)
    values += 1e-4 * (generator.normal(size=shape) + 1j * generator.normal(size=shape))
    array = values.astype(dtype) if "complex" in dtype else values.real.astype(dtype)
    if wild:
        flat = array.reshape(-1)
        for part in (flat.real, flat.imag) if "complex" in dtype else (flat,):
            places = generator.choice(flat.size, flat.size // 50, replace=False)
            part[places] = generator.choice([np.nan, np.inf, -np.inf, 1e30, -0.0], places.size)
    return array
