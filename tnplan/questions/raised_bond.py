"""Approximate answers whose bond is raised until the error is small enough, or until the budget ends.

They come where an error is asked for and nothing exact is quick, or where nothing exact fits. Matrix product
states, matrix product operators and PEPS run by turns with equal bonds, as far as they answer the question.
One whose error is far above that of another, or which is not limited by its bond, is not run again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from time import perf_counter
from typing import Any

import numpy as np

from tnplan.common.errors import InputError
from tnplan.executor.device.comm.launcher import launched_size
from tnplan.questions.chooser import MOST_SEARCHED_S, NoMethodFitsError, chosen_with_time
from tnplan.questions.engines.task_list import Outcome
from tnplan.questions.methods import ON_ONE_RANK, TRUNCATING, why_not
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import CircuitQuery, ExpectationValues, Overlap, Trace

ERROR = 1e-2
"""The error that is wished for where none is asked for."""
EXACT_S, LONGEST_S = 10.0, 120.0
"""An exact method that is predicted to take no longer than the first comes before others; all runs of these
take the second at most, as far as times of shorter runs tell."""
FIRST_BOND, LARGEST_BOND = 8, 4096
GROWTH = 8.0
"""The time with twice the bond."""
BEHIND = 10.0
"""A method whose error is so many times the least one is left out."""

Run = Callable[[str, QuestionOptions], Outcome]


def approximate_methods(query: CircuitQuery, options: QuestionOptions) -> list[str]:
    """The methods whose bond can be raised for this question."""
    if launched_size() > 1 or not isinstance(query.question, ExpectationValues | Overlap | Trace):
        return []
    named = TRUNCATING if options.method == "auto" else (options.method,)
    ranks = options.ranks or 1
    return [
        method for method in named
        if method in TRUNCATING and (ranks == 1 or method not in ON_ONE_RANK)
        and why_not(method, query, replace(options, method=method, error=None)) is None
    ]  # fmt: skip


def exact_choice(query: CircuitQuery, options: QuestionOptions) -> tuple[str | None, float, str]:
    """The method, its predicted seconds, and why approximate ones come before it; "" where they do not."""
    wished = options.error
    names = approximate_methods(query, options)
    if wished is not None and not names:
        _refuse(query, options)
    if options.method != "auto":
        if wished is None:
            return chosen_with_time(query, options)[0], 0.0, ""
        return None, inf, f"an error of {wished:g} is asked for"
    is_free = options.max_bond is None and options.cutoff is None
    is_free &= options.truncation is None and options.monte_carlo is None
    plain = options if wished is None else replace(options, error=None, max_bond=None, cutoff=None)
    try:
        method, time_s = chosen_with_time(query, plain)
    except NoMethodFitsError:
        if not names or not (is_free or wished):
            raise
        return None, inf, "no exact method fits"
    if wished is None:
        is_hopeless = bool(names) and is_free and MOST_SEARCHED_S < time_s < inf
        return method, time_s, "no exact method ends" if is_hopeless else ""
    return method, time_s, "" if time_s <= EXACT_S else f"an error of {wished:g} is asked for"


def _refuse(query: CircuitQuery, options: QuestionOptions) -> None:
    """Say why no method answers with an error that is asked for."""
    if launched_size() > 1:
        raise InputError("--error", "is for one rank, and mpirun started more", "start one rank")
    if not isinstance(query.question, ExpectationValues | Overlap | Trace):
        problem = f"is for expectation values, overlaps and traces, not for {query.question.name}"
        raise InputError("--error", problem, "leave it out")
    if options.method == "auto":
        return  # exact methods alone answer
    reason = why_not(options.method, query, replace(options, error=None))
    if reason is not None:
        raise InputError(*reason, "use another --method")
    raise InputError("--error", f"is given, but {options.method!r} has no bond to raise", "leave it out")


def raised(
    query: CircuitQuery, options: QuestionOptions, reason: str, run: Run
) -> tuple[str, Outcome, bool]:  # fmt: skip
    """The method with the least estimated error, its answer, and whether that error is as small as wished.

    The details have all runs, and what ended them. Raises the InputError of the last method where none fits.
    """
    wished = ERROR if options.error is None else options.error
    most = LARGEST_BOND if options.max_bond is None else options.max_bond
    begin, bond, ended = perf_counter(), min(FIRST_BOND, most), ""
    left = approximate_methods(query, options)
    runs: list[dict[str, Any]] = []
    best: tuple[float, str, Outcome] | None = None
    refusal: InputError | None = None
    while not ended:
        errors, times = dict[str, float](), dict[str, float]()
        for method in left:
            start = perf_counter()
            try:
                outcome = run(method, replace(
                    options, method=method, max_bond=bond, error=None, output=None, resume=False
                ))  # fmt: skip
            except InputError as error:  # it does not fit
                refusal = error
                continue
            times[method] = perf_counter() - start
            size = float(np.max(outcome.error, initial=0.0))
            runs.append({"method": method, "max_bond": bond, "error": size})
            if best is None or size < best[0]:
                best = size, method, outcome
            if size <= wished:
                ended = "the estimate of the error is as small as wished"
                break
            if outcome.details["max_bond"] >= bond:
                errors[method] = size
        left = [method for method, size in errors.items() if best and size <= BEHIND * best[0]]
        if ended:
            break
        if not left:
            ended = "the memory, or a larger bond changes nothing"
        elif bond >= most:
            ended = f"the bond of {most}"
        elif perf_counter() - begin + GROWTH * sum(times[method] for method in left) > LONGEST_S:
            ended = f"the time: a larger bond is predicted to take more than {LONGEST_S:g} s"
        bond = min(2 * bond, most)
    if best is None:
        assert refusal is not None
        raise refusal
    size, method, outcome = best
    outcome.details.update(approximate=reason, wished_error=wished, ended_by=ended, runs=runs)
    return method, outcome, size <= wished
