"""Phase polynomials taken apart: tables of some bits, whose elements are made late, and the rest."""

from __future__ import annotations

import numpy as np
import pytest

from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate
from tnplan.executor.statevector.gates.phase_polynomial import (
    PhasePolynomial,
    PhaseTable,
    phases_of_diagonal,
    split,
)

N = 5
EVERY = {bit: np.arange(1 << N) >> bit & 1 for bit in range(N)}


def polynomial(seed: int) -> PhasePolynomial:
    """Phases of any size, some of which are none but for whole turns."""
    random = np.random.default_rng(seed)
    linear, upper = random.normal(size=N) * 5, np.triu(random.normal(size=(N, N)) * 5, 1)
    linear[random.random(N) < 0.3] = 2 * np.pi
    upper[random.random((N, N)) < 0.5] = 0
    upper[0, 1] = -2 * np.pi
    return PhasePolynomial(float(random.normal()), linear, upper + upper.T)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("held", [0b11111, 0b10110, 0b01000, 0])
def test_a_table_and_the_rest_are_the_whole(seed: int, held: int) -> None:
    whole = polynomial(seed)
    table, rest = split(whole, held)
    factors = np.exp(1j * whole.constant) * whole.factor(EVERY)
    made = np.ones(1 << N, np.complex128)
    if rest is not None:
        made *= np.exp(1j * rest.constant) * rest.factor(EVERY)
    if table is not None:
        assert all(held >> bit & 1 for bit in table.selectors)
        number = sum(EVERY[bit] << k for k, bit in enumerate(reversed(table.selectors)))
        made *= table.matrices[number, 0, 0]
    np.testing.assert_allclose(made, factors, rtol=0, atol=1e-13)


@pytest.mark.parametrize("seed", range(8))
def test_a_table_has_the_phases_of_its_elements(seed: int) -> None:
    table, _ = split(polynomial(seed), 0b11111)
    assert isinstance(table, PhaseTable)
    again = phases_of_diagonal(MultiplexedGate((), table.selectors, table.matrices), N)
    known = phases_of_diagonal(table, N)
    assert again is not None
    assert known is table.phases
    for one, other in zip(vars(again).values(), vars(known).values(), strict=True):
        np.testing.assert_allclose(np.exp(1j * np.asarray(one)), np.exp(1j * np.asarray(other)), atol=1e-12)
    np.testing.assert_array_equal(known.linear != 0, again.linear != 0)
    np.testing.assert_array_equal(known.pairs != 0, again.pairs != 0)


@pytest.mark.parametrize("seed", range(8))
def test_the_elements_of_any_bits_in_any_order_are_those_of_their_phases(seed: int) -> None:
    random, n = np.random.default_rng(seed), 13
    linear, upper = random.normal(size=n) * 5, np.triu(random.normal(size=(n, n)) * 5, 1)
    whole = PhasePolynomial(float(random.normal()), linear, upper + upper.T)
    for count in (0, 1, 2, 3, int(random.integers(4, n)), n):
        bits = random.permutation(n)[:count].tolist()
        numbers = np.arange(1 << count)
        values = {bit: numbers >> k & 1 for k, bit in enumerate(reversed(bits))}
        expected = np.exp(1j * whole.constant) * whole.factor(values)
        np.testing.assert_allclose(whole.elements(bits), expected, rtol=0, atol=1e-12)
