"""Contractions over an algebra: planned as any other, on a device that adds and multiplies as that does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.executor.device.cpu.algebra import Algebra, algebra_of
from tnplan.jobs.arrays.arrays import (
    as_library,
    check_axes,
    common_kind,
    host_array,
    kind_of,
    library_of,
    refuse_followed,
)
from tnplan.jobs.arrays.compiled import CompiledContraction
from tnplan.jobs.arrays.contracted import contract_arrays
from tnplan.jobs.arrays.options import CallOptions, ContractionOptions, in_bytes
from tnplan.jobs.arrays.planning import compile_network, compiled, find_schedule, read_request
from tnplan.planner.schedule.schedule import Schedule

CHECKED_TOGETHER = 1 << 16
"""The most elements of an array on a GPU whose values are checked together with those of others."""


def contract_over(given: Any, network: Any, arrays: Sequence[Any], settings: tuple[Any, ...]) -> Any:
    """Contract arrays over an algebra, or its name; the settings are those of `contract_arrays`."""
    algebra = algebra_of(given)
    if algebra is None:
        return contract_arrays(network, arrays, settings)
    optimize, hardware, memory, precision, device, devices, threads, strips = settings
    options = ContractionOptions(
        optimize, hardware, in_bytes(memory), precision, device, devices, threads, strip_exponent=strips,
        algebra=algebra,
    )  # fmt: skip
    call = read_request(network, arrays, takes_shapes=False)
    refuse_followed(enumerate(call.operands))
    if not call.operands:
        raise InputError("contract", "has no arrays", "give one array per tensor")
    check_axes(call.output)
    kind = common_kind(call.operands)
    if kind.gpu is not None:
        algebra.check_gpu()
        options = options.changed(gpu=kind.gpu)
    if 0 in call.size_dict.values():  # an empty sum
        shape = tuple(call.size_dict[index] for index in call.output)
        return as_library(np.full(shape, algebra.zero, algebra.dtype), kind, call.operands[0])
    extents = [tuple(call.size_dict[index] for index in term) for term in call.inputs]
    exact = exact_values(algebra, dict(enumerate(call.operands)))
    values = [exact[number].reshape(shape) for number, shape in enumerate(extents)]
    with compiled(find_schedule(call, algebra.dtype, options), options) as contraction:
        result = contraction(*values)
    if result is None or kind_of(result, "result") == kind:
        return result
    return as_library(host_array(result, "result"), kind, call.operands[0])


def exact_values(algebra: Algebra, arrays: Mapping[int, Any]) -> dict[int, Any]:
    """Arrays in the dtype of the algebra, by number: on the GPU those of CuPy, others on the host."""
    checked: dict[int, Any] = {}
    small = {
        number: array for number, array in arrays.items()
        if library_of(array) == "cupy" and array.dtype == algebra.dtype and array.size <= CHECKED_TOGETHER
    }  # fmt: skip
    # The host waits for the GPU at each check: small arrays have one together. Where that refuses, each has
    # its own, which names it.
    if len(small) > 1:
        with suppress(InputError):
            algebra.check(np.concatenate([array.ravel() for array in small.values()]), "arrays")
            checked = small
    return {
        number: checked[number] if number in checked else _exactly(algebra, array, f"array {number}")
        for number, array in arrays.items()
    }


def _exactly(algebra: Algebra, array: Any, place: str) -> Any:
    return algebra.exactly(array if library_of(array) == "cupy" else host_array(array, place), place)


class AlgebraContraction(CompiledContraction):
    """A compiled contraction over the algebra of its options: arrays of calls have its values."""

    def __init__(self, schedule: Schedule, options: ContractionOptions, *arguments: Any) -> None:
        assert options.algebra is not None
        self._algebra: Algebra = options.algebra
        super().__init__(schedule, options, *arguments)

    def _call(self, arrays: Sequence[Any]) -> Any:
        refuse_followed(self._by_number(arrays).items())
        return super()._call(arrays)

    def _contract(self, arrays: Mapping[int, Any]) -> Any:
        kind = common_kind(list(arrays.values()))
        if kind.gpu is None:
            return super()._contract(arrays)
        self._algebra.check_gpu()
        result = super()._contract(exact_values(self._algebra, arrays))
        if result is None or kind.library == "cupy":
            return result
        return as_library(result, kind, next(iter(arrays.values())))

    def _values(self, array: Any, number: int) -> NDArray[Any]:
        place = f"array {number}"
        return super()._values(self._algebra.exactly(host_array(array, place), place), number)

    def _go_back(self, arrays: Sequence[Any], cotangent: Any, wrt: Sequence[int] | None) -> Any:
        problem = f"are of numbers, and the algebra is {self._algebra.name}"
        raise InputError("gradients", problem, "compile without an algebra", topic="algebras")


def compile_over(
    network: Any, shapes: Sequence[Any], options: ContractionOptions, calls: CallOptions
) -> CompiledContraction:
    """Make a contraction over the algebra of the options ready to be called again and again."""
    algebra = options.algebra
    assert algebra is not None
    if calls.dtype not in (None, algebra.dtype):
        problem = f"is {calls.dtype!r}, and {algebra.name} is in {algebra.dtype}"
        raise InputError("dtype", problem, "leave it out", topic="algebras")
    calls = replace(calls, dtype=algebra.dtype)
    return compile_network(network, shapes, options, calls, AlgebraContraction)
