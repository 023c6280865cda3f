"""Messages name pages: each has one, the pages exist, and pages say so."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tnplan
from tests.house import rules
from tests.support.root import ROOT
from tnplan.cli.main import run
from tnplan.common.errors import DOCS, OPTIONS, PAGES, InputError
from tnplan.compress.format.errors import PAGE
from tnplan.executor.device.protocols.communicator import AgreedError, agree
from tnplan.planner.hardware.profile import load_profile


def headings(page: Path) -> set[str]:
    """The anchors of a page, as the site makes them of its headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("address", [*PAGES.values(), PAGE.removeprefix(DOCS)])
def test_every_address_is_a_heading_of_a_page(address: str) -> None:
    name, _, heading = address.partition("#")
    page = ROOT / DOCS / name
    assert page.exists()
    assert not heading or heading in headings(page)


def test_every_page_that_the_code_names_exists() -> None:
    named = {
        (path.relative_to(ROOT), *found)
        for path in rules.sources(ROOT)
        for found in re.findall(r"\bdocs/([\w/-]+\.md)(#[\w-]+)?", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    wrong = [
        (path, name + heading)
        for path, name, heading in named
        if not (ROOT / DOCS / name).exists()
        or (heading and name != "reference/cli.md" and heading[1:] not in headings(ROOT / DOCS / name))
    ]
    assert wrong == []


def topics_in_the_code() -> set[str]:
    """The topics of modules, of errors and of options."""
    given = set(OPTIONS.values())
    for path in rules.sources(ROOT):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "topic" and isinstance(node.value, ast.Constant):
                given.add(str(node.value.value))
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TOPIC":
                given.add(ast.literal_eval(node.value))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "page_of":
                given |= {each.value for each in node.args if isinstance(each, ast.Constant)}
    return given


def test_every_topic_is_used_and_listed() -> None:
    assert topics_in_the_code() | {"other messages"} == set(PAGES)
    listed = (ROOT / DOCS / PAGES["other messages"]).read_text(encoding="utf-8")
    topics = set(re.findall(r"^\| ([^|]+) \| \[", listed, re.MULTILINE))
    assert topics == set(PAGES) - {"other messages"}


MATRICES = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 64, "b": 64, "c": 64})
FLIP = tnplan.GateSequence(1, (tnplan.Gate("x", (0,), np.array([[0, 1], [1, 0]], complex)),))


PATH = tnplan.ContractionPath(MATRICES, ((0, 1),))
REFUSED: dict[str, Callable[[], object]] = {
    "hardware profiles": lambda: load_profile("abacus"),
    "memory": lambda: tnplan.plan(PATH, memory="1KiB"),
    "contractions in Python": lambda: tnplan.contract("ij,jk", np.eye(2)),
    "searches": lambda: tnplan.search(MATRICES, max_tensor=0),
    "reports": lambda: tnplan.report([PATH], [], hardware="cpu"),
    "files of networks and schedules": lambda: tnplan.load_path("none.json"),
    "workloads": lambda: tnplan.workload.kings(2, 2, density=2.0),
    "Pauli propagation": lambda: tnplan.propagate(FLIP, "Z7", device="cpu"),
    "state vectors": lambda: tnplan.simulate(FLIP, amplitudes=["2"], device="cpu"),
    "questions about circuits": lambda: tnplan.Circuit(FLIP).estimate(),
    "circuits": lambda: tnplan.Gate("x", (0, 0), np.eye(4)),
    "molecules": lambda: tnplan.diagonalize("none.fcidump", [1]),
    "selected determinants": lambda: tnplan.Growth((-1.0,)),
    "qubit Hamiltonians": lambda: tnplan.diagonalize_qubits("Z0", ["01"], first_qubit="up"),
    "compressed exchanges": lambda: tnplan.plan(PATH, compress="exchange"),
}


@pytest.mark.parametrize("topic", REFUSED)
def test_a_refusal_names_the_page_of_its_topic(topic: str) -> None:
    with pytest.raises(InputError) as caught:
        REFUSED[topic]()
    assert caught.value.page == DOCS + PAGES[topic]
    assert caught.value.__notes__ == [f"See {caught.value.page}"]


def test_ranks_agree_on_the_page() -> None:
    def refuse() -> None:
        raise InputError("place", "problem", "remedy", "docs/a/page.md")

    with pytest.raises(AgreedError) as caught:
        agree(SimpleNamespace(gather_objects=lambda refusal: [None, refusal]), refuse)  # type: ignore[arg-type]
    assert caught.value.page == "docs/a/page.md"


def test_a_command_prints_the_page_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "missing.json"]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert line.endswith(f"(see {DOCS}{PAGES['files of networks and schedules']})\n")


def test_an_error_of_a_codec_names_its_page() -> None:
    with pytest.raises(tnplan.compress.CodecError) as caught:
        tnplan.compress.compress(np.ones(3), -1.0)
    assert caught.value.__notes__ == [f"See {PAGE}"]
