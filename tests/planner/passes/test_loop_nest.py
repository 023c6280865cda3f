"""What several slices share: the order of the loops, the parts, and replays that make shared results once.

Nothing is summed early here: test_early_sums.py has that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product
from math import inf, prod
from pathlib import Path

import numpy as np
import pytest

from tests.support.contraction.executor import contract_fixed, contract_pairwise, lattice, no_early_sums
from tests.support.contraction.resume import interrupted_and_resumed
from tests.support.networks import TOLERANCE, eager_profile, random_arrays, random_path
from tests.support.null_device.dry_run import dry_run
from tests.support.slow import slow_after, slow_unless
from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.executor.contraction.run import checkpoint as checkpoints
from tnplan.executor.contraction.run.slice_partition import SliceRanges, slices_of_group, starts
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.tree.build import Tree, build
from tnplan.planner.passes.tree.loop_levels import LoopNest
from tnplan.planner.passes.tree.loop_nest import MOST_OUTER_LEVELS, InvariantHoisting
from tnplan.planner.passes.verify import verify
from tnplan.planner.projection.projection import project
from tnplan.planner.schedule.file import from_document, load_schedule, save_schedule
from tnplan.planner.schedule.schedule import FixSlice, Free, LoopLevel, Schedule

SLICED = ("h3.2", "h0.0", "h2.1", "h1.1")


def sliced_lattice(bond: int = 2, dtype: str = "complex64") -> ContractionPath:
    """Bonds sliced in all rows of a lattice that is contracted row by row."""
    return replace(lattice(4, 5, bond, 0, dtype, n_open=2), sliced_inds=SLICED)


def planned(path: ContractionPath, ranks: int = 1, memory_bytes: float = inf) -> Schedule:
    with no_early_sums():
        return plan(
            path, eager_profile(4096), devices=ranks, ranks_per_group=ranks, memory_bytes=memory_bytes,
            threshold_bytes=1,
        )  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_is_summed_early() -> Iterator[None]:
    with no_early_sums():
        yield


PATH = sliced_lattice()
SCHEDULE = planned(PATH)


def loops_of(path: ContractionPath) -> tuple[Tree, InvariantHoisting]:
    tree = build(path)
    return tree, InvariantHoisting(tree, path.sliced_inds, path.network.size_dict)


def depths_of(nest: LoopNest) -> tuple[int, ...]:
    assert not any(place.inner for place in nest.levels)
    return tuple(place.depth for place in nest.levels)


def below(tree: Tree, path: ContractionPath) -> list[frozenset[str]]:
    """The sliced indices of the inputs under every node."""
    found = [
        frozenset(tree.modes[mode].index for mode in tree.leaf_sliced[leaf]) for leaf in range(tree.n_leaves)
    ]
    for left, right in tree.children:
        found.append(found[left] | found[right])
    return found


def runs_counted(path: ContractionPath, order: tuple[str, ...], depths: tuple[int, ...]) -> list[int]:
    """How often each step is done when slices follow each other, by trying all of them: whenever one of the
    indices changes that its part depends on."""
    tree, _ = loops_of(path)
    under = below(tree, path)[tree.n_leaves :]
    extents = [range(path.network.size_dict[index]) for index in order]
    depth_of = []
    for found in under:
        level = max((order.index(index) + 1 for index in found), default=0)
        depth_of.append(min(depth for depth in depths if depth >= level))
    counts = [0] * len(under)
    before: tuple[int, ...] | None = None
    for values in product(*extents):
        for step, depth in enumerate(depth_of):
            counts[step] += before is None or values[:depth] != before[:depth]
        before = values
    return counts


def sliced_paths() -> Iterator[ContractionPath]:
    yield PATH
    yield replace(PATH, sliced_inds=())
    yield sliced_lattice(3)
    for seed in range(150):
        path = random_path(seed)
        if len(path.sliced_inds) > 1:
            yield path


def test_every_step_runs_as_often_as_its_slices_differ() -> None:
    outer = 0
    for path in sliced_paths():
        tree, found = loops_of(path)
        for room in (inf, 200.0, 0.0):
            nest = found.loop_nest(room)
            assert sorted(nest.order) == sorted(path.sliced_inds)
            depths = depths_of(nest)
            assert list(depths) == sorted(set(depths))
            assert depths[0] == 0
            assert depths[-1] == len(nest.order)
            assert len(depths) <= MOST_OUTER_LEVELS + 2
            counts = runs_counted(path, nest.order, depths)
            served = [nest.serves[nest.level_of[node]] for node in range(tree.n_leaves, tree.n_nodes)]
            assert counts == [path.n_slices // serves for serves in served]
            outer += len(depths) > 2
            if not room:
                assert len(depths) <= 2
    assert outer > 10


def test_the_loops_are_in_the_order_of_the_least_work() -> None:
    tree, found = loops_of(PATH)
    products = [
        prod(tree.modes[mode].extent for mode in {*tree.legs[left], *tree.legs[right]})
        for left, right in tree.children
    ]

    def work(order: tuple[str, ...]) -> int:
        counts = runs_counted(PATH, order, tuple(range(len(order) + 1)))
        return sum(count * product for count, product in zip(counts, products, strict=True))

    least = work(found.loop_nest(inf).order)
    assert least == min(map(work, permutations(PATH.sliced_inds)))
    assert least < 0.6 * sum(products) * PATH.n_slices


def test_parts_hold_no_more_than_there_is_room_for() -> None:
    tree, found = loops_of(PATH)
    sizes = [tree.extent(legs) for legs in tree.legs]
    seen = set()
    for room in np.geomspace(50, 50_000, 40):
        nest = found.loop_nest(float(room))
        seen.add(depths_of(nest))
        if len(nest.levels) == 2:
            continue
        part = nest.level_of
        for number, (left, right) in enumerate(tree.children):
            node = tree.n_leaves + number
            held = sum(
                sizes[child]
                for child, above in enumerate(tree.parents)
                if child >= tree.n_leaves and above is not None and part[child] < min(part[above], part[node])
            )
            assert held + sizes[left] + sizes[right] + sizes[node] <= room
    assert len(seen) > 2


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize(("bond", "dtype"), [(2, "complex64"), (3, "float64")])
def test_a_replay_with_shared_parts_gives_the_value(ranks: int, bond: int, dtype: str) -> None:
    path = sliced_lattice(bond, dtype)
    schedule = planned(path, ranks)
    assert len(schedule.outer) >= 2
    arrays = random_arrays(path, 3)
    done = execute(schedule, arrays, ranks=ranks)
    expected = contract_pairwise(replace(path, sliced_inds=()), arrays)
    assert done.array is not None
    error = np.abs(done.array - expected).max() / np.abs(expected).max()
    assert error < 10 * TOLERANCE[dtype]
    parts = done.report["measured"]["parts"]
    assert [part["serves"] for part in parts] == [schedule.serves(part.depth) for part in schedule.parts[1:]]
    assert [part["runs"] for part in parts] == [path.n_slices // part["serves"] for part in parts]
    assert done.report["predicted"]["total_s"] == pytest.approx(schedule.projected_s(1))


@pytest.mark.parametrize(
    ("groups", "slices"),
    slow_unless(lambda groups, slices: (groups + slices) % 2 == 0, [1, 2, 3, 5, 16, 20], [None, (3, 14)]),
)
def test_groups_and_some_of_the_slices(groups: int, slices: tuple[int, int] | None) -> None:
    arrays = random_arrays(PATH, 3)
    first, stop = slices or (0, PATH.n_slices)
    done = execute(SCHEDULE, arrays, ranks=groups, slices=slices)
    expected = np.zeros(SCHEDULE.output_shape, dtype="complex128")
    for number in range(first, stop):
        expected += contract_fixed(PATH, arrays, SCHEDULE.slice_values(number))
    assert done.array is not None
    assert np.abs(done.array - expected).max() < 1e-5 * np.abs(expected).max()


def test_groups_share_all_slices_evenly() -> None:
    for n_groups, first, stop in product((1, 2, 3, 7), (0, 5), (5, 6, 19)):
        runs = [slices_of_group(group, n_groups, first, stop) for group in range(n_groups)]
        assert [number for run in runs for number in run] == list(range(first, stop))
        assert max(map(len, runs)) - min(map(len, runs)) <= 1


@pytest.mark.parametrize("n_groups", range(1, 18))
def test_the_projected_time_is_that_of_the_slowest_group(n_groups: int) -> None:
    slowest = 0.0
    for group in range(n_groups):
        run = SliceRanges.of(slices_of_group(group, n_groups, 0, SCHEDULE.n_slices))
        slowest = max(
            slowest,
            sum(step.predicted_s * starts(run, step.serves) for step in SCHEDULE.steps if not step.once),
        )
    projected = SCHEDULE.projected_s(n_groups) - SCHEDULE.predicted.once_s
    assert projected >= slowest * (1 - 1e-12)
    if SCHEDULE.n_slices % n_groups == 0:
        assert projected == pytest.approx(slowest)


@pytest.mark.parametrize("after", slow_after(5, range(1, 16)))
def test_a_run_that_ends_between_slices_that_share_goes_on(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "INTERVAL", 0)
    arrays = random_arrays(PATH, 3)
    resumed = interrupted_and_resumed(SCHEDULE, arrays, tmp_path / "result.npy", after)
    whole = execute(SCHEDULE, arrays, threads=1)
    assert resumed.report["slices"]["resumed"] == after
    assert np.array_equal(resumed.array, whole.array)  # type: ignore[arg-type]
    for part in resumed.report["measured"]["parts"]:
        assert part["runs"] == starts(SliceRanges.of(range(after, 16)), part["serves"])


def test_operations_are_those_that_a_replay_counts() -> None:
    counts, _ = dry_run(SCHEDULE, 0, range(SCHEDULE.n_slices))
    assert counts.flops == pytest.approx(SCHEDULE.operations)
    predicted = SCHEDULE.predicted
    assert counts.flops == pytest.approx(predicted.once_flops + SCHEDULE.n_slices * predicted.slice_flops)


def test_nothing_is_shared_where_that_is_asked_for() -> None:
    apart = plan(PATH, eager_profile(4096), memory_bytes=inf, threshold_bytes=1, share=False)
    assert not apart.outer
    arrays = random_arrays(PATH, 3)
    one, other = (execute(schedule, arrays, slices=(2, 7)).array for schedule in (SCHEDULE, apart))
    assert one is not None
    assert other is not None
    assert apart.sliced == SCHEDULE.sliced
    assert np.abs(one - other).max() < 1e-5 * np.abs(one).max()


def test_less_is_shared_where_memory_is_short() -> None:
    whole = planned(PATH)
    flat = planned(PATH, memory_bytes=0.75 * whole.predicted.peak_bytes)
    assert len(flat.outer) < len(whole.outer)
    assert flat.predicted.peak_bytes <= 0.75 * whole.predicted.peak_bytes
    assert flat.predicted.slice_s > whole.predicted.slice_s


def test_the_report_counts_what_is_shared() -> None:
    row = project([PATH], eager_profile(4096), [1], memory_bytes=inf).rows[0]
    assert row.complexity == row.schedule.operations
    assert row.schedule.outer
    assert 0.2 < row.reuse_saving < 1


def test_a_schedule_with_parts_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "schedule.json"
    save_schedule(SCHEDULE, file)
    assert load_schedule(file) == SCHEDULE
    verify(SCHEDULE)


@pytest.mark.parametrize(
    "entry",
    [
        {"depth": "1", "inner": 0, "instructions": []}, {"depth": 1, "inner": 0}, 3,
        {"depth": True, "inner": 0, "instructions": []}, {"depth": 1, "inner": None, "instructions": []},
        {"depth": 1, "instructions": []},
    ],
)  # fmt: skip
def test_a_damaged_part_is_refused(entry: object, tmp_path: Path) -> None:
    from tnplan.common.files import identity_of

    save_schedule(SCHEDULE, tmp_path / "schedule.json")
    document = {**json.loads((tmp_path / "schedule.json").read_text()), "outer": [entry]}
    del document["identity"], document["devices"]
    with pytest.raises(InputError, match=r"outer\[0\]"):
        from_document({**document, "identity": identity_of(document)}, "schedule.json")


@pytest.mark.parametrize("depth", [-1, 0, 4, 7])
def test_a_part_of_a_wrong_depth_is_refused(depth: int) -> None:
    first, *others = SCHEDULE.outer
    changed = replace(SCHEDULE, outer=(replace(first, depth=depth), *others))
    with pytest.raises(InputError, match=r"outer\[0\].*depth"):
        verify(changed)


def test_a_part_that_frees_what_it_needs_again_is_refused() -> None:
    first, *others = SCHEDULE.outer
    held = next(
        number for number, buffer in enumerate(SCHEDULE.buffers)
        if not buffer.workspace and Free(number) not in SCHEDULE.instructions and number != SCHEDULE.result
        and any(getattr(item, "out", None) == number for item in SCHEDULE.once)
    )  # fmt: skip
    changed = LoopLevel(first.depth, (*first.instructions, Free(held)))
    with pytest.raises(InputError, match=r"outer\[0\]"):
        verify(replace(SCHEDULE, outer=(changed, *others)))


def test_a_part_that_fixes_an_index_of_an_inner_loop_is_refused() -> None:
    first, *others = SCHEDULE.outer
    assert any(isinstance(item, FixSlice) for item in others[0].instructions)
    early = LoopLevel(first.depth, (*first.instructions, *others[0].instructions))
    with pytest.raises(InputError, match=r"outer\[0\]\[\d+\] fix_slice.*of its loops"):
        verify(replace(SCHEDULE, outer=(early, *others[1:])))
