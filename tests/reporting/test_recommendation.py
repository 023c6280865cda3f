"""What a report recommends: the most devices that are worth while, and what costs least."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.support.networks import random_path
from tests.support.root import ROOT
from tnplan.cli.main import run
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.projection.baseline import Baseline
from tnplan.planner.projection.projection import Projection, project
from tnplan.reporting.page import report_page
from tnplan.reporting.tables import recommendation, recommended


def with_times(times: dict[int, float], searched_s: float | None = 10.0) -> Projection:
    """A projection whose rows have these times by their number of devices; a searched path takes
    `searched_s` on one."""
    made = project([random_path(3)], load_profile("cpu"), [1])
    first = made.rows[0]
    rows = []
    for devices, time_s in times.items():
        extra = times[1] / time_s / devices if time_s else 1.0
        rows.append(replace(first, devices=devices, time_s=time_s, extra_speedup=extra))
    baseline = Baseline(0.0 if searched_s is None else 2.0, given_s=times[1], searched_s=searched_s)
    return replace(made, rows=tuple(rows), baseline=baseline)


@pytest.mark.parametrize(
    ("times", "devices"),
    [
        ({1: 8.0}, 1),
        ({1: 8.0, 2: 4.0, 4: 2.0}, 4),
        ({1: 8.0, 2: 7.9, 4: 7.8}, 1),
        ({1: 8.0, 2: 4.0, 4: 3.9, 8: 3.8}, 2),
        ({1: 8.0, 2: 7.9, 4: 2.0}, 4),  # a plateau before a large gain is no end
        ({1: 8.0, 8: 7.0}, 1),  # 4 percent for each of three doublings
        ({1: 0.0, 2: 0.0}, 1),
    ],
)
def test_the_most_devices_that_are_worth_while(times: dict[int, float], devices: int) -> None:
    assert recommended(with_times(times)).devices == devices


def test_the_sentences_have_time_reason_and_cost() -> None:
    assert recommendation(with_times({1: 8.0, 2: 4.0, 4: 1.0})) == [
        "4 devices: 1.00 s, 8.00 times faster than 1 device.",
        "This costs 2.00 times fewer device-hours than 1 device.",
        "T_1 is that of the fastest of the paths given; a path found here in 2.00 s takes 1.25 times as "
        "long.",
    ]
    text, cost, _ = recommendation(with_times({1: 8.0, 2: 6.0, 4: 5.9}))
    assert text.startswith(
        "2 devices: 6.00 s; with more than 2, each doubling shortens the time by less than 10%"
    )
    assert cost == "1 device takes 8.00 s and costs 1.50 times fewer device-hours."


def test_page_and_terminal_open_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    made = with_times({1: 8.0, 2: 4.0})
    first = report_page([made]).split("</h1>")[1]
    assert first.startswith("\n<p><strong>2 devices: 4.00 s, 2.00 times faster than 1 device.")
    path = ROOT / "paths" / "sycamore_n53_m10_b24_flops.json"
    words = ["--devices", "1,2", "--hardware", "dgx-h100", "--baseline-time", "0.1"]
    assert run(["report", str(path), *words]) == 0
    assert capsys.readouterr().out.startswith("2 devices: ")


GAIN = "times (faster|fewer)"


def test_without_a_searched_baseline_nothing_is_so_many_times_less() -> None:
    """Neither in the sentences nor in the page, where its cards have no speedup either."""
    for times in ({1: 8.0, 2: 4.0, 4: 1.0}, {1: 8.0, 2: 6.0, 4: 5.9}):
        searched, given = with_times(times), with_times(times, searched_s=None)
        assert re.search(GAIN, " ".join(recommendation(searched)))
        assert [re.search(GAIN, text) for text in recommendation(given)] == [None] * 2
        assert "none was searched, so S_P, E_P and R_P only compare" in recommendation(given)[1]
        assert recommendation(given)[1] in str(given)
        cards = [re.findall('class="name">([^<]*)<', report_page([made])) for made in (searched, given)]
        assert [len(names) for names in cards] == [5, 2]
        assert not re.search(GAIN, report_page([given]))
