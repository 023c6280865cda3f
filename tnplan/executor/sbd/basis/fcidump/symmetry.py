"""Which lines of an FCIDUMP file symmetry makes equal, and arrays filled from them.

Over real orbitals (pq|rs) is the same under p with q, r with s, and pq with rs: 8 lines are equal. Over
complex orbitals 4 are: (pq|rs) = (rs|pq), and the conjugates of (qp|sr) and (sr|qp). Integrals of both spins
lack the exchange of pq with rs. Knows values and indices; no header.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.fcidump.header import NUMBER, REMEDY
from tnplan.executor.sbd.basis.integrals import TOLERANCE, number_pairs, pair_count, turned_pairs

DIGITS = 2
"""How many units of the last digit printed integrals that ought to be equal may differ."""
MOST_ROUNDING = 1e-6
"""How much that is at most, in Hartree or relative to their size."""
AVERAGED = 1e-7
"""How far apart integrals may be whose mean is taken, in Hartree or relative to their size."""
SLACK = 1e-3
"""What doubles may add, in units of the last digit and of AVERAGED."""
FEW = 0.1
"""A file lists both (pq|rs) and (qp|rs) where it leaves one of them out for no more than this share."""
DECLARE = "write TREAL=.FALSE. into the header if the orbitals are complex"


@dataclass(frozen=True)
class IntegralLines:
    """The lines of integrals that are not blank: values (N,), indices (N, 4), the lines' numbers (N,).

    `text` has all lines of the file.
    """

    place: str
    values: Array
    indices: Array
    lines: Array
    text: Sequence[str]

    def take(self, chosen: Array) -> IntegralLines:
        """Those of these numbers."""
        return replace(
            self, values=self.values[chosen], indices=self.indices[chosen], lines=self.lines[chosen]
        )

    def and_those_of(self, other: IntegralLines) -> IntegralLines:
        """These lines and those of another block of the same file."""
        return replace(
            self,
            values=np.concatenate([self.values, other.values]),
            indices=np.concatenate([self.indices, other.indices]),
            lines=np.concatenate([self.lines, other.lines]),
        )

    def refusal(self, entry: int, problem: str, remedy: str = REMEDY) -> InputError:
        """What is wrong with the line of an entry."""
        return InputError(f"{self.place}: line {self.lines[entry]}", problem, remedy)

    def unit(self, entry: int) -> float:
        """What one unit of the last digit of a value is."""
        match = NUMBER.search(self.text[self.lines[entry] - 1])
        assert match is not None
        mantissa, exponent, _ = re.fullmatch(  # type: ignore[union-attr]
            r"([+-]?[\d.]+?)(?:[ED]?((?<=[ED])[+-]?\d+|[+-]\d+))?()", match.group().upper()
        ).groups()
        return float(f"1E{int(exponent or 0) - len(mantissa.partition('.')[2])}")

    def by_kind(self, n_orbitals: int) -> tuple[IntegralLines, IntegralLines, IntegralLines]:
        """Those of two electrons, of one, and of none; lines of one index are energies of orbitals."""
        indices = self.indices
        kinds = (indices != 0) @ (1, 2, 4, 8)
        wrong = (indices > n_orbitals).any(1) | (indices < 0).any(1) | ~np.isin(kinds, (0, 1, 3, 15))
        if wrong.any():
            at = int(np.argmax(wrong))
            remedy = f"number orbitals from 1 to {n_orbitals}, zeros last"
            raise self.refusal(at, f"has the indices {indices[at].tolist()}", remedy)
        two, one, core = (self.take(np.flatnonzero(kinds == kind)) for kind in (15, 3, 0))
        return two, one, core


@dataclass(frozen=True)
class Symmetry:
    """Which integrals are equal: over real orbitals, or over complex ones (`ordered`)."""

    n_orbitals: int
    ordered: bool

    @property
    def n_pairs(self) -> int:
        """The numbers of pairs of orbitals."""
        return self.n_orbitals**2 if self.ordered else pair_count(self.n_orbitals)

    def keys(self, indices: Array, is_mixed: bool = False) -> tuple[Array, Array, Array]:
        """The numbers of equal integrals, which lines have their conjugates, and which are real by symmetry.

        `indices` (N, 4) count from 1.
        """
        n, pairs = self.n_orbitals, self.n_pairs
        p, q, r, s = (indices - 1).T
        left, right = number_pairs(p, q, n, pairs), number_pairs(r, s, n, pairs)

        def key(left: Array, right: Array) -> Array:
            if is_mixed:
                return np.asarray(left * pairs + right)
            return np.asarray(np.minimum(left, right) * pairs + np.maximum(left, right))

        plain = key(left, right)
        if not self.ordered:
            return plain, np.zeros(len(plain), bool), np.zeros(len(plain), bool)
        # Over complex orbitals (pq|rs) = (qp|sr)^*: the smaller of both numbers stands for the two.
        turned = key(number_pairs(q, p, n, pairs), number_pairs(s, r, n, pairs))
        return np.minimum(plain, turned), turned < plain, turned == plain

    def two_body(self, entries: IntegralLines, is_mixed: bool = False) -> Array:
        """Two-electron integrals [pair, pair]; `is_mixed`: of a pair of alpha and one of beta."""
        pairs = self.n_pairs
        keys, turned, real = self.keys(entries.indices, is_mixed)
        filled = _filled(_conjugated(entries, turned, real, "(pq|rs)"), keys, pairs * pairs, "(pq|rs)")
        two = filled.reshape(pairs, pairs)
        left, right = np.divmod(keys, pairs)
        if self.ordered:
            other = turned_pairs(self.n_orbitals)
            two[other[left], other[right]] = two[left, right].conj()
        if not is_mixed:
            two[right, left] = two[left, right]
            if self.ordered:
                two[other[right], other[left]] = two[left, right].conj()
        return two

    def one_body(self, entries: IntegralLines) -> Array:
        """One-electron integrals [orbital, orbital]."""
        n = self.n_orbitals
        p, q = (entries.indices[:, :2] - 1).T
        low, high = np.minimum(p, q), np.maximum(p, q)
        turned = (p < q) & self.ordered
        values = _filled(_conjugated(entries, turned, p == q, "h(pq)"), high * n + low, n * n, "h(pq)")
        one = values.reshape(n, n)
        one[low, high] = one[high, low].conj() if self.ordered else one[high, low]
        return one

    def constant(self, entries: IntegralLines) -> float:
        """The core energy."""
        zeros = np.zeros(len(entries.values), np.int64)
        real = _conjugated(entries, zeros > 0, zeros == 0, "the core energy")
        return float(_filled(real, zeros, 1, "the core energy")[0].real)


def find_symmetry(
    entries: IntegralLines, keyword: str, n_orbitals: int, blocks: Sequence[IntegralLines] = ()
) -> Symmetry:
    """What the header's keyword of complex orbitals says, or else the values.

    They say that orbitals are complex where some are, or where the file lists (pq|rs) and (qp|rs), and these
    differ. `blocks` are lines of one spin each; by default all lines are of one kind.
    """
    complex_ = Symmetry(n_orbitals, True)
    two_body = [block.by_kind(n_orbitals)[0] for block in blocks or (entries,)]
    if keyword:
        _check_exchange(two_body, keyword)
    if keyword or np.iscomplexobj(entries.values) or any(_lists_both(two, complex_) for two in two_body):
        return complex_
    return Symmetry(n_orbitals, False)


def _check_exchange(two_body: Sequence[IntegralLines], keyword: str) -> None:
    """Refuse a file that says that orbitals are complex and lists the integrals of real ones.

    Of complex orbitals (pq|qp), an exchange integral, is at least as large as (pq|pq), which is another one.
    """
    for two in two_body:
        p, q, r, s = two.indices.T
        present = (p != q) & (np.abs(two.values) > MOST_ROUNDING)
        if (present & (p == r) & (q == s)).any() and not (present & (p == s) & (q == r)).any():
            raise InputError(
                f"{two.place}: {keyword}",
                "is set, for orbitals that are complex, and (pq|qp) is missing beside (pq|pq)",
                "list the integrals of complex orbitals, or remove the keyword where they are real",
            )


def _lists_both(entries: IntegralLines, symmetry: Symmetry) -> bool:
    """Whether lines have (pq|rs) and (qp|rs) with different values; InputError where that is not certain."""
    p, q, r, s = entries.indices.T
    chosen = np.flatnonzero((p != q) & (r != s))
    keys, _, _ = symmetry.keys(entries.indices[chosen])
    wide, _, _ = Symmetry(symmetry.n_orbitals, False).keys(entries.indices[chosen])
    _, first = np.unique(keys, return_index=True)
    order = first[np.argsort(wide[first], kind="stable")]
    same = np.flatnonzero(np.diff(wide[order]) == 0)
    values = entries.values[chosen]
    apart = np.abs(values[order[same]] - values[order[same + 1]])
    differing = same[apart > MOST_ROUNDING * np.maximum(1.0, np.abs(values[order[same]]))]
    if not len(differing):
        return False
    # Real orbitals have (pq|rs) = (qp|rs), complex ones have not. Where most integrals list both and some
    # differ, the file is over complex orbitals; where few list both, a difference is a mistake.
    unpaired = len(np.unique(wide)) - len(same)
    if unpaired <= FEW * len(same):
        return True
    at = differing[0]
    earlier, later = sorted(int(chosen[order[k]]) for k in (at, at + 1))
    raise _unequal(entries, "(pq|rs)", earlier, later, DECLARE)


def check_momenta(entries: IntegralLines, momenta: Sequence[int]) -> None:
    """Refuse an integral between orbitals whose angular momenta do not add up."""
    if not momenta:
        return
    momenta_of = np.concatenate([[0], momenta])[entries.indices]
    change = momenta_of[:, 0] - momenta_of[:, 1] + momenta_of[:, 2] - momenta_of[:, 3]
    has_bra_and_ket = (entries.indices[:, 1] != 0) | (entries.indices[:, 0] == 0)
    wrong = (change != 0) & has_bra_and_ket & (np.abs(entries.values) > MOST_ROUNDING)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise entries.refusal(
            at, f"is an integral between orbitals of SYMLZ {momenta_of[at].tolist()}, for which it is 0",
            "correct SYMLZ: the orbitals are not those that it says",
        )  # fmt: skip


def _conjugated(entries: IntegralLines, turned: Array, real: Array, name: str) -> IntegralLines:
    """The lines with conjugates where `turned`; those `real` by symmetry without an imaginary part."""
    values = entries.values
    if not np.iscomplexobj(values):
        return entries
    wrong = real & (np.abs(values.imag) > MOST_ROUNDING * np.maximum(1.0, np.abs(values)))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise entries.refusal(at, f"gives {name} the imaginary part {values[at].imag:.2g}, and it is real")
    values = np.where(turned, values.conj(), values)
    return replace(entries, values=np.where(real, values.real, values))


def _filled(entries: IntegralLines, keys: Array, size: int, name: str) -> Array:
    """An array of `size` with the values of entries at keys, which symmetry makes equal.

    Where a key comes twice, the values must agree to TOLERANCE, or to DIGITS units of the last digit printed
    of the one that has fewer; that of the most digits is taken, or the last of several. Of values that are
    AVERAGED apart the mean is taken, which a warning says once.
    """
    values = entries.values
    filled = np.zeros(size, values.dtype)
    filled[keys] = values
    differences = np.abs(filled[keys] - values) / np.maximum(1.0, np.abs(values))
    if (differences > MOST_ROUNDING).any():
        at = int(np.argmax(differences))
        raise _unequal(entries, name, at, int(np.flatnonzero(keys == keys[at])[-1]))
    near = np.flatnonzero(np.isin(keys, keys[differences > TOLERANCE]))
    near = near[np.argsort(keys[near], kind="stable")]
    averaged: list[tuple[int, int]] = []
    for group in np.split(near, np.flatnonzero(np.diff(keys[near])) + 1) if len(near) else []:
        filled[keys[group[0]]], apart = _agreed(entries, name, group.tolist())
        averaged += [apart] if apart is not None else []
    if averaged:
        first, second = averaged[0]
        others = f" (and so of {len(averaged) - 1} more integrals)" if len(averaged) > 1 else ""
        problem = f"{_apart(entries, name, first, second)}; the mean is taken{others}"
        warnings.warn(f"{entries.place}: line {entries.lines[second]}: {problem}", stacklevel=2)
    return filled


def _agreed(
    entries: IntegralLines, name: str, alike: Sequence[int]
) -> tuple[complex, tuple[int, int] | None]:  # fmt: skip
    """The value that entries agree upon to the digits that they print; or the mean, and two that differ."""
    finest = min(reversed(alike), key=entries.unit)
    value, values = entries.values[finest], entries.values[alike]
    size, apart = max(1.0, abs(value)), None
    for entry, difference in zip(alike, np.abs(values - value).tolist(), strict=True):
        rounding = min(MOST_ROUNDING * size, (DIGITS + SLACK) * entries.unit(entry))
        if difference > max(TOLERANCE * size, rounding):
            apart = min(entry, finest), max(entry, finest)
            if difference > AVERAGED * size * (1 + SLACK):
                raise _unequal(entries, name, *apart)
    return (value if apart is None else values.mean()), apart


def _apart(entries: IntegralLines, name: str, first: int, second: int) -> str:
    """What is wrong with two values of one integral."""
    difference = abs(entries.values[first] - entries.values[second])
    return f"gives {name} of line {entries.lines[first]} again, {difference:.2g} apart"


def _unequal(entries: IntegralLines, name: str, first: int, second: int, remedy: str = REMEDY) -> InputError:
    problem = _apart(entries, name, first, second)
    return entries.refusal(second, f"{problem}: the integrals are not symmetric", remedy)
