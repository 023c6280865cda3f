"""Text of anybody as a terminal may show it, and small tables, as HTML for notebooks and as text.

Names cannot move a terminal's cursor, and long ones are shortened.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

LONGEST = 200
SHOWN = 16
"""Rows of a list that are printed; files and JSON have all."""
ASCII = {
    "\u00d7": "x", "\u00b7": "*", "\u2013": "-", "\u00b5": "u", "\u2026": "...",
    "\u207b": "-", **{power: str(digit) for digit, power in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
}  # fmt: skip
"""What stands for a character of ours where a terminal has ASCII alone."""
INDENT = " " * 12
"""What a line of names of columns begins with, where the first column has no name."""
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


class Printed:
    """What notebooks show as the table that `print` shows as text."""

    def _repr_html_(self) -> str:
        return html_lines(type(self).__name__, str(self))


def html_lines(title: str, text: str) -> str:
    """Lines of text as an HTML table; cells are what two or more spaces separate, the last fills its row."""
    rows = [(line, re.split(r"\s{2,}", line.strip())) for line in text.splitlines()]
    width = max((len(cells) for _, cells in rows), default=1)
    lines = [f"<table><caption>{escape(title)}</caption>"]
    for line, cells in rows:
        # Names of columns stand over the numbers, right of a column of names that has none.
        left = width - len(cells) if line.startswith(INDENT) and len(cells) > 1 else 0
        shown = [*[""] * left, *map(escape, cells)]
        wide = f'<td colspan="{width - len(shown) + 1}">' if len(shown) < width else "<td>"
        lines.append(
            "<tr>" + "".join(f"<td>{cell}</td>" for cell in shown[:-1]) + f"{wide}{shown[-1]}</td></tr>"
        )
    return "\n".join([*lines, "</table>"])


def text_table(rows: Iterable[Sequence[object]], header: Sequence[str]) -> str:
    """A table in columns of equal width, two spaces apart: a line of names, and one for each row."""
    lines = [[str(cell) for cell in cells] for cells in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    return "\n".join(padded)


def first_rows(name: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The first rows of a list, and how many are left out."""
    listed = list(rows)
    yield from (f"{name} {key}: {value}" for key, value in listed[:SHOWN])
    if len(listed) > SHOWN:
        yield f"... and {len(listed) - SHOWN} more"


def largest_rows(name: str, values: Iterable[tuple[str, Any]], form: str = ".9g") -> Iterator[str]:
    """The rows of the largest values, in a format of numbers; of complex ones both parts."""
    ordered = sorted(values, key=lambda row: -abs(row[1]))
    return first_rows(name, ((key, number_text(value, form)) for key, value in ordered))


def number_text(value: complex, form: str) -> str:
    """A number in a format; a complex one as its two parts with their signs."""
    if isinstance(value, complex):
        return f"{value.real:+{form}} {value.imag:+{form}}i"
    return f"{value:{form}}"


def _row(cells: Sequence[object], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"
