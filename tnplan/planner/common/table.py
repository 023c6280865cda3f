"""A small table, as HTML for notebooks and as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, rows: Iterable[Sequence[object]], header: Sequence[str] = ()) -> str:
    """A table as HTML: a caption, a row of names where there is a header, and a row of cells each."""
    lines = [f"<table><caption>{escape(title)}</caption>"]
    if header:
        lines.append(_row(header, "th"))
    lines += [_row(row, "td") for row in rows]
    return "\n".join([*lines, "</table>"])


def text_table(rows: Iterable[Sequence[object]], header: Sequence[str]) -> str:
    """A table in columns of equal width, two spaces apart: a line of names, and one for each row."""
    lines = [[str(cell) for cell in cells] for cells in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    return "\n".join(padded)


def _row(cells: Sequence[object], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"
