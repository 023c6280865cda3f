"""Writes integrals as an FCIDUMP file that `read_fcidump`, and programs that know its kind, read back.

Every value that symmetry does not give is written with 17 digits, so that reading gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.files import file_path, write_text
from tnplan.executor.sbd.basis.integrals import Integrals, all_pairs, turned_pairs

SEPARATOR = "0.0 0 0 0 0"
"""The line between two blocks of a file with orbitals of each spin."""


def write_fcidump(path: str | Path, integrals: Integrals) -> Path:
    """Write integrals to an FCIDUMP file.

    Parameters
    ----------
    path : path
        The file; one that exists is replaced.
    integrals : Integrals
        What `read_fcidump`, `from_arrays` or `rotate_orbitals` gave.

    Returns
    -------
    path
        The file.

    Raises
    ------
    InputError
        Where the file cannot be written.

    Examples
    --------
    >>> integrals = tnplan.from_arrays(np.eye(2), np.zeros((2, 2, 2, 2)), 1, 1)
    >>> tnplan.write_fcidump("h.fcidump", integrals).name
    'h.fcidump'
    """
    target = file_path(path)
    write_text(target, fcidump_text(integrals))
    return target


def fcidump_text(integrals: Integrals) -> str:
    """The text of an FCIDUMP file of integrals."""
    n, ordered = integrals.n_orbitals, integrals.has_ordered_pairs
    beta = integrals.beta
    lines = [_header(integrals)]
    if beta is None:
        lines += _two_body(integrals.two, n, ordered, False)
        lines += _one_body(integrals.one)
    else:
        for two, is_mixed in ((integrals.two, False), (beta.two, False), (beta.mixed, True)):
            lines += [*_two_body(two, n, ordered, is_mixed), SEPARATOR]
        for one in (integrals.one, beta.one):
            lines += [*_one_body(one), SEPARATOR]
    lines.append(f"{_number(integrals.core)} 0 0 0 0")
    return "\n".join([*lines, ""])


def _header(integrals: Integrals) -> str:
    labels = integrals.labels
    spin = 0 if integrals.is_general else integrals.n_alpha - integrals.n_beta
    n_electrons = integrals.n_alpha + integrals.n_beta
    head = [f" &FCI NORB={integrals.n_orbitals},NELEC={n_electrons},MS2={spin},"]
    irreps = labels.irreps or (1,) * integrals.n_orbitals
    head.append(f"  ORBSYM={','.join(map(str, irreps))},")
    head.append(f"  ISYM={labels.wanted},")
    if integrals.beta is not None:
        head.append("  IUHF=1,")
    if integrals.is_general:
        head.append("  IGENERAL=1,")
    if any(labels.momenta):
        head.append(f"  SYMLZ={','.join(map(str, labels.momenta))},")
    elif integrals.has_ordered_pairs:
        head.append("  TREAL=.FALSE.,")
    return "\n".join([*head, " &END"])


def _number(value: complex) -> str:
    if isinstance(value, complex):
        return f"({value.real:.17g},{value.imag:.17g})"
    return f"{value:.17g}"


def _two_body(two: Array, n: int, ordered: bool, is_mixed: bool) -> Iterator[str]:
    """The lines of (pq|rs): one of those that are equal, zeros left out."""
    first, second = all_pairs(n)
    if ordered:
        first, second = np.concatenate([first, second[n:]]), np.concatenate([second, first[n:]])
    pairs = len(two)
    left, right = np.nonzero(two)
    key = left * pairs + right
    equal = [key]
    if not is_mixed:
        equal.append(right * pairs + left)
    if ordered:
        turned = turned_pairs(n)
        equal += [turned[number // pairs] * pairs + turned[number % pairs] for number in equal]
    # Of integrals that symmetry makes equal the one with the lowest number is written.
    chosen = key == np.min(equal, axis=0)
    left, right = left[chosen], right[chosen]
    columns = (table + 1 for table in (first[left], second[left], first[right], second[right]))
    for value, *indices in zip(
        two[left, right].tolist(), *(column.tolist() for column in columns), strict=True
    ):
        yield f"{_number(value)} {' '.join(map(str, indices))}"


def _one_body(one: Array) -> Iterator[str]:
    """The lines of h(pq), p >= q, zeros left out."""
    for p, q in zip(*np.nonzero(np.tril(one)), strict=True):
        yield f"{_number(one[p, q].item())} {p + 1} {q + 1} 0 0"
