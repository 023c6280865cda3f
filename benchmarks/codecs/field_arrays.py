"""Fields like those of weather models and turbulence, in 2 to 5 dimensions, of any seed; for `fields.py`.

Random fields have a power-law spectrum (`ratio_arrays.power_law`), stretched along each axis, made periodic
or cut out of a larger box. Shapes and parameters depend on the seed: what is fitted on one is reported on
others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Generator = np.random.Generator


def random_field(shape: tuple[int, ...], power: float, r: Generator, cut: float = 0.0) -> Array:
    """A field of unit deviation with the spectrum E(k) ~ (k^2 + 1)^(-power / 2), k in periods of the box;
    beyond `cut` of the highest k nothing is left (0: all is kept)."""
    squares: Any = sum(f**2 for f in np.meshgrid(*(np.fft.fftfreq(n) * n for n in shape), indexing="ij"))
    amplitude = (squares + 1) ** (-(power + len(shape) - 1) / 4)
    if cut:
        amplitude *= np.exp(-((np.sqrt(squares) / (cut * max(shape) / 2)) ** 4))
    amplitude.flat[0] = 0
    field = np.fft.ifftn(np.fft.fftn(r.normal(size=shape)) * amplitude).real
    return field / field.std()


def levels(
    n: int, shape: tuple[int, ...], power: float, r: Generator, mixing: float, cut: float = 0.3
) -> Array:
    """Fields one after the other, each like the one before: `mixing` of 1 makes them independent."""
    fields = [random_field(shape, power, r, cut)]
    while len(fields) < n:
        fields.append(np.sqrt(1 - mixing**2) * fields[-1] + mixing * random_field(shape, power, r, cut))
    return np.stack(fields)


def latitudes(n: int) -> Array:
    """Angles from pole to pole (n, 1)."""
    return np.linspace(-np.pi / 2, np.pi / 2, n)[:, None]


def field_arrays(seed: int) -> Iterator[tuple[str, Array]]:
    """Name and values of 18 fields."""
    r = np.random.default_rng(seed)

    def extent(least: int, most: int) -> int:
        return int(r.integers(least, most + 1))

    y, x = extent(150, 260), extent(300, 500)
    jet = 30 * np.cos(latitudes(y)) ** 2
    wind = [[jet * (1 + k) + 8 * random_field((y, x), 3, r, 0.3) for k in range(3)] for _ in range(2)]
    yield "wind on levels", np.array(wind, np.float32)

    y, x = extent(150, 200), extent(300, 400)
    land = random_field((y, x), 3, r) > 0.2
    warm = 300 - 50 * np.sin(latitudes(y)) ** 2 + 3 * levels(8, (y, x), 3, r, 0.3)
    yield "temperature, land offset", (warm + 8 * land).astype(np.float32)
    sea = levels(4, (y, x), 3, r, 0.2) * 4 + 15
    yield "sea, land is 0", np.where(land, 0, sea).astype(np.float32)

    z, y, x = extent(9, 15), extent(80, 120), extent(160, 240)
    moist = np.exp(1.2 * levels(5 * z, (y, x), 2.5, r, 0.4).reshape(5, z, y, x))
    moist *= np.exp(-0.4 * np.arange(z))[:, None, None] * 1e-2
    yield "humidity, log-normal", moist.astype(np.float32)

    y, x = extent(500, 721), extent(900, 1440)
    rain = np.maximum(np.exp(1.5 * random_field((y, x), 2.2, r, 0.5)) - 2, 0)
    yield "rain", rain.astype(np.float32)
    cloud = np.clip(0.5 + 0.6 * random_field((y, x), 2, r), 0, 1)
    yield "cloud cover", cloud.astype(np.float32)

    y, x = extent(90, 150), extent(200, 300)
    heights = 1e4 * np.arange(1, 9)[:, None, None] + 800 * levels(8, (y, x), 4, r, 0.2)
    yield "geopotential", heights.reshape(2, 4, y, x)

    n = extent(50, 70)
    yield "velocity", np.stack([random_field((n, n, n), 5 / 3, r) for _ in range(3)]).astype(np.float32)
    n = extent(36, 52)
    pairs = [levels(3, (n, n, n), 5 / 3, r, 0.1, 0.6) for _ in range(2)]
    yield "velocity in time", np.stack(pairs).astype(np.float32)
    shape = extent(70, 100), extent(80, 110), extent(80, 120)
    yield "density, log-normal", np.exp(random_field(shape, 11 / 3, r))
    yield "velocity, channels last", np.stack(
        [random_field(shape, 5 / 3, r, 0.4) for _ in range(3)], axis=-1
    ).astype(np.float32)

    y, x = extent(700, 1000), extent(800, 1100)
    row, column = np.mgrid[0:y, 0:x]
    vortices = np.zeros((y, x))
    for _ in range(40):
        width, sign = 10 + 60 * r.random(), r.choice((-1, 1))
        vortices += sign * np.exp(-((row - y * r.random()) ** 2 + (column - x * r.random()) ** 2) / width**2)
    yield "vortices", vortices

    n = extent(200, 280)
    yield "vorticity in time", levels(10, (n, n), 3, r, 0.05, 0.6).astype(np.float32)

    z, y, x = extent(80, 120), extent(60, 100), extent(120, 160)
    surface = 0.5 + 0.06 * random_field((y, x), 3, r, 0.4)
    mixed = np.tanh((np.linspace(0, 1, z)[:, None, None] - surface) * 40)
    yield "front", (mixed + 1e-3 * random_field((z, y, x), 2, r)).astype(np.float32)

    y, x = extent(60, 80), extent(120, 160)
    members = levels(30, (y, x), 3, r, 0.5).reshape(3, 2, 5, y, x)
    yield "ensemble", (members * 5 + 20 * np.arange(5)[:, None, None]).astype(np.float32)

    y, x = extent(400, 600), extent(500, 700)
    yield "three layers", np.stack([k + random_field((y, x), 3.5, r, 0.3) for k in range(3)])
    smooth = random_field((y // 2, x // 2), 4, r, 0.2)
    picture = [smooth * (1 + c) + 0.2 * random_field((y // 2, x // 2), 4, r, 0.2) for c in range(4)]
    yield "map, layers last", np.stack(picture, axis=-1).astype(np.float32)

    shape = extent(14, 20), extent(14, 20), extent(14, 18), extent(14, 18), 2
    yield "phase space", np.stack([random_field(shape[:4], 4, r) for _ in range(2)], axis=-1)
