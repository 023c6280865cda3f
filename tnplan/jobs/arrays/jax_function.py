"""A contraction as a function that JAX differentiates, to any order, maps and compiles. Imports JAX.

Two primitives compute on the host. They are linear where JAX must transpose, and their derivatives are made
of the same two, as gradient_calls.py says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from tnplan.common.errors import InputError
from tnplan.executor.device.comm.launcher import launched_size
from tnplan.jobs.arrays.arrays import library_of
from tnplan.jobs.arrays.gradient_calls import Differentiable, directional


def jax_function(contraction: Differentiable) -> Callable[..., Any]:
    """The contraction as a function of JAX arrays."""
    dtype = np.dtype(contraction.dtype)
    # JAX makes single precision of double unless jax_enable_x64 is set, and does so without an error.
    if jnp.zeros((), dtype).dtype != dtype:
        remedy = "set jax.config.update('jax_enable_x64', True), or compile for single precision"
        raise InputError("contraction", f"JAX would round {dtype} to fewer bits", remedy)
    if contraction.devices > 1 and launched_size() > 1:
        problem = "is shared by ranks of mpirun, and JAX calls back in an order of its own"
        raise InputError("contraction", problem, "use torch, or value_and_grad")

    def operand(array: Any, number: int) -> Any:
        """The array in the dtype of the contraction, as far as that loses nothing."""
        if library_of(array) not in ("jax", "numpy"):
            problem = f"is of {library_of(array)}, and others are of jax"
            raise InputError(f"array {number}", problem, "give arrays of one library")
        array = jnp.asarray(array)
        return array.astype(dtype) if np.can_cast(array.dtype, dtype) else array

    def function(*arrays: Any) -> Any:
        unused = jnp.zeros((), dtype)  # the cotangent
        operands = [operand(array, number) for number, array in enumerate(arrays)]
        (value,) = _derivatives.bind(unused, *operands, contraction=contraction, wrt=())
        return value

    return function


_derivatives = Primitive("tnplan_derivatives")
"""Takes the X_0, ..., X_n of gradient_calls.py and gives D_0 and the D_k of `wrt`. X_0 may be anything where
`wrt` is empty."""
_directional = Primitive("tnplan_directional")
"""Takes X_0, ..., X_n and the V_m of `moved`, and gives how the D_k of `which` change in their direction. It
is linear in all V_m together."""


def _compute(*tensors: Any, contraction: Differentiable, wrt: tuple[int, ...]) -> list[Any]:
    """D_0 and the D_k of `wrt`, by a call on the host."""
    dtype = np.dtype(contraction.dtype)

    def call(cotangent: Any, *arrays: Any) -> tuple[Any, ...]:
        # The cotangent X_0 is no argument of R = D_0, which alone is wanted where `wrt` is empty.
        return contraction.derivatives(list(map(np.asarray, arrays)), np.asarray(cotangent), wrt)

    shapes = _shapes(contraction, tensors)
    results = tuple(jax.ShapeDtypeStruct(shapes[k], dtype) for k in (0, *wrt))
    return list(jax.pure_callback(call, results, *tensors))


def _derivatives_of(contraction: Differentiable) -> Any:
    """The D_k of a contraction, as JAX differentiates them."""

    def derivatives(tensors: Sequence[Any], wrt: tuple[int, ...]) -> dict[int, Any]:
        results = _derivatives.bind(*tensors, contraction=contraction, wrt=wrt)
        return dict(zip((0, *wrt), results, strict=True))

    return derivatives


def _compute_directional(
    *arrays: Any, contraction: Differentiable, moved: tuple[int, ...], which: tuple[int, ...]
) -> list[Any]:
    """The changes of the D_k, from calls on the host."""
    tensors, directions = _parted(arrays, moved)
    changes = directional(_derivatives_of(contraction), tensors, directions, which)
    return _filled(contraction, tensors, changes, which)


def _derivatives_jvp(
    tensors: Sequence[Any], tangents: Sequence[Any], *, contraction: Differentiable, wrt: tuple[int, ...]
) -> tuple[list[Any], list[Any]]:
    """The D_k, and how they change with the tensors."""
    directions = _nonzero(enumerate(tangents))
    which = (0, *wrt)
    if which == (0,) and _shapes(contraction, tensors)[0] == ():
        # Where R is a number, its change is sum_m <D_m, V_m>, and all D_m come from one reverse
        # pass. Otherwise there is a contraction for each direction.
        unit = jnp.ones((), contraction.dtype)
        value, *gradients = _derivatives.bind(
            unit, *tensors[1:], contraction=contraction, wrt=tuple(directions)
        )
        change = sum(jnp.sum(g * v) for g, v in zip(gradients, directions.values(), strict=True))
        return [value], [change]
    values = _derivatives.bind(*tensors, contraction=contraction, wrt=wrt)
    changes = _changes(contraction, tensors, directions, which)
    return values, _filled(contraction, tensors, changes, which)


def _directional_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, contraction: Differentiable,
    moved: tuple[int, ...], which: tuple[int, ...],
) -> tuple[list[Any], list[Any]]:  # fmt: skip
    """The changes of the D_k, and how these change with the V_m and with the tensors."""
    values = _directional.bind(*primals, contraction=contraction, moved=moved, which=which)
    tensors, vectors = _parted(primals, moved)
    tensor_tangents, vector_tangents = _parted(tangents, moved)
    sums = _changes(contraction, tensors, _nonzero(vector_tangents.items()), which)
    # Second order: in the term of V_m the tensors beside m change too, and V_m stands for X_m in
    # all of them. The matrix of second derivatives has no diagonal, as S is linear in each tensor.
    for m, vector in vectors.items():
        replaced = [vector if k == m else tensor for k, tensor in enumerate(tensors)]
        others = _nonzero((k, change) for k, change in enumerate(tensor_tangents) if k != m)
        changes = _changes(contraction, replaced, others, tuple(k for k in which if k != m))
        sums |= {k: sums[k] + change if k in sums else change for k, change in changes.items()}
    return values, _filled(contraction, tensors, sums, which)


def _derivatives_transpose(
    weights: Sequence[Any], *tensors: Any, contraction: Differentiable, wrt: tuple[int, ...]
) -> list[Any]:
    """The D_k as a linear map of one tensor, transposed."""
    (linear,) = (k for k, tensor in enumerate(tensors) if ad.is_undefined_primal(tensor))
    aval = tensors[linear].aval
    point = [jnp.zeros(aval.shape, aval.dtype) if k == linear else tensor for k, tensor in enumerate(tensors)]
    changes = _changes(contraction, point, _nonzero(zip((0, *wrt), weights, strict=True)), (linear,))
    return [changes.get(k) for k in range(len(tensors))]


def _directional_transpose(
    weights: Sequence[Any], *arrays: Any, contraction: Differentiable, moved: tuple[int, ...],
    which: tuple[int, ...],
) -> list[Any]:  # fmt: skip
    """The changes of the D_k as a linear map of the V_m, transposed: the same map with both sides swapped."""
    tensors, _ = _parted(arrays, moved)
    if any(ad.is_undefined_primal(tensor) for tensor in tensors):
        problem = "has a forward derivative that is transposed by its point"
        raise InputError("contraction", problem, "use jax.vjp")
    changes = _changes(contraction, tensors, _nonzero(zip(which, weights, strict=True)), moved)
    return [None] * len(tensors) + [changes.get(m) for m in moved]


def _changes(
    contraction: Differentiable, tensors: Sequence[Any], directions: dict[int, Any],
    which: tuple[int, ...],
) -> dict[int, Any]:  # fmt: skip
    """How the D_k of `which` change, by k; nothing where there are no directions."""
    if not directions or not which:
        return {}
    results = _directional.bind(
        *tensors, *directions.values(), contraction=contraction, moved=tuple(directions), which=which
    )
    return dict(zip(which, results, strict=True))


def _parted(arrays: Sequence[Any], moved: tuple[int, ...]) -> tuple[Sequence[Any], dict[int, Any]]:
    """X_0, ..., X_n, and the V_m by m."""
    count = len(arrays) - len(moved)
    return arrays[:count], dict(zip(moved, arrays[count:], strict=True))


def _nonzero(tangents: Iterable[tuple[int, Any]]) -> dict[int, Any]:
    """The tangents that are not zero, by number."""
    return {k: tangent for k, tangent in tangents if type(tangent) is not ad.Zero}


def _filled(
    contraction: Differentiable, tensors: Sequence[Any], values: dict[int, Any], which: tuple[int, ...]
) -> list[Any]:
    """What there is for each k of `which`, and else zeros, shaped as D_k is."""
    shapes, dtype = _shapes(contraction, tensors), contraction.dtype
    return [values[k] if k in values else jnp.zeros(shapes[k], dtype) for k in which]


def _shapes(contraction: Differentiable, tensors: Sequence[Any]) -> list[tuple[int, ...]]:
    """Those of D_0, ..., D_n."""
    shapes = [tensor.shape for tensor in tensors[1:]]
    return [contraction.result_shape(shapes), *shapes]


def _define(primitive: Primitive, compute: Callable[..., Any], jvp: Any, transpose: Any) -> None:
    """Give a primitive its rules. The values of a batch are computed at once, or one after the other."""

    def batch(
        arrays: Sequence[Any], axes: Sequence[Any], *, contraction: Differentiable, **parameters: Any
    ) -> tuple[Any, list[int]]:
        directions = parameters.get("moved", ())
        numbers = [*range(len(arrays) - len(directions)), *directions]  # the k of each array
        lengths = {array.shape[axis] for array, axis in zip(arrays, axes, strict=True) if axis is not None}
        # A tensor has a gradient for each row where it is one of the batch.
        wide = {k for k, axis in zip(numbers, axes, strict=True) if axis is not None}
        wide |= {*directions, *parameters.get("which", ()), *parameters.get("wrt", ())}
        batched = sorted(wide - {0}) or [1]
        mapped = contraction.mapped(batched, min(lengths))
        if mapped is None:
            return by_rows(arrays, axes, contraction=contraction, **parameters)
        given = list(arrays)
        for number, (k, axis, array) in enumerate(zip(numbers, axes, arrays, strict=True)):
            if axis is not None:
                given[number] = jnp.moveaxis(array, axis, 0)
            elif k == 0 or k in batched:
                given[number] = jnp.broadcast_to(array, (*lengths, *array.shape))
        results = primitive.bind(*given, contraction=mapped, **parameters)
        return results, [0] * len(results)

    def by_rows(arrays: Sequence[Any], axes: Sequence[Any], **parameters: Any) -> tuple[Any, list[int]]:
        def of_row(row: dict[int, Any]) -> Any:
            return primitive.bind(*(row.get(k, array) for k, array in enumerate(arrays)), **parameters)

        given = {k: axis for k, axis in enumerate(axes) if axis is not None}
        results = jax.lax.map(of_row, {k: jnp.moveaxis(arrays[k], axis, 0) for k, axis in given.items()})
        return results, [0] * len(results)

    def shapes(*arrays: Any, contraction: Differentiable, **parameters: Any) -> list[Any]:
        which = parameters["which"] if "which" in parameters else (0, *parameters["wrt"])
        of_all = _shapes(contraction, arrays)
        return [jax.core.ShapedArray(of_all[k], np.dtype(contraction.dtype)) for k in which]

    # What JAX asks of a primitive: evaluation, shapes of abstract values, a rule of forward mode, a
    # rule that transposes it for reverse mode, a rule for vmap, and its lowering for jit.
    primitive.multiple_results = True
    primitive.def_impl(compute)
    primitive.def_abstract_eval(shapes)
    ad.primitive_jvps[primitive] = jvp
    ad.primitive_transposes[primitive] = transpose
    batching.primitive_batchers[primitive] = batch
    mlir.register_lowering(primitive, mlir.lower_fun(compute, multiple_results=True))


_define(_derivatives, _compute, _derivatives_jvp, _derivatives_transpose)
_define(_directional, _compute_directional, _directional_jvp, _directional_transpose)
