"""The commands of questions about a circuit; what each method would need; and of graphs and formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import click
import numpy as np

from tnplan.cli.from_signature import (
    Call,
    Change,
    command,
    command_with,
    commands,
    options_of,
    refuse_without,
)
from tnplan.cli.option_types import (
    BITS,
    DEVICES,
    FILE,
    QUBITS,
    STOPS,
    as_json,
    circuit_argument,
    set_parameters,
)
from tnplan.cli.pauli import propagation_of, repetition_options, state_options, truncation_options
from tnplan.cli.terminal import ProgressLines, say_result
from tnplan.common.shown_text import first_rows, largest_rows, number_text
from tnplan.executor.pauli.estimate import Estimate
from tnplan.jobs.compressed_state import fidelity_text
from tnplan.jobs.job_options import ResumableKeywords
from tnplan.questions.answer import CircuitAnswer
from tnplan.questions.ask import told_by_first, watched_ranks
from tnplan.questions.circuit import Circuit
from tnplan.questions.combinatorial.problems import PROBLEMS
from tnplan.questions.options import QuestionOptions

EXACT: dict[str, Change] = {
    "state": state_options, "truncation": None, "monte_carlo": None, "checkpoint": None, "resume": None,
    "output": "A JSON file for the answer.",
}  # fmt: skip
"""What the options of a question differ in that has neither truncation nor checkpoint."""
TRUNCATED: dict[str, Change] = {**EXACT, "truncation": truncation_options}
REPEATED: dict[str, Change] = {**TRUNCATED, "monte_carlo": repetition_options}
METHODS = "CIRCUIT is a qsim or OpenQASM file. docs/how-to/methods.md explains the methods."

Options = dict[str, Any]
Lines = Callable[[CircuitAnswer, Options], Iterable[str]]


def question(
    call: Callable[..., CircuitAnswer], job: dict[str, Change] = EXACT, *more: Callable[[Any], Any],
    arguments_of: Callable[[Options], Options] = dict, **changes: Change,
) -> Callable[[Lines], None]:  # fmt: skip
    """Add the command of a question; the function that is decorated has its help, and shows an answer.

    `job` is what the options of every question differ in, `changes` those of this one, which has `more` of
    its own. `arguments_of` makes the arguments of the call of them.
    """

    def decorate(lines: Lines) -> None:
        def answered(
            circuit: Path, parameters: dict[str, str], as_json: bool, timeout: float, output: Path | None,
            **options: Any,
        ) -> None:  # fmt: skip
            arguments = arguments_of({**propagation_of(options), "timeout": timeout, "output": output})
            with watched_ranks(timeout), ProgressLines() as progress:
                # Invariant: rank 0 reads the circuit for all ranks, inside the watch, as reading may fail.
                read = told_by_first(lambda: Circuit(circuit, parameters))
                answer = call(read, progress=progress, **arguments)
            files = [] if output is None else [f"{output} (answer)"]
            shown = chain(lines(answer, options), _summary(answer))
            say_result(answer.document if as_json else None, as_json, shown, files)

        text = " ".join(filter(None, (lines.__doc__, METHODS)))
        every = (
            circuit_argument, options_of(call, **changes), *more, set_parameters,
            options_of(QuestionOptions, **job), as_json,
        )  # fmt: skip
        commands[call.__name__.replace("_", "-")] = lambda summary: command_with(
            every, answered, summary, text
        )

    return decorate


def _summary(answer: CircuitAnswer) -> Iterator[str]:
    """What errors mean, and how the answer was found."""
    for number, estimate in enumerate(answer.details.get("estimates", ())):
        if estimate["low"] is None or estimate["doubt"]:
            yield f"value {number}: {Estimate(**estimate).text}"
    if "bits" in answer.details:
        yield fidelity_text(answer.details)
    if "approximate" in answer.details:
        yield f"{answer.details['approximate']}; ended by: {answer.details['ended_by']}"
    yield f"{answer.error_kind}, by {answer.method} in {answer.time_s:.3g} s"


def _number(value: complex, error: float | None = None) -> str:
    """A number with its error."""
    if isinstance(value, complex):
        text = number_text(value, ".12g") if value.imag else repr(value.real)
    else:
        text = repr(float(value))
    return text if not error else f"{text} +- {error:.2g}"


def _bits(width: int) -> list[str]:
    """The bit strings of so many qubits, in rising order."""
    return [f"{k:0{width}b}" for k in range(1 << width)]


def _strings(options: Options) -> Options:
    """The bit strings of amplitudes: those of the command line, or their file."""
    file, strings = options.pop("file"), options["bitstrings"]
    if file is not None and strings is not None:
        raise click.UsageError("--file is given together with --bitstrings; give one of them")
    if strings is not None and options["open_qubits"] is not None:
        strings = ",".join(strings)
    return {**options, "bitstrings": strings or file}


@question(
    Circuit.amplitudes, EXACT,
    click.option("--file", type=FILE, help="Bit strings, one per line, or an array [string, qubit] in .npy."),
    arguments_of=_strings,
    bitstrings={"type": BITS, "help": "0 or 1 for each qubit; character k is qubit k."},
    open_qubits={
        "flags": ["--open"], "type": QUBITS,
        "help": "All values of these qubits; --bitstrings is one string then, with . for them. Default: 0 "
        "for the others.",
    },
)  # fmt: skip
def _amplitudes(answer: CircuitAnswer, options: Options) -> Iterator[str]:
    values = answer.value.reshape(-1).tolist()
    keys = _bits(answer.value.ndim)
    if options["file"] is not None:
        keys = list(map(str, range(len(values))))
    elif options["open_qubits"] is None and options["bitstrings"] is not None:
        keys = options["bitstrings"]
    texts = (number_text(value, ".9e") for value in values)
    return first_rows("amplitude", zip(keys, texts, strict=True))


@question(Circuit.sample)
def _sample(answer: CircuitAnswer, options: Options) -> Iterator[str]:
    """The counts of the most frequent outcomes are printed. An outcome has the classical bits, or the qubits
    where none of them is measured. The circuit may measure, reset and branch anywhere.
    """
    yield from largest_rows("count", answer.value.items(), "d")
    details = answer.details
    if "predicted_xeb" in details:
        likeliest = f", the likeliest of {details['best_of']}" if details["best_of"] > 1 else ""
        xeb = _number(details["predicted_xeb"], details["predicted_xeb_error"])
        yield (
            f"predicted XEB: {xeb} (an estimate); "
            f"{details['samples']} samples{likeliest}, {details['share_of_slices']:.3g} of the slices"
        )
    if "linear_xeb" in details:
        yield f"linear XEB: {_number(details['linear_xeb'], details['linear_xeb_error'])}"


def _observables(options: Options) -> Options:
    """The observables: those of the command line, or their file; and the parameters of derivatives."""
    file, names, gradient = (options.pop(name) for name in ("file", "wrt", "gradient"))
    if bool(options["observables"]) == (file is not None):
        raise click.UsageError("give --observable, or a --file of observables")
    return {**options, "observables": file or list(options["observables"]), "gradient": names or gradient}


@question(
    Circuit.expectation, {**REPEATED, "checkpoint": {}, "resume": {}},
    click.option("--wrt", multiple=True, metavar="NAME", help="Add the derivative with respect to this "
    "parameter; may be given several times."),
    click.option("--file", type=FILE, help="Observables, one per line, or a JSON list."),
    arguments_of=_observables,
    observables={
        "flags": ["--observable"], "type": str, "multiple": True, "required": False, "metavar": "SUM",
        "help": "Such as 'Z62' or '0.5*X0 X1 - Z3'.",
    },
    gradient=click.option(
        "--gradient", is_flag=True, help="Add the derivatives by all parameters that --set gives."
    ),
    after={
        "type": STOPS,
        "help": "The values after these numbers of operations. 'barriers': before each barrier and at the "
        "end.",
    },
)  # fmt: skip
def _expectation(answer: CircuitAnswer, options: Options) -> Iterator[str]:
    errors = np.broadcast_to(answer.error, answer.value.shape)
    values = list(map(_number, answer.value.ravel().tolist(), errors.ravel().tolist()))
    keys = [f"of {text}" for text in options["observables"]] or list(map(str, range(answer.value.shape[-1])))
    if "after" in answer.details:
        keys = [f"{key} after {number}" for number in answer.details["after"] for key in keys]
    yield from first_rows("expectation value", zip(keys, values, strict=True))
    for name, column in (answer.gradient or {}).items():
        yield from first_rows(f"derivative by {name}", zip(keys, map(_number, column.tolist()), strict=True))


@question(Circuit.probabilities, TRUNCATED, qubits={"type": QUBITS})
def _probabilities(answer: CircuitAnswer, options: Options) -> Iterator[str]:
    """The largest are printed."""
    values = answer.value.reshape(-1).tolist()
    return largest_rows("probability", zip(_bits(answer.value.ndim), values, strict=True))


@question(Circuit.reduced_density_matrix, TRUNCATED, qubits={"type": QUBITS})
def _reduced_density_matrix(answer: CircuitAnswer, options: Options) -> Iterator[str]:
    """The largest elements are printed. The first qubit is the most significant bit of rows and columns."""
    bits = _bits(len(options["qubits"]))
    keys = (f"{row} {column}" for row in bits for column in bits)
    return largest_rows("element", zip(keys, answer.value.reshape(-1).tolist(), strict=True))


@question(Circuit.overlap, other=click.argument("other", type=FILE, metavar="OTHER"))
def _overlap(answer: CircuitAnswer, options: Options) -> Iterator[str]:
    """The overlap is <OTHER|CIRCUIT>. OTHER is a file too; --set gives values to the first."""
    yield f"overlap: {_number(answer.value)}"


@question(
    Circuit.trace, REPEATED,
    a={"type": str, "metavar": "SUM", "help": "The operator A, such as 'Z62'."},
    b={"type": str, "metavar": "SUM", "help": "The operator B."},
)  # fmt: skip
def _trace(answer: CircuitAnswer, options: Options) -> Iterator[str]:
    """The trace is Tr(A U^dagger B U) / 2^n, U being the circuit on n qubits; with --state its value there.
    Operator Loschmidt echoes and out-of-time-order correlators are such traces.
    """
    yield f"trace: {_number(answer.value, answer.error)}"


ESTIMATE = (
    circuit_argument,
    set_parameters,
    click.option("--amplitudes", type=BITS, help="Amplitudes of bit strings."),
    click.option("--open", "open_qubits", type=QUBITS, help="Amplitudes of all values of these qubits."),
    click.option("--sample", type=int, metavar="SHOTS", help="Outcomes."),
    options_of(
        Circuit.sample,
        shots=None,
        open_qubits=click.option(
            "--open-qubits", "n_open", type=int, default=0,
            help="For rejection: the number of qubits of each candidate that take all their values.",
        ),
    ),
    click.option("--expectation", multiple=True, metavar="SUM", help="The expectation value of this sum; "
    "may be given several times."),
    click.option("--gradient", is_flag=True, help="Also the derivatives by all parameters."),
    click.option("--after", type=STOPS, help="The values after these numbers of operations, or 'barriers'."),
    click.option("--probabilities", type=QUBITS, help="Probabilities of the values of some qubits."),
    click.option("--reduced-density-matrix", type=QUBITS, help="The density matrix of some qubits."),
    click.option("--overlap", type=FILE, metavar="OTHER", help="The overlap with another circuit."),
    click.option("--trace", nargs=2, metavar="A B", help="The trace of two operators."),
    options_of(Circuit.estimate, devices={"type": DEVICES, "default": "1"}),
    # An estimate runs nothing.
    options_of(
        QuestionOptions,
        **REPEATED | dict.fromkeys({"method", "seed", *ResumableKeywords.__annotations__} - {"threads"}),
    ),
    as_json,
)  # fmt: skip


def estimate(circuit: Path, parameters: dict[str, str], as_json: bool, **options: Any) -> None:
    """The best one is named, and the one that auto takes.

    Give exactly one of the questions. CIRCUIT is a qsim or OpenQASM file. Contraction and the state vector
    are predicted from the profile, Pauli propagation from a short pilot run: see
    docs/how-to/large-circuits.md.
    """
    options["expectation"] = list(options["expectation"]) or None
    sampling = {name: options.pop(name) for name in ("sampling", "n_open", "fidelity", "xeb")}
    if options["sample"] is None:
        refuse_without("sample", *sampling)
    else:
        options |= {"open_qubits": sampling.pop("n_open"), **sampling}
    result = Circuit(circuit, parameters).estimate(
        **{name: value for name, value in propagation_of(options).items() if value is not None}
    )
    say_result(result.document, as_json, [result])


commands["estimate"] = lambda summary: command_with(ESTIMATE, estimate, summary, estimate.__doc__ or "")

CONFIGURATIONS: dict[str, Change] = {
    "problem": click.argument("problem", type=click.Choice(list(PROBLEMS)), metavar="PROBLEM"),
    "instance": click.argument("instance", metavar="INSTANCE"),
    "colours": {"type": click.IntRange(1)},
}
"""What the options of graphs and formulas differ in."""


@command("count.count", **CONFIGURATIONS, weights={
    "is_flag": True, "flag_value": True,
    "help": "Add the products of weights in place of 1 for each configuration: those of vertices in an "
    "independent set, of edges in a matching, or of literals that hold, from lines 'c p weight LITERAL "
    "WEIGHT 0' of a CNF file.",
})  # fmt: skip
def count(call: Call, as_json: bool, **options: Any) -> None:
    """PROBLEM is independent-sets, matchings, dimers (perfect matchings), colourings, ising or sat. INSTANCE
    is a DIMACS file of a graph or a formula, a file with one edge 'U V' or 'U V WEIGHT' per line, or a
    lattice such as 'grid 8x8', 'king 10x10' or 'torus 4x4x4'. The number is exact, whatever its size, and so
    is a sum of weights: they are taken as the decimal numbers that are written.
    """
    _say_configurations(call, as_json, options)


@command("count.optimize", **CONFIGURATIONS)
def optimize(call: Call, as_json: bool, **options: Any) -> None:
    """PROBLEM and INSTANCE are those of 'tnplan count'. What is made largest is the weight of sets of
    vertices and edges, and the number of clauses that hold, or in a WCNF file their weight. What is made
    least is the energy of spins, and the number of edges whose ends have the same colour. The configuration
    that is shown is checked against the instance.
    """
    _say_configurations(call, as_json, options)


def _say_configurations(call: Call, as_json: bool, options: Options) -> None:
    with ProgressLines() as progress:
        result = call(progress=progress, **options)
    say_result(result.report, as_json, [result])
