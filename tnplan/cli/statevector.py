"""`tnplan statevector`: a circuit in; counts, expectation values, amplitudes and probabilities out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tnplan.cli.options.common import FILE, QUBITS, set_parameters
from tnplan.cli.options.jobs import CHECKPOINTS, SAY_EVERY_S, ProgressLines, job_options
from tnplan.cli.terminal import say, say_json

SHOWN = 16


@click.command()
@click.argument("circuit", type=FILE, metavar="CIRCUIT")
@set_parameters
@click.option("--shots", type=int, help="Count the outcomes of so many runs.")
@click.option("--observable", metavar="SUM", help="Such as 'Z62' or '0.5*X0 X1 - Z3'.")
@click.option("--amplitudes", metavar="BITS,...", help="Amplitudes of bit strings; character k is qubit k.")
@click.option("--marginal", type=QUBITS, default=(), help="Probabilities of the values of these qubits.")
@click.option("--gradient", is_flag=True, help="Add the derivatives of the expectation value by all angles.")
@click.option(
    "--depolarizing", "depolarize", type=float, default=0.0, help="Probability of an error after each gate."
)
@click.option("--precision", type=click.Choice(["fp64", "fp32"]), default="fp64")
@click.option(
    "--mode", type=click.Choice(["compiled", "stages", "gates"]), default="compiled",
    help="How gates are grouped into passes over the state.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0), help="Makes outcomes the same in every run.")
@click.option("--start", type=FILE, help="Begin with this saved state.")
@click.option("--save", type=FILE, help="Keep the final state: .json, an .npy a rank.")
@job_options("Write the result as JSON.", without=CHECKPOINTS)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    circuit: Path, amplitudes: str | None, save: Path | None, output: Path | None, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Simulate a circuit with all its amplitudes.

    CIRCUIT is a qsim or OpenQASM file, which may measure, reset and branch anywhere. Where it does so before
    its end, or is noisy, it is run once a shot. What does not fit into memory is refused before it starts.
    Under mpirun, a power of two of ranks share the state. docs/explanation/statevector.md explains the rest.
    """
    from tnplan.calls.simulate import simulate
    from tnplan.executor.device.comm.launcher import launched_rank

    with ProgressLines(launched_rank() == 0, SAY_EVERY_S) as progress:
        done = simulate(
            circuit, amplitudes=() if amplitudes is None else amplitudes.split(","), save=save,
            output=output, progress=progress, **options,
        )  # fmt: skip
    if launched_rank() > 0:
        return
    if as_json:
        say_json(done.report)
        return
    _show(done.report)
    if output is not None:
        say(f"written: {output} (result)")
    if save is not None:
        say(f"written: {save} (state), {_parts(save, done.report['ranks'])} (its amplitudes)")


def _parts(save: Path, ranks: int) -> str:
    """The names of the amplitudes' files, or the first and the last."""
    from tnplan.executor.statevector.state_file import state_file

    first, last = state_file(save, 0), state_file(save, ranks - 1)
    return str(first) if ranks == 1 else f"{first} to {last.name}"


def _show(report: dict[str, Any]) -> None:
    from tnplan.common.units import count_text

    say(
        f"{count_text(report['n_qubits'], 'qubit', 'qubits')} in {report['dtype']}, "
        f"{count_text(report['operations'], 'operation', 'operations')} in "
        f"{count_text(report['passes'], 'pass', 'passes')} and "
        f"{count_text(report['exchanges'], 'exchange', 'exchanges')}, {report['time_s']:.3g} s; "
        f"sum of probabilities {report['norm']:.9f}"
    )
    if "expectation" in report:
        deviation = report["deviation"]
        more = "" if not deviation else f" +- {deviation:.2g}"
        say(f"expectation value {report['expectation']!r}{more}")
    for entry in report.get("gradient", ()):
        where = f"gate {entry['gate']} ({entry['name']}), angle {entry['parameter']}, {entry['angle']:.6g}"
        say(f"derivative at {where}: {entry['derivative']!r}")
    for bits, (real, imaginary) in report.get("amplitudes", {}).items():
        say(f"amplitude {bits}: {real:+.9e} {imaginary:+.9e}i")
    if "marginal" in report:
        width = len(report["marginal"]["qubits"])
        rows = [(f"{k:0{width}b}", p) for k, p in enumerate(report["marginal"]["probabilities"])]
        _table("probability", rows)
    if "counts" in report:
        _table("count", list(report["counts"].items()))


def _table(name: str, rows: list[tuple[str, Any]]) -> None:
    """The largest values."""
    for bits, value in sorted(rows, key=lambda row: -row[1])[:SHOWN]:
        say(f"{name} {bits}: {value:.9g}")
    if len(rows) > SHOWN:
        say(f"... and {len(rows) - SHOWN} more")
