"""Sphinx extension: warns of sentences that are too long, and of pages that are hard to read.

A page's reading ease is Flesch's, 206.835 - 1.015 words/sentences - 84.6 syllables/words (R. Flesch, "A new
readability yardstick", 1948), with the syllables of hyphenation patterns. Code, tables, headings and
generated pages do not count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyphen
from docutils import nodes
from docutils.core import publish_doctree
from docutils.utils import Reporter
from myst_parser.parsers.docutils_ import Parser
from sphinx.application import Sphinx
from sphinx.util import logging

LONGEST_SENTENCE = 200
"""Characters."""
LEAST_EASE = 45.0
FEWEST_WORDS = 100
"""Shorter pages have no reading ease."""
GENERATED = ("reference/cli", "reference/api/")
NOT_PROSE = (nodes.literal_block, nodes.table, nodes.title, nodes.math_block, nodes.raw, nodes.comment)
END = re.compile(r"(?<=[!?])\s+|(?<=[.:;])\s+(?=[A-Z0-9\"'(])")
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")

_log = logging.getLogger(__name__)
_hyphens = pyphen.Pyphen(lang="en_US")


@dataclass(frozen=True)
class Prose:
    """The sentences of a page."""

    sentences: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """All words."""
        return [word for sentence in self.sentences for word in WORD.findall(sentence)]

    @property
    def reading_ease(self) -> float:
        """Flesch's reading ease: 100 is very easy, 0 very hard."""
        words = self.words
        syllables = sum(len(_hyphens.inserted(word).split("-")) for word in words)
        return 206.835 - 1.015 * len(words) / len(self.sentences) - 84.6 * syllables / len(words)

    @property
    def too_long(self) -> list[str]:
        """Sentences of more characters than a reader keeps in mind."""
        return [sentence for sentence in self.sentences if len(sentence) > LONGEST_SENTENCE]


def prose_of(page: nodes.document) -> Prose:
    """The sentences of paragraphs and list items; a piece of code within one is a short word."""
    found: list[str] = []
    for paragraph in page.findall(nodes.paragraph):
        parent: Any = paragraph.parent
        while parent is not None and not isinstance(parent, NOT_PROSE):
            parent = parent.parent
        if parent is None:
            text = " ".join(_text(paragraph).split())
            found += [sentence for sentence in END.split(text) if WORD.search(sentence)]
    return Prose(tuple(found))


def _text(node: nodes.Node) -> str:
    if isinstance(node, nodes.literal | nodes.math):
        return "x"
    if isinstance(node, nodes.Text):
        return str(node)
    return "".join(_text(child) for child in node.children)


def check_page(app: Sphinx, page: nodes.document) -> None:
    """Warn of what is hard to read; a build with -W stops there."""
    name = app.env.current_document.docname
    if not name.startswith(GENERATED):
        _check(prose_of(page), name)


def check_readme(app: Sphinx) -> None:
    """Warn of what is hard to read in the README, which is no page of the site."""
    path = Path(app.srcdir).parent / "README.md"
    settings = {"report_level": Reporter.SEVERE_LEVEL, "myst_suppress_warnings": ["myst"]}
    page = publish_doctree(path.read_text(encoding="utf-8"), parser=Parser(), settings_overrides=settings)
    _check(prose_of(page), "README.md")


def _check(prose: Prose, name: str) -> None:
    for sentence in prose.too_long:
        _log.warning("a sentence has %d characters, split it: %s", len(sentence), sentence, location=name)
    if len(prose.words) >= FEWEST_WORDS and prose.reading_ease < LEAST_EASE:
        _log.warning("reading ease %.0f, below %.0f", prose.reading_ease, LEAST_EASE, location=name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the check."""
    app.connect("builder-inited", check_readme)
    app.connect("doctree-read", check_page)
    return {"version": "1", "parallel_read_safe": True}
