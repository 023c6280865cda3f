"""The baseline of speedups: a path for one device that is searched, beside poor ones that are given."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from math import inf, log2, prod
from pathlib import Path

import pytest

import tnplan
from tests.support.effort import repeats
from tests.support.slow import slow_after
from tnplan.cli.main import run
from tnplan.common.errors import InputError
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import load_path, save_path
from tnplan.planner.projection.baseline import BEFORE, HERE, SAVED, BaselineSearch
from tnplan.planner.projection.projection import Projection, project
from tnplan.planner.search import cotengra_search
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_options import SearchOptions
from tnplan.reporting.json_documents import projection_document
from tnplan.reporting.page import report_page
from tnplan.reporting.tables import recommendation

PROFILE = load_profile("dgx-h100")
DEVICES = (1, 4, 16)


def lattice(seed: int) -> Network:
    """A square lattice of random extents."""
    draw = random.Random(seed)
    rows, columns = draw.randint(4, 5), draw.randint(5, 6)
    terms: list[list[str]] = [[] for _ in range(rows * columns)]
    sizes: dict[str, int] = {}
    for site in range(rows * columns):
        neighbours = ([site + 1] if (site + 1) % columns else []) + [site + columns]
        for other in (one for one in neighbours if one < rows * columns):
            name = f"i{len(sizes)}"
            sizes[name] = draw.randint(3, 6)
            terms[site].append(name)
            terms[other].append(name)
    return Network(tuple(map(tuple, terms)), (), sizes)


def poor_paths(seed: int) -> tuple[list[ContractionPath], float]:
    """Paths for 16, 4 and 1 devices, and the memory of one, which holds the tensors of the network.

    All are a sweep over the lattice. In turn the best of six random indices is sliced, until its largest
    tensor is small enough.
    """
    network, draw = lattice(seed), random.Random(seed)
    n = len(network.inputs)
    sweep = ((0, 1), *((n + step, step + 2) for step in range(n - 2)))
    path = ContractionPath(network, sweep, (), "complex64")
    largest = path_cost(path).log2_largest
    found = []
    for devices in (16, 4, 1):
        while path_cost(path).log2_largest > largest - 4 + log2(devices):
            left = [index for index in network.size_dict if index not in path.sliced_inds]
            more = [replace(path, sliced_inds=(*path.sliced_inds, index)) for index in draw.sample(left, 6)]
            path = min(more, key=lambda one: path_cost(one).log2_largest)
        found.append(replace(path, name=f"for {devices}"))
    inputs = sum(prod(network.shape(number)) for number in range(n))
    return found, 8 * max(10 * 2 ** (largest - 4), 2 * inputs)


def agrees_with_itself(found: Projection) -> None:
    """What is said of the baseline is what the rows and the figures have."""
    known, first = found.baseline, found.rows[0]
    assert found.baseline_devices == 1
    assert known.searched_s is not None
    assert first.time_s == min(one for one in (known.given_s, known.searched_s) if one is not None)
    alone = project([found.paths[-1]], found.profile, DEVICES, memory_bytes=found.memory_bytes)
    for row, searched in zip(found.rows, alone.rows, strict=True):
        assert row.time_s <= searched.time_s
        assert row.speedup == pytest.approx(first.time_s / row.time_s)
        assert row.extra_speedup == pytest.approx(row.speedup / row.devices)
    document = projection_document(found)["baseline"]
    assert document["source"] == ("searched" if first.path == len(found.paths) - 1 else "given")
    assert (document["time_s"], document["path"]) == (first.time_s, found.labels[first.path])


@pytest.mark.parametrize("seed", slow_after(1, range(repeats(2, 40))))
def test_speedups_count_from_a_path_that_was_looked_for(seed: int) -> None:
    """A poor path for one device makes no speedup: the report finds one that is twice as fast, or more."""
    given, memory_bytes = poor_paths(seed)
    found = project(given, PROFILE, DEVICES, memory_bytes=memory_bytes, baseline=BaselineSearch(0.4))
    agrees_with_itself(found)
    assert found.baseline.ratio is not None
    assert found.baseline.ratio > 2
    assert "times as long on 1 device" in found.baseline_text


def test_smaller_tensors_are_allowed_where_none_of_a_search_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search whose trees have no step that fits is made again; the next one begins with its limit."""
    whole = replace(poor_paths(0)[0][0], meta={"predicted_s": 1.0})
    limits: list[int] = []

    def searched(network: Network, dtype: str, options: SearchOptions) -> ContractionPath:
        limits.append(options.max_tensor_elements or 0)
        if limits[-1] > limits[0] // 10:
            raise InputError("step 0", "does not fit", "slice more")
        return whole

    monkeypatch.setattr(cotengra_search, "search_path", searched)
    assert BaselineSearch(0.1).find([whole], PROFILE, 2**20, None, inf) is not None
    first = limits[0]
    assert limits == [first, first // 4, first // 4 // 4, first // 4 // 4]


def test_what_is_given_may_be_the_baseline() -> None:
    """A path of a longer search is not worse than one of no time; the latter stands beside it."""
    network = lattice(0)
    good = replace(tnplan.search(network, devices=1, hardware=PROFILE, time=1), name="good")
    found = project([good], PROFILE, DEVICES, baseline=BaselineSearch(0.01))
    agrees_with_itself(found)
    assert found.baseline.ratio == pytest.approx(1, rel=0.3)
    assert "T_1 is that of " in found.baseline_text


def test_a_searched_path_is_written_and_gives_the_same_figures_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (*_, given), memory_bytes = poor_paths(0)
    save_path(given, "given.json")
    words = ["report", "given.json", "--devices", "1,4", "--hardware", "dgx-h100", "--baseline", "one.json"]
    words += ["--memory", f"{memory_bytes:.0f}"]
    assert run([*words, "--baseline-time", "0.2"]) == 0
    text = capsys.readouterr().out
    assert "wrote one.json" in text
    assert HERE in text
    saved = load_path("one.json")
    assert saved.meta[SAVED]["hardware"] == "dgx-h100"
    documents = []
    for seconds in ("0", "100"):
        assert run([*words, "--baseline-time", seconds, "--json"]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    assert documents[0] == documents[1]
    (made,) = documents[0]["reports"]
    assert made["baseline"]["path"] == made["paths"][-1] == BEFORE
    assert made["baseline"]["search_s"] == saved.meta[SAVED]["search_s"] > 0
    assert run([*words, "--precision", "tf32"]) == 2
    assert "--baseline: was searched for precision None, not tf32" in capsys.readouterr().err
    again = tnplan.report(
        ["given.json"], [1, 4], hardware="dgx-h100", memory=memory_bytes, baseline="one.json"
    )
    assert again.rows[0].time_s == made["rows"][0]["T_P_s"]
    save_path(replace(poor_paths(1)[0][2], sliced_inds=()), "given.json")
    assert run(words) == 2
    assert "--baseline: is a path of another network" in capsys.readouterr().err


def test_a_result_too_large_for_one_device_has_no_baseline() -> None:
    """Figures count from the least devices that hold it, and nothing is so many times less."""
    outer = Network((("a",), ("b",)), ("a", "b"), {"a": 4096, "b": 4096})
    path = ContractionPath(outer, ((0, 1),))
    found = project([path], PROFILE, [1, 4, 16], memory_bytes=2**27, baseline=BaselineSearch(0.1))
    assert found.baseline_devices == 4
    assert found.baseline_text.startswith("No path that fits 1 device was found here in ")
    assert "times less" not in " ".join(recommendation(found)) + report_page([found])
    document = projection_document(found)["baseline"]
    assert (document["source"], document["given_s"], document["searched_s"]) == ("given", None, None)
    assert document["search_s"] > 0


def test_a_path_that_fits_several_devices_alone_has_a_searched_baseline() -> None:
    (_, several, _), memory_bytes = poor_paths(0)
    whole = replace(several, sliced_inds=several.sliced_inds[:-1])
    found = project([whole], PROFILE, DEVICES, memory_bytes=memory_bytes, baseline=BaselineSearch(0.2))
    if found.baseline.given_s is None:
        assert found.baseline_text.endswith("no path given fits 1 device.")
    agrees_with_itself(found)


def test_paths_of_two_dtypes_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Single precision on many devices is no speedup over double precision on one."""
    monkeypatch.chdir(tmp_path)
    single = poor_paths(0)[0][0]
    double = replace(single, dtype="complex128")
    with pytest.raises(InputError, match="of 2 networks or dtypes"):
        tnplan.report([single, double], [1], hardware="cpu", baseline_time=0)
    for path in (single, double):
        save_path(path, f"{path.dtype}.json")
    words = ["--devices", "1", "--hardware", "cpu", "--baseline-time", "0", "--json"]
    assert run(["report", "complex64.json", "complex128.json", *words]) == 0
    reports = json.loads(capsys.readouterr().out)["reports"]
    assert [made["paths"] for made in reports] == [["complex64"], ["complex128"]]
