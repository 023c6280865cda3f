"""The planner's passes: tree, mode order, layouts, states, dynamic programming, memory, refusals."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from math import inf, prod

import cotengra
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.networks import eager_profile, random_path, window
from tests.support.robustness.refusals import Refusal, Row, table
from tests.support.slow import slow_after, slow_but
from tnplan.common.errors import InputError
from tnplan.planner.hardware.cost import CostModel, make_grid
from tnplan.planner.hardware.process_grid import (
    Digit,
    box,
    box_shape,
    grid_size,
    group_sizes,
    intersect,
    prime_factors,
    rank_digits,
    rank_of,
)
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.passes import pipeline
from tnplan.planner.passes.lowering.buffer_assignment import Lifetime, assign
from tnplan.planner.passes.pipeline import Planner, plan
from tnplan.planner.passes.sharding import policies
from tnplan.planner.passes.sharding.search import distribute, step_modes
from tnplan.planner.passes.sharding.sharded_tree import assign_digits
from tnplan.planner.passes.sharding.states import StateSpace
from tnplan.planner.passes.tree.build import build, mode_orders

SEEDS = range(150)


@pytest.mark.parametrize("seed", SEEDS)
def test_tree_costs_are_cotengras(seed: int) -> None:
    path = random_path(seed)
    if any(len(step) != 2 for step in path.ssa_path) or len(path.network.inputs) < 2:
        path = ContractionPath(path.network, _pairs(len(path.network.inputs)), path.sliced_inds, path.dtype)
    network = path.network
    terms = [tuple(dict.fromkeys(term)) for term in network.inputs]
    ours = build(path)
    theirs = cotengra.ContractionTree.from_path(
        terms, network.output, network.size_dict, ssa_path=path.ssa_path
    )
    for index in path.sliced_inds:
        theirs.remove_ind_(index)
    legs = [ours.extent(ours.legs[ours.n_leaves + number]) for number in range(len(ours.children))]
    assert sorted(legs) == sorted(theirs.get_size(parent) for parent, _, _ in theirs.traverse())


def _pairs(count: int) -> tuple[tuple[int, int], ...]:
    return tuple((0 if not number else count + number - 1, number + 1) for number in range(count - 1))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_operand_is_batch_kept_reduced(seed: int) -> None:
    tree = build(random_path(seed))
    orders = mode_orders(tree)
    depth = tree.depths
    hyper = any(
        count > 2 for count in Counter(m for leaf in range(tree.n_leaves) for m in tree.legs[leaf]).values()
    )
    for number, (left, right) in enumerate(tree.children):
        output = orders[tree.n_leaves + number]
        shared = set(orders[left]) & set(orders[right])
        batch = tuple(mode for mode in output if mode in shared)
        reduced = tuple(mode for mode in orders[left] if mode not in output)
        for node in (left, right):
            own = tuple(mode for mode in output if mode in orders[node] and mode not in batch)
            assert orders[node] == (*batch, *own, *reduced)
    if not hyper and not tree.output:
        for node in range(tree.n_nodes):
            ends = [depth[tree.death[mode]] for mode in orders[node]]  # type: ignore[index]
            assert ends == sorted(ends), "modes are not sorted by remaining lifetime"


@pytest.mark.parametrize("seed", SEEDS)
def test_slots_tell_the_modes_of_a_step_apart(seed: int) -> None:
    tree = build(random_path(seed))
    for left, right in tree.children:
        modes = set(tree.legs[left]) | set(tree.legs[right])
        assert len({tree.slots[mode] for mode in modes}) == len(modes)
        assert all(tree.slot_extents[tree.slots[mode]] == tree.modes[mode].extent for mode in modes)


@given(st.lists(st.sampled_from([2, 3, 5]), min_size=1, max_size=4), st.data())
def test_shards_partition_a_tensor(radices: list[int], data: st.DataObject) -> None:
    grid = tuple(Digit(radix, 0) for radix in radices)
    extents = {mode: data.draw(st.integers(2, 6)) for mode in range(4)}
    free = list(extents)
    layout = []
    for digit in grid:
        fitting = [mode for mode in free if extents[mode] >= digit.radix]
        mode = data.draw(st.sampled_from([None, *fitting]))
        layout.append(mode)
        if mode is not None:
            free.remove(mode)
    seen: Counter[tuple[int, ...]] = Counter()
    for rank in range(grid_size(grid)):
        digits = rank_digits(rank, grid)
        assert rank_of(digits, grid) == rank
        bounds = box(list(extents), tuple(layout), extents, digits, grid)
        assert all(size > 0 for size in box_shape(bounds))
        seen.update(itertools.product(*(range(*bound) for bound in bounds)))
    replicas = prod(digit.radix for digit, mode in zip(grid, layout, strict=True) if mode is None)
    assert len(seen) == prod(extents.values())
    assert set(seen.values()) == {replicas}


def test_grid_puts_slow_tiers_first_and_fills_nodes() -> None:
    profile = load_profile("dgx-h100")
    assert [digit.tier for digit in make_grid(64, profile)] == [1, 1, 1, 0, 0, 0]
    assert make_grid(6, profile) == (Digit(3, 0), Digit(2, 0))
    assert [digit.tier for digit in make_grid(12, profile)] == [1, 0, 0]
    assert prime_factors(360) == (5, 3, 3, 2, 2, 2)


def test_few_results_of_a_long_sum_are_bound_by_memory() -> None:
    """As measured on an H200: 8 x 8 results of 2^27 terms read at the copy's rate, 16 x 16 in 5.8 ms."""
    model = CostModel(load_profile("h200-nvlink"), "complex64", "fp32")

    def seconds(m: int, n: int, k: int) -> float:
        extents = model.short_extents(m * n * k, m * k, n * k, m * n)
        return model.contract_s(8 * (m + n) * k, 8 * m * n * k, extents)

    assert seconds(8, 8, 2**27) == pytest.approx(16 * 2**30 / model.profile.memory_bytes_per_s, rel=0.01)
    assert seconds(16, 16, 2**26) == pytest.approx(5.84e-3, rel=0.05)
    assert seconds(16, 32, 2**25) == pytest.approx(5.78e-3, rel=0.05)
    assert model.short_extents(16 * 16 * 1024, 16 * 1024, 16 * 1024, 256) == (16, 16)
    assert model.short_extents(64 * 64 * 2**20, 64 * 2**20, 64 * 2**20, 64 * 64) == (64, 64)


def test_a_product_has_the_mean_rate_of_its_short_extents() -> None:
    profile = load_profile("h200-nvlink")
    model = CostModel(profile, "complex64", "fp32")
    m, n, k = 2**24, 64, 512

    def rate(n: int, k: int) -> float:
        flops = 8.0 * m * n * k
        seconds = model.contract_s(0.0, flops, model.short_extents(m * n * k, m * k, k * n, m * n))
        return flops / (seconds - profile.launch_s)

    assert model.short_extents(m * n * k, k * n, m * k, m * n) == (n, k)
    assert rate(n, k) == pytest.approx((rate(n, n) * rate(k, k)) ** 0.5)
    assert rate(n, n) < rate(k, k)


@pytest.mark.parametrize("seed", range(60))
def test_predicted_exchanges_are_what_the_boxes_say(seed: int) -> None:
    """For even splits, the busiest rank receives exactly the bytes of the model, tier by tier."""
    chance = random.Random(seed)
    modes = tuple(range(7))
    names = tuple(f"m{mode}" for mode in modes)
    network = Network((names, names), (), {name: chance.choice((2, 2, 3)) for name in names})
    tree = build(ContractionPath(network, ((0, 1),)))
    grid = tuple(Digit(chance.choice((2, 2, 3)), tier) for tier in (1, 1, 0, 0))
    space = StateSpace(tree, grid, CostModel(eager_profile(), "complex64", None), inf)
    extents = {mode: entry.extent for mode, entry in enumerate(tree.modes)}

    def draw() -> tuple[tuple[int, ...], tuple[int | None, ...]]:
        free, layout = list(modes), []
        for digit in grid:
            even = [mode for mode in free if extents[mode] == digit.radix]
            layout.append(chance.choice([None, *even]) if even else None)
            if layout[-1] is not None:
                free.remove(layout[-1])
        state = tuple(
            sum(1 << tree.slots[layout[p]] for p in item.positions if layout[p] is not None)
            for item in space.classes
        )
        return state, tuple(layout)

    source, before = draw()
    target, _ = draw()
    needed = tuple(
        m if m is not None and any(s >> tree.slots[m] & 1 for s in target) else None for m in before
    )
    after = _place_like(space, tree, target, needed, before)
    predicted = space.exchange(tree.root - 1, source, target)
    received = []
    for rank in range(grid_size(grid)):
        digits = rank_digits(rank, grid)
        want, have = (box(modes, layout, extents, digits, grid) for layout in (after, before))
        common = intersect(want, have)
        received.append(8 * (prod(box_shape(want)) - (prod(box_shape(common)) if common else 0)))
    assert max(received) == pytest.approx(predicted.received_bytes)


def _place_like(space, tree, state, keep, before):  # type: ignore[no-untyped-def]
    from tnplan.planner.passes.sharding.sharded_tree import state_layout

    return state_layout(tree, space, state, tree.legs[0], keep, before)


def test_the_four_states_of_the_paper_and_reduce_occur() -> None:
    path = window(40, 12)
    for policy in policies.POLICIES:
        schedule = plan(path, eager_profile(), devices=8, ranks_per_group=8, memory_bytes=inf,
                        threshold_bytes=4096, policy=policy)  # fmt: skip
        states = Counter(step.state for step in schedule.steps)
        assert states["activate"] == 1, states
        assert states["keep"] > 20, states
        assert states["redistribute"] >= 2, states


def test_gather_ends_a_use_chain() -> None:
    steps, width = 12, 10
    chain = window(steps, width)
    inputs, sizes = list(chain.network.inputs), chain.network.size_dict
    for number in range(steps, steps + width):
        inputs.append((f"b{number}",))
    ssa = list(chain.ssa_path)
    remap = len(inputs) - len(chain.network.inputs)
    ssa = [tuple(t + remap if t >= len(chain.network.inputs) else t for t in step) for step in ssa]
    for number in range(width):
        ssa.append((len(inputs) + len(ssa) - 1, len(chain.network.inputs) + number))
    path = ContractionPath(Network(tuple(inputs), (), sizes), tuple(ssa))
    schedule = plan(path, eager_profile(), devices=4, ranks_per_group=4, memory_bytes=inf,
                    threshold_bytes=4096, policy="paper")  # fmt: skip
    states = [step.state for step in schedule.steps]
    assert states.index("activate") < states.index("keep") < states.index("gather") < len(states) - 1
    assert set(states[states.index("gather") + 1 :]) == {"local"}


@pytest.mark.parametrize("seed", slow_after(100, range(300)))
def test_never_slower_than_the_papers_policy(seed: int) -> None:
    path = random_path(seed)
    profile = eager_profile(node=(2, 8)[seed % 2])
    ranks = 1 + seed % 8
    common = {"devices": ranks, "ranks_per_group": ranks, "memory_bytes": inf, "threshold_bytes": 1}
    ours = plan(path, profile, **common)
    paper = plan(path, profile, policy="paper", **common)
    assert ours.projected_s(1) <= paper.projected_s(1) * (1 + 1e-12)


@pytest.mark.parametrize(
    "name",
    slow_but(
        ("sycamore",),
        ("zuchongzhi_n60_m24_b35_flops", "triangular_7x7_l24_b42_flops", "sycamore_n53_m20_b30_time"),
    ),
)
def test_never_slower_than_the_papers_policy_on_real_paths(name: str, shared) -> None:  # type: ignore[no-untyped-def]
    from tnplan.planner.networks.path_file import load_path

    path = load_path(shared / f"paths/{name}.json")
    for ranks in (8, 64, 1024):
        common = {
            "devices": ranks,
            "ranks_per_group": ranks,
            "memory_bytes": inf,
            "threshold_bytes": 8 * 2**30,
        }
        ours = plan(path, load_profile("dgx-h100"), **common)
        paper = plan(path, load_profile("dgx-h100"), policy="paper", **common)
        assert ours.projected_s(1) <= paper.projected_s(1)


def test_dynamic_programming_cost_is_the_cost_of_the_schedule() -> None:
    path = window(60, 14)
    planner = Planner(path, eager_profile(), inf, 4096)
    grid = make_grid(8, planner.profile)
    space = StateSpace(planner.tree, grid, planner.model, inf)
    steps = step_modes(planner.tree, planner.orders, 8, 4096)
    chosen = distribute(planner.tree, space, steps, policies.ours)
    assign_digits(planner.tree, grid, space, chosen)
    schedule = planner.plan(8)
    total = schedule.predicted.once_s + schedule.predicted.slice_s
    choice = chosen.choices[planner.tree.root]
    assert choice is not None
    assert total == pytest.approx(choice.cost_s, rel=1e-9)


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 40), st.integers(0, 40)), max_size=60))
def test_arena_never_overlaps(items: list[tuple[int, int, int]]) -> None:
    lifetimes = [Lifetime(size, min(a, b), max(a, b)) for size, a, b in items]
    arena = assign(lifetimes)
    assert arena.size_bytes >= arena.live_bytes
    for (i, first), (j, second) in itertools.combinations(enumerate(lifetimes), 2):
        if first.first <= second.last and second.first <= first.last:
            ends = arena.offsets[i] + first.size_bytes, arena.offsets[j] + second.size_bytes
            assert ends[0] <= arena.offsets[j] or ends[1] <= arena.offsets[i]


def test_arena_with_more_buffers_than_are_placed_by_size() -> None:
    chance = random.Random(0)
    lifetimes = []
    for first in range(3000):
        lifetimes.append(
            Lifetime(chance.randint(1, 10 ** chance.randint(1, 6)), first, first + chance.randint(0, 30))
        )
    arena = assign(lifetimes)
    placed = sorted(range(len(lifetimes)), key=lambda n: lifetimes[n].first)
    for n, i in enumerate(placed):
        for j in placed[n + 1 :]:
            if lifetimes[j].first > lifetimes[i].last:
                break
            ends = arena.offsets[i] + lifetimes[i].size_bytes, arena.offsets[j] + lifetimes[j].size_bytes
            assert ends[0] <= arena.offsets[j] or ends[1] <= arena.offsets[i]
    assert arena.size_bytes <= 1.2 * arena.live_bytes


def test_of_equal_buffers_the_last_are_placed_first_where_that_needs_less() -> None:
    spans = ((512, 2, 2), (512, 2, 3), (256, 3, 5), (512, 5, 8))
    arena = assign([Lifetime(*span) for span in spans])
    assert arena.size_bytes == arena.live_bytes == 1024


def test_memory_that_nothing_meets_is_refused_by_name() -> None:
    path = window(20, 16)
    with pytest.raises(InputError, match=r"step \d+.*[KM]iB.*allow more memory"):
        plan(path, eager_profile(), devices=2, ranks_per_group=2, memory_bytes=1000)
    fitting = plan(path, eager_profile(), devices=8, ranks_per_group=8, memory_bytes=300_000)
    assert fitting.predicted.peak_bytes <= 300_000
    alone = plan(path, eager_profile(), ranks_per_group=1, memory_bytes=inf)
    assert alone.predicted.peak_bytes > 300_000


def test_a_step_that_no_layout_fits_is_refused_without_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = Planner(window(20, 16), eager_profile(), memory_bytes=1000)
    attempts: list[object] = []
    monkeypatch.setattr(pipeline, "attempt", lambda *args: attempts.append(args))
    with pytest.raises(InputError, match=r"no layout over 2 ranks fits a limit of 1000 B"):
        planner.plan(2)
    assert not attempts


def test_group_sizes() -> None:
    assert group_sizes(8, 1000) == [1, 2, 4, 8]
    assert group_sizes(6, 1000) == [1, 2, 3, 4, 6]
    assert group_sizes(8, 1) == [8]
    assert group_sizes(8, 2) == [4, 8]


def test_devices_that_would_only_repeat_work_stay_idle() -> None:
    path = window(10, 4)
    assert plan(path, load_profile("cpu"), devices=4).ranks_per_group == 1
    assert plan(path, load_profile("cpu"), devices=4, ranks_per_group=4).ranks_per_group == 4


def test_binary_modes_use_four_of_six_devices() -> None:
    schedule = plan(window(30, 14), eager_profile(node=8), devices=6, memory_bytes=inf, threshold_bytes=4096)
    assert schedule.ranks_per_group == 4


# fmt: off
BAD_OPTIONS: list[Row] = [
    ({"devices": 0}, "--devices", "is 0", "give an integer from 1"),
    ({"policy": "best"}, "--policy", "'best' is unknown", "choose from ours"),
    ({"threshold_bytes": 0}, "--threshold", "is 0", "give an integer from 1"),
    ({"devices": 4, "ranks_per_group": 8}, "--ranks-per-group", "is 8", "give an integer from 1"),
    ({"memory_bytes": -1}, "--memory", "is -1", "give a positive size"),
    ({"precision": "fp8"}, "profile cpu: flop_per_s.complex64", "has no precision 'fp8'", "choose another"),
]
# fmt: on


@table(BAD_OPTIONS)
def test_bad_options_name_themselves(refusal: Refusal) -> None:
    refusal.raised_by(lambda: plan(window(4, 4), load_profile("cpu"), **refusal.given))
