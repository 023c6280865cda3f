"""Benchmark networks that are no circuits' amplitudes: counting, decoding, lattices and graphs of tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from tnplan.calls.workload.target import FileOptions, TensorOptions, target_of, workload
from tnplan.common.errors import InputError
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.networks.tensor_network import TensorNetwork
from tnplan.planner.networks.tensors import random_tensors
from tnplan.planner.workloads.decoding import decoding_network, load_model, sample, surface_code_model
from tnplan.planner.workloads.kings import (
    LARGEST_EXACT_LOG2,
    check_range,
    independent_set_network,
    kings_cliques,
    kings_edges,
    kings_sites,
    log2_bound,
)
from tnplan.planner.workloads.mixed import peps_network, regular_network


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
    description = f"independent sets of weight {weight:g} a vertex, King's subgraph, {graph}, rank-simplified"
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
        Noise on every operation, or on data qubits alone with perfect measurements. Default: "circuit".
    rounds : int, optional
        Rounds of measurements. Default: the distance; 1 for "capacity".
    noise : float, optional
        The probability of an error at a place. Default: 0.001.
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
            raise InputError(named[0], "stands beside --model", "give one of the two")
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
