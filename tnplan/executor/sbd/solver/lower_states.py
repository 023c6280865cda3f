"""The lowest states of a space, whatever their symmetry: a solve, and tests that look for what it has missed.

A solve never leaves the symmetries of its start. So a state that it calls lowest is tested: a random vector,
which has a part of every symmetry, comes down orthogonal to the states found, until states below them could
have no more than a small share of it. Where it comes lower, the solve goes on from there and is tested again.

Knows vectors and parities; not what the operator means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tnplan.executor.sbd.solver.davidson import (
    EPSILON,
    LEAST_VECTORS,
    ROUNDING_ERRORS,
    SHARE,
    VANISHED,
    Array,
    Criteria,
    DavidsonStep,
    OnStep,
    Operator,
    Small,
    Solution,
    Vectors,
    conjugate,
    davidson,
    on_host,
)

LOOSE = 10
"""A test also ends, at a state that lies as low as those found, at so many times their residual."""

PATIENCE = 5
"""Steps of a test at most, as a multiple of those of a solve: states that lie close come apart slowly."""

MakeStart = Callable[[int, int], Array]
"""make(parity, number of the test): a vector to start a test from."""


class DeflatedOperator:
    """An operator in the space orthogonal to states, each of which has a parity."""

    def __init__(self, operator: Operator, states: Vectors) -> None:
        self._operator, self._states = operator, states
        self.shape, self.apply, self.diagonal = operator.shape, operator.apply, operator.diagonal
        self.total, self.same = operator.total, operator.same

    def project(self, x: Array, parity: int) -> Array:
        """The part of a vector that has the parity and is orthogonal to the states."""
        projected = self._operator.project(x, parity)
        for state, kind in self._states:
            if kind == parity:
                projected = projected - self._product(state, projected) * state
        return projected

    def norm(self, x: Array) -> float:
        """The Euclidean norm of a vector."""
        return float(np.sqrt(self._product(x, x).real))

    def _product(self, first: Array, second: Array) -> Small:
        products = np.atleast_1d(on_host(conjugate(first.ravel()) @ second.ravel()))
        total: Small = self._operator.total(products)[0]
        return total


@dataclass(frozen=True)
class _Tested:
    """What a test has found: a lower state, or that there is none, or neither within its steps."""

    lower: Vectors
    is_clear: bool
    multiplications: int


def lowest_of_every_symmetry(
    operator: Operator, n_roots: int, start: Vectors, criteria: Criteria, on_step: OnStep,
    parities: tuple[int, ...], make_start: MakeStart,
) -> Solution:  # fmt: skip
    """The lowest `n_roots` states, tested; see `davidson`. `parities` are those that states may have.

    A solve whose test does not end has not converged.
    """
    # Davidson's corrections have the symmetry of their residuals, and these that of the start: a
    # state of another symmetry is never seen. A random start has a part of all.
    diagonal = operator.diagonal()
    solution = davidson(operator, n_roots, start, criteria, on_step, diagonal=diagonal)
    steps, multiplications, test_multiplications, tests = solution.steps, solution.multiplications, 0, 0
    while solution.converged:
        # A state that was missed is rather of the other parity.
        for parity in sorted(parities, key=solution.parities.count):
            begin = make_start(parity, tests), parity
            tested = _test(operator, diagonal, solution, begin, criteria, on_step)
            tests += 1
            test_multiplications += tested.multiplications
            if not tested.is_clear:
                break
        if tested.is_clear:
            break
        if not tested.lower:
            solution = replace(solution, converged=False)
            break
        start_vectors = [*solution.vectors, *tested.lower]
        solution = davidson(operator, n_roots, start_vectors, criteria, on_step, diagonal=diagonal)
        steps, multiplications = steps + solution.steps, multiplications + solution.multiplications
    return replace(
        solution, steps=steps, multiplications=multiplications, test_multiplications=test_multiplications
    )


def _test(
    operator: Operator, diagonal: Array, solution: Solution, vector: tuple[Array, int], criteria: Criteria,
    on_step: OnStep,
) -> _Tested:  # fmt: skip
    """Look for a state below those found, from a vector of one parity."""
    start, parity = vector
    states = solution.vectors
    # If x, of energy e and residual r orthogonal to the states found, had a share a of a state
    # below them at E <= highest, then r >= a (e - E) >= a (e - highest). So r <= share (e -
    # highest) bounds a by `share`, whatever the state below is.
    deflated = DeflatedOperator(operator, states)
    if deflated.norm(deflated.project(start, parity)) <= VANISHED * deflated.norm(start):
        return _Tested([], True, 0)
    highest = float(solution.energies[-1])
    margin = max(criteria.residual, ROUNDING_ERRORS * EPSILON * abs(highest))

    looser = replace(
        criteria, residual=LOOSE * margin, energy=np.inf, steps=PATIENCE * criteria.steps,
        vectors=max(criteria.vectors - 1, LEAST_VECTORS),
    )  # fmt: skip

    def report(step: DavidsonStep, continuation: Callable[[], Vectors]) -> None:
        is_lower = step.energies[0] < highest - margin
        shown = replace(step, number=solution.steps + step.number, is_test=True)
        on_step(shown, lambda: [*states, *continuation()[:1]] if is_lower else states)

    # A lower state converges here: a solve would have to do without the other vectors of the test.
    ended = davidson(
        deflated, 1, [vector], looser, report, below=highest, diagonal=diagonal,
    )  # fmt: skip
    energy, residual = float(ended.energies[0]), float(ended.residuals[0])
    if energy < highest - margin:
        return _Tested(ended.vectors, False, ended.multiplications)
    is_clear = residual <= max(SHARE * (energy - highest), LOOSE * margin)
    return _Tested([], is_clear, ended.multiplications)
