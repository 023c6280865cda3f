"""A compiled contraction as a function that JAX differentiates and compiles. Imports JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tnplan.api.contraction.gradients.differentiable import Differentiable
from tnplan.planner.common.errors import InputError


def jax_function(contraction: Differentiable) -> Callable[..., Any]:
    """The contraction as a function of JAX arrays; see `CompiledContraction.as_jax`."""
    dtype = np.dtype(contraction.schedule.dtype)
    if jnp.zeros((), dtype).dtype != dtype:
        remedy = "set jax.config.update('jax_enable_x64', True), or compile for single precision"
        raise InputError("as_jax", f"JAX would round {dtype} to single precision", remedy)
    output = jax.ShapeDtypeStruct(contraction.schedule.output_shape, dtype)
    is_number = not contraction.schedule.output

    def called(function: Callable[..., Any], shapes: Any, *arrays: Any) -> Any:
        return jax.pure_callback(function, shapes, *arrays, vmap_method="sequential")

    def shapes_of(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(jax.ShapeDtypeStruct(array.shape, dtype) for array in arrays)

    def contract(*arrays: Any) -> Any:
        return contraction(*map(np.asarray, arrays))

    def with_derivatives(*arrays: Any) -> Any:
        return contraction.value_and_grad(*map(np.asarray, arrays))

    def pulled_back(cotangent: Any, *arrays: Any) -> Any:
        return contraction.vjp([np.asarray(one) for one in arrays], np.asarray(cotangent))[1]

    @jax.custom_vjp
    def function(*arrays: Any) -> Any:
        return called(contract, output, *arrays)

    def forward(*arrays: Any) -> tuple[Any, tuple[Any, ...]]:
        """A number with derivatives, which the backward pass scales; of other results the arrays are kept."""
        if is_number:
            value, derivatives = called(with_derivatives, (output, shapes_of(arrays)), *arrays)
            return value, (arrays, derivatives)
        return function(*arrays), (arrays, ())

    def backward(kept: tuple[Any, ...], cotangent: Any) -> tuple[Any, ...]:
        arrays, derivatives = kept
        if is_number:
            found = [cotangent * one for one in derivatives]
        else:
            found = called(pulled_back, shapes_of(arrays), cotangent, *arrays)
        return tuple(_of_type(one, array.dtype) for one, array in zip(found, arrays, strict=True))

    function.defvjp(forward, backward)
    return function


def _of_type(gradient: Any, dtype: Any) -> Any:
    """The gradient with the type of its array; of a real array, the real part."""
    if np.issubdtype(gradient.dtype, np.complexfloating) and not np.issubdtype(dtype, np.complexfloating):
        gradient = gradient.real
    return gradient.astype(dtype)
