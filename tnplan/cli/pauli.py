"""`tnplan pauli`: a circuit and an observable in, the expectation value and its error out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tnplan.calls.propagate import propagate
from tnplan.cli.from_signature import options_of
from tnplan.cli.option_types import added, as_json
from tnplan.cli.pauli_options import (
    propagation_of,
    repetition_options,
    state_options,
    truncation_options,
)
from tnplan.cli.progress import SAY_EVERY_S, ProgressLines
from tnplan.cli.terminal import say_once, say_result
from tnplan.common.errors import InputError
from tnplan.common.units import plural


@click.command()
@options_of(
    propagate,
    observable=click.option(
        "--observable", "observables", required=True, multiple=True, metavar="SUM",
        help="Such as 'Z62' or '0.5*X0 X1 - Z3'; several with --each-term.",
    ),
    truncation=truncation_options,
    state=state_options,
    overlap={"type": str, "metavar": "SUM", "help": "tr(B U^dagger O U) / 2^n with this sum B: no state."},
    depolarize={"flags": ["--depolarizing"]},
    picture="Take the observable backwards, or the state forward.",
    monte_carlo=added(
        repetition_options, click.option("--seed", type=int, default=0, help="Seed of the repetitions.")
    ),
    keep=None,
)  # fmt: skip
@click.option("--allow-empty", is_flag=True, help="Succeed also where everything was cut.")
@as_json
@click.pass_context
def command(
    context: click.Context, circuit: Path, observables: tuple[str, ...], as_json: bool, allow_empty: bool,
    seed: int, **options: Any,
) -> None:  # fmt: skip
    """Propagate an observable backwards through a circuit, and print its expectation value.

    CIRCUIT is a qsim or OpenQASM file. Without a truncation the value is exact; with one, the sum of what was
    dropped bounds its error; with repetitions it has a standard error.
    docs/explanation/pauli.md explains the options. mpirun -n P spreads the terms over P ranks, a power of
    two, or the repetitions.

    The exit status is 1 where everything was cut.
    """
    if options["repetitions"] is None and (seed or options["by"] != "magnitude"):
        raise InputError("--seed and --resample-by", "are of repetitions", "give --repetitions")
    arguments = propagation_of({**options, "seed": seed})
    del arguments["seed"]
    observable = list(observables) if len(observables) > 1 else observables[0]
    with ProgressLines(SAY_EVERY_S) as progress:
        report = propagate(circuit, observable, keep="none", progress=progress, **arguments).report
    say_result(report, as_json, _lines(report), [options["output"], options["record"]])
    # A value of 0 from no terms would look like an answer to a script.
    if report["empty"] and not allow_empty:
        what = "every repetition gave 0" if "estimate" in report else "everything was cut"
        say_once(f"error: {what}, so that the value says nothing; allow more terms")
        context.exit(1)


def _lines(report: dict[str, Any]) -> Iterator[str]:
    yield from (_estimate if "estimate" in report else _value)(report)
    for entry in report.get("values", ()):
        yield f"value of {entry['word']}: {entry['value']!r}"
    for number, entry in enumerate(report.get("observables", ())):
        yield f"value of observable {number}: {entry['value']!r}"
    for entry in report.get("gradient", ()):
        where = f"gate {entry['gate']}, {entry['rotation']}, angle {entry['angle']:.6g}"
        yield f"derivative at {where}: {entry['derivative']!r}"


def _value(report: dict[str, Any]) -> Iterator[str]:
    """The value with its bound and its estimate, and what the terms did."""
    bound, estimate, dropped = report["error_bound"], report["error_estimate"], report["dropped"]["terms"]
    error = "no bound of the error" if bound is None else f"error at most {bound:.3g}"
    vacuous = " (vacuous: no possible value is farther away)" if report["error_bound_is_vacuous"] else ""
    yield f"expectation value {report['expectation']!r}, {error}{vacuous}"
    if estimate["value"] and estimate["kind"] != "exact":
        yield f"estimated error {estimate['value']:.3g} ({estimate['kind']})"
    yield (
        f"{plural(report['terms'], 'term', 'terms')} at the end, {report['largest_terms']} at most, "
        f"{'over 1e308' if dropped is None else dropped} dropped; "
        f"{plural(report['steps'], 'step', 'steps')} in {report['time_s']:.3g} s"
    )
    if report["memory_full"]:
        yield f"the memory was full {report['memory_full']} times: the largest terms were kept"


def _estimate(report: dict[str, Any]) -> Iterator[str]:
    """The mean of repetitions, with its interval if it has one."""
    from tnplan.executor.pauli.estimate import Estimate

    estimate = report["estimate"]
    if estimate["kind"] == "exact":
        yield f"expectation value {report['expectation']!r}, exact: no term was resampled"
    else:
        value, error, interval, digits = estimate["value"], estimate["standard_error"], "", 6
        if error and math.isfinite(error):
            # So many digits that the standard error shows in the value: log10(|value| / error), and
            # three more.
            digits = max(6, min(17, 3 + math.ceil(math.log10(max(abs(value) / error, 1)))))
        if estimate["low"] is not None:
            interval = f", 95 % interval {estimate['low']:.{digits}g} to {estimate['high']:.{digits}g}"
        text = Estimate(**estimate).text
        yield f"expectation value {value:.{digits}g}, standard error {error:.2g}{interval} ({text})"
    yield (
        f"{plural(report['repetitions'], 'repetition', 'repetitions')} of at most "
        f"{plural(report['largest_terms'], 'term', 'terms')} in "
        f"{report['time_s']:.3g} s"
    )
