"""The commands that diagonalize: a Hamiltonian and a basis, or samples, in; states and energies out."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import click

from tnplan.cli.from_signature import Call, Change, command, options_of, refuse_without, taken, taken_with
from tnplan.cli.option_types import COUNT, FILE, THRESHOLDS, added
from tnplan.cli.terminal import beside, say_once, say_progress, say_result
from tnplan.common.errors import InputError
from tnplan.executor.sbd.selected_ci.growth import Growth
from tnplan.executor.sbd.solver.davidson import Criteria, Solution
from tnplan.executor.sbd.solver.solve import SpinPenalty
from tnplan.jobs.diagonalization_result import CarryOver, list_files, natural_files

FILE_NAME = re.compile(r"[^*]*\.[A-Za-z]\w*")
"""What is meant as a file: no sum of Pauli words ends so."""
RESIDUAL = {"type": click.FloatRange(1e-12, 1, max_open=True)}
CRITERIA: dict[str, Change] = {
    "residual": RESIDUAL, "steps": {"type": click.IntRange(1)}, "vectors": {"type": click.IntRange(4)},
    "energy": None, "orthogonality": None,
}  # fmt: skip
"""What the options differ in that say when a solve ends."""
START: Change = {"default": None, "help": "Start from the states of this .npz, an earlier result."}


def grow_options(things: str, start: str, unit: str, **own: Change) -> Callable[[Any], Any]:
    """The options of a list that grows: of determinants, or of strings."""
    return added(
        click.option("--grow", is_flag=True, help=f"Select {things}: {start}."),
        click.option(
            "--grow-to", type=COUNT, help=f"The largest number of {things}; selects as --grow does."
        ),
        options_of(
            Growth,
            epsilons={
                "flags": ["--epsilon"], "type": THRESHOLDS, "default": None,
                "help": f"Falling thresholds of |H c|{unit} for --grow. Default: 0.01 and its halves, down "
                "to 6.25e-4.",
            },
            epsilon_pt2=f"Smallest |H c| of the second-order correction{unit and ', in Ha'}.",
            **dict.fromkeys((
                "determinants", "stable", "surplus", "flips", "optimize_orbitals", "pt2_error",
            )) | own,
        ),
        click.option("--pt2/--no-pt2", default=True, help="Correct and extrapolate the energies of --grow."),
    )  # fmt: skip


@command(
    "diagonalize.diagonalize",
    integrals=click.argument("integrals", type=FILE, metavar="FCIDUMP"),
    alpha={"type": FILE, "help": "Alpha strings, one per line, or all."},
    beta={"type": FILE, "help": "Beta strings, or all. Default: those of --alpha."},
    grow=grow_options(
        "determinants", "from --determinants, or from the best of several starts", " in Ha",
        flips="Select a determinant together with its spin flip.",
        pt2_error="Sample small terms of the correction until its standard error is this, in Ha.",
        optimize_orbitals={
            "type": COUNT, "default": None, "show_default": False,
            "help": "First rotate the orbitals to the least energy, in lists of up to this many "
            "determinants.",
        },
    ),
    criteria=options_of(Criteria, **CRITERIA),
    penalty=options_of(
        SpinPenalty,
        spin={"required": False, "help": "Raise the energy of states whose total spin is not this, such "
        "as 0 or 0.5."},
        weight={"flags": ["--spin-weight"], "help": "Weight of the penalty of --spin, in Hartree."},
        power=None,
        every_state=None,
    ),
    start=START,
    symmetry={"type": click.IntRange(0, 8)},
    rotation="Rotate the orbitals first: an .npy, or an .npz of --natural or --optimize-orbitals. "
    "adapted: to symmetry-adapted orbitals with labels, made from the integrals.",
    carry=options_of(
        CarryOver,
        prefix={
            "flags": ["--carryover"], "required": False,
            "help": "Write the strings of largest weight to PREFIX.*.txt.",
        },
        ratio={"flags": ["--carryover-ratio"]},
        missing={"flags": ["--carryover-missing"]},
    ),
)  # fmt: skip
def sbd(call: Call, integrals: Path, start: Path | None, as_json: bool, **options: Any) -> int:
    """FCIDUMP holds the integrals. The space is all products of the alpha and beta strings, or a list of
    determinants, or a list that --grow selects. docs/explanation/sbd.md has the formats,
    docs/how-to/selected-ci.md explains --grow. mpirun -n P tnplan sbd spreads the states over P
    ranks. Exit status 1 where the solve does not converge: the best states so far are written, and the
    checkpoint stays.
    """
    criteria, grow = taken(Criteria, options), _growth(options)
    penalty = taken_with("spin", SpinPenalty, options)
    carry = taken_with("prefix", CarryOver, options)
    result = call(
        integrals, criteria=criteria, penalty=penalty, grow=grow, carry=carry, start=start or (),
        progress=say_progress, **options,
    )  # fmt: skip
    output, natural = options["output"], options["natural"]
    written = beside(output)
    written += list_files(output, grow)
    written += [] if natural is None else natural_files(natural)
    written += [] if carry is None else carry.files
    say_result(result.report, as_json, [result], written)
    return _status(result.solution, criteria, output, options["checkpoint"])


@command(
    "diagonalize_qubits.diagonalize_qubits",
    hamiltonian=click.argument("hamiltonian", metavar="HAMILTONIAN"),
    strings=click.argument("strings", type=FILE, metavar="STRINGS"),
    observables={
        "flags": ["--observable"], "type": str, "multiple": True, "metavar": "SUM",
        "help": "Another operator to measure in the states.",
    },
    grow=grow_options("strings", "from STRINGS on, by the Hamiltonian's elements", ""),
    criteria=options_of(
        Criteria, **(CRITERIA | {"residual": RESIDUAL | {"help": "The largest residual norm of a root."}})
    ),
    start=START,
)  # fmt: skip
def sbd_qubits(call: Call, hamiltonian: str, start: Path | None, as_json: bool, **options: Any) -> int:
    """HAMILTONIAN is a sum of Pauli words such as 'X0 X1 + 0.5*Z0', or a file of them, one per line, or a
    JSON object of words. STRINGS is a file of bit strings, one per line, or of counts. It is the last step of
    sample-based Krylov quantum diagonalization; docs/how-to/skqd.md explains it. mpirun -n P tnplan
    sbd-qubits spreads the states over P ranks. Exit status 1 where the solve does not converge: the best
    states so far are written, and the checkpoint stays.
    """
    file = Path(hamiltonian)
    if not file.exists() and FILE_NAME.fullmatch(hamiltonian):
        raise InputError(
            "HAMILTONIAN", f"{hamiltonian!r} is not a file", "check the name, or write a Pauli sum"
        )
    criteria, observables = taken(Criteria, options), options.pop("observables")
    grow = _growth(options)
    result = call(
        file if file.exists() else hamiltonian, criteria=criteria, observables=list(observables), grow=grow,
        start=start or (), progress=say_progress, **options,
    )  # fmt: skip
    measured = (
        f"{text}: {' '.join(f'{value:.10f}' for value in values)}"
        for text, values in zip(observables, result.expectations, strict=True)
    )
    say_result(result.report, as_json, chain([result], measured), beside(options["output"]))
    return _status(result.solution, criteria, options["output"], options["checkpoint"])


@command(
    "sqd_loop.run",
    counts=click.argument("counts", type=FILE, metavar="COUNTS"),
    integrals=click.argument("integrals", type=FILE, metavar="FCIDUMP"),
    spin_sq="Raise the energy of states whose S^2 is not this, such as 0 or 0.75.",
    criteria=options_of(
        Criteria,
        **CRITERIA
        | {
            "residual": {},
            "vectors": None,
            "steps": {"type": click.IntRange(1), "help": "The largest number of steps of a diagonalization."},
        },
    ),
)
def sqd(call: Call, counts: Path, integrals: Path, as_json: bool, **options: Any) -> int:
    """The method is sample-based quantum diagonalization. COUNTS are samples of both spins, alpha's bits on
    the right; FCIDUMP holds the integrals. Configurations are recovered, diagonalized in batches, and
    recovered again by the new occupancies, until the energy and the occupancies no longer change. mpirun -n P
    tnplan sqd spreads the batches over P ranks. docs/how-to/sqd.md explains it. Needs qiskit-addon-sqd. Exit
    status 1 where the loop does not converge: the best state so far is written, and the checkpoint stays.
    """
    result = call(counts, integrals, criteria=taken(Criteria, options), progress=say_progress, **options)
    output, report = options["output"], result.report
    say_result(report, as_json, [result], [*beside(output), options["plot"]])
    if not result.converged:
        say_once(f"tnplan: error: {_open_end(report, output is not None)}")
    return 0 if result.converged else 1


def _open_end(report: dict[str, Any], is_written: bool) -> str:
    """What has not converged, and what to do."""
    iterations, options = report["iterations"], report["options"]
    energy, occupancies = (iterations[-1][name] for name in ("energy_change_hartree", "occupancies_change"))
    remedy = "go on with --resume and more --max-iterations" if is_written else "allow more --max-iterations"
    if energy is None:
        return f"one iteration tells no change; {remedy}"
    return (
        f"in iteration {len(iterations)} the energy changes by {energy:.1e} Ha (--energy-tol "
        f"{options['energy_tol']:g}) and occupancies by {occupancies:.1e} (--occupancies-tol "
        f"{options['occupancies_tol']:g}); {remedy}"
    )


def _growth(options: dict[str, Any]) -> Growth | None:
    """How a list grows, taken out of the options; None without --grow."""
    names = ("grow", "grow_to", "epsilons", "epsilon_pt2", "pt2")
    own = [name for name in ("flips", "optimize_orbitals", "pt2_error") if name in options]
    grow, most, epsilons, epsilon_pt2, has_pt2 = map(options.pop, names)
    given = {name: options.pop(name) for name in own}
    if not grow and most is None:
        refuse_without("grow", *names, *own)
        return None
    if not has_pt2:
        refuse_without("pt2", "epsilon_pt2")
    least_term = epsilon_pt2 if has_pt2 else None
    chosen = {name: value for name, value in given.items() if value is not None}
    return Growth(epsilons or (), most, least_term, **chosen)


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
