"""What `contract` does: a look-up of what to do with arrays of these shapes and dtypes, and doing it.

Small arrays of the host are contracted by NumPy alone. What plans and compiles is imported where it is
needed: a first call with small arrays has read few files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.jobs.arrays.along_path import NumpyContraction, contract_exactly
from tnplan.jobs.arrays.arrays import (
    ArrayKind,
    as_array,
    as_library,
    check_axes,
    common_kind,
    computed_dtype,
    host_array,
    numpy_dtype,
    refuse_followed,
    stated_dtype,
    with_dtype,
)
from tnplan.jobs.arrays.options import ContractionOptions, in_bytes
from tnplan.planner.networks.importers.subscripts import EinsumCall, parse_call

Array = NDArray[Any]
Evaluate = Callable[[Sequence[Array]], Any]
"""What is done with arrays of the host: it gives the result, or with `strip_exponent` a mantissa and an
exponent, or None where another process has it. Holds no arrays."""

REMEMBERED = 512
"""Calls that are looked up, by what they are given; the least recently used is given up first."""
MOST_TENSORS = 100
"""Of a network that NumPy contracts step by step."""
BY_NAME = (str, bool)
"""Types of `optimize` that name how a path is found. Other objects may find another one the next time."""
NAMES_MACHINE = (type(None), str, type(Path()))
"""Types of `hardware` that are names."""


def contract_arrays(network: Any, arrays: Sequence[Any], given: tuple[Any, ...]) -> Any:
    """Contract arrays to one array, of their library and on their device.

    `given` are the options as `contract` has them, in the order of its parameters.
    """
    if type(network) is not str or network.endswith(".json") or not _are_names(given):
        return _contract_anew(network, arrays, given)
    if all(type(one) is np.ndarray for one in arrays):
        key = tuple([one.shape for one in arrays]), tuple([one.dtype for one in arrays])
        return _remembered(network, *key, *given)(arrays)
    operands = [as_array(operand, number) for number, operand in enumerate(arrays)]
    refuse_followed(enumerate(operands))
    kind = common_kind(operands)
    if kind.gpu is not None:
        return _contract_anew(network, operands, given)
    values = [host_array(array, f"array {number}") for number, array in enumerate(operands)]
    key = tuple([one.shape for one in values]), tuple([one.dtype for one in values])
    return _in_library(_remembered(network, *key, *given)(values), kind, operands[0])


def _are_names(given: tuple[Any, ...]) -> bool:
    """Whether equal options mean the same in each call."""
    if type(given[0]) not in BY_NAME or type(given[1]) not in NAMES_MACHINE:
        return False
    try:
        hash(given)
    except TypeError:  # for the check of options to refuse
        return False
    return True


def _options(given: tuple[Any, ...]) -> ContractionOptions:
    """The options, checked."""
    optimize, hardware, memory, precision, device, devices, threads, strip_exponent = given
    return ContractionOptions(
        optimize, hardware, in_bytes(memory), precision, device, devices, threads,
        strip_exponent=strip_exponent,
    )  # fmt: skip


Shapes = tuple[tuple[int, ...], ...]
Dtypes = tuple[np.dtype[Any], ...]
Terms = tuple[tuple[tuple[str, ...], ...], tuple[str, ...], tuple[tuple[str, int], ...]]
"""Inputs, output and extents of lists of labels and of networks."""


@lru_cache(REMEMBERED, typed=True)
def _remembered(network: str | Terms, shapes: Shapes, dtypes: Dtypes, *given: Any) -> Evaluate:
    """What is done with arrays of these shapes and dtypes. A refusal is not remembered.

    Options of another type are others: True equals 1 and is no number of devices.
    """
    options = _options(given)
    if isinstance(network, str):
        return _evaluation(parse_call((network, *shapes)), shapes, dtypes, options)
    inputs, output, sizes = network
    return _evaluation(EinsumCall(inputs, output, dict(sizes), ()), shapes, dtypes, options)


def _contract_anew(network: Any, arrays: Sequence[Any], given: tuple[Any, ...]) -> Any:
    """Contract what is read anew: a path, a file, lists of labels, or arrays on a GPU."""
    options = _options(given)
    from tnplan.jobs.arrays.planning import read_request

    call = read_request(network, arrays, takes_shapes=False)
    refuse_followed(enumerate(call.operands))
    if not call.operands:
        raise InputError("contract", "has no arrays", "give one array a tensor")
    check_axes(call.output)
    kind = common_kind(call.operands)
    if kind.gpu is not None and 0 not in call.size_dict.values():
        return _contract_on_gpu(call, tuple(map(stated_dtype, call.operands)), options.changed(gpu=kind.gpu))
    values = [host_array(array, f"array {number}") for number, array in enumerate(call.operands)]
    shapes, dtypes = tuple([one.shape for one in values]), tuple([one.dtype for one in values])
    if call.path is None and call.schedule is None and _are_names(given):
        terms = call.inputs, call.output, tuple(call.size_dict.items())
        evaluate = _remembered(terms, shapes, dtypes, *given)
    else:
        evaluate = _evaluation(replace(call, operands=()), shapes, dtypes, options)
    return _in_library(evaluate(values), kind, call.operands[0])


def _in_library(found: Any, kind: ArrayKind, like: Any) -> Any:
    """A result on the host, or that of several ranks, as an array of the library of `like`."""
    if isinstance(found, tuple):
        return as_library(found[0], kind, like), found[1]
    return None if found is None else as_library(found, kind, like)


def _result_dtype(dtypes: Dtypes, options: ContractionOptions) -> np.dtype[Any]:
    """The dtype to which NumPy promotes those of the arrays."""
    dtype = np.result_type(*map(numpy_dtype, dtypes))
    if options.strip_exponent and dtype.kind == "b":
        raise InputError(
            "strip_exponent", "is of numbers, and the arrays are boolean", "convert them to float64"
        )
    return np.dtype(np.float64) if options.strip_exponent and dtype.kind in "iu" else dtype


def _evaluation(call: EinsumCall, shapes: Shapes, dtypes: Dtypes, options: ContractionOptions) -> Evaluate:
    """What is done with arrays of the host. `call` has no operands, or their shapes."""
    check_axes(call.output)
    dtype, strips = _result_dtype(dtypes, options), options.strip_exponent
    sizes = call.size_dict
    if 0 in sizes.values():
        shape = tuple(sizes[index] for index in call.output)
        return lambda values: (np.zeros(shape, dtype), 0.0) if strips else np.zeros(shape, dtype)
    whole = tuple([tuple(sizes[index] for index in term) for term in call.inputs])
    if dtype.kind in "biu":
        summed = prod(extent for index, extent in sizes.items() if index not in call.output)
        exactly = partial(
            contract_exactly, NumpyContraction(call.network, _exact_path(call, options)), summed, dtype
        )
        return exactly if whole == shapes else partial(_fitted, exactly, whole, dtypes, dtype)
    computed = np.dtype(computed_dtype(dtype))
    small = _small(call, computed.name, options)
    if small is None:
        planned = partial(_planned, replace(call, operands=()), computed.name, options)
        return partial(_fitted, planned, whole, dtypes, dtype)
    if whole == shapes and all(one == dtype == computed for one in dtypes):
        return small
    return partial(_fitted, small, whole, (computed,) * len(whole), dtype)


def _fitted(evaluate: Evaluate, shapes: Shapes, dtypes: Dtypes, dtype: np.dtype[Any], values: Any) -> Any:
    """What is evaluated of arrays without their axes of extent 1 that are broadcast, in other dtypes; the
    result in its own."""
    fits = zip(values, shapes, dtypes, strict=True)
    found = evaluate([one.reshape(shape).astype(wanted, copy=False) for one, shape, wanted in fits])
    if isinstance(found, tuple):
        return with_dtype(np.asarray(found[0]), dtype), found[1]
    return None if found is None else with_dtype(np.asarray(found), dtype)


def _planned(call: EinsumCall, dtype: str, options: ContractionOptions, values: Sequence[Any]) -> Any:
    """The contraction planned and compiled; both are kept for the next call, as far as they are."""
    from tnplan.jobs.arrays.planning import compiled, find_schedule

    with compiled(find_schedule(call, dtype, options), options) as contraction:
        return contraction(*values)


def _path_at_once(call: EinsumCall, options: ContractionOptions) -> Sequence[tuple[int, ...]] | None:
    """The path that needs no plan: that given, or the only one that there is; None where options matter."""
    is_stated = any(one is not None for one in (options.hardware, options.precision, call.schedule))
    if is_stated or not _is_free(options):
        return None
    if call.path is not None:
        return None if call.path.sliced_inds else call.path.ssa_path
    if len(call.inputs) > 2 or not isinstance(options.optimize, str) or options.optimize != "auto":
        return None
    return ((0, 1),)[: len(call.inputs) - 1]


def _exact_path(call: EinsumCall, options: ContractionOptions) -> Sequence[tuple[int, ...]]:
    """The path of integers or booleans; it is not sliced."""
    path = _path_at_once(call, options)
    if path is not None:
        return path
    from tnplan.jobs.arrays.planning import find_path

    return find_path(call, "float64", options).ssa_path


def _small(call: EinsumCall, dtype: str, options: ContractionOptions) -> NumpyContraction | None:
    """The contraction by NumPy alone on the CPU; None where it is not small, or options limit it."""
    path = _path_at_once(call, options)
    if path is None and call.path is None and call.schedule is None and _is_free(options):
        from tnplan.jobs.arrays.planning import find_schedule

        planned = find_schedule(call, dtype, options)
        if planned.device == "cpu" and planned.path is not None and not planned.path.sliced_inds:
            path = planned.path.ssa_path
    if path is None or len(call.inputs) > MOST_TENSORS:
        return None
    contraction = NumpyContraction(call.network, path)
    return contraction if contraction.is_small else None


def _is_free(options: ContractionOptions) -> bool:
    """Whether one device contracts with all its memory and threads, to one array."""
    is_limited = options.memory is not None or options.threads is not None or options.devices > 1
    return not is_limited and not options.strip_exponent and options.device != "gpu"


def _contract_on_gpu(call: EinsumCall, dtypes: Dtypes, options: ContractionOptions) -> Any:
    """Contract arrays that are on a GPU."""
    dtype = _result_dtype(dtypes, options)
    if dtype.kind in "biu":
        raise InputError("arrays", f"on a GPU have dtype {dtype}", "convert them to a floating-point one")
    shapes = [tuple(call.size_dict[index] for index in term) for term in call.inputs]
    values = [array.reshape(shape) for array, shape in zip(call.operands, shapes, strict=True)]
    found = _planned(replace(call, operands=()), computed_dtype(dtype), options, values)
    return found if options.strip_exponent or found is None else with_dtype(found, dtype)
