"""Tests and benchmarks ask for names that are there, also those that run only on a GPU."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.root import ROOT

FILES = sorted(path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
OURS = ("tnplan", "tests")
PATCHES = ("setattr", "object")
"""Of a MonkeyPatch and of `unittest.mock.patch`: what is patched, and its name."""


def loaded(name: str) -> ModuleType | None:
    """A module; None for those that need what is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and str(error.name).startswith(OURS):
            raise
        return None


def asked(tree: ast.Module) -> Iterator[tuple[int, Any, str]]:
    """Names that a file imports, reads of modules and patches: the line, what has the name, and the name."""
    known: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in OURS:
            module = loaded(str(node.module))
            for one in node.names if module is not None else ():
                if not (hasattr(module, one.name) or has_file(str(node.module), one.name)):
                    yield node.lineno, module, one.name
                elif node.col_offset == 0 and hasattr(module, one.name):
                    known[one.asname or one.name] = getattr(module, one.name)
    for node in ast.walk(tree):  # what is bound again somewhere may be something else there
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.pop(node.id, None)
        elif isinstance(node, ast.arg):
            known.pop(node.arg, None)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            of = known.get(node.value.id)
            if isinstance(of, ModuleType):
                yield node.lineno, of, node.attr
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in PATCHES and len(node.args) > 1:
            of, name = node.args[:2]
            if isinstance(of, ast.Name) and of.id in known and isinstance(name, ast.Constant):
                yield node.lineno, known[of.id], str(name.value)


def has_file(module: str, name: str) -> bool:
    """Whether a name is that of a module, one that cannot be imported here too."""
    folder = ROOT / module.replace(".", "/")
    return (folder / f"{name}.py").exists() or (folder / name).is_dir()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_names_are_there(path: Path) -> None:
    missing = [
        f"{path.name}:{line}: {getattr(of, '__name__', of)} has no {name}"
        for line, of, name in asked(ast.parse(path.read_text(encoding="utf-8")))
        if not hasattr(of, name) and not has_file(getattr(of, "__name__", ""), name)
    ]
    assert missing == []


@pytest.mark.parametrize(
    "text",
    [
        "from tnplan.common import files\nfiles.no_such_name()",
        "def late():\n    from tnplan.common.files import no_such_name",
        "from tnplan.common import files\npatch.setattr(files, 'no_such_name', 1)",
    ],
)
def test_names_that_are_not_there_are_found(text: str) -> None:
    assert [name for _, of, name in asked(ast.parse(text)) if not hasattr(of, name)] == ["no_such_name"]
