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
    DAMPING,
    EPSILON,
    LEAST_VECTORS,
    ROUNDING_ERRORS,
    VANISHED,
    Array,
    Criteria,
    DavidsonStep,
    OnStep,
    Operator,
    Small,
    Solution,
    Subspace,
    Vectors,
    conjugate,
    davidson,
    on_host,
)

LOOSE = 10
"""States count as lower that lie so many times the largest residual below those found, or more."""

CHANCE = 0.01
"""At most so often a test misses a lower state, if its share of determinants is like that of those found."""

KEPT = 4
"""Lowest vectors of a test that has come below the states found, from which the lower state converges."""

PATIENCE = 5
"""Steps of a test at most, as a multiple of those of a solve: states that lie close come apart slowly."""

HIGHER = 2
"""Converged states above the roots at most, to which tests are orthogonal too."""

MOST = 0.9
"""A state of a solve before is none of the roots if more than this of its norm is outside them."""

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
    left = list(parities)
    known: list[tuple[Array, int]] = []
    while solution.converged and left:
        # A state that was missed is rather of the other parity.
        parity = min(left, key=solution.parities.count)
        begin = make_start(parity, tests), parity
        tested = _test(operator, diagonal, solution, known, begin, criteria, on_step)
        tests += 1
        test_multiplications += tested.multiplications
        if tested.is_clear:
            # Later highest roots are lower, and start from these.
            left.remove(parity)
            continue
        if not tested.lower:
            solution = replace(solution, converged=False)
            break
        before = solution.vectors
        solution = davidson(
            operator, n_roots, [*before, *tested.lower], criteria, on_step, diagonal=diagonal
        )  # fmt: skip
        known = [*known, *_outside(operator, before, solution.vectors)][-HIGHER:]
        steps, multiplications = steps + solution.steps, multiplications + solution.multiplications
    return replace(
        solution, steps=steps, multiplications=multiplications, test_multiplications=test_multiplications
    )


def _outside(operator: Operator, states: Vectors, found: Vectors) -> Vectors:
    """What is left of states beside those found, where that is most of it, normalized."""
    beside = DeflatedOperator(operator, found)
    parts = [(beside.project(state, parity), parity) for state, parity in states]
    sizes = [beside.norm(part) for part, _ in parts]
    return [
        (part / size, parity) for (part, parity), size in zip(parts, sizes, strict=True) if size > MOST
    ]


def _test(
    operator: Operator, diagonal: Array, solution: Solution, known: Vectors, vector: tuple[Array, int], criteria: Criteria,
    on_step: OnStep,
) -> _Tested:  # fmt: skip
    """Look for a state below those found, from a random vector of one parity."""
    start, parity = vector
    states = solution.vectors
    deflated = DeflatedOperator(operator, [*states, *known])
    if deflated.norm(deflated.project(start, parity)) <= VANISHED * deflated.norm(start):
        return _Tested([], True, 0)
    highest = float(solution.energies[-1])
    margin = max(criteria.residual, ROUNDING_ERRORS * EPSILON * abs(highest))
    criteria = replace(
        criteria, residual=LOOSE * margin, energy=np.inf, steps=PATIENCE * criteria.steps,
        vectors=max(criteria.vectors - 1, LEAST_VECTORS),
    )  # fmt: skip

    def report(step: DavidsonStep, continuation: Callable[[], Vectors]) -> None:
        is_lower = step.energies[0] < highest - margin
        shown = replace(step, number=solution.steps + step.number, is_test=True)
        on_step(shown, lambda: [*states, *continuation()[:1]] if is_lower else states)

    probe = _Probe(deflated, diagonal, vector, criteria)
    bound = CHANCE * np.sqrt(np.pi / 2) * min(probe.likely_share(state) for state, _ in states)
    is_clear = probe.excludes(highest - LOOSE * margin, highest - margin, bound, report)
    if is_clear or probe.energy >= highest - margin:
        return _Tested([], is_clear, probe.multiplications)
    # A lower state converges here: a solve would have to do without the other vectors of the test.
    criteria = replace(criteria, steps=max(1, criteria.steps - probe.steps))
    begin = probe.lowest()
    done = probe.steps, probe.multiplications
    del probe
    ended = davidson(
        deflated, 1, begin, criteria,
        lambda step, continuation: report(replace(step, number=step.number + done[0]), continuation),
        diagonal=diagonal,
    )  # fmt: skip
    return _Tested(ended.vectors, False, ended.multiplications + done[1])


class _Probe:
    """A random vector v, whose share of states at an energy E and below is bounded.

    A state m of energy E is orthogonal to (H - E) x for every x. So its share of v is also that of
    v - (H - E) x, and no more than the length of this, whatever x is. Here x is the solution of
    (H - E) x = v in the subspace (conjugate gradients, preconditioned by the diagonal).
    """

    def __init__(
        self, operator: DeflatedOperator, diagonal: Array, vector: tuple[Array, int], criteria: Criteria
    ) -> None:
        self._operator, self._diagonal, self._criteria = operator, diagonal, criteria
        self._space = Subspace(operator, vector[0], criteria.vectors)
        self._parity = vector[1]
        self._space.add(*vector)
        self._start = self._space.first()
        self.energy, self.steps = np.inf, 0

    @property
    def multiplications(self) -> int:
        """Products with the operator."""
        return self._space.multiplications

    def likely_share(self, state: Array) -> float:
        """The root mean square of the share of v, were its signs drawn again, that a state has."""
        return float(np.sqrt(self._space.product(abs(self._start) ** 2, abs(state) ** 2).real))

    def lowest(self) -> Vectors:
        """The lowest states of the subspace."""
        space = self._space
        return [(space.vector(root), root.parity) for root in space.roots()[:KEPT]]

    def excludes(self, energy: float, below: float, bound: float, report: OnStep) -> bool:
        """Whether states at `energy` and below have no more of v than `bound`; ends at a state below `below`."""
        space = self._space
        gaps = np.maximum(abs(self._diagonal - energy), DAMPING)
        while True:
            self.steps += 1
            n_products, time_s = space.multiply()
            roots = space.roots()
            self.energy = roots[0].energy
            if self.energy < below:
                remainder, share = None, np.nan
            else:
                solved = space.solved(self._start, energy, self._parity)
                remainder = self._start.reshape(self._operator.shape) - space.residual(solved)
                share = space.norm(remainder)
            report(
                DavidsonStep(self.steps, (self.energy,), (share,), space.multiplications, time_s / n_products),
                lambda: [(space.vector(roots[0]), roots[0].parity)],
            )
            if remainder is None or share <= bound:
                return remainder is not None
            if self.steps >= self._criteria.steps:
                return False
            # PRECONDITIONED
            remainder /= gaps
            solved = replace(solved, coefficients=solved.coefficients / np.linalg.norm(solved.coefficients))
            if len(space) + 1 > self._criteria.vectors:
                (solved,) = space.restart(1, [solved])
            space.remember([solved])
            if not space.add(remainder, self._parity):
                return False
