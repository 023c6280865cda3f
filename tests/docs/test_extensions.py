"""What the build of the documents checks is found where it is wrong."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.support.root import ROOT
from tnplan.common.errors import PAGES


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that imports an extension of docs/extensions."""
    pytest.importorskip("myst_nb", reason="needs the extra docs")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    yield lambda name: import_module(f"extensions.{name}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "extensions"]:
        del sys.modules[name]


def test_an_address_that_leads_nowhere(extension: Any, tmp_path: Path) -> None:
    missing = extension("addresses").missing
    assert set(PAGES.values()) <= set(missing(tmp_path))
    (tmp_path / "how-to").mkdir()
    page = tmp_path / "how-to" / "cluster.html"
    page.write_text('<section id="mpi">')
    assert "how-to/cluster.md#mpi" not in missing(tmp_path)
    assert "how-to/cluster.md#kernels" in missing(tmp_path)


def test_a_sentence_that_is_too_long(extension: Any) -> None:
    prose = extension("prose").Prose
    hard = prose(("Incomprehensibility characterizes extraordinarily institutionalized communications.",))
    easy = prose(("The cat sat on the mat.", "It was warm."))
    assert hard.reading_ease < 45 < easy.reading_ease
    assert prose(("a" * 200,)).too_long == []
    assert prose(("a" * 201,)).too_long == ["a" * 201]


def test_a_formula_is_drawn_in_the_page(extension: Any) -> None:
    drawn = extension("formulas").svg_of
    text = drawn(r"\frac{1}{2} \sum_i x_i^2 < 1")
    assert text.startswith("<svg")
    assert r"<title>\frac{1}{2} \sum_i x_i^2 &lt; 1</title>" in text
    assert "http" not in text.replace("http://www.w3.org", "")  # names of the format, which nobody fetches
    assert drawn("x") != drawn("y")
    with pytest.raises(ValueError, match="nonsense"):
        drawn(r"\nonsense{x}")
