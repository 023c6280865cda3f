"""`tnplan pauli`: a circuit and an observable in, the expectation value and the error bound out."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from executor.pauli.propagate import Progress

SAY_EVERY_S = 1.0


@click.command()
@click.argument("circuit", type=click.Path(path_type=Path), metavar="CIRCUIT")
@click.option("--observable", required=True, metavar="SUM", help="Such as 'Z62' or '0.5*X0 X1 - Z3'.")
@click.option("--state", metavar="BITS", help="0 or 1 for each qubit [default: all 0].")
@click.option("--branch-cut", type=float, default=0.0, help="Drop smaller contributions before merging.")
@click.option("--min-coefficient", type=float, default=0.0, help="Drop smaller terms after merging.")
@click.option("--max-weight", type=int, help="Drop terms on more qubits.")
@click.option("--max-xy", type=int, help="Drop terms with more letters X and Y.")
@click.option("--max-frequency", type=int, help="Drop terms that more rotations split.")
@click.option("--max-terms", type=int, help="Keep this many terms, those of largest magnitude.")
@click.option("--every", type=int, default=1, show_default=True, help="Steps between truncations.")
@click.option("--stop-above", type=int, help="Stop where more terms than this are left.")
@click.option("--depolarizing", type=float, default=0.0, help="Probability of an error after each gate.")
@click.option("--engine", type=click.Choice(["hash", "sort"]), default="hash", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the result as JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    circuit: Path,
    observable: str,
    state: str | None,
    branch_cut: float,
    min_coefficient: float,
    max_weight: int | None,
    max_xy: int | None,
    max_frequency: int | None,
    max_terms: int | None,
    every: int,
    stop_above: int | None,
    depolarizing: float,
    engine: str,
    output: Path | None,
    as_json: bool,
) -> None:
    """Propagate an observable backwards through a circuit, and print its expectation value.

    CIRCUIT is a qsim or OpenQASM file. Without a truncation the value is exact; with one, the sum of what was
    dropped bounds its error. docs/pauli.md explains the truncations.
    """
    from executor.pauli.truncation import Truncation
    from tnplan.propagation import propagate

    limits = Truncation(
        branch_cut=branch_cut, merged_cut=min_coefficient, max_weight=max_weight, max_xy=max_xy,
        max_frequency=max_frequency, max_terms=max_terms, every=every,
    )  # fmt: skip
    done = propagate(
        circuit, observable, limits, state=state, depolarize=depolarizing, stop_above=stop_above,
        engine=engine, output=output, progress=_Say(),
    )  # fmt: skip
    _show(done.report, output, as_json)


class _Say:
    """Prints where the propagation stands, once a second."""

    def __init__(self) -> None:
        self.said_s = perf_counter()

    def __call__(self, at: Progress) -> None:
        if perf_counter() - self.said_s >= SAY_EVERY_S:
            self.said_s = perf_counter()
            click.echo(
                f"step {at.step} of {at.steps}: {at.terms} terms, {at.size_bytes / 2**20:.0f} MiB", err=True
            )


def _show(report: dict[str, Any], output: Path | None, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report, indent=1))
        return
    dropped = report["dropped"]
    click.echo(f"expectation value {report['expectation']!r}, error at most {dropped['l1']:.3g}")
    click.echo(
        f"{report['terms']} terms at the end, {report['largest_terms']} at most, {dropped['terms']} dropped; "
        f"{report['steps']} steps in {report['time_s']:.3g} s"
    )
    if output is not None:
        click.echo(f"written: {output}")
