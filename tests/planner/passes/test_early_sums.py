"""Early sums: indices that are summed at a waist of the tree, within a slice."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf, prod
from pathlib import Path

import numpy as np
import pytest

from tests.support.contraction.executor import contract_fixed, contract_pairwise
from tests.support.contraction.resume import interrupted_and_resumed
from tests.support.contraction.schedules import EARLY_SUMS_PATH, early_sums_schedule, planned, sliced_lattice
from tests.support.networks import TOLERANCE, eager_profile, random_arrays
from tests.support.null_device.dry_run import dry_run
from tests.support.slow import slow_after, slow_unless
from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.executor.contraction.run import checkpoint as checkpoints
from tnplan.executor.contraction.run.slice_partition import SliceRanges, starts
from tnplan.planner.hardware.compression_options import Compression, Lossy
from tnplan.planner.hardware.profile import CodecRates
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.tree import loop_nest as loops
from tnplan.planner.passes.tree.build import Tree, build
from tnplan.planner.passes.tree.loop_levels import LoopNest
from tnplan.planner.passes.tree.loop_nest import InvariantHoisting
from tnplan.planner.passes.verify import verify
from tnplan.planner.projection.projection import project
from tnplan.planner.schedule.file import load_schedule, save_schedule
from tnplan.planner.schedule.schedule import Accumulate, Decode, Encode, FixSlice, LoopLevel, Schedule, Zero
from tnplan.planner.search.path_cost import log10_mnk_planned, path_cost


def nested(path: ContractionPath, room: float = inf, groups: int = 1) -> tuple[Tree, LoopNest]:
    tree = build(path)
    return tree, InvariantHoisting(tree, path.sliced_inds, path.network.size_dict).loop_nest(room, groups)


@pytest.mark.parametrize("seed", range(0, 60, 7))
def test_planned_multiply_adds_are_those_of_a_replay(seed: int) -> None:
    path = sliced_lattice(seed)
    schedule = planned(path)
    counts, _ = dry_run(schedule, 0, range(schedule.n_slices))
    assert 10 ** log10_mnk_planned(path) == pytest.approx(counts.flops / 8)
    assert log10_mnk_planned(path) <= path_cost(path).log10_mnk_all_slices
    whole = replace(path, sliced_inds=())
    assert log10_mnk_planned(whole) == pytest.approx(path_cost(whole).log10_mnk_all_slices)


def loops_around(nest: LoopNest, part: int) -> tuple[str, ...]:
    place = nest.levels[part]
    return (*nest.order[: place.depth], *nest.summed[: place.inner])


def work_of(path: ContractionPath, tree: Tree, nest: LoopNest) -> float:
    """What all steps and additions cost, each as often as its loops have values."""
    total = 0.0
    for number, (left, right) in enumerate(tree.children):
        node = tree.n_leaves + number
        runs = prod(path.network.size_dict[index] for index in loops_around(nest, nest.level_of[node]))
        sizes = [tree.extent(tree.legs[item]) for item in (left, right, node)]
        products = tree.extent(tuple({*tree.legs[left], *tree.legs[right]}))
        total += runs * max(products, 7 * sum(sizes) // 2)
        if node == nest.waist:
            total += runs * (21 * sizes[2] // 2)
    return total


SCHEDULE = early_sums_schedule()
NEST = [number for number, part in enumerate(SCHEDULE.outer) if part.inner]


def test_the_case_has_all_kinds_of_parts() -> None:
    assert [(part.depth, part.inner) for part in SCHEDULE.outer] == [
        (2, 0), (2, 1), (2, 2), (2, 3), (2, 0)
    ]  # fmt: skip
    assert len(SCHEDULE.sliced) == 3
    assert sorted((*SCHEDULE.sliced, *SCHEDULE.summed)) == sorted(EARLY_SUMS_PATH.sliced_inds)
    assert SCHEDULE.n_slices == 8


@pytest.mark.parametrize("seed", range(60))
def test_every_step_is_inside_the_loops_that_it_depends_on(seed: int) -> None:
    path = sliced_lattice(seed)
    tree, nest = nested(path)
    assert sorted((*nest.order, *nest.summed)) == sorted(path.sliced_inds)
    under: list[set[str]] = [
        {tree.modes[mode].index for mode in own} for own in tree.leaf_sliced
    ]  # fmt: skip
    for number, pair in enumerate(tree.children):
        node = tree.n_leaves + number
        # An index that is summed at the waist touches nothing above it.
        found = [under[child] - ({*nest.summed} if child == nest.waist else set()) for child in pair]
        under.append(found[0] | found[1])
        assert under[node] <= {*loops_around(nest, nest.level_of[node])}
        assert all(nest.level_of[child] <= nest.level_of[node] for child in pair if child >= tree.n_leaves)
    assert under[tree.root].isdisjoint(nest.summed)
    for part, place in enumerate(nest.levels):
        assert nest.serves[part] == 2 ** (len(nest.order) - place.depth)
        assert nest.repeats[part] == 2**place.inner


@pytest.mark.parametrize("seed", range(60))
def test_a_waist_saves_work(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sliced_lattice(seed)
    tree, nest = nested(path)
    monkeypatch.setattr(loops, "WAISTS", 0)
    _, without = nested(path)
    monkeypatch.setattr(loops, "WAISTS", tree.n_nodes)
    _, best = nested(path)
    works = [work_of(path, tree, one) for one in (best, nest, without)]
    assert without.waist is None
    if nest.waist is None:
        assert works[1] == works[2]
    else:
        assert works[1] < 0.98 * works[2]
    assert works[0] <= works[1] <= 1.1 * works[0]


def test_waists_are_found_in_most_lattices() -> None:
    waists = [nested(sliced_lattice(seed))[1] for seed in range(60)]
    assert sum(nest.waist is not None for nest in waists) > 50
    assert {nest.levels[nest.early_sum_levels.start].depth for nest in waists if nest.early_sum_levels} == {
        0,
        1,
        2,
    }


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("seed", slow_after(4, [0, 3, 5, 14, 18, 28, 42]))
def test_a_replay_gives_the_value(ranks: int, seed: int) -> None:
    bond, dtype = ((2, "complex64"), (3, "float64"))[seed % 2]
    path = sliced_lattice(seed, bond, dtype, 6 if bond == 2 else 4)
    schedule = planned(path, ranks)
    assert schedule.summed
    arrays = random_arrays(path, 3)
    done = execute(schedule, arrays, ranks=ranks)
    expected = contract_pairwise(replace(path, sliced_inds=()), arrays)
    assert done.array is not None
    error = np.abs(done.array - expected).max() / np.abs(expected).max()
    assert error < 10 * TOLERANCE[dtype]
    parts = done.report["measured"]["parts"]
    assert [part["repeats"] for part in parts] == [
        schedule.repeats(part.inner) for part in schedule.parts[1:]
    ]  # fmt: skip
    for part in parts:
        assert part["runs"] == schedule.n_slices // part["serves"] * part["repeats"]
    assert done.report["predicted"]["total_s"] == pytest.approx(schedule.projected_s(1))


@pytest.mark.parametrize(
    ("groups", "slices"),
    slow_unless(lambda groups, slices: (groups + slices) % 2 == 0, [1, 2, 3, 8, 11], [None, (1, 6)]),
)
def test_groups_and_some_of_the_slices(groups: int, slices: tuple[int, int] | None) -> None:
    arrays = random_arrays(EARLY_SUMS_PATH, 3)
    done = execute(SCHEDULE, arrays, ranks=groups, slices=slices)
    expected = np.zeros(SCHEDULE.output_shape, dtype="complex128")
    rounds = range(SCHEDULE.repeats(len(SCHEDULE.summed)))
    for number, inner in product(range(*(slices or (0, SCHEDULE.n_slices))), rounds):
        values = {**SCHEDULE.slice_values(number), **SCHEDULE.summed_values(inner)}
        expected += contract_fixed(EARLY_SUMS_PATH, arrays, values)
    assert done.array is not None
    assert np.abs(done.array - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("after", range(1, 8))
def test_an_interrupted_run_goes_on(after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "INTERVAL", 0)
    arrays = random_arrays(EARLY_SUMS_PATH, 3)
    resumed = interrupted_and_resumed(SCHEDULE, arrays, tmp_path / "result.npy", after)
    whole = execute(SCHEDULE, arrays, threads=1)
    assert np.array_equal(resumed.array, whole.array)  # type: ignore[arg-type]
    for part in resumed.report["measured"]["parts"]:
        assert part["runs"] == starts(SliceRanges.of(range(after, 8)), part["serves"]) * part["repeats"]


def test_operations_are_those_that_a_replay_counts() -> None:
    counts, _ = dry_run(SCHEDULE, 0, range(SCHEDULE.n_slices))
    assert counts.flops == pytest.approx(SCHEDULE.operations)
    predicted = SCHEDULE.predicted
    assert counts.flops == pytest.approx(predicted.once_flops + SCHEDULE.n_slices * predicted.slice_flops)


def changed_before(depth: int, values: tuple[int, ...], before: tuple[int, ...]) -> bool:
    return values[:depth] != before[:depth]


def order_of_parts(path: ContractionPath, nest: LoopNest) -> list[int]:
    """The parts in the order in which a replay runs them, by trying all values of all loops."""
    found: list[int] = []
    before: dict[int, tuple[int, ...]] = {}
    inner = list(product(*(range(path.network.size_dict[index]) for index in nest.summed)))
    for values in product(*(range(path.network.size_dict[index]) for index in nest.order)):
        rows: dict[int, list[int]] = {}
        for part, place in enumerate(nest.levels):
            if before.get(part) == values[: place.depth]:
                continue
            before[part] = values[: place.depth]
            rows.setdefault(
                part if part not in nest.early_sum_levels else nest.early_sum_levels.start, []
            ).append(part)
        for row in rows.values():
            if row[0] not in nest.early_sum_levels:
                found += row
                continue
            for number, round_ in enumerate(inner):
                found += [
                    part for part in row
                    if not number or changed_before(nest.levels[part].inner, round_, inner[number - 1])
                ]  # fmt: skip
    return found


def most_held(path: ContractionPath, tree: Tree, nest: LoopNest) -> int:
    """The most elements of a step and of all tensors that then wait for another run of a part."""
    runs = order_of_parts(path, nest)
    sizes = [tree.extent(legs) for legs in tree.legs]
    largest = [0] * len(nest.levels)
    waiting: list[tuple[int, int, int]] = []
    for number, (left, right) in enumerate(tree.children):
        node = tree.n_leaves + number
        part = nest.level_of[node]
        largest[part] = max(largest[part], sizes[left] + sizes[right] + sizes[node])
        for child in (left, right):
            made = nest.early_sum_levels.start - 1 if child == nest.waist else nest.level_of[child]
            if child >= tree.n_leaves and made < part:
                waiting.append((made, part, sizes[child]))
    held = [0] * len(runs)
    for made, used, size in waiting:
        since: int | None = None
        for moment, part in enumerate(runs):
            if part == made:
                since = moment + 1
            elif part == used:
                assert since is not None
                for place in range(since, moment + 1):
                    held[place] += size
                since = moment + 1
    return max(own + largest[part] for own, part in zip(held, runs, strict=True))


@pytest.mark.parametrize("seed", range(0, 60, 5))
def test_parts_hold_no_more_than_there_is_room_for(seed: int) -> None:
    path = sliced_lattice(seed)
    seen = set()
    for room in np.geomspace(60, 5000, 25):
        tree, nest = nested(path, float(room))
        seen.add(nest.waist)
        if len(nest.levels) > 2:
            assert most_held(path, tree, nest) <= room
    assert None in seen
    assert len(seen) > 1


def test_tensors_that_wait_are_compressed_across_an_early_sum() -> None:
    """One is stored before the loops of the sum, and restored inside of them for every value."""
    sizes = {"b": 2048, "e": 4, "c": 128, "u": 4, "g": 2, "f": 32, "d": 128, "s": 128, "h": 16}
    inputs = tuple(map(tuple, ("be", "ec", "cug", "gufd", "f", "bs", "hs", "duh")))
    steps = ((0, 1), (2, 3), (9, 4), (8, 10), (11, 7), (12, 5), (13, 6))
    path = ContractionPath(Network(inputs, ("b",), sizes), steps, ("u", "s"))
    profile = replace(eager_profile(4096), codecs={"fast": CodecRates(1e12, 1e12)})
    needs = planned(path).predicted.peak_bytes
    schedule = plan(
        path, profile, memory_bytes=0.9 * needs, threshold_bytes=1,
        compression=Compression(store=Lossy(1e-3, 3.0)),
    )  # fmt: skip
    found = [
        [number for number, part in enumerate(schedule.parts)
         for item in part.instructions if isinstance(item, kind)]
        for kind in (Encode, Decode)
    ]  # fmt: skip
    assert found == [[0], [1]]
    assert schedule.outer[0].inner == 1
    arrays = random_arrays(path, 3)
    expected = contract_pairwise(replace(path, sliced_inds=()), arrays)
    done = execute(schedule, arrays)
    assert done.array is not None
    error = np.linalg.norm(done.array - expected) / np.linalg.norm(expected)
    assert 1e-4 < error < done.report["compression"]["bound"] < 0.05


def test_groups_without_work_weigh_against_an_early_sum() -> None:
    few, many = (nested(EARLY_SUMS_PATH, groups=groups)[1] for groups in (1, 64))
    assert few.n_slices == 8
    assert many.n_slices == 64
    rows = project([EARLY_SUMS_PATH], eager_profile(4096), [1, 64], memory_bytes=inf).rows
    assert rows[0].schedule.summed
    assert rows[1].time_s <= rows[0].schedule.projected_s(8)


def test_a_schedule_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "schedule.json"
    save_schedule(SCHEDULE, file)
    assert load_schedule(file) == SCHEDULE


def changed(number: int, **fields: object) -> Schedule:
    """The schedule with one of its outer parts changed."""
    outer = list(SCHEDULE.outer)
    outer[number] = replace(outer[number], **fields)  # type: ignore[arg-type]
    return replace(SCHEDULE, outer=tuple(outer))


def test_the_case_is_right() -> None:
    verify(SCHEDULE)
    assert NEST == [1, 2, 3]


@pytest.mark.parametrize(
    ("number", "fields", "said"),
    [
        (1, {"depth": 1}, "depth 1 is not that of the part before, 2"),
        (1, {"inner": 0}, "depth 2 is not between"),
        (2, {"inner": 1}, "1 inner loops do not follow 1 of 3"),
        (3, {"inner": 4}, "4 inner loops do not follow 2 of 3"),
        (4, {"depth": 1}, "depth 1 is not that of the sum before, 2"),
        (4, {"inner": 3}, "3 inner loops do not follow 3 of 3"),
        (0, {"depth": 3}, "depth 2 is not that of the part before, 3"),
    ],
)
def test_parts_inside_wrong_loops_are_refused(number: int, fields: dict[str, int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        verify(changed(number, **fields))


def test_an_early_sum_is_inside_all_its_loops() -> None:
    with pytest.raises(InputError, match=r"outer\[3\].*inside 2 of 3 inner loops"):
        verify(replace(SCHEDULE, outer=(*SCHEDULE.outer[:3], SCHEDULE.outer[4])))
    with pytest.raises(InputError, match="0 rows of parts"):
        verify(replace(SCHEDULE, outer=SCHEDULE.outer[:1]))


def instructions_of(number: int, kind: type) -> list[int]:
    return [place for place, item in enumerate(SCHEDULE.outer[number].instructions) if isinstance(item, kind)]


def test_a_sum_begins_right_before_its_loops() -> None:
    (place,) = instructions_of(0, Zero)
    before = list(SCHEDULE.outer[0].instructions)
    zero = before.pop(place)
    with pytest.raises(InputError, match=r"outer\[3\].*accumulate.*is not the sum"):
        verify(changed(0, instructions=tuple(before)))
    late = (*SCHEDULE.outer[1].instructions, zero)
    moved = changed(1, instructions=late)
    first = replace(SCHEDULE.outer[0], instructions=tuple(before))
    with pytest.raises(InputError, match=r"outer\[1\].*zero: no early sum begins here"):
        verify(replace(moved, outer=(first, *moved.outer[1:])))


def test_only_the_last_of_its_parts_adds() -> None:
    (place,) = instructions_of(3, Accumulate)
    item = SCHEDULE.outer[3].instructions[place]
    assert isinstance(item, Accumulate)
    wrong = [*SCHEDULE.outer[3].instructions]
    wrong[place] = replace(item, out=SCHEDULE.result)
    with pytest.raises(InputError, match=r"outer\[3\].*is not the sum of this part"):
        verify(changed(3, instructions=tuple(wrong)))


def test_what_an_early_sum_makes_is_gone_after_it() -> None:
    made = {
        getattr(item, "out", getattr(item, "c", None))
        for number in NEST for item in SCHEDULE.outer[number].instructions
        if not isinstance(item, Accumulate)
    }  # fmt: skip
    (buffer,) = {item.source for item in SCHEDULE.outer[3].instructions if isinstance(item, Accumulate)}
    assert buffer in made
    zero = SCHEDULE.outer[0].instructions[instructions_of(0, Zero)[0]]
    assert isinstance(zero, Zero)
    after = (Accumulate(buffer, zero.out), *SCHEDULE.outer[4].instructions)
    with pytest.raises(InputError, match=r"outer\[4\]\[0\] accumulate"):
        verify(changed(4, instructions=after))


def test_a_part_fixes_only_indices_of_its_own_loops() -> None:
    deeper = next(number for number in (2, 3) if instructions_of(number, FixSlice))
    item = SCHEDULE.outer[deeper].instructions[instructions_of(deeper, FixSlice)[0]]
    early = (item, *SCHEDULE.outer[1].instructions)
    with pytest.raises(InputError, match=r"outer\[1\]\[0\] fix_slice.*of its loops"):
        verify(changed(1, instructions=early))


def test_a_part_has_inner_loops_only_of_a_sum() -> None:
    flat = replace(SCHEDULE, summed=(), outer=())
    with pytest.raises(InputError):
        verify(replace(flat, outer=(LoopLevel(1, (), 1),)))


def two_sides(first: int, second: int) -> ContractionPath:
    """Two pairs of tensors, each with indices of its own that are sliced, as is one that all of them have."""
    inside = tuple(f"a{number}" for number in range(first)), tuple(f"b{number}" for number in range(second))
    first_pair = ("c", "s", "k", *inside[0]), ("c", "k", *inside[0])
    terms = (*first_pair, ("c", "s", "t", *inside[1]), ("c", *inside[1]))
    sizes = {index: 16 if index in "skt" else 2 for term in terms for index in term}
    network = Network(terms, ("t",), sizes)
    return ContractionPath(network, ((0, 1), (2, 3), (4, 5)), ("c", *inside[0], *inside[1]))


def test_sums_of_both_sides_are_added_whatever_their_rounds() -> None:
    """256 values on one side and 512 on the other; the last step is done for each of these."""
    path = two_sides(8, 9)
    assert len(nested(path)[1].summed) == 8
    assert 10 ** log10_mnk_planned(path) == pytest.approx(2 * 16**2 * (256 + 512 + 512))
    schedule = planned(path)
    counts, _ = dry_run(schedule, 0, range(schedule.n_slices))
    assert counts.flops / 8 == pytest.approx(10 ** log10_mnk_planned(path))


@pytest.mark.parametrize(("second", "summed"), [(7, "a"), (6, "b"), (2, "b")])
def test_a_sum_has_no_more_rounds_than_there_are_slices(second: int, summed: str) -> None:
    """Runs are saved between slices: few slices of many rounds could not be. 256 rounds need as many."""
    found = nested(two_sides(8, second))[1].summed
    assert {index[0] for index in found} == {summed}
