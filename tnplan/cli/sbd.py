"""`tnplan sbd` and `tnplan sbd-qubits`: a Hamiltonian and a basis in, the lowest states and energies out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tnplan.calls.diagonalize import diagonalize
from tnplan.calls.diagonalize_qubits import diagonalize_qubits
from tnplan.cli.from_signature import Change, options_of, taken
from tnplan.cli.option_types import COUNT, FILE, THRESHOLDS, added, as_json
from tnplan.cli.terminal import say_once, say_progress, say_result
from tnplan.common.errors import InputError
from tnplan.common.units import plural
from tnplan.executor.sbd.selected_ci.growth import Growth
from tnplan.executor.sbd.solver.davidson import Criteria, Solution
from tnplan.executor.sbd.solver.solve import SpinPenalty
from tnplan.jobs.diagonalization_result import CarryOver, determinants_file

FILE_NAME = re.compile(r"[^*]*\.[A-Za-z]\w*")
"""What is meant as a file: no sum of Pauli words ends so."""
GROWTH = added(
    click.option(
        "--grow", is_flag=True,
        help="Select determinants: from --determinants, or from the best of several starts.",
    ),
    click.option("--grow-to", type=COUNT, help="Determinants at most; selects as --grow does."),
    click.option(
        "--epsilon", type=THRESHOLDS,
        help="Falling thresholds of |H c| in Ha for --grow. Default: 0.01 and its halves, down to 6.25e-4.",
    ),
    click.option(
        "--epsilon-pt2", type=float,
        help="Smallest |H c| of the second-order correction, in Ha. Default: 1e-7.",
    ),
    click.option("--pt2/--no-pt2", default=True, help="Correct and extrapolate the energies of --grow."),
)  # fmt: skip


CRITERIA: dict[str, Change] = {
    "steps": {"type": click.IntRange(1)}, "vectors": {"type": click.IntRange(4)}, "energy": None,
    "orthogonality": None,
}  # fmt: skip
"""What the options differ in that say when a solve ends."""


@click.command()
@options_of(
    diagonalize,
    integrals=click.argument("integrals", type=FILE, metavar="FCIDUMP"),
    alpha={"type": FILE, "help": "Alpha strings, one a line."},
    beta={"type": FILE, "help": "Beta strings. Default: those of --alpha."},
    grow=GROWTH,
    roots={"type": click.IntRange(1)},
    criteria=options_of(Criteria, **CRITERIA),
    penalty=options_of(
        SpinPenalty,
        spin={"required": False, "help": "Raise states of other total spin than this, such as 0 or 0.5."},
        weight={"flags": ["--spin-weight"], "help": "Weight of the penalty of --spin, in Hartree."},
        power=None,
        every_state=None,
    ),
    start={"default": None, "help": "Start from the states of this .npz, an earlier result."},
    symmetry={"type": click.IntRange(0, 8)},
    rotation="Rotate the orbitals first: an .npy, or an .npz of --natural.",
    carry=options_of(
        CarryOver,
        prefix={
            "flags": ["--carryover"], "required": False,
            "help": "Write strings of most weight to PREFIX.*.txt.",
        },
        ratio={"flags": ["--carryover-ratio"]},
        missing={"flags": ["--carryover-missing"]},
    ),
)  # fmt: skip
@as_json
def sbd(integrals: Path, start: Path | None, as_json: bool, **options: Any) -> int:
    """Diagonalize a Hamiltonian among selected determinants.

    FCIDUMP holds the integrals. The space is all products of the alpha and beta strings, or a list of
    determinants, or a list that --grow selects. docs/explanation/sbd.md has the formats,
    docs/how-to/selected-ci.md explains --grow. mpirun -n P tnplan sbd spreads the states over P
    ranks. Exit status 1 where the solve does not converge: the best states so far are written, and the
    checkpoint stays.
    """
    criteria, growth, carry = _criteria(options), _growth(options), _carry_over(options)
    spin, weight = options.pop("spin"), options.pop("weight")
    penalty = SpinPenalty(spin or 0.0, weight)
    result = diagonalize(
        integrals, criteria=criteria, penalty=None if spin is None else penalty, grow=growth, carry=carry,
        start=start or (), progress=say_progress, **options,
    )  # fmt: skip
    output, natural = options["output"], options["natural"]
    written = _result_files(output)
    written += [] if output is None or growth is None else [determinants_file(output)]
    written += [] if natural is None else [natural, natural.with_suffix(".npz")]
    written += [] if carry is None else carry.files
    say_result(result.report, as_json, _lines(result.report), written)
    return _status(result.solution, criteria, output, options["checkpoint"])


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
    criteria=options_of(Criteria, **{**CRITERIA, "residual": "The largest residual norm of a root."}),
    start={"default": None, "help": "Start from the states of this .npz, an earlier result."},
)  # fmt: skip
@as_json
def sbd_qubits(hamiltonian: str, start: Path | None, as_json: bool, **options: Any) -> int:
    """Diagonalize a qubit Hamiltonian in a list of bit strings.

    HAMILTONIAN is a sum of Pauli words such as 'X0 X1 + 0.5*Z0', or a file of them: a term a line, or a JSON
    object of words. STRINGS is a file of bit strings, one a line, or of counts. It is the last step of
    sample-based Krylov quantum diagonalization; docs/how-to/skqd.md explains it. mpirun -n P tnplan
    sbd-qubits spreads the states over P ranks. Exit status 1 where the solve does not converge: the best
    states so far are written, and the checkpoint stays.
    """
    file = Path(hamiltonian)
    if not file.exists() and FILE_NAME.fullmatch(hamiltonian):
        raise InputError("HAMILTONIAN", f"{hamiltonian!r} is no file", "check the name, or write a Pauli sum")
    criteria, observables = _criteria(options), options.pop("observables")
    result = diagonalize_qubits(
        file if file.exists() else hamiltonian, criteria=criteria, observables=list(observables),
        start=start or (), progress=say_progress, **options,
    )  # fmt: skip
    lines = _qubit_lines(result.report, observables)
    say_result(result.report, as_json, lines, _result_files(options["output"]))
    return _status(result.solution, criteria, options["output"], options["checkpoint"])


commands = {"sbd": sbd, "sbd-qubits": sbd_qubits}


def _criteria(options: dict[str, Any]) -> Criteria:
    """When a solve ends, taken out of the options; refuses a residual that none reaches, or every one."""
    residual = options["residual"]
    if not 1e-12 <= residual < 1:
        raise InputError("--residual", f"is {residual:g}", "give a norm from 1e-12 to below 1")
    return taken(Criteria, options)


def _carry_over(options: dict[str, Any]) -> CarryOver | None:
    """The strings to write, taken out of the options."""
    prefix, ratio, missing = (options.pop(name) for name in ("prefix", "ratio", "missing"))
    if prefix is not None:
        return CarryOver(prefix, ratio, missing)
    if ratio is not None or missing is not None:
        raise InputError("--carryover", "is missing", "name the prefix of the files of strings")
    return None


def _growth(options: dict[str, Any]) -> Growth | None:
    """How a list grows, taken out of the options; None without --grow."""
    names = ("grow", "grow_to", "epsilon", "epsilon_pt2", "pt2")
    grow, most, epsilons, epsilon_pt2, has_pt2 = (options.pop(name) for name in names)
    if not has_pt2 and epsilon_pt2 is not None:
        raise InputError("--epsilon-pt2", "does not go with --no-pt2", "leave one of them out")
    if not grow and most is None:
        given = {"--epsilon": epsilons, "--epsilon-pt2": epsilon_pt2, "--no-pt2": None if has_pt2 else True}
        for name, value in given.items():
            if value is not None:
                raise InputError(name, "is given without --grow", "add --grow, or leave it out")
        return None
    threshold = Growth.epsilon_pt2 if epsilon_pt2 is None else epsilon_pt2
    return Growth(epsilons or (), most, threshold if has_pt2 else None)


def _result_files(output: Path | None) -> list[Path]:
    """The files of a result."""
    return [] if output is None else [output, output.with_suffix(".json")]


def _status(solution: Solution, criteria: Criteria, output: Path | None, checkpoint: bool) -> int:
    """The exit status of a solve; where it has not converged, the first rank says why and what to do."""
    if solution.converged:
        return 0
    largest, remedy = solution.residuals.max(), "allow more --steps"
    problem = f"residuals are above {criteria.residual:g}"
    # "not >" is true of NaN too. Small residuals without convergence: the solver's last test for missed
    # states is not done.
    if not largest > criteria.residual:
        problem = "residuals are small, but a test has not ended that looks for a lower state"
    elif solution.steps < criteria.steps:
        problem += f" and rounding errors keep them at {largest:.1e}"
        remedy = "give a larger --residual"
    else:
        problem += f" after {solution.steps} steps"
        if output is not None:
            remedy = "go on with --resume" if checkpoint else f"go on with --start {output}"
    say_once(f"tnplan: error: {problem}; {remedy}")
    return 1


def _lines(report: dict[str, Any]) -> Iterator[str]:
    columns = (report[name] for name in ("energies_hartree", "residuals", "spin_square", "symmetry"))
    rows = list(zip(*columns, strict=True))
    has_labels = any(irrep is not None for *_, irrep in rows)
    labels = f"{'irrep':>7}" if has_labels else ""
    yield f"{'root':>4}{'energy (Ha)':>20}{'residual':>12}{'S^2':>10}{labels}"
    for number, (energy, residual, square, irrep) in enumerate(rows):
        shown = "unknown" if square is None else f"{square:.5f}"
        yield f"{number:>4}{energy:>20.10f}{residual:>12.1e}{shown:>10}{irrep or '':>7}".rstrip()
    if "growth" in report:
        yield from _growth_lines(report["growth"])
    yield _work(report["measured"])


def _qubit_lines(report: dict[str, Any], observables: tuple[str, ...]) -> Iterator[str]:
    yield f"{'root':>4}{'energy':>20}{'residual':>12}"
    for number, (energy, residual) in enumerate(zip(report["energies"], report["residuals"], strict=True)):
        yield f"{number:>4}{energy:>20.10f}{residual:>12.1e}"
    for text, values in zip(observables, report["expectations"], strict=True):
        yield f"{text}: {' '.join(f'{value:.10f}' for value in values)}"
    yield _work(report["measured"])


def _work(measured: dict[str, Any]) -> str:
    """What a solve took, and how its states are known to be the lowest."""
    tests = f"{measured['test_multiplications']} more to test for lower states"
    if measured["whole_space"]:
        tests = "all of the space diagonalized"
    return (
        f"{plural(measured['steps'], 'step', 'steps')}, "
        f"{plural(measured['multiplications'], 'multiplication', 'multiplications')}, "
        f"{tests}, "
        f"{measured['setup_s']:.3g} s to prepare, {measured['solve_s']:.3g} s to solve"
    )


def _growth_lines(growth: dict[str, Any]) -> Iterator[str]:
    """The lists that were corrected, and what they extrapolate to."""
    ended = {"epsilon": "stable at the last epsilon"}
    yield f"the list ended: {ended.get(growth['ended'], 'limit of ' + growth['ended'])}"
    if growth["points"]:
        yield f"{'epsilon':>10}{'determinants':>14}{'energy (Ha)':>20}{'second order':>15}{'together':>16}"
    for point in growth["points"]:
        energy, correction = point["energies_hartree"][0], point["corrections_hartree"][0]
        yield (
            f"{point['epsilon']:>10.3g}{point['determinants']:>14}{energy:>20.10f}{correction:>15.8f}"
            f"{energy + correction:>16.8f}"
        )
    for root, fit in enumerate(growth["extrapolation"]):
        if fit is not None:
            error = fit["uncertainty_hartree"]
            sure = "an estimate; an uncertainty needs three thresholds"
            sure = sure if error is None else f"uncertain by {error:.1e}"
            yield f"root {root} extrapolated: {fit['energy_hartree']:.6f} Ha, {sure}"
        elif len(growth["points"]) > 1:
            yield f"root {root} not extrapolated: the line through these energies ends above the last of them"
