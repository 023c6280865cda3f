"""Sizes, costs and numbers of slices beyond 64 bits and beyond floating point: search, plan, execute."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from itertools import combinations
from math import inf, log2
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.contraction.executor import contract_fixed, no_early_sums
from tests.support.networks import eager_profile, random_arrays
from tests.support.robustness.checkpoint_files import parted
from tests.support.search import prepared, search_path
from tnplan.calls.execute import execute
from tnplan.calls.search import search
from tnplan.common.errors import InputError
from tnplan.common.units import count_text
from tnplan.executor.contraction.run.checkpoint import RunCheckpoint
from tnplan.executor.contraction.run.slice_partition import parse_slices
from tnplan.jobs.progress import Progress
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.schedule.file import load_schedule, save_schedule
from tnplan.planner.schedule.schedule import Schedule
from tnplan.planner.search import annealing
from tnplan.planner.search.annealer import anneal_kernel
from tnplan.planner.search.annealer.anneal_state import COST, OVER
from tnplan.planner.search.annealer.waist_kernel import add_up
from tnplan.planner.search.annealing import Effort
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_options import JOINT_OBJECTIVES, METHODS
from tnplan.planner.workloads.mixed import peps_network
from tnplan.reporting.json_documents import schedule_document

WAYS = [
    *(("joint", objective) for objective in JOINT_OBJECTIVES),
    *((method, "flops") for method in METHODS),
]
LARGE = (2, 3, 2**20, 2**39 + 1, 2**40)


def complete(n: int, extents: tuple[int, ...], n_open: int = 0) -> Network:
    """A tensor for each of n points and an index for each pair of these, extents in turn."""
    terms: list[list[str]] = [[] for _ in range(n)]
    sizes = {}
    pairs = [*combinations(range(n), 2), *((number % n,) for number in range(n_open))]
    for number, tensors in enumerate(pairs):
        sizes[f"e{number}"] = extents[number % len(extents)]
        for tensor in tensors:
            terms[tensor].append(f"e{number}")
    output = tuple(f"e{number}" for number, tensors in enumerate(pairs) if len(tensors) == 1)
    return Network(tuple(map(tuple, terms)), output, sizes)


def searched(network: Network, limit: int | None, way: tuple[str, str]) -> ContractionPath:
    method, objective = way
    return search_path(
        network, "complex64", max_tensor_elements=limit, methods=(method,), minimize=objective,
        effort=Effort(0.4, 2, 2), profile=load_profile("cpu") if method == "joint" else None,
        devices=2 if objective == "schedule" else None,
    )  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=3)
@given(
    st.integers(1, 9), st.lists(st.sampled_from(LARGE), min_size=1, max_size=3), st.integers(0, 2),
    st.none() | st.sampled_from((1, 2**30, 2**45, 2**81, 2**970)),
)  # fmt: skip
@example(13, [2**40], 0, None)
@example(8, [2**40], 0, 2**30)
@example(14, [2**10, 2**40], 1, 2**400)
def test_a_search_gives_a_path_or_names_the_limit(
    way: tuple[str, str], n: int, extents: list[int], n_open: int, limit: int | None
) -> None:
    refusal, path = None, None
    try:
        path = searched(complete(n, tuple(extents), n_open), limit, way)
    except InputError as error:
        refusal = str(error)
    if path is None:
        assert re.search(r"^.*(max_tensor: is|search a path|allow more memory)[^\n]*$", str(refusal))
        return
    figures = path_cost(path)
    assert limit is None or figures.log2_largest <= log2(limit) * (1 + 1e-12)
    json.dumps(path.meta, allow_nan=False)
    assert path.meta["log10_mnk_planned"] <= path.meta["log10_mnk_all_slices"] + 1e-3
    assert count_text(figures.n_slices, "slice", "slices")


@pytest.mark.parametrize("extents", [(2**40,), (2, 2**40, 3, 2**20)])
def test_costs_beyond_floating_point_are_made_small(extents: tuple[int, ...]) -> None:
    network = complete(20, extents)
    first = search_path(network, "complex64", methods=("joint",), minimize="flops", effort=Effort(0.0, 1, 0))
    found = search_path(
        network,
        "complex64",
        methods=("joint",),
        minimize="flops",
        effort=Effort(20.0, 1, 3),
        from_paths=[first],
    )
    assert path_cost(first).log10_mnk_all_slices > 300
    assert path_cost(found).log10_mnk_all_slices <= path_cost(first).log10_mnk_all_slices


@given(st.integers(0, 1000), st.integers(6, 9), st.sampled_from((2**40, 2**13, 3)))
def test_slices_leave_the_sums_that_there_are(seed: int, n: int, extent: int) -> None:
    network = complete(n, (extent, 2))
    problem, state, _ = prepared(network, 2.0**50, 3.5, seed)
    chance = np.random.default_rng(seed)
    bits = np.flatnonzero(problem.extents > 1)
    for _ in range(3):
        for bit in chance.choice(bits, 2, replace=False):
            anneal_kernel.toggle(problem, state, int(bit))
        moved = state.totals.copy()
        add_up(problem, state)
        for total in (COST, OVER):
            assert moved[total] == pytest.approx(state.totals[total], rel=1e-6)


def ring(n: int, n_open: int = 1) -> ContractionPath:
    """A ring of n matrices, all its indices sliced, the first matrices with an open index each."""
    terms = [[f"s{number}", f"s{(number + 1) % n}"] for number in range(n)]
    output = tuple(f"o{number}" for number in range(n_open))
    for term, index in zip(terms, output, strict=False):
        term.append(index)
    sizes = {**{f"s{number}": 2 for number in range(n)}, **dict.fromkeys(output, 3)}
    steps = ((0, 1), *((n + number, number + 2) for number in range(n - 2)))
    sliced = tuple(f"s{number}" for number in range(n))
    return ContractionPath(Network(tuple(map(tuple, terms)), output, sizes), steps, sliced, "complex128")


@cache
def planned(n: int) -> Schedule:
    with no_early_sums():
        return plan(ring(n), eager_profile(), memory_bytes=inf, threshold_bytes=1)


RINGS = (62, 64, 80, 200)


@settings(max_examples=8)
@given(st.sampled_from(RINGS), st.data(), st.integers(1, 3), st.booleans())
def test_a_range_of_more_slices_than_64_bits_count(
    tmp_path_factory: pytest.TempPathFactory, n: int, data: st.DataObject, groups: int, as_file: bool
) -> None:
    schedule, path = planned(n), ring(n)
    assert schedule.n_slices == 2**n
    count = data.draw(st.integers(1, 5))
    first = data.draw(st.integers(0, 2**n - count) | st.integers(2**n - 9, 2**n - count))
    arrays = random_arrays(path, n)
    output = tmp_path_factory.mktemp("many") / "r.npy" if as_file else None
    done = execute(
        schedule, arrays, ranks=groups, device="cpu", output=output, slices=f"{first}:{first + count}"
    )
    expected = sum(
        contract_fixed(path, arrays, schedule.slice_values(number)) for number in range(first, first + count)
    )
    assert done.array is not None
    np.testing.assert_allclose(done.array, expected, rtol=1e-9)
    assert done.report["slices"]["first"] == first
    assert json.loads(json.dumps(done.report, allow_nan=False))["slices"]["of"] == 2**n
    if output is not None:
        assert json.loads(output.with_suffix(".json").read_text())["slices"]["stop"] == first + count


class _StoppedError(Exception):
    pass


def test_all_of_them_begin_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = random_arrays(ring(80), 0)
    output, after = tmp_path / "r.npy", [0]

    def stop(at: Progress) -> None:
        assert at.total == 2**80
        after.append(at.done)
        if at.done >= after[0] + 3:
            raise _StoppedError

    monkeypatch.setattr(RunCheckpoint, "due", lambda self: (True, ""))
    for resume in (False, True):
        with pytest.raises(_StoppedError):
            execute(planned(80), arrays, device="cpu", output=output, resume=resume, progress=stop)
        after[0] = max(after)
    assert max(after) >= 5
    _, manifest = parted((tmp_path / "r.npy.ckpt" / "manifest.json").read_bytes())
    assert manifest["identity"]["slices"] == [0, 2**80]


@pytest.mark.parametrize("n", [64, 200])
def test_a_schedule_of_so_many_slices_is_kept_and_shown(tmp_path: Path, n: int) -> None:
    save_schedule(planned(n), tmp_path / "s.json")
    schedule = load_schedule(tmp_path / "s.json")
    assert schedule == replace(planned(n), identity=schedule.identity)
    json.dumps(schedule_document(schedule, 4), allow_nan=False)


@pytest.mark.parametrize(
    ("path", "what"),
    [
        (ring(600), "2^600 slices"),
        (ContractionPath(complete(2, (2**40,)), ((0, 1),)), None),
        (searched(complete(9, (2**40,)), None, ("greedy", "flops")), r"2^\d+ operations"),
        (searched(complete(14, (2**40,)), None, ("greedy", "flops")), "2^960 elements"),
    ],
)
def test_what_no_figure_can_say_is_refused_in_a_line(path: ContractionPath, what: str | None) -> None:
    if what is None:
        plan(path, eager_profile(), memory_bytes=inf)
        return
    with pytest.raises(InputError, match=what.replace("^", r"\^")) as caught:
        plan(path, eager_profile(), memory_bytes=inf)
    assert "\n" not in str(caught.value)


def test_a_range_has_numbers_of_any_length() -> None:
    assert parse_slices(f"{10**200}:", 10**201) == (10**200, 10**201)
    with pytest.raises(InputError, match="slices"):
        parse_slices(f"{10**200}:", 10**200)


@given(st.integers(0, 4000), st.integers(100, 999))
def test_large_counts_are_read_in_three_digits(exponent: int, digits: int) -> None:
    text = count_text(digits * 10**exponent, "slice", "slices")
    superscripts, times = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True)), "\N{MULTIPLICATION SIGN}"
    if exponent >= 3:
        found = re.fullmatch(rf"([0-9.]+) {times} 10([⁰¹²³⁴⁵⁶⁷⁸⁹]+) slices", text)
        assert found is not None
        mantissa, power = found.groups()
        assert float(mantissa) * 100 == pytest.approx(digits)
        assert int("".join(superscripts[digit] for digit in power)) == exponent + 2


def test_more_indices_than_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose names are longer: here all but ten."""
    monkeypatch.setattr(annealing, "MOST_SYMBOLS", 10)
    network = peps_network(3, 700, 0, extents=(2, 2), n_open=0)
    path = search(network, max_tensor=2**3, time=0)
    assert path_cost(path).log2_largest <= 3
    assert {*path.sliced_inds} <= {*network.size_dict}
