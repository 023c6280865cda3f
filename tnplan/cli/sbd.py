"""`tnplan sbd`: integrals and half-strings in, the lowest states and their energies out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tnplan.calls.diagonalize import diagonalize
from tnplan.cli.options.common import COUNT, FILE, THRESHOLDS, added, as_json
from tnplan.cli.options.from_signature import Change, options_of, taken
from tnplan.cli.terminal import say, say_json, say_written
from tnplan.common.errors import InputError
from tnplan.common.units import plural
from tnplan.executor.device.comm.launcher import launched_rank
from tnplan.executor.sbd.selected_ci.growth import EPSILON_PT2, Growth
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.executor.sbd.solver.solve import SpinPenalty
from tnplan.jobs.outputs.diagonalization_result import CarryOver, determinants_file

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


def criteria_options(**changes: Change) -> Callable[[Any], Any]:
    """Add when a solve ends to a command."""
    limits: dict[str, Change] = {"steps": {"type": click.IntRange(1)}, "vectors": {"type": click.IntRange(4)}}
    return options_of(Criteria, **{**limits, "energy": None, "orthogonality": None, **changes})


@click.command()
@options_of(
    diagonalize,
    integrals=click.argument("integrals", type=FILE, metavar="FCIDUMP"),
    alpha={"type": FILE, "help": "Alpha strings, one a line."},
    beta={"type": FILE, "help": "Beta strings. Default: those of --alpha."},
    determinants="A list of determinants instead of products, one a line.",
    grow=GROWTH,
    roots={"type": click.IntRange(1)},
    criteria=criteria_options(),
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
def command(
    integrals: Path, spin: float | None, weight: float, prefix: Path | None, start: Path | None,
    as_json: bool, grow: bool, grow_to: int | None, epsilon: tuple[float, ...] | None,
    epsilon_pt2: float | None, pt2: bool, **options: Any,
) -> int:  # fmt: skip
    """Diagonalize a Hamiltonian among selected determinants.

    FCIDUMP holds the integrals. The space is all products of the alpha and beta strings, or a list of
    determinants, or a list that --grow selects. docs/explanation/sbd.md has the formats,
    docs/how-to/selected-ci.md explains --grow. mpirun -n P tnplan sbd spreads the states over P
    ranks. Exit status 1 where the solve does not converge: the best states so far are written, and the
    checkpoint stays.
    """
    criteria = checked_criteria(options)
    carry = _carry_over(prefix, options.pop("ratio"), options.pop("missing"))
    penalty = SpinPenalty(spin or 0.0, weight)
    growth = _growth(grow or grow_to is not None, grow_to, epsilon, epsilon_pt2, pt2)
    result = diagonalize(
        integrals, criteria=criteria, penalty=None if spin is None else penalty, grow=growth,
        start=start or (), carry=carry, progress=lambda at: say(at.text, err=True), **options,
    )  # fmt: skip
    output, natural = options["output"], options["natural"]
    if launched_rank() == 0:
        written = [] if output is None else [output, output.with_suffix(".json")]
        written += [] if output is None or growth is None else [determinants_file(output)]
        written += [] if natural is None else [natural, natural.with_suffix(".npz")]
        _show(result.report, written + ([] if carry is None else [*carry.files]), as_json)
    if not result.solution.converged:
        if launched_rank() == 0:
            solution, remedy = result.solution, _remedy(output, options["checkpoint"])
            residual = criteria.residual
            problem = f"residuals are above {residual:g} after {solution.steps} steps"
            # "not >" is true of NaN too. Small residuals without convergence: the solver's last
            # test for missed states is not done.
            if not solution.residuals.max() > residual:
                problem, remedy = UNTESTED, "allow more --steps"
            elif solution.steps < criteria.steps:
                problem = f"residuals are above {residual:g} and rounding errors keep them at "
                problem += f"{solution.residuals.max():.1e}"
                remedy = "give a larger --residual"
            say(f"tnplan: error: {problem}; {remedy}", err=True)
        return 1
    return 0


UNTESTED = "residuals are small, but a test has not ended that looks for a lower state"
"""What is wrong where residuals are small and a solve has still not converged."""


def checked_criteria(options: dict[str, Any]) -> Criteria:
    """When a solve ends, taken out of the options; refuses a residual that none reaches, or every one."""
    residual = options["residual"]
    if not 1e-12 <= residual < 1:
        raise InputError("--residual", f"is {residual:g}", "give a norm from 1e-12 to below 1")
    return taken(Criteria, options)


def _carry_over(prefix: Path | None, ratio: float | None, missing: float | None) -> CarryOver | None:
    if prefix is not None:
        return CarryOver(prefix, ratio, missing)
    if ratio is not None or missing is not None:
        raise InputError("--carryover", "is missing", "name the prefix of the files of strings")
    return None


def _growth(
    grows: bool, most: int | None, epsilons: tuple[float, ...] | None, epsilon_pt2: float | None, pt2: bool
) -> Growth | None:
    """What --grow is asked for; None without it."""
    if not pt2 and epsilon_pt2 is not None:
        raise InputError("--epsilon-pt2", "does not go with --no-pt2", "leave one of them out")
    if not grows:
        given = {"--epsilon": epsilons is None, "--epsilon-pt2": epsilon_pt2 is None, "--no-pt2": pt2}
        for name, is_missing in given.items():
            if not is_missing:
                raise InputError(name, "is given without --grow", "add --grow, or leave it out")
        return None
    threshold = EPSILON_PT2 if epsilon_pt2 is None else epsilon_pt2
    return Growth(epsilons or (), most, threshold if pt2 else None)


def _remedy(output: Path | None, checkpoint: bool) -> str:
    """What to do where a solve has not converged."""
    if output is None:
        return "allow more --steps"
    return "go on with --resume" if checkpoint else f"go on with --start {output}"


def _show(report: dict[str, Any], written: list[Path], as_json: bool) -> None:
    if as_json:
        say_json(report)
        return
    measured = report["measured"]
    columns = (report[name] for name in ("energies_hartree", "residuals", "spin_square", "symmetry"))
    rows = list(zip(*columns, strict=True))
    has_labels = any(irrep is not None for *_, irrep in rows)
    labels = f"{'irrep':>7}" if has_labels else ""
    say(f"{'root':>4}{'energy (Ha)':>20}{'residual':>12}{'S^2':>10}{labels}")
    for number, (energy, residual, square, irrep) in enumerate(rows):
        shown = "unknown" if square is None else f"{square:.5f}"
        say(f"{number:>4}{energy:>20.10f}{residual:>12.1e}{shown:>10}{irrep or '':>7}".rstrip())
    if "growth" in report:
        _show_growth(report["growth"])
    show_work(measured, written)


def show_work(measured: dict[str, Any], written: list[Path]) -> None:
    """What a solve took, and the files that it wrote."""
    say(
        f"{plural(measured['steps'], 'step', 'steps')}, "
        f"{plural(measured['multiplications'], 'multiplication', 'multiplications')}, "
        f"{_tests(measured)}, "
        f"{measured['setup_s']:.3g} s to prepare, {measured['solve_s']:.3g} s to solve"
    )
    say_written(written)


def _tests(measured: dict[str, Any]) -> str:
    """How states are known to be the lowest."""
    if measured["whole_space"]:
        return "all of the space diagonalized"
    return f"{measured['test_multiplications']} more to test for lower states"


def _show_growth(growth: dict[str, Any]) -> None:
    """The lists that were corrected, and what they extrapolate to."""
    ended = {"epsilon": "stable at the last epsilon"}
    say(f"the list ended: {ended.get(growth['ended'], 'limit of ' + growth['ended'])}")
    if growth["points"]:
        say(f"{'epsilon':>10}{'determinants':>14}{'energy (Ha)':>20}{'second order':>15}{'together':>16}")
    for point in growth["points"]:
        energy, correction = point["energies_hartree"][0], point["corrections_hartree"][0]
        say(
            f"{point['epsilon']:>10.3g}{point['determinants']:>14}{energy:>20.10f}{correction:>15.8f}"
            f"{energy + correction:>16.8f}"
        )
    for root, fit in enumerate(growth["extrapolation"]):
        if fit is not None:
            error = fit["uncertainty_hartree"]
            sure = "an estimate; an uncertainty needs three thresholds"
            sure = sure if error is None else f"uncertain by {error:.1e}"
            say(f"root {root} extrapolated: {fit['energy_hartree']:.6f} Ha, {sure}")
        elif len(growth["points"]) > 1:
            say(f"root {root} not extrapolated: the line through these energies ends above the last of them")
