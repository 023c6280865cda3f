"""Text of anybody as a terminal may show it: names cannot move its cursor, and long ones are shortened."""

from __future__ import annotations

import codecs

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


def escaped(text: str, kept: str = "") -> str:
    """Text with every character escaped that is neither printed nor one of `kept`."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in kept else one.encode("unicode_escape").decode() for one in text
    )


def _in_place(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(ASCII.get(one, one.encode("unicode_escape").decode()) for one in text), error.end


codecs.register_error(IN_PLACE, _in_place)
