"""The 24 arrays of `ratios.py`: 12 smooth ones, 12 intermediates of tensor networks. All are made from seeds.

Fields have a power-law spectrum in 1 to 3 dimensions, E(k) ~ k^-p with random phases; the others are analytic
functions. Intermediates are results of bucket elimination (`bucket_elimination.py`): of
MaxCut-QAOA networks, of PEPS with normal tensors, and of amplitudes of random circuits, flat in complex64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from bucket_elimination import eliminate, elimination_order
from numpy.typing import NDArray
from tensor_codecs import FIXED_ANGLES

from tnplan.planner.networks.network import Network
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.workloads.lattice import lattice_circuit
from tnplan.planner.workloads.mixed import peps_network
from tnplan.planner.workloads.qaoa import edge_network, maxcut_graph, random_angles
from tnplan.planner.workloads.sycamore import sycamore_circuit

TRIES = 20
RANK = 20
QAOA = ((20, 4, 3, True), (20, 5, 1, True), (22, 4, 2, False), (24, 5, 2, False))
"""Vertices, layers, seed, and whether the angles are the fixed ones."""
PEPS = ((20, 20, 1), (21, 21, 2), (20, 22, 3), (22, 22, 4))
"""Rows, columns, seed."""

Array = NDArray[Any]


def smooth_arrays() -> Iterator[tuple[str, Array]]:
    """Name and values of the 12 smooth arrays."""
    for name, shape, power, dtype in (
        ("series, p = 2", (1 << 20,), 2, "float32"),
        ("series, p = 4", (1_000_000,), 4, "float64"),
        ("surface, p = 5/3", (1000, 1200), 5 / 3, "float32"),
        ("weather map, p = 3", (721, 1440), 3, "float32"),
        ("surface, p = 4", (900, 900), 4, "complex64"),
        ("turbulence, p = 5/3", (96, 100, 128), 5 / 3, "float32"),
        ("density, p = 11/3", (100, 100, 100), 11 / 3, "float32"),
        ("field, p = 6", (64, 128, 128), 6, "float64"),
    ):
        field = power_law(shape, power, len(name))
        yield name, field.astype(dtype) if dtype == "complex64" else field.real.astype(dtype)
    t = np.linspace(0, 1, 1 << 20)
    yield "chirp", (np.exp(-2 * t) * np.sin(40 * t + 300 * t**2)).astype(np.float32)
    x, y = np.meshgrid(np.linspace(-1, 1, 1024), np.linspace(-1, 1, 1000))
    yield "ripples", (np.sin(60 * np.hypot(x - 0.1, y)) / (0.2 + np.hypot(x, y))).astype(np.float32)
    z, y, x = np.meshgrid(*(np.linspace(0, 2 * np.pi, n) for n in (96, 100, 112)), indexing="ij")
    yield "Taylor-Green vortex", (np.sin(2 * x) * np.cos(3 * y) * np.cos(z)).astype(np.float32)
    x, y = np.meshgrid(np.linspace(-8, 8, 800), np.linspace(-8, 8, 800))
    yield "wave packet", (np.exp(-(x**2 + (y - 1) ** 2) / 6 + 1j * (7 * x + 3 * y))).astype(np.complex128)


def power_law(shape: tuple[int, ...], power: float, seed: int) -> Array:
    """A periodic field (complex128) of unit deviation with the spectrum E(k) ~ k^-power."""
    generator = np.random.default_rng(seed)
    squares = sum(f**2 for f in np.meshgrid(*(np.fft.fftfreq(n) * n for n in shape), indexing="ij"))
    squares.flat[0] = np.inf
    noise = generator.normal(size=shape) + 1j * generator.normal(size=shape)
    # The amplitude of a mode is the root of E(k) over the k^(d - 1) modes of this wave number.
    field = np.fft.ifftn(noise * squares ** (-(power + len(shape) - 1) / 4))
    return np.asarray(field / field.real.std())


def tensor_arrays() -> Iterator[tuple[str, Array]]:
    """Name and values of the 12 intermediates."""
    for number, (vertices, layers, seed, fixed) in enumerate(QAOA):
        edges = maxcut_graph(vertices, 3, seed)
        gammas, betas = FIXED_ANGLES[layers] if fixed else random_angles(layers, seed)
        yield f"QAOA {number + 1}", intermediate(*edge_network(edges, 0, gammas, betas))
    for number, (rows, columns, seed) in enumerate(PEPS):
        network = peps_network(rows, columns, seed, extents=(2, 2), n_open=0, n_hyper=0)
        generator = np.random.default_rng(seed)
        arrays = [generator.normal(size=(2,) * len(term)) for term in network.inputs]
        mean = (0.0, 1.0, 0.3, 0.0)[number]
        yield f"PEPS {number + 1}", intermediate(network, [array + mean for array in arrays])
    for number, seed in enumerate((1, 2)):
        circuit = sycamore_circuit(10 + 2 * number, seed, 30)
        yield f"random circuit {number + 1}", intermediate(*circuit_network(circuit))
    for number, seed in enumerate((3, 4)):
        circuit = lattice_circuit("rectangular", 6, 6, 10 + 2 * number, seed)
        yield f"random circuit {number + 3}", intermediate(*circuit_network(circuit))


def intermediate(network: Network, arrays: list[Array]) -> Array:
    """The first result of rank RANK, or of the greatest one below, in complex64."""
    order, _ = elimination_order(network, TRIES, 0)
    best: list[Any] = [0, None]

    def see(rank: int, values: Array) -> Array | None:
        if best[0] < rank <= RANK:
            best[:] = rank, (values / np.abs(values).max()).astype(np.complex64)
        return None if rank >= RANK else values / np.abs(values).max()

    eliminate(network, arrays, order, see)
    return np.asarray(best[1])
