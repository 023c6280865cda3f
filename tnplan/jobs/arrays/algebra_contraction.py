"""A contraction over an algebra: planned as any other, on a device that adds and multiplies as that does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.executor.device.cpu.algebra import Algebra, algebra_of
from tnplan.jobs.arrays.arrays import as_library, check_axes, common_kind, host_array, refuse_followed
from tnplan.jobs.arrays.contracted import contract_arrays
from tnplan.jobs.arrays.options import ContractionOptions, in_bytes
from tnplan.jobs.arrays.planning import compiled, find_schedule, read_request


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
        raise InputError("contract", "has no arrays", "give one array a tensor")
    if call.schedule is not None:
        problem = "is a schedule, whose chains sum in numbers"
        raise InputError("network", problem, "give the network or its path with an algebra", topic="algebras")
    check_axes(call.output)
    kind = common_kind(call.operands)
    if kind.gpu is not None:
        problem = f"are on a GPU, which has no kernels for the algebra {algebra.name}"
        raise InputError("arrays", problem, "move them to the host", topic="algebras")
    if 0 in call.size_dict.values():  # an empty sum
        shape = tuple(call.size_dict[index] for index in call.output)
        return as_library(np.full(shape, algebra.zero, algebra.dtype), kind, call.operands[0])
    extents = [tuple(call.size_dict[index] for index in term) for term in call.inputs]
    values = [
        algebra.exactly(host_array(array, f"array {number}"), f"array {number}").reshape(shape)
        for number, (array, shape) in enumerate(zip(call.operands, extents, strict=True))
    ]
    with compiled(find_schedule(call, algebra.dtype, options), options) as contraction:
        result = contraction(*values)
    return None if result is None else as_library(result, kind, call.operands[0])
