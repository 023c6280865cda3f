"""The lowest states of a space, whatever their symmetry: a solve, and tests that look for what it has missed.

A solve never leaves the symmetries of its start. So a state that it calls lowest is tested, by a random
vector, which has a part of every symmetry. The test ends when no lower state can have more than a small share
of this vector, so small that chance hardly makes it so. Where a lower state comes out, the solve goes on from
there and is tested again.

Knows vectors and parities; not what the operator means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tnplan.executor.sbd.solver.davidson import (
    DAMPING,
    EPSILON,
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
"""So often a test misses a lower state at most, if that is spread over determinants as the roots are."""

PATIENCE = 5
"""Steps of a test at most, as a multiple of those of a solve: states that lie close come apart slowly."""

OTHER_VECTORS, LEAST_OF_TEST = 3, 6
"""So many vectors less than that of a solve has the subspace of a test, for those beside it; and at least."""

DEPENDENT_OF_TEST = 1e-9
"""Less of its norm outside the others is rounding, in a solution of the step before (fp64): it is conjugate
gradients' direction, however short the step was."""

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
    """What a test has found: a lower state, or that there is none, or neither within its steps.

    `others`: states above the lower one.
    """

    lower: Vectors
    is_clear: bool
    multiplications: int
    others: Vectors = ()


@dataclass(frozen=True)
class _Known:
    """What is known besides the roots: converged states above them, and others that are not well known.

    A test takes the others of its parity, and leaves none of them here.
    """

    higher: Vectors
    others: list[tuple[Array, int]]

    def taken(self, parity: int) -> list[Array]:
        """The others of a parity."""
        vectors = [other for other, kind in self.others if kind == parity]
        self.others[:] = [other for other in self.others if other[1] != parity]
        return vectors


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
    left, known = list(parities), _Known([], list(solution.others))
    solution = replace(solution, others=())
    while solution.converged and left:
        # A state that was missed is rather of the other parity.
        parity = min(left, key=solution.parities.count)
        begin = partial(make_start, parity, tests), parity
        tested = _test(operator, diagonal, solution, known, begin, criteria, on_step)
        tests += 1
        test_multiplications += tested.multiplications
        if tested.is_clear:
            # Invariant: no lower state of this parity comes out later, where the highest root is lower.
            left.remove(parity)
            continue
        if not tested.lower:
            solution = replace(solution, converged=False)
            break
        before = solution.vectors
        start_vectors = [*before, *tested.lower]
        solution = davidson(operator, n_roots, start_vectors, criteria, on_step, diagonal=diagonal)
        steps, multiplications = steps + solution.steps, multiplications + solution.multiplications
        higher = [*known.higher, *_outside(operator, before, solution.vectors)][-HIGHER:]
        solution, known = replace(solution, others=()), _Known(higher, [*known.others, *tested.others])
    return replace(
        solution, steps=steps, multiplications=multiplications, test_multiplications=test_multiplications,
        lower_by=LOOSE * _margin(solution, criteria), lower_chance=CHANCE if solution.converged else 1.0,
    )  # fmt: skip


def _margin(solution: Solution, criteria: Criteria) -> float:
    """How well energies can be told apart at these residuals."""
    return max(criteria.residual, ROUNDING_ERRORS * EPSILON * abs(float(solution.energies[-1])))


def _outside(operator: Operator, states: Vectors, roots: Vectors) -> Vectors:
    """What states are outside the span of the roots, where that is most of them, normalized."""
    beside = DeflatedOperator(operator, roots)
    parts = [(beside.project(state, parity), parity) for state, parity in states]
    return [(v / beside.norm(v), parity) for v, parity in parts if beside.norm(v) > MOST]


def _test(
    operator: Operator, diagonal: Array, solution: Solution, known: _Known,
    begin: tuple[Callable[[], Array], int], criteria: Criteria, on_step: OnStep,
) -> _Tested:  # fmt: skip
    """Look for a state below those found, from a random vector of one parity."""
    states = solution.vectors
    deflated = DeflatedOperator(operator, [*states, *known.higher])
    highest, margin = float(solution.energies[-1]), _margin(solution, criteria)
    looser = replace(
        criteria, residual=margin, energy=np.inf, steps=PATIENCE * criteria.steps,
        vectors=max(criteria.vectors - OTHER_VECTORS, LEAST_OF_TEST),
    )  # fmt: skip

    def report(step: DavidsonStep, continuation: Callable[[], Vectors]) -> None:
        is_lower = step.energies[0] < highest - margin
        shown = replace(step, number=solution.steps + step.number, is_test=True)
        on_step(shown, lambda: [*states, *continuation()[:1]] if is_lower else states)

    probe = _Probe(deflated, begin[0](), begin[1], solution.states, looser)
    if probe.is_empty:
        return _Tested([], True, 0)
    probe.add(known.taken(begin[1]))
    # A share a of a random vector whose mean square is s^2 is below b with a chance of sqrt(2 / pi) b / s
    # at most, if it is normal. How many determinants a lower state has is not known: s is that of the roots.
    bound = CHANCE * np.sqrt(np.pi / 2) * probe.likely_share
    is_clear = probe.excludes(highest - LOOSE * margin, highest - margin, bound, diagonal, report)
    if is_clear or probe.energy >= highest - margin:
        return _Tested([], is_clear, probe.space.multiplications)

    def report_more(step: DavidsonStep, continuation: Callable[[], Vectors]) -> None:
        report(replace(step, number=probe.steps + step.number), continuation)

    # A lower state converges here: a solve would have to do without the other vectors of the test.
    ended = davidson(deflated, 1, probe.space, looser, report_more, diagonal=diagonal)
    return _Tested(ended.vectors, False, ended.multiplications, ended.others)


class _Probe:
    """A random vector v, and a bound of the share that states of an energy E and below can have of it.

    <m| (H - E) x> = 0 for a state m of energy E and every x. So m's share <m|v> is also that of
    v - (H - E) x, and the length of this bounds it, whatever x is. Here (H - E) x = v is solved by conjugate
    gradients, preconditioned by the diagonal; the subspace has other vectors besides, which makes x better.
    A state farther below comes out sooner, as the lowest of the subspace.
    """

    def __init__(
        self, operator: DeflatedOperator, vector: Array, parity: int, states: list[Array], criteria: Criteria
    ) -> None:
        self._operator, self._parity, self._most_steps = operator, parity, criteria.steps
        self.energy, self.steps, self.likely_share = np.inf, 0, 0.0
        self.is_empty = True
        self.space = Subspace(operator, vector, criteria.vectors)
        norm = operator.norm(operator.project(vector, parity))
        # Nothing is left of it where the roots are all states of the parity.
        if norm > VANISHED * operator.norm(vector):
            # The least root mean square of the share that one of the states would have of v, if v's signs
            # were drawn again.
            squares = [self.space.product(abs(vector) ** 2, abs(state) ** 2).real for state in states]
            self.likely_share = float(np.sqrt(min(squares))) / norm
            self.is_empty = False
            self.space.add(vector, parity)
            self._start = self.space.first().reshape(operator.shape)

    def add(self, others: list[Array]) -> None:
        """Take other vectors into the subspace."""
        while others:
            self.space.add(self._operator.project(others.pop(), self._parity), self._parity)

    def excludes(self, energy: float, below: float, bound: float, diagonal: Array, report: OnStep) -> bool:
        """Whether no state at `energy` has more of v than `bound`. Ends where a state is below `below`."""
        space = self.space
        # Conjugate gradients need a preconditioner that is positive.
        gaps = np.maximum(abs(diagonal - energy), DAMPING)
        while True:
            self.steps += 1
            n_products, time_s = space.multiply()
            root = space.roots()[0]
            self.energy = root.energy
            if self.energy < below:
                return False
            solved, kept = space.solved(self._start.ravel(), energy)
            remainder = self._start - space.residual(solved)
            share = space.norm(remainder)
            numbers = (self.energy,), (share,), space.multiplications, time_s / n_products
            step = DavidsonStep(self.steps, *numbers, is_share=True)
            report(step, lambda root=root: space.continuation([root])[:1])  # type: ignore[misc]
            if share <= bound or self.steps >= self._most_steps:
                return share <= bound
            remainder /= gaps
            if len(space) == space.most:
                kept = space.restart(1, kept, DEPENDENT_OF_TEST)
            space.remember(kept)
            if not space.add(remainder, self._parity):
                return False
