"""Messages and help: one grammar, place: what is wrong; what to do, in words that are understood at once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import rules
from tests.support.root import ROOT

PLAIN = {
    r"(?<!there )\bis no (?!longer|more)[\w'.{]": "is not a",
    r"(?<!there )\bare no (?!longer|more)[\w'{]": "are not",
    r"\bis none of\b": "is not one of, or does not belong to",
    r"\bstands? beside\b": "is given together with",
    r"\b[Mm]end\b": "correct",
    r"\bgoe?s? with none\b|\b(do|does) not go with\b": "cannot be combined with",
    r"\bon (its|the|their) way\b": "before its end",
    r"\bis there already\b": "already exists",
    r"\banew\b": "again",
    r"\b(rights|looked at)\b": "permissions, inspected",
    r"(?<!, )\b(one|once) an? (GPU|line|rank|tensor|term|qubit|site|layer|slice|device)\b": "one per",
    r"\bhas it not\b": "does not have it",
    r"\bso many (devices|seconds|runs|operations|qubits|determinants)\b": "this many",
    r"\bplays no part\b": "does not matter",
    r"\balone\b": "only, before what it limits; or: by itself",
    r"\b(whence|hence|thereof|lest|whilst|albeit|in vain|of late)\b": "plain words, or a second sentence",
    r"\bshould (it|they|this|that|these)\b": "if it, if they",
    r"\bwhich (the|this|it) [\w-]+ has not\b": "which is not in, or: does not have",
}
"""What a reader whose first language is not English reads twice, and what to write in its place."""
BARE = re.compile(
    r"(give|take|choose|start|name|use|set|state|write|nest|include|raise|allow|ask for) "
    r"((it|one|some|more|less|fewer|both|them|so|this|that|one of (the two|those))( or (more|fewer|less))?"
    r"|at most \{\}|\{\} or (more|fewer|less))"
)
"""Remedies that do not say what is to be given."""
LONGEST = 260
"""Characters of a problem or a remedy."""


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Strings of more than one word that are no docstrings, with their lines; `{}` stands for a value."""
    nodes = list(ast.walk(tree))
    # Docstrings, and notes below constants.
    silent = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            silent |= {id(part) for part in ast.walk(node) if part is not node}
    for node in nodes:
        if id(node) not in silent and (text := text_of(node)) is not None and " " in text.strip():
            yield node.lineno, text  # type: ignore[attr-defined]


def text_of(node: ast.AST) -> str | None:
    """The text of a string or a formatted string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)  # type: ignore[misc]
    return None


def hard_words(text: str) -> list[str]:
    """What of a text is read twice, with the plain words."""
    return [f"{found[0]!r}: write {PLAIN[each]!r}" for each in PLAIN if (found := re.search(each, text))]


def test_messages_are_in_plain_words() -> None:
    wrong = []
    for path in rules.sources(ROOT):
        code = path.read_text(encoding="utf-8")
        if hard_words(code):  # in a string, or only in a comment
            found = texts(ast.parse(code))
            wrong += [
                f"{path.relative_to(ROOT)}:{n}: {word}" for n, text in found for word in hard_words(text)
            ]
    assert wrong == []


def test_help_is_in_plain_words() -> None:
    page = ROOT / "docs" / "reference" / "cli.md"
    wrong = [f"{line}: {word}" for line in page.read_text().splitlines() for word in hard_words(line)]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{} is no gate", 1),
        ("there is no gate", 0),
        ("is no longer there", 0),
        ("mend the file", 1),
        ("recommend", 0),
        ("runs on a CPU alone", 1),
        ("should they be lost", 1),
        ("what should be given", 0),
    ],
)
def test_hard_words_are_found(text: str, words: int) -> None:
    assert len(hard_words(text)) == words


def refusals(path: Path) -> Iterator[tuple[int, str, str]]:
    """Problems and remedies of a file's errors that are literal texts, with their lines."""
    code = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(code)) if "InputError(" in code or "AgreedError(" in code else ():
        if isinstance(node, ast.Call) and rules.last_name(node.func) in ("InputError", "AgreedError"):
            problem, remedy = (text_of(each) for each in [*node.args, ast.Constant(0), ast.Constant(0)][1:3])
            yield node.lineno, problem or "is", remedy or "give"


def test_errors_have_one_grammar() -> None:
    """The place comes first, so that a problem goes on with a verb or a name; the remedy is one request."""
    wrong, seen = [], 0
    for path in rules.sources(ROOT):
        for line, problem, remedy in refusals(path):
            seen += 1
            for text in (problem, remedy):
                if text.endswith((".", ";", ":")) or len(text) > LONGEST or text != " ".join(text.split()):
                    wrong.append(f"{path.relative_to(ROOT)}:{line}: {text}")
            is_bare = BARE.fullmatch(remedy) is not None
            if remedy[0].isupper() or "; " in problem or problem.startswith("of ") or is_bare:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {problem}; {remedy}")
    assert seen > 500
    assert wrong == []


@pytest.mark.parametrize(
    ("remedy", "is_bare"),
    [("give it", True), ("start one", True), ("give {} or fewer", True), ("give one edge or more", False)],
)
def test_bare_remedies_are_found(remedy: str, is_bare: bool) -> None:
    assert (BARE.fullmatch(remedy) is not None) == is_bare
