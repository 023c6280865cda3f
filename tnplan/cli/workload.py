"""`tnplan workload`: a benchmark network from its geometry and a seed, written with its tensors."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import getdoc
from math import pi
from pathlib import Path
from typing import Any

import click

from tnplan.calls import workload
from tnplan.cli.options.common import FILE, added
from tnplan.cli.terminal import say
from tnplan.planner.networks.tensor_network import TensorNetwork

COUNT, SIDE, NATURAL = click.IntRange(1), click.IntRange(2), click.IntRange(0)
DTYPES = ["float32", "float64", "complex64", "complex128"]

Option = Callable[[Any], Any]


OUTPUT = click.option(
    "-o", "--output", type=FILE, help="Network file; its tensors go beside it. Default: NAME.json."
)
SEED = click.option("--seed", type=NATURAL, default=0, help="Seed of all random numbers.")
COMPLEX = click.option("--dtype", type=click.Choice(["complex64", "complex128"]), default="complex64")
DTYPE = click.option("--dtype", type=click.Choice(DTYPES), default="complex64")
AMPLITUDE = click.option(
    "--amplitude", metavar="BITS", help="0, 1 or . (open) for each qubit. Default: all 0."
)
QSIM = click.option("--qsim", type=FILE, help="Also write the circuit in qsim's format.")
CYCLES = click.option("--cycles", type=COUNT, required=True, help="Layers of two-qubit gates.")
LATTICES = ["heavy-hex", "line"]
STEPS = click.option("--steps", type=COUNT, required=True, help="Steps of the circuit.")
OPEN = click.option("--open", "n_open", type=NATURAL, default=3, help="Open indices.")


@click.group()
def command() -> None:
    """Write a benchmark network: its structure as JSON, and its tensors as .npz beside it."""


def add(make: Callable[..., TensorNetwork], *options: Option) -> None:
    """Add the command of a function of `tnplan.workload`, which takes the options by their names."""

    def called(output: Path | None, **given: Any) -> None:
        result = make(output=output or Path(), **given)
        say(f"wrote {output or f'{result.name}.json'}: {result.network.sizes}")
        for line in result.notes:
            say(line)
        if given.get("qsim") is not None:
            say(f"wrote {given['qsim']}")

    text = (getdoc(make) or "").partition("\n\nParameters\n")[0]
    listed = re.split("[:;,.]", text)[0].replace("\n", " ")
    command.command(make.__name__, help=text, short_help=f"{listed}.")(added(*options, OUTPUT)(called))


add(
    workload.kings,
    click.option("--rows", type=COUNT, default=40),
    click.option("--columns", type=COUNT, default=40),
    click.option("--density", type=float, default=0.8, help="Share of the sites kept."),
    click.option("--weight", type=float, default=1, help="Weight of each vertex in a set."),
    SEED,
)
add(
    workload.decoding,
    click.option("--distance", type=SIDE, help="Distance of a rotated surface code.  [default: 7]"),
    click.option(
        "--kind", type=click.Choice(["circuit", "capacity"]),
        help="Noise on every operation, or on data qubits alone with perfect measurements.  "
        "[default: circuit]"
    ),
    click.option("--rounds", type=COUNT, help="Measurement rounds. Default: the distance; 1 for capacity."),
    click.option("--noise", type=float, help="Probability of an error at a place.  [default: 0.001]"),
    click.option(
        "--model", type=FILE, help="A detector error model in stim's format, instead of a surface code."
    ),
    click.option("--syndrome", metavar="BITS", help="0 or 1 for each detector. Default: of random errors."),
    SEED,
)  # fmt: skip
add(
    workload.peps,
    click.option("--rows", type=SIDE, default=10),
    click.option("--columns", type=SIDE, default=10),
    click.option("--bond", type=SIDE, help="Extent of every bond [default: drawn from 3 to 5]."),
    OPEN,
    click.option("--hyper", "n_hyper", type=NATURAL, default=2, help="Hyper-indices."),
    SEED,
    DTYPE,
)
add(
    workload.regular,
    click.option("--tensors", "n_tensors", type=SIDE, default=72),
    click.option("--degree", type=SIDE, default=3, help="Bonds of a tensor."),
    OPEN,
    click.option("--hyper", "n_hyper", type=NATURAL, default=3, help="Hyper-indices."),
    SEED,
    DTYPE,
)
add(
    workload.sycamore,
    CYCLES,
    click.option("--qubits", type=int, default=53, help="2 to 53: a patch in the middle of the chip."),
    SEED,
    AMPLITUDE,
    COMPLEX,
    QSIM,
)
add(
    workload.zuchongzhi,
    click.option(
        "--qubits", type=click.Choice(["56", "60"]), default="60",
        callback=lambda context, parameter, value: int(value)
    ),
    CYCLES,
    SEED,
    AMPLITUDE,
    COMPLEX,
    QSIM,
)  # fmt: skip
add(
    workload.lattice,
    click.option(
        "--geometry", type=click.Choice(["rectangular", "triangular", "hexagonal"]), default="rectangular"
    ),
    click.option(
        "--kind", type=click.Choice(["generic", "trotter"]), default="generic",
        help="Haar-random gates on one edge colour a layer, or Trotter steps of an Ising model."
    ),
    click.option("--rows", type=SIDE, required=True),
    click.option("--columns", type=SIDE, required=True),
    click.option("--layers", type=COUNT, required=True, help="Layers of an edge colour, or Trotter steps."),
    click.option(
        "--time-step", type=float,
        help="Length of a Trotter step; couplings are near 1.  [default: 0.25]"
    ),
    SEED,
    AMPLITUDE,
    COMPLEX,
)  # fmt: skip
add(
    workload.qaoa,
    click.option("--vertices", "n_vertices", type=SIDE, required=True),
    click.option("--degree", type=click.IntRange(1, 6), default=3, help="Edges of a vertex."),
    click.option("--layers", type=COUNT, required=True, help="Layers of the ansatz, p."),
    click.option(
        "--edge", type=NATURAL,
        help="Only <Z Z> of this edge, by its light cone. Default: the expected cut."
    ),
    click.option(
        "--gamma", "gammas", type=float, multiple=True, help="One angle a layer. Default: random."
    ),
    click.option("--beta", "betas", type=float, multiple=True, help="One angle a layer. Default: random."),
    SEED,
    COMPLEX,
)  # fmt: skip
add(
    workload.ising,
    STEPS,
    click.option("--lattice", type=click.Choice(LATTICES), default="heavy-hex"),
    click.option("--qubits", type=SIDE, default=127, help="127 or 156 for heavy-hex, any number for a line."),
    click.option("--field", type=float, default=0.7, help="Angle of rx in radians."),
    click.option("--coupling", type=float, default=-pi / 2, help="Angle of rzz in radians."),
    AMPLITUDE,
    COMPLEX,
    QSIM,
)
add(
    workload.loschmidt,
    STEPS,
    click.option("--lattice", type=click.Choice(LATTICES), default="line"),
    click.option("--qubits", type=SIDE, default=51, help="127 or 156 for heavy-hex, any number for a line."),
    click.option("--angle", type=float, default=0.5, help="Angle of rx before every cz, in radians."),
    click.option("--perturbation", type=float, default=0.3, help="Angle of rz in the middle, in radians."),
    AMPLITUDE,
    COMPLEX,
    QSIM,
)
add(
    workload.ansatz,
    click.option("--kind", type=click.Choice(["vqe", "qaoa"]), default="vqe"),
    click.option("--layers", type=COUNT, required=True),
    click.option("--qubits", type=SIDE, default=20),
    click.option("--degree", type=click.IntRange(1, 6), default=3, help="Edges of a vertex, for qaoa."),
    SEED,
    AMPLITUDE,
    COMPLEX,
    QSIM,
)
