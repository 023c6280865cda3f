"""Qubit Hamiltonians for tests, and their elements letter by letter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Term = tuple[str, tuple[int, ...], float]
"""Letters, the qubits that they act on, and a coefficient."""
LETTERS = {"real": ("XX", "YY", "ZZ", "Z", "X", "XZX", "YZY"), "complex": ("XY", "Y", "ZZ", "XX", "YYY", "Z")}


def random_terms(n: int, count: int, kind: str, seed: int = 1) -> list[Term]:
    """Random short words of real or of complex elements; the first is a constant."""
    chance = np.random.default_rng(seed)
    terms: list[Term] = [("", (), -0.75)]
    for _ in range(count):
        letters = LETTERS[kind][chance.integers(len(LETTERS[kind]))]
        qubits = chance.choice(n, min(len(letters), n), replace=False)
        terms.append((letters[: len(qubits)], tuple(map(int, qubits)), float(chance.standard_normal())))
    return terms


def chain_terms(n: int) -> list[Term]:
    """A Heisenberg ring, whose elements conserve the number of ones."""
    return [(2 * letter, (q, (q + 1) % n), 1.0) for q in range(n) for letter in "XYZ"]


def as_text(terms: Sequence[Term]) -> str:
    """The sum as people write it."""
    words = [
        " ".join(f"{letter}{q}" for letter, q in zip(letters, qubits, strict=True))
        for letters, qubits, _ in terms
    ]
    return " ".join(f"{value:+.17g}*{word or 'I'}" for word, (*_, value) in zip(words, terms, strict=True))


def reference_among(terms: Sequence[Term], strings: Sequence[int]) -> np.ndarray:
    """The matrix among strings, integers whose bit q is qubit q: each word acts on each of them in turn.

    X|b> = |1-b>, Y|b> = i (-1)^b |1-b>, Z|b> = (-1)^b |b>.
    """
    number = {string: at for at, string in enumerate(strings)}
    matrix = np.zeros((len(strings),) * 2, complex)
    for column, string in enumerate(strings):
        for letters, qubits, value in terms:
            state, factor = string, complex(value)
            for letter, q in zip(letters, qubits, strict=True):
                bit = state >> q & 1
                if letter in "YZ":
                    factor *= (-1) ** bit
                if letter in "XY":
                    state ^= 1 << q
                    factor *= 1j if letter == "Y" else 1
            if state in number:
                matrix[number[state], column] += factor
    return matrix


def walk(terms: Sequence[Term], start: int, count: int, seed: int = 1) -> list[int]:
    """Distinct strings that words lead to from one of them and from each other, in rising order."""
    chance = np.random.default_rng(seed)
    flips = [sum(1 << q for x, q in zip(a, b, strict=True) if x in "XY") for a, b, _ in terms]
    moves = [flip for flip in flips if flip]
    found = [start]
    seen = {start}
    while len(found) < count:
        string = found[chance.integers(len(found))] ^ moves[chance.integers(len(moves))]
        if string not in seen:
            seen.add(string)
            found.append(string)
    return sorted(found)


def bits_of(strings: Sequence[int], n: int) -> np.ndarray:
    """Strings as booleans [string, qubit]."""
    return np.array([[string >> q & 1 for q in range(n)] for string in strings], bool).reshape(-1, n)


def texts_of(strings: Sequence[int], n: int) -> list[str]:
    """Strings as text, qubit 0 on the right."""
    return [f"{string:0{n}b}" for string in strings]
