"""Algebras: what a contraction adds and multiplies with, instead of sums and products of numbers.

A contraction needs a commutative semiring alone: it adds and multiplies in any order, and products go over
sums. An algebra keeps its values in a dtype that schedules know, so that planning, slices and ranks are those
of any contraction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.executor.device.cpu.contract import bind_product, is_small
from tnplan.executor.device.protocols.device import Call
from tnplan.planner.hardware.profile import Profile

Array = NDArray[Any]

LARGEST_PRIME = 2**23
"""Primes are below this. k products of residues fit below 2^52 for k up to 64: a product of matrices by BLAS,
reduced every 64 terms. Ways to 26 bits and more take two products of BLAS, or loops in integers."""
DEPTH, WIDTH = 64, 256
"""Of the blocks that loops over rows read again and again."""
BLOCK = 1 << 16
"""Elements of a block of the result whose sum is longer."""
UNREDUCED = float(np.finfo(np.float64).max)
"""The modulus of counts that are not reduced: all are below it, and those beyond become NaN."""
FEW_TERMS = 2048
"""Terms of residues in all up to which loops beat a call of BLAS, which takes 1 us: measured."""
FEW_COLUMNS = 8
"""Columns up to which loops go over single elements."""


class Algebra:
    """A commutative semiring for `tnplan.contract`, here of functions of arrays on the CPU.

    Parameters
    ----------
    name : str
        How it is called in messages.
    dtype : {"float32", "float64", "complex64", "complex128"}
        Of its values in memory.
    zero, one : number
        What changes nothing when it is added, and when it multiplies.
    add, multiply : callable
        Functions as NumPy's of two arrays with `out`; both commute and are associative, and products
        distribute over sums.

    Examples
    --------
    >>> import numpy as np
    >>> widest = tnplan.Algebra("max-min", "float64", -np.inf, np.inf, np.maximum, np.minimum)
    >>> tnplan.contract("ab,b->a", np.array([[3.0, 1.0], [2.0, 5.0]]), np.array([2.0, 4.0]), algebra=widest)
    array([2., 4.])
    """

    share = 0.01
    """The share of the rate of BLAS for the dtype that large products reach, for predictions: measured for
    512 rows, columns and terms on one core."""
    gpu_share = 0.0
    """The same on an H200, of the profile's rate for the dtype, for 8192 rows and columns and 1024 terms; 0:
    there are no kernels."""

    def __init__(
        self, name: str, dtype: str, zero: complex, one: complex, add: Callable[..., Any],
        multiply: Callable[..., Any],
    ) -> None:  # fmt: skip
        self.name, self.dtype, self.zero, self.one = name, dtype, zero, one
        self.add, self.multiply = add, multiply

    def __repr__(self) -> str:
        return f"Algebra({self.name}, {self.dtype})"

    def profile(self, profile: Profile, device: str = "cpu") -> Profile:
        """A profile with the rates of the algebra; where it has none, those of a share, an estimate."""
        return profile.over(self.name, self.dtype, self.gpu_share if device == "gpu" else self.share)

    @property
    def has_gpu_kernels(self) -> bool:
        """Whether it is computed on GPUs, too."""
        return self.gpu_share > 0

    def check_gpu(self) -> None:
        """Raise InputError where there are no kernels for a GPU."""
        if not self.has_gpu_kernels:
            problem = f"has no kernels for the algebra {self.name}, whose functions run on a CPU only"
            raise InputError("--device gpu", problem, "choose --device cpu", topic="algebras")

    def exactly(self, values: Array, place: str) -> Array:
        """Values in the dtype of the algebra; refused where one is rounded, or none of the algebra's."""
        if values.dtype == self.dtype:
            self.check(values, place)
            return values
        is_narrower = values.dtype.kind == "c" and np.dtype(self.dtype).kind != "c"
        converted = (values.real if is_narrower else values).astype(self.dtype, copy=False)
        if is_narrower or not ((converted.astype(values.dtype) == values) | (values != values)).all():
            problem = f"has values of {values.dtype} that {self.dtype}, the dtype of {self.name}, would round"
            raise InputError(
                place, problem, "give values that this dtype represents exactly", topic="algebras"
            )
        self.check(converted, place)
        return converted

    def check(self, values: Array, place: str) -> None:
        """Raise InputError where an array has a value that is none of the algebra."""
        if np.isnan(values).any():
            raise InputError(place, "has NaN", f"give only values of {self.name}", topic="algebras")

    def bind_product(self, a: Array, b: Array, c: Array) -> Call:
        """c[t, i, j] = the sum over q of a[t, i, q] b[t, j, q]; shapes (b, m, k), (b, n, k), (b, m, n)."""

        def run() -> None:
            self.multiply(a[:, :, None, 0], b[:, None, :, 0], out=c)
            for q in range(1, a.shape[2]):
                self.add(c, self.multiply(a[:, :, None, q], b[:, None, :, q], out=np.empty_like(c)), out=c)

        return run

    def bind_sum(self, source: Array, axes: tuple[int, ...], out: Array) -> Call:
        """`out` = the sum of the source over axes, half added to half."""

        def run() -> None:
            rows = np.moveaxis(source, axes, range(len(axes))).reshape(-1, out.size)
            while len(rows) > 1:
                half = len(rows) // 2
                halves = self.add(rows[:half], rows[half : 2 * half], out=np.empty_like(rows[:half]))
                if len(rows) % 2:
                    self.add(halves[:1], rows[-1:], out=halves[:1])
                rows = halves
            out[...] = rows[0].reshape(out.shape)

        return run


class Boolean(Algebra):
    """ "or" and "and" of 0 and 1 in float32: an "or" of products is whether their sum is above 0."""

    share, gpu_share = 0.9, 0.73

    def __init__(self) -> None:
        super().__init__("boolean", "float32", 0, 1, np.maximum, np.minimum)

    def check(self, values: Array, place: str) -> None:
        """Values are 0 and 1."""
        if ((values != 0) & (values != 1)).any():
            raise InputError(place, "has values other than 0 and 1", "give booleans", topic="algebras")

    def bind_product(self, a: Array, b: Array, c: Array) -> Call:
        """By BLAS: terms are not negative, so that no rounding makes a sum zero."""
        product = bind_product(a, b, c)

        def run() -> None:
            product()
            np.minimum(c, 1, out=c)

        return run


class Tropical(Algebra):
    """max-plus, or min-plus: the largest or least, and the sum, of float32 or float64."""

    share = 0.3

    def __init__(self, is_least: bool, dtype: str = "float64") -> None:
        name, zero, add = ("min-plus", inf, np.minimum) if is_least else ("max-plus", -inf, np.maximum)
        super().__init__(name, dtype, zero, 0, add, np.add)
        self.is_least = is_least
        self.gpu_share = 0.44 if dtype == "float32" else 0.095

    def check(self, values: Array, place: str) -> None:
        """Values are finite, or the infinity that is the zero: the other one plus this is no number."""
        super().check(values, place)
        if (values == -self.zero).any():
            problem = f"has {-self.zero:+}, which {self.name} cannot add to {self.zero:+}"
            raise InputError(place, problem, "give finite values instead", topic="algebras")

    def bind_product(self, a: Array, b: Array, c: Array) -> Call:
        """By loops over the columns of blocks."""
        from tnplan.executor.device.cpu.algebra_kernel import few_tropical_products, tropical_products

        if b.shape[1] <= FEW_COLUMNS:
            return few_tropical_products.bound(a, b, c, self.is_least)
        scratch = np.empty((min(DEPTH, a.shape[2]), min(WIDTH, b.shape[1])), c.dtype)
        return tropical_products.bound(a, b, c, scratch, self.is_least)


class Modular(Algebra):
    """What residues modulo a prime and pairs with one share: the prime, which may change between calls."""

    def __init__(self, name: str, dtype: str, zero: complex, one: complex, prime: int | None) -> None:
        super().__init__(name, dtype, zero, one, self._add, self._multiply)
        # In an array, which bound calls of kernels read: one contraction serves prime after prime.
        self.modulus = np.empty(1)
        self.prime = prime

    @property
    def prime(self) -> int | None:
        """The prime; None: counts are numbers of floating point."""
        return None if self.modulus[0] == UNREDUCED else int(self.modulus[0])

    @prime.setter
    def prime(self, prime: int | None) -> None:
        if prime is None and self.dtype == "complex128":
            self.modulus[0] = UNREDUCED
            return
        if not isinstance(prime, int) or not 2 <= prime < LARGEST_PRIME or not is_prime(prime):
            problem = f"modulus {prime!r} is not a prime below 2^23"
            raise InputError("--algebra", problem, "give such a prime, and combine the results of several")
        self.modulus[0] = prime

    def _add(self, a: Array, b: Array, out: Array) -> Array:
        return self._by_kernel("add", a, b, out)

    def _multiply(self, a: Array, b: Array, out: Array) -> Array:
        return self._by_kernel("multiply", a, b, out)

    def _by_kernel(self, verb: str, a: Array, b: Array, out: Array) -> Array:
        from tnplan.executor.device.cpu import algebra_kernel

        kernel = getattr(algebra_kernel, f"{verb}_{'residues' if self.dtype == 'float64' else 'optima'}")
        flat = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
        operands = [np.ascontiguousarray(np.broadcast_to(each, out.shape)).reshape(-1) for each in (a, b)]
        kernel(*operands, flat.reshape(-1), self.modulus)
        if flat is not out:
            out[...] = flat
        return out


class Residues(Modular):
    """Integers modulo a prime below 2^23, in float64.

    Parameters
    ----------
    prime : int
        The prime. Results for several, by the Chinese remainder theorem, are integers of any size.

    Examples
    --------
    >>> import numpy as np
    >>> matrix = np.array([[1, 2], [3, 4]])
    >>> tnplan.contract("ab,bc->ac", matrix, matrix, algebra=tnplan.Residues(7))
    array([[0., 3.],
           [1., 1.]])
    """

    share, gpu_share = 0.5, 0.34

    def __init__(self, prime: int) -> None:
        super().__init__("residues", "float64", 0, 1, prime)

    def check(self, values: Array, place: str) -> None:
        """Values are integers from 0 to the prime."""
        check_counts(values, place, self.modulus[0])

    def bind_product(self, a: Array, b: Array, c: Array) -> Call:
        """By BLAS, 64 terms at once, each block reduced; small products by loops."""
        from tnplan.executor.device.cpu import algebra_kernel

        (n_batch, m, k), n = a.shape, b.shape[1]
        if k <= DEPTH and (is_small(n_batch, m, n, k) or c.size * k <= FEW_TERMS):
            return algebra_kernel.residue_products.bound(a, b, c, self.modulus)
        transposed = b.swapaxes(1, 2)
        if k <= DEPTH:
            reduced = algebra_kernel.reduce_residues.bound(c.reshape(-1), self.modulus)

            def run() -> None:
                np.matmul(a, transposed, out=c)
                reduced()

            return run
        rows = max(1, BLOCK // n)
        more = np.empty((min(rows, m), n))
        blocks = [(t, slice(i, i + rows)) for t in range(n_batch) for i in range(0, m, rows)]

        def run_blocks() -> None:
            for t, rows in blocks:
                left, right, out = a[t, rows], transposed[t], c[t, rows]
                out[...] = 0
                # 63 terms and the residues so far stay below 2^52 together.
                for first in range(0, k, DEPTH - 1):
                    terms = slice(first, first + DEPTH - 1)
                    np.matmul(left[:, terms], right[terms], out=more[: len(out)])
                    self.add(out, more[: len(out)], out=out)

        return run_blocks

    def bind_sum(self, source: Array, axes: tuple[int, ...], out: Array) -> Call:
        """By NumPy: 2^29 residues are summed exactly."""
        from tnplan.executor.device.cpu.algebra_kernel import reduce_residues

        reduced = reduce_residues.bound(out.reshape(-1), self.modulus)

        def run() -> None:
            np.add.reduce(source, axis=axes, out=out)
            reduced()

        return run


class Optima(Modular):
    """max-plus with the number of optima: pairs of a value and a count.

    A pair is a complex128: real part and imaginary part. The larger value is kept, with the counts of all
    that attain it added; values are added where counts are multiplied. Counts are integers modulo a prime
    below 2^23, or without one numbers of floating point, exact where the result is below 2^53 and NaN where
    one is beyond its range.

    Parameters
    ----------
    prime : int, optional
        The prime.

    Examples
    --------
    >>> import numpy as np
    >>> lengths = np.array([[0, 2], [2, 0]]) + 1j  # every entry is attained once
    >>> tnplan.contract("ab,bc->ac", lengths, lengths, algebra=tnplan.Optima())
    array([[4.+1.j, 2.+2.j],
           [2.+2.j, 4.+1.j]])
    """

    share, gpu_share = 0.2, 0.26

    def __init__(self, prime: int | None = None) -> None:
        super().__init__("optima", "complex128", complex(-inf, 0), complex(0, 1), prime)

    def check(self, values: Array, place: str) -> None:
        """Values are finite or -inf, and counts as those of the modulus."""
        if not (values.real < inf).all():
            raise InputError(place, "has NaN or +inf", "give finite values or -inf instead", topic="algebras")
        check_counts(values.imag, place, self.modulus[0])

    def bind_product(self, a: Array, b: Array, c: Array) -> Call:
        """By loops over the columns of blocks, values and counts apart."""
        from tnplan.executor.device.cpu.algebra_kernel import few_optima_products, optima_products

        if b.shape[1] <= FEW_COLUMNS and a.shape[2] <= DEPTH:
            return few_optima_products.bound(a, b, c, self.modulus)
        # 63 terms and the count so far stay below 2^52 together.
        scratch = np.empty((2, min(DEPTH, a.shape[2] + 1), min(WIDTH, b.shape[1])))
        return optima_products.bound(a, b, c, scratch, self.modulus)


def check_counts(counts: Array, place: str, modulus: float) -> None:
    """Raise InputError where numbers are no integers from 0 to the modulus."""
    if ((counts < 0) | (counts >= modulus) | (counts != np.floor(counts))).any():
        most = "up" if modulus == UNREDUCED else f"to {int(modulus) - 1}"
        remedy = "reduce them modulo the prime"
        raise InputError(place, f"has values that are not integers from 0 {most}", remedy, topic="algebras")


def modulus_text(algebra: Algebra | None) -> str:
    """The modulus of an algebra that has one, as part of what identifies its values."""
    return f" modulo {algebra.prime}" if isinstance(algebra, Modular) else ""


def is_prime(number: int) -> bool:
    """Whether a number below 2^46 or so is a prime."""
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


MODULAR: dict[str, tuple[Any, int | None]] = {"residues": (Residues, 8388593), "optima": (Optima, None)}
"""The algebras that have a prime besides their name, and the prime where none is given: of residues the
largest."""
NAMED = {algebra.name: algebra for algebra in (Tropical(False), Tropical(True), Boolean())}
"""The others that have a name: always the same objects, for which plans are remembered."""


def planned_algebra(given: Any, name: str | None, dtype: str) -> Algebra | None:
    """The algebra of a schedule that is planned for one of a name, in a dtype: the one that is given, else
    that of the name; None for numbers.

    Raises InputError where the schedule is for another algebra, or for numbers.
    """
    algebra = algebra_of(name if given is None else given)
    stated = None if algebra is None else (algebra.name, algebra.dtype)
    if stated != (None if name is None else (name, dtype)):
        has = "plus-times" if name is None else f"{name} in {dtype}"
        wanted = "plus-times" if algebra is None else f"{algebra.name} in {algebra.dtype}"
        problem = f"is {wanted}, and the schedule is for {has}"
        raise InputError("--algebra", problem, "plan for the algebra that is to be used", topic="algebras")
    return algebra


def algebra_of(given: Any) -> Algebra | None:
    """The algebra that a user gives, by its name too; None for plus and times.

    Raises InputError for another name or type.
    """
    if isinstance(given, Algebra) or given is None or given == "plus-times":
        return given if isinstance(given, Algebra) else None
    if isinstance(given, str) and given in NAMED:
        return NAMED[given]
    kind, _, prime = given.partition(":") if isinstance(given, str) else ("", "", "")
    if kind not in MODULAR or not (prime.isdecimal() or given == kind):
        names = ", ".join(("plus-times", *NAMED, *(f"{name}[:PRIME]" for name in MODULAR)))
        problem, remedy = f"{given!r} is unknown", f"give one of {names}, or an Algebra"
        raise InputError("--algebra", problem, remedy, topic="algebras")
    return _modular(kind, int(prime) if prime else MODULAR[kind][1])


@lru_cache
def _modular(kind: str, prime: int | None) -> Algebra:
    """Residues or optima by name: the same object each time."""
    return MODULAR[kind][0](prime)
