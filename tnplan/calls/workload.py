"""Benchmark networks, each from its geometry and a seed, with the values of its tensors.

One function for each command of `tnplan workload`. docs/how-to/workloads.md says where they come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi
from pathlib import Path
from typing import Any, Unpack

from tnplan.calls.workload_options import (
    AmplitudeOptions,
    CircuitOptions,
    FileOptions,
    TensorOptions,
    target_of,
    workload,
)
from tnplan.common.checks import check_choice
from tnplan.common.errors import InputError
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.networks.tensors import TensorNetwork, random_tensors
from tnplan.planner.workloads.decoding import decoding_network, load_model, sample, surface_code_model
from tnplan.planner.workloads.dynamics import kicked_ising, qaoa_ansatz, vqe_ansatz
from tnplan.planner.workloads.dynamics import loschmidt as loschmidt_circuit
from tnplan.planner.workloads.kings import (
    LARGEST_EXACT_LOG2,
    check_range,
    independent_set_network,
    kings_cliques,
    kings_edges,
    kings_sites,
    log2_bound,
)
from tnplan.planner.workloads.lattice import lattice_circuit, trotter_circuit
from tnplan.planner.workloads.mixed import peps_network, regular_network
from tnplan.planner.workloads.qaoa import cut_network, edge_network, maxcut_graph, random_angles
from tnplan.planner.workloads.sycamore import sycamore_circuit
from tnplan.planner.workloads.zuchongzhi import zuchongzhi_circuit

TOPIC = "workloads"

__all__ = [
    "ansatz", "decoding", "ising", "kings", "lattice", "loschmidt", "peps", "qaoa", "regular", "sycamore",
    "zuchongzhi",
]  # fmt: skip
TIME_STEP = 0.25
"""Default length of a Trotter step."""
LATTICES = ("heavy-hex", "line")
CIRCUIT = ("amplitude", "dtype", "qsim", "output")


@workload(*CIRCUIT)
def sycamore(
    cycles: int, *, qubits: int = 53, seed: int = 0, **options: Unpack[CircuitOptions]
) -> TensorNetwork:
    """A random circuit on the 53 qubits of the Sycamore chip, patterns ABCDCDAB, or on a patch of it.

    The circuit is that of Arute et al., Nature 574, 505 (2019), with random gates by `seed`.

    Parameters
    ----------
    cycles : int
        Layers of two-qubit gates.
    qubits : int
        2 to 53. Fewer than 53: the qubits nearest to the middle of the chip.

    Examples
    --------
    >>> tnplan.workload.sycamore(cycles=2).name
    'sycamore_n53_m2'
    """
    target = target_of(f"sycamore_n{qubits}_m{cycles}", **options)
    circuit = sycamore_circuit(cycles, seed, qubits)
    return target.store_circuit(circuit, f"random circuit of {cycles} cycles, seed {seed}")


@workload(*CIRCUIT)
def zuchongzhi(
    cycles: int, *, qubits: int = 60, seed: int = 0, **options: Unpack[CircuitOptions]
) -> TensorNetwork:
    """A random circuit on a Zuchongzhi chip, of 56, 60 or 83 qubits, patterns ABCDCDAB.

    The chips are those of Wu et al., PRL 127, 180501 (2021), and Zhu et al., Science Bulletin 67, 240 (2022).
    The circuits with 83 qubits (Gao et al., PRL 134, 090601, 2025) are not published: twelve rows of their
    chip are taken, without one corner.

    Parameters
    ----------
    cycles : int
        Layers of two-qubit gates.
    qubits : {56, 60, 83}
        Which chip.

    Examples
    --------
    >>> tnplan.workload.zuchongzhi(cycles=1, qubits=56).name
    'zuchongzhi_n56_m1'
    """
    target = target_of(f"zuchongzhi_n{qubits}_m{cycles}", **options)
    circuit = zuchongzhi_circuit(qubits, cycles, seed)
    return target.store_circuit(circuit, f"random circuit of {cycles} cycles, seed {seed}")


@workload("amplitude", "dtype", "output")
def lattice(
    rows: int, columns: int, layers: int, *, geometry: str = "rectangular", kind: str = "generic",
    time_step: float | None = None, seed: int = 0, **options: Unpack[AmplitudeOptions],
) -> TensorNetwork:  # fmt: skip
    """Dynamics on a lattice with open boundary: a random circuit, or Trotter steps.

    Trotter steps have rzz on every edge, which is diagonal: a qubit between two of its rx is one hyper-index.

    Parameters
    ----------
    rows, columns : int
        The sides of the lattice.
    layers : int
        Layers of one edge colour each, or Trotter steps.
    geometry : {"rectangular", "triangular", "hexagonal"}
        Which sites are neighbours.
    kind : {"generic", "trotter"}
        Haar-random gates on one edge colour a layer, or Trotter steps of an Ising model.
    time_step : float, optional
        The length of a Trotter step; couplings are near 1. Default: 0.25.

    Examples
    --------
    >>> tnplan.workload.lattice(3, 3, 2, kind="trotter").name
    'rectangular_3x3_trotter2'
    """
    trotter = kind == "trotter"
    check_choice("--kind", kind, ("generic", "trotter"))
    if time_step is not None and not trotter:
        raise InputError(
            "--time-step", f"is given together with --kind {kind}", "give it for --kind trotter only"
        )
    name = f"{geometry}_{rows}x{columns}_" + (f"trotter{layers}" if trotter else f"l{layers}")
    target = target_of(name, **options)
    if trotter:
        length = TIME_STEP if time_step is None else time_step
        circuit = trotter_circuit(geometry, rows, columns, layers, seed, length)
        done = f"{layers} Trotter steps of length {length:g}"
    else:
        circuit = lattice_circuit(geometry, rows, columns, layers, seed)
        done = f"{layers} layers"
    return target.store_circuit(circuit, f"{geometry} lattice, {done}, seed {seed}")


@workload("dtype", "output", returns="The rank-simplified network of one number.")
def qaoa(
    n_vertices: int, layers: int, *, degree: int = 3, edge: int | None = None, gammas: Sequence[float] = (),
    betas: Sequence[float] = (), seed: int = 0, **options: Unpack[TensorOptions],
) -> TensorNetwork:  # fmt: skip
    """A MaxCut-QAOA energy on a random regular graph: one edge's light cone, or the whole expected cut.

    The ansatz is that of Farhi et al., arXiv 1411.4028.

    Parameters
    ----------
    n_vertices : int
        Vertices of the graph.
    layers : int
        Layers of the ansatz, p.
    degree : int
        Edges of a vertex, 1 to 6.
    edge : int, optional
        Only <Z Z> of this edge, by its light cone. Default: the expected cut.
    gammas, betas : sequence of float
        The angles in radians, one of each a layer. Default: random.

    Examples
    --------
    >>> tnplan.workload.qaoa(6, layers=1, edge=0).name
    'qaoa_6_3_p1_e0'
    """
    name = f"qaoa_{n_vertices}_{degree}_p{layers}" + ("" if edge is None else f"_e{edge}")
    target = target_of(name, **options)
    edges = maxcut_graph(n_vertices, degree, seed)
    chosen = (list(gammas), list(betas)) if len(gammas) or len(betas) else random_angles(layers, seed)
    if len(chosen[0]) != layers or len(chosen[1]) != layers:
        problem = f"are {len(gammas)} and {len(betas)} for {layers} layers"
        raise InputError("--gamma and --beta", problem, "give both once per layer, or leave both out")
    full = cut_network(edges, *chosen) if edge is None else edge_network(edges, edge, *chosen)
    value = "expected cut" if edge is None else f"<Z Z> of edge {edges[edge]}"
    graph = f"{degree}-regular graph of {n_vertices} vertices, seed {seed}"
    description = f"MaxCut-QAOA, {value}, {layers} layers, {graph}, rank-simplified"
    return target.store(*simplify(*full), what=description, gammas=chosen[0], betas=chosen[1])


@workload(*CIRCUIT)
def ising(
    steps: int, *, lattice: str = "heavy-hex", qubits: int = 127, field: float = 0.7,
    coupling: float = -pi / 2, **options: Unpack[CircuitOptions],
) -> TensorNetwork:  # fmt: skip
    """A kicked Ising model: rx on all qubits, then rzz on all edges, as many times as there are steps.

    With the default coupling on 127 qubits it is the circuit of Kim et al., Nature 618, 500 (2023).
    `tnplan pauli` reads the qsim file.

    Parameters
    ----------
    steps : int
        Floquet steps.
    lattice : {"heavy-hex", "line"}
        The coupling map to generate.
    qubits : int
        127 or 156 for heavy-hex, any number for a line.
    field : float
        Angle of rx in radians.
    coupling : float
        Angle of rzz in radians.

    Examples
    --------
    >>> tnplan.workload.ising(1, lattice="line", qubits=5).name
    'ising_line_n5_s1'
    """
    check_choice("--lattice", lattice, LATTICES)
    target = target_of(f"ising_{lattice}_n{qubits}_s{steps}", **options)
    circuit = kicked_ising(lattice, qubits, steps, field, coupling)
    summary = f"kicked Ising on {lattice} of {qubits}, {steps} steps, field {field:g}, coupling {coupling:g}"
    return target.store_circuit(circuit, summary)


@workload(*CIRCUIT)
def loschmidt(
    steps: int, *, lattice: str = "line", qubits: int = 51, angle: float = 0.5, perturbation: float = 0.3,
    **options: Unpack[CircuitOptions],
) -> TensorNetwork:  # fmt: skip
    """A Loschmidt echo: a circuit, rz by a perturbation on every second qubit, and the circuit undone.

    With the observable as overlap, `tnplan pauli` gives the operator Loschmidt echo of its qsim file.

    Parameters
    ----------
    steps : int
        How often every edge has a cz before the perturbation.
    lattice : {"heavy-hex", "line"}
        The coupling map to generate.
    qubits : int
        127 or 156 for heavy-hex, any number for a line.
    angle : float
        Angle of rx before every cz, in radians.
    perturbation : float
        Angle of rz in the middle, in radians.

    Examples
    --------
    >>> tnplan.workload.loschmidt(1, qubits=4).name
    'loschmidt_line_n4_s1'
    """
    check_choice("--lattice", lattice, LATTICES)
    target = target_of(f"loschmidt_{lattice}_n{qubits}_s{steps}", **options)
    circuit = loschmidt_circuit(lattice, qubits, steps, angle, perturbation)
    description = f"Loschmidt echo on {lattice} of {qubits}, {steps} steps, perturbation {perturbation:g}"
    return target.store_circuit(circuit, description)


@workload(*CIRCUIT)
def ansatz(
    layers: int, *, kind: str = "vqe", qubits: int = 20, degree: int = 3, seed: int = 0,
    **options: Unpack[CircuitOptions],
) -> TensorNetwork:  # fmt: skip
    """An ansatz circuit: hardware-efficient on a line (vqe), or MaxCut on a random regular graph (qaoa).

    Parameters
    ----------
    layers : int
        Layers of the ansatz.
    kind : {"vqe", "qaoa"}
        ry, rz and cz; or h, rzz on the edges of the graph and rx.
    qubits : int
        Number of qubits (qaoa: vertices of the graph).
    degree : int
        Edges of a vertex, for qaoa.
    seed : int
        Seed of the angles and the graph, as in `qaoa`.

    Examples
    --------
    >>> tnplan.workload.ansatz(2, qubits=4).name
    'vqe_n4_p2'
    """
    check_choice("--kind", kind, ("vqe", "qaoa"))
    target = target_of(f"{kind}_n{qubits}_p{layers}", **options)
    if kind == "vqe":
        circuit = vqe_ansatz("line", qubits, layers, seed)
    else:
        circuit = qaoa_ansatz(qubits, maxcut_graph(qubits, degree, seed), *random_angles(layers, seed))
    return target.store_circuit(circuit, f"{kind} ansatz, {layers} layers, seed {seed}")


@workload(
    "output",
    returns="The rank-simplified network of one number. `notes` bounds the number.",
    refuses="For values that cannot be, a sum beyond float64, or files that cannot be written.",
)
def kings(
    rows: int = 40, columns: int = 40, *, density: float = 0.8, weight: float = 1, seed: int = 0,
    **options: Unpack[FileOptions],
) -> TensorNetwork:  # fmt: skip
    """Independent sets of a random King's subgraph, counted (or weighted) in float64; hyper-indices.

    A count below 2^53 is exact in any order of contraction; a larger one is rounded.

    Parameters
    ----------
    rows, columns : int
        The sides of the board.
    density : float
        Share of the sites kept.
    weight : float
        Weight of each vertex in a set.

    Examples
    --------
    >>> tnplan.workload.kings(3, 3, density=1).notes
    ('the count is at most 2^5.8: exact in float64',)
    """
    target = target_of(f"kings_{rows}x{columns}_d{density:g}", dtype="float64", **options)
    sites = kings_sites(rows, columns, density, seed)
    full = independent_set_network(len(sites), kings_cliques(sites), weight)
    bound = log2_bound(sites, weight)
    check_range(bound, weight)
    graph = f"{len(sites)} vertices, {len(kings_edges(sites))} edges, density {density:g}, seed {seed}"
    description = (
        f"independent sets of weight {weight:g} per vertex, King's subgraph, {graph}, rank-simplified"
    )
    if weight != 1:
        note = f"the sum is at most 2^{bound:.1f}, rounded as float64 is"
    # Counts up to 2^53 are whole numbers that float64 has exactly, and so are all partial sums.
    elif bound < LARGEST_EXACT_LOG2:
        note = f"the count is at most 2^{bound:.1f}: exact in float64"
    else:
        note = f"the count is at most 2^{bound:.1f}: float64 rounds it where it passes 2^53"
    return target.store(*simplify(*full), note, what=description)


@workload(
    "output",
    returns="The rank-simplified network; `meta` has the syndrome, and for random errors their logical "
    "flips.",
    refuses="For values that cannot be, a model or a syndrome that cannot be used, or without stim.",
)
def decoding(
    *, distance: int | None = None, kind: str | None = None, rounds: int | None = None,
    noise: float | None = None, model: str | Path | None = None, syndrome: str | None = None, seed: int = 0,
    **options: Unpack[FileOptions],
) -> TensorNetwork:  # fmt: skip
    """Exact maximum-likelihood decoding of a rotated surface code, or of any detector error model; float64.

    The result has an index for each logical observable: the probability of the syndrome together with every
    combination of logical flips. The largest tells the correction. A detector is one hyper-index. Needs stim:
    pip install 'tnplan[qec]'.

    Parameters
    ----------
    distance : int, optional
        Distance of a rotated surface code. Default: 7.
    kind : {"circuit", "capacity"}, optional
        Noise on every operation, or only on data qubits, with perfect measurements. Default: "circuit".
    rounds : int, optional
        Rounds of measurements. Default: the distance; 1 for "capacity".
    noise : float, optional
        The probability of an error at each place. Default: 0.001.
    model : path, optional
        A detector error model in stim's format, instead of a surface code.
    syndrome : str, optional
        0 or 1 for each detector. Default: that of random errors.

    Examples
    --------
    >>> result = tnplan.workload.decoding(distance=3, syndrome="0" * 24)
    """
    code = {"--distance": distance, "--kind": kind, "--rounds": rounds, "--noise": noise}
    if model is not None:
        named = [option for option, value in code.items() if value is not None]
        if named:
            raise InputError(named[0], "is given together with --model", f"give either {named[0]} or --model")
        file = Path(model)
        description = f"error model {file.name}"
        target = target_of(f"decoding_{file.stem}", file, dtype="float64", **options)
        errors = load_model(file)
    else:
        d, p, kind = 7 if distance is None else distance, 0.001 if noise is None else noise, kind or "circuit"
        r = (1 if kind == "capacity" else d) if rounds is None else rounds
        description = f"rotated surface code of distance {d}, {r} rounds, memory in Z, {kind} noise {p:g}"
        target = target_of(f"decoding_d{d}_r{r}_{kind}_p{p:g}", dtype="float64", **options)
        errors = surface_code_model(kind, d, r, p)
    meta: dict[str, Any] = {"what": f"decoding, {description}, rank-simplified", "syndrome": syndrome}
    if syndrome is None:
        # Errors are drawn from the model, so that the syndrome is one that it makes; the logical
        # flips are for checks.
        syndrome, flips = sample(errors, seed)
        meta |= {"syndrome": syndrome, "seed": seed, "logical_flips": flips}
    network, arrays = simplify(*decoding_network(errors, syndrome))
    fired = syndrome.count("1")
    note = f"{errors.n_detectors} detectors, {fired} fire; {len(errors.errors)} possible errors"
    return target.store(network, arrays, note, **meta)


@workload("dtype", "output", returns="The network.")
def peps(
    rows: int = 10, columns: int = 10, *, bond: int | None = None, n_open: int = 3, n_hyper: int = 2,
    seed: int = 0, **options: Unpack[TensorOptions],
) -> TensorNetwork:  # fmt: skip
    """A square lattice with bonds of one extent or of mixed ones, open and hyper-indices; random tensors.

    Parameters
    ----------
    rows, columns : int
        The sides of the lattice.
    bond : int, optional
        The extent of every bond. Default: drawn from 3 to 5.
    n_open : int
        Open indices.
    n_hyper : int
        Hyper-indices.
    dtype : {"float32", "float64", "complex64", "complex128"}
        The dtype of the tensors.

    Examples
    --------
    >>> tnplan.workload.peps(3, 3, bond=2)
    TensorNetwork(peps_3x3_D2: 9 tensors, 17 indices, complex64)
    """
    extents = (3, 5) if bond is None else (bond, bond)
    name = f"peps_{rows}x{columns}" if bond is None else f"peps_{rows}x{columns}_D{bond}"
    target = target_of(name, **options)
    network = peps_network(rows, columns, seed, extents=extents, n_open=n_open, n_hyper=n_hyper)
    bonds = "mixed bonds" if bond is None else f"bonds of extent {bond}"
    arrays = random_tensors(network, target.dtype, seed)
    return target.store(network, arrays, what=f"square lattice of {bonds}, seed {seed}")


@workload("dtype", "output", returns="The network.")
def regular(
    n_tensors: int = 72, *, degree: int = 3, n_open: int = 3, n_hyper: int = 3, seed: int = 0,
    **options: Unpack[TensorOptions],
) -> TensorNetwork:  # fmt: skip
    """A random regular graph with bonds of extent 2 to 5, open indices and hyper-indices; random tensors.

    Parameters
    ----------
    n_tensors : int
        Tensors, the vertices of the graph.
    degree : int
        Bonds of a tensor.
    n_open : int
        Open indices.
    n_hyper : int
        Hyper-indices.
    dtype : {"float32", "float64", "complex64", "complex128"}
        The dtype of the tensors.

    Examples
    --------
    >>> tnplan.workload.regular(10).name
    'regular_10_3'
    """
    target = target_of(f"regular_{n_tensors}_{degree}", **options)
    network = regular_network(n_tensors, seed, degree=degree, n_open=n_open, n_hyper=n_hyper)
    arrays = random_tensors(network, target.dtype, seed)
    return target.store(network, arrays, what=f"random regular graph of mixed bonds, seed {seed}")


def __dir__() -> list[str]:
    return list(__all__)
