"""Questions answered by contracting tensor networks: hands them to `contraction`, which plans and contracts."""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.api.circuits.options import QuestionOptions
from tnplan.api.circuits.outcome import EXACT, STATISTICAL, Outcome
from tnplan.api.circuits.questions import (
    Amplitudes,
    AskedCircuit,
    ExpectationValues,
    OpenAmplitudes,
    Overlap,
    Probabilities,
    ReducedDensityMatrix,
    Sample,
    Trace,
)
from tnplan.api.contraction.options import ContractionOptions
from tnplan.planner.common.errors import InputError


def answer_by_contraction(asked: AskedCircuit, options: QuestionOptions) -> Outcome:
    """The answer by contraction, in one process."""
    assert asked.gates is not None
    job = options.job
    use = ContractionOptions(
        memory=job.memory, precision=options.precision, device=options.device, devices=job.ranks or 1,
        threads=job.threads,
    )  # fmt: skip
    if isinstance(asked.question, Sample):
        return _sampled(asked, options, use)
    return Outcome(_value(asked, use), 0.0, EXACT, {"device": options.device})
