"""Sums of Pauli words as packed bits, and the text that people write for them. Knows no gate.

A word on n qubits is two bit masks: bit q of x says that qubit q carries X or Y, bit q of z that it carries Z
or Y. It stands for the Hermitian operator, Y itself and not XZ. Packed, a row of `keys` has W = ceil(n / 64)
64-bit words of x and then W of z.

Changelog of `tnplan.pauli_sum`, the JSON file of a sum:
1 (2026-11-29): first version.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Complex
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.circuits.circuit import LARGEST_CIRCUIT
from tnplan.common.arrays import Array
from tnplan.common.checks import check_count, is_number
from tnplan.common.errors import InputError
from tnplan.common.files import check_suffix, check_writable, identity_of, read_json, write_json

TOPIC = "Pauli propagation"

FORMAT = "tnplan.pauli_sum"
VERSION = 1
REMEDY = "write the file again, or use a .json object of words without a format"

FACTOR = re.compile(r"([IXYZ])\s*(\d{1,9})")
"""A letter and its qubit."""
DENSE = re.compile(r"[IXYZ]+")
"""A word with a letter for every qubit."""
DENSE_IN_TEXT = re.compile(r"[IXYZ]+(?![IXYZ\d])")
"""Such a word in a text."""
TERM = re.compile(r"\s*([+-]?)\s*((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)?\s*\*?\s*([IXYZ][IXYZ0-9\s]*)?")
"""Sign, coefficient and word of a term."""
PHASES = np.array([1, 1j, -1, -1j])
"""i^p by p."""
PAIRS_AT_ONCE = 1 << 21
"""Products of words, of up to 64 qubits, that are made before equal ones are merged: about 300 MiB."""
LARGEST_DENSE = 12
"""Qubits of an operator that is returned as a matrix: 256 MiB."""


@dataclass(frozen=True, eq=False)
class PauliSum:
    """A sum of distinct Pauli words with their coefficients, such as an observable or a Hamiltonian.

    `PauliSum.of` makes one from text, a dictionary, a file, or an operator of Qiskit, PennyLane, OpenFermion
    or Cirq. Sums add, subtract, scale by numbers (`*`, `/`) and multiply as operators (`@`, exact phases). A
    number that is added is a multiple of the identity. Results have no words of coefficient 0, and are
    complex only where a coefficient is. `==` compares operators exactly, whatever the order of words.
    Iteration gives (word, coefficient).

    Parameters
    ----------
    n_qubits
        Qubits that the words are on.
    keys
        The words as packed bits, uint64 [term, 2 W] with W = ceil(n_qubits / 64): W 64-bit words of x, whose
        bit q says that qubit q carries X or Y, then W of z, whose bit q says that it carries Z or Y.
    coefficients
        One of each word, float64 or complex128 [term].

    Examples
    --------
    >>> keys = np.array([[0b011, 0b010], [0, 0b100]], np.uint64)
    >>> observable = tnplan.PauliSum(3, keys, np.array([0.5, -1.0]))
    >>> observable
    PauliSum(2 terms on 3 qubits)
    >>> observable.lines()
    ['0.5 X0 Y1', '-1.0 Z2']
    >>> x, y = tnplan.PauliSum.of("XX"), tnplan.PauliSum.of("YI")
    >>> x.commutator(2 * y).to_dict()
    {'Z0 X1': 4j}
    >>> (x @ x - 1).norm()
    0.0
    """

    n_qubits: int
    keys: Array
    coefficients: Array

    __array_ufunc__ = None
    """NumPy's numbers leave their products with sums to this class."""

    @classmethod
    def of(
        cls, operator: Any, n_qubits: int | None = None, *, qubits: Sequence[Any] | None = None
    ) -> PauliSum:  # fmt: skip
        """The sum that an operator of any kind is.

        Parameters
        ----------
        operator : str, PauliSum, mapping, Path or object
            A text such as "0.5*X0 X1 - Z3" or "ZZIX" (letter k is qubit k); a dictionary such as
            {"X0 X1": 0.5}; a file (`Path`) of `to_file`, or with a sum a line; Qiskit's `SparsePauliOp` or
            `Pauli`; what PennyLane can write as Pauli words; Cirq's `PauliSum` or `PauliString`;
            OpenFermion's `QubitOperator`, `FermionOperator` or `MajoranaOperator`. Fermions become qubits by
            the transform of Jordan and Wigner: mode p is qubit p, with Z on qubits 0 to p - 1.
        n_qubits : int, optional
            Default: what the operator says, or else as many as it needs.
        qubits : sequence, optional
            PennyLane's wires or Cirq's qubits in the order of ours. Default: wire k or LineQubit(k) is
            qubit k.

        Raises
        ------
        InputError
            For what is no sum of Pauli words on so many qubits, and for coefficients that are no numbers.

        Examples
        --------
        >>> tnplan.PauliSum.of({"X0 X1": 0.5, "Z3": -1}).lines()
        ['-1.0 Z3', '0.5 X0 X1']
        """
        from tnplan.circuits.inputs import given_operator

        if qubits is not None:
            n_qubits = len(qubits) if n_qubits is None else n_qubits
        if n_qubits is not None:
            n_qubits = check_count("n_qubits", n_qubits, 1, LARGEST_CIRCUIT)
        return given_operator(operator, n_qubits, "operator", qubits)

    def __repr__(self) -> str:
        return f"PauliSum({self.n_terms} terms on {self.n_qubits} qubits)"

    def __len__(self) -> int:
        return self.n_terms

    def __iter__(self) -> Iterator[tuple[str, complex]]:
        return ((text(x, z), coefficient) for x, z, coefficient in self.masks())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PauliSum):
            return NotImplemented
        first, second = self.simplify(), other.simplify()
        is_equal = np.array_equal(first.keys, second.keys)
        is_equal = is_equal and np.array_equal(first.coefficients, second.coefficients)
        return is_equal and self.n_qubits == other.n_qubits

    def __add__(self, other: Any) -> PauliSum:
        second = self._operand(other)
        if second is None:
            return NotImplemented
        coefficients = np.concatenate([self.coefficients, second.coefficients])
        return _simplified(self.n_qubits, np.concatenate([self.keys, second.keys]), coefficients)

    __radd__ = __add__

    def __neg__(self) -> PauliSum:
        return PauliSum(self.n_qubits, self.keys, -self.coefficients)

    def __sub__(self, other: Any) -> PauliSum:
        second = self._operand(other)
        return NotImplemented if second is None else self + -second

    def __rsub__(self, other: Any) -> PauliSum:
        return -self + other if isinstance(other, Complex) else NotImplemented

    def __mul__(self, factor: Any) -> PauliSum:
        if not isinstance(factor, Complex):
            return NotImplemented
        with np.errstate(over="ignore", invalid="ignore"):
            return _simplified(self.n_qubits, self.keys, self.coefficients * _number(factor))

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> PauliSum:
        if not isinstance(divisor, Complex):
            return NotImplemented
        if divisor == 0:
            raise InputError("divisor", "is 0", "divide by another number")
        with np.errstate(over="ignore", invalid="ignore"):
            return _simplified(self.n_qubits, self.keys, self.coefficients / _number(divisor))

    def __matmul__(self, other: Any) -> PauliSum:
        return _product(self, self._checked(other)) if isinstance(other, PauliSum) else NotImplemented

    def _operand(self, other: Any) -> PauliSum | None:
        """What is added: a sum on the same qubits, or a number as a multiple of the identity."""
        if isinstance(other, Complex):
            return PauliSum(self.n_qubits, pack_all([(0, 0)], self.n_qubits), np.array([_number(other)]))
        return self._checked(other) if isinstance(other, PauliSum) else None

    def _checked(self, other: Any) -> PauliSum:
        if not isinstance(other, PauliSum):
            raise InputError("operand", f"is of type {type(other).__name__}", "give a PauliSum")
        if other.n_qubits != self.n_qubits:
            raise InputError(
                "operand", f"is a sum on {other.n_qubits} qubits", f"give a sum on {self.n_qubits} qubits"
            )
        return other

    def commutator(self, other: PauliSum) -> PauliSum:
        """A B - B A; only words that anticommute count, so that nothing cancels in rounding."""
        return 2 * _product(self, self._checked(other), parity=1)

    def anticommutator(self, other: PauliSum) -> PauliSum:
        """A B + B A; only words that commute count."""
        return 2 * _product(self, self._checked(other), parity=0)

    def adjoint(self) -> PauliSum:
        """The conjugated sum: words are Hermitian."""
        return PauliSum(self.n_qubits, self.keys, self.coefficients.conj())

    @property
    def is_hermitian(self) -> bool:
        """Whether every coefficient is exactly real; `simplify` takes away what rounding left."""
        return not np.any(self.coefficients.imag)

    def norm(self) -> float:
        """The Frobenius norm divided by sqrt(2^n): the root of the sum of |coefficient|^2."""
        return float(np.linalg.norm(self.coefficients))

    def one_norm(self) -> float:
        """The sum of |coefficient|: a bound on the largest magnitude of an eigenvalue."""
        return float(np.abs(self.coefficients).sum())

    def simplify(self, tolerance: float = 0.0) -> PauliSum:
        """The sum in rising order, without real and imaginary parts of coefficients up to `tolerance`.

        Words whose coefficient is 0 are left out. Where no imaginary part is left, the sum is real.
        """
        if not is_number(tolerance) or not tolerance >= 0:
            raise InputError("tolerance", f"is {tolerance!r}", "give 0 or more")
        return _simplified(self.n_qubits, self.keys, self.coefficients, float(tolerance))

    def to_matrix(self) -> Array:
        """The matrix, complex128 [2^n, 2^n], of up to 12 qubits; qubit 0 is the most significant bit."""
        if self.n_qubits > LARGEST_DENSE:
            raise InputError("matrix", f"is of {self.n_qubits} qubits", f"use at most {LARGEST_DENSE} qubits")
        states = np.arange(2**self.n_qubits)
        matrix = np.zeros((len(states), len(states)), np.complex128)
        for x, z, coefficient in self.masks():
            x_bits, z_bits = (int(f"{mask:0{self.n_qubits}b}"[::-1], 2) for mask in (x, z))
            # A word is i^|x & z| X^x Z^z.
            signs = 1 - 2 * (np.bitwise_count(states & z_bits) & 1).astype(np.int64)
            matrix[states ^ x_bits, states] += coefficient * PHASES[(x & z).bit_count() & 3] * signs
        return matrix

    def to_dict(self) -> dict[str, complex]:
        """Coefficients by words, such as {"X0 Z3": 0.5}; `of` takes it back."""
        return dict(iter(self.simplify()))

    def to_file(self, path: str | Path) -> None:
        """Write a JSON file with a checksum (docs/reference/formats.md); `of(Path(path))` reads it."""
        check_suffix(path, ".json")
        check_writable(path)
        words = {
            word: [value.real, value.imag] if isinstance(value, complex) else value
            for word, value in self.to_dict().items()
        }
        document = {"format": FORMAT, "version": VERSION, "n_qubits": self.n_qubits, "terms": words}
        write_json(path, {**document, "identity": identity_of(document)})

    def to_qiskit(self) -> Any:
        """Qiskit's `SparsePauliOp`; qubit k stays qubit k."""
        from tnplan.circuits.libraries.pauli_operators import to_qiskit

        return to_qiskit(self)

    def to_pennylane(self, wires: Sequence[Any] | None = None) -> Any:
        """An operator of PennyLane; qubit k is `wires[k]`, or wire k."""
        from tnplan.circuits.libraries.pauli_operators import to_pennylane

        return to_pennylane(self, wires)

    def to_openfermion(self) -> Any:
        """OpenFermion's `QubitOperator`, which its `reverse_jordan_wigner` makes an operator of fermions."""
        from tnplan.circuits.libraries.pauli_operators import to_openfermion

        return to_openfermion(self)

    def to_cirq(self, qubits: Sequence[Any] | None = None) -> Any:
        """Cirq's `PauliSum`; qubit k is `qubits[k]`, or LineQubit(k)."""
        from tnplan.circuits.libraries.pauli_operators import to_cirq

        return to_cirq(self, qubits)

    @property
    def n_terms(self) -> int:
        """How many words there are."""
        return len(self.coefficients)

    @property
    def x(self) -> Array:
        """The x words, [term, W]."""
        return self.keys[:, : self.keys.shape[1] // 2]

    @property
    def z(self) -> Array:
        """The z words, [term, W]."""
        return self.keys[:, self.keys.shape[1] // 2 :]

    @property
    def weights(self) -> Array:
        """How many qubits each word acts on."""
        return bit_counts(self.x | self.z)

    def masks(self) -> Iterator[tuple[int, int, complex]]:
        """The x mask, the z mask and the coefficient of every term."""
        for row, coefficient in zip(self.keys, self.coefficients.tolist(), strict=True):
            yield *unpack(row), coefficient

    def sorted(self) -> PauliSum:
        """The same sum with its words in rising order."""
        order = np.lexsort(self.keys.T)
        return PauliSum(self.n_qubits, self.keys[order], self.coefficients[order])

    def none(self) -> PauliSum:
        """A sum of no terms, of the same kind."""
        return PauliSum(self.n_qubits, self.keys[:0], self.coefficients[:0])

    def lines(self) -> list[str]:
        """A line a term: coefficient and word, such as `0.5 X0 Z3`."""
        return [f"{coefficient!r} {text(x, z)}" for x, z, coefficient in self.masks()]


def bit_counts(words: Array) -> Array:
    """How many bits are set in each row of 64-bit words."""
    return np.asarray(np.bitwise_count(words).sum(axis=-1, dtype=np.int64))


def product_powers(key: Array, keys: Array) -> Array:
    """p in: a packed word times another is i^p times the word with the masks of both, xor'ed.

    Words are in the last axis; the other axes of both broadcast.
    """
    # A word is i^|x & z| X^x Z^z, and Z^z X^x is (-1)^|z & x| X^x Z^z.
    half = key.shape[-1] // 2
    new = keys ^ key
    powers = bit_counts(key[..., :half] & key[..., half:]) + bit_counts(keys[..., :half] & keys[..., half:])
    swaps = bit_counts(keys[..., :half] & key[..., half:])
    return powers + 2 * swaps - bit_counts(new[..., :half] & new[..., half:])


def multiplied(keys: Array, coefficients: Array, factors: Array, values: Array) -> tuple[Array, Array, Array]:
    """The product of terms [..., 2 W] and [...] with factors, all axes but the last broadcast.

    Returns words, complex coefficients, and p in the factor i^p of each.
    """
    powers = product_powers(keys, factors)
    with np.errstate(over="ignore", invalid="ignore"):
        return keys ^ factors, coefficients * values * PHASES[powers & 3], powers


def _product(first: PauliSum, second: PauliSum, parity: int | None = None) -> PauliSum:
    """The operator product; with a parity, of pairs of words that commute (0) or anticommute (1) alone."""
    n_pairs, blocks = PAIRS_AT_ONCE // n_words(first.n_qubits), []
    rows = max(1, n_pairs // max(1, len(second)))
    for start in range(0, len(first), rows):
        block = slice(start, start + rows)
        keys, values, powers = multiplied(
            first.keys[block, None], first.coefficients[block, None], second.keys, second.coefficients
        )
        # i^p P is the product of Hermitian words: it is Hermitian, p even, exactly if they commute.
        chosen = np.full(powers.shape, True) if parity is None else powers & 1 == parity
        terms = keys[chosen], values[chosen]
        blocks.append(terms if rows >= len(first) else merge(*terms))  # one block is merged below
    if not blocks:
        return first.none()
    keys, values = map(np.concatenate, zip(*blocks, strict=True))
    return _simplified(first.n_qubits, keys, values)


def _simplified(n_qubits: int, keys: Array, coefficients: Array, tolerance: float = 0.0) -> PauliSum:
    """`PauliSum.simplify` of words that may be repeated."""
    keys, merged = merge(keys, coefficients)
    check_range(merged, float(np.finfo(merged.dtype).max))
    is_large = np.abs(merged.real) > tolerance
    real = np.where(is_large, merged.real, 0)
    if np.iscomplexobj(merged):
        is_complex = np.abs(merged.imag) > tolerance
        if is_complex.any():
            real = real + 1j * np.where(is_complex, merged.imag, 0)
            is_large |= is_complex
    return PauliSum(n_qubits, keys[is_large], real[is_large])


def _number(value: Any) -> complex:
    """A finite number of Python's, real where it is."""
    try:
        number = complex(value)
    except OverflowError:
        number = complex(math.inf)
    if not (math.isfinite(number.real) and math.isfinite(number.imag)):
        raise InputError("number", f"is {value!r}"[:40], "give a finite number")
    return number if number.imag else number.real


def n_words(n_qubits: int) -> int:
    """W: how many 64-bit words hold a bit for each qubit."""
    return -(-n_qubits // 64)


def pack(x: int, z: int, n_qubits: int) -> Array:
    """The packed row, uint64 [2 W], of two masks."""
    size_bytes = 8 * n_words(n_qubits)
    return np.frombuffer(x.to_bytes(size_bytes, "little") + z.to_bytes(size_bytes, "little"), dtype="<u8")


def pack_all(masks: Sequence[tuple[int, int]], n_qubits: int) -> Array:
    """The packed rows, uint64 [n, 2 W], of pairs of masks."""
    rows = rows_of([mask for pair in masks for mask in pair], n_words(n_qubits))
    return rows.reshape(len(masks), 2 * n_words(n_qubits))


def rows_of(integers: Sequence[int], width: int) -> Array:
    """Integers as rows of 64-bit words, uint64 [n, width], the lowest word first."""
    data = b"".join(integer.to_bytes(8 * width, "little") for integer in integers)
    return np.frombuffer(data, dtype="<u8").reshape(len(integers), width)


def integers_of(rows: Array) -> list[int]:
    """Rows of 64-bit words as integers."""
    return [int.from_bytes(row.tobytes(), "little") for row in np.ascontiguousarray(rows, "<u8")]


def commuting_groups(keys: Array, most: int, ends: Array) -> tuple[Array, Array]:
    """Words in a row that commute, uint64 [n, 2 W], as groups of at most `most`, each as long as it can be.

    A word k with `ends`[k] is the last of its group. Returns for each word its number in its group, and how
    many of the group are left, it among them.
    """
    n, half, most = len(keys), keys.shape[1] // 2, min(most, len(keys))
    if most == 1:
        return np.zeros(n, np.int64), np.ones(n, np.int64)
    numbers, members = np.arange(n), np.arange(most)
    # Words (x, z) and (x', z') commute where x.z' + z.x' is even. Bit k of `clashes` says of a word
    # that it does not commute with the word k rows before it.
    near = keys[np.maximum(numbers[:, None] - members, 0)]
    near &= np.concatenate([keys[:, half:], keys[:, :half]], axis=1)[:, None]
    clashes = (np.bitwise_count(np.bitwise_xor.reduce(near, axis=2)) & 1) @ (1 << members)
    firsts, first, is_end = [0], 0, False
    for number, (clash, is_last) in enumerate(zip(clashes.tolist(), ends.tolist(), strict=True)):
        # A group ends where it is full, where its next word clashes with one in it, or where `ends` says so.
        if number - first == most or clash & (2 << number - first) - 1 or is_end:
            first = number
            firsts.append(first)
        is_end = is_last
    starts = np.array([*firsts, n])
    sizes = starts[1:] - starts[:-1]
    group_sizes = sizes.repeat(sizes)
    places = numbers - starts[:-1].repeat(sizes)
    return places, group_sizes - places


def unpack(row: Array) -> tuple[int, int]:
    """The two masks of a packed row."""
    x, z = integers_of(row.reshape(2, -1))
    return x, z


def merge(keys: Array, coefficients: Array) -> tuple[Array, Array]:
    """Equal rows made one, their coefficients added in order; rows come back in rising order."""
    if not len(keys):
        return keys, coefficients
    order = np.lexsort(keys.T)
    keys, coefficients = keys[order], coefficients[order]
    first = np.concatenate([[True], np.any(keys[1:] != keys[:-1], axis=1)])
    with np.errstate(over="ignore", invalid="ignore"):
        return keys[first], np.add.reduceat(coefficients, np.flatnonzero(first))


def check_range(coefficients: Array, most: float) -> None:
    """Refuse coefficients whose magnitudes add up to more than `most`, or are NaN.

    No coefficient and no value is larger than that sum, whatever the steps.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        size = float(np.abs(coefficients).sum(dtype=np.float64))
    if not size <= most:
        raise InputError(
            "--observable", f"has coefficients whose magnitudes add up to {size:.6g}",
            f"give at most {most:.6g} in all",
        )  # fmt: skip


def pauli_sum(terms: Sequence[tuple[int, int, complex]], n_qubits: int) -> PauliSum:
    """The sum of terms (x mask, z mask, coefficient), equal words merged; complex only if a term is.

    Raises InputError where magnitudes add up to more than a number holds.
    """
    keys = pack_all([(x, z) for x, z, _ in terms], n_qubits)
    values = np.array([value for _, _, value in terms])
    kind = np.complex128 if np.iscomplexobj(values) else np.float64
    keys, merged = merge(keys, values.astype(kind))
    check_range(merged, float(np.finfo(np.float64).max))
    return PauliSum(n_qubits, keys, merged)


def letters(x: int, z: int) -> list[tuple[str, int]]:
    """The letters other than I of a word, each with its qubit."""
    both = x | z
    qubits = [q for q in range(both.bit_length()) if both >> q & 1]
    return [("IXZY"[(x >> q & 1) + 2 * (z >> q & 1)], q) for q in qubits]


def text(x: int, z: int) -> str:
    """A word as text, such as `X0 Z3`; the identity is `I`."""
    return " ".join(f"{letter}{qubit}" for letter, qubit in letters(x, z)) or "I"


def parse(observable: str, n_qubits: int) -> PauliSum:
    """Read a sum of words: `Z62`, `0.5*X0 X1 - 2 Z3`, or dense words, `ZZIX` (character k is qubit k).

    Raises InputError for what is no such sum and for qubits that the circuit does not have.
    """
    if not isinstance(observable, str):
        problem = f"is of type {type(observable).__name__}"
        raise InputError("--observable", problem, "give a text such as 0.5*X0 X1 - Z3, or a PauliSum")
    terms: list[tuple[int, int, complex]] = []
    position = 0
    # TERM takes a sign, a number and a word, each of which may be missing; a term has one of the
    # latter two, and every term but the first a sign.
    while position < len(observable.rstrip()):
        match = TERM.match(observable, position)
        assert match is not None
        sign, number, word = match.groups()
        if match.end() == position or (terms and not sign) or (number is None and word is None):
            remainder = observable[position:].strip()
            raise InputError(
                "--observable",
                f"{remainder[:40]!r} is not a Pauli word",
                "write a sum such as 0.5*X0 X1 - Z3",
            )
        value = float(number or 1) * (-1 if sign == "-" else 1)
        if not math.isfinite(value):
            raise InputError("--observable", f"has the coefficient {number}", "give finite numbers")
        terms.append((*word_masks((word or "I").strip(), n_qubits), value))
        position = match.end()
    if not terms:
        raise InputError("--observable", "is empty", "write a sum such as 0.5*X0 X1 - Z3")
    return pauli_sum(terms, n_qubits)


def word_masks(word: str, n_qubits: int) -> tuple[int, int]:
    if word == "I":
        return 0, 0
    if DENSE.fullmatch(word):
        if len(word) != n_qubits:
            raise InputError(
                "--observable",
                f"has a word of {len(word)} letters",
                f"give one letter for each of {n_qubits} qubits",
            )
        factors = [(letter, qubit) for qubit, letter in enumerate(word)]
    else:
        if FACTOR.sub("", word).strip():
            raise InputError("--observable", f"{word[:40]!r} is not a Pauli word", "write one such as X0 Z3")
        factors = [(letter, int(qubit)) for letter, qubit in FACTOR.findall(word)]
    return masks(factors, n_qubits, "--observable")


def masks(factors: Sequence[tuple[str, int]], n_qubits: int | None, place: str) -> tuple[int, int]:
    """The two masks of letters on qubits; `n_qubits` None: any number of them."""
    x = z = seen = 0
    for letter, qubit in factors:
        if qubit < 0 or (n_qubits is not None and qubit >= n_qubits):
            last = "on" if n_qubits is None else f"to {n_qubits - 1}"
            raise InputError(place, f"names qubit {qubit}", f"use qubits 0 {last}")
        if seen >> qubit & 1:
            raise InputError(place, f"names qubit {qubit} twice in a word", "name each qubit once")
        if letter not in "IXYZ":
            raise InputError(place, f"has the letter {letter!r}", "use I, X, Y and Z")
        seen |= 1 << qubit
        # Y is both X and Z: bit q of x and of z (head of this file).
        x |= (letter in "XY") << qubit
        z |= (letter in "YZ") << qubit
    return x, z


def n_qubits_of(texts: Iterable[Any]) -> int:
    """As many qubits as sums in text need: up to the last that is named, or one for each letter of a word."""
    least = 1
    for entry in texts:
        if isinstance(entry, str):  # `parse` refuses anything else
            least = max([least, *(int(qubit) + 1 for _, qubit in FACTOR.findall(entry))])
            least = max([least, *map(len, DENSE_IN_TEXT.findall(entry))])
    return check_count("--observable: qubits", least, 1, LARGEST_CIRCUIT)


def given_sum(observable: Any, n_qubits: int) -> PauliSum:
    """The sum of Pauli words that an observable is: text, a `PauliSum`, or an operator of another library.

    Raises InputError for what is none, and for one on other qubits.
    """
    from tnplan.circuits.libraries.pauli_operators import of_library

    terms = observable if isinstance(observable, PauliSum) else of_library(observable, n_qubits)
    if terms is None:
        terms = parse(observable, n_qubits)
    if terms.n_qubits != n_qubits:
        raise InputError(
            "--observable", f"is a sum on {terms.n_qubits} qubits", f"give a sum on {n_qubits} qubits"
        )
    return terms


def load_words(path: str | Path) -> tuple[int, Mapping[str, Any]]:
    """Read how many qubits a sum has, and its words with their coefficients; check its identity."""
    document = read_json(path, FORMAT, VERSION)
    stated = document.pop("identity", None)
    try:
        computed = identity_of(document)
    except ValueError:
        raise InputError(str(path), "holds a number that is not finite", REMEDY) from None
    if stated != computed:
        problem = f"{str(stated)[:12]}... is not that of the contents ({computed[:12]}...)"
        raise InputError(f"{path}: identity", problem, REMEDY)
    n_qubits = check_count(f"{path}: n_qubits", document.get("n_qubits"), 1, LARGEST_CIRCUIT)
    words = document.get("terms")
    if not isinstance(words, Mapping):
        raise InputError(f"{path}: terms", "is not a JSON object", REMEDY)
    return n_qubits, words
