"""`tnplan sqd`: samples of a quantum computer and integrals in, a ground state and its energy out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tnplan.cli.options.common import FILE
from tnplan.cli.options.jobs import job_options
from tnplan.cli.terminal import say, say_json, say_written


@click.command()
@click.argument("counts", type=FILE, metavar="COUNTS")
@click.argument("fcidump", type=FILE, metavar="FCIDUMP")
@click.option("--samples-per-batch", type=int, required=True, help="Distinct configurations in a batch.")
@click.option("--num-batches", type=int, default=1, help="Batches in an iteration.")
@click.option("--max-iterations", type=int, default=100, help="Iterations at most.")
@click.option("--energy-tol", type=float, default=1e-8, help="End when the energy changes by less (Ha)")
@click.option("--occupancies-tol", type=float, default=1e-5, help="and all occupancies by less than this.")
@click.option("--symmetrize-spin", is_flag=True, help="Use the strings of both spins for each.")
@click.option("--max-dim", type=int, help="Strings of a spin at most.")
@click.option(
    "--carryover-threshold", type=float, default=1e-4, help="Carry over strings of larger amplitudes."
)
@click.option("--spin-sq", type=float, help="Raise states of other S^2 than this, such as 0 or 0.75.")
@click.option("--seed", type=int, help="Seed of all random numbers [default: another one each time].")
@click.option("--residual", type=float, default=1e-6, help="Residual norm of each diagonalization.")
@click.option("--steps", type=click.IntRange(1), default=100, help="Steps of a diagonalization at most.")
@click.option("--plot", type=FILE, metavar="FILE.svg", help="Draw the energies of all iterations.")
@job_options("An .npz of the state; its .json stands beside it.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    counts: Path,
    fcidump: Path,
    residual: float,
    steps: int,
    plot: Path | None,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Find the ground state from samples: sample-based quantum diagonalization.

    COUNTS are samples of both spins, alpha's bits on the right; FCIDUMP holds the integrals. Configurations
    are recovered, diagonalized in batches, and recovered again by the new occupancies, until the energy and
    the occupancies stand still. mpirun -n P tnplan sqd spreads the batches over P ranks.
    docs/how-to/sqd.md explains it. Needs qiskit-addon-sqd. Exit status 1 where the loop does not converge:
    the best state so far is written, and the checkpoint stays.
    """
    from tnplan.calls.sqd.run import run
    from tnplan.executor.device.comm.launcher import launched_rank
    from tnplan.executor.sbd.solver.davidson import Criteria

    result = run(
        counts, fcidump, criteria=Criteria(residual=residual, steps=steps), plot=plot, output=output,
        progress=lambda at: say(at.text, err=True), **options,
    )  # fmt: skip
    if launched_rank() == 0:
        written = [] if output is None else [output, output.with_suffix(".json")]
        _show(result.report, written + ([] if plot is None else [plot]), as_json)
        if not result.converged:
            say(f"tnplan: error: {_open_end(result.report, output is not None)}", err=True)
    return 0 if result.converged else 1


def _show(report: dict[str, Any], written: list[Path], as_json: bool) -> None:
    if as_json:
        say_json(report)
        return
    alpha, beta = report["dimensions"]
    iterations, measured = report["iterations"], report["measured"]
    ended = "converged after" if report["converged"] else "not converged in"
    say(f"energy {report['energy_hartree']:.10f} Ha among {alpha} x {beta} determinants")
    say(f"{ended} {len(iterations)} iterations, {measured['time_s']:.3g} s")
    say_written(written)


def _open_end(report: dict[str, Any], is_kept: bool) -> str:
    """What has not converged, and what to do."""
    iterations, options = report["iterations"], report["options"]
    energy, occupancies = (iterations[-1][name] for name in ("energy_change_hartree", "occupancies_change"))
    remedy = "go on with --resume and more --max-iterations" if is_kept else "allow more --max-iterations"
    if energy is None:
        return f"one iteration tells no change; {remedy}"
    return (
        f"in iteration {len(iterations)} the energy changes by {energy:.1e} Ha (--energy-tol "
        f"{options['energy_tol']:g}) and occupancies by {occupancies:.1e} (--occupancies-tol "
        f"{options['occupancies_tol']:g}); {remedy}"
    )
