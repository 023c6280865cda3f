"""`tnplan sbd-qubits`: a qubit Hamiltonian and bit strings in, the lowest states in their space out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from tnplan.calls.diagonalize_qubits import diagonalize_qubits
from tnplan.cli.options.common import FILE, as_json
from tnplan.cli.options.from_signature import options_of
from tnplan.cli.sbd import UNTESTED, checked_criteria, criteria_options, show_work
from tnplan.cli.terminal import say, say_json
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.launcher import launched_rank

FILE_NAME = re.compile(r"[^*]*\.[A-Za-z]\w*")
"""What is meant as a file: no sum of Pauli words ends so."""


@click.command()
@options_of(
    diagonalize_qubits,
    hamiltonian=click.argument("hamiltonian", metavar="HAMILTONIAN"),
    strings=click.argument("strings", type=FILE, metavar="STRINGS"),
    roots={"type": click.IntRange(1)},
    observables={
        "flags": ["--observable"], "type": str, "multiple": True, "metavar": "SUM",
        "help": "Another operator to measure in the states; may be given again.",
    },
    first_qubit="Where in a string qubit 0 is: right as in Qiskit's counts, left as in tnplan sample.",
    criteria=criteria_options(residual="The largest residual norm of a root."),
    start={"default": None, "help": "Start from the states of this .npz, an earlier result."},
)  # fmt: skip
@as_json
def command(
    hamiltonian: str, observables: tuple[str, ...], start: Path | None, as_json: bool, **options: Any
) -> int:
    """Diagonalize a qubit Hamiltonian in a list of bit strings.

    HAMILTONIAN is a sum of Pauli words such as 'X0 X1 + 0.5*Z0', or a file of them: a term a line, or a JSON
    object of words. STRINGS is a file of bit strings, one a line, or of counts. It is the last step of
    sample-based Krylov quantum diagonalization; docs/how-to/skqd.md explains it. mpirun -n P tnplan
    sbd-qubits spreads the states over P ranks. Exit status 1 where the solve does not converge: the best
    states so far are written, and the checkpoint stays.
    """
    criteria, output = checked_criteria(options), options["output"]
    file = Path(hamiltonian)
    if not file.exists() and FILE_NAME.fullmatch(hamiltonian):
        raise InputError("HAMILTONIAN", f"{hamiltonian!r} is no file", "check the name, or write a Pauli sum")
    result = diagonalize_qubits(
        file if file.exists() else hamiltonian, criteria=criteria, observables=list(observables),
        start=start or (), progress=lambda at: say(at.text, err=True), **options,
    )  # fmt: skip
    residual = criteria.residual
    if launched_rank() == 0:
        written = [] if output is None else [output, output.with_suffix(".json")]
        _show(result.report, observables, written, as_json)
        if not result.solution.converged:
            remedy = "allow more --steps" if output is None else "go on with --resume and more --steps"
            problem = f"residuals are above {residual:g} after {result.solution.steps} steps"
            if not result.solution.residuals.max() > residual:
                problem, remedy = UNTESTED, "allow more --steps"
            say(f"tnplan: error: {problem}; {remedy}", err=True)
    return 0 if result.solution.converged else 1


def _show(report: dict[str, Any], observables: tuple[str, ...], written: list[Path], as_json: bool) -> None:
    if as_json:
        say_json(report)
        return
    say(f"{'root':>4}{'energy':>20}{'residual':>12}")
    for number, (energy, residual) in enumerate(zip(report["energies"], report["residuals"], strict=True)):
        say(f"{number:>4}{energy:>20.10f}{residual:>12.1e}")
    for text, values in zip(observables, report["expectations"], strict=True):
        say(f"{text}: {' '.join(f'{value:.10f}' for value in values)}")
    show_work(report["measured"], written)
