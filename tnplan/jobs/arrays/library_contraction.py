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

from tnplan.jobs.arrays.arrays import is_compiled
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

InLibrary = Callable[[str], DirectCall]
"""The contraction for each library by its name."""


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


def library_key(arrays: Sequence[Any]) -> tuple[str, Any] | None:
    """What the way of contracting arrays depends on: their library, and their shapes, dtypes and devices.

    None where they are not all of torch or all of CuPy, or not dense; where torch maps, traces or compiles
    what is done, or casts products to other dtypes; or where CuPy would work on another GPU.
    """
    if not arrays or is_compiled():
        return None
    key_of: Any = _key_of_type(type(arrays[0]))
    return None if key_of is None else key_of(arrays)


def _find_key_of(array_type: Any) -> Callable[[Sequence[Any]], tuple[str, Any] | None] | None:
    """What makes the key of arrays of this type; None of other libraries, and of types with an arithmetic of
    their own."""
    name = f"{array_type.__module__}.{array_type.__qualname__}"
    if name in ("torch.Tensor", "torch.nn.parameter.Parameter"):
        return _torch_key()
    return _cupy_key if name.startswith("cupy.") and array_type.__name__ == "ndarray" else None


_key_of_type: Callable[[Any], Any] = cache(_find_key_of)


@cache
def _torch_key() -> Callable[[Sequence[Any]], tuple[str, Any] | None]:
    torch = sys.modules["torch"]
    types, dense = (torch.Tensor, torch.nn.Parameter), torch.strided
    # As `is_mapped` and `is_traced` ask; each look-up takes as long as a small view.
    is_mapped, depth = torch._C._are_functorch_transforms_active, torch._C._len_torch_dispatch_stack
    casts = torch._C._is_any_autocast_enabled  # of any kind of device

    def key_of(arrays: Sequence[Any]) -> tuple[str, Any] | None:
        if is_mapped() or depth() or casts():
            return None
        key: Any = ()
        for array in arrays:
            if type(array) not in types or array.layout is not dense or array.is_nested:
                return None
            key = key, array.shape, array.dtype, array.device
        return "torch", key

    return key_of


def _cupy_key(arrays: Sequence[Any]) -> tuple[str, Any] | None:
    array_type, device = type(arrays[0]), sys.modules["cupy"].cuda.runtime.getDevice()
    key: Any = device
    for array in arrays:
        if type(array) is not array_type or array.data.device_id != device:
            return None
        key = key, array.shape, array.dtype
    return "cupy", key


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
) -> InLibrary | None:
    """The contraction by the library of its arrays; None where a schedule is faster, or memory is short."""
    if not 0 < len(network.inputs) <= UNFUSED_TENSORS:
        return None
    if options.gpu is None:
        if direct_contraction(network, ssa_path, dtype, options) is None:
            return None
    elif _is_short_of_memory(network, ssa_path, dtype, options):
        return None
    return cache(lambda library: contraction_by(library_calls(library), network, ssa_path))


def _is_short_of_memory(
    network: Network, ssa_path: Sequence[tuple[int, ...]], dtype: str, options: ContractionOptions
) -> bool:
    """Whether a GPU may have too little memory for all tensors in between."""
    peak_bytes = NumpyContraction(network, ssa_path).work()[2] * np.dtype(dtype).itemsize
    if options.memory is None and peak_bytes <= PLENTY_BYTES:
        return False
    from tnplan.jobs.arrays.planning import memory_bytes

    return peak_bytes > memory_bytes(options, "gpu")


def contraction_by(calls: LibraryCalls, network: Network, ssa_path: Sequence[tuple[int, ...]]) -> DirectCall:
    """The contraction by a library, of arrays of one dtype with the network's extents and any strides."""
    terms = dict(enumerate(network.inputs))
    path = list(by_pairs(ssa_path, len(terms))) if len(terms) > 1 else [(0,)]
    makes = _Steps(network.size_dict, calls)
    owners = Counter(i for term in (*network.inputs, network.output) for i in set(term))
    steps: list[NumberedStep] = []
    for number, numbers in enumerate(path, len(terms)):
        operands = [terms.pop(operand) for operand in numbers]
        rest = indices_left(operands, owners)
        step, terms[number] = makes.step(operands, rest, None if terms else network.output)
        owners.update(set(terms[number]))
        steps.append((step, numbers))
    if len(steps) == 1:
        step, numbers = steps[0]
        return step if numbers in ((0,), (0, 1)) else _turned(step)

    def contract(*arrays: Any) -> Any:
        tensors = list(arrays)
        for step, numbers in steps:
            tensors.append(step(*[tensors[number] for number in numbers]))
            for number in numbers:
                tensors[number] = None
        return tensors[-1]

    return contract


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
        if not after:
            return step, term
        chain = _chain(after)
        return lambda x, y: chain(step(x, y)), term

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
