"""`plot`: figures of schedules, projections and propagations, which notebooks show and files keep."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import tnplan
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.planner.hardware.process_grid import Layout
from tnplan.planner.schedule.schedule import Buffer, Mode, Redistribute

MATRICES = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 64, "b": 64, "c": 64})
PATH = tnplan.ContractionPath(MATRICES, ((0, 1),), ("b",))
NEEDS = r"needs matplotlib; install it with: pip install 'tnplan\[plot"
HADAMARD = tnplan.Gate("h", (0,), np.array([[1, 1], [1, -1]], complex) / 2**0.5)


def projection() -> tnplan.Projection:
    return tnplan.report([PATH], [1, 2, 4], hardware="cpu", baseline_time=0.1)


@pytest.mark.parametrize("kind", ["speedup", "complexity", "memory", "split"])
def test_projections(kind: str, tmp_path: Path) -> None:
    figure = tnplan.plot(projection(), kind)
    assert isinstance(figure, Figure)
    assert "P" in figure.axes[0].get_xlabel()
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert re.search("<svg.*</svg>", figure._repr_svg_(), re.DOTALL)


@pytest.mark.parametrize(
    "shown",
    [
        tnplan.plan(PATH),
        tnplan.show(tnplan.plan(PATH, devices=2, ranks_per_group=2, threshold=1)),
        [projection(), projection()],
        tnplan.propagate(tnplan.GateSequence(2, (HADAMARD,)), "Z0 Z1", device="cpu"),
    ],
    ids=["schedule", "chain", "projections", "propagation"],
)
def test_other_results(shown: Any) -> None:
    figure = tnplan.plot(shown)
    assert isinstance(figure, Figure)
    assert len(figure.axes[0].get_children()) > 10


def test_the_tree_of_a_path_shows_its_slices() -> None:
    chain = tnplan.Network(
        (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")), ("a", "e"), dict.fromkeys("abcde", 4)
    )
    path = tnplan.ContractionPath(chain, ((0, 1), (2, 3), (4, 5)), ("b",))
    axes = tnplan.plot(path).axes[0]
    (lines,) = axes.collections
    colours = [tuple(colour) for colour in lines.get_colors()]
    assert len(colours) == 6
    sliced, same, made = colours[0], colours[2], colours[4]
    assert colours == [sliced, sliced, same, same, made, same]
    assert len({sliced, same, made}) == 3
    assert {segment[1][1] for segment in map(np.asarray, lines.get_segments())} == {1, 2, 3}


def parts(figure: Figure) -> list[list[str]]:
    """The labels of the parts before and after, in rows from the top."""
    axes = figure.axes[0]
    texts = [text for text in axes.texts if text.get_text() not in ("before", "after")]
    middle = sum(axes.get_xlim()) / 2
    return [
        [text.get_text() for text in texts if (text.get_position()[0] < middle) == is_left]
        for is_left in (True, False)
    ]


@pytest.mark.parametrize(
    ("source", "out", "before", "after"),
    [
        ((0, 1), (0, 2), ["0", "0", "1", "1", "2", "2", "3", "3"], ["0", "1", "0", "1", "2", "3", "2", "3"]),
        ((2, 1), (None, None), ["0", "1", "2", "3"], ["all"] * 4),
        ((0, 1), (1, None), ["0", "1", "2", "3"], ["0, ... (2)", "2, ... (2)"] * 2),
    ],
)
def test_a_redistribution_shows_which_rank_holds_what(
    source: Layout, out: Layout, before: list[str], after: list[str]
) -> None:
    """Modes 0, 1 and 2 have extent 2; the ranks are 2 a + b with the digits a and b."""
    plan = tnplan.plan(PATH, devices=4, ranks_per_group=4)
    assert [digit.radix for digit in plan.grid] == [2, 2]
    buffers = tuple(Buffer((0, 1, 2), layout, 0, 16) for layout in (source, out))
    small = tuple(Buffer((0, 1), layout, 0, 8) for layout in ((None, None), (0, 1)))
    items = (Redistribute(2, 3, None, 0), Redistribute(0, 1, None, 0))
    modes = tuple(Mode(name, 2) for name in "abc")
    shown = replace(plan, modes=modes, buffers=buffers + small, once=(), outer=(), body=items)
    assert parts(tnplan.plot(shown, "redistribution")) == [before, after]


# fmt: off
REFUSED: list[Row] = [
    (lambda: (MATRICES,), "plot", "cannot draw Network", "give a path, a schedule"),
    (lambda: (projection(), "pie"), "kind", "'pie' is unknown", "speedup"),
    (lambda: (PATH, "chain"), "kind", "is 'chain', and ContractionPath has one plot", "leave it out"),
    (lambda: (tnplan.plan(PATH), "redistribution"), "plot",
     "no tensor of the schedule is redistributed", "plan with more devices"),
]
# fmt: on


@table(REFUSED)
def test_what_cannot_be_drawn_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(lambda: tnplan.plot(*refusal.given()))


def test_without_matplotlib_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before the work: no file is written, nothing is planned."""
    from importlib import util

    from tnplan.common import checks

    find = util.find_spec
    monkeypatch.setattr(checks, "find_spec", lambda name: None if name == "matplotlib" else find(name))
    schedule = tnplan.plan(PATH, hardware="cpu")
    calls = (
        lambda: tnplan.plot(PATH),
        lambda: tnplan.show(schedule, plot=tmp_path / "s.svg"),
        lambda: tnplan.report([PATH], [1], hardware="cpu", html=tmp_path / "r.html"),
        lambda: tnplan.propagate(tnplan.GateSequence(1, [HADAMARD]), "Z0", record=tmp_path / "r.svg"),
    )
    for call in calls:
        with pytest.raises(tnplan.InputError, match=NEEDS):
            call()
    assert list(tmp_path.iterdir()) == []
    assert tnplan.report([PATH], [1], hardware="cpu", baseline_time=0).rows
