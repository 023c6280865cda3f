"""The method that `method="auto"` takes, and the check of one that was named."""

from __future__ import annotations

from tnplan.api.circuits.methods import check_answerable, check_method, possible_methods
from tnplan.api.circuits.options import QuestionOptions
from tnplan.api.circuits.questions import AskedCircuit
from tnplan.executor.device.comm.launcher import launched_size
from tnplan.planner.common.errors import InputError

SMALL = 20
"""Qubits of a state that is simulated before others are looked at: it takes less time than looking."""


def chosen_method(asked: AskedCircuit, options: QuestionOptions) -> str:
    """The method for a question; raises InputError where none can answer, or the one named cannot."""
    if options.method != "auto":
        check_method(options.method, asked, options)
        if options.method == "contraction" and launched_size() > 1:
            raise InputError(
                "mpirun", "started more than one rank, and 'contraction' answers questions on one",
                "start it without mpirun, or use another --method",
            )  # fmt: skip
        return options.method
    check_answerable(asked, options)
    return possible_methods(asked, options)[0]
