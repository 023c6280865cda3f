"""The space of a solve from strings or files: products of half-strings, or a list of determinants.

Knows files and integers of strings; nothing of solvers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.determinants import DeterminantList, read_determinants
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.sector import Sector, irrep_counts, list_irreps, string_irreps, wanted_irrep
from tnplan.executor.sbd.basis.string_files import SpinStrings, read_spin_strings, union
from tnplan.executor.sbd.basis.strings import StringSet, every_string, from_integers

Strings = StringSet | Sequence[int] | str | Path
"""Half-strings: a set, integers whose bit p is orbital p, a file, or the word "all"."""
EVERY = "all"
"""The word for all strings of the electrons in the orbitals."""
Products = tuple[StringSet, StringSet | None]
"""Alpha strings, and those of beta where they differ."""


@dataclass(frozen=True)
class Space:
    """What a state is made of, and the weight of samples of other electrons, which were left out.

    `irrep` is the representation that states are to have, None for any; `irreps` are those of determinants,
    or of alpha and of beta strings, from 0, where orbitals have labels.
    """

    basis: DeterminantList | Products
    left_out: float = 0.0
    irrep: int | None = None
    irreps: tuple[Array, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a state: [alpha string, beta string] or [determinant]."""
        if isinstance(self.basis, DeterminantList):
            return (len(self.basis),)
        alpha, beta = self.basis
        return len(alpha), len(beta or alpha)

    @property
    def sector(self) -> Sector | None:
        """The products of strings that states are to have; None for any symmetry, and of lists."""
        if self.irrep is None or self.irreps is None or len(self.irreps) == 1:
            return None
        alpha, beta = self.irreps
        return Sector(alpha, beta, self.irrep - 1)

    @property
    def size(self) -> int:
        """The number of determinants that states may have."""
        if self.irrep is None or self.irreps is None:
            return prod(self.shape)
        return int(irrep_counts(self.irreps)[self.irrep - 1])


def choose_space(
    integrals: Integrals, alpha: Strings | None, beta: Strings | None,
    determinants: DeterminantList | str | Path | None, symmetry: int | None = None,
) -> Space:  # fmt: skip
    """The determinants: a list, or alpha strings and those of beta where they are given.

    `symmetry` is the representation that states are to have, if not the header's; 0 for any.
    """
    space = _any_symmetry(integrals, alpha, beta, determinants)
    irrep = wanted_irrep(integrals, symmetry)
    labels = set(integrals.labels.irreps)
    if not labels or (len(labels) == 1 and irrep is None):
        return space
    basis, irreps = space.basis, integrals.labels.irreps
    irreps_of_basis: tuple[Array, ...]
    if isinstance(basis, DeterminantList):
        irreps_of_basis = (list_irreps(basis, irreps),)
        if irrep is not None:
            chosen = np.flatnonzero(irreps_of_basis[0] == irrep - 1)
            basis, irreps_of_basis = basis.take(chosen), (irreps_of_basis[0][chosen],)
    else:
        alpha, beta = basis
        irreps_of_basis = string_irreps(alpha, irreps), string_irreps(beta or alpha, irreps)
    restricted = Space(basis, space.left_out, irrep, irreps_of_basis)
    if not restricted.size:
        raise InputError(
            "space", f"has no determinant of symmetry {irrep}", "give other strings, or --symmetry 0 for any"
        )
    return restricted


def _any_symmetry(
    integrals: Integrals, alpha: Strings | None, beta: Strings | None,
    determinants: DeterminantList | str | Path | None,
) -> Space:  # fmt: skip
    """The determinants of any symmetry."""
    if alpha is None and determinants is None:
        remedy = (
            "give alpha strings (--alpha FILE or all), a list (--determinants), or let a list grow (--grow)"
        )
        raise InputError("space", "is not given", remedy)
    if determinants is not None and (alpha is not None or beta is not None):
        raise InputError("space", "is given twice, as strings and as a list", "give either strings or a list")
    if determinants is not None:
        if not isinstance(determinants, DeterminantList):
            return Space(read_determinants(determinants, integrals))
        return Space(determinants.take(np.arange(len(determinants))))
    assert alpha is not None
    first = _strings(alpha, integrals, 0)
    if _is_every(alpha) and (beta is None or _is_every(beta)):
        # Of as many electrons the strings are one set, which keeps the parities apart.
        beta = None if integrals.n_alpha == integrals.n_beta else alpha
    if beta is not None:
        second = _strings(beta, integrals, 1)
        return Space((first.strings, second.strings), max(first.left_out, second.left_out))
    if first.is_sampled:
        return _of_samples(alpha, integrals, first)
    if integrals.n_beta == 0:
        return Space((first.strings, from_integers([0], integrals.n_orbitals)))
    if integrals.n_alpha != integrals.n_beta:
        raise InputError(
            "beta", f"has {integrals.n_beta} electrons where alpha has {integrals.n_alpha}",
            "give beta strings of their own",
        )  # fmt: skip
    return Space((first.strings, None))


def _of_samples(alpha: Strings, integrals: Integrals, first: SpinStrings) -> Space:
    """The strings of both spins of one file of samples: where both spins are alike, all strings for both."""
    second = _strings(alpha, integrals, 1)
    if integrals.n_alpha == integrals.n_beta and integrals.has_common_orbitals:
        return Space((union(first.strings, second.strings), None), first.left_out)
    return Space((first.strings, second.strings), first.left_out)


def _is_every(source: Strings) -> bool:
    """Whether the word for all strings is given."""
    return isinstance(source, str | Path) and str(source) == EVERY


def _strings(source: Strings, integrals: Integrals, spin: int) -> SpinStrings:
    counts = integrals.n_alpha, integrals.n_beta
    n_orbitals, n_electrons = integrals.n_orbitals, counts[spin]
    if _is_every(source):
        return SpinStrings(every_string(n_orbitals, n_electrons), False)
    if isinstance(source, str | Path):
        try:
            return read_spin_strings(source, n_orbitals, counts, spin)
        except InputError as error:
            if not integrals.is_general or "fills" not in error.problem:
                raise
            remedy = f"give strings over all spin orbitals, each with {n_electrons} ones"
            raise InputError(error.place, error.problem, remedy, error.page) from None
    if not isinstance(source, StringSet):
        return SpinStrings(from_integers(source, n_orbitals, n_electrons), False)
    if (source.n_orbitals, source.n_electrons) != (n_orbitals, n_electrons):
        raise InputError(
            f"{('alpha', 'beta')[spin]} strings",
            f"have {source.n_electrons} electrons in {source.n_orbitals} orbitals",
            f"give {n_electrons} electrons in {n_orbitals} orbitals",
        )
    return SpinStrings(source, False)
