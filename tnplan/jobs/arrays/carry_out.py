"""What `contract` and `compile` do: plan what is to be contracted, and carry it out or make it ready."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any

import numpy as np

from tnplan.common.checks import check_count
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.arrays import (
    as_library,
    common_kind,
    host_array,
    refuse_followed,
    stated_dtype,
    with_dtype,
)
from tnplan.jobs.arrays.compiled import CompiledContraction
from tnplan.jobs.arrays.exact import contract_exactly
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.arrays.planning import (
    BATCH,
    compiled,
    find_batched,
    find_path,
    find_schedule,
    gradient_plan,
    memory_bytes,
)
from tnplan.jobs.arrays.request import ContractionRequest, read_request
from tnplan.planner.networks.contraction_path import DTYPES, dtype_name
from tnplan.planner.passes.lowering.keep_results import keep_results

MOST_AXES = 64
"""Of an array of NumPy."""
CALLS_WITH_CONSTANTS = 1000
"""Calls that a contraction with constants is planned for."""


@dataclass(frozen=True)
class CompileRequest:
    """The arguments of `compile` besides the network, its shapes and the options that `contract` has too."""

    dtype: str | None
    constants: dict[int, Any]
    batch: int | None
    batched: Sequence[int] | None
    keep: bool
    calls: int | None


def contract_arrays(network: Any, arrays: Sequence[Any], options: ContractionOptions) -> Any:
    """Contract arrays to one array, of their library and on their device."""
    request = read_request(network, arrays, takes_shapes=False)
    refuse_followed(enumerate(request.call.operands))
    if not request.call.operands:
        raise InputError("contract", "has no arrays", "give one array a tensor")
    call, like = request.call, request.call.operands[0]
    _check_axes(call.output)
    dtype = np.result_type(*map(stated_dtype, call.operands))
    kind, strip_exponent = common_kind(call.operands), options.strip_exponent
    if strip_exponent and dtype.kind == "b":
        raise InputError(
            "strip_exponent", "is of numbers, and the arrays are boolean", "convert them to float64"
        )
    if strip_exponent and dtype.kind in "iu":
        dtype = np.dtype(np.float64)
    options = replace(options, gpu=kind.gpu)
    if 0 in call.size_dict.values():
        zeros = np.zeros(tuple(call.size_dict[index] for index in call.output), dtype)
        given = as_library(zeros, kind, like)
        return (given, 0.0) if strip_exponent else given
    shapes = [tuple(call.size_dict[index] for index in term) for term in call.inputs]
    if kind.gpu is not None:
        return _contract_on_gpu(request, shapes, dtype, options)
    values = [
        host_array(array, f"array {number}").reshape(shape)
        for number, (array, shape) in enumerate(zip(call.operands, shapes, strict=True))
    ]
    if dtype.kind in "biu":
        exact = contract_exactly(find_path(request, "float64", options), values, dtype)
        return as_library(exact, kind, like)
    with compiled(find_schedule(request, computed_dtype(dtype), options), options) as contraction:
        found = contraction(*values)
    if found is None:
        return None
    mantissa, exponent = found if strip_exponent else (found, 0.0)
    given = as_library(with_dtype(np.asarray(mantissa), dtype), kind, like)
    return (given, exponent) if strip_exponent else given


def _contract_on_gpu(
    request: ContractionRequest, shapes: Sequence[tuple[int, ...]], dtype: np.dtype[Any],
    options: ContractionOptions,
) -> Any:  # fmt: skip
    """Contract arrays that are on a GPU."""
    if dtype.kind in "biu":
        raise InputError("arrays", f"on a GPU have dtype {dtype}", "convert them to a floating-point one")
    values = [array.reshape(shape) for array, shape in zip(request.call.operands, shapes, strict=True)]
    with compiled(find_schedule(request, computed_dtype(dtype), options), options) as contraction:
        found = contraction(*values)
    return found if options.strip_exponent or found is None else with_dtype(found, dtype)


def compile_network(
    network: Any, shapes: Sequence[Any], asked: CompileRequest, options: ContractionOptions
) -> CompiledContraction:
    """Make a contraction ready to be called again and again."""
    request = read_request(network, shapes)
    fixed, batch = asked.constants, asked.batch
    _check_axes(request.call.output)
    for name, extent in request.call.size_dict.items():
        if extent == 0:
            remedy = "use tnplan.contract, which gives the result: empty, or zeros"
            raise InputError("shapes", f"index {name!r} has extent 0, and there is nothing to plan", remedy)
    given = [one for one in (*request.call.operands, *fixed.values()) if hasattr(one, "__dlpack_device__")]
    gpu = common_kind(given).gpu if given else None
    n_tensors = len(request.call.inputs)
    fixed = {_tensor("constants", number, n_tensors): values for number, values in fixed.items()}
    refuse_followed(fixed.items(), "constant")
    changing = [number for number in range(n_tensors) if number not in fixed]
    in_batch: Sequence[int] = ()
    if batch is not None:
        check_count("batch", batch)
        named = changing if asked.batched is None else asked.batched
        if not isinstance(named, Iterable):
            raise InputError("batched", f"is {named!r}", "give a list of the tensors of the batch")
        in_batch = [_tensor("batched", number, n_tensors) for number in named]
        if not in_batch:
            raise InputError("batched", "is an empty list", "name a tensor of the batch, or leave batch out")
    calls = asked.calls
    if calls is None:
        calls = batch or (CALLS_WITH_CONSTANTS if fixed and changing else 1)
    options = replace(
        options, gpu=gpu, calls=calls, changing=tuple(changing if batch is None else in_batch)
    )  # fmt: skip
    dtype = _stated(request) if asked.dtype is None else dtype_name(asked.dtype, "dtype")
    if batch is not None:
        planned = find_batched(request, dtype, options, batch, in_batch)
    else:
        planned = find_schedule(request, dtype, options)
    schedule = planned.schedule
    if asked.keep or fixed:
        limit = memory_bytes(options, planned.device)
        if schedule.ranks_per_group == 1:
            schedule = keep_results(schedule, None if asked.keep else changing, limit)
    differentiable = batch is None and not options.strip_exponent
    gradients = gradient_plan(replace(planned, schedule=schedule), options) if differentiable else None
    options = replace(options, device=planned.device, devices=planned.devices)
    shapes = [
        (schedule.size_dict[BATCH], *shape) if number in in_batch else shape
        for number, shape in enumerate(tuple(getattr(one, "shape", one)) for one in request.call.operands)
    ]
    return CompiledContraction(schedule, options, fixed, in_batch, gradients, shapes)


def _check_axes(output: Sequence[str]) -> None:
    if len(output) > MOST_AXES:
        problem = f"has {len(output)} axes, and arrays of NumPy have {MOST_AXES} at most"
        raise InputError("result", problem, "keep fewer indices, or join some in the arrays")


def _tensor(place: str, number: Any, n_tensors: int) -> int:
    """The number of a tensor."""
    if not hasattr(number, "__index__") or not 0 <= index(number) < n_tensors:
        problem = f"names tensor {number!r}"
        raise InputError(place, problem, f"tensors are numbered from 0 to {n_tensors - 1}")
    return index(number)


def _stated(request: ContractionRequest) -> str:
    """The dtype that a schedule, a path or arrays have."""
    planned = request.schedule or request.path
    if planned is not None:
        return planned.dtype
    arrays = [one for one in request.call.operands if hasattr(one, "dtype")]
    if not arrays or len(arrays) < len(request.call.operands):
        raise InputError("dtype", "is missing", "state it, or give arrays instead of shapes")
    return computed_dtype(np.result_type(*map(stated_dtype, arrays)))


def computed_dtype(dtype: np.dtype[Any]) -> str:
    """The dtype in which values of `dtype` are contracted: it holds all of them."""
    name = "float32" if dtype.name == "float16" else dtype.name
    if name not in DTYPES:
        raise InputError("arrays", f"have dtype {dtype}", f"convert them to one of {', '.join(DTYPES)}")
    return name
