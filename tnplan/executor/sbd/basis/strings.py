"""Sets of half-strings: which orbitals the electrons of one spin fill, as bits; their files.

A string is a row of 64-bit words, orbital p at bit p % 64 of word p // 64. In files the rightmost character
is the first orbital. Knows bits and lines of text; no integrals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.checks import check_count, is_number
from tnplan.common.errors import InputError
from tnplan.common.files import read_text
from tnplan.executor.device.cpu.parallel_rows import over_rows

MOST_STRINGS = 1 << 20
"""Of one spin, where all are taken."""

# Which half-strings to carry over to a larger or another basis: those of most weight in a state.
#
# Knows weights; nothing of Hamiltonians.


def carry_over(weights: Array, *, ratio: float | None = None, missing: float | None = None) -> Array:
    """The numbers of the strings to keep, by falling weight; those of equal weight in rising order.

    Either the share `ratio` of them, rounded up, or the fewest whose weights sum to 1 - `missing` or more.
    """
    check_share(ratio, missing)
    order = np.argsort(-weights, kind="stable")
    if ratio is not None:
        return order[: int(np.ceil(ratio * len(order) - 1e-12))]
    assert missing is not None
    sums = np.cumsum(weights[order])
    needed = int(np.searchsorted(sums, (1 - missing) * sums[-1] - 1e-14)) + 1
    return order[: min(needed, len(order))]


def check_share(ratio: float | None, missing: float | None) -> None:
    """Refuse all but a ratio or a missing weight, one of the two, that can be."""
    if (ratio is None) == (missing is None):
        raise InputError(
            "--carryover", "needs a share or a weight, one of the two",
            "give --carryover-ratio or --carryover-missing",
        )  # fmt: skip
    if ratio is not None and not (is_number(ratio) and 0 < ratio <= 1):
        raise InputError("--carryover-ratio", f"is {ratio!r}", "give a share above 0, and 1 at most")
    if missing is not None and not (is_number(missing) and 0 <= missing < 1):
        raise InputError("--carryover-missing", f"is {missing!r}", "give 0 or more, and less than 1")


WORD = 64
"""Bits of a word."""
LONGEST = 80
"""Characters of a bitstring that an error shows."""


@dataclass(frozen=True)
class StringSet:
    """Distinct half-strings of equally many electrons: which orbitals one spin fills.

    Parameters
    ----------
    occupied
        Whether string i fills orbital p, bool [string, orbital].
    words
        The same as bits, uint64 [string, word]: orbital p at bit p % 64 of word p // 64.

    Examples
    --------
    >>> occupied = np.array([[True, True, False, False], [True, False, True, False]])
    >>> tnplan.StringSet(occupied, np.array([[0b0011], [0b0101]], np.uint64))
    StringSet(2 strings of 2 electrons in 4 orbitals)
    """

    occupied: Array
    words: Array

    def __repr__(self) -> str:
        electrons = self.n_electrons if len(self) else 0
        return f"StringSet({len(self)} strings of {electrons} electrons in {self.n_orbitals} orbitals)"

    def __len__(self) -> int:
        return len(self.occupied)

    @property
    def n_orbitals(self) -> int:
        """The length of a string."""
        return int(self.occupied.shape[1])

    @property
    def n_electrons(self) -> int:
        """How many orbitals every string fills."""
        return int(self.occupied[0].sum())

    def same_as(self, other: StringSet) -> bool:
        """Whether both hold the same strings in the same order."""
        return self is other or np.array_equal(self.words, other.words)

    def take(self, chosen: Array) -> StringSet:
        """The strings of these numbers."""
        return StringSet(self.occupied[chosen], self.words[chosen])

    def linked(self, threads: int) -> Array:
        """How many strings are 0, 1 or 2 excitations away from each."""
        from tnplan.executor.sbd.basis import string_kernel

        linked = np.zeros(len(self), np.int64)
        over_rows(
            len(self), threads,
            lambda first, last: string_kernel.count_links(self.words, first, last, linked),
        )  # fmt: skip
        return linked

    def lines(self) -> str:
        """The text of a file of these strings."""
        return text_lines(self.occupied)


def text_lines(bits: Array) -> str:
    """Rows of booleans as lines of text, the first one on the right."""
    characters = np.full((len(bits), bits.shape[1] + 1), ord("\n"), np.uint8)
    characters[:, :-1] = np.where(bits[:, ::-1], ord("1"), ord("0"))
    return characters.tobytes().decode()


def from_occupied(occupied: Array) -> StringSet:
    """Strings from a table of booleans [string, orbital]; no check."""
    n_words = max(1, -(-occupied.shape[1] // WORD))
    padded = np.zeros((len(occupied), n_words * WORD), bool)
    padded[:, : occupied.shape[1]] = occupied
    packed = np.packbits(padded, axis=1, bitorder="little")
    return StringSet(np.ascontiguousarray(occupied, bool), packed.view("<u8").astype(np.uint64))


def strings_of(words: Array, n_orbitals: int) -> StringSet:
    """Strings from words [string, word]; no check."""
    bits = np.ascontiguousarray(words, "<u8").view(np.uint8)
    filled = np.unpackbits(bits, axis=1, count=n_orbitals, bitorder="little").astype(bool)
    return StringSet(filled, np.ascontiguousarray(words))


def every_string(n_orbitals: int, n_electrons: int) -> StringSet:
    """All strings of so many electrons, as rising integers; refused where they are more than 2^20."""
    count = comb(n_orbitals, n_electrons)
    if count > MOST_STRINGS:
        raise InputError(
            "strings", f"are {count:,}, all of {n_electrons} electrons in {n_orbitals} orbitals",
            f"give at most {MOST_STRINGS:,} strings, or let a list grow (--grow)",
        )  # fmt: skip
    # Combinations come in the order of their least member: counted from the highest orbital, integers fall.
    chosen = np.array(list(combinations(range(n_orbitals), n_electrons)), np.int64)
    occupied = np.zeros((count, n_orbitals), bool)
    np.put_along_axis(occupied, n_orbitals - 1 - chosen.reshape(count, n_electrons), True, 1)
    return from_occupied(occupied[::-1])


def from_integers(values: Iterable[int], n_orbitals: int, n_electrons: int | None = None) -> StringSet:
    """Strings from integers whose bit p is orbital p, checked as a file's are."""
    try:
        integers = list(values)
    except TypeError:
        raise InputError(
            "strings", f"are {values!r}", "give integers whose bit p is orbital p, or the name of a file"
        ) from None
    numbers = [check_count(f"strings: line {line}", value, 0) for line, value in enumerate(integers, 1)]
    if any(value >> n_orbitals for value in numbers):
        raise InputError(
            "strings",
            f"fill orbitals above the {n_orbitals} of the Hamiltonian",
            "give integers below 2^orbitals",
        )
    bits = [[value >> p & 1 for p in range(n_orbitals)] for value in numbers]
    occupied = np.array(bits, bool).reshape(len(bits), n_orbitals)
    return _checked("strings", occupied, range(1, len(bits) + 1), n_electrons)


def read_bits(path: str | Path, length: int) -> tuple[Array, list[int]]:
    """Rows of `length` bits, the rightmost character first, and the numbers of their lines."""
    text = read_text(path, "a file of bitstrings, one per line")
    entries = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    for number, line in entries:
        check_bits(f"{path}: line {number}", line, length)
    return bits_of([line for _, line in entries], length), [number for number, _ in entries]


def check_bits(place: str, text: str, length: int) -> None:
    """Refuse what is no string of so many bits."""
    if len(text) != length or text.strip("01"):
        shown = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
        raise InputError(
            place, f"{shown!r} is not a string of {length} zeros and ones",
            "write one bitstring per line, the rightmost bit for the first orbital",
        )  # fmt: skip


def bits_of(texts: Sequence[str], length: int) -> Array:
    """Bits [string, bit] of strings of so many bits, the first orbital, which is on the right, first."""
    characters = np.frombuffer("".join(texts).encode(), np.uint8)
    return characters.reshape(-1, length)[:, ::-1] == ord("1")


def _checked(place: str, occupied: Array, lines: Sequence[int], n_electrons: int | None) -> StringSet:
    if not len(occupied):
        raise InputError(place, "holds no string", "give at least one")
    expected = int(occupied[0].sum()) if n_electrons is None else n_electrons
    check_electrons(occupied, expected, lambda at: f"{place}: line {lines[at]}")
    strings = from_occupied(occupied)
    check_distinct(strings.words, place, lines, "string")
    return strings


def check_electrons(occupied: Array, expected: int, place: Callable[[int], str]) -> None:
    """Refuse the first string that has not so many electrons; `place` says where it stands."""
    counts = occupied.sum(1)
    if (counts != expected).any():
        at = int(np.argmax(counts != expected))
        raise InputError(
            place(at), f"fills {counts[at]} orbitals, not {expected}",
            "give strings of the Hamiltonian's electrons, those of beta in their own file where they differ",
        )  # fmt: skip


def check_distinct(rows: Array, place: str, lines: Sequence[int], kind: str) -> None:
    """Refuse a row that another one repeats, by the numbers of their lines."""
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    earliest = first[inverse.ravel()]
    repeated = np.flatnonzero(earliest != np.arange(len(rows)))
    if len(repeated):
        at = int(repeated[0])
        raise InputError(
            f"{place}: line {lines[at]}", f"repeats line {lines[int(earliest[at])]}",
            f"give every {kind} once",
        )  # fmt: skip
