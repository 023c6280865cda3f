"""What `contract` does: a look-up of what to do with arrays of these shapes and dtypes, and doing it.

Small arrays of the host are contracted by NumPy alone. What plans and compiles is imported where it is
needed: a first call with small arrays has read few files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, cached_property, lru_cache, partial
from math import prod
from numbers import Number
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.jobs.arrays.arrays import (
    ArrayKind,
    as_array,
    as_library,
    check_axes,
    common_dtype,
    common_kind,
    computed_dtype,
    follower_of,
    host_array,
    is_compiled,
    stated_dtype,
    with_dtype,
)
from tnplan.jobs.arrays.library_contraction import common_name, library_contraction, library_key
from tnplan.jobs.arrays.numpy_contraction import (
    MOST_TENSORS,
    UNFUSED_TENSORS,
    DirectCall,
    NumpyContraction,
    direct_contraction,
    may_be_direct,
    sliced_contraction,
)
from tnplan.jobs.arrays.options import ContractionOptions, in_bytes
from tnplan.planner.networks.importers.subscripts import EinsumCall, parse_call
from tnplan.planner.networks.network import Network
from tnplan.planner.search.few_tensors import cheapest_path

if TYPE_CHECKING:
    from tnplan.jobs.arrays.planning import Planned

Array = NDArray[Any]
Evaluate = Callable[..., Any]
"""What is done with arrays of the host: it gives the result, or with `strip_exponent` a mantissa and an
exponent, or None where another process has it. Holds no arrays."""

REMEMBERED = 512
"""Calls that are looked up, by what they are given; the least recently used is given up first."""
DEFAULTS = ("auto", None, None, None, "auto", 1, None, False)
"""The options of `contract`, in the order of its parameters."""
SHAPE, DTYPE = attrgetter("shape"), attrgetter("dtype")
EXACT_IN_FLOAT64, EXACT_IN = 2**53, {"b": 2**63, "i": 2**63, "u": 2**64}
ROUNDING = 1e-6
"""A bound that was itself computed in floating point is taken this much larger."""


def contract_plain(equation: str, arrays: Sequence[Any]) -> Any:
    """`contract_arrays` with an equation and the default options."""
    # Each look-up and each call takes as long as a sum of a few hundred numbers: there is one of both for
    # arrays of NumPy that were met before.
    key: Any = equation
    for array in arrays:
        if type(array) is not ndarray:
            return _contract_in_library(equation, arrays)
        key = key, array.shape, array.dtype
    evaluate = _plain_calls.get(key)
    if evaluate is None:
        if equation.endswith(".json"):
            return contract_anew(equation, arrays, DEFAULTS)
        if len(_plain_calls) >= REMEMBERED:
            _plain_calls.clear()
        evaluate = _plain_calls[key] = remembered(equation, *_shapes_and_dtypes(arrays))
    return evaluate(*arrays)


_plain_calls: dict[Any, Evaluate] = {}
"""Evaluations of `remembered` by ((equation, shape, dtype), shape, dtype) ..., with those of each array."""


def _contract_in_library(equation: str, arrays: Sequence[Any]) -> Any:
    """`contract_plain` with arrays of another library than NumPy."""
    key = library_key(arrays)
    if key is None:
        return contract_arrays(equation, arrays, DEFAULTS)
    evaluate = _library_calls.get((equation, key))
    if evaluate is None:
        if len(_library_calls) >= REMEMBERED:
            _library_calls.clear()
        in_library = _by_library(key[0], equation, arrays)
        evaluate = in_library or (lambda *given: contract_arrays(equation, given, DEFAULTS))
        _library_calls[equation, key] = evaluate
    return evaluate(*arrays)


_library_calls: dict[Any, Evaluate] = {}
"""What is done with arrays of other libraries, by the equation and `library_key`."""


def _by_library(library: str, equation: str, arrays: Sequence[Any]) -> Evaluate | None:
    """The contraction by the library of arrays; None where another way is better, or it is refused."""
    dtype = common_name(arrays)
    if dtype is None or equation.endswith(".json"):
        return None
    shapes = tuple(tuple(array.shape) for array in arrays)
    try:
        call = parse_call((equation, *shapes))
        check_axes(call.output)
        options = _default_options().changed(gpu=common_kind(arrays).gpu)
    except InputError:  # contract_arrays names what is wrong
        return None
    sizes = call.size_dict
    if 0 in sizes.values() or len(arrays) > UNFUSED_TENSORS:
        return None
    path = _unsliced_path(call, dtype, options)
    in_library = None if path is None else library_contraction(call.network, path, dtype, options)
    if in_library is None:
        return None
    contraction = in_library(library)
    extents = tuple([tuple(map(sizes.__getitem__, term)) for term in call.inputs])
    if extents == shapes:
        return contraction
    shaped = partial(map, lambda array, shape: array.reshape(shape))
    return lambda *arrays: contraction(*shaped(arrays, extents))


def contract_arrays(network: Any, arrays: Sequence[Any], settings: tuple[Any, ...]) -> Any:
    """Contract arrays to one array, of their library and on their device.

    `settings` are the options as `contract` has them, in the order of its parameters.
    """
    # `remembered` caches by value: the text of the network, shapes, dtypes and the options. Its
    # evaluations hold no arrays, so that a call keeps nothing of another one alive.
    are_arrays = all(type(array) is np.ndarray for array in arrays)
    if not are_arrays and is_compiled():
        from tnplan.jobs.arrays.torch_function import contract_in_graph

        return contract_in_graph(network, settings, *arrays)
    if isinstance(network, np.str_):  # an equation, although it has a shape
        network = str(network)
    if type(network) is not str or network.endswith(".json") or not _are_names(*settings):
        return contract_anew(network, arrays, settings)
    if are_arrays:
        return remembered(network, *_shapes_and_dtypes(arrays), *settings)(*arrays)
    operands = [as_array(operand, number) for number, operand in enumerate(arrays)]
    if follower_of(operands) is not None:
        return contract_anew(network, operands, settings)
    kind = common_kind(operands)
    if kind.gpu is not None:
        return contract_anew(network, operands, settings)
    values = [host_array(array, f"array {number}") for number, array in enumerate(operands)]
    evaluate = remembered(network, *_shapes_and_dtypes(values), *settings)
    return _in_library(evaluate(*values), kind, operands[0])


def _shapes_and_dtypes(arrays: Sequence[Array]) -> tuple[Shapes, Dtypes]:
    """What an evaluation of arrays depends on."""
    return tuple(map(SHAPE, arrays)), tuple(map(DTYPE, arrays))


def _are_names(optimize: Any, hardware: Any, *others: Any) -> bool:
    """Whether equal options mean the same in each call: another optimizer may find another path."""
    if type(optimize) not in (str, bool, type(None)) or type(hardware) not in (type(None), str, type(Path())):
        return False
    try:
        hash(others)
    except TypeError:  # for the check of options to refuse
        return False
    return True


def _options(settings: tuple[Any, ...]) -> ContractionOptions:
    """The options, checked."""
    optimize, hardware, memory, precision, device, devices, threads, strips = settings
    return ContractionOptions(
        optimize, hardware, in_bytes(memory), precision, device, devices, threads, strip_exponent=strips
    )


@cache
def _default_options() -> ContractionOptions:
    return _options(DEFAULTS)


Shapes = tuple[tuple[int, ...], ...]
Dtypes = tuple[np.dtype[Any], ...]
Terms = tuple[tuple[tuple[str, ...], ...], tuple[str, ...], tuple[tuple[str, int], ...]]
"""Inputs, output and extents of lists of labels and of networks."""


@lru_cache(REMEMBERED, typed=True)
def remembered(network: str | Terms, shapes: Shapes, dtypes: Dtypes, *settings: Any) -> Evaluate:
    """What is done with arrays of these shapes and dtypes; without options, by the default ones. A refusal is
    not remembered.

    Options of another type are others: True equals 1 and is no number of devices.
    """
    options = _options(settings) if settings else _default_options()
    if isinstance(network, str):
        return _evaluation(parse_call((network, *shapes)), shapes, dtypes, options)
    inputs, output, sizes = network
    return _evaluation(EinsumCall(inputs, output, dict(sizes), ()), shapes, dtypes, options)


def forget() -> None:
    """Empty the caches of calls."""
    remembered.cache_clear()
    _plain_calls.clear()
    _library_calls.clear()


def contract_anew(network: Any, arrays: Sequence[Any], settings: tuple[Any, ...]) -> Any:
    """Contract what is read anew: a path, a file, lists of labels, or arrays on a GPU."""
    options = _options(settings)
    from tnplan.jobs.arrays.planning import read_request

    call = read_request(network, arrays, takes_shapes=False)
    if not call.operands:
        raise InputError("contract", "has no arrays", "give one array per tensor")
    check_axes(call.output)
    follower = follower_of(call.operands)
    if follower is not None:
        return _contract_followed(call, options, settings, follower)
    kind = common_kind(call.operands)
    if kind.gpu is not None and 0 not in call.size_dict.values():
        return _contract_on_gpu(call, tuple(map(stated_dtype, call.operands)), options.changed(gpu=kind.gpu))
    values = [host_array(array, f"array {number}") for number, array in enumerate(call.operands)]
    shapes, dtypes = _shapes_and_dtypes(values)
    # What was read is hashable here although the call was not, for instance lists of labels: it is
    # cached by its terms.
    if call.path is None and call.schedule is None and _are_names(*settings):
        terms = call.inputs, call.output, tuple(call.size_dict.items())
        evaluate = remembered(terms, shapes, dtypes, *settings)
    else:
        evaluate = _evaluation(call._replace(operands=()), shapes, dtypes, options)
    return _in_library(evaluate(*values), kind, call.operands[0])


def _contract_followed(
    call: EinsumCall, options: ContractionOptions, settings: tuple[Any, ...], library: str
) -> Any:
    """Contract arrays that torch or JAX differentiates, maps or traces."""
    from tnplan.jobs.arrays.compiled import followed_call

    if options.strip_exponent:
        problem = f"is asked for, but {library} traces the call"
        raise InputError("strip_exponent", problem, "give the values of the arrays")
    result_dtype = _result_dtype(tuple(map(stated_dtype, call.operands)), options)
    dtype = result_dtype.name if result_dtype.kind in "biu" else computed_dtype(result_dtype)
    if library == "torch":  # JAX calls back on the host
        options = options.changed(gpu=common_kind(call.operands).gpu)
    if call.path is None and call.schedule is None and _are_names(*settings):
        terms = call.inputs, call.output, tuple(call.size_dict.items())
        contraction = _remembered_contraction(terms, dtype, options)
    else:
        contraction = ContractionOfCall(call._replace(operands=()), dtype, options)
    return with_dtype(followed_call(contraction, call.operands, library), result_dtype)


@lru_cache(REMEMBERED)
def _remembered_contraction(terms: Terms, dtype: str, options: ContractionOptions) -> ContractionOfCall:
    inputs, output, sizes = terms
    return ContractionOfCall(EinsumCall(inputs, output, dict(sizes), ()), dtype, options)


class ContractionOfCall:
    """The contraction of a call of `contract` that torch or JAX follows: a `Differentiable`.

    - `call`: Without operands.
    - `dtype`: Of the result before it gets that of the arrays.
    - `options`: Of the call.
    """

    def __init__(self, call: EinsumCall, dtype: str, options: ContractionOptions) -> None:
        self.dtype, self.devices, self._options = dtype, options.devices, options
        self._extents = [tuple(call.size_dict[index] for index in term) for term in call.inputs]
        self._shape = tuple(call.size_dict[index] for index in call.output)
        self._is_empty = 0 in call.size_dict.values()
        is_found = call.path is not None or call.schedule is not None or _are_names(options.optimize, None)
        if not (is_found or self._is_empty or np.dtype(dtype).kind in "biu"):
            from tnplan.jobs.arrays.planning import find_path

            # An optimizer may find another path each time: that of the result serves the derivatives.
            call = call._replace(path=find_path(call, dtype, options))
        self._call = call
        self._mapped: dict[tuple[tuple[int, ...], int], ContractionOfCall] = {}

    @cached_property
    def number(self) -> int:
        """Its name in graphs of torch, which keep it."""
        from tnplan.jobs.arrays.gradient_calls import new_number

        _IN_GRAPHS.append(self)
        return new_number(self)

    @cached_property
    def _evaluate(self) -> Evaluate:
        shapes, dtypes = tuple(self._extents), (np.dtype(self.dtype),) * len(self._extents)
        return _evaluation(self._call, shapes, dtypes, self._options)

    @cached_property
    def _planned(self) -> Planned:
        from tnplan.jobs.arrays.planning import find_schedule

        return find_schedule(self._call, self.dtype, self._options)

    def result_shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """The shape of the result; it is that of no other call."""
        return self._shape

    def mapped(self, batched: Sequence[int], length: int) -> ContractionOfCall | None:
        """The contraction of so many values at once, as `Differentiable` has it: where it is small."""
        options, key = self._options, (tuple(batched), length)
        if key in self._mapped:
            return self._mapped[key]
        from tnplan.executor.contraction.bind.program import needed_bytes
        from tnplan.jobs.arrays.planning import CACHED_BYTES, batched_terms

        inputs, output, sizes = batched_terms(
            (self._call.inputs, self._call.output, self._call.size_dict), length, [k - 1 for k in batched]
        )
        path = None
        if length and not self._is_empty:  # else the results have no elements, or are zeros
            is_exact = np.dtype(self.dtype).kind in "biu"
            if is_exact or options.memory is not None or options.devices > 1:
                return None
            path = self._planned.path
            if path is None or length * needed_bytes(self._planned.schedule) > CACHED_BYTES:
                return None
            path = replace(path, network=Network(inputs, output, sizes))
        call = EinsumCall(inputs, output, sizes, (), path)
        self._mapped[key] = ContractionOfCall(call, self.dtype, options)
        return self._mapped[key]

    def derivatives(self, arrays: Sequence[Any], cotangent: Any, wrt: Sequence[int]) -> tuple[Any, ...]:
        """D_0 and the D_k of `wrt`, as `Differentiable` has them."""
        kind, values = common_kind(arrays), list(arrays)
        for number, (array, extents) in enumerate(zip(arrays, self._extents, strict=True)):
            if prod(array.shape) != prod(extents) or not np.can_cast(stated_dtype(array), self.dtype):
                problem = f"has shape {tuple(array.shape)} and dtype {stated_dtype(array)}"
                remedy = f"give an array of shape {extents} and dtype {self.dtype}"
                raise InputError(f"array {number}", problem, remedy)
        if kind.gpu is None:
            values = [host_array(array, f"array {number}") for number, array in enumerate(arrays)]
        shapes = [self._shape, *(arrays[k - 1].shape for k in wrt)]
        results: Sequence[Any]
        if self._is_empty:
            results = [np.zeros(shape, self.dtype) for shape in shapes]
        else:
            results = self._derivatives(values, cotangent, wrt, kind.gpu is None and self.devices == 1)
        shaped = [array.reshape(shape) for array, shape in zip(results, shapes, strict=True)]
        return tuple(as_library(x, kind, arrays[0]) if type(x) is np.ndarray else x for x in shaped)

    def _derivatives(
        self, arrays: Sequence[Any], cotangent: Any, wrt: Sequence[int], may_be_direct: bool
    ) -> Sequence[Any]:
        """The same, of values alone and shaped as the network shapes them."""
        fitted = [array.reshape(shape) for array, shape in zip(arrays, self._extents, strict=True)]
        if may_be_direct and not wrt:
            return [np.asarray(self._evaluate(*(array.astype(self.dtype, copy=False) for array in fitted)))]
        from tnplan.jobs.arrays.planning import compiled

        with compiled(self._planned, self._options) as contraction:
            return contraction.derivatives(fitted, cotangent, wrt)


_IN_GRAPHS: list[ContractionOfCall] = []
"""Those in graphs of torch, which name them by number alone."""


def _in_library(result: Any, kind: ArrayKind, like: Any) -> Any:
    """A result on the host, or that of several ranks, as an array of the library of `like`."""
    if isinstance(result, tuple):
        return as_library(result[0], kind, like), result[1]
    return None if result is None else as_library(result, kind, like)


def _result_dtype(dtypes: Dtypes, options: ContractionOptions) -> np.dtype[Any]:
    """The dtype to which NumPy promotes those of the arrays."""
    dtype = common_dtype(dtypes)
    if options.strip_exponent and dtype.kind in "bO":
        problem = f"is of numbers in floating point, and the arrays are of dtype {dtype}"
        raise InputError("strip_exponent", problem, "convert the arrays to float64")
    return np.dtype(np.float64) if options.strip_exponent and dtype.kind in "iu" else dtype


def _evaluation(call: EinsumCall, shapes: Shapes, dtypes: Dtypes, options: ContractionOptions) -> Evaluate:
    """What is done with arrays of the host. `call` has no operands, or their shapes."""
    check_axes(call.output)
    dtype, strips, sizes = _result_dtype(dtypes, options), options.strip_exponent, call.size_dict
    # An empty sum is 0; nothing is planned for it.
    if 0 in sizes.values():
        shape = tuple(sizes[index] for index in call.output)
        return lambda *values: (np.zeros(shape, dtype), 0.0) if strips else np.zeros(shape, dtype)
    extents = tuple([tuple(map(sizes.__getitem__, term)) for term in call.inputs])
    # As in numpy.einsum, one array of which nothing is summed gives a view of itself, of any dtype.
    is_view = len(call.inputs) == 1 and set(call.inputs[0]) == set(call.output) and dtypes[0] == dtype
    if is_view and may_be_direct(options) and call.schedule is None and dtype.kind != "O":
        view = NumpyContraction(call.network, ()).call
        return view if extents == shapes else partial(_fitted, view, extents, dtypes, dtype)
    # Integers and objects are contracted exactly or refused: floating point alone would round them without
    # a word.
    if dtype.kind in "biuO":
        contraction = _exact_steps(call, options)
        summed = prod(extent for index, extent in sizes.items() if index not in call.output)
        exactly = partial(contract_exactly, contraction, summed, dtype)
        if dtype.kind == "O":
            exactly = partial(contract_objects, contraction)
        return exactly if extents == shapes else partial(_fitted, exactly, extents, dtypes, dtype)
    name = computed_dtype(dtype)
    computed, direct = np.dtype(name), _direct(call, name, options)
    if direct is None:
        planned = partial(_planned, call._replace(operands=()), name, options)
        return partial(_fitted, planned, extents, dtypes, dtype)
    if extents == shapes and all(actual == dtype == computed for actual in dtypes):
        return direct
    return partial(_fitted, direct, extents, (computed,) * len(extents), dtype)


def _fitted(evaluate: Evaluate, shapes: Shapes, dtypes: Dtypes, dtype: np.dtype[Any], *values: Array) -> Any:
    """What is evaluated of arrays without their axes of extent 1 that are broadcast, in other dtypes; the
    result in its own."""
    fits = zip(values, shapes, dtypes, strict=True)
    result = evaluate(*(array.reshape(shape).astype(wanted, copy=False) for array, shape, wanted in fits))
    if isinstance(result, tuple):
        return with_dtype(np.asarray(result[0]), dtype), result[1]
    return None if result is None else with_dtype(np.asarray(result), dtype)


def _planned(call: EinsumCall, dtype: str, options: ContractionOptions, *values: Any) -> Any:
    """The contraction planned and compiled, both from caches where they are there."""
    from tnplan.jobs.arrays.planning import compiled, find_schedule

    with compiled(find_schedule(call, dtype, options), options) as contraction:
        return contraction(*values)


def _path_at_once(call: EinsumCall, options: ContractionOptions) -> Sequence[tuple[int, ...]] | None:
    """The path that needs no search: that given, or the best of few tensors; None where options matter."""
    if not may_be_direct(options.changed(gpu=None)) or call.schedule is not None:
        return None
    if call.path is not None:
        return None if call.path.sliced_inds else call.path.ssa_path
    if not isinstance(options.optimize, str) or options.optimize != "auto":
        return None
    return ((0, 1),)[: len(call.inputs) - 1] if len(call.inputs) <= 2 else cheapest_path(call.network)


def _exact_steps(call: EinsumCall, options: ContractionOptions) -> DirectCall:
    """The steps of a contraction of integers or objects, in slices where its path has these."""
    steps = _path_at_once(call, options)
    if steps is not None and options.memory is None:
        return NumpyContraction(call.network, steps).call
    from tnplan.jobs.arrays.planning import find_path

    # Halved, since no plan is made that would say whether the steps fit.
    path = find_path(call, "float64", options, 0 if options.memory is None else 1)
    if path.sliced_inds:
        return sliced_contraction(path)
    return NumpyContraction(call.network, path.ssa_path).call


def _direct(call: EinsumCall, dtype: str, options: ContractionOptions) -> Evaluate | None:
    """The contraction by NumPy alone on the CPU; None where a schedule is better, or options ask for one."""
    if not may_be_direct(options) or call.schedule is not None or len(call.inputs) > MOST_TENSORS:
        return None
    path = _unsliced_path(call, dtype, options)
    return None if path is None else direct_contraction(call.network, path, dtype, options)


def _unsliced_path(
    call: EinsumCall, dtype: str, options: ContractionOptions
) -> Sequence[tuple[int, ...]] | None:
    """The path, searched for where few tensors have none at once; None where it has slices."""
    path = _path_at_once(call, options)
    if path is None and call.path is None and _are_names(options.optimize, None):
        from tnplan.jobs.arrays.planning import find_path

        searched = find_path(call, dtype, options)  # remembered then, for a schedule
        path = None if searched.sliced_inds else searched.ssa_path
    return path


def _contract_on_gpu(call: EinsumCall, dtypes: Dtypes, options: ContractionOptions) -> Any:
    """Contract arrays that are on a GPU."""
    dtype = _result_dtype(dtypes, options)
    if dtype.kind in "biu":
        raise InputError(
            "arrays", f"on a GPU have dtype {dtype}", "convert them to a floating-point dtype", topic="GPUs"
        )
    shapes = [tuple(call.size_dict[index] for index in term) for term in call.inputs]
    values = [array.reshape(shape) for array, shape in zip(call.operands, shapes, strict=True)]
    result = _planned(call._replace(operands=()), computed_dtype(dtype), options, *values)
    return result if options.strip_exponent or result is None else with_dtype(result, dtype)


def contract_exactly(contraction: DirectCall, summed: int, dtype: np.dtype[Any], *arrays: Array) -> Array:
    """Contract integers or booleans to `dtype`; each entry of the result is a sum of `summed` products.

    No value on the way is larger than the sum of the products of absolute values. Below 2^53 these are
    exact in float64, below 2^63 in int64, and without signs below 2^64 in uint64.

    Raises InputError where a value may be beyond 64 bits, or the result is beyond `dtype`.
    """
    # Sum and product of booleans are "or" and "and": a count of nonzero products above 0. Counts
    # are exact below 2^53, and above that rounding makes no count zero.
    if dtype.kind == "b":
        return np.asarray(contraction(*(array.astype(np.float64) for array in arrays)) > 0)
    # |entry| <= summed * prod(max |x|). Where that is too large for 64 bits, the contraction of the
    # magnitudes bounds each entry closer; it is rounded itself, so that ROUNDING widens it.
    largest = (max(abs(int(array.max(initial=0))), abs(int(array.min(initial=0)))) for array in arrays)
    bound: float = prod(largest) * summed
    if bound >= EXACT_IN[dtype.kind]:
        magnitudes = (np.abs(array.astype(np.float64)) for array in arrays)
        bound = float(contraction(*magnitudes).max(initial=0)) * (1 + ROUNDING)
    if not bound < EXACT_IN[dtype.kind]:
        problem = f"are of {dtype}, and sums of their products may be {bound:.3g}, beyond 64 bits"
        raise InputError("arrays", problem, "convert the arrays to float64")
    # Invariant: below 2^53 all partial sums that go into an entry are exact in float64, in any order of
    # summation, so that BLAS may be used. What is larger on the way is only ever multiplied by 0.
    wide = np.float64 if bound < EXACT_IN_FLOAT64 else np.uint64 if dtype.kind == "u" else np.int64
    result = contraction(*(array.astype(wide) for array in arrays))
    limits = np.iinfo(dtype)
    if bound > limits.max and result.size and (result.min() < limits.min or result.max() > limits.max):
        problem = f"are of {dtype}, and the result goes from {result.min():.0f} to {result.max():.0f}"
        raise InputError("arrays", problem, "convert the arrays to int64 or to float64")
    return np.asarray(result.astype(dtype))


def contract_objects(contraction: DirectCall, *arrays: Array) -> Array:
    """Contract numbers of Python, such as fractions and integers of any size, by their own arithmetic.

    Raises InputError where they cannot be added or multiplied, or where the order of factors may matter.
    """
    arrays = tuple(array.astype(object, copy=False) for array in arrays)
    for number, value in ((number, value) for number, array in enumerate(arrays) for value in array.flat):
        if not (isinstance(value, Number) or getattr(value, "is_commutative", False)):
            problem = f"has an object of type {type(value).__name__}"
            raise InputError(f"array {number}", problem, "give numbers")
    try:
        return contraction(*arrays)
    except (ArithmeticError, TypeError, ValueError) as error:
        problem = f"hold objects that cannot be contracted ({' '.join(str(error).split())})"
        raise InputError("arrays", problem, "give numbers that can be added and multiplied") from None
