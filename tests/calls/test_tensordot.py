"""`tensordot`, `transpose` and `einsum` against NumPy, and as the backend of opt_einsum and cotengra."""

from __future__ import annotations

import random
from typing import Any

import cotengra
import numpy as np
import opt_einsum
import pytest

import tnplan
from tnplan.common.errors import InputError


def refusal_of(call: Any) -> Exception | None:
    """What NumPy raises."""
    try:
        call()
    except (TypeError, ValueError, IndexError) as error:
        return error
    return None


def test_random_axes_mean_what_numpy_says() -> None:
    rng, generator, refused = random.Random(0), np.random.default_rng(0), 0
    for _ in range(2000):
        a, b = (generator.standard_normal([rng.choice((1, 2, 2, 3)) for _ in range(rng.randint(0, 4))])
                for _ in range(2))  # fmt: skip
        count = rng.randint(0, 3)
        pair = [[rng.randint(-5, 4) for _ in range(count)] for _ in range(2)]
        ways: Any = (count, pair, tuple(map(tuple, pair)), (0, 0), -1, 1.5, None, "ab", [[0], [0, 1]])
        axes = rng.choice(ways)
        if axes != -1 and refusal_of(lambda a=a, b=b, axes=axes: np.tensordot(a, b, axes)) is not None:
            refused += 1
            with pytest.raises(InputError, match=r"^axes: are .*; name as many axes"):
                tnplan.tensordot(a, b, axes)
        elif axes != -1:
            found = tnplan.tensordot(a, b, axes)
            np.testing.assert_allclose(found, np.tensordot(a, b, axes), atol=1e-12)
        order = rng.sample(range(-a.ndim, a.ndim), min(a.ndim, 2 * a.ndim))
        if refusal_of(lambda a=a, order=order: np.transpose(a, order)) is not None:
            with pytest.raises(InputError, match="name each axis once"):
                tnplan.transpose(a, order)
        else:
            np.testing.assert_array_equal(tnplan.transpose(a, order), np.transpose(a, order))
            np.testing.assert_array_equal(tnplan.transpose(a), a.T)
    assert 500 < refused < 1700


EQUATIONS = (
    "ij,jk,kil->l", "ab,cd,ef->", "aab,bc->ca", "ij,ij,ij->ij", "abc,cd->dab", "a,b,c->abc", "ab->ba",
)  # fmt: skip


@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_other_libraries_contract_with_this_one(equation: str, library: str) -> None:
    generator = np.random.default_rng(0)
    extents = dict(zip("abcdefijkl", (2, 3, 4, 2, 3, 2, 3, 4, 2, 5), strict=True)) | {"i": 3, "j": 4}
    shapes = [[extents[label] for label in term] for term in equation.split("->")[0].split(",")]
    arrays: list[Any] = [generator.standard_normal(shape) for shape in shapes]
    wanted = np.einsum(equation, *arrays)
    if library == "torch":
        arrays = list(map(pytest.importorskip("torch").from_numpy, arrays))
    found = [
        opt_einsum.contract(equation, *arrays, backend="tnplan"),
        opt_einsum.contract_expression(equation, *shapes)(*arrays, backend="tnplan"),
    ]
    if library == "numpy":
        out = np.empty_like(wanted)
        assert opt_einsum.contract(equation, *arrays, backend="tnplan", out=out) is out
        implementation = tnplan.einsum, tnplan.tensordot
        found += [out, cotengra.einsum(equation, *arrays, implementation=implementation)]
    for one in found:
        assert type(one) is type(arrays[0])
        np.testing.assert_allclose(np.asarray(one), wanted, atol=1e-12)
