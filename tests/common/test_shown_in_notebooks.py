"""What is printed is a table of a notebook: cells, names of columns over numbers, and escaped text."""

from __future__ import annotations

from tnplan.common.shown_text import Printed, html_lines


class Shown(Printed):
    def __str__(self) -> str:
        return "a < b"


def test_a_line_fills_the_row_and_is_escaped() -> None:
    assert Shown()._repr_html_() == "<table><caption>Shown</caption>\n<tr><td>a &lt; b</td></tr>\n</table>"


def test_names_of_columns_stand_over_numbers() -> None:
    text = (
        "2 ranks\n"
        + " " * 20
        + "    measured   predicted\nseconds in all  1.5  2\n  exchanges  0  0\njoules  3"
    )
    assert html_lines("title", text).splitlines()[1:-1] == [
        '<tr><td colspan="3">2 ranks</td></tr>',
        "<tr><td></td><td>measured</td><td>predicted</td></tr>",
        "<tr><td>seconds in all</td><td>1.5</td><td>2</td></tr>",
        "<tr><td>exchanges</td><td>0</td><td>0</td></tr>",
        '<tr><td>joules</td><td colspan="2">3</td></tr>',
    ]


def test_no_text_is_an_empty_table() -> None:
    assert html_lines("title", "") == "<table><caption>title</caption>\n</table>"
