"""A list of bit strings grows by the elements of a qubit Hamiltonian: select, diagonalize, correct.

As `grow` does for determinants (Holmes, Tubman and Umrigar, J. Chem. Theory Comput. 12, 3674 (2016)). Every
rank selects the same strings. Knows strings, words and solves; no files.

Work of a selection among N strings: N lookups of each group of words, and a sort of what is above the
threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import fsum
from time import perf_counter
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.sbd.lists.qubit_hamiltonian import (
    PauliTerms,
    QubitHamiltonian,
    StringTable,
    operator_of,
    string_table,
)
from tnplan.executor.sbd.selected_ci.grow import DETERMINANTS, EPSILON, MEMORY, extrapolate
from tnplan.executor.sbd.selected_ci.growth import Growth
from tnplan.executor.sbd.solver.davidson import Criteria, Solution
from tnplan.executor.sbd.solver.setup import ChosenDevice, SolveRequest, SolveSetup, set_up_qubits
from tnplan.executor.sbd.solver.solve import check_roots, solve

TERM_BYTES = 48
"""What a term takes while terms are sorted by their strings, besides three copies of the string."""
MOST_BITS = 24
"""Of the number of a part."""


@dataclass(frozen=True)
class StringGrowth:
    """What is to grow, and with what: `memory_bytes` and `threads` are those of each rank."""

    terms: PauliTerms
    growth: Growth
    criteria: Criteria
    n_roots: int
    chosen: ChosenDevice
    ranks: Communicator
    memory_bytes: float
    threads: int
    say: Callable[[int, int, str, Any], None] = lambda *step: None


@dataclass(frozen=True)
class GrownStrings:
    """The last list, uint64 [string, word] in rising order, with its solve, and the report of all."""

    strings: Array
    setup: SolveSetup[QubitHamiltonian]
    solution: Solution
    report: dict[str, Any]


class GrowingStrings:
    """A list that grows, as one rank sees it; all calls are collective."""

    def __init__(self, problem: StringGrowth, strings: Array) -> None:
        self._problem = problem
        self._iterations: list[dict[str, Any]] = []
        self._points: list[dict[str, Any]] = []
        self._solve(strings)

    def grow(self) -> GrownStrings:
        """Grow through all thresholds, or to a limit."""
        growth, series, ended = self._problem.growth, self._problem.growth.series, ""
        for number, epsilon in enumerate(series):
            while not ended:
                weights = np.max(np.abs(self._states), axis=0)
                found = [
                    (words, np.maximum.reduceat(np.abs(terms), begin))
                    for words, terms, begin in self._outside(weights, epsilon)
                ]
                words, sizes = (np.concatenate(both) for both in zip(*found, strict=True))
                if len(words) <= growth.stable * len(self._strings):
                    break
                ended = self._extend(words, sizes, epsilon, number)
            most, is_end = growth.determinants, ended or number + 1 == len(series)
            if is_end and most is not None and len(self._strings) > most:
                self._cut(most, epsilon, number)
                ended = DETERMINANTS
            self._correct(epsilon)
            if ended:
                break
        check_roots(self._problem.n_roots, len(self._strings), "strings that were selected")
        return GrownStrings(self._strings, self._setup, self._solution, self._report(ended or EPSILON))

    def _extend(self, words: Array, sizes: Array, epsilon: float, number: int) -> str:
        """Add strings, those of the largest terms first, and solve; the limit that was met, or nothing."""
        most = self._problem.growth.most
        room = len(words) if most is None else most - len(self._strings)
        if room <= 0:
            return DETERMINANTS
        chosen = np.sort(np.argsort(-sizes, kind="stable")[:room])
        try:
            self._iterate(np.concatenate([self._strings, words[chosen]]), epsilon, number)
        except InputError as error:
            if error.place != MEMORY:
                raise
            return MEMORY
        return DETERMINANTS if room < len(words) else ""

    def _cut(self, count: int, epsilon: float, number: int) -> None:
        """Keep the strings of largest coefficients."""
        weights = np.max(np.abs(self._states), axis=0)
        self._iterate(self._strings[np.argsort(-weights, kind="stable")[:count]], epsilon, number)

    def _iterate(self, strings: Array, epsilon: float, number: int) -> None:
        """Solve in another list, and say so."""
        begin_s, before = perf_counter(), len(self._strings)
        self._solve(strings[np.lexsort(strings.T)])
        solution, n = self._solution, len(strings)
        self._iterations.append({
            "epsilon": epsilon, "strings": n, "added": n - before, "energies": solution.energies.tolist(),
            "converged": solution.converged, "multiplications": solution.multiplications,
            "time_s": perf_counter() - begin_s,
        })  # fmt: skip
        text = f"epsilon {epsilon:.3g}: {n} strings, energy {solution.energies[0]:.10f}"
        self._problem.say(number + 1, len(self._problem.growth.series), text, self._iterations[-1])

    def _solve(self, strings: Array) -> None:
        """The lowest states of a list."""
        problem, ranks = self._problem, self._problem.ranks
        n_roots = min(problem.n_roots, len(strings))
        request = SolveRequest(n_roots, problem.criteria, problem.memory_bytes / 2, problem.threads)
        setup = set_up_qubits(problem.terms, strings, problem.chosen, ranks, request)
        solution = solve(
            setup.hamiltonian, problem.terms, n_roots, criteria=setup.criteria, backend=setup.backend
        )
        self._states = ranks.broadcast_object(solution.states if ranks.rank == 0 else None, 0)
        self._strings, self._setup, self._solution = strings, setup, solution

    def _outside(self, state: Array, epsilon: float) -> Iterator[tuple[Array, Array, Array]]:
        """Strings outside the list with a term above epsilon, part by part.

        Their words, all terms in the order of these strings, and where the terms of each begin.
        """
        from tnplan.executor.sbd.lists import qubit_kernel as kernel

        operator = operator_of(self._problem.terms, string_table(self._strings))
        threads = self._problem.threads
        n, n_words = self._strings.shape
        nothing = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, self._setup.hamiltonian.dtype)

        def visited(number: int, bits: int, ends: Array, found: Any) -> None:
            visit = state, float(epsilon), np.uint64(number), np.uint64((1 << bits) - 1)
            over_rows(n, threads, lambda a, b: kernel.visit_outside(a, b, operator, visit, ends, found))

        counts = np.zeros(n, np.int64)
        visited(0, 0, counts, nothing)
        needed = int(counts.sum()) * (TERM_BYTES + 24 * n_words)
        bits = min(
            MOST_BITS, max(0, int(np.ceil(np.log2(max(1.0, 4 * needed / self._problem.memory_bytes)))))
        )
        for number in range(1 << bits):
            if bits:
                counts[:] = 0
                visited(number, bits, counts, nothing)
            start = np.concatenate([[0], np.cumsum(counts)])
            rows, groups, terms = (np.empty(start[-1], array.dtype) for array in nothing)
            visited(number, bits, start[:-1].copy(), (rows, groups, terms))
            words = self._strings[rows] ^ operator.groups.flips[groups]
            order = np.lexsort(words.T)
            words = words[order]
            is_new = np.ones(len(words), bool)
            is_new[1:] = (words[1:] != words[:-1]).any(axis=1)
            begin = np.flatnonzero(is_new)
            yield words[begin], terms[order], begin

    def _correct(self, epsilon: float) -> None:
        """The second-order corrections of a list, unless it has them already."""
        least, n = self._problem.growth.epsilon_pt2, len(self._strings)
        if least is None or (self._points and self._points[-1]["strings"] == n):
            return
        begin_s, energies = perf_counter(), self._solution.energies
        corrections = [
            self._second_order(state, float(energy) - self._problem.terms.core, least)
            for state, energy in zip(self._states, energies, strict=True)
        ]
        self._points.append({
            "epsilon": epsilon, "strings": n, "energies": energies.tolist(), "corrections": corrections,
            "time_s": perf_counter() - begin_s,
        })  # fmt: skip

    def _second_order(self, state: Array, energy: float, least: float) -> float:
        """Epstein and Nesbet's second order: the sum of |sum_i H_ai c_i|^2 / (E - H_aa), a outside."""
        from tnplan.executor.sbd.lists import qubit_kernel as kernel

        sums = []
        for words, terms, begin in self._outside(state, least):
            if not len(begin):
                continue
            diagonal = np.empty(len(words))
            table = StringTable(words, np.empty(0, np.int32), np.empty(0, np.uint64))
            kernel.fill_diagonal(0, len(words), 0, table, self._problem.terms.diagonal, diagonal)
            sizes = np.abs(np.add.reduceat(terms, begin)) ** 2
            with np.errstate(divide="ignore", invalid="ignore"):
                sums.append(float((sizes / (energy - diagonal)).sum()))
        if not np.isfinite(sums).all():
            raise InputError(
                "second-order correction", "is not finite: a string outside the list has the state's energy",
                "select more strings, with a smaller epsilon",
            )  # fmt: skip
        return fsum(sums)

    def _report(self, ended: str) -> dict[str, Any]:
        """What the report of a solve says of its list."""
        growth, n_roots = self._problem.growth, len(self._states)
        points = [point for point in self._points if len(point["energies"]) == n_roots]
        columns = [
            [[point[name][root] for point in points] for name in ("energies", "corrections")]
            for root in range(n_roots)
        ]
        # Without an uncertainty: where words couple strongly, the fits say little of the error.
        fits = [extrapolate(*of_root) for of_root in columns]
        return {
            "epsilons": list(growth.series), "epsilon_pt2": growth.epsilon_pt2, "stable": growth.stable,
            "ended": ended, "iterations": self._iterations, "points": self._points,
            "extrapolated": [None if fit is None else fit.energy for fit in fits],
        }  # fmt: skip
