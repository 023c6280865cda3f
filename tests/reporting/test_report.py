"""Reports: numbers as text, the use-chain, plots, the page."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from rich.console import Console

from tnplan.common.units import figure_text, percent_text, scientific, size_text, time_text
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.projection.baseline import Baseline
from tnplan.planner.projection.projection import Projection, project
from tnplan.planner.schedule.schedule import Schedule
from tnplan.reporting import chain, evaluation, page, plots, tables
from tnplan.reporting import json_documents as documents

SVG = "{http://www.w3.org/2000/svg}"


def matrices(sliced: Sequence[str] = (), extent: int = 64) -> ContractionPath:
    """A row of five matrices with open ends; its intermediates are as large as its inputs."""
    letters = "abcdef"
    inputs = tuple((letters[i], letters[i + 1]) for i in range(5))
    network = Network(inputs, ("a", "f"), dict.fromkeys(letters, extent))
    return ContractionPath(
        network, ((0, 1), (5, 2), (6, 3), (7, 4)), tuple(sliced), "complex64", "row & <five>"
    )


@pytest.fixture(scope="module")
def projection() -> Projection:
    return project(
        [matrices(), matrices(("c",))], load_profile("cpu"), [1, 2, 4], memory_bytes=260_000,
        threshold_bytes=1024, labels=["whole", "sliced & cut"],
    )  # fmt: skip


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    return plan(
        matrices(),
        load_profile("cpu"),
        devices=4,
        ranks_per_group=4,
        memory_bytes=80_000,
        threshold_bytes=1024,
    )


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (size_text(0), "0 B"),
        (size_text(1023), "1023 B"),
        (size_text(1536), "1.50 KiB"),
        (size_text(2**20 - 128), "1.00 MiB"),
        (size_text(8 * 2**30), "8.00 GiB"),
        (size_text(300 * 2**40), "300 TiB"),
        (size_text(math.inf), "unlimited"),
        (time_text(0), "0 s"),
        (time_text(3.2e-3), "3.20 ms"),
        (time_text(46.04e-6), "46.0 µs"),
        (time_text(599), "599 s"),
        (time_text(3600), "60.0 min"),
        (time_text(9e11), "28,519 years"),
        (time_text(9e14), "2.85 \u00d7 10⁷ years"),
        (figure_text(7), "7"),
        (figure_text(0.9871), "0.99"),
        (figure_text(5320.4), "5,320"),
        (figure_text(67869.2), "67,869"),
        (figure_text(2**36), "6.87 \u00d7 10¹⁰"),
        (figure_text(0.0), "0.00"),
        (scientific(9.999e5), "1.00 \u00d7 10⁶"),
        (scientific(-2.5e-7), "-2.50 \u00d7 10⁻⁷"),
        (percent_text(0.0461), "4.6 %"),
    ],
)
def test_numbers_as_people_read_them(made: str, text: str) -> None:
    assert made == text


def test_the_use_chain_holds_the_large_and_distributed_steps(schedule: Schedule) -> None:
    links = chain.use_chain(schedule)
    assert [link.number for link in links] == [0, 1, 2, 3]
    assert all(link.a_bytes == link.b_bytes == link.c_bytes == 64 * 64 * 8 for link in links)
    assert sum(chain.state_counts(schedule).values()) == 4
    assert set(chain.state_counts(schedule)) <= set(chain.STATES)
    assert len(chain.largest(links, 2)) == 2
    alone = plan(matrices(extent=2), load_profile("cpu"), threshold_bytes=1024)
    assert chain.use_chain(alone) == []


def test_a_part_of_an_index_is_named_by_its_place(schedule: Schedule) -> None:
    modes = schedule.indices["a"]
    assert chain.mode_names(schedule, modes[:2]) == ["a.0", "a.1"]
    assert chain.mode_names(schedule, modes[:2], (modes[1], None)) == ["a.0", "a.1*"]


def test_the_documents_are_plain_json(schedule: Schedule, projection: Projection) -> None:
    from tnplan.common.files import identity_of

    made = documents.chain_document(schedule, 2)
    assert made["ranks_per_group"] == 4
    assert made["grid"] == [2, 2]
    assert len(made["steps"]) == 2
    assert made["states"] == chain.state_counts(schedule)
    report = documents.projection_document(projection)
    assert [row["devices"] for row in report["rows"]] == [row.devices for row in projection.rows]
    for row in report["rows"]:
        assert row["E_P"] == pytest.approx(row["S_P"] * report["baseline_devices"] / row["devices"])
        assert row["E_P_over_R_P"] == pytest.approx(row["E_P"] / row["R_P"])
        assert sum(row["split_s"].values()) == pytest.approx(row["T_P_s"])
    assert identity_of(made)
    assert identity_of(report)


@pytest.mark.parametrize("on_page", [False, True])
def test_plots_are_svg(schedule: Schedule, projection: Projection, on_page: bool) -> None:
    figures = [
        plots.svg(plots.chain, schedule, on_page),
        plots.svg(plots.speedup, projection, on_page),
        plots.svg(plots.complexity, projection, on_page),
        plots.svg(plots.split, projection, on_page),
    ]
    for svg in figures:
        text = svg if on_page else svg[svg.index("<svg") :]
        root = ElementTree.fromstring(text)
        assert root.tag == f"{SVG}svg"
        assert len(list(root.iter(f"{SVG}path"))) > 5
        assert ("var(--blue)" in svg) == on_page
        assert (plots.BLUE in svg) != on_page


def test_a_lone_bar_is_no_wider_than_others(projection: Projection) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    plots.split(axes, replace(projection, rows=projection.rows[:1]))
    left, right = axes.get_xlim()
    assert right - left == pytest.approx(5.2)


def test_a_plot_is_the_same_each_time(schedule: Schedule) -> None:
    assert plots.svg(plots.chain, schedule) == plots.svg(plots.chain, schedule)


def test_a_schedule_without_large_steps_has_a_plot_that_says_so() -> None:
    small = plan(matrices(extent=2), load_profile("cpu"), threshold_bytes=1024)
    assert "nothing to distribute" in plots.svg(plots.chain, small, page=True)


class Page(HTMLParser):
    """Checks that tags nest, and collects what a reader sees and what a browser would fetch."""

    VOID = ("meta", "br", "link", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.text = ""
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self.fetched += [
            value for name, value in attrs if name in ("src", "href") and value and value[0] != "#"
        ]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_and_asks_for_nothing(projection: Projection) -> None:
    text = page.report_page([projection])
    read = Page()
    read.feed(text)
    assert read.open == []
    assert read.fetched == []
    assert not re.search(r"url\((?!#)|@import|<script|<link", text)
    assert "row & <five>" in read.text
    assert "sliced & cut" in read.text
    assert read.tags.count("svg") >= 4
    assert "prefers-color-scheme: dark" in text
    for row in projection.rows:
        assert row.schedule.identity in read.text
        assert time_text(row.time_s) in read.text
    for refusal in projection.refusals:
        assert refusal.reason in read.text


def test_the_page_says_where_speedups_count_from() -> None:
    found = project([matrices()], load_profile("cpu"), [2, 4], memory_bytes=55_000, threshold_bytes=1024)
    assert found.baseline_devices == 4
    assert "not from one device" in page.report_page([found])
    assert [note.partition(":")[0] for note in tables.projection_notes(found)][:2] == [
        "1 device",
        "2 devices",
    ]


def test_a_tensor_alone_on_one_device_or_more() -> None:
    """Nothing is contracted: no step takes time, and no share of it can be told."""
    path = ContractionPath(Network((("a", "b"),), ("b", "a"), {"a": 2, "b": 3}), ())
    found = project([path], load_profile("cpu"), [1, 2])
    assert [row.time_s for row in found.rows] == [0, 0]
    assert evaluation.slice_table(found).rows[1][-1] == "path: no step is predicted to take time"
    text = page.report_page([project([path], load_profile("cpu"), [1])])
    assert "Time on 1 device<" in text
    assert "1 slice. Steps: none." in text
    assert "1 tensor," in dict(tables.plan_facts(found.rows[0].schedule, 1))["network"]


@pytest.mark.parametrize(
    ("counts", "heads"), [([1], ["1 device"]), ([2, 8, 16], ["8 devices"]), ([6], ["6 devices"])]
)
def test_several_projections_are_compared_on_numbers_of_devices_that_there_are(
    counts: list[int], heads: list[str]
) -> None:
    found = [project([matrices()], load_profile(name), counts) for name in ("cpu", "dgx-h100")]
    text = page.report_page(found)
    assert re.findall(r"<h2>On (\d+ devices?)</h2>", text) == heads
    assert text.count('<td class="left">dgx-h100</td>') == len(heads)


def test_columns_have_their_subscripts(projection: Projection) -> None:
    text = page.report_page([projection])
    for column in ("E<sub>P</sub>/R<sub>P</sub>", "log10 C<sub>t,P</sub>"):
        assert f">{column}</th>" in text


def test_the_axes_of_fig_1_are_whole_numbers_and_wide_enough() -> None:
    found = project([matrices()], load_profile("cpu"), [1, 2])
    svg = plots.svg(plots.memory, found, page=True)
    log = found.demands[0].complexity
    labels = re.findall(r"<text[^>]*>([^<]+)</text>", svg)
    assert [label for label in labels if label.startswith("+")] == []
    ticks = [float(label) for label in labels if re.fullmatch(r"[0-9.]+", label)]
    assert min(tick for tick in ticks if tick > 2) < math.log10(log) < max(ticks)
    assert "0.01" not in labels
    assert {"0", "1"} <= set(labels)


def test_speedups_over_more_than_one_device_are_told_in_a_comparison() -> None:
    profile = load_profile("cpu")
    four = project([matrices()], profile, [2, 4], memory_bytes=55_000, threshold_bytes=1024)
    one = project([matrices()], load_profile("dgx-h100"), [1, 2, 16])
    svg = plots.svg(plots.comparison, [four, one], page=True)
    assert "cpu, over 4 devices, no baseline searched<" in svg
    assert "dgx-h100, no baseline searched<" in svg
    searched = replace(one, baseline=Baseline(1.0, None, 2.0, 3.0))
    assert "dgx-h100<" in plots.svg(plots.comparison, [searched], page=True)
    assert "ideal slicing<" in plots.svg(plots.speedup, searched, page=True)
    label = "ideal slicing of row &amp; &lt;five&gt;, none searched<"
    assert label in plots.svg(plots.speedup, one, page=True)
    assert "one nvlink domain" not in svg
    assert "one nvlink domain" in plots.svg(plots.comparison, [one], page=True)
    labels = re.findall(r"<text[^>]*>([^<]+)</text>", svg)
    assert {"1", "2", "4", "16"} <= set(labels)


def test_tables_hold_every_row(projection: Projection, schedule: Schedule) -> None:
    assert len(tables.projection_table(projection).rows) == len(projection.rows)
    assert dict(tables.plan_facts(schedule, 4))["ranks"] == "1 group of 4, process grid 2 \u00d7 2"
    assert dict(tables.plan_facts(schedule, 9))["ranks"].endswith("5 of 9 devices idle")
    sliced = plan(matrices(("c",)), load_profile("cpu"), devices=8, ranks_per_group=4)
    assert dict(tables.plan_facts(sliced, 9))["ranks"].startswith("2 groups of 4")
    assert dict(tables.plan_facts(sliced, 9))["slices"] == "64 over 1 index"
    assert len(tables.steps_table(schedule, chain.use_chain(schedule), "steps").rows) == 4


@pytest.mark.parametrize("width", [60, 80, 150])
def test_figures_stay_whole_on_narrow_terminals(width: int) -> None:
    cells = ("1,024", "a_path_with_a_long_name_" * 3, "6.87 \u00d7 10\u00b9\u2070", "1,196 years", "48.0 GiB")
    columns = ("P", "path", "slices", "T_P", "memory a rank")
    made = tables.Listing("title", columns, [cells, ("1", "b", "2", "3.00 s", "4.00 GiB")], ("path",))
    stream = io.StringIO()
    Console(file=stream, width=width).print(made)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for figure in (*cells[2:], "3.00 s"):
        assert sum(figure in line for line in lines) == 1
    heads = [line.split()[0] for line in lines if "P  " in line]
    assert heads == ["P"] * {60: 2, 80: 2, 150: 1}[width]


def test_rates_below_one_keep_their_digits(projection: Projection) -> None:
    """The profile cpu has less than a tenth of a TFLOP/s."""
    rates = [row[3].split() for row in evaluation.slice_table(projection).rows]
    exact = [row.flop_per_s / 1e9 for row in projection.rows]
    assert max(exact) < 100
    assert {unit for _, unit in rates} == {"GFLOP/s"}
    assert [float(figure) for figure, _ in rates] == pytest.approx(exact, rel=5e-3)
