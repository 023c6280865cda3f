"""`contract(max_bond=, mode="boundary")`: lattices that are recognised, values, estimates and refusals."""

from __future__ import annotations

import tracemalloc
from typing import Any

import networkx as nx
import numpy as np
import pytest

import tnplan
from tests.support.bond_limited_cases import Arguments, case, on_graph, peps_norm
from tests.support.kernels import strict_cupy
from tests.support.slow import slow_after
from tnplan import BondLimitedContraction
from tnplan.planner.networks.lattice_sites import sites_of

BOUNDARY: Any = {"mode": "boundary", "device": "cpu"}
FIRST_SEED = 92_100_000
"""No constant was fitted to seeds from here on."""
ENOUGH = 10**6


def grid(seed: int = 0, rows: int = 7, columns: int = 7, extent: int = 3, low: float = -0.4) -> Arguments:
    return on_graph(nx.grid_2d_graph(rows, columns), extent, np.random.default_rng(seed), [low])


def hyper_ising(rows: int, columns: int, has_field: bool, seed: int = 0) -> Arguments:
    """A partition function whose spins are indices of many factors."""
    random, arguments = np.random.default_rng(seed), list[Any]()
    for a, b in nx.grid_2d_graph(rows, columns).edges:
        arguments += [random.uniform(0.2, 1, (2, 2)), [str(a), str(b)]]
    if has_field:
        for spin in nx.grid_2d_graph(rows, columns):
            arguments += [random.uniform(0.2, 1, 2), [str(spin)]]
    return [*arguments, []]


LATTICES = {
    "plain": grid(0), "wide": grid(1, 4, 9), "one middle row": grid(2, 2, 8), "layers": peps_norm(4, -0.4,
    np.random.default_rng(3)), "spins": hyper_ising(6, 5, False), "spins in a field": hyper_ising(5, 6, True),
    "smallest": grid(5, 2, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", LATTICES)
def test_lattices_are_recognised_by_their_graph(name: str) -> None:
    arguments = LATTICES[name]
    found = tnplan.contract(*arguments, max_bond=ENOUGH, **BOUNDARY)
    assert found.details["mode"] == "boundary"
    assert found.exact
    assert found.value == pytest.approx(tnplan.contract(*arguments), rel=1e-9)


@pytest.mark.parametrize(
    "graph",
    [nx.path_graph(9), nx.cycle_graph(8), nx.grid_2d_graph(5, 5, periodic=True), nx.grid_graph((4, 4, 4)),
     nx.random_regular_graph(3, 16, seed=1), nx.hexagonal_lattice_graph(2, 2), nx.complete_graph(5)],
)  # fmt: skip
def test_where_no_lattice_is_recognised_it_is_said(graph: Any) -> None:
    arguments = on_graph(graph, 2, np.random.default_rng(0))
    with pytest.raises(tnplan.InputError, match=r"^mode: is 'boundary', but no square lattice is recognised"):
        tnplan.contract(*arguments, max_bond=8, mode="boundary")
    assert tnplan.contract(*arguments, max_bond=2).details["mode"] == "compressed"


def test_shuffled_tensors_have_the_sites_of_a_grid() -> None:
    random = np.random.default_rng(4)
    graph = nx.grid_2d_graph(5, 8)
    names = {site: int(k) for site, k in zip(graph, random.permutation(40), strict=True)}
    bonds: list[dict[int, int]] = [{} for _ in names]
    for a, b in graph.edges:
        bonds[names[a]][names[b]] = bonds[names[b]][names[a]] = 2
    found = sites_of(bonds, 40, None)
    assert found is not None
    assert sorted(found) in (sorted(graph), sorted((b, a) for a, b in graph))
    for a, b in graph.edges:
        assert sum(abs(x - y) for x, y in zip(found[names[a]], found[names[b]], strict=True)) == 1


def test_sites_that_quimb_names_are_taken() -> None:
    """Norms of a PEPS, with gates on two sites that are not contracted, and bricks without some bonds."""
    quimb = pytest.importorskip("quimb.tensor")
    state = quimb.PEPS.rand(4, 4, 2, seed=1, dist="uniform", loc=-0.2)
    random = np.random.default_rng(0)
    for pair in ((0, 0), (0, 1)), ((1, 1), (2, 1)), ((2, 2), (2, 3)):
        state.gate_(random.standard_normal((4, 4)), pair, contract=False)
    bricks = [((i, j), (i, j + 1)) for i in range(5) for j in range(5)]
    bricks += [((i, j), (i + 1, j)) for i in range(4) for j in range(6) if (i + j) % 2]
    for network in (
        state.make_norm(), quimb.TN_from_edges_rand(bricks, 3, seed=1, dist="uniform", loc=-0.3),
        quimb.TN2D_classical_ising_partition_function(6, 6, 0.44),
    ):  # fmt: skip
        found = tnplan.contract(network, max_bond=24, **BOUNDARY)
        assert found.details["mode"] == "boundary"
        exact = tnplan.contract(network)
        assert abs(found.value - exact) <= max(found.error_estimate, 1e-10) * abs(exact) < 1e-2 * abs(exact)


def test_it_is_the_matrix_product_state_of_quimb() -> None:
    """Errors of quimb's `contract_boundary` at the same bond, within a factor."""
    quimb = pytest.importorskip("quimb.tensor")
    ratios = []
    for seed in range(6):
        network = quimb.TN2D_rand(7, 7, 3, seed=seed, dist="uniform", loc=-0.35)
        exact = tnplan.contract(network)
        ours = tnplan.contract(network, max_bond=8, **BOUNDARY).value
        theirs = network.contract_boundary(
            max_bond=8, cutoff=1e-10, mode="mps", final_contract_opts={"optimize": "greedy"}
        )
        ratios.append(abs(ours / exact - 1) / abs(theirs / exact - 1))
    assert 0.2 < np.median(ratios) < 3


def test_errors_are_smaller_than_those_of_a_searched_order() -> None:
    ratios = []
    for seed in range(6):
        random = np.random.default_rng(seed)
        arguments = grid(seed, 8, 8, 3)
        arguments[:-1:2] = [random.uniform(-0.4, 1, one.shape) for one in arguments[:-1:2]]
        exact = tnplan.contract(*arguments, max_bond=64, **BOUNDARY).value
        found = {mode: tnplan.contract(*arguments, max_bond=8, mode=mode).value
                 for mode in ("auto", "boundary", "compressed")}  # fmt: skip
        assert found["auto"] == found["boundary"]
        ratios.append(abs(found["boundary"] / exact - 1) / abs(found["compressed"] / exact - 1))
    assert np.median(ratios) < 0.3


def covered(seeds: range) -> list[bool]:
    """Whether the estimate covers the error, of lattices that were cut."""
    found = []
    for seed in seeds:
        kind, arguments, bond = case(seed)
        if kind == "lattice":
            value = tnplan.contract(*arguments, max_bond=bond)
            if not value.exact and value.details["mode"] == "boundary":
                error = abs(value.value - tnplan.contract(*arguments))
                found.append(bool(error <= value.error_estimate * abs(value.value)))
    return found


@pytest.mark.parametrize("count", slow_after(1, [60, 600]))
def test_the_estimate_covers_the_error(count: int) -> None:
    found = covered(range(FIRST_SEED, FIRST_SEED + count))
    assert len(found) > count / 10
    assert np.mean(found) >= 0.9


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_the_memory_is_as_predicted(dtype: str) -> None:
    arguments = [one.astype(dtype) if isinstance(one, np.ndarray) else one for one in grid(2, 8, 8, 4)]
    found = tnplan.contract(*arguments, max_bond=24, **BOUNDARY)
    estimate = BondLimitedContraction.estimate(*arguments, max_bond=24, mode="boundary")
    assert estimate.memory_bytes == found.details["peak_bytes"]
    tracemalloc.start()
    try:
        tnplan.contract(*arguments, max_bond=24, **BOUNDARY)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.details["peak_bytes"] == pytest.approx(peak_bytes, rel=0.05, abs=50_000)
    with pytest.raises(tnplan.InputError, match="are needed with max_bond=24"):
        tnplan.contract(*arguments, max_bond=24, memory=peak_bytes / 10, **BOUNDARY)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 4))
def test_two_devices_have_a_side_each_and_give_the_value_of_one(seed: int) -> None:
    arguments = grid(seed, 6 + seed % 3, 7, 3)
    alone, found = (tnplan.contract(*arguments, max_bond=6, devices=n, threads=1, **BOUNDARY) for n in (1, 2))
    assert found.value == pytest.approx(alone.value, rel=1e-9)
    assert found.discarded_weight == pytest.approx(alone.discarded_weight, rel=1e-6)
    assert found.details["peak_bytes"] < alone.details["peak_bytes"]
    with pytest.raises(tnplan.InputError, match=r"^devices: is 3, and a boundary contraction has two sides"):
        tnplan.contract(*arguments, max_bond=6, devices=3, **BOUNDARY)


def test_gradients_are_those_of_the_value() -> None:
    arguments = grid(1, 5, 5, 3)
    for bond, rounding in ((ENOUGH, 1e-9), (8, None)):
        gradients = tnplan.contract(*arguments, max_bond=bond, **BOUNDARY).gradients()
        sums = [(g * a).sum() for g, a in zip(gradients.arrays, arguments[:-1:2], strict=True)]
        assert sums == pytest.approx(25 * [1.0], abs=1e-6)
        step = np.zeros_like(arguments[24])
        step.flat[5] = 1e-6
        values = [
            tnplan.contract(*arguments[:24], arguments[24] + sign * step, *arguments[25:]) for sign in (1, -1)
        ]
        slope = (values[0] - values[1]) / 2e-6 / tnplan.contract(*arguments)
        size = np.sqrt(sum(np.linalg.norm(one) ** 2 for one in gradients.arrays))
        allowed = gradients.error_estimate * size if rounding is None else 1e-5
        assert abs(gradients.arrays[12].flat[5] - slope) <= allowed


def test_open_indices_and_zeros() -> None:
    quimb = pytest.importorskip("quimb.tensor")
    state = quimb.PEPS.rand(3, 4, 2, seed=2)
    found = tnplan.contract(state, max_bond=ENOUGH, **BOUNDARY)
    np.testing.assert_allclose(
        found.value, tnplan.contract(state), rtol=0, atol=1e-9 * abs(found.value).max()
    )
    arguments = grid(1, 4, 4)
    arguments[12] = np.zeros_like(arguments[12])
    assert [tnplan.contract(*arguments, max_bond=4, devices=n, **BOUNDARY).value for n in (1, 2)] == [0, 0]


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_on_a_gpu_it_is_the_same(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the rules of CuPy, where there is no GPU."""
    arguments = [one.real.astype(dtype) if isinstance(one, np.ndarray) else one for one in grid(7, 6, 6)]
    strict_cupy.put_in_place(monkeypatch)
    host, device = (
        tnplan.contract(*arguments, max_bond=6, mode="boundary", device=name, memory="1 GB")
        for name in ("cpu", "gpu")
    )
    assert device.details["device"] == "gpu 0"
    assert device.value == pytest.approx(host.value, rel=1e3 * float(np.finfo(dtype).eps))


def test_bad_modes_are_refused() -> None:
    pair = "ab,ab->", np.ones((2, 3)), np.ones((2, 3))
    with pytest.raises(tnplan.InputError, match=r"^mode: .*rows"):
        tnplan.contract(*pair, max_bond=2, mode="rows")
    with pytest.raises(tnplan.InputError, match=r"^mode: is for contractions with a bond limit"):
        tnplan.contract(*pair, mode="boundary")
