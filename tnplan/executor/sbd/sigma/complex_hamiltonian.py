"""The Hamiltonian over products of half-strings for complex integrals: a real part, and an imaginary one.

    (A + i B) (u + i v) = A u - B v + i (A v + B u)

A is symmetric and B antisymmetric. Each is a `ProductHamiltonian` of the integrals' real or imaginary parts,
so that a product takes four real ones, as many as complex multiplications do.

Knows the two parts; nothing of solvers and files.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.sbd.basis.integrals import Integrals, add_by_parts, real_parts
from tnplan.executor.sbd.basis.strings import StringSet
from tnplan.executor.sbd.sigma.product_hamiltonian import ProductHamiltonian, SourceBlock


class ComplexBlock(NamedTuple):
    """What rows of a state contribute from, for both parts."""

    real: SourceBlock
    imaginary: SourceBlock


class ComplexHamiltonian(ProductHamiltonian):
    """H, without the core energy, over alpha x beta strings, for complex integrals; on CPUs.

    See `ProductHamiltonian`: states are complex. Tables that both parts share are those of the real part.
    """

    dtype = "complex128"

    def __init__(
        self, integrals: Integrals, alpha: StringSet, beta: StringSet | None = None, **options: Any
    ) -> None:
        """`options` are those of `ProductHamiltonian`; each part gets half of `memory_bytes`."""
        options["memory_bytes"] = options.get("memory_bytes", np.inf) / 2
        real, imaginary = (
            ProductHamiltonian(part, alpha, beta, **options) for part in (integrals.real, integrals.imaginary)
        )
        self.parts = (real, imaginary)
        self.integrals, self.threads = integrals, real.threads
        self.symmetric, self.partition, self.rows = real.symmetric, real.partition, real.rows
        self.alpha, self.beta, self.shape, self.parities = real.alpha, real.beta, real.shape, real.parities
        self._all_rows = self.block(0, self.shape[0])

    @property
    def tables_of_parts(self) -> tuple[ProductHamiltonian, ...]:
        """The real and the imaginary part."""
        return self.parts

    def as_type(self, dtype: str) -> ComplexHamiltonian:
        """Itself: there is one precision."""
        if dtype not in ("float64", self.dtype):
            raise ValueError(f"complex states are not there in {dtype}")
        return self

    def block(self, first: int, last: int) -> ComplexBlock:  # type: ignore[override]
        """What rows first .. last-1 of a state contribute from."""
        return ComplexBlock(*(part.block(first, last) for part in self.parts))

    def spin_diagonal(self) -> Array:
        """The diagonal of S^2 over the local rows, real."""
        return self.parts[0].spin_diagonal()

    def add_exchange(self, block: ComplexBlock, factor: float, x: Array, y: Array) -> None:  # type: ignore[override]
        """See `ProductHamiltonian.add_exchange`."""
        add_by_parts(lambda real, out: self.parts[0].add_exchange(block.real, factor, real, out), x, y)

    def diagonal(self) -> Array:
        """The diagonal of H over the local rows, real."""
        return self.parts[0].diagonal()

    def add_half(self, y: Array, parity: int) -> None:
        """See `ProductHamiltonian.add_half`."""
        for part in (y.real, y.imag):
            contiguous = np.ascontiguousarray(part)
            super().add_half(contiguous, parity)
            part[:] = contiguous

    def add_rows(self, block: ComplexBlock, x: Array, local: Array, y: Array, half: bool) -> None:  # type: ignore[override]
        """See `ProductHamiltonian.add_rows`."""
        u, v = real_parts(x)
        own_u, own_v = (u, v) if local is x else real_parts(local)
        real, imaginary = self.parts
        for source, own, target, other, sign in (
            (u, own_u, y.real, y.imag, 1),
            (v, own_v, y.imag, y.real, -1),
        ):
            for part, rows, into, factor in (
                (real, block.real, target, 1), (imaginary, block.imaginary, other, sign)
            ):  # fmt: skip
                product = np.zeros(y.shape)
                part.add_rows(rows, source, own, product, half)
                into += factor * product


def product_hamiltonian(
    integrals: Integrals, alpha: StringSet, beta: StringSet | None = None, **options: Any
) -> ProductHamiltonian:
    """The Hamiltonian of real or complex integrals over alpha x beta strings."""
    kind = ComplexHamiltonian if integrals.is_complex else ProductHamiltonian
    return kind(integrals, alpha, beta, **options)
