"""Names and sizes: what a folder, a class name and a signature may be; a broken rule is seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.house import rules
from tests.support.root import ROOT

CLASS = "class Plan:\n    pass\n"
LONG = "def f(a, b, c, d, e, f, g, h, i):\n    pass\n"

RULES: dict[str, tuple[Callable[[Path], list[str]], dict[str, str]]] = {
    "folders": (rules.full_folders, {f"tnplan/planner/search/file_{number}.py": "" for number in range(26)}),
    "small folders": (
        rules.small_folders,
        {f"tnplan/{folder}{file}.py": "" for folder in ("", "planner/") for file in ("__init__", *"abc")},
    ),
    "classes": (
        rules.repeated_classes,
        {"tnplan/planner/search/a.py": CLASS, "tnplan/compress/cpu/b.py": CLASS},
    ),
    "parameters": (rules.long_signatures, {"tnplan/compress/cpu/a.py": LONG}),
    "methods": (
        rules.long_signatures,
        {"tnplan/executor/a.py": "class A:\n    def _f(self, a, b, c, d, *, e, f, g, h, i):\n        pass\n"},
    ),
    "twins": (
        rules.unlike_twins,
        {
            f"tnplan/executor/device/{name}": ""
            for name in ("protocols/codec.py", "cpu/codec.py", "cuda/x.py")
        },
    ),
    "tests of tests": (rules.reaching_tests, {"tests/a.py": "from tests.planner.test_plan import path\n"}),
    "tests of private names": (rules.reaching_tests, {"tests/a.py": "from tnplan.planner.a import _name\n"}),
    "tests of private attributes": (
        rules.reaching_tests,
        {"tests/a.py": "from tnplan.planner import a\n\na._name()\n"},
    ),
    "tests that replace private names": (
        rules.reaching_tests,
        {"tests/a.py": "import tnplan.planner.a as b\n\nmonkeypatch.setattr(b, '_name', 1)\n"},
    ),
    "changelog lines": (rules.changelog_faults, {"CHANGELOG.md": f"## Unreleased\n\n- {'long ' * 25}\n"}),
    "changelog sections": (
        rules.changelog_faults,
        {"CHANGELOG.md": "## Unreleased\n\n## 0.2.0 (2026-11-25)\n\n## 0.2.0\n"},
    ),
    "changelog begins": (rules.changelog_faults, {"CHANGELOG.md": "## 0.2.0 (2026-11-25)\n"}),
    "sources": (rules.gpu_sources, {"tnplan/executor/pauli/table.cuh": ""}),
}
"""Each rule with files that break it."""


@pytest.mark.parametrize("name", RULES)
def test_the_house_keeps_the_rule(name: str) -> None:
    assert RULES[name][0](ROOT) == []


@pytest.mark.parametrize("name", RULES)
def test_a_broken_rule_is_seen(name: str, tmp_path: Path) -> None:
    rule, files = RULES[name]
    for file, text in files.items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert len(rule(tmp_path)) == 1
