"""Conversion of documents by threads: msgspec describes a class for one of them at a time."""

from __future__ import annotations

import ast
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import msgspec
import pytest

from tnplan.common.files import converted


def test_one_thread_converts_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most, found = 0, 0, []
    convert = msgspec.convert

    def slow(content: Any, kind: Any) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        sleep(0.01)
        inside -= 1
        return convert(content, kind)

    monkeypatch.setattr(msgspec, "convert", slow)
    threads = [Thread(target=lambda: found.append(converted(["1"], tuple[str, ...]))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert found == [("1",)] * 4


def test_a_refused_document_lets_the_next_one_in() -> None:
    with pytest.raises(msgspec.ValidationError):
        converted("word", int)
    assert converted(2, int) == 2


def test_nothing_else_calls_msgspec_convert(root: Path) -> None:
    texts = {path: path.read_text() for path in (root / "tnplan").rglob("*.py")}
    callers = {
        str(path.relative_to(root))
        for path, text in texts.items() if "msgspec" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "msgspec.convert"
    }  # fmt: skip
    assert callers == {"tnplan/common/files.py"}
