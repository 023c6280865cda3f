"""Sums of Pauli words as packed bits, and the text that people write for them. Knows no gate.

A word on n qubits is two bit masks: bit q of x says that qubit q carries X or Y, bit q of z that it carries Z
or Y. It stands for the Hermitian operator, Y itself and not XZ. Packed, a row of `keys` has W = ceil(n / 64)
64-bit words of x and then W of z.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError

TOPIC = "Pauli propagation"
"""What the errors of this module are about, where one says no topic of its own."""

FACTOR = re.compile(r"([IXYZ])\s*(\d{1,9})")
"""A letter and its qubit."""
DENSE = re.compile(r"[IXYZ]+")
"""A word with a letter for every qubit."""
TERM = re.compile(r"\s*([+-]?)\s*((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)?\s*\*?\s*([IXYZ][IXYZ0-9\s]*)?")
"""Sign, coefficient and word of a term."""


@dataclass(frozen=True, eq=False)
class PauliSum:
    """A sum of distinct Pauli words with their coefficients, such as an observable.

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
    """

    n_qubits: int
    keys: Array
    coefficients: Array

    def __repr__(self) -> str:
        return f"PauliSum({self.n_terms} terms on {self.n_qubits} qubits)"

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
    """p in: a packed word times each of several is i^p times the word with the masks of both, xor'ed."""
    # A word is i^|x & z| X^x Z^z, and Z^z X^x is (-1)^|z & x| X^x Z^z.
    half = len(key) // 2
    new = keys ^ key
    powers = bit_counts(key[:half] & key[half:]) + bit_counts(keys[:, :half] & keys[:, half:])
    return powers + 2 * bit_counts(keys[:, :half] & key[half:]) - bit_counts(new[:, :half] & new[:, half:])


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
        # A group ends where it is full, where its next word clashes with one in it, or where `ends`
        # says so.
        if number - first == most or clash & (2 << number - first) - 1 or is_end:
            first = number
            firsts.append(first)
        is_end = is_last
    starts = np.array([*firsts, n])
    sizes = starts[1:] - starts[:-1]
    left = sizes.repeat(sizes)
    places = numbers - starts[:-1].repeat(sizes)
    return places, left - places


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
            f"give {most:.6g} in all at most",
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


def text(x: int, z: int) -> str:
    """A word as text, such as `X0 Z3`; the identity is `I`."""
    both = x | z
    names = [
        f"{'IXZY'[(x >> q & 1) + 2 * (z >> q & 1)]}{q}" for q in range(both.bit_length()) if both >> q & 1
    ]
    return " ".join(names) or "I"


def parse(observable: str, n_qubits: int) -> PauliSum:
    """Read a sum of words: `Z62`, `0.5*X0 X1 - 2 Z3`, or dense words, `ZZIX` (character k is qubit k).

    Raises InputError for what is no such sum and for qubits that the circuit does not have.
    """
    if not isinstance(observable, str):
        raise InputError("--observable", f"is {observable!r}", "give its text or a PauliSum")
    terms: list[tuple[int, int, complex]] = []
    position = 0
    # TERM takes a sign, a number and a word, each of which may be missing; a term has one of the
    # latter two, and every term but the first a sign.
    while position < len(observable.rstrip()):
        match = TERM.match(observable, position)
        assert match is not None
        sign, number, word = match.groups()
        if match.end() == position or (terms and not sign) or (number is None and word is None):
            rest = observable[position:].strip()
            raise InputError(
                "--observable", f"{rest[:40]!r} is no Pauli word", "write a sum such as 0.5*X0 X1 - Z3"
            )
        value = float(number or 1) * (-1 if sign == "-" else 1)
        if not math.isfinite(value):
            raise InputError("--observable", f"has the coefficient {number}", "give finite numbers")
        terms.append((*_word((word or "I").strip(), n_qubits), value))
        position = match.end()
    if not terms:
        raise InputError("--observable", "is empty", "write a sum such as 0.5*X0 X1 - Z3")
    return pauli_sum(terms, n_qubits)


def _word(word: str, n_qubits: int) -> tuple[int, int]:
    if word == "I":
        return 0, 0
    if DENSE.fullmatch(word):
        if len(word) != n_qubits:
            raise InputError(
                "--observable",
                f"has a word of {len(word)} letters",
                f"give one for each of {n_qubits} qubits",
            )
        factors = [(letter, qubit) for qubit, letter in enumerate(word)]
    else:
        if FACTOR.sub("", word).strip():
            raise InputError("--observable", f"{word[:40]!r} is no Pauli word", "write one such as X0 Z3")
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


# An observable in any form that people have: text, a `PauliSum`, or an operator of Qiskit or OpenFermion.


PHASES = {"": 1, "-": -1, "i": 1j, "-i": -1j}
"""What Qiskit writes before the letters of a `Pauli`."""


def given_sum(observable: Any, n_qubits: int) -> PauliSum:
    """The sum of Pauli words that an observable is. Qubit k of Qiskit's `SparsePauliOp` is qubit k.

    Raises InputError for what is none, and for one on other qubits.
    """
    if isinstance(observable, PauliSum):
        found = observable
    else:
        found = _of_library(observable, n_qubits) or parse(observable, n_qubits)
    if found.n_qubits != n_qubits:
        raise InputError("--observable", f"is a sum on {found.n_qubits} qubits", f"give one on {n_qubits}")
    return found


def _of_library(observable: Any, n_qubits: int) -> PauliSum | None:
    """The sum that an operator of Qiskit or OpenFermion is; None for anything else.

    Taken are `SparsePauliOp`, `Pauli` and `QubitOperator`.
    """
    if hasattr(observable, "to_sparse_list"):
        listed = [
            (list(zip(letters, map(int, qubits), strict=True)), value)
            for letters, qubits, value in observable.to_sparse_list()
        ]
        return _sum(listed, int(observable.num_qubits))
    if type(observable).__name__ == "Pauli" and hasattr(observable, "to_label"):
        label, size = observable.to_label(), int(observable.num_qubits)
        # Qiskit's labels have qubit 0 on the right, after an optional phase.
        letters = enumerate(reversed(label[len(label) - size :]))
        word = [(letter, qubit) for qubit, letter in letters if letter != "I"]
        return _sum([(word, PHASES[label[: len(label) - size]])], size)
    if type(observable).__name__ == "QubitOperator" and isinstance(observable.terms, dict):
        listed = [
            ([(letter, int(qubit)) for qubit, letter in word], value)
            for word, value in observable.terms.items()
        ]
        return _sum(listed, n_qubits)
    return None


def _sum(terms: Sequence[tuple[list[tuple[str, int]], Any]], n_qubits: int) -> PauliSum:
    """The sum of letters on qubits with their coefficients, real where all of these are."""
    values = np.asarray([value for _, value in terms])
    if values.dtype == object or not np.isfinite(values).all():
        raise InputError("--observable", "has coefficients that are no finite numbers", "bind its parameters")
    is_real = not np.any(np.imag(values))
    numbers = [float(np.real(value)) if is_real else complex(value) for value in values.tolist()]
    words = [masks(word, n_qubits, "--observable") for word, _ in terms]
    return pauli_sum([(x, z, value) for (x, z), value in zip(words, numbers, strict=True)], n_qubits)
