"""`tnplan statevector`: a circuit in; counts, expectation values, amplitudes and probabilities out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tnplan.calls.simulate import simulate
from tnplan.cli.from_signature import options_of
from tnplan.cli.option_types import BITS, FILE, QUBITS, as_json
from tnplan.cli.progress import SAY_EVERY_S, ProgressLines
from tnplan.cli.terminal import largest_rows, number_text, say_result
from tnplan.common.units import count_text


@click.command()
@options_of(
    simulate,
    observable={"type": str, "metavar": "SUM", "help": "Such as 'Z62' or '0.5*X0 X1 - Z3'."},
    amplitudes={"type": BITS},
    marginal={"type": QUBITS, "help": "Probabilities of the values of these qubits."},
    depolarize={"flags": ["--depolarizing"]},
    start={"type": FILE, "help": "Begin with this saved state."},
)
@as_json
def command(circuit: Path, as_json: bool, **options: Any) -> None:
    """Simulate a circuit with all its amplitudes.

    CIRCUIT is a qsim or OpenQASM file, which may measure, reset and branch anywhere. Where it does so before
    its end, or is noisy, it is run once a shot. What does not fit into memory is refused before it starts.
    Under mpirun, a power of two of ranks share the state. docs/explanation/statevector.md explains the rest.
    """
    with ProgressLines(SAY_EVERY_S) as progress:
        report = simulate(circuit, progress=progress, **options).report
    output, save = options["output"], options["save"]
    written = [] if output is None else [f"{output} (result)"]
    if save is not None:
        written.append(f"{save} (state), {_state_files(save, report['ranks'])} (its amplitudes)")
    say_result(report, as_json, _lines(report), written)


def _state_files(save: Path, ranks: int) -> str:
    """The names of the amplitudes' files, or the first and the last."""
    from tnplan.executor.statevector.state_file import state_file

    first, last = state_file(save, 0), state_file(save, ranks - 1)
    return str(first) if ranks == 1 else f"{first} to {last.name}"


def _lines(report: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{count_text(report['n_qubits'], 'qubit', 'qubits')} in {report['dtype']}, "
        f"{count_text(report['operations'], 'operation', 'operations')} in "
        f"{count_text(report['passes'], 'pass', 'passes')} and "
        f"{count_text(report['exchanges'], 'exchange', 'exchanges')}, {report['time_s']:.3g} s; "
        f"sum of probabilities {report['norm']:.9f}"
    )
    if "expectation" in report:
        deviation = report["deviation"]
        more = "" if not deviation else f" +- {deviation:.2g}"
        yield f"expectation value {report['expectation']!r}{more}"
    for entry in report.get("gradient", ()):
        where = f"gate {entry['gate']} ({entry['name']}), angle {entry['parameter']}, {entry['angle']:.6g}"
        yield f"derivative at {where}: {entry['derivative']!r}"
    for bits, (real, imaginary) in report.get("amplitudes", {}).items():
        yield f"amplitude {bits}: {number_text(complex(real, imaginary), '.9e')}"
    if "marginal" in report:
        width = len(report["marginal"]["qubits"])
        rows = [(f"{k:0{width}b}", p) for k, p in enumerate(report["marginal"]["probabilities"])]
        yield from largest_rows("probability", rows)
    if "counts" in report:
        yield from largest_rows("count", report["counts"].items())
