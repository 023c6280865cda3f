"""The best order of few tensors: no other order of pairs has fewer multiply-adds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations
from math import prod
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tnplan.calls.search import search
from tnplan.cli.main import cli
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import save_network
from tnplan.planner.search import driver, few_tensors
from tnplan.planner.search.annealing import Effort
from tnplan.planner.search.cotengra_search import search_path
from tnplan.planner.search.few_tensors import cheapest_path
from tnplan.planner.search.path_cost import objective_log2, path_cost
from tnplan.planner.search.round_policy import Round
from tnplan.planner.search.search_in_proportion import greedy_path
from tnplan.planner.search.search_options import SearchOptions

Pairs = tuple[tuple[int, ...], ...]


def random_network(rng: random.Random, n_tensors: int, least: int = 0) -> Network:
    """Tensors of few indices, which may repeat, stand on several tensors, or on the output too."""
    labels = [f"i{number}" for number in range(rng.randint(1, n_tensors + 2))]
    terms = tuple(tuple(rng.choices(labels, k=rng.randint(least, 3))) for _ in range(n_tensors))
    present = sorted(set().union(*terms))
    output = tuple(rng.sample(present, rng.randint(0, min(3, len(present)))))
    return Network(terms, output, {label: rng.randint(1, 6) for label in present})


def products(network: Network, path: Pairs) -> int:
    """The multiply-adds of all steps; what is on one tensor alone is summed before."""
    live = dict(enumerate(map(set, network.inputs)))

    def left(tensor: set[str]) -> set[str]:
        return tensor & set(network.output).union(*live.values())

    for number in list(live):
        live[number] = left(live.pop(number))
    count = 0
    for number, (a, b) in enumerate(path, len(network.inputs)):
        joined = live.pop(a) | live.pop(b)
        count += prod(network.size_dict[index] for index in joined)
        live[number] = left(joined)
    return count


def every_path(live: tuple[int, ...], number: int) -> Iterator[Pairs]:
    """All orders of pairs."""
    if len(live) == 1:
        yield ()
    for pair in combinations(live, 2):
        rest = tuple(tensor for tensor in live if tensor not in pair)
        for path in every_path((*rest, number), number + 1):
            yield (pair, *path)


@pytest.mark.parametrize("n_tensors", [1, 2, 3, 4, 5])
def test_no_other_order_is_cheaper(n_tensors: int) -> None:
    for seed in range(60 if n_tensors < 5 else 15):
        network = random_network(random.Random(seed), n_tensors)
        path = cheapest_path(network)
        assert path is not None
        least = min(products(network, other) for other in every_path(tuple(range(n_tensors)), n_tensors))
        assert products(network, path) == least, seed


@pytest.mark.parametrize("n_tensors", range(2, 11))
def test_both_ways_find_the_same_cost(n_tensors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(40 if n_tensors < 9 else 5):
        network = random_network(random.Random(seed), n_tensors)
        costs = set()
        for few in (0, few_tensors.MOST_TENSORS):
            monkeypatch.setattr(few_tensors, "FEW", few)
            path = cheapest_path(network)
            assert path is not None
            ContractionPath(network, path, (), "float64")  # refuses what is not a path
            costs.add(products(network, path))
        assert len(costs) == 1, seed
        assert costs.pop() <= products(network, greedy_path(network))


def test_long_rows_take_few_pairs() -> None:
    terms = tuple((f"i{k}", f"i{k + 1}") for k in range(10))
    network = Network(terms, ("i0", "i10"), {f"i{k}": 2 + k for k in range(11)})
    path = cheapest_path(network)
    assert path is not None
    # The costs of products of matrices, from left to right: no order of such extents is better.
    left_to_right = sum(2 * (2 + k) * (3 + k) for k in range(1, 10))
    assert products(network, path) == left_to_right
    assert path_cost(ContractionPath(network, path, (), "float64")).n_slices == 1


def test_tensors_without_a_common_index_are_joined() -> None:
    terms = tuple((f"a{k}",) for k in range(few_tensors.MOST_TENSORS))
    path = cheapest_path(Network(terms, (), {term[0]: 2 + k for k, term in enumerate(terms)}))
    assert path is not None
    assert len(path) == len(terms) - 1


def test_what_is_too_large() -> None:
    many = Network((("a",),) * (few_tensors.MOST_TENSORS + 1), (), {"a": 2})
    assert cheapest_path(many) is None
    huge = {f"i{k}": 2**40 for k in range(26)}
    assert cheapest_path(Network((tuple(huge), tuple(huge)), (), huge)) is None


RING = Network(
    tuple((f"i{k}", f"i{(k + 1) % 5}") for k in range(5)), (),
    {f"i{k}": size for k, size in enumerate((7, 3, 5, 2, 4))},
)  # fmt: skip
DEVICES = {"devices": 8, "hardware": "h200-nvlink"}


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of all rounds of searches."""
    kinds: list[str] = []

    def counted(task: Any, given: Round, *rest: Any) -> Any:
        kinds.append(given.kind)
        return carry_out(task, given, *rest)

    carry_out = driver.carry_out
    monkeypatch.setattr(driver, "carry_out", counted)
    return kinds


def least_of(network: Network, minimize: str) -> float:
    """log2 of what an objective counts of the best path without slices."""
    n = len(network.inputs)
    return min(
        objective_log2(ContractionPath(network, path), minimize) for path in every_path(tuple(range(n)), n)
    )


@pytest.mark.parametrize("minimize", ["flops", "write", "combo"])
def test_no_round_follows_the_optimum(minimize: str, rounds: list[str]) -> None:
    """Nor are there any where the limit takes nothing from it."""
    for limit in ({"unlimited": True}, {"max_tensor": 1000}):
        path = search(RING, time=1e6, minimize=minimize, **limit)
        assert objective_log2(path, minimize) == pytest.approx(least_of(RING, minimize))
    assert rounds == []


@pytest.mark.parametrize("options", [{"minimize": "size"}, {"minimize": "peak"}, DEVICES])
def test_few_rounds_follow_where_nothing_is_gained(options: dict[str, Any], rounds: list[str]) -> None:
    """Of a search that may take a week."""
    path = search(RING, unlimited=True, time=6e5, **options)
    minimize = options.get("minimize", "flops")
    assert objective_log2(path, minimize) == pytest.approx(least_of(RING, minimize))
    assert driver.IDLE_ROUNDS <= len(rounds) < 4 * driver.IDLE_ROUNDS
    assert ("near" in rounds) == ("devices" in options)


def test_the_command_line_ends_early_too(tmp_path: Path, rounds: list[str]) -> None:
    save_network(RING, tmp_path / "n.json", dtype="complex64")
    line = [
        "search",
        str(tmp_path / "n.json"),
        "--unlimited",
        "--time",
        "6e5",
        "-o",
        str(tmp_path / "p.json"),
    ]
    done = CliRunner().invoke(cli, line, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert rounds == []


def test_a_search_with_slices_goes_on(rounds: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "MOVES_PER_TENSOR", 2_000)
    most = 4 * driver.IDLE_ROUNDS
    options = SearchOptions(
        max_tensor_elements=7, methods=("joint",), minimize="flops", effort=Effort(600.0, 1, most)
    )
    assert search_path(RING, "complex64", options).sliced_inds
    assert len(rounds) >= most
