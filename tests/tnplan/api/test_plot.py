"""`plot`: figures of schedules, projections and propagations, which notebooks show and files keep."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import tnplan

MATRICES = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 64, "b": 64, "c": 64})
PATH = tnplan.ContractionPath(MATRICES, ((0, 1),), ("b",))
HADAMARD = tnplan.Gate("h", (0,), np.array([[1, 1], [1, -1]], complex) / 2**0.5)


def projection() -> tnplan.Projection:
    return tnplan.report([PATH], [1, 2, 4], hardware="cpu")


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


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(tnplan.InputError, match="plot: cannot draw Network"):
        tnplan.plot(MATRICES)
    with pytest.raises(tnplan.InputError, match="kind"):
        tnplan.plot(projection(), "pie")
