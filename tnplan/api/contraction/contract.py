"""`contract` and `compile`: the contraction of an einsum equation, a network, a path or a schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.api.contraction.arrays import (
    as_library,
    common_kind,
    host_array,
    stated_dtype,
    with_dtype,
)
from tnplan.api.contraction.compiled import CompiledContraction
from tnplan.api.contraction.exact import contract_exactly
from tnplan.api.contraction.options import ContractionOptions, in_bytes
from tnplan.api.contraction.planning import (
    compiled,
    find_batched,
    find_path,
    find_schedule,
    gradient_plan,
    memory_bytes,
)
from tnplan.api.contraction.request import ContractionRequest, read_request
from tnplan.executor.device.selection.select import expect_gpu
from tnplan.planner.common.checks import check_count
from tnplan.planner.common.errors import InputError
from tnplan.planner.hardware.profile import Profile
from tnplan.planner.networks.contraction_path import DTYPES
from tnplan.planner.passes.lowering.keep_results import keep_results

CALLS_WITH_CONSTANTS = 1000
"""Calls that a contraction with constants is planned for."""


def contract(
    network: Any,
    *arrays: Any,
    optimize: Any = "auto",
    hardware: Profile | str | Path | None = None,
    memory: float | str | None = None,
    precision: str | None = None,
    device: str = "auto",
    devices: int = 1,
    threads: int | None = None,
    strip_exponent: bool = False,
) -> Any:
    """Contract arrays to one array.

    Parameters
    ----------
    network : str, array, TensorNetwork, ContractionTree, ContractionPath, Network, path or Schedule
        An einsum equation, in all of NumPy's and opt_einsum's syntax; or, as the first argument of
        interleaved lists, an array; or a network of quimb, which has its arrays; or a tree of cotengra; or
        a path or a schedule, or the file of one.
    *arrays : array_like
        The tensors in the order of the network: arrays of NumPy, CuPy, torch or JAX, or others with DLPack.
    optimize : str, list or object
        How the contraction path is found where `network` has none. "auto": with as much search as it can
        gain. A method of cotengra by name, a list of pairs of positions as opt_einsum has it, or an
        optimizer object of cotengra or opt_einsum.
    hardware : Profile, name or path
        The machine whose costs decide the layout. Default: the shipped profile of the device.
    memory : float or str, optional
        The most bytes that are taken, such as "12GiB". Default: what is free.
    precision : str, optional
        How values are multiplied; default: as their dtype says.
    device : {"auto", "cpu", "gpu"}
        Where it is carried out. "auto": where the arrays are; for arrays of the host a GPU only where a CPU
        would take a second or more.
    devices : int
        Devices that share the work, each with the `memory` that is stated: GPUs, or threads of this process
        as ranks on the CPU. Under mpirun those of all its ranks, which all make this call with equal arrays;
        the result is on rank 0, and None on the others.
    threads : int, optional
        Threads of a device on a CPU. Default: as BLAS is set; of several, the cores over their number.
    strip_exponent : bool
        Return a pair (mantissa, exponent): the result is mantissa * 10^exponent, and may be beyond the range
        of the dtype. The mantissa's largest real or imaginary part is from 0.5 to 1.

    Returns
    -------
    array
        Of the library of the arrays and on their device, with the dtype to which NumPy promotes theirs.

    Raises
    ------
    InputError
        Where the arrays do not fit the network, or values would be rounded that the dtype promises.

    Examples
    --------
    >>> import numpy as np
    >>> tnplan.contract("ab,bc->ac", np.eye(2), np.ones((2, 3))).shape
    (2, 3)
    """
    if device == "gpu":
        expect_gpu(device)
    request = read_request(network, arrays)
    if not request.call.operands:
        raise InputError("contract", "has no arrays", "give one array a tensor")
    call, like = request.call, request.call.operands[0]
    dtype = np.result_type(*map(stated_dtype, call.operands))
    kind = common_kind(call.operands)
    if strip_exponent and dtype.kind in "biu":
        dtype = np.dtype(np.float64)
    options = ContractionOptions(
        optimize, hardware, in_bytes(memory), precision, device, devices, threads, kind.gpu, strip_exponent
    )
    if 0 in call.size_dict.values():
        zeros = np.zeros(tuple(call.size_dict[index] for index in call.output), dtype)
        given = as_library(zeros, kind, like)
        return (given, 0.0) if strip_exponent else given
    shapes = [tuple(call.size_dict[index] for index in term) for term in call.inputs]
    if kind.gpu is not None:
        if dtype.kind in "biu":
            raise InputError("arrays", f"on a GPU have dtype {dtype}", "convert them to a floating-point one")
        planned = find_schedule(request, computed_dtype(dtype), options)
        on_gpu = [array.reshape(shape) for array, shape in zip(call.operands, shapes, strict=True)]
        with compiled(planned, options) as contraction:
            found = contraction(*on_gpu)
        if strip_exponent or found is None:
            return found
        return with_dtype(found, dtype)
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
    given = as_library(np.asarray(mantissa).astype(dtype, copy=False), kind, like)
    return (given, exponent) if strip_exponent else given


def compile(
    network: Any,
    *shapes: Any,
    dtype: str | None = None,
    constants: Mapping[int, Any] | None = None,
    batch: int | None = None,
    batched: Sequence[int] | None = None,
    keep: bool = False,
    calls: int | None = None,
    optimize: Any = "auto",
    hardware: Profile | str | Path | None = None,
    memory: float | str | None = None,
    precision: str | None = None,
    device: str = "auto",
    devices: int = 1,
    threads: int | None = None,
    strip_exponent: bool = False,
) -> CompiledContraction:
    """Make a contraction ready to be called again and again with new values.

    Parameters
    ----------
    network : str, TensorNetwork, ContractionTree, ContractionPath, Network, path or Schedule
        As in `contract`.
    *shapes : tuple or array
        The shapes of all tensors, or arrays of these shapes, where `network` is an equation. Those of a batch
        are the shapes of one value.
    dtype : str, optional
        "float32", "float64", "complex64" or "complex128". Default: that of the arrays given, of the path or
        of the schedule.
    constants : mapping of int to array_like, optional
        Tensors by their number that are the same in all calls, which then take the others alone. What
        depends on constants alone is contracted once and kept as far as the memory allows.
    batch : int, optional
        The tensors of a batch have a first axis of any length, and so has the result. So many values are
        contracted at once, or as many as the memory allows.
    batched : sequence of int, optional
        The numbers of the tensors of the batch. Default: all that are not constant.
    keep : bool
        Keep all results in between as far as the memory allows, so that `CompiledContraction.update` with a
        few new tensors repeats only what depends on them.
    calls : int, optional
        About how often it will be called. The search for a path weighs what is contracted once against what
        is contracted in each call, and takes the longer the more it can gain. Default: the batch; 1000 where
        there are constants; else 1.
    optimize, hardware, memory, precision, device, devices, threads, strip_exponent
        As in `contract`.

    Returns
    -------
    CompiledContraction
        To be called with arrays.

    Raises
    ------
    InputError
        Where the network, the shapes or the options do not fit together, or the memory does not suffice.

    Examples
    --------
    >>> import numpy as np
    >>> with tnplan.compile("ab,bc->ac", (2, 3), (3, 4), dtype="float64") as product:
    ...     product(np.ones((2, 3)), np.ones((3, 4))).shape
    (2, 4)
    """
    request = read_request(network, shapes)
    fixed = dict(constants or {})
    given = [one for one in (*request.call.operands, *fixed.values()) if hasattr(one, "__dlpack_device__")]
    gpu = common_kind(given).gpu if given else None
    n_tensors = len(request.call.inputs)
    _check_numbers("constants", fixed, n_tensors)
    changing = [number for number in range(n_tensors) if number not in fixed]
    in_batch: Sequence[int] = ()
    if batch is not None:
        in_batch = changing if batched is None else batched
        _check_numbers("batched", in_batch, n_tensors)
        check_count("batch", batch)
    if calls is None:
        calls = batch or (CALLS_WITH_CONSTANTS if fixed else 1)
    options = ContractionOptions(
        optimize, hardware, in_bytes(memory), precision, device, devices, threads, gpu, strip_exponent,
        calls, tuple(changing if batch is None else in_batch), waits_for_kernels=True,
    )  # fmt: skip
    if dtype is None:
        dtype = _stated(request)
    if dtype not in DTYPES:
        raise InputError("dtype", f"{dtype!r} is unknown", f"choose from {', '.join(DTYPES)}")
    if batch is not None:
        planned = find_batched(request, dtype, options, batch, in_batch)
    else:
        planned = find_schedule(request, dtype, options)
    schedule = planned.schedule
    if keep or fixed:
        limit = memory_bytes(options, planned.device)
        if schedule.ranks_per_group == 1:
            schedule = keep_results(schedule, None if keep else changing, limit)
    differentiable = batch is None and not strip_exponent
    gradients = gradient_plan(replace(planned, schedule=schedule), options) if differentiable else None
    options = replace(options, device=planned.device)
    return CompiledContraction(schedule, options, fixed, in_batch, gradients)


def _check_numbers(place: str, numbers: Iterable[int], n_tensors: int) -> None:
    for number in numbers:
        if not isinstance(number, int) or not 0 <= number < n_tensors:
            problem = f"names tensor {number!r}"
            raise InputError(place, problem, f"tensors are numbered from 0 to {n_tensors - 1}")


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
