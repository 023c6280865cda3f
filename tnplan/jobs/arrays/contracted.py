"""What `contract` does: a look-up of what to do with arrays of these shapes and dtypes, and doing it.

Small arrays of the host are contracted by NumPy alone. What plans and compiles is imported where it is
needed: a first call with small arrays has read few files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain
from math import prod
from pathlib import Path
from string import ascii_letters
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.errors import InputError
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
from tnplan.planner.networks.network import Network

Array = NDArray[Any]
Term = tuple[str, ...]
Step = Callable[..., Array]
Evaluate = Callable[[Sequence[Array]], Any]
"""What is done with arrays of the host: it gives the result, or with `strip_exponent` a mantissa and an
exponent, or None where another process has it. Holds no arrays."""

REMEMBERED = 512
"""Calls that are looked up, by what they are given; the least recently used is given up first."""
MOST_TENSORS = 100
"""Of a network that NumPy contracts step by step."""
PLENTY_BYTES = 256 << 20
"""A limit of memory that no small contraction reaches."""
EXACT_IN_FLOAT64, EXACT_IN_INT64 = 2**53, 2**63
ROUNDING = 1e-6
"""A bound that was itself computed in floating point is taken this much larger."""
MOST_BY_LOOPS, MOST_SUMMED_BY_LOOPS = 4096, 256
"""Multiply-adds of a small step by the loops of numpy.einsum, and how many of them make one sum: these loops
add one after the other, so that the rounding error of a sum grows with its length."""
MOST_OF_TWO, MOST_OF_SEVERAL = 1 << 20, 1 << 16
"""Multiply-adds of a small step of one or two tensors, and of more: plans of these fuse steps, and copy large
tensors less often."""
BLAS_FROM = 256
"""Multiply-adds of a product of matrices from which on BLAS is faster than the loops."""


def contract_arrays(network: Any, arrays: Sequence[Any], given: tuple[Any, ...]) -> Any:
    """Contract arrays to one array, of their library and on their device.

    `given` are the options as `contract` has them, in the order of its parameters.
    """
    if type(network) is not str or network.endswith(".json") or not _are_names(*given):
        return _contract_anew(network, arrays, given)
    # The common case first. `remembered` caches by value: the text of the network, shapes, dtypes
    # and the options. Its evaluations hold no arrays, so that a call keeps nothing of another one
    # alive.
    if all(type(array) is np.ndarray for array in arrays):
        return remembered(network, *_shapes_and_dtypes(arrays), *given)(arrays)
    operands = [as_array(operand, number) for number, operand in enumerate(arrays)]
    refuse_followed(enumerate(operands))
    kind = common_kind(operands)
    if kind.gpu is not None:
        return _contract_anew(network, operands, given)
    values = [host_array(array, f"array {number}") for number, array in enumerate(operands)]
    evaluate = remembered(network, *_shapes_and_dtypes(values), *given)
    return _in_library(evaluate(values), kind, operands[0])


def _shapes_and_dtypes(arrays: Sequence[Array]) -> tuple[Shapes, Dtypes]:
    """What an evaluation of arrays depends on."""
    return tuple([array.shape for array in arrays]), tuple([array.dtype for array in arrays])


def _are_names(optimize: Any, hardware: Any, *others: Any) -> bool:
    """Whether equal options mean the same in each call: another optimizer may find another path."""
    if type(optimize) not in (str, bool) or type(hardware) not in (type(None), str, type(Path())):
        return False
    try:
        hash(others)
    except TypeError:  # for the check of options to refuse
        return False
    return True


def _options(given: tuple[Any, ...]) -> ContractionOptions:
    """The options, checked."""
    optimize, hardware, memory, precision, device, devices, threads, strips = given
    return ContractionOptions(
        optimize, hardware, in_bytes(memory), precision, device, devices, threads, strip_exponent=strips
    )


Shapes = tuple[tuple[int, ...], ...]
Dtypes = tuple[np.dtype[Any], ...]
Terms = tuple[tuple[tuple[str, ...], ...], tuple[str, ...], tuple[tuple[str, int], ...]]
"""Inputs, output and extents of lists of labels and of networks."""


@lru_cache(REMEMBERED, typed=True)
def remembered(network: str | Terms, shapes: Shapes, dtypes: Dtypes, *given: Any) -> Evaluate:
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
    shapes, dtypes = _shapes_and_dtypes(values)
    # What was read is hashable here although the call was not, for instance lists of labels: it is
    # cached by its terms.
    if call.path is None and call.schedule is None and _are_names(*given):
        terms = call.inputs, call.output, tuple(call.size_dict.items())
        evaluate = remembered(terms, shapes, dtypes, *given)
    else:
        evaluate = _evaluation(replace(call, operands=()), shapes, dtypes, options)
    return _in_library(evaluate(values), kind, call.operands[0])


def _in_library(result: Any, kind: ArrayKind, like: Any) -> Any:
    """A result on the host, or that of several ranks, as an array of the library of `like`."""
    if isinstance(result, tuple):
        return as_library(result[0], kind, like), result[1]
    return None if result is None else as_library(result, kind, like)


def _result_dtype(dtypes: Dtypes, options: ContractionOptions) -> np.dtype[Any]:
    """The dtype to which NumPy promotes those of the arrays."""
    dtype = np.result_type(*map(numpy_dtype, dtypes))
    if options.strip_exponent and dtype.kind == "b":
        problem = "is of numbers, and the arrays are boolean"
        raise InputError("strip_exponent", problem, "convert them to float64")
    return np.dtype(np.float64) if options.strip_exponent and dtype.kind in "iu" else dtype


def _evaluation(call: EinsumCall, shapes: Shapes, dtypes: Dtypes, options: ContractionOptions) -> Evaluate:
    """What is done with arrays of the host. `call` has no operands, or their shapes."""
    check_axes(call.output)
    dtype, strips, sizes = _result_dtype(dtypes, options), options.strip_exponent, call.size_dict
    # An empty sum is 0; nothing is planned for it.
    if 0 in sizes.values():
        shape = tuple(sizes[index] for index in call.output)
        return lambda values: (np.zeros(shape, dtype), 0.0) if strips else np.zeros(shape, dtype)
    whole = tuple([tuple(sizes[index] for index in term) for term in call.inputs])
    # Integers are contracted exactly or refused: floating point alone would round them without a
    # word.
    if dtype.kind in "biu":
        path = _path_at_once(call, options)
        if path is None:
            from tnplan.jobs.arrays.planning import find_path

            path = find_path(call, "float64", options).ssa_path
        summed = prod(extent for index, extent in sizes.items() if index not in call.output)
        exactly = partial(contract_exactly, NumpyContraction(call.network, path), summed, dtype)
        return exactly if whole == shapes else partial(_fitted, exactly, whole, dtypes, dtype)
    computed = np.dtype(computed_dtype(dtype))
    small = _small(call, computed.name, options)
    if small is None:
        planned = partial(_planned, replace(call, operands=()), computed.name, options)
        return partial(_fitted, planned, whole, dtypes, dtype)
    if whole == shapes and all(given == dtype == computed for given in dtypes):
        return small
    return partial(_fitted, small, whole, (computed,) * len(whole), dtype)


def _fitted(evaluate: Evaluate, shapes: Shapes, dtypes: Dtypes, dtype: np.dtype[Any], values: Any) -> Any:
    """What is evaluated of arrays without their axes of extent 1 that are broadcast, in other dtypes; the
    result in its own."""
    fits = zip(values, shapes, dtypes, strict=True)
    result = evaluate([array.reshape(shape).astype(wanted, copy=False) for array, shape, wanted in fits])
    if isinstance(result, tuple):
        return with_dtype(np.asarray(result[0]), dtype), result[1]
    return None if result is None else with_dtype(np.asarray(result), dtype)


def _planned(call: EinsumCall, dtype: str, options: ContractionOptions, values: Sequence[Any]) -> Any:
    """The contraction planned and compiled, both from caches where they are there."""
    from tnplan.jobs.arrays.planning import compiled, find_schedule

    with compiled(find_schedule(call, dtype, options), options) as contraction:
        return contraction(*values)


def _path_at_once(call: EinsumCall, options: ContractionOptions) -> Sequence[tuple[int, ...]] | None:
    """The path that needs no plan: that given, or the only one that there is; None where options matter."""
    is_stated = any(option is not None for option in (options.hardware, options.precision, call.schedule))
    if is_stated or not _is_free(options):
        return None
    if call.path is not None:
        return None if call.path.sliced_inds else call.path.ssa_path
    if len(call.inputs) > 2 or not isinstance(options.optimize, str) or options.optimize != "auto":
        return None
    return ((0, 1),)[: len(call.inputs) - 1]


def _small(call: EinsumCall, dtype: str, options: ContractionOptions) -> NumpyContraction | None:
    """The contraction by NumPy alone on the CPU; None where it is not small, or options limit it."""
    path = _path_at_once(call, options)
    is_given = call.path is not None or call.schedule is not None
    if path is None and not is_given and _is_free(options) and _are_names(options.optimize, options.hardware):
        from tnplan.jobs.arrays.planning import find_schedule

        planned = find_schedule(call, dtype, options)  # in the cache then, for the call
        if planned.device == "cpu" and planned.path is not None and not planned.path.sliced_inds:
            path = planned.path.ssa_path
    if path is None or len(call.inputs) > MOST_TENSORS:
        return None
    contraction = NumpyContraction(call.network, path)
    return contraction if contraction.is_small else None


def _is_free(options: ContractionOptions) -> bool:
    """Whether one device contracts with all its memory and threads, to one array."""
    is_short = options.memory is not None and options.memory < PLENTY_BYTES
    is_limited = is_short or options.threads is not None or options.devices > 1
    return not is_limited and not options.strip_exponent and options.device != "gpu"


def _contract_on_gpu(call: EinsumCall, dtypes: Dtypes, options: ContractionOptions) -> Any:
    """Contract arrays that are on a GPU."""
    dtype = _result_dtype(dtypes, options)
    if dtype.kind in "biu":
        raise InputError(
            "arrays", f"on a GPU have dtype {dtype}", "convert them to a floating-point one", topic="GPUs",
        )
    shapes = [tuple(call.size_dict[index] for index in term) for term in call.inputs]
    values = [array.reshape(shape) for array, shape in zip(call.operands, shapes, strict=True)]
    result = _planned(replace(call, operands=()), computed_dtype(dtype), options, values)
    return result if options.strip_exponent or result is None else with_dtype(result, dtype)


class NumpyContraction:
    """The steps of a contraction as calls of NumPy, made once for its extents.

    Called with arrays of one dtype and of the extents, it gives a new array of that dtype in C order. It
    holds no values, so that any number of threads may call it at once. It `is_small` where every step takes
    so little that a plan gains nothing, and rounds no more than a planned one.
    """

    def __init__(self, network: Network, ssa_path: Sequence[tuple[int, ...]]) -> None:
        terms, output = dict(enumerate(network.inputs)), network.output
        self.is_small = True
        self._most = MOST_OF_TWO if len(network.inputs) <= 2 else MOST_OF_SEVERAL
        self._steps: list[tuple[Step, tuple[int, ...]]] = []
        for step in ssa_path or ((0,),):
            operands = [terms.pop(tensor) for tensor in step]
            rest = set(output).union(*terms.values())
            term = output if not terms else tuple(dict.fromkeys(i for i in chain(*operands) if i in rest))
            terms[len(network.inputs) + len(self._steps)] = term
            self._steps.append((self._step(operands, term, network.size_dict), step))

    def __call__(self, arrays: Sequence[Array]) -> Array:
        """The contraction of these arrays."""
        if len(self._steps) == 1:
            call, numbers = self._steps[0]
            return call(*[arrays[number] for number in numbers])
        tensors: list[Any] = list(arrays)
        for call, numbers in self._steps:
            tensors.append(call(*[tensors[number] for number in numbers]))
            for number in numbers:
                tensors[number] = None
        return np.asarray(tensors[-1])

    def _step(self, terms: Sequence[Term], term: Term, sizes: Mapping[str, int]) -> Step:
        """The call of a step with operands of these terms; its result is new, and contiguous."""
        present = dict.fromkeys(index for operand in terms for index in operand)
        products, shape = prod(sizes[index] for index in present), tuple(sizes[index] for index in term)
        # BLAS sums in blocks and SIMD lanes, so that its rounding grows slower than that of the
        # loops of einsum, which add one product after the other: those take short sums alone.
        product = _matrix_product(terms[0], terms[1], term, sizes) if len(terms) == 2 else None
        self.is_small &= products <= self._most
        if product is not None:
            return product
        summed = products // max(prod(shape), 1)
        self.is_small &= products <= MOST_BY_LOOPS or summed == 1
        self.is_small &= summed <= MOST_SUMMED_BY_LOOPS and len(present) <= len(ascii_letters)
        letters = dict(zip(present, ascii_letters, strict=False))
        texts = ["".join(letters.get(index, "?") for index in operand) for operand in (*terms, term)]
        return partial(_by_loops, f"{','.join(texts[:-1])}->{texts[-1]}", shape)


def _by_loops(subscripts: str, shape: tuple[int, ...], *arrays: Array) -> Array:
    """A new array: without `out`, numpy.einsum may return a view of an operand, or a number."""
    result = np.empty(shape, arrays[0].dtype)
    np.einsum(subscripts, *arrays, out=result)
    return result


def _matrix_product(a: Term, b: Term, term: Term, sizes: Mapping[str, int]) -> Step | None:
    """A step as products of matrices [batch | m | k] and [batch | k | n] by BLAS; None where an index stands
    twice in an operand or is summed on one alone, and where the loops are faster."""
    in_a, in_b, in_result = set(a), set(b), set(term)
    # A repeated index is a diagonal, and an index of one operand that the result has not is a sum
    # before the product: neither is a matrix product.
    if len(in_a) < len(a) or len(in_b) < len(b) or not in_a ^ in_b <= in_result:
        return None
    k = tuple(index for index in a if index in in_b and index not in in_result)
    batch = tuple(index for index in term if index in in_a and index in in_b)
    m, n = (tuple(index for index in term if index not in other) for other in (in_b, in_a))
    # (A B)^T = B^T A^T: where the result is wanted transposed, the operands change places and
    # nothing is copied.
    if (*batch, *n, *m) == term != (*batch, *m, *n):
        swapped = _matrix_product(b, a, term, sizes)
        return None if swapped is None else lambda x, y: swapped(y, x)
    n_batch, n_m, n_n, n_k = (prod(sizes[index] for index in group) for group in (batch, m, n, k))
    # Outer products are bound by memory, and small products by the call of BLAS.
    if n_k == 1 or n_m * n_n * n_k < BLAS_FROM:
        return None
    made = (*batch, *m, *n)
    a_axes = [a.index(index) for index in (*batch, *m, *k)]
    b_axes = [b.index(index) for index in (*batch, *k, *n)]
    stack = (n_batch,) if batch else ()
    a_shape, b_shape, c_shape = (*stack, n_m, n_k), (*stack, n_k, n_n), (*stack, n_m, n_n)
    shape, order = tuple(sizes[index] for index in made), [made.index(index) for index in term]

    def product(x: Array, y: Array) -> Array:
        x, y = x.transpose(a_axes).reshape(a_shape), y.transpose(b_axes).reshape(b_shape)
        result = np.empty(shape, x.dtype)
        np.matmul(x, y, out=result.reshape(c_shape))
        return result if made == term else result.transpose(order).copy()

    return product


def contract_exactly(
    contraction: NumpyContraction, summed: int, dtype: np.dtype[Any], arrays: Sequence[Array]
) -> Array:
    """Contract integers or booleans to `dtype`; each entry of the result is a sum of `summed` products.

    No value on the way is larger than the sum of the products of absolute values. Below 2^53 these are
    exact in float64, below 2^63 in int64.

    Raises
    ------
    InputError
        Where a value may be beyond 64 bits, or the result is beyond `dtype`.
    """
    # Sum and product of booleans are "or" and "and": a count of nonzero products above 0. Counts
    # are exact below 2^53, and above that rounding makes no count zero.
    if dtype.kind == "b":
        return np.asarray(contraction([array.astype(np.float64) for array in arrays]) > 0)
    # |entry| <= summed * prod(max |x|). Where that is too large for 64 bits, the contraction of the
    # magnitudes bounds each entry closer; it is rounded itself, so that ROUNDING widens it.
    largest = (max(abs(int(array.max(initial=0))), abs(int(array.min(initial=0)))) for array in arrays)
    bound: float = prod(largest) * summed
    if bound >= EXACT_IN_INT64:
        magnitudes = [np.abs(array.astype(np.float64)) for array in arrays]
        bound = float(contraction(magnitudes).max(initial=0)) * (1 + ROUNDING)
    if not bound < EXACT_IN_INT64:
        problem = f"are of {dtype}, and sums of their products may be {bound:.3g}, beyond 64 bits"
        raise InputError("arrays", problem, "convert them to float64")
    # Invariant: below 2^53 all partial sums that go into an entry are exact in float64, in any
    # order of summation, so that BLAS may be used. What is larger on the way is only ever
    # multiplied by 0.
    wide = np.float64 if bound < EXACT_IN_FLOAT64 else np.int64
    result = contraction([array.astype(wide) for array in arrays])
    limits = np.iinfo(dtype)
    if bound > limits.max and result.size and (result.min() < limits.min or result.max() > limits.max):
        problem = f"are of {dtype}, and the result goes from {result.min():.0f} to {result.max():.0f}"
        raise InputError("arrays", problem, "convert them to int64 or to float64")
    return np.asarray(result.astype(dtype))
