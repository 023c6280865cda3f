"""Plain einsum equations with arrays in all layouts, and what their results are compared with."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from tnplan.planner.networks.network import Network

ROUNDING = {"float32": 2e-6, "float64": 4e-15, "complex64": 2e-6, "complex128": 4e-15}
"""Of the sum of the magnitudes of all products."""
HIGHER = {
    "float32": np.float64, "complex64": np.complex128, "float64": np.longdouble, "complex128": np.clongdouble,
}  # fmt: skip
MOST_PRODUCTS = 2e6


def in_a_layout(array: np.ndarray, rng: random.Random) -> np.ndarray:
    """The same values: in C or Fortran order, strided, backwards, broadcast, with axes moved, read only."""
    if not array.ndim:
        return array
    order = rng.sample(range(array.ndim), array.ndim)
    moved = np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))
    first = np.broadcast_to(array[:1], array.shape)
    kinds: list[Callable[[], np.ndarray]] = [
        lambda: array,
        lambda: np.asfortranarray(array),
        lambda: np.repeat(array, 2, axis=-1)[..., ::2],
        lambda: np.ascontiguousarray(array[::-1])[::-1],
        lambda: moved,
        lambda: first,
    ]
    other = rng.choice(kinds)()
    if rng.random() < 0.2 and other is not first:
        other = other.view()
        other.flags.writeable = False
    return other


def plain_call(rng: random.Random) -> tuple[str, list[np.ndarray], str]:
    """A plain equation of one to four tensors, its arrays and their dtype. Some sums are long."""
    generator = np.random.default_rng(rng.getrandbits(32))
    labels = string.ascii_letters[: rng.randint(1, 6)]
    extents = {label: rng.randint(1, rng.choice((3, 12, 40))) for label in labels}
    if rng.random() < 0.3:
        extents[labels[0]] = rng.choice((257, 1024, 5000, 9001))
    terms = ["".join(rng.choices(labels, k=rng.randint(0, 4))) for _ in range(rng.randint(1, 4))]
    present = sorted(set().union(*terms))
    while prod(extents[label] for label in present) > MOST_PRODUCTS or any(
        prod(extents[label] for label in term) > MOST_PRODUCTS for term in terms
    ):
        largest = max(present, key=lambda label: extents[label])
        extents[largest] = max(1, extents[largest] // 2)
    dtype = rng.choice(list(ROUNDING))
    arrays = []
    for term in terms:
        real, imaginary = generator.standard_normal((2, *(extents[label] for label in term)))
        values = real + 1j * imaginary if dtype.startswith("complex") else real
        arrays.append(in_a_layout(np.asarray(values, dtype), rng))
    output = "".join(rng.sample(present, rng.randint(0, len(present))))
    return f"{','.join(terms)}->{output}", arrays, dtype


def check(result: Any, equation: str, arrays: list[np.ndarray], dtype: str) -> None:
    """Compare with numpy.einsum in higher precision, as far as the sum of all magnitudes lets it round."""
    wide = HIGHER[dtype]
    wanted = np.einsum(equation, *[array.astype(wide) for array in arrays])
    magnitudes = np.einsum(equation, *[np.abs(array).astype(np.float64) for array in arrays])
    assert isinstance(result, np.ndarray)
    assert (result.dtype, result.shape) == (np.dtype(dtype), wanted.shape), equation
    assert np.all(np.abs(result - wanted) <= ROUNDING[dtype] * np.maximum(magnitudes, 1e-30)), equation


def network_and_path(
    equation: str, arrays: list[np.ndarray], rng: random.Random
) -> tuple[Network, list[tuple[int, ...]]]:
    """The network of a plain equation, and a random path of steps of two or three tensors."""
    terms, _, output = equation.partition("->")
    sizes = {
        label: extent
        for term, array in zip(terms.split(","), arrays, strict=True)
        for label, extent in zip(term, array.shape, strict=True)
    }
    network = Network(tuple(map(tuple, terms.split(","))), tuple(output), sizes)
    n_tensors, path = len(arrays), []
    live = list(range(n_tensors))
    while len(live) > 1:
        step = rng.sample(live, min(len(live), rng.choice((2, 2, 3))))
        live = [number for number in live if number not in step] + [n_tensors + len(path)]
        path.append(tuple(step))
    return network, path
