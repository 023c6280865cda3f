"""Every command that a page shows is one: its options, choices and numbers are read, and nothing is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from tests.support.root import ROOT
from tnplan.cli.main import cli

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN = re.compile(
    r"^ {4}(?:\S+=\S+ )*(?:mpirun -n \d+ |srun [^\n]*?)?tnplan ([a-z](?:[^\\\n]|\\\n)*)", re.MULTILINE
)
"""Lines of code blocks; the words of a line that ends in a backslash go on in the next one."""


def commands(page: Path) -> list[str]:
    """The commands in the blocks of a page."""
    return SHOWN.findall(page.read_text(encoding="utf-8"))


PAGES = [page for page in PAGES if "_build" not in page.parts and page.name != "cli.md" and commands(page)]


def words_of(line: str) -> list[str]:
    """The words of a command, without comments and what the shell does with its output."""
    words = shlex.split(line.replace("\\\n", " "), comments=True)
    ends = [number for number, word in enumerate(words) if word in (">", "|", "&&", ";")]
    return words[: min(ends, default=len(words))]


def check(words: list[str]) -> None:
    """Read the options of a command; raises click.UsageError for those that it has not."""
    context, command = click.Context(cli), cli
    while isinstance(command, click.Group):
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, name
        context, command = click.Context(found, parent=context), found
    if words:  # alone, a command shows its help or its version
        command.make_context(name, words, parent=context.parent)


def test_there_are_commands() -> None:
    assert sum(len(commands(page)) for page in PAGES) > 80


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_a_page_are_understood(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in commands(page):
        words = words_of(line)
        for word in words:
            if re.fullmatch(r"[A-Za-z][\w.*]*\.\w+", word):
                Path(word).touch()
        try:
            check(words)
        except (click.UsageError, ValueError) as error:
            pytest.fail(f"{line}: {error}")


def test_a_wrong_option_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("path.json").touch()
    check(["plan", "path.json", "--devices", "4"])
    with pytest.raises(click.UsageError):
        check(["plan", "path.json", "--device", "4"])
    with pytest.raises(click.UsageError):
        check(["plan", "path.json", "--policy", "best"])
