"""The evaluation: speedups that never fall on the shipped paths, plateaus with causes, what memory buys."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tnplan
from tests.support.contraction.executor import no_early_sums
from tests.support.contraction.schedules import made_schedule
from tests.support.contraction.shipped_paths import shipped_workloads
from tests.support.effort import repeats
from tests.support.networks import agrees, eager_profile, random_arrays, random_path
from tests.support.null_device.dry_run import dry_run
from tests.support.root import ROOT
from tests.support.slow import slow_but
from tnplan.cli.main import run
from tnplan.common.arrays import ITEM_BYTES
from tnplan.common.errors import InputError
from tnplan.planner.hardware.profile import Profile, load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network, structure_key
from tnplan.planner.networks.path_file import load_path, save_path
from tnplan.planner.passes.pipeline import Planner, plan
from tnplan.planner.projection import projection
from tnplan.planner.projection.plateaus import plateaus
from tnplan.planner.projection.projection import project
from tnplan.planner.schedule.schedule import Schedule
from tnplan.planner.search.path_cost import path_cost
from tnplan.reporting.evaluation import evaluation_notes, memory_points, slice_table
from tnplan.reporting.page import report_page

PROFILES = ("dgx-h100", "h200-nvlink", "gb200-nvl72")
DEVICES = (1, 2, 4, 8, 16)
QUICK = ("peps", "regular", "sycamore_n53_m10")


Array = NDArray[np.generic]
Arrays = list[Array]


def extremes(paths: list[ContractionPath]) -> list[ContractionPath]:
    """The path of most slices and that of fewest: the ends of what memory buys."""
    by_slices = sorted(paths, key=lambda path: path.n_slices)
    return [by_slices[0], by_slices[-1]] if len(paths) > 1 else paths


def least_bytes(path: ContractionPath) -> float:
    """The largest tensor, twice: what no schedule does without."""
    return 2 * 2 ** path_cost(path).log2_largest * ITEM_BYTES[path.dtype]


@pytest.mark.parametrize("hardware", PROFILES)
@pytest.mark.parametrize("workload", slow_but(QUICK, shipped_workloads()))
def test_speedup_never_falls_and_plateaus_have_causes(workload: str, hardware: str) -> None:
    paths = extremes(shipped_workloads()[workload])
    limit = Planner(paths[0], load_profile(hardware)).limit_bytes * DEVICES[-1]
    if min(least_bytes(path) for path in paths) > limit:
        with pytest.raises(InputError, match="no path fits"):
            project(paths, load_profile(hardware), DEVICES)
        return
    found = project(paths, load_profile(hardware), DEVICES)
    speedups = [row.speedup for row in found.rows]
    assert speedups == sorted(speedups)
    causes = {plateau.devices: plateau for plateau in plateaus(found)}
    for before, row in zip(found.rows, found.rows[1:], strict=False):
        if row.extra_speedup <= before.extra_speedup:
            assert causes[row.devices].cause in ("path", "tier", "memory")
            assert causes[row.devices].text


def ring(extent: int, sliced: tuple[str, ...] = (), name: str = "ring") -> ContractionPath:
    inputs = (("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"))
    network = Network(inputs, (), dict.fromkeys("abcd", extent))
    return ContractionPath(network, ((0, 1), (4, 2), (5, 3)), sliced, "complex64", name)


Times = dict[tuple[str, int], tuple[float, float, float]]


def planner_of(times: Times) -> type[Planner]:
    """A planner that knows some names and group sizes, by what a slice takes of local work, of exchanges
    inside nodes and of those between them; it refuses the others."""

    class Made(Planner):
        def fits(self, ranks: int, policy: str = "ours", groups: int = 1) -> bool:
            return (self.path.name, ranks) in times

        def plan(self, ranks: int, policy: str = "ours", groups: int = 1) -> Schedule:
            if (self.path.name, ranks) not in times:
                raise InputError("step 0", "does not fit", "add devices")
            local_s, near_s, far_s = times[self.path.name, ranks]
            made = made_schedule(self.path, self.profile, ranks, local_s + near_s + far_s)
            rates = [tier.bytes_per_s for tier in self.profile.tiers]
            moved = (int(near_s * rates[0]), int(far_s * rates[1]))
            *others, last = made.steps
            last = replace(
                last, contract_s=local_s, permute_s=0.0, exchange_s=near_s + far_s, codec_s=0.0,
                moved_bytes_by_tier=moved,
            )  # fmt: skip
            return replace(made, steps=(*others, last))

    return Made


WHOLE, CUT = ("whole", ()), ("cut", ("b",))


@pytest.mark.parametrize(
    ("times", "devices", "cause", "words"),
    [
        ({("cut", 1): (1, 0, 0)}, 2, "memory", "does not fit"),
        ({("cut", 1): (1, 0, 0), ("whole", 16): (1, 1, 9)}, 16, "tier", "over infiniband"),
        ({("cut", 1): (1, 0, 0), ("whole", 16): (900, 1, 9)}, 16, "path", "slower"),
        ({("cut", 1): (1, 0, 0), ("whole", 16): (1, 0, 0)}, 256, "path", "1 slice is too few"),
        (
            {("whole", 1): (64, 0, 0), ("whole", 8): (8, 0, 0), ("whole", 16): (4, 1, 2.5)},
            16,
            "tier",
            "infiniband take",
        ),
        ({("whole", 1): (64, 0, 0), ("whole", 2): (32, 8, 0)}, 2, "tier", "nvlink take"),
        ({("whole", 1): (64, 0, 0), ("whole", 2): (60, 1, 0)}, 2, "path", "shared by 2 ranks"),
    ],
)
def test_a_plateau_names_its_cause(
    monkeypatch: pytest.MonkeyPatch, times: Times, devices: int, cause: str, words: str
) -> None:
    monkeypatch.setattr(projection, "Planner", planner_of(times))
    paths = [ring(64, sliced, name) for name, sliced in (WHOLE, CUT) if any(key[0] == name for key in times)]
    if cause == "memory":
        paths.append(ring(64, (), "whole"))
    found = project(paths, load_profile("dgx-h100"), sorted({1, 2, devices // 2, devices}))
    last = plateaus(found)[-1]
    assert (last.devices, last.cause) == (devices, cause)
    assert words in last.text
    assert {row[0]: row[-1] for row in slice_table(found).rows}[str(devices)] == f"{cause}: {last.text}"


def test_without_slices_exchanges_are_no_local_work() -> None:
    """All steps are then done once, and their exchanges count all the same."""
    path = load_path(ROOT / "paths" / "sycamore_n53_m10_unsliced_flops.json")
    found = project([path], load_profile("dgx-h100"), [1, 16])
    (plateau,) = plateaus(found)
    stated = re.search(r"([\d.]+) % of the time is local work", plateau.text)
    exchanged = found.rows[-1].exchange_share
    assert stated is not None
    assert exchanged > 0.05
    assert float(stated[1]) == pytest.approx(100 * (1 - exchanged), abs=2)


@pytest.mark.slow
def test_groups_stay_inside_nodes_where_slices_allow_it() -> None:
    """At 64 devices, 8 nodes of 8, counted by null replays: bytes between nodes, against one slow tier."""
    path = load_path(ROOT / "paths" / "zuchongzhi_n60_m24_b35_flops.json")
    two = load_profile("dgx-h100")
    one = replace(two, tiers=two.tiers[-1:])

    def between_nodes(profile: Profile, ranks: int | None) -> float:
        schedule = plan(path, profile, devices=64, ranks_per_group=ranks)
        run = schedule.most_shared
        counts, _ = dry_run(schedule, 0, range(run))
        return sum(counts.received_bytes[len(profile.tiers) - 1 :]) / run

    assert between_nodes(two, None) <= between_nodes(one, None) / 2
    assert between_nodes(two, 64) <= 0.75 * between_nodes(one, 64)


def test_a_note_says_where_chains_have_no_rates() -> None:
    path = ring(16, ("b",))
    assert evaluation_notes(project([path], load_profile("dgx-h100"), [1, 8])) == []
    (note,) = evaluation_notes(project([path], load_profile("gb200-nvl72"), [1, 8]))
    assert "does not say how fast fused chains are" in note


def test_repeated_searches_have_a_mean_and_a_spread() -> None:
    limited = [
        replace(ring(16, sliced, f"seed {n}"), meta={"log2_limit": 8.0})
        for n, sliced in enumerate((("b",), ("b", "d"), ("a", "b")))
    ]
    whole = replace(ring(16, (), "whole"), meta={"log2_limit": None})
    with no_early_sums():
        point = memory_points(project([*limited, whole], load_profile("cpu"), [1]))[0]
        rows = [project([path], load_profile("cpu"), [1]).rows[0] for path in limited]
    costs = [np.log10(row.complexity) for row in rows]
    assert (point.path, point.sliced, point.searches) == (3, 0, 3)
    assert point.mean_log10_flops == pytest.approx(np.mean(costs))
    assert point.spread_log10_flops == pytest.approx(np.std(costs, ddof=1))
    assert point.mean_sliced == pytest.approx(5 / 3)


@given(st.integers(0, 10_000))
def test_renamed_and_reordered_networks_are_the_same(seed: int) -> None:
    network, chance = random_path(seed).network, random.Random(seed)
    names = {
        index: f"x{number}"
        for number, index in enumerate(chance.sample(list(network.size_dict), len(network.size_dict)))
    }
    terms = [tuple(chance.sample([names[index] for index in term], len(term))) for term in network.inputs]
    chance.shuffle(terms)
    output = tuple(names[index] for index in network.output)
    sizes = {names[index]: size for index, size in network.size_dict.items()}
    assert structure_key(Network(tuple(terms), output, sizes)) == structure_key(network)
    index = chance.choice(list(sizes)) if sizes else None
    if index is not None:
        other = Network(tuple(terms), output, {**sizes, index: sizes[index] + 7})
        assert structure_key(other) != structure_key(network)


def test_two_triangles_are_no_hexagon() -> None:
    pairs = lambda edges: Network(  # noqa: E731
        tuple(tuple(f"{min(e)}{max(e)}" for e in edges if node in e) for node in range(6)), (),
        {f"{min(e)}{max(e)}": 2 for e in edges},
    )  # fmt: skip
    hexagon = [(n, (n + 1) % 6) for n in range(6)]
    triangles = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)]
    assert structure_key(pairs(hexagon)) != structure_key(pairs(triangles))


@settings(max_examples=repeats(8, 25))
@given(st.integers(0, 10_000))
def test_what_is_done_once_changes_no_result(seed: int) -> None:
    """What no slice touches is contracted once, or again for each slice as a network of its own."""
    path = random_path(seed)
    arrays = random_arrays(path, seed)
    agrees(contracted(path, arrays), path, arrays)
    per_slice = [contracted(fixed, values) for fixed, values in slices(path, arrays)]
    agrees(np.asarray(np.sum(per_slice, axis=0, dtype=path.dtype)), path, arrays)


def contracted(path: ContractionPath, arrays: Arrays) -> Array:
    result = tnplan.execute(plan(path, eager_profile(), threshold_bytes=64), arrays, device="cpu").array
    assert result is not None
    return result


def slices(path: ContractionPath, arrays: Arrays) -> list[tuple[ContractionPath, Arrays]]:
    """Each slice as a contraction of its own, of which nothing is shared."""
    sizes = path.network.size_dict
    made = []
    for values in np.ndindex(*(sizes[index] for index in path.sliced_inds)):
        fixed = dict(zip(path.sliced_inds, values, strict=True))
        taken = [
            array[tuple(slice(fixed[i], fixed[i] + 1) if i in fixed else slice(None) for i in term)]
            for array, term in zip(arrays, path.network.inputs, strict=True)
        ]
        network = Network(
            path.network.inputs, path.network.output, {**sizes, **dict.fromkeys(path.sliced_inds, 1)}
        )
        made.append((replace(path, network=network, sliced_inds=()), taken))
    return made


def test_the_saving_of_reuse_is_in_the_report() -> None:
    path = replace(ring(16, ("d",)), ssa_path=((0, 1), (2, 3), (4, 5)))
    row = project([path], load_profile("cpu"), [1]).rows[0]
    once_s, slice_s = row.schedule.predicted.once_s, row.schedule.predicted.slice_s
    assert row.reuse_saving == pytest.approx(15 * once_s / (16 * (once_s + slice_s)))
    assert row.flop_per_s == pytest.approx(row.complexity / row.time_s)


def test_several_networks_and_machines_make_one_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, path in (("a", ring(16, name="a")), ("b", ring(16, ("b",), "b")), ("c", ring(8, name="c"))):
        save_path(path, Path(f"{name}.json"))
    words = ["a.json", "b.json", "c.json", "--devices", "1,8", "--hardware", "cpu", "--hardware", "dgx-h100"]
    words += ["--baseline-time", "0"]
    assert run(["report", *words, "--html", "r.html"]) == 0
    assert "c on dgx-h100" in capsys.readouterr().out
    page = Path("r.html").read_text()
    assert page.count("<details>") == page.count("</details>") == 4
    assert "On 8 devices" in page
    assert run(["report", *words, "--json"]) == 0
    reports = json.loads(capsys.readouterr().out)["reports"]
    assert [(one["name"], one["hardware"], len(one["paths"])) for one in reports] == [
        ("a", "cpu", 2), ("a", "dgx-h100", 2), ("c", "cpu", 1), ("c", "dgx-h100", 1),
    ]  # fmt: skip
    assert all(one["rows"][0]["flop_per_s"] > 0 for one in reports)


def test_what_fits_nowhere_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save_path(ring(16, name="a"), Path("a.json"))
    shipped = (resources.files("tnplan.planner.hardware") / "cpu.toml").read_text()
    small = shipped.replace("memory_bytes = 4_000_000_000", "memory_bytes = 20")
    Path("small.toml").write_text(small.replace('name = "cpu"', 'name = "small"', 1))
    words = ["a.json", "--devices", "1,2", "--hardware", "cpu", "--hardware", "small.toml"]
    said = "left out: a: --memory: no path fits on 1, 2 devices of small"
    assert run(["report", *words, "--html", "r.html"]) == 0
    assert said in capsys.readouterr().out
    assert said in Path("r.html").read_text()
    assert run(["report", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["hardware"] for one in found["reports"]] == ["cpu"]
    (line,) = found["left_out"]
    assert line.startswith(said)
    assert run(["report", *words[:4], *words[6:], "--html", "none.html"]) == 2
    assert not Path("none.html").exists()


def test_a_call_reports_one_network() -> None:
    with pytest.raises(InputError, match="of 2 networks"):
        tnplan.report([ring(16), ring(8)], [1], hardware="cpu")


def test_a_page_of_one_projection_has_its_figures() -> None:
    text = report_page([project([ring(16)], load_profile("cpu"), [1, 2])])
    assert "What more memory saves" in text
    assert "<details>" not in text


def test_more_slices_than_numbers_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n = 1100
    network = Network(
        tuple((f"i{k}", f"i{(k + 1) % n}") for k in range(n)), (), {f"i{k}": 2 for k in range(n)}
    )
    steps = ((0, 1), *((n + k, k + 2) for k in range(n - 2)))
    save_path(ContractionPath(network, steps, tuple(network.size_dict), "complex64"), tmp_path / "p.json")
    for words in (["plan"], ["report", "--devices", "1,2", "--hardware", "cpu"]):
        assert run([words[0], str(tmp_path / "p.json"), *words[1:]]) == 2
        error = capsys.readouterr().err
        assert error.strip().count("\n") == 0
        assert "2^1100 slices" in error
