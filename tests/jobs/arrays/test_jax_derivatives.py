"""Derivatives of any order through JAX, in every mode of its, beside those of JAX's own einsum.

The tests run this module as a script: JAX and fork do not go together.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.contraction.derivatives import Case, random_case
from tests.support.effort import repeats
from tests.support.root import ROOT

Function = Callable[..., Any]

pytestmark = pytest.mark.skipif(find_spec("jax") is None, reason="needs jax")
QUICK = ("map of a Hessian",)
"""It is compiled, mapped, and forward over reverse."""


def modes() -> dict[str, tuple[str, Function]]:
    """What is differentiated, the contraction or a loss, and how: a function of it, the variables and
    directions."""
    import jax
    import jax.numpy as jnp

    def nth(x: Sequence[Any]) -> tuple[int, ...]:
        return tuple(range(len(x)))

    def batch(x: Sequence[Any]) -> list[Any]:
        return [jnp.stack([one, 2 * one, one * one]) for one in x]

    def square(found: Any) -> Any:
        return sum((one * one.conj()).real.sum() for one in jax.tree.leaves(found))

    def penalty(f: Function, x: Sequence[Any]) -> Function:
        return lambda *y: square(jax.grad(f, nth(x))(*y))

    def second(f: Function, x: Sequence[Any], inner: Function, outer: Function) -> Any:
        """A second derivative by the real parts of the variables."""
        real = [one.real for one in x]

        def shifted(*y: Any) -> Any:
            return f(*(one + shift - shift.real for one, shift in zip(y, x, strict=True)))

        return outer(inner(shifted, nth(x)), nth(x))(*real)

    def mapped_hessian(f: Function, x: Sequence[Any]) -> Any:
        return jax.jit(jax.vmap(lambda *y: second(f, y, jax.jacrev, jax.jacfwd)))(*batch(x))

    return {
        "jax.grad": ("loss", lambda f, x, v: jax.grad(f, nth(x))(*x)),
        "value_and_grad, compiled": ("loss", lambda f, x, v: jax.jit(jax.value_and_grad(f, nth(x)))(*x)),
        "gradient of a penalty": ("loss", lambda f, x, v: jax.grad(penalty(f, x), nth(x))(*x)),
        "third order": ("loss", lambda f, x, v: jax.grad(
            lambda *y: square(jax.grad(penalty(f, x), nth(x))(*y)), nth(x))(*x)),
        "jvp": ("result", lambda f, x, v: jax.jvp(f, x, v)),
        "jvp of a gradient": ("loss", lambda f, x, v: jax.jvp(jax.grad(f, nth(x)), x, v)),
        "jvp of jvp": ("loss", lambda f, x, v: jax.jvp(lambda *y: jax.jvp(f, y, v)[1], x, v)),
        "jvp of jvp by directions": ("loss", lambda f, x, v: jax.jvp(
            lambda *w: jax.jvp(f, tuple(x), w)[1], v, v)),
        "gradient of jvp": ("loss", lambda f, x, v: jax.grad(
            lambda *y: square(jax.jvp(f, y, v)), nth(x))(*x)),
        "linearize": ("result", lambda f, x, v: jax.linearize(f, *x)[1](*v)),
        "vjp": ("result", lambda f, x, v: jax.vjp(f, *x)[1](f(*x))),
        "linear_transpose": ("result", lambda f, x, v: jax.linear_transpose(
            lambda y: jax.linearize(f, *x)[1](y, *v[1:]) - jax.linearize(f, *x)[1](0 * y, *v[1:]),
            v[0])(f(*x))),
        "Hessian": ("loss", lambda f, x, v: second(f, x, jax.jacrev, jax.jacfwd)),
        "reverse over reverse": ("loss", lambda f, x, v: second(f, x, jax.jacrev, jax.jacrev)),
        "forward over forward": ("loss", lambda f, x, v: second(f, x, jax.jacfwd, jax.jacfwd)),
        "reverse over forward": ("loss", lambda f, x, v: second(f, x, jax.jacfwd, jax.jacrev)),
        "checkpoint": ("loss", lambda f, x, v: second(jax.checkpoint(f), x, jax.jacrev, jax.jacfwd)),
        "map": ("result", lambda f, x, v: jax.vmap(f)(*batch(x))),
        "map along the last axis": ("result", lambda f, x, v: jax.vmap(f, in_axes=-1)(
            *(jnp.moveaxis(one, 0, -1) for one in batch(x)))),
        "map of a gradient": ("loss", lambda f, x, v: jax.vmap(jax.grad(f, nth(x)))(*batch(x))),
        "map of a Hessian": ("loss", lambda f, x, v: mapped_hessian(f, x)),
        "gradient of a map": ("loss", lambda f, x, v: jax.grad(
            lambda *y: jax.vmap(f)(*y).sum(), nth(x))(*batch(x))),
    }  # fmt: skip


def compare(case: Case, chosen: Sequence[str], call: str) -> None:
    """The values of some modes by a call of tnplan equal those of JAX's einsum."""
    import jax
    import jax.numpy as jnp

    def operands(variables: Sequence[Any]) -> list[Any]:
        return [
            jnp.asarray(one.values if one.variable is None else variables[one.variable])
            for one in case.operands
        ]

    def loss_of(function: Function) -> Function:
        def loss(*variables: Any) -> Any:
            result = function(*variables)
            return (result * case.weight).sum().real + (result * result.conj()).real.sum()

        return loss

    variables, directions = (tuple(map(jnp.asarray, some)) for some in (case.variables, case.directions))
    options: dict[str, Any] = {"memory": "1GiB"} if call == "compile, row by row" else {}
    with tnplan.compile(
        case.equation, *case.shapes, dtype=case.dtype, device="cpu", threads=1, **options
    ) as compiled:
        dtype = case.promoted if call == "contract" else case.dtype

        def ours(*variables: Any) -> Any:
            if call == "contract":
                return tnplan.contract(case.equation, *operands(variables))
            return compiled(*operands(variables))

        def theirs(*variables: Any) -> Any:
            return jnp.einsum(case.equation, *(one.astype(dtype) for one in operands(variables)))

        for mode in chosen:
            kind, differentiate = modes()[mode]
            found, wanted = (
                jax.tree.leaves(differentiate(f if kind == "result" else loss_of(f), variables, directions))
                for f in (ours, theirs)
            )
            largest = max((float(jnp.abs(one).max(initial=0)) for one in wanted), default=0.0)
            for here, there in zip(found, wanted, strict=True):
                assert (here.shape, here.dtype) == (there.shape, there.dtype), (case, mode, call)
                error = float(jnp.abs(here - there).max(initial=0))
                assert error <= case.rounding * max(1.0, largest), (case, mode, call)


def in_a_process(*arguments: object) -> None:
    """Run this module as a script."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.jobs.arrays.test_jax_derivatives", *map(str, arguments)],
        capture_output=True, text=True, timeout=500, check=False, cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "equal"


def test_jax_differentiates_and_compiles() -> None:
    in_a_process(0, 1, *QUICK)


@pytest.mark.slow
def test_random_networks_have_the_derivatives_of_jax() -> None:
    in_a_process(1000, repeats(2, 60))


def main(first: str, count: str, *chosen: str) -> None:
    """Compare networks of some seeds, in some modes or in all."""
    import jax

    double = tnplan.compile("ij,jk,ki->", *[(3, 3)] * 3, dtype="float64", device="cpu")
    with pytest.warns(UserWarning, match="float64"), pytest.raises(tnplan.InputError, match="enable_x64"):
        jax.jit(double)(*[jax.numpy.ones((3, 3))] * 3)
    jax.config.update("jax_enable_x64", True)
    wide = np.random.default_rng(0).normal(size=(200, 200))
    with tnplan.compile("ij,jk,ki->", *[(200, 200)] * 3, dtype="float64", device="cpu") as contraction:
        found = jax.jit(jax.grad(contraction))(*[jax.numpy.asarray(wide)] * 3)
    assert np.allclose(found, (wide @ wide).T, rtol=1e-10, atol=1e-8)
    for seed in range(int(first), int(first) + int(count)):
        for call in ("compile", "compile, row by row", "contract"):
            compare(random_case(seed), chosen or tuple(modes()), call)
    print("equal")


if __name__ == "__main__":
    main(*sys.argv[1:])
