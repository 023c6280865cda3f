"""What is said of the error of repetitions is true: the mean of what is called unbiased is the dense value,
intervals hold it as often as they say, and what is biased has none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from typing import Any

import pytest

from tests.support.effort import repeats
from tests.support.engines.sampled_circuits import (
    QUESTIONS,
    SampledCase,
    chance_of_fewer,
    estimated,
    sampled_case,
)
from tnplan.executor.pauli.estimate import BIASED, CONFIDENCE, UNBIASED, Estimate

ROUNDING = 1e-10
ESTIMATORS = (*((question, "magnitude") for question in QUESTIONS), ("bits", "letters"), ("echo", "square"))
"""A question, and by what terms are resampled."""


def estimates(
    question: str, by: str, first_seed: int, repetitions: int | None = None, **limits: Any
) -> Iterator[tuple[SampledCase, Estimate]]:  # fmt: skip
    """Those of circuits whose terms are resampled, and of which not every repetition gave 0."""
    for seed in count(first_seed):
        case = sampled_case(question, by, seed, **limits)
        if case is None:
            continue
        if repetitions is not None:
            plan = replace(case.sampled.plan, repetitions=repetitions)
            case = case._replace(sampled=replace(case.sampled, plan=plan))
        found = estimated(case)
        if found.kind == "exact":
            assert found.value == pytest.approx(case.exact, abs=ROUNDING)
        elif any(found.values):
            yield case, found


@pytest.mark.parametrize(("question", "by"), ESTIMATORS)
def test_what_is_called_unbiased_has_the_dense_value_as_its_mean(question: str, by: str) -> None:
    """The small errors of many repetitions tell it from what is called biased, which is far off somewhere."""
    pulls = []
    for case, one in islice(estimates(question, by, 30_000, 12, most_qubits=5, share=0.4), 3):
        assert (one.kind, by == "square") in ((UNBIASED, False), (BIASED, True))
        assert one.low is None or one.kind == UNBIASED
        pulls.append(abs(one.value - case.exact) / max(one.standard_error, ROUNDING))
    assert (max(pulls) < 5) == (by != "square"), pulls


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_an_interval_holds_the_dense_value_as_often_as_it_says(question: str) -> None:
    trials, hits = repeats(20, 400), 0
    found = ((case, one) for case, one in estimates(question, "magnitude", 10_000) if one.low is not None)
    for case, one in islice(found, trials):
        assert one.low is not None
        assert one.high is not None
        hits += one.low - ROUNDING <= case.exact <= one.high + ROUNDING
    assert chance_of_fewer(hits, trials, CONFIDENCE) > 1e-3


@pytest.mark.parametrize(("by", "kind", "why"), [
    ("letters", UNBIASED, "few words have most of the weight"), ("square", BIASED, "do not interfere"),
])  # fmt: skip
def test_only_what_holds_its_intervals_has_them(by: str, kind: str, why: str) -> None:
    question = "echo" if by == "square" else "bits"
    for _, one in islice(estimates(question, by, 40_000, most_qubits=4), 2):
        assert (one.low, one.high, one.half_width) == (None, None, None)
        assert one.text.startswith(f"{kind}, no interval: ")
        assert why in one.text
