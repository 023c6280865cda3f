"""`tnplan workload`: a benchmark network from its geometry and a seed, written with its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from planner.networks.network import Network

OUTPUT = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Network file; its tensors go beside it. Default: NAME.json.",
)
SEED = click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of everything random."
)
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


@command.command()
@click.option("--cycles", type=click.IntRange(1), required=True, help="Layers of two-qubit gates.")
@SEED
@click.option(
    "--amplitude", metavar="BITS", help="0, 1 or . (open) for each of the 53 qubits. Default: all 0."
)
@click.option(
    "--dtype", type=click.Choice(["complex64", "complex128"]), default="complex64", show_default=True
)
@click.option("--qsim", type=click.Path(path_type=Path), help="Also write the circuit in qsim's format.")
@OUTPUT
def sycamore(
    cycles: int, seed: int, amplitude: str | None, dtype: str, qsim: Path | None, output: Path | None
) -> None:
    """A random circuit on the 53 qubits of the Sycamore chip, patterns ABCDCDAB."""
    from planner.files import check_writable
    from planner.networks.circuits.network import circuit_network
    from planner.networks.circuits.qsim import save_qsim
    from planner.networks.simplify import simplify
    from planner.networks.store import check_store, store_network
    from planner.workloads.sycamore import sycamore_circuit

    name = f"sycamore_n53_m{cycles}"
    target = output or Path(f"{name}.json")
    check_store(target)
    if qsim is not None:
        check_writable(qsim)
    circuit = sycamore_circuit(cycles, seed)
    network, arrays = simplify(*circuit_network(circuit, amplitude))
    bits = amplitude or "0" * circuit.n_qubits
    what = f"random circuit of {cycles} cycles, seed {seed}, amplitude {bits}, rank-simplified"
    store_network(network, arrays, target, dtype=dtype, name=name, meta={"what": what})
    click.echo(f"wrote {target}: {len(network.inputs)} tensors, {len(network.size_dict)} indices")
    if qsim is not None:
        save_qsim(circuit, qsim)
        click.echo(f"wrote {qsim}")


@command.command()
@click.option(
    "--kind",
    type=click.Choice(["rectangular", "triangular", "hexagonal"]),
    default="rectangular",
    show_default=True,
)
@click.option("--rows", type=click.IntRange(2), required=True)
@click.option("--columns", type=click.IntRange(2), required=True)
@click.option("--layers", type=click.IntRange(1), required=True, help="One edge colour each.")
@SEED
@click.option("--amplitude", metavar="BITS", help="0, 1 or . (open) for each qubit. Default: all 0.")
@click.option(
    "--dtype", type=click.Choice(["complex64", "complex128"]), default="complex64", show_default=True
)
@OUTPUT
def lattice(
    kind: str,
    rows: int,
    columns: int,
    layers: int,
    seed: int,
    amplitude: str | None,
    dtype: str,
    output: Path | None,
) -> None:
    """A random circuit on a lattice with open boundary: Haar-random gates on one edge colour a layer."""
    from planner.networks.circuits.network import circuit_network
    from planner.networks.simplify import simplify
    from planner.networks.store import check_store, store_network
    from planner.workloads.lattice import lattice_circuit

    name = f"{kind}_{rows}x{columns}_l{layers}"
    target = output or Path(f"{name}.json")
    check_store(target)
    circuit = lattice_circuit(kind, rows, columns, layers, seed)
    network, arrays = simplify(*circuit_network(circuit, amplitude))
    bits = amplitude or "0" * circuit.n_qubits
    what = f"{kind} lattice, {layers} layers, seed {seed}, amplitude {bits}, rank-simplified"
    store_network(network, arrays, target, dtype=dtype, name=name, meta={"what": what})
    click.echo(f"wrote {target}: {len(network.inputs)} tensors, {len(network.size_dict)} indices")


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
    from planner.networks.simplify import simplify
    from planner.networks.store import check_store, store_network
    from planner.workloads.kings import (
        LARGEST_EXACT_LOG2,
        check_range,
        independent_set_network,
        kings_cliques,
        kings_edges,
        kings_sites,
        log2_bound,
    )

    name = f"kings_{rows}x{columns}_d{density:g}"
    target = output or Path(f"{name}.json")
    check_store(target)
    sites = kings_sites(rows, columns, density, seed)
    full = independent_set_network(len(sites), kings_cliques(sites), weight)
    bound = log2_bound(sites, weight)
    check_range(bound, weight)
    network, arrays = simplify(*full)
    graph = f"{len(sites)} vertices, {len(kings_edges(sites))} edges, density {density:g}, seed {seed}"
    what = f"independent sets of weight {weight:g} a vertex, King's subgraph, {graph}, rank-simplified"
    store_network(network, arrays, target, dtype="float64", name=name, meta={"what": what})
    click.echo(f"wrote {target}: {len(network.inputs)} tensors, {len(network.size_dict)} indices")
    if weight != 1:
        click.echo(f"the sum is at most 2^{bound:.1f}, rounded as float64 is")
    elif bound < LARGEST_EXACT_LOG2:
        click.echo(f"the count is at most 2^{bound:.1f}: exact in float64")
    else:
        click.echo(f"the count is at most 2^{bound:.1f}: float64 rounds it where it passes 2^53")


@command.command()
@click.option("--vertices", "n_vertices", type=click.IntRange(2), required=True)
@click.option("--degree", type=click.IntRange(1, 6), default=3, show_default=True, help="Edges of a vertex.")
@click.option("--layers", type=click.IntRange(1), required=True, help="Layers of the ansatz, p.")
@click.option(
    "--edge",
    type=click.IntRange(0),
    help="Only <Z Z> of this edge, by its light cone. Default: the expected cut.",
)
@click.option(
    "--gamma", "gammas", type=float, multiple=True, help="Of a layer, once for each. Default: random."
)
@click.option("--beta", "betas", type=float, multiple=True, help="The same.")
@SEED
@click.option(
    "--dtype", type=click.Choice(["complex64", "complex128"]), default="complex64", show_default=True
)
@OUTPUT
def qaoa(
    n_vertices: int,
    degree: int,
    layers: int,
    edge: int | None,
    gammas: tuple[float, ...],
    betas: tuple[float, ...],
    seed: int,
    dtype: str,
    output: Path | None,
) -> None:
    """A MaxCut-QAOA energy on a random regular graph: one edge's light cone, or the whole expected cut."""
    from planner.errors import InputError
    from planner.networks.simplify import simplify
    from planner.networks.store import check_store, store_network
    from planner.workloads.qaoa import cut_network, edge_network, maxcut_graph, random_angles

    name = f"qaoa_{n_vertices}_{degree}_p{layers}" + ("" if edge is None else f"_e{edge}")
    target = output or Path(f"{name}.json")
    check_store(target)
    edges = maxcut_graph(n_vertices, degree, seed)
    chosen = (list(gammas), list(betas)) if gammas or betas else random_angles(layers, seed)
    if len(chosen[0]) != layers or len(chosen[1]) != layers:
        problem = f"are {len(gammas)} and {len(betas)} for {layers} layers"
        raise InputError("--gamma and --beta", problem, "give both once a layer, or neither")
    full = cut_network(edges, *chosen) if edge is None else edge_network(edges, edge, *chosen)
    network, arrays = simplify(*full)
    value = "expected cut" if edge is None else f"<Z Z> of edge {edges[edge]}"
    graph = f"{degree}-regular graph of {n_vertices} vertices, seed {seed}"
    what = f"MaxCut-QAOA, {value}, {layers} layers, {graph}, rank-simplified"
    meta = {"what": what, "gammas": chosen[0], "betas": chosen[1]}
    store_network(network, arrays, target, dtype=dtype, name=name, meta=meta)
    click.echo(f"wrote {target}: {len(network.inputs)} tensors, {len(network.size_dict)} indices")


@command.command()
@click.option("--rows", type=click.IntRange(2), default=10, show_default=True)
@click.option("--columns", type=click.IntRange(2), default=10, show_default=True)
@OPEN
@click.option(
    "--hyper", "n_hyper", type=click.IntRange(0), default=2, show_default=True, help="Hyper-indices."
)
@SEED
@DTYPE
@OUTPUT
def peps(
    rows: int, columns: int, n_open: int, n_hyper: int, seed: int, dtype: str, output: Path | None
) -> None:
    """A square lattice with bonds of extent 3 to 5, open indices and hyper-indices; random tensors."""
    from planner.networks.store import check_store
    from planner.workloads.mixed import peps_network

    name = f"peps_{rows}x{columns}"
    target = output or Path(f"{name}.json")
    check_store(target)
    network = peps_network(rows, columns, seed, n_open=n_open, n_hyper=n_hyper)
    what = f"square lattice of mixed bonds, seed {seed}"
    _write(network, target, dtype, seed, name, what)


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
    from planner.networks.store import check_store
    from planner.workloads.mixed import regular_network

    name = f"regular_{n_tensors}_{degree}"
    target = output or Path(f"{name}.json")
    check_store(target)
    network = regular_network(n_tensors, seed, degree=degree, n_open=n_open, n_hyper=n_hyper)
    what = f"random regular graph of mixed bonds, seed {seed}"
    _write(network, target, dtype, seed, name, what)


def _write(network: Network, target: Path, dtype: str, seed: int, name: str, what: str) -> None:
    """Write a network with random tensors drawn from the same seed."""
    from planner.networks.store import store_network
    from planner.networks.tensors import random_tensors

    arrays = random_tensors(network, dtype, seed)
    store_network(network, arrays, target, dtype=dtype, name=name, meta={"what": what})
    click.echo(f"wrote {target}: {len(network.inputs)} tensors, {len(network.size_dict)} indices")
