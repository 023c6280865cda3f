"""The search: paths that keep the limit, cost what they say, and give the network's value."""

from __future__ import annotations

import json
import math
import random
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import cotengra
import numpy as np
import pytest
from click.testing import CliRunner

from tests.support.networks import random_path
from tests.support.robustness.refusals import Refusal, Row, table
from tests.support.search import search_path
from tnplan.cli.main import cli
from tnplan.cli.option_types import COUNT, QUBITS
from tnplan.common.errors import InputError
from tnplan.common.units import size_in_bytes
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.importers import from_cotengra, read_network
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import load_path, save_network, save_path
from tnplan.planner.networks.tensors import load_tensors, random_tensors
from tnplan.planner.search.annealing import Effort, seeded
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.workloads.mixed import peps_network, regular_network

SMALL = Effort(time_s=60, max_trials=6, max_rounds=3)
LATTICE = peps_network(5, 5, 0, extents=(2, 3))


def rebuilt(path: ContractionPath) -> tuple[Any, dict[str, str]]:
    """cotengra's tree of a path, its slices removed, and the symbol of each index."""
    symbols: dict[str, str] = {}
    for term in path.network.inputs:
        for index in term:
            symbols.setdefault(index, cotengra.get_symbol(len(symbols)))
    tree = cotengra.ContractionTree.from_path(
        [tuple(symbols[index] for index in term) for term in path.network.inputs],
        tuple(symbols[index] for index in path.network.output),
        {symbols[index]: size for index, size in path.network.size_dict.items() if index in symbols},
        ssa_path=path.ssa_path,
    )
    for index in path.sliced_inds:
        tree.remove_ind_(symbols[index])
    return tree, symbols


def largest_elements(path: ContractionPath) -> float:
    """The largest tensor of a slice: cotengra's count, and the inputs."""
    tree, _ = rebuilt(path)
    sizes = {**path.network.size_dict, **dict.fromkeys(path.sliced_inds, 1)}
    inputs = [math.prod(sizes[index] for index in set(term)) for term in path.network.inputs]
    return max(tree.max_size(), *inputs)


@pytest.mark.parametrize("limit", [None, 2**10, 2**7])
def test_limit_is_kept_and_the_value_is_right(limit: int | None) -> None:
    path = search_path(LATTICE, "complex128", max_tensor_elements=limit, effort=SMALL)
    assert limit is None or largest_elements(path) <= limit
    assert (path.n_slices > 1) == (limit is not None and limit < 2**10)
    assert not set(path.sliced_inds) & set(LATTICE.output)
    tree, _ = rebuilt(path)
    arrays = random_tensors(LATTICE, "complex128", 0)
    expected = cotengra.array_contract(arrays, LATTICE.inputs, LATTICE.output, optimize="greedy")
    assert np.allclose(tree.contract(arrays), expected, rtol=1e-10)


@pytest.mark.parametrize("limit", [None, 2**8])
def test_figures_are_cotengra_s(limit: int | None) -> None:
    path = search_path(LATTICE, "complex64", max_tensor_elements=limit, effort=SMALL)
    tree, _ = rebuilt(path)
    figures = path_cost(path)
    assert figures.n_slices == tree.nslices
    assert figures.log10_mnk_all_slices == pytest.approx(math.log10(tree.total_flops()), abs=1e-12)
    assert 2**figures.log2_largest == pytest.approx(largest_elements(path))
    assert path.meta["log10_mnk_all_slices"] == round(figures.log10_mnk_all_slices, 4)
    assert path.meta["log2_limit"] == (None if limit is None else 8)


def test_figures_of_a_known_path() -> None:
    """(ab, bc) costs 2*3*4, then (ac, cd) 2*4*5; with b sliced each of 3 slices has 2*4 and 2*4*5."""
    network = Network((("a", "b"), ("b", "c"), ("c", "d")), ("a", "d"), {"a": 2, "b": 3, "c": 4, "d": 5})
    steps = ((0, 1), (3, 2))
    whole, sliced = (path_cost(ContractionPath(network, steps, s)) for s in ((), ("b",)))
    assert whole.log10_mnk_all_slices == pytest.approx(math.log10(24 + 40))
    assert sliced.log10_mnk_all_slices == pytest.approx(math.log10(3 * (8 + 40)))
    assert whole.log2_largest == sliced.log2_largest == pytest.approx(math.log2(20))


def test_same_seed_same_path() -> None:
    network = regular_network(40, 0, extents=(2, 3))
    found = [
        search_path(network, "complex64", max_tensor_elements=2**8, effort=SMALL, seed=s) for s in (1, 1, 2)
    ]
    assert (found[0].ssa_path, found[0].sliced_inds) == (found[1].ssa_path, found[1].sliced_inds)
    assert (found[0].ssa_path, found[0].sliced_inds) != (found[2].ssa_path, found[2].sliced_inds)


def test_slicing_is_part_of_the_search() -> None:
    """Cutting the best unsliced tree afterwards costs more than the tree that was searched with the limit."""
    network = peps_network(7, 7, 2, extents=(2, 3))
    effort = Effort(time_s=60, max_trials=6, max_rounds=4)
    tree, _ = rebuilt(search_path(network, "complex64", effort=effort))
    afterwards = tree.slice(target_size=2**9, allow_outer=False, seed=0)
    inside = search_path(network, "complex64", max_tensor_elements=2**9, effort=effort)
    assert 10 ** path_cost(inside).log10_mnk_all_slices < afterwards.total_flops()


def test_start_from_a_path() -> None:
    start = search_path(LATTICE, "complex64", effort=Effort(60, 1, 0))
    same = search_path(LATTICE, "complex64", from_paths=[start], effort=Effort(60, 1, 0))
    assert path_cost(same) == path_cost(start)
    better = search_path(LATTICE, "complex64", from_paths=[start], effort=SMALL)
    assert path_cost(better).log10_mnk_all_slices < path_cost(start).log10_mnk_all_slices
    sliced = search_path(LATTICE, "complex64", from_paths=[start], max_tensor_elements=2**7, effort=SMALL)
    assert largest_elements(sliced) <= 2**7
    with pytest.raises(InputError, match="start: is a path of another network"):
        search_path(peps_network(3, 3, 0), "complex64", from_paths=[start], effort=SMALL)
    with pytest.raises(InputError, match="start: is given 2 times; give one path, or use method joint"):
        search_path(LATTICE, "complex64", from_paths=[start, better], effort=SMALL)


@pytest.mark.parametrize("seed", range(40))
def test_odd_networks(seed: int) -> None:
    """Hyper-indices, traces, scalars, disconnected parts, single tensors, extents of 1."""
    given = random_path(seed)
    network = given.network
    path = search_path(network, given.dtype, effort=Effort(60, 2, 1), from_paths=[given] if seed % 2 else [])
    limit = max(network.output_size, 4)
    small = search_path(network, given.dtype, max_tensor_elements=limit, effort=Effort(60, 2, 1))
    assert largest_elements(small) <= limit
    for found in (path, small):
        assert all(network.size_dict[index] > 1 for index in found.sliced_inds)
        assert all(len(step) == 2 for step in found.ssa_path)


def test_memory_is_room_for_three_tensors() -> None:
    path = search_path(LATTICE, "complex64", memory_bytes=3 * 8 * 2**8 + 7, effort=SMALL)
    assert path.meta["log2_limit"] == 8


def test_workers_take_the_best() -> None:
    alone = [search_path(LATTICE, "complex64", effort=Effort(60, 1, 1), seed=seed) for seed in (0, 1)]
    together = search_path(LATTICE, "complex64", effort=Effort(60, 1, 1), seed=0, n_workers=2)
    best = min(path_cost(path).log10_mnk_all_slices for path in alone)
    assert path_cost(together).log10_mnk_all_slices == best


def test_time_is_kept_and_progress_told() -> None:
    told: list[tuple[float, ContractionPath]] = []
    network = peps_network(7, 7, 1, extents=(2, 3))
    before = time.monotonic()
    path = search_path(
        network, "complex64", effort=Effort(1.0), report=lambda elapsed, found: told.append((elapsed, found))
    )
    assert 0.5 < time.monotonic() - before < 3.0
    costs = [path_cost(found).log10_mnk_all_slices for _, found in told]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == path_cost(path).log10_mnk_all_slices


def test_global_random_state_is_left_alone() -> None:
    random.seed(5)
    expected = random.random()
    random.seed(5)
    search_path(LATTICE, "complex64", effort=Effort(60, 1, 1))
    assert random.random() == expected


def test_searches_of_several_threads_draw_what_each_draws_alone() -> None:
    """And leave the global random state alone, in whatever order they end."""

    def draws(seed: int) -> list[float]:
        with seeded(seed):
            found = []
            for _ in range(20):
                found.append(random.random())
                time.sleep(1e-3)
            return found

    alone = [draws(seed) for seed in range(4)]
    random.seed(5)
    expected = random.random()
    random.seed(5)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(draws, range(4))) == alone
    assert random.random() == expected


# fmt: off
WRONG_OPTIONS: list[Row] = [
    ({"max_tensor_elements": 0}, "--max-tensor", "is 0", "give one element or more"),
    ({"max_tensor_elements": 1}, "--max-tensor", "is 1, but the result itself", "open fewer indices, or"),
    ({"max_tensor_elements": 64, "memory_bytes": 64}, "--max-tensor",
     "is given together with a memory limit", "give either a limit"),
    ({"minimize": "luck"}, "--minimize", "'luck' is unknown", "choose from flops"),
    ({"methods": ("best",)}, "--method", "'best' is unknown", "choose from joint"),
    ({"methods": ()}, "--method", "is empty", "choose from greedy"),
    ({"seed": -1}, "--seed", "is -1", "give an integer from 0"),
    ({"n_workers": 0}, "--workers", "is 0", "give an integer from 1"),
    ({"effort": Effort(math.nan)}, "--time", "is nan", "give 0 or more"),
]
# fmt: on


@table(WRONG_OPTIONS)
def test_wrong_options_are_named(refusal: Refusal) -> None:
    refusal.raised_by(lambda: search_path(LATTICE, "complex64", **refusal.given))


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """circuit -> network -> path, in files that name each other."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.qsim").write_text(
        "3\n0 h 0\n0 h 1\n0 h 2\n1 fs 0 1 0.3 0.2\n2 fs 1 2 0.5 0.1\n3 fs 0 1 1 1\n"
    )
    (tmp_path / "out").mkdir()
    runner = CliRunner()
    done = runner.invoke(cli, ["network", "c.qsim", "--open", "2,0", "--no-simplify", "-o", "net.json"])
    assert done.exit_code == 0, done.output
    done = runner.invoke(
        cli,
        ["search", "net.json", "--max-tensor", "2^4", "--time", "1", "--json", "-o", "out/p.json"],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.output
    path = load_path("out/p.json")
    assert json.loads(done.stdout)["path"] == "out/p.json"
    assert path.tensors == "../net.npz"
    assert path.name == "net"
    assert 2 ** path_cost(path).log2_largest <= 16
    arrays = load_tensors("out/../net.npz", path.network, path.dtype)
    assert path.network.output_shape == (2, 2)
    tree, _ = rebuilt(path)
    assert np.asarray(tree.contract(arrays)).shape == (2, 2)
    again = runner.invoke(
        cli,
        [
            "search",
            "out/p.json",
            "--devices",
            "2",
            "--hardware",
            "cpu",
            "--from",
            "out/p.json",
            "--from",
            "out/p.json",
            "--time",
            "0",
            "-o",
            "q.json",
        ],
        catch_exceptions=False,
    )
    assert again.exit_code == 0, again.output
    assert load_path("q.json").tensors == "net.npz"
    assert load_path("q.json").meta["log2_limit"] == pytest.approx(math.log2(2 * 4e9 // 24), abs=1e-3)


def test_command_line_takes_cotengra_s_networks(tmp_path: Path) -> None:
    inputs, output, _, sizes = cotengra.utils.rand_equation(8, 3, d_min=2, d_max=3, seed=3)
    cotengra.utils.save_to_json(inputs, output, sizes, str(tmp_path / "net.json"))
    done = CliRunner().invoke(
        cli,
        [
            "search",
            str(tmp_path / "net.json"),
            "--unlimited",
            "--dtype",
            "float64",
            "--time",
            "1",
            "-o",
            str(tmp_path / "p.json"),
        ],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.output
    path = load_path(tmp_path / "p.json")
    assert (path.dtype, path.tensors, path.sliced_inds) == ("float64", None, ())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one limit"),
        (["--devices", "2"], "--devices and --hardware belong together"),
        (["--unlimited", "--max-tensor", "4"], "give one limit"),
        (["--max-tensor", "2^"], "'2^' is not a count"),
        (["--max-tensor", "0"], "'0' is not a count"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], message: str) -> None:
    save_network(LATTICE, tmp_path / "n.json", dtype="float32")
    done = CliRunner().invoke(cli, ["search", str(tmp_path / "n.json"), *arguments])
    assert isinstance(done.exception, InputError | SystemExit)
    assert message in done.output + getattr(done.exception, "line", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["sycamore", "--cycles", "2", "--amplitude", "0" * 52 + "."],
        ["peps", "--rows", "3", "--columns", "4", "--dtype", "float64"],
        ["peps", "--rows", "2", "--columns", "3", "--bond", "8", "--hyper", "0", "--dtype", "float64"],
        ["regular", "--tensors", "12", "--seed", "3"],
    ],
)
def test_workloads(tmp_path: Path, arguments: list[str]) -> None:
    done = CliRunner().invoke(
        cli, ["workload", *arguments, "-o", str(tmp_path / "n.json")], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    network, dtype, place, _ = read_network(tmp_path / "n.json")
    assert place is not None
    assert len(load_tensors(place, network, dtype)) == len(network.inputs)


def test_outputs_are_checked_first(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="its folder does not exist"):
        CliRunner().invoke(
            cli,
            ["workload", "sycamore", "--cycles", "2", "-o", str(tmp_path / "no" / "n.json")],
            catch_exceptions=False,
        )
    save_path(
        from_cotengra(cotengra.array_contract_tree([("a",), ("a",)], (), {"a": 2})), tmp_path / "p.json"
    )
    with pytest.raises(InputError, match="is a folder"):
        CliRunner().invoke(
            cli,
            ["search", str(tmp_path / "p.json"), "--unlimited", "-o", str(tmp_path)],
            catch_exceptions=False,
        )


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("7", 7),
        ("1.5GiB", 3 * 2**29),
        ("80GB", 80e9),
        ("64 kib", 65536),
        ("2kB", 2000),
        ("unlimited", math.inf),
    ],
)
def test_sizes(text: str, size: float) -> None:
    value = size_in_bytes(text, "--memory")
    assert value == size
    assert isinstance(value, int) == (text != "unlimited")
    assert size_in_bytes(value, "--memory") == value


@pytest.mark.parametrize("text", ["", "0", "-1", "GiB", "1PB", "1e9", "0.2", "nan", "1" * 40, "9" * 400])
def test_wrong_sizes(text: str) -> None:
    with pytest.raises(InputError, match="is not a size"):
        size_in_bytes(text, "--memory")
    with pytest.raises(InputError, match="is not a size"):
        size_in_bytes("unlimited", "--threshold", unlimited=False)


def test_counts_and_qubits() -> None:
    assert [COUNT.convert(text, None, None) for text in ("12", "2^32", "2**5", "10^6")] == [
        12,
        2**32,
        32,
        10**6,
    ]
    for text in ("", "0", "2^", "-2", "2^200", "1.5", "9^99"):
        with pytest.raises(click.BadParameter, match="is not a count"):
            COUNT.convert(text, None, None)
    assert QUBITS.convert("0,3,12", None, None) == (0, 3, 12)
    for text in ("", "0,", "a", "1 2", "-1"):
        with pytest.raises(click.BadParameter, match="names no qubits"):
            QUBITS.convert(text, None, None)


@pytest.mark.skipif(find_spec("kahypar") is not None, reason="kahypar is installed")
def test_a_method_that_is_not_installed_names_the_extra() -> None:
    with pytest.raises(InputError, match=r"kahypar is not installed.*tnplan\[search\]"):
        search_path(Network((("a",), ("a",)), (), {"a": 2}), "complex64", methods=("kahypar",))
