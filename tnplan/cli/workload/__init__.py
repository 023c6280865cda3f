"""`tnplan workload`: a benchmark network from its geometry and a seed, written with its tensors."""

from __future__ import annotations

from pathlib import Path

import click

from tnplan.cli.options import FILE
from tnplan.cli.workload.circuits import lattice, qaoa, sycamore, zuchongzhi
from tnplan.cli.workload.common import OUTPUT, SEED, target_of, write

DTYPE = click.option(
    "--dtype",
    type=click.Choice(["float32", "float64", "complex64", "complex128"]),
    default="complex64",
    show_default=True,
)
OPEN = click.option(
    "--open", "n_open", type=click.IntRange(0), default=3, show_default=True, help="Open indices."
)


@click.group()
def command() -> None:
    """Write a benchmark network: its structure as JSON, and its tensors as .npz beside it."""


for circuit_command in (lattice, qaoa, sycamore, zuchongzhi):
    command.add_command(circuit_command)


@command.command()
@click.option("--rows", type=click.IntRange(1), default=40, show_default=True)
@click.option("--columns", type=click.IntRange(1), default=40, show_default=True)
@click.option("--density", type=float, default=0.8, show_default=True, help="Share of the sites kept.")
@click.option("--weight", type=float, default=1, show_default=True, help="Of each vertex in a set.")
@SEED
@OUTPUT
def kings(rows: int, columns: int, density: float, weight: float, seed: int, output: Path | None) -> None:
    """Independent sets of a random King's subgraph, counted (or weighted) in float64; hyper-indices.

    A count below 2^53 is exact in any order of contraction; a larger one is rounded.
    """
    from tnplan.planner.networks.simplify import simplify
    from tnplan.planner.workloads.kings import (
        LARGEST_EXACT_LOG2,
        check_range,
        independent_set_network,
        kings_cliques,
        kings_edges,
        kings_sites,
        log2_bound,
    )

    name = f"kings_{rows}x{columns}_d{density:g}"
    target = target_of(output, name)
    sites = kings_sites(rows, columns, density, seed)
    full = independent_set_network(len(sites), kings_cliques(sites), weight)
    bound = log2_bound(sites, weight)
    check_range(bound, weight)
    network, arrays = simplify(*full)
    graph = f"{len(sites)} vertices, {len(kings_edges(sites))} edges, density {density:g}, seed {seed}"
    what = f"independent sets of weight {weight:g} a vertex, King's subgraph, {graph}, rank-simplified"
    write(network, arrays, target, "float64", name, what=what)
    if weight != 1:
        click.echo(f"the sum is at most 2^{bound:.1f}, rounded as float64 is")
    elif bound < LARGEST_EXACT_LOG2:
        click.echo(f"the count is at most 2^{bound:.1f}: exact in float64")
    else:
        click.echo(f"the count is at most 2^{bound:.1f}: float64 rounds it where it passes 2^53")


@command.command()
@click.option("--distance", type=click.IntRange(2), help="Of a rotated surface code.  [default: 7]")
@click.option(
    "--kind",
    type=click.Choice(["circuit", "capacity"]),
    help="Noise on every operation, or on data qubits alone with perfect measurements.  [default: circuit]",
)
@click.option(
    "--rounds", type=click.IntRange(1), help="Of measurements. Default: the distance; 1 for capacity."
)
@click.option("--noise", type=float, help="Probability of an error at a place.  [default: 0.001]")
@click.option(
    "--model",
    type=FILE,
    help="A detector error model in stim's format, instead of a surface code.",
)
@click.option("--syndrome", metavar="BITS", help="0 or 1 for each detector. Default: of random errors.")
@SEED
@OUTPUT
def decoding(
    distance: int | None,
    kind: str | None,
    rounds: int | None,
    noise: float | None,
    model: Path | None,
    syndrome: str | None,
    seed: int,
    output: Path | None,
) -> None:
    """Exact maximum-likelihood decoding of a rotated surface code, or of any detector error model; float64.

    The result has an index for each logical observable: the probability of the syndrome together with every
    combination of logical flips. The largest tells the correction. A detector is one hyper-index. Needs stim:
    pip install 'tnplan[qec]'.
    """
    from tnplan.planner.common.errors import InputError
    from tnplan.planner.networks.simplify import simplify
    from tnplan.planner.workloads.decoding import decoding_network
    from tnplan.planner.workloads.error_model import sample
    from tnplan.planner.workloads.stim_model import load_model, surface_code_model

    code = {"--distance": distance, "--kind": kind, "--rounds": rounds, "--noise": noise}
    if model is not None:
        given = [option for option, value in code.items() if value is not None]
        if given:
            raise InputError(given[0], "stands beside --model", "give one of the two")
        name, what = f"decoding_{model.stem}", f"error model {model.name}"
        target = target_of(output, name, model)
        errors = load_model(model)
    else:
        d, p, kind = distance or 7, 0.001 if noise is None else noise, kind or "circuit"
        r = rounds or (1 if kind == "capacity" else d)
        name = f"decoding_d{d}_r{r}_{kind}_p{p:g}"
        what = f"rotated surface code of distance {d}, {r} rounds, memory in Z, {kind} noise {p:g}"
        target = target_of(output, name)
        errors = surface_code_model(kind, d, r, p)
    drawn: dict[str, int | str] = {}
    if syndrome is None:
        syndrome, flips = sample(errors, seed)
        drawn = {"seed": seed, "logical_flips": flips}
    network, arrays = simplify(*decoding_network(errors, syndrome))
    what = f"decoding, {what}, rank-simplified"
    write(network, arrays, target, "float64", name, what=what, syndrome=syndrome, **drawn)
    n_fired = syndrome.count("1")
    click.echo(f"{errors.n_detectors} detectors, {n_fired} fire; {len(errors.errors)} possible errors")


@command.command()
@click.option("--rows", type=click.IntRange(2), default=10, show_default=True)
@click.option("--columns", type=click.IntRange(2), default=10, show_default=True)
@click.option("--bond", type=click.IntRange(2), help="Extent of every bond [default: drawn from 3 to 5].")
@OPEN
@click.option(
    "--hyper", "n_hyper", type=click.IntRange(0), default=2, show_default=True, help="Hyper-indices."
)
@SEED
@DTYPE
@OUTPUT
def peps(
    rows: int, columns: int, bond: int | None, n_open: int, n_hyper: int, seed: int, dtype: str,
    output: Path | None,
) -> None:  # fmt: skip
    """A square lattice with bonds of one extent or of mixed ones, open and hyper-indices; random tensors."""
    from tnplan.planner.networks.tensors import random_tensors
    from tnplan.planner.workloads.mixed import peps_network

    extents = (3, 5) if bond is None else (bond, bond)
    name = f"peps_{rows}x{columns}" if bond is None else f"peps_{rows}x{columns}_D{bond}"
    target = target_of(output, name)
    network = peps_network(rows, columns, seed, extents=extents, n_open=n_open, n_hyper=n_hyper)
    arrays = random_tensors(network, dtype, seed)
    bonds = "mixed bonds" if bond is None else f"bonds of extent {bond}"
    write(network, arrays, target, dtype, name, what=f"square lattice of {bonds}, seed {seed}")


@command.command()
@click.option("--tensors", "n_tensors", type=click.IntRange(2), default=72, show_default=True)
@click.option("--degree", type=click.IntRange(2), default=3, show_default=True, help="Bonds of a tensor.")
@OPEN
@click.option(
    "--hyper", "n_hyper", type=click.IntRange(0), default=3, show_default=True, help="Hyper-indices."
)
@SEED
@DTYPE
@OUTPUT
def regular(
    n_tensors: int, degree: int, n_open: int, n_hyper: int, seed: int, dtype: str, output: Path | None
) -> None:
    """A random regular graph with bonds of extent 2 to 5, open indices and hyper-indices; random tensors."""
    from tnplan.planner.networks.tensors import random_tensors
    from tnplan.planner.workloads.mixed import regular_network

    name = f"regular_{n_tensors}_{degree}"
    target = target_of(output, name)
    network = regular_network(n_tensors, seed, degree=degree, n_open=n_open, n_hyper=n_hyper)
    arrays = random_tensors(network, dtype, seed)
    write(network, arrays, target, dtype, name, what=f"random regular graph of mixed bonds, seed {seed}")
