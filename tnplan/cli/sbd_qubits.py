"""`tnplan sbd-qubits`: a qubit Hamiltonian and bit strings in, the lowest states in their space out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from tnplan.cli.options.common import FILE
from tnplan.cli.options.jobs import job_options
from tnplan.cli.sbd import UNTESTED, check_residual, show_work
from tnplan.cli.terminal import say, say_json
from tnplan.common.errors import InputError

FILE_NAME = re.compile(r"[^*]*\.[A-Za-z]\w*")
"""What is meant as a file: no sum of Pauli words ends so."""


@click.command()
@click.argument("hamiltonian", metavar="HAMILTONIAN")
@click.argument("strings", type=FILE, metavar="STRINGS")
@click.option("--roots", type=click.IntRange(1), default=1, help="States to find.")
@click.option(
    "--observable",
    "observables",
    multiple=True,
    metavar="SUM",
    help="Another operator to measure in the states; may be given again.",
)
@click.option(
    "--first-qubit",
    type=click.Choice(["right", "left"]),
    default="right",
    help="Where in a string qubit 0 is: right as in Qiskit's counts, left as in tnplan sample.",
)
@click.option("--residual", type=float, default=1e-6, help="Residual norm to reach.")
@click.option("--steps", type=click.IntRange(1), default=100, help="Steps at most.")
@click.option("--vectors", type=click.IntRange(4), default=16, help="Vectors kept before a restart.")
@click.option("--start", type=FILE, help="Start from the states of this .npz.")
@job_options("An .npz; its .json stands beside it.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    hamiltonian: str,
    strings: Path,
    observables: tuple[str, ...],
    residual: float,
    steps: int,
    vectors: int,
    start: Path | None,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> int:  # fmt: skip
    """Diagonalize a qubit Hamiltonian in a list of bit strings.

    HAMILTONIAN is a sum of Pauli words such as 'X0 X1 + 0.5*Z0', or a file of them: a term a line, or a JSON
    object of words. STRINGS is a file of bit strings, one a line, or of counts. It is the last step of
    sample-based Krylov quantum diagonalization; docs/how-to/skqd.md explains it. mpirun -n P tnplan
    sbd-qubits spreads the states over P ranks. Exit status 1 where the solve does not converge: the best
    states so far are written, and the checkpoint stays.
    """
    from tnplan.calls.diagonalize_qubits import diagonalize_qubits
    from tnplan.executor.device.comm.launcher import launched_rank
    from tnplan.executor.sbd.solver.davidson import Criteria

    check_residual(residual)
    file = Path(hamiltonian)
    if not file.exists() and FILE_NAME.fullmatch(hamiltonian):
        raise InputError("HAMILTONIAN", f"{hamiltonian!r} is no file", "check the name, or write a Pauli sum")
    result = diagonalize_qubits(
        file if file.exists() else hamiltonian, strings,
        criteria=Criteria(residual=residual, steps=steps, vectors=vectors), observables=list(observables),
        start=start or (), output=output, progress=lambda at: say(at.text, err=True), **options,
    )  # fmt: skip
    taken = result.solution.steps
    if launched_rank() == 0:
        written = [] if output is None else [output, output.with_suffix(".json")]
        _show(result.report, observables, written, as_json)
        if not result.solution.converged:
            remedy = "allow more --steps" if output is None else "go on with --resume and more --steps"
            problem = f"residuals are above {residual:g} after {taken} steps"
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
