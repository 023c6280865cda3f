"""The bar of `progress=True`: in a notebook, on a terminal, and in a log."""

from __future__ import annotations

import builtins
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import tnplan
from tnplan.jobs.progress import as_listener


class Handle:
    """What IPython's `display` returns for a display that is to be updated."""

    def __init__(self, shown: list[str]) -> None:
        self.shown = shown

    def update(self, html: str) -> None:
        self.shown.append(html)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A kernel of a notebook; what it shows."""
    shown: list[str] = []

    def display(html: str, display_id: bool) -> Handle:
        assert display_id
        shown.append(html)
        return Handle(shown)

    module = ModuleType("IPython.display")
    module.HTML, module.display = str, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(builtins, "get_ipython", lambda: SimpleNamespace(kernel=1), raising=False)
    return shown


def test_a_notebook_has_a_bar(notebook: list[str]) -> None:
    bar = tnplan.ProgressBar()
    bar(tnplan.Progress(0, 0, "device: cpu"))
    bar(tnplan.Progress(1, 3, "slice 1 of <3>"))
    bar(tnplan.Progress(2, 3, "at once"))
    bar(tnplan.Progress(3, 3, "slice 3 of 3"))
    assert notebook == [
        '<progress value="1" max="3"></progress> slice 1 of &lt;3&gt;',
        '<progress value="3" max="3"></progress> slice 3 of 3',
    ]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_elsewhere_it_is_a_line(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    bar = tnplan.ProgressBar()
    for done in range(1, 4):
        bar(tnplan.Progress(done, 3, f"slice {done}"))
    shown = capsys.readouterr().err
    assert shown == ("\r\x1b[2Kslice 1\r\x1b[2Kslice 3\n" if is_terminal else "slice 1\nslice 3\n")


def test_jobs_take_true(capsys: pytest.CaptureFixture[str]) -> None:
    matrices = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 4, "b": 8, "c": 2})
    schedule = tnplan.plan(tnplan.ContractionPath(matrices, ((0, 1),), ("b",)))
    values: Any = tnplan.load_profile  # something callable is a listener
    assert as_listener(values) is values
    assert as_listener(None) is as_listener(False) is None
    import numpy as np

    arrays = [np.ones((4, 8), np.complex64), np.ones((8, 2), np.complex64)]
    tnplan.execute(schedule, arrays, device="cpu", progress=True)
    assert "slice 8 of 8" in capsys.readouterr().err


def test_others_are_refused() -> None:
    with pytest.raises(tnplan.InputError, match="progress: is 3"):
        as_listener(3)  # type: ignore[arg-type]
