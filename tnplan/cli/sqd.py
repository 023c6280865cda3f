"""`tnplan sqd`: samples of a quantum computer and integrals in, a ground state and its energy out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tnplan.calls.sqd_loop import run
from tnplan.cli.from_signature import options_of, taken
from tnplan.cli.option_types import FILE, as_json
from tnplan.cli.terminal import say_once, say_progress, say_result
from tnplan.executor.sbd.solver.davidson import Criteria


@click.command()
@options_of(
    run,
    counts=click.argument("counts", type=FILE, metavar="COUNTS"),
    integrals=click.argument("integrals", type=FILE, metavar="FCIDUMP"),
    spin_sq="Raise states of other S^2 than this, such as 0 or 0.75.",
    criteria=options_of(
        Criteria,
        steps={"type": click.IntRange(1), "help": "Steps of a diagonalization at most."},
        energy=None,
        vectors=None,
        orthogonality=None,
    ),
    plot={"metavar": "FILE.svg"},
)
@as_json
def command(counts: Path, integrals: Path, as_json: bool, **options: Any) -> int:
    """Find the ground state from samples: sample-based quantum diagonalization.

    COUNTS are samples of both spins, alpha's bits on the right; FCIDUMP holds the integrals. Configurations
    are recovered, diagonalized in batches, and recovered again by the new occupancies, until the energy and
    the occupancies stand still. mpirun -n P tnplan sqd spreads the batches over P ranks.
    docs/how-to/sqd.md explains it. Needs qiskit-addon-sqd. Exit status 1 where the loop does not converge:
    the best state so far is written, and the checkpoint stays.
    """
    result = run(counts, integrals, criteria=taken(Criteria, options), progress=say_progress, **options)
    output, report = options["output"], result.report
    written = [] if output is None else [output, output.with_suffix(".json")]
    say_result(report, as_json, _lines(report), [*written, options["plot"]])
    if not result.converged:
        say_once(f"tnplan: error: {_open_end(report, output is not None)}")
    return 0 if result.converged else 1


def _lines(report: dict[str, Any]) -> Iterator[str]:
    alpha, beta = report["dimensions"]
    yield f"energy {report['energy_hartree']:.10f} Ha among {alpha} x {beta} determinants"
    ended = "converged after" if report["converged"] else "not converged in"
    yield f"{ended} {len(report['iterations'])} iterations, {report['measured']['time_s']:.3g} s"


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
