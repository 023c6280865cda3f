"""Tables of refusals, one table for each call: an input, the place that its error names, and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.support.bad_input import refused
from tnplan.common.errors import InputError

Row = tuple[Any, str, str, str]


class Refusal(NamedTuple):
    """An input that a call refuses, with the place of its error and words of the problem and the remedy."""

    given: Any
    place: str
    problem: str
    remedy: str

    def raised_by(self, call: Callable[[], object], kind: type[Any] = InputError) -> None:
        """Check the error of a call in Python: the whole place, both words, and a message of one line."""
        with pytest.raises(kind) as caught:
            call()
        error = caught.value
        assert error.place == self.place
        assert self.problem in error.problem
        assert self.remedy in error.remedy
        assert "\n" not in str(error)

    def ends(self, line: str, capsys: pytest.CaptureFixture[str], after_progress: bool = False) -> None:
        """Check the message of a command line, which ends with status 2 and leaves all files alone."""
        self.is_said_by(refused(capsys, line, after_progress=after_progress))

    def is_said_by(self, line: str) -> None:
        """Check the line that a command prints: the place, with which it begins, the problem and the remedy.

        The words of the problem are its first ones, so that the place ends where they begin.
        """
        message = line.removeprefix("tnplan: error: ")
        begin = f"{self.place}: {self.problem}" if self.problem else f"{self.place}; "
        assert message.startswith(begin), message
        assert self.remedy in message.removeprefix(begin), message


def table(rows: list[Row]) -> pytest.MarkDecorator:
    """Call a test with each row as its argument `refusal`; place and problem are in the test's name."""
    cases = [Refusal(*row) for row in rows]
    return pytest.mark.parametrize("refusal", cases, ids=[f"{case.place}: {case.problem}" for case in cases])
