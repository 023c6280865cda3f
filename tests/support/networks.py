"""Random networks with their exact results, and a machine on which tiny tensors are worth distributing."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from tnplan.planner.hardware.profile import Profile, Tier, load_profile
from tnplan.planner.networks.contraction_path import DTYPES, ContractionPath
from tnplan.planner.networks.network import Network

TOLERANCE = {"float32": 1e-5, "complex64": 1e-5, "float64": 1e-12, "complex128": 1e-12}


def eager_profile(exchange_bytes: int = 512, tile_bytes: int = 256, node: int = 2) -> Profile:
    """Slow arithmetic, fast links without latency, nodes of `node` ranks: distribution pays at any size."""
    return replace(
        load_profile("cpu"),
        name="eager",
        memory_bytes_per_s=1e9,
        permute_bytes_per_s=1e9,
        launch_s=0.0,
        tile_bytes=tile_bytes,
        exchange_bytes=exchange_bytes,
        flop_per_s={dtype: {"fp32": 1e7, "fp64": 1e7} for dtype in DTYPES},
        tiers=(Tier("fast", node, 1e9, 0.0, 0), Tier("slow", 0, 2e8, 0.0, 0)),
    )


def random_path(seed: int, max_elements: int = 60_000) -> ContractionPath:
    """A random network and path: hyper-indices, traces, open and sliced indices, extents 1 to 5."""
    chance = random.Random(seed)
    while True:
        n_tensors = chance.choice((1, 2, 3, 4, 5, 6, 7))
        n_indices = chance.randint(1, 11)
        extents = chance.choice(((2,), (1, 2, 3, 4, 5), (2, 3), (2, 4), (1, 2, 5)))
        sizes = {f"i{number}": chance.choice(extents) for number in range(n_indices)}
        if prod(sizes.values()) <= max_elements:
            break
    terms: list[list[str]] = [[] for _ in range(n_tensors)]
    for index in sizes:
        count = chance.choice((1, 2, 2, 2, 2, 2, 3, 4))
        for _ in range(count):
            term = chance.choice(terms)
            if prod(sizes[other] for other in term) * sizes[index] <= max_elements:
                term.append(index)
    for term in terms:
        chance.shuffle(term)
    present = sorted({index for term in terms for index in term})
    output = [index for index in present if chance.random() < 0.25]
    chance.shuffle(output)
    summed = [index for index in present if index not in output]
    sliced = [index for index in summed if chance.random() < 0.15]
    network = Network(tuple(map(tuple, terms)), tuple(output), {index: sizes[index] for index in present})
    return ContractionPath(
        network, random_ssa_path(chance, n_tensors), tuple(sliced), chance.choice(DTYPES), f"random {seed}"
    )


def random_ssa_path(chance: random.Random, n_tensors: int) -> tuple[tuple[int, ...], ...]:
    """Contract randomly: mostly pairs, now and then one tensor or three."""
    live = list(range(n_tensors))
    steps = []
    while len(live) > 1:
        count = min(len(live), chance.choice((2, 2, 2, 2, 3)))
        step = tuple(chance.sample(live, count))
        live = [tensor for tensor in live if tensor not in step]
        live.append(n_tensors + len(steps))
        steps.append(step)
    if n_tensors == 1 and chance.random() < 0.5:
        steps.append((0,))
    return tuple(steps)


def random_arrays(path: ContractionPath, seed: int) -> list[NDArray[np.generic]]:
    """Normal values of the path's dtype for every tensor."""
    generator = np.random.default_rng(seed)
    arrays = []
    for number in range(len(path.network.inputs)):
        shape = path.network.shape(number)
        values = generator.normal(size=shape)
        if path.dtype.startswith("complex"):
            values = values + 1j * generator.normal(size=shape)
        arrays.append(np.asarray(values, dtype=path.dtype))
    return arrays


def exact(
    path: ContractionPath, arrays: list[NDArray[np.generic]]
) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """The contraction by numpy.einsum in complex128, and the contraction of absolute values."""
    letters = {index: number for number, index in enumerate(path.network.size_dict)}

    def contract(values: list[NDArray[np.generic]]) -> NDArray[np.generic]:
        operands: list[object] = []
        for value, term in zip(values, path.network.inputs, strict=True):
            operands.extend((value, [letters[index] for index in term]))
        return np.asarray(np.einsum(*operands, [letters[index] for index in path.network.output]))

    return contract([array.astype(complex) for array in arrays]), contract(
        [np.abs(array.astype(complex)) for array in arrays]
    )


def agrees(result: NDArray[np.generic], path: ContractionPath, arrays: list[NDArray[np.generic]]) -> None:
    """Assert |x - y| <= tolerance times the contraction of absolute values, element by element."""
    wanted, scale = exact(path, arrays)
    assert result.shape == wanted.shape
    assert result.dtype == np.dtype(path.dtype)
    error = np.abs(result.astype(complex) - wanted)
    assert np.all(error <= TOLERANCE[path.dtype] * scale.real), float(
        np.max(error / np.maximum(scale.real, 1e-300))
    )


def shown(value: object) -> str:
    """A parameter in the name of its test, which is the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))[:60]


def window(steps: int, width: int) -> ContractionPath:
    """A tensor of `width` binary modes through `steps` steps, each of which replaces its oldest mode."""
    inputs = [tuple(f"b{number}" for number in range(width))]
    inputs += [(f"b{number}", f"b{number + width}") for number in range(steps)]
    output = tuple(f"b{number}" for number in range(steps, steps + width))
    sizes = {f"b{number}": 2 for number in range(steps + width)}
    ssa = [(0, 1)] + [(len(inputs) + number, number + 2) for number in range(steps - 1)]
    return ContractionPath(Network(tuple(inputs), output, sizes), tuple(ssa))
