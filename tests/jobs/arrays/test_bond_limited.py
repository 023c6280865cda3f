"""`contract` with `max_bond`: exact where nothing is cut, an estimate that covers the error, and refusals."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Iterable
from typing import Any

import networkx as nx
import numpy as np
import pytest

import tnplan
from tests.support.bond_limited_cases import Arguments, case, circuit, on_graph, peps_norm
from tests.support.hypernetworks import hypernetwork
from tests.support.kernels import strict_cupy
from tests.support.kernels.gpus import needs_gpus
from tests.support.slow import slow_after
from tnplan import BondLimitedContraction
from tnplan.executor.bond_limited import network as bond_limited

ENOUGH = 10**6
FIRST_SEED = 5_000_000
"""The estimate was fitted to smaller ones."""


def closed(seed: int, dtype: str = "float64") -> tuple[tnplan.Network, list[Any]]:
    """A network with hyperindices, extents of 1, perhaps of several components, and its arrays."""
    network = hypernetwork(seed)
    random = np.random.default_rng(seed)
    shapes = [[network.size_dict[index] for index in term] for term in network.inputs]
    arrays = [random.standard_normal((2, *shape)) for shape in shapes]
    is_complex = dtype.startswith("complex")
    values = [(real + 1j * imaginary if is_complex else real).astype(dtype) for real, imaginary in arrays]
    return tnplan.Network(network.inputs, (), network.size_dict), values


@pytest.mark.parametrize("seed", range(30))
def test_a_limit_that_cuts_nothing_is_exact(seed: int) -> None:
    dtype = ("float64", "complex128", "float32", "complex64")[seed % 4]
    network, arrays = closed(seed, dtype)
    found = tnplan.contract(network, *arrays, max_bond=ENOUGH)
    assert found.exact
    assert found.error_estimate == found.discarded_weight == found.details["cuts"] == 0
    sizes = tnplan.contract(network, *[abs(array) for array in arrays])
    assert abs(found.value - tnplan.contract(network, *arrays)) < 1e3 * np.finfo(dtype).eps * sizes
    assert isinstance(found.value, complex if dtype.startswith("complex") else float)


def grid(seed: int = 0, rows: int = 6, extent: int = 3, low: float = -0.5) -> list[Any]:
    return on_graph(nx.grid_2d_graph(rows, rows), extent, np.random.default_rng(seed), [low])


@pytest.mark.parametrize("seed", range(4))
def test_bonds_of_a_rank_within_the_limit_lose_nothing(seed: int) -> None:
    """Each tensor is a sum of two products of vectors: the bond of any two has rank 2."""
    random = np.random.default_rng(seed)
    arguments = grid(seed, rows=4, extent=8)
    for place in range(0, len(arguments) - 1, 2):
        axes = len(arguments[place + 1])
        factors = random.standard_normal((2, 8))
        arguments[place] = np.einsum(
            *[part for axis in range(axes) for part in (factors, [axes, axis])], [*range(axes)]
        )
    found = tnplan.contract(*arguments, max_bond=16, cutoff=1e-12)
    assert found.value == pytest.approx(tnplan.contract(*arguments), rel=1e-9)
    assert found.largest_discarded_weight < 1e-24
    assert found.error_estimate < 1e-9


def test_bonds_of_a_rank_that_shapes_tell_lose_nothing() -> None:
    """Bonds beyond the limit, but of no larger rank: singular values that are left out are rounding."""
    n_cut = 0
    for seed in range(5_000_000, 5_000_005):
        random = np.random.default_rng(seed)
        graph = nx.random_regular_graph(3, 24, seed=seed)
        arguments = on_graph(graph, int(random.integers(2, 5)), random, [-1.0])
        found = tnplan.contract(*arguments, max_bond=int(random.choice([8, 16, 24])))
        if found.discarded_weight < 1e-20:
            n_cut += found.details["cuts"]
            assert found.value == pytest.approx(tnplan.contract(*arguments), rel=1e-8), seed
    assert n_cut > 0


def test_larger_limits_come_closer_and_all_is_told() -> None:
    arguments = grid(extent=4, low=-0.3)
    exact = tnplan.contract(*arguments)
    found = {bond: tnplan.contract(*arguments, max_bond=bond, mode="compressed") for bond in (4, 8, 16, 32)}
    errors = [abs(one.value / exact - 1) for one in found.values()]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < found[32].error_estimate < 1e-6
    for one, error in zip(found.values(), errors, strict=True):
        assert not one.exact
        assert 0 < one.largest_discarded_weight <= one.discarded_weight
        assert error < one.error_estimate
        mantissa, exponent = one.details["half_value"]
        assert abs(mantissa * 10**exponent / exact - 1) > error


def test_a_cutoff_leaves_more_out() -> None:
    arguments = grid(extent=4)
    weights = [tnplan.contract(*arguments, max_bond=8, cutoff=cutoff).discarded_weight for cutoff in (0, 0.1)]
    assert 0 < 10 * weights[0] < weights[1]


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_scales_are_in_the_exponent(dtype: str) -> None:
    factor = {"float32": 2.0**-100, "complex128": 2.0**-800}[dtype]
    arguments = [one.astype(dtype) if isinstance(one, np.ndarray) else one for one in grid()]
    small = [one * one.dtype.type(factor) if isinstance(one, np.ndarray) else one for one in arguments]
    plain, scaled = (tnplan.contract(*one, max_bond=8) for one in (arguments, small))
    assert scaled.mantissa == plain.mantissa
    assert scaled.exponent == pytest.approx(plain.exponent + 36 * np.log10(factor), rel=1e-12)
    assert scaled.error_estimate == plain.error_estimate
    assert scaled.value == 0
    assert "x 10^" in repr(scaled)


def test_equal_calls_give_equal_bits() -> None:
    first, second = (tnplan.contract(*grid(1), max_bond=6) for _ in range(2))
    assert first == second


def test_zeros_give_zero() -> None:
    arguments = grid(rows=3)
    arguments[4] = np.zeros_like(arguments[4])
    found = tnplan.contract(*arguments, max_bond=2)
    assert found.value == 0
    orthogonal = np.eye(6)[:3].reshape(3, 6), np.eye(6)[3:].reshape(3, 6)
    assert tnplan.contract("ab,cb,ac->", *orthogonal, np.ones((3, 3)), max_bond=2).value == 0


def test_quimb_networks_and_scalars_are_taken() -> None:
    quimb = pytest.importorskip("quimb.tensor")
    network = quimb.TN2D_rand(4, 4, 3, seed=1, dist="uniform")
    found = tnplan.contract(network, max_bond=ENOUGH)
    assert found.value == pytest.approx(network.contract(), rel=1e-12)
    assert tnplan.contract("a,a,,->", [1.0, 2.0], [3.0, 4.0], 2.0, 0.5, max_bond=2).value == pytest.approx(11)


def networks(seed: int, dtype: str) -> Arguments:
    """A lattice, a circuit or a graph; its contraction at a bond of 24 takes 1 to 20 MB."""
    random = np.random.default_rng(seed)
    if seed % 3 == 1:
        arguments = circuit(random, nx.grid_2d_graph(3, 6))
    else:
        graph = nx.grid_2d_graph(8, 8) if seed % 3 == 0 else nx.random_regular_graph(3, 40, seed=seed)
        arguments = on_graph(graph, 4, random, [-0.8])
    return [one.astype(dtype) if isinstance(one, np.ndarray) else one for one in arguments]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("seed", range(5_000_000, 5_000_003))
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_the_memory_is_as_predicted_and_refused_below(seed: int, dtype: str) -> None:
    arguments = networks(seed, dtype)
    found = tnplan.contract(*arguments, max_bond=24, mode="compressed")  # what is imported late is there now
    tracemalloc.start()
    try:
        tnplan.contract(*arguments, max_bond=24, mode="compressed")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.details["peak_bytes"] == pytest.approx(peak_bytes, rel=0.05, abs=50_000)
    message = re.escape("are needed with max_bond=24; give a smaller")
    with pytest.raises(tnplan.InputError, match=message):
        tnplan.contract(*arguments, max_bond=24, mode="compressed", memory=found.details["peak_bytes"] / 10)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_an_estimate_says_before_what_the_contraction_says_after(seed: int) -> None:
    arguments = networks(seed, "float64")
    estimate = BondLimitedContraction.estimate(*arguments, max_bond=16)
    details = tnplan.contract(*arguments, max_bond=16).details
    assert estimate.memory_bytes == details["peak_bytes"]
    assert estimate.multiply_adds == details["multiply_adds"]


def test_an_estimate_says_that_larger_tensors_take_longer() -> None:
    small, large = (
        BondLimitedContraction.estimate(*grid(extent=extent), max_bond=16).time_s for extent in (2, 8)
    )
    assert 0 < 4 * small < large < 10


def test_an_estimate_takes_shapes_with_a_dtype() -> None:
    shapes = "abc,abd,cd->", (8, 8, 8), (8, 8, 8), (8, 8)
    arrays = "abc,abd,cd->", *(np.ones(shape, np.float32) for shape in shapes[1:])
    of_shapes, of_arrays = (
        BondLimitedContraction.estimate(*arguments, max_bond=4, dtype=dtype)
        for arguments, dtype in ((shapes, "float32"), (arrays, None))
    )
    assert of_shapes.memory_bytes == of_arrays.memory_bytes
    with pytest.raises(tnplan.InputError, match=r"^dtype: is missing"):
        BondLimitedContraction.estimate(*shapes, max_bond=4)
    with pytest.raises(tnplan.InputError, match=r"^memory: is 1000 B, and"):
        BondLimitedContraction.estimate(*arrays, max_bond=4, memory=1000)


@needs_gpus(1)
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_a_gpu_gives_the_values_of_a_cpu(dtype: str) -> None:
    arguments = [one.astype(dtype) if isinstance(one, np.ndarray) else one for one in grid()]
    host, device = (tnplan.contract(*arguments, max_bond=12, device=device) for device in ("cpu", "gpu"))
    assert device.details["device"] == "gpu 0"
    assert device.value == pytest.approx(host.value, rel=1e-4 if dtype == "complex64" else 1e-9)
    assert device.discarded_weight == pytest.approx(host.discarded_weight, rel=1e-2)


@pytest.mark.parametrize("seed", range(8_100_000, 8_100_008))
def test_arrays_of_a_gpu_are_not_mixed_with_those_of_the_host(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the rules of CuPy, where there is no GPU."""
    arguments = grid(seed, rows=5, extent=8, low=-0.3)
    dtype = np.dtype(f"{arguments[0].dtype.kind}{arguments[0].itemsize // (1 + seed % 2)}")
    arguments = [one.astype(dtype) if isinstance(one, np.ndarray) else one for one in arguments]
    strict_cupy.put_in_place(monkeypatch)
    host, device = (
        tnplan.contract(*arguments, max_bond=8, device=device, memory="1 GB") for device in ("cpu", "gpu")
    )
    assert device.details["device"] == "gpu 0"
    rounding = 1e3 * float(np.finfo(dtype).eps)
    assert device.value == pytest.approx(host.value, rel=rounding)
    assert device.discarded_weight == pytest.approx(host.discarded_weight, rel=rounding)
    for one, other in zip(device.gradients().arrays, host.gradients().arrays, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=rounding * abs(other).max())


PAIR = ("ab,ab->", np.ones((2, 3)), np.ones((2, 3)))


@pytest.mark.parametrize(
    ("place", "arguments", "options"),
    [
        ("max_bond", PAIR, {"max_bond": 0}),
        ("max_bond", PAIR, {"max_bond": 1}),
        ("max_bond", PAIR, {"max_bond": 2.5}),
        ("max_bond", PAIR, {"max_bond": True}),
        ("cutoff", PAIR, {"max_bond": 2, "cutoff": -1e-3}),
        ("cutoff", PAIR, {"max_bond": 2, "cutoff": float("nan")}),
        ("cutoff", PAIR, {"max_bond": 2, "cutoff": 1}),
        ("cutoff", PAIR, {"max_bond": 2, "cutoff": "1e-3"}),
        ("cutoff", PAIR, {"cutoff": 1e-3}),
        ("max_bond", ("ab,ab->", np.ones((0, 3)), np.ones((0, 3))), {"max_bond": 2}),
        ("array 1", ("a,a->", [1.0, 2.0], [np.inf, 1.0]), {"max_bond": 2}),
        ("array 0", ("a,a->", [np.nan, 2.0], [1.0, 1.0]), {"max_bond": 2}),
        ("arrays", ("a,a->", [1, 2], [3, 4]), {"max_bond": 2}),
        ("optimize", PAIR, {"max_bond": 2, "optimize": "greedy"}),
        ("hardware", PAIR, {"max_bond": 2, "hardware": "cpu"}),
        ("precision", PAIR, {"max_bond": 2, "precision": "single"}),
        ("devices", PAIR, {"max_bond": 2, "devices": 0}),
        ("strip_exponent", PAIR, {"max_bond": 2, "strip_exponent": True}),
        ("algebra", PAIR, {"max_bond": 2, "algebra": "max-plus"}),
        ("out", PAIR, {"max_bond": 2, "out": np.zeros(())}),
        ("device", PAIR, {"max_bond": 2, "device": "tpu"}),
        ("threads", PAIR, {"max_bond": 2, "threads": 0}),
        ("memory", PAIR, {"max_bond": 2, "memory": -1}),
    ],
)
def test_what_cannot_be_done_is_refused(place: str, arguments: Any, options: dict[str, Any]) -> None:
    with pytest.raises(tnplan.InputError, match=f"^{place}: ") as caught:
        tnplan.contract(*arguments, **options)
    assert "\n" not in str(caught.value)


def shares(seeds: Iterable[int]) -> dict[str, tuple[int, float]]:
    """Of each kind how many values were cut, and the share whose error the estimate covers."""
    covered: dict[str, list[bool]] = {"lattice": [], "circuit": [], "graph": []}
    for seed in seeds:
        kind, arguments, bond = case(seed)
        found = tnplan.contract(*arguments, max_bond=bond, mode="compressed")
        exact = tnplan.contract(*arguments)
        error = abs(found.value - exact)
        if found.exact:
            assert error <= 1e-11 * abs(exact), seed
        else:
            covered[kind].append(error <= found.error_estimate * abs(found.value))
    return {kind: (len(those), float(np.mean(those))) for kind, those in covered.items()}


def test_the_estimate_covers_the_error() -> None:
    found = shares(range(FIRST_SEED, FIRST_SEED + 60))
    assert sum(number for number, _ in found.values()) > 20
    assert sum(number * share for number, share in found.values()) >= 0.9 * sum(n for n, _ in found.values())


@pytest.mark.slow
def test_the_estimate_covers_the_error_of_every_kind_in_nine_cases_of_ten() -> None:
    found = shares(range(FIRST_SEED, FIRST_SEED + 750))
    assert sum(number for number, _ in found.values()) >= 300
    assert min(share for _, share in found.values()) >= 0.9, found


@pytest.mark.parametrize("count", slow_after(1, [6, 60]))
def test_the_estimate_covers_what_the_cutoff_leaves_out(count: int) -> None:
    """Of norms of PEPS with positive tensors: singular values fall fast, and those below the cutoff count."""
    covered = []
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        random = np.random.default_rng(seed)
        side, low = int(random.integers(5, 8)), float(random.choice([0.3, 0.7, 1.5]))
        arguments = peps_norm(side, low, random)
        exact = float(tnplan.contract(*arguments))
        found = tnplan.contract(*arguments, max_bond=int(random.choice([8, 12, 24])))
        if not found.exact:
            covered.append(abs(float(found.value) / exact - 1) <= found.error_estimate)
    assert len(covered) >= count // 2
    assert np.mean(covered) >= 0.9


@pytest.mark.parametrize("seed", range(FIRST_SEED + 3 * 10**6, FIRST_SEED + 3 * 10**6 + 4))
def test_the_cutoff_changes_norms_of_positive_peps_by_no_more_than_a_few_of_it(seed: int) -> None:
    """Where a neighbour of both ends of a bond is a weight of both, two of these change by 200 cutoffs."""
    changes = []
    for side in (6, 7):
        arguments = peps_norm(side, 4.0, np.random.default_rng(seed))
        first, second = (tnplan.contract(*arguments, max_bond=12, cutoff=cutoff) for cutoff in (1e-10, 0))
        changes.append(abs(first.value / second.value - 1) / 1e-10)
    assert 0 < max(changes) < 8, changes


@pytest.mark.parametrize("seed", range(6))
def test_few_of_many_singular_values_lose_no_more(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By subspace iteration a cut leaves out what all singular values do, to a share of it."""
    arguments = grid(seed, rows=5, extent=8, low=(-0.9, -0.6, -0.3)[seed % 3])
    few = tnplan.contract(*arguments, max_bond=8, cutoff=1e-6)
    monkeypatch.setattr(bond_limited, "FEW_OF_MANY", np.inf)
    all_values = tnplan.contract(*arguments, max_bond=8, cutoff=1e-6)
    assert few.discarded_weight == pytest.approx(all_values.discarded_weight, rel=0.02)
    assert few.value == pytest.approx(all_values.value, rel=0.1 * few.error_estimate)
    assert few.value != all_values.value


@pytest.mark.parametrize("seed", range(20))
def test_open_indices_that_lose_nothing_are_exact(seed: int) -> None:
    network, arrays = closed(seed)
    random = np.random.default_rng(seed)
    names = sorted(network.size_dict)
    output = tuple(random.permutation(names)[: int(random.integers(1, 5))].tolist())
    network = tnplan.Network(network.inputs, output, network.size_dict)
    found = tnplan.contract(network, *arrays, max_bond=ENOUGH)
    assert found.exact
    assert found.value.shape == tuple(network.size_dict[index] for index in output)
    sizes = tnplan.contract(network, *[abs(array) for array in arrays])
    assert (abs(found.value - tnplan.contract(network, *arrays)) <= 1e-12 * sizes).all()


def opened(seed: int) -> tuple[Arguments, int]:
    """One of the closed networks with an open index on some tensors."""
    _, arguments, bond = case(seed)
    random = np.random.default_rng([seed, 1])
    output = []
    for number in random.permutation(len(arguments) // 2)[: int(random.integers(1, 5))].tolist():
        array, labels = arguments[2 * number : 2 * number + 2]
        values = random.uniform(-0.5, 1, (*array.shape, 2))
        arguments[2 * number : 2 * number + 2] = array[..., None] * values, [*labels, f"out {number}"]
        output.append(f"out {number}")
    return [*arguments[:-1], output], bond


@pytest.mark.parametrize("count", slow_after(1, [20, 300]))
def test_the_estimate_covers_the_error_of_arrays(count: int) -> None:
    covered = []
    for seed in range(FIRST_SEED + 10**6, FIRST_SEED + 10**6 + count):
        arguments, bond = opened(seed)
        found = tnplan.contract(*arguments, max_bond=bond)
        if not found.exact:
            error = np.linalg.norm(found.value - tnplan.contract(*arguments))
            covered.append(error <= found.error_estimate * np.linalg.norm(found.value))
    assert len(covered) > count / 3
    assert np.mean(covered) >= 0.9


def test_states_of_quimb_are_taken_and_too_many_open_indices_refused() -> None:
    quimb = pytest.importorskip("quimb.tensor")
    state = quimb.PEPS.rand(3, 3, 2, seed=1, dtype="complex128")
    found = tnplan.contract(state, max_bond=8)
    exact = state.contract(output_inds=state.outer_inds()).data
    assert np.linalg.norm(found.value - exact) < 1e-12 * np.linalg.norm(exact)
    norm = state.make_norm()
    assert tnplan.contract(norm, max_bond=16).value == pytest.approx(norm.contract(), rel=1e-6)
    vector = quimb.TN_from_edges_rand([(0, 1), (1, 2), (2, 0), (2, 3)], 3, phys_dim=2, seed=3)
    assert tnplan.contract(vector, max_bond=64).value.shape == (2, 2, 2, 2)
    with pytest.raises(tnplan.InputError, match="64 open indices; sum or fix open indices"):
        tnplan.contract(quimb.PEPS.rand(8, 8, 2, seed=1), max_bond=8)


def relative_gradients(arguments: Arguments) -> list[Any]:
    """The exact derivatives of the logarithm, by contraction without a limit."""
    arrays, terms = arguments[:-1:2], arguments[1:-1:2]
    sizes = {
        index: n
        for one, term in zip(arrays, terms, strict=True)
        for n, index in zip(one.shape, term, strict=True)
    }
    network = tnplan.Network(tuple(map(tuple, terms)), (), sizes)
    dtype = "complex128" if any(map(np.iscomplexobj, arrays)) else "float64"
    with tnplan.compile(network, dtype=dtype) as contraction:
        value, gradients = contraction.value_and_grad(*arrays)
    return [gradient / value for gradient in gradients]


def test_gradients_that_lose_nothing_are_exact() -> None:
    for seed in range(24):
        dtype = ("float64", "complex128")[seed % 2]
        network, arrays = closed(seed, dtype)
        found = tnplan.contract(network, *arrays, max_bond=ENOUGH)
        if not found.value:
            continue
        gradients = found.gradients()
        assert gradients.error_estimate == 0
        random = np.random.default_rng(seed)
        for number, gradient in enumerate(gradients.arrays):
            assert gradient.shape == arrays[number].shape
            # The value is linear in each tensor.
            changed = [*arrays]
            changed[number] = random.standard_normal(gradient.shape).astype(dtype)
            expected = tnplan.contract(network, *changed) / found.value
            size = abs(gradient * changed[number]).sum()
            assert abs((gradient * changed[number]).sum() - expected) < 1e-9 * size + 1e-12


@pytest.mark.parametrize("count", slow_after(1, [12, 240]))
def test_the_estimate_covers_the_error_of_gradients(count: int) -> None:
    covered = []
    for seed in range(FIRST_SEED + 2 * 10**6, FIRST_SEED + 2 * 10**6 + count):
        _, arguments, bond = case(seed)
        found = tnplan.contract(*arguments, max_bond=bond)
        if found.exact:
            continue
        gradients = found.gradients()
        pairs = list(zip(gradients.arrays, relative_gradients(arguments), strict=True))
        for gradient, array in zip(gradients.arrays, arguments[:-1:2], strict=True):
            assert (gradient * array).sum() == pytest.approx(1, abs=1e-6)
        error, size = (np.sqrt(sum(np.linalg.norm(x) ** 2 for x in parts)) for parts in (
            [one - exact for one, exact in pairs], gradients.arrays,
        ))  # fmt: skip
        covered.append(error <= gradients.error_estimate * size)
    assert len(covered) > count / 4
    assert np.mean(covered) >= 0.9


def test_gradients_come_closer_with_the_limit_and_follow_differences() -> None:
    arguments = grid(rows=6, extent=4, low=-0.3)
    exact = relative_gradients(arguments)
    errors = []
    for bond in (4, 12, 36):
        gradients = tnplan.contract(*arguments, max_bond=bond, mode="compressed").gradients().arrays
        errors.append(max(np.abs(one - other).max() for one, other in zip(gradients, exact, strict=True)))
    assert errors[2] < errors[1] / 50
    assert errors[1] < errors[0] / 5
    direction, step = np.random.default_rng(0).standard_normal(arguments[8].shape), 1e-5
    values = []
    for sign in (1, -1):
        changed = [*arguments]
        changed[8] = arguments[8] + sign * step * direction
        values.append(tnplan.contract(*changed, max_bond=36).value)
    slope = (values[0] - values[1]) / (2 * step) / tnplan.contract(*arguments, max_bond=36).value
    assert (gradients[4] * direction).sum() == pytest.approx(slope, rel=1e-4)


def test_gradients_that_there_are_not_are_refused() -> None:
    vectors = np.ones((2, 2)), np.ones((2, 2))
    with pytest.raises(tnplan.InputError, match=r"^gradients: are those of a single number"):
        tnplan.contract("ab,bc->ac", *vectors, max_bond=2).gradients()
    with pytest.raises(tnplan.InputError, match=r"^gradients: are relative to the value, and it is 0"):
        tnplan.contract("ab,ab->", vectors[0], 0 * vectors[1], max_bond=2).gradients()


@pytest.mark.slow
def test_a_large_peps_stays_within_floating_point() -> None:
    """Its norm is 10^365.6626, by quimb 1.15's `contract_boundary(max_bond=8)`."""
    quimb = pytest.importorskip("quimb.tensor")
    state = quimb.PEPS.rand(16, 16, bond_dim=2, seed=0, dtype="float64", dist="uniform", loc=0.5)
    found = tnplan.contract(state.H & state, max_bond=4)
    assert np.log10(found.mantissa) + found.exponent == pytest.approx(365.6626, abs=2e-3)
