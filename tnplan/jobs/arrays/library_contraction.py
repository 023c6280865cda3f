"""A contraction by torch or CuPy alone: their products, sums and views of their arrays.

A schedule costs as much as ten of their calls. Few tensors are contracted faster without one, as
`numpy_contraction` does with arrays of NumPy; torch follows what is done as it does its own einsum.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tnplan.jobs.arrays.arrays import is_compiled, is_mapped, is_traced
from tnplan.jobs.arrays.numpy_contraction import (
    PLENTY_BYTES,
    UNFUSED_TENSORS,
    DirectCall,
    NumberedStep,
    NumpyContraction,
    Sizes,
    Step,
    Term,
    by_pairs,
    direct_contraction,
    indices_left,
    is_run,
    size_of,
)
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.networks.contraction_path import DTYPES
from tnplan.planner.networks.network import Network


class LibraryCalls(NamedTuple):
    """What a library calls the steps of a contraction."""

    permute: Callable[[Any, tuple[int, ...]], Any]
    reshape: Callable[[Any, tuple[int, ...]], Any]
    diagonal: Callable[[Any, int, int], Any]
    """Of two axes, as the last axis."""
    total: Callable[[Any, tuple[int, ...]], Any]
    """The sum over axes."""
    multiply: Callable[[Any, Any], Any]
    inner: Callable[[Any, Any], Any]
    matrix_vector: Callable[[Any, Any], Any]
    matrix: Callable[[Any, Any], Any]
    matrices: Callable[[Any, Any], Any]
    """The products of two rows of matrices."""
    stacks: Callable[[Any, Any], Any]
    """The products of two stacks of matrices with several axes."""


@cache
def library_calls(library: str) -> LibraryCalls:
    """The calls of "torch", or of "cupy" or "numpy", which have the same ones."""
    module = sys.modules[library]

    def diagonal(x: Any, first: int, second: int) -> Any:
        return x.diagonal(0, first, second)

    if library == "torch":
        tensor = module.Tensor
        products = module.mul, module.dot, module.mv, module.mm, module.bmm, module.matmul
        return LibraryCalls(tensor.permute, tensor.reshape, diagonal, tensor.sum, *products)
    array, dot = module.ndarray, module.dot
    products = module.multiply, dot, dot, dot, module.matmul, module.matmul
    return LibraryCalls(array.transpose, array.reshape, diagonal, array.sum, *products)


def library_key(arrays: Sequence[Any]) -> Any:
    """What the way of contracting arrays depends on: their library, shapes, dtypes and devices.

    None where they are not all of torch or all of CuPy, or not dense; where torch maps, traces or compiles
    what is done, or casts products to other dtypes; or where CuPy would work on another GPU.
    """
    if not arrays or is_compiled():
        return None
    library = _library_of(type(arrays[0]))
    key: Any = library
    if library == "torch":
        if is_mapped() or is_traced() or sys.modules["torch"].is_autocast_enabled():
            return None
        for array in arrays:
            if _library_of(type(array)) != library or array.is_nested or array.layout != _dense():
                return None
            key = key, array.shape, array.dtype, array.device
    elif library == "cupy":
        device = sys.modules["cupy"].cuda.runtime.getDevice()
        for array in arrays:
            if _library_of(type(array)) != library or array.data.device_id != device:
                return None
            key = key, array.shape, array.dtype, device
    return key


@cache
def _dense() -> Any:
    """torch's word for arrays with strides."""
    return sys.modules["torch"].strided


@cache
def _library_of_type(array_type: Any) -> str | None:
    """The library of arrays of this type, where that is one without an arithmetic of its own."""
    name = f"{array_type.__module__}.{array_type.__qualname__}"
    if name in ("torch.Tensor", "torch.nn.parameter.Parameter"):
        return "torch"
    return "cupy" if name.startswith("cupy.") and array_type.__name__ == "ndarray" else None


_library_of: Callable[[Any], str | None] = _library_of_type


def common_name(arrays: Sequence[Any]) -> str | None:
    """The dtype of all arrays, where tensors are contracted in it; None where there is none."""
    first = arrays[0].dtype
    return _contracted_name(first) if all(array.dtype == first for array in arrays) else None


@cache
def _contracted_name(dtype: Any) -> str | None:
    name = str(dtype).rpartition(".")[2]
    return name if name in DTYPES else None


def library_contraction(
    network: Network, ssa_path: Sequence[tuple[int, ...]], dtype: str, options: ContractionOptions
) -> DirectCall | None:
    """The contraction by the library of its arrays; None where a schedule is faster, or memory is short."""
    if not 0 < len(network.inputs) <= UNFUSED_TENSORS:
        return None
    if options.gpu is None:
        if direct_contraction(network, ssa_path, dtype, options) is None:
            return None
    elif _is_short_of_memory(network, ssa_path, dtype, options):
        return None
    contraction_in = cache(lambda library: LibraryContraction(network, ssa_path, library_calls(library)))

    def contract(*arrays: Any) -> Any:
        return contraction_in(_library_of(type(arrays[0])))(*arrays)

    return contract


def _is_short_of_memory(
    network: Network, ssa_path: Sequence[tuple[int, ...]], dtype: str, options: ContractionOptions
) -> bool:
    """Whether a GPU may have too little memory for all tensors in between."""
    peak_bytes = NumpyContraction(network, ssa_path).work()[2] * np.dtype(dtype).itemsize
    if options.memory is None and peak_bytes <= PLENTY_BYTES:
        return False
    from tnplan.jobs.arrays.planning import memory_bytes

    return peak_bytes > memory_bytes(options, "gpu")


class LibraryContraction:
    """The steps of a contraction as calls of a library, made once for its extents.

    Parameters
    ----------
    network : Network
        Of the arrays.
    ssa_path : sequence of tuple
        Its path.
    calls : LibraryCalls
        Of the library of the arrays. They have one dtype, any strides, and the extents of the network.
    """

    def __init__(self, network: Network, ssa_path: Sequence[tuple[int, ...]], calls: LibraryCalls) -> None:
        terms = dict(enumerate(network.inputs))
        path = list(by_pairs(ssa_path, len(terms))) if len(terms) > 1 else [(0,)]
        steps = _Steps(network.size_dict, calls)
        owners = Counter(i for term in (*network.inputs, network.output) for i in set(term))
        self._steps: list[NumberedStep] = []
        for number, numbers in enumerate(path, len(terms)):
            operands = [terms.pop(operand) for operand in numbers]
            rest = indices_left(operands, owners)
            output = None if terms else network.output
            step, terms[number] = steps.step(operands, rest, output)
            owners.update(set(terms[number]))
            self._steps.append((step, numbers))

    def __call__(self, *arrays: Any) -> Any:
        """The contraction of these arrays."""
        if len(self._steps) == 1:
            step, numbers = self._steps[0]
            return step(*arrays) if numbers == (0, 1)[: len(arrays)] else step(*reversed(arrays))
        tensors = list(arrays)
        for step, numbers in self._steps:
            tensors.append(step(*[tensors[number] for number in numbers]))
            for number in numbers:
                tensors[number] = None
        return tensors[-1]


class _Steps:
    """Makes steps for these extents as calls of a library."""

    def __init__(self, sizes: Sizes, calls: LibraryCalls) -> None:
        self._sizes, self._calls = sizes, calls

    def step(self, terms: Sequence[Term], rest: set[str], output: Term | None) -> tuple[Step, Term]:
        """A step, and the indices of its result in their order; those of the last one are `output`."""
        if len(terms) == 1:
            term = tuple(dict.fromkeys(i for i in terms[0] if i in rest)) if output is None else output
            return self._alone(terms[0], term), term
        a, b = terms
        # What is on one operand alone is summed there first, and a repeated index is a diagonal.
        plain_a = tuple(dict.fromkeys(i for i in a if i in b or i in rest))
        plain_b = tuple(dict.fromkeys(i for i in b if i in a or i in rest))
        step, term = self._product(plain_a, plain_b, rest, output)
        before_a = None if plain_a == a else self._alone(a, plain_a)
        before_b = None if plain_b == b else self._alone(b, plain_b)
        return _after(before_a, before_b, step), term

    def _alone(self, term: Term, output: Term) -> Step:
        """The sums of one tensor, or a view of it."""
        steps: list[Step] = []
        left, total = list(term), self._calls.total
        for i in dict.fromkeys(term):
            while left.count(i) > 1:
                first = left.index(i)
                second = left.index(i, first + 1)
                steps.append(self._diagonal(first, second))
                left = [*(j for axis, j in enumerate(left) if axis not in (first, second)), i]
        summed = tuple(axis for axis, i in enumerate(left) if i not in output)
        if summed:
            steps.append(lambda x: total(x, summed))
            left = [i for i in left if i in output]
        axes = tuple(left.index(i) for i in output)
        # A view even where nothing changes: no result is the array of the caller itself.
        if axes != tuple(range(len(axes))) or not steps:
            steps.append(self._permuted(axes))
        return _chain(steps)

    def _product(self, a: Term, b: Term, rest: set[str], output: Term | None) -> tuple[Step, Term]:
        """The product of two tensors without indices that are on one of them alone and not on the result."""
        # (A B)^T = B^T A^T: rows of the result are those of the second operand.
        m, n = tuple(i for i in a if i not in b), tuple(i for i in b if i not in a)
        if output[-1] not in b if output else m and not n:
            step, term = self._product(b, a, rest, output)
            return _turned(step), term
        if not any(i in b and i not in rest for i in a):
            return self._outer(a, b, output)
        orders = []
        for batch, k in product(*(
            dict.fromkeys((tuple(i for i in a if i in group), tuple(i for i in b if i in group)))
            for group in ({i for i in a if i in b and i in rest}, {i for i in a if i in b and i not in rest})
        )):  # fmt: skip
            copied = [
                size_of(term, self._sizes) for term, own in ((a, m), (b, n))
                if not all(is_run(group, term) for group in (batch, own, k))
            ]  # fmt: skip
            orders.append((sum(copied), batch, k))
        _, batch, k = min(orders)
        natural = (*batch, *m, *n)
        term = natural if output is None else output
        n_m, n_k, n_n = (size_of(group, self._sizes) for group in (m, k, n))
        calls = self._calls
        written: tuple[int, ...]
        if batch:
            stack = self._shape(batch)
            read_a = self._read(a, (*batch, *m, *k), (*stack, n_m, n_k))
            read_b = self._read(b, (*batch, *k, *n), (*stack, n_k, n_n))
            multiply = calls.matrices if len(batch) == 1 else calls.stacks
            step, written = _after(read_a, read_b, multiply), (*stack, n_m, n_n)
        elif m:
            read_a, read_b = self._read(a, (*m, *k), (n_m, n_k)), self._read(b, (*k, *n), (n_k, n_n))
            step, written = _after(read_a, read_b, calls.matrix), (n_m, n_n)
        elif n:
            read_a, read_b = self._read(a, k, (n_k,)), self._read(b, (*n, *k), (n_n, n_k))
            step, written = _turned(_after(read_b, read_a, calls.matrix_vector)), (n_n,)
        else:
            read_a, read_b = self._read(a, k, (n_k,)), self._read(b, k, (n_k,))
            step, written = _after(read_a, read_b, calls.inner), ()
        after = [] if written == self._shape(natural) else [self._reshaped(self._shape(natural))]
        if term != natural:
            after.append(self._permuted(tuple(natural.index(i) for i in term)))
        return (_then(step, _chain(after)) if after else step), term

    def _outer(self, a: Term, b: Term, output: Term | None) -> tuple[Step, Term]:
        """A product without sums."""
        term = (*a, *(i for i in b if i not in a)) if output is None else output
        read_a, read_b = (
            self._read(each, tuple(i for i in term if i in each), self._broadcast(each, term))
            for each in (a, b)
        )
        return _after(read_a, read_b, self._calls.multiply), term

    def _read(self, term: Term, order: Term, shape: tuple[int, ...]) -> Step | None:
        """What gives an operand the axes of a product; None where it has them."""
        steps = []
        if order != term:
            steps.append(self._permuted(tuple(term.index(i) for i in order)))
        if shape != self._shape(order):
            steps.append(self._reshaped(shape))
        return _chain(steps) if steps else None

    def _shape(self, term: Term) -> tuple[int, ...]:
        return tuple(self._sizes[i] for i in term)

    def _diagonal(self, first: int, second: int) -> Step:
        diagonal = self._calls.diagonal
        return lambda x: diagonal(x, first, second)

    def _permuted(self, axes: tuple[int, ...]) -> Step:
        permute = self._calls.permute
        return lambda x: permute(x, axes)

    def _reshaped(self, shape: tuple[int, ...]) -> Step:
        reshape = self._calls.reshape
        return lambda x: reshape(x, shape)

    def _broadcast(self, term: Term, product_term: Term) -> tuple[int, ...]:
        """The shape of a factor with all axes of a product from its first one on."""
        first = next((axis for axis, i in enumerate(product_term) if i in term), len(product_term))
        return tuple(self._sizes[i] if i in term else 1 for i in product_term[first:])


def _chain(steps: Sequence[Step]) -> Step:
    """One step after the other."""
    first, *others = steps
    if not others:
        return first
    then = _chain(others)
    return lambda x: then(first(x))


def _then(step: Step, after: Step) -> Step:
    return lambda x, y: after(step(x, y))


def _turned(step: Step) -> Step:
    return lambda x, y: step(y, x)


def _after(first: Step | None, second: Step | None, step: Step) -> Step:
    """A step of two operands, of which each may be prepared."""
    if first is None and second is None:
        return step
    if first is None:
        assert second is not None
        return lambda x, y: step(x, second(y))
    if second is None:
        return lambda x, y: step(first(x), y)
    return lambda x, y: step(first(x), second(y))
