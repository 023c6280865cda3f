"""JAX's gradients of compiled contractions, beside those of JAX's einsum; in a process of its own, since JAX
and fork do not go together."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tnplan

if __name__ == "__main__":
    double = tnplan.compile("ij,jk,ki->", *[(3, 3)] * 3, dtype="float64", device="cpu")
    with pytest.raises(tnplan.InputError, match="jax_enable_x64"):
        double.as_jax()
    jax.config.update("jax_enable_x64", True)
    generator = np.random.default_rng(0)
    for extent, dtype in ((4, "float64"), (200, "complex128")):
        real, imaginary = generator.normal(size=(2, 3, extent, extent))
        arrays = [jnp.asarray(one if dtype[0] == "c" else one.real, dtype) for one in real + 1j * imaginary]
        for equation in ("ij,jk,ki->", "ij,jk,kl->il"):
            with tnplan.compile(equation, *[(extent, extent)] * 3, dtype=dtype, device="cpu") as contraction:
                function = contraction.as_jax()
                pairs = [
                    jax.jit(jax.grad(lambda *some: (jnp.abs(f(*some)) ** 2).sum(), argnums=(0, 2)))(*arrays)  # noqa: B023
                    for f in (function, lambda *some: jnp.einsum(equation, *some))  # noqa: B023
                ]
                for ours, theirs in zip(*pairs, strict=True):
                    assert jnp.abs(ours - theirs).max() <= 1e-10 * jnp.abs(theirs).max(), (equation, dtype)
    print("equal")
