"""Circuits among the benchmark networks: chips, lattices, QAOA. Commands of `tnplan workload`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tnplan.cli.workload.common import (
    AMPLITUDE,
    COMPLEX,
    OUTPUT,
    QSIM,
    SEED,
    target_of,
    write,
    write_circuit,
)

if TYPE_CHECKING:
    from tnplan.planner.networks.circuits.circuit import Circuit

CYCLES = click.option("--cycles", type=click.IntRange(1), required=True, help="Layers of two-qubit gates.")


@click.command()
@CYCLES
@SEED
@AMPLITUDE
@COMPLEX
@QSIM
@OUTPUT
def sycamore(
    cycles: int, seed: int, amplitude: str | None, dtype: str, qsim: Path | None, output: Path | None
) -> None:
    """A random circuit on the 53 qubits of the Sycamore chip, patterns ABCDCDAB."""
    from tnplan.planner.workloads.sycamore import sycamore_circuit

    name = f"sycamore_n53_m{cycles}"
    target = _targets(output, name, qsim)
    circuit = sycamore_circuit(cycles, seed)
    what = f"random circuit of {cycles} cycles, seed {seed}"
    write_circuit(circuit, amplitude, target, dtype, name, what)
    _write_qsim(circuit, qsim)


@click.command()
@click.option("--qubits", type=click.Choice(["56", "60"]), default="60", show_default=True)
@CYCLES
@SEED
@AMPLITUDE
@COMPLEX
@QSIM
@OUTPUT
def zuchongzhi(
    qubits: str,
    cycles: int,
    seed: int,
    amplitude: str | None,
    dtype: str,
    qsim: Path | None,
    output: Path | None,
) -> None:
    """A random circuit on 56 or 60 qubits of a Zuchongzhi chip, patterns ABCDCDAB."""
    from tnplan.planner.workloads.zuchongzhi import zuchongzhi_circuit

    name = f"zuchongzhi_n{qubits}_m{cycles}"
    target = _targets(output, name, qsim)
    circuit = zuchongzhi_circuit(int(qubits), cycles, seed)
    what = f"random circuit of {cycles} cycles, seed {seed}"
    write_circuit(circuit, amplitude, target, dtype, name, what)
    _write_qsim(circuit, qsim)


@click.command()
@click.option(
    "--geometry",
    type=click.Choice(["rectangular", "triangular", "hexagonal"]),
    default="rectangular",
    show_default=True,
)
@click.option(
    "--kind",
    type=click.Choice(["generic", "trotter"]),
    default="generic",
    show_default=True,
    help="Haar-random gates on one edge colour a layer, or Trotter steps of an Ising model.",
)
@click.option("--rows", type=click.IntRange(2), required=True)
@click.option("--columns", type=click.IntRange(2), required=True)
@click.option(
    "--layers", type=click.IntRange(1), required=True, help="Of one edge colour each, or Trotter steps."
)
@click.option(
    "--time-step", type=float, help="Length of a Trotter step; couplings are near 1.  [default: 0.25]"
)
@SEED
@AMPLITUDE
@COMPLEX
@OUTPUT
def lattice(
    geometry: str,
    kind: str,
    rows: int,
    columns: int,
    layers: int,
    time_step: float | None,
    seed: int,
    amplitude: str | None,
    dtype: str,
    output: Path | None,
) -> None:
    """Dynamics on a lattice with open boundary: a random circuit, or Trotter steps.

    Trotter steps have rzz on every edge, which is diagonal: a qubit between two of its rx is one hyper-index.
    """
    from tnplan.planner.common.errors import InputError
    from tnplan.planner.workloads.lattice import lattice_circuit, trotter_circuit

    if time_step is not None and kind != "trotter":
        raise InputError("--time-step", f"stands beside --kind {kind}", "give it for --kind trotter only")
    trotter = kind == "trotter"
    name = f"{geometry}_{rows}x{columns}_" + (f"trotter{layers}" if trotter else f"l{layers}")
    target = target_of(output, name)
    if trotter:
        length = 0.25 if time_step is None else time_step
        circuit = trotter_circuit(geometry, rows, columns, layers, seed, length)
        done = f"{layers} Trotter steps of length {length:g}"
    else:
        circuit = lattice_circuit(geometry, rows, columns, layers, seed)
        done = f"{layers} layers"
    write_circuit(circuit, amplitude, target, dtype, name, f"{geometry} lattice, {done}, seed {seed}")


@click.command()
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
@COMPLEX
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
    from tnplan.planner.common.errors import InputError
    from tnplan.planner.networks.simplify import simplify
    from tnplan.planner.workloads.qaoa import cut_network, edge_network, maxcut_graph, random_angles

    name = f"qaoa_{n_vertices}_{degree}_p{layers}" + ("" if edge is None else f"_e{edge}")
    target = target_of(output, name)
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
    write(network, arrays, target, dtype, name, what=what, gammas=chosen[0], betas=chosen[1])


def _targets(output: Path | None, name: str, qsim: Path | None) -> Path:
    """The network file, once it and the circuit's file are known to be writable."""
    from tnplan.planner.common.files import check_writable

    target = target_of(output, name)
    if qsim is not None:
        check_writable(qsim)
    return target


def _write_qsim(circuit: Circuit, path: Path | None) -> None:
    from tnplan.planner.networks.circuits.qsim import save_qsim

    if path is not None:
        save_qsim(circuit, path)
        click.echo(f"wrote {path}")
