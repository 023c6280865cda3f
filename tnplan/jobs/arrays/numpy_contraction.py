"""A contraction by NumPy alone: BLAS, views and loops on the arrays as they lie, without a schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import product
from math import prod
from operator import methodcaller
from string import ascii_letters
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network

Array = NDArray[Any]
Term = tuple[str, ...]
Sizes = Mapping[str, int]
Step = Callable[..., Any]
NumberedStep = tuple[Step, tuple[int, ...]]
"""A step with the numbers of its operands."""
DirectCall = Callable[..., Array]
"""What contracts arrays of the extents and the dtype that it is for."""

try:
    from numpy._core.multiarray import c_einsum
except ImportError:  # of another version
    c_einsum = np.einsum
"""The loops of numpy.einsum. What it does before them takes as long as they do with small arrays."""

MOST_TENSORS = 100
"""Of a network that is contracted without a schedule."""
PLENTY_BYTES = 256 << 20
"""What is taken without a look at the free memory."""
MANY_PRODUCTS = 10**8
"""Multiply-adds from which on a GPU may be faster."""
MOST_OF_SEVERAL, INTENSE = 1 << 16, 8
"""A step has this many multiply-adds, and fewer than so many an element, where it is bound by memory."""
UNFUSED_TENSORS, MOST_STREAMED = 7, 1 << 19
"""With more tensors, and more elements of such steps, a schedule is faster, which fuses them."""
MOST_SUMMED_BY_LOOPS = 512
"""Products of a sum by the loops of numpy.einsum: they add one after the other, so that the rounding error of
a sum grows with its length. BLAS sums in blocks and SIMD lanes."""
TINY = 1024
"""Products over all indices of several tensors that one call of the loops takes."""
MOST_BY_LOOPS = 4096
"""Elements of a small sum, which loops take."""
LOOP_NS, BLAS_NS, COPY_NS, PACK_NS = 0.7, 0.06, 2.0, 0.2
"""Of a multiply-add by loops and by BLAS, of an element that is copied, and of one that BLAS reads."""
CALL_NS, STACK_NS, LOOPS_CALL_NS = 200.0, 2500.0, 700.0
"""Of a product of a stack of matrices, of a stack, and of a call of the loops."""
SHORT_ROW, MANY_ROWS = 64, 32
"""Elements of a row of a product without sums, and rows, that the loops take."""
INNER = 10
"""Multiply-adds in the time that an innermost loop takes to begin."""
ORDERS = 16
"""Layouts of the arrays for which steps are remembered, and lengths of ones."""
WIDTH = 1024
"""Elements of a long sum that are one sum of BLAS; these sums are added once more."""


def may_be_direct(options: ContractionOptions) -> bool:
    """Whether options leave the choice of what contracts on the CPU: they name no layout, no other device."""
    is_stated = options.hardware is not None or options.precision is not None or options.gpu is not None
    is_stated = is_stated or options.algebra is not None
    return not (is_stated or options.strip_exponent or options.devices > 1 or options.device == "gpu")


def direct_contraction(
    network: Network, ssa_path: Sequence[tuple[int, ...]], dtype: str, options: ContractionOptions,
    most_streamed: int = MOST_STREAMED,
) -> DirectCall | None:  # fmt: skip
    """The contraction without a schedule; None where one is faster, another device is, or memory is short.

    Schedules fuse steps that are bound by memory, and slice. `most_streamed` are the elements of such steps
    for which none is made.
    """
    contraction = NumpyContraction(network, ssa_path)
    call = _with_threads(contraction.call, options.threads)
    # Of few elements nothing is too much: a first call of a small product need not count them.
    if options.memory is None and prod(network.size_dict.values()) <= MOST_OF_SEVERAL:
        return call
    products, streamed, peak = contraction.work()
    if len(network.inputs) > UNFUSED_TENSORS and streamed > most_streamed:
        return None
    n_bytes = peak * np.dtype(dtype).itemsize
    if options.memory is not None or n_bytes > PLENTY_BYTES:
        from tnplan.jobs.arrays.planning import memory_bytes
        from tnplan.jobs.arrays.ranks import inputs_bytes

        stated_bytes = 0 if options.memory is None else inputs_bytes(network, dtype)
        if n_bytes + stated_bytes > memory_bytes(options, "cpu"):
            return None
    if products > MANY_PRODUCTS:
        from tnplan.jobs.arrays.planning import chosen_device

        if chosen_device(ContractionPath(network, tuple(ssa_path), (), dtype), options) == "gpu":
            return None
    return call


def _with_threads(contraction: DirectCall, threads: int | None) -> DirectCall:
    """The contraction where BLAS takes so many threads; None: as it is set."""
    if threads is None:
        return contraction

    def limited(*arrays: Array) -> Array:
        from tnplan.executor.device.cpu.parallel_rows import blas_threads

        with blas_threads(threads):
            return contraction(*arrays)

    return limited


class NumpyContraction:
    """The steps of a contraction as calls of NumPy, made once for its extents.

    Its `call` takes arrays of one dtype and of the extents, and gives an array of that dtype: a view of the
    only array where nothing is summed, and else a new one. It holds no values, so that any number of threads
    may call it at once.
    """

    def __init__(self, network: Network, ssa_path: Sequence[tuple[int, ...]]) -> None:
        self._sizes = sizes = network.size_dict
        self._terms, self._output = network.inputs, network.output
        self._has_ones = 1 in sizes.values()
        if self._has_ones:
            # Axes of extent 1 are no axes of a product: they would part axes that lie beside each other.
            self._terms = tuple(tuple(i for i in term if sizes[i] > 1) for term in network.inputs)
            self._output = tuple(i for i in network.output if sizes[i] > 1)
            self._shapes = [tuple(sizes[i] for i in term) for term in self._terms]
            self._shape = network.output_shape
        self._path = list(by_pairs(ssa_path, len(self._terms))) if len(self._terms) > 1 else [(0,)]
        if len(self._terms) > 2 and _is_tiny(self._terms, self._output, sizes):
            self._path = [tuple(range(len(self._terms)))]
        self._steps = self._steps_of(self._terms)
        is_lone = not self._has_ones and self._path == [tuple(range(len(self._terms)))]
        is_view = len(self._terms) == 1 and set(self._terms[0]) == set(self._output)
        # Small arrays are read as fast in another order: to look at it takes longer.
        is_any_order = is_view or sum(size_of(term, sizes) for term in self._terms) <= MOST_BY_LOOPS
        self.call: DirectCall = self._steps[0][0] if is_lone and is_any_order else self._contract
        self._steps_in_order = lru_cache(ORDERS)(self._steps_by_order)

    def _contract(self, *arrays: Array) -> Array:
        """The contraction of these arrays."""
        steps = self._steps
        tensors: list[Any] = list(arrays)
        if self._has_ones:
            tensors = [array.reshape(shape) for array, shape in zip(arrays, self._shapes, strict=True)]
        for array in tensors:
            if not array.flags.c_contiguous:
                orders = tuple([_memory_order(array) for array in tensors])
                tensors = [array.transpose(order) for array, order in zip(tensors, orders, strict=True)]
                steps = self._steps_in_order(orders)
                break
        for step, numbers in steps:
            tensors.append(step(*[tensors[number] for number in numbers]))
            for number in numbers:
                tensors[number] = None
        return tensors[-1].reshape(self._shape) if self._has_ones else tensors[-1]

    def _steps_by_order(self, orders: tuple[tuple[int, ...], ...]) -> list[NumberedStep]:
        """The steps for arrays whose axes are in these orders."""
        pairs = zip(self._terms, orders, strict=True)
        return self._steps_of([tuple(term[axis] for axis in order) for term, order in pairs])

    def _steps_of(self, inputs: Sequence[Term]) -> list[NumberedStep]:
        """The steps for arrays in C order with these terms."""
        terms, steps, owners = dict(enumerate(inputs)), [], self._owners(inputs)
        for number, numbers in enumerate(self._path, len(inputs)):
            operands = [terms.pop(operand) for operand in numbers]
            rest = indices_left(operands, owners)
            step, terms[number] = _step(operands, rest, None if terms else self._output, self._sizes)
            owners.update(set(terms[number]))
            steps.append((step, numbers))
        return steps

    def _owners(self, terms: Sequence[Term]) -> Counter[str]:
        """How many tensors carry each index, the result among them."""
        return Counter(i for term in (*terms, self._output) for i in set(term))

    def work(self) -> tuple[int, int, int]:
        """The multiply-adds, the elements that larger steps read and write without many of them each, and
        the most elements of results in between and of copies at once."""
        terms, sizes, owners = dict(enumerate(self._terms)), self._sizes, self._owners(self._terms)
        n_products = streamed = peak = between = 0
        for number, numbers in enumerate(self._path, len(terms)):
            operands = [terms.pop(operand) for operand in numbers]
            rest, indices = indices_left(operands, owners), set().union(*operands)
            terms[number] = tuple(rest)
            owners.update(rest)
            operand_sizes = [size_of(each, sizes) for each in operands]
            copied, result = sum(operand_sizes), size_of(rest, sizes)
            elements, products = copied + result, size_of(indices, sizes)
            n_products += products
            # Operands in between live until the step ends, and each operand may be copied.
            between += result
            peak = max(peak, between + copied)
            n_inputs = len(self._terms)
            between -= sum(size for k, size in zip(numbers, operand_sizes, strict=True) if k >= n_inputs)
            if products > MOST_OF_SEVERAL and products < INTENSE * elements:
                streamed += elements
        return n_products, streamed, peak


def indices_left(operands: Sequence[Term], owners: Counter[str]) -> set[str]:
    """The indices of operands that others carry, too; the operands are taken from the owners."""
    for term in operands:
        for i in set(term):
            owners[i] -= 1
    return {i for term in operands for i in term if owners[i]}


def sliced_contraction(path: ContractionPath) -> DirectCall:
    """The contraction as the sum over the slices of a path, each to its part of the result."""
    network, sliced = path.network, path.sliced_inds
    *inputs, output = (
        tuple(i for i in term if i not in sliced) for term in (*network.inputs, network.output)
    )
    contraction = NumpyContraction(Network(tuple(inputs), output, network.size_dict), path.ssa_path).call

    def contract(*arrays: Array) -> Array:
        result = np.zeros(network.output_shape, arrays[0].dtype)
        for values in product(*(range(network.size_dict[i]) for i in sliced)):
            at = dict(zip(sliced, values, strict=True))
            result[tuple(at.get(i, slice(None)) for i in network.output)] += contraction(*(
                array[(..., *(at.get(i, slice(None)) for i in term))]
                for array, term in zip(arrays, network.inputs, strict=True)
            ))  # fmt: skip
        return result

    return contract


def by_pairs(ssa_path: Sequence[tuple[int, ...]], n_tensors: int) -> Iterator[tuple[int, ...]]:
    """The path with a step for each pair of a step of several tensors, and one where there is one tensor."""
    renamed, number = {k: k for k in range(n_tensors)}, n_tensors
    for count, (first, *others) in enumerate(ssa_path):
        current = renamed[first]
        operands: list[tuple[int, ...]] = [(renamed[other],) for other in others] or [()]
        for operand in operands:
            yield (current, *operand)
            current, number = number, number + 1
        renamed[n_tensors + count] = current


def _is_tiny(terms: Sequence[Term], output: Term, sizes: Sizes) -> bool:
    """Whether one call of the loops, over all indices at once, takes less than calls of several steps."""
    n_products = prod(sizes[i] for i in set().union(*terms))
    return n_products <= min(TINY, MOST_SUMMED_BY_LOOPS * size_of(output, sizes))


def _memory_order(array: Array) -> tuple[int, ...]:
    """The axes of an array from the slowest to the fastest."""
    strides = array.strides
    return tuple(sorted(range(array.ndim), key=lambda axis: -abs(strides[axis])))


def size_of(term: Any, sizes: Sizes) -> int:
    return prod(map(sizes.__getitem__, set(term)))


def _text(terms: Sequence[Term], output: Term) -> str:
    """An equation for numpy.einsum."""
    names = "".join(map("".join, terms))
    if names.isascii() and names.isalpha() and len(names) == sum(map(len, terms)):
        return f"{','.join(map(''.join, terms))}->{''.join(output)}"
    letters: dict[str, str] = {}
    for i in (i for term in terms for i in term):
        letters.setdefault(i, ascii_letters[len(letters)])
    inputs = ",".join("".join(letters[i] for i in term) for term in terms)
    return f"{inputs}->{''.join(letters[i] for i in output)}"


def _step(terms: Sequence[Term], rest: set[str], output: Term | None, sizes: Sizes) -> tuple[Step, Term]:
    """A step and the indices of its result in their order; those of the last one are `output`."""
    if len(terms) == 1:
        term = tuple(dict.fromkeys(i for i in terms[0] if i in rest)) if output is None else output
        return _alone(terms[0], term, sizes), term
    if len(terms) > 2 and output is not None:
        return _by_loops(terms, output, sizes), output
    a, b = terms
    # What is on one operand alone is summed there first, and a repeated index is a diagonal.
    plain_a = tuple(dict.fromkeys(i for i in a if i in b or i in rest))
    plain_b = tuple(dict.fromkeys(i for i in b if i in a or i in rest))
    step, term = _product(plain_a, plain_b, rest, output, sizes)
    before_a = None if plain_a == a else _alone(a, plain_a, sizes)
    before_b = None if plain_b == b else _alone(b, plain_b, sizes)
    if before_a is None and before_b is None:
        return step, term
    if _is_tiny(terms, term, sizes):
        return _by_loops(terms, term, sizes), term

    def prepared(x: Array, y: Array) -> Array:
        x = x if before_a is None else before_a(x)
        return step(x, y if before_b is None else before_b(y))

    return prepared, term


def _alone(term: Term, output: Term, sizes: Sizes) -> Step:
    """The sums of one tensor, or a view of it."""
    plain = tuple(dict.fromkeys(term))
    if len(output) == len(plain):
        if plain == term:
            return methodcaller("transpose", tuple(term.index(i) for i in output))
        return partial(c_einsum, _text([term], output))
    n_elements = size_of(plain, sizes)
    is_short = n_elements <= MOST_SUMMED_BY_LOOPS * size_of(output, sizes)
    if is_short and (plain != term or n_elements <= MOST_BY_LOOPS):
        return _by_loops([term], output, sizes)
    if plain != term:
        diagonal = partial(c_einsum, _text([term], plain))
        if len(plain) == 1:
            return lambda x: np.asarray(np.add.reduce(diagonal(x)), x.dtype)
        sums = _alone(plain, output, sizes)
        return lambda x: sums(diagonal(x).copy())
    # The axes that are summed, the last run of them first: as [before | summed | after].
    end = max(axis for axis, i in enumerate(term) if i not in output) + 1
    start = end
    while start and term[start - 1] not in output:
        start -= 1
    after, n_summed = size_of(term[end:], sizes), size_of(term[start:end], sizes)
    shape = (size_of(term[:start], sizes), n_summed, after)
    if after == 1 and not start:
        return partial(_whole_sum, _rows(term, sizes) if n_elements > MOST_BY_LOOPS else (1, n_elements))
    left = tuple(i for axis, i in enumerate(term) if not start <= axis < end)
    left_shape = tuple(sizes[i] for i in left)
    if left == output:
        return lambda x: _sums(x.reshape(shape)).reshape(left_shape)
    then = _alone(left, output, sizes)
    return lambda x: then(_sums(x.reshape(shape)).reshape(left_shape))


def _sums(x: Array) -> Array:
    """The sums over the second of the three axes of an array."""
    before, n_summed, after = x.shape
    dtype = x.dtype
    if dtype.kind != "f":
        if dtype.kind != "c" or after == 1:
            return np.add.reduce(x, axis=1)
        # Parts of complex numbers are summed apart: a complex product with 1 makes a NaN of infinity.
        return _sums(np.ascontiguousarray(x).view(x.real.dtype)).view(dtype)
    # BLAS multiplies by ones at the speed of the memory.
    if n_summed > 4 * WIDTH:
        end = n_summed // WIDTH * WIDTH
        blocks = x[:, :end].reshape(before, end // WIDTH, WIDTH, after)
        return _sums(np.matmul(_ones(WIDTH, dtype), blocks)) + _sums(x[:, end:])
    if after == 1:
        return x.reshape(before, n_summed).dot(_ones(n_summed, dtype))
    return np.matmul(_ones(n_summed, dtype), x)


def _rows(term: Term, sizes: Sizes) -> tuple[int, int]:
    """The extents of an array as a matrix that is about square."""
    n_elements = size_of(term, sizes)
    columns = [size_of(term[axis:], sizes) for axis in range(1, len(term) + 1)]
    n_columns = min(columns, key=lambda columns: max(columns, n_elements // columns))
    return n_elements // n_columns, n_columns


def _whole_sum(rows: tuple[int, int], x: Array) -> Array:
    """The sum of all elements of an array, of rows of that length and of their sums."""
    if x.size > MOST_BY_LOOPS and x.dtype.kind in "fc":
        if max(rows) > 4 * WIDTH:
            flat = x.reshape(-1)
            end = flat.size // WIDTH * WIDTH
            x, rest = flat[:end], flat[end:]
            sums = _sums(x.reshape(1, end // WIDTH, WIDTH))
            return np.asarray(np.add.reduce(sums[0]) + np.add.reduce(rest), x.dtype)
        if x.dtype.kind == "f":
            sums = x.reshape(rows).dot(_ones(rows[1], x.dtype))
            return _inner(sums, _ones(rows[0], x.dtype))
        x = _sums(x.reshape(1, *rows))
    return np.asarray(np.add.reduce(x, axis=None), x.dtype)


def _inner(x: Array, y: Array) -> Array:
    """The inner product of two vectors, an array without axes."""
    result = np.empty((), x.dtype)
    x.dot(y, result)
    return result


@lru_cache(ORDERS)
def _ones(length: int, dtype: np.dtype[Any]) -> Array:
    return np.ones(length, dtype)


def _by_loops(terms: Sequence[Term], output: Term, sizes: Sizes) -> Step:
    """A step by the loops of numpy.einsum, whose long sums are sums of short ones."""
    text = _text(terms, output)
    summed = [i for i in dict.fromkeys(i for term in terms for i in term) if i not in output]
    n_summed = size_of(summed, sizes)
    if n_summed <= MOST_SUMMED_BY_LOOPS:
        if output:
            return partial(c_einsum, text)
        if len(terms) == 1:
            return lambda x: np.asarray(c_einsum(text, x), x.dtype)
        return lambda *arrays: np.asarray(c_einsum(text, *arrays), arrays[0].dtype)
    longest = max(summed, key=lambda i: sizes[i])
    width = max(1, MOST_SUMMED_BY_LOOPS * sizes[longest] // n_summed)

    def chunks(*arrays: Array) -> Array:
        result: Any = 0
        for start in range(0, sizes[longest], width):
            cut = slice(start, start + width)
            pieces = [
                array[tuple(cut if i == longest else slice(None) for i in term)]
                for array, term in zip(arrays, terms, strict=True)
            ]
            result += c_einsum(text, *pieces)
        return np.asarray(result, arrays[0].dtype)

    return chunks


def is_run(group: Term, term: Term) -> bool:
    """Whether the indices of a group stand beside each other in a term, in that order."""
    if not group:
        return True
    start = term.index(group[0])
    return term[start : start + len(group)] == group


def _product(a: Term, b: Term, rest: set[str], output: Term | None, sizes: Sizes) -> tuple[Step, Term]:
    """The product of two tensors without indices that are on one of them alone and not on the result."""
    # (A B)^T = B^T A^T: BLAS writes rows of the result that lie in a row.
    if output and output[-1] not in b:
        step, term = _product(b, a, rest, output, sizes)
        return lambda x, y: step(y, x), term
    ka = tuple(i for i in a if i in b and i not in rest)
    if not ka:
        return _outer(a, b, output, sizes)
    order = output or a
    batch = tuple(i for i in order if i in a and i in b and i in rest)
    m, n = tuple(i for i in a if i not in b), tuple(i for i in b if i not in a)
    kb = tuple(i for i in b if i in ka)
    best: Any = None
    for k in dict.fromkeys((ka, kb)):
        for layout in product(_layouts(a, m, k, output, sizes), _layouts(b, n, k, output, sizes)):
            n_stack = size_of((*batch, *layout[0][0], *layout[1][0]), sizes)
            read = size_of((*layout[0][1], *k), sizes) + size_of((*layout[1][1], *k), sizes)
            copied = layout[0][2] * size_of(a, sizes) + layout[1][2] * size_of(b, sizes)
            cost = n_stack * (CALL_NS + PACK_NS * read) + COPY_NS * copied
            if best is None or cost < best[0]:
                best = cost, k, layout
    cost, k, layout = best
    n_products = size_of((*a, *b), sizes)
    # Whether the call of the loops, with theirs, is shorter than that of BLAS.
    is_long = size_of(ka, sizes) > MOST_SUMMED_BY_LOOPS
    loops_ns = LOOPS_CALL_NS + LOOP_NS * n_products * (1 + is_long + INNER / sizes[b[-1]])
    is_stacked = bool(batch or layout[0][0] or layout[1][0])
    if loops_ns < cost + BLAS_NS * n_products + is_stacked * STACK_NS:
        term = output if output is not None else (*batch, *m, *n)
        return _by_loops([a, b], term, sizes), term
    return _by_blas((a, b), (batch, k), layout, output, sizes)


Layout = tuple[Term, Term, bool]
"""Of an operand: indices over which products are repeated, those of its rows or columns, whether it is
copied."""


def _layouts(term: Term, own: Term, k: Term, output: Term | None, sizes: Sizes) -> Iterator[Layout]:
    """How an operand may be read as matrices of its own indices and those that are summed."""
    ordered = own if output is None else tuple(i for i in output if i in own)
    if term[-1] in (*own, *k) and is_run(k, term):
        runs: list[Term] = [] if own else [()]
        for i in own:
            if runs and is_run((*runs[-1], i), term):
                runs[-1] += (i,)
            else:
                runs.append((i,))
        core = runs[-1] if term[-1] in own else max(runs, key=lambda run: size_of(run, sizes))
        yield tuple(i for i in own if i not in core), core, False
    yield (), ordered, True


def _by_blas(
    terms: tuple[Term, Term], shared: tuple[Term, Term], layout: tuple[Layout, Layout],
    output: Term | None, sizes: Sizes,
) -> tuple[Step, Term]:  # fmt: skip
    """A product as those of stacks of matrices [stack | m | k] and [stack | k | n]."""
    (a, b), (batch, k), ((loops_a, m, copies_a), (loops_b, n, copies_b)) = terms, shared, layout
    stack = (*batch, *loops_a, *loops_b)
    natural = (*stack, *m, *n)
    n_m, n_k, n_n = (size_of(group, sizes) for group in (m, k, n))
    shape, stack_shape = tuple(sizes[i] for i in natural), tuple(sizes[i] for i in stack)
    term = natural if output is None else output
    back = None if term == natural else tuple(natural.index(i) for i in term)
    if not stack:
        read_a = _reader(a, (*m, *k), (n_m, n_k) if m else (n_k,), copies_a, sizes)
        read_b = _reader(b, (*k, *n), (n_k, n_n) if n else (n_k,), copies_b, sizes)
        is_shaped = len(m) <= 1 and len(n) <= 1 and back is None
        if is_shaped and shape and read_a is None and read_b is None:
            return np.ndarray.dot, term

        def matrix(x: Array, y: Array) -> Any:
            x, y = x if read_a is None else read_a(x), y if read_b is None else read_b(y)
            if not shape:
                return _inner(x, y)
            result = x.dot(y)
            if is_shaped:
                return result
            result = result.reshape(shape)
            return result if back is None else result.transpose(back)

        return matrix, term
    rows = tuple(sizes[i] if i in a else 1 for i in stack)
    columns = tuple(sizes[i] if i in b else 1 for i in stack)
    own_a, own_b = (tuple(i for i in stack if i in each) for each in (a, b))
    read_a = _reader(a, (*own_a, *m, *k), (*rows, n_m, n_k), copies_a, sizes)
    read_b = _reader(b, (*own_b, *k, *n), (*columns, n_k, n_n), copies_b, sizes)
    # The result is written in its order where BLAS can, and else a view of what BLAS writes.
    writes = back is not None and is_run(m, term) and is_run(n, term) and term[-1] in n
    out_shape, out_axes = tuple(sizes[i] for i in term), tuple(term.index(i) for i in natural)
    matrices = (*stack_shape, n_m, n_n)

    def matrices_of(x: Array, y: Array) -> Array:
        x, y = x if read_a is None else read_a(x), y if read_b is None else read_b(y)
        if writes:
            result = np.empty(out_shape, x.dtype)
            np.matmul(x, y, out=result.transpose(out_axes).reshape(matrices))
            return result
        result = np.matmul(x, y).reshape(shape)
        return result if back is None else result.transpose(back)

    return matrices_of, term


def _reader(
    term: Term, order: Term, shape: tuple[int, ...], copies: bool, sizes: Sizes
) -> Callable[[Array], Array] | None:
    """What makes matrices of an operand; None where it has them."""
    axes = tuple(term.index(i) for i in order)
    if axes == tuple(range(len(term))):
        return None if shape == tuple(sizes[i] for i in term) else lambda x: x.reshape(shape)
    if copies:
        return lambda x: np.ascontiguousarray(x.transpose(axes)).reshape(shape)
    if shape == tuple(sizes[i] for i in order):
        return lambda x: x.transpose(axes)
    return lambda x: x.transpose(axes).reshape(shape)


def _outer(a: Term, b: Term, output: Term | None, sizes: Sizes) -> tuple[Step, Term]:
    """A product without sums."""
    natural = (*a, *(i for i in b if i not in a))
    term = natural if output is None else output
    # Where no index is on both, rows are as long as all of b: other orders are views of that.
    written = natural if set(a).isdisjoint(b) else term
    back = None if written == term else tuple(written.index(i) for i in term)
    read_a, read_b = (_factor(each, written, sizes) for each in (a, b))

    # Rows of real numbers that are short are faster by the loops.
    row = [i for i in written if (i in a, i in b) == (written[-1] in a, written[-1] in b)]
    n_row = size_of(row, sizes)
    is_short = n_row <= SHORT_ROW and size_of(written, sizes) > MANY_ROWS * n_row
    loops = _by_loops([a, b], written, sizes) if is_short else None
    if loops is read_a is read_b is back is None and term:
        return partial(np.multiply, order="C"), term

    def multiplied(x: Array, y: Array) -> Any:
        if loops is not None and x.dtype.kind == "f":
            result = loops(x, y)
        else:
            x, y = x if read_a is None else read_a(x), y if read_b is None else read_b(y)
            if not term:
                return np.asarray(np.multiply(x, y), x.dtype)
            result = np.multiply(x, y, order="C")
        return result if back is None else result.transpose(back)

    return multiplied, term


def _factor(term: Term, product: Term, sizes: Sizes) -> Callable[[Array], Array] | None:
    """What gives a factor the axes of a product without sums; NumPy adds those before its first one."""
    first = next((axis for axis, i in enumerate(product) if i in term), len(product))
    shape = tuple(sizes[i] if i in term else 1 for i in product[first:])
    return _reader(term, tuple(i for i in product if i in term), shape, False, sizes)
