"""Text of anybody as a terminal may show it, and small tables, as HTML for notebooks and as text.

Names cannot move a terminal's cursor, and long ones are shortened.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from html import escape

LONGEST = 200
ASCII = {
    "\u00d7": "x", "\u00b7": "*", "\u2013": "-", "\u00b5": "u", "\u2026": "...",
    "\u207b": "-", **{power: str(digit) for digit, power in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
}  # fmt: skip
"""What stands for a character of ours where a terminal has ASCII alone."""
IN_PLACE = "tnplan.in_place"
"""The name of the handler of characters that an encoding lacks."""


def shown_text(text: str, longest: int = LONGEST) -> str:
    """Text in one line of at most about `longest` characters; what is no printed character is escaped.

    Examples
    --------
    >>> shown_text("red \\x1b[31m")
    'red \\\\x1b[31m'
    """
    if len(text) > longest:
        text = f"{text[: longest // 2]} ... {text[-(longest // 2) :]}"
    return escaped(text)


def escaped(text: str, allowed: str = "") -> str:
    """Text with every character escaped that is neither printed nor one of `allowed`."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in allowed else c.encode("unicode_escape").decode() for c in text
    )


def _in_place(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(ASCII.get(char, char.encode("unicode_escape").decode()) for char in text), error.end


codecs.register_error(IN_PLACE, _in_place)


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
