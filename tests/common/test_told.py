"""The line that says that kernels are compiled: once, after a second, where a person sees it."""

from __future__ import annotations

import io
import subprocess
import sys
import time

import pytest

from tnplan.common.kernels import told


class Terminal(io.StringIO):
    """A stream that may be a terminal."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


CODE = """
import sys, time
from tests.common.test_told import Terminal
from tnplan.common.kernels import told
sys.stderr = stream = Terminal({terminal})
told.LEAST_S = 0.2
for seconds in {seconds}:
    with told.compiling():
        time.sleep(seconds)
print(stream.getvalue().count(told.LINE))
"""


@pytest.mark.parametrize(
    ("terminal", "seconds", "lines"),
    [
        (True, (0.5, 0.5), 1),
        (True, (0.15, 0.15, 0.15), 1),
        (True, (0.01, 0.01), 0),
        (False, (0.5,), 0),
    ],
)
def test_it_is_said_once_to_a_terminal(terminal: bool, seconds: tuple[float, ...], lines: int) -> None:
    code = CODE.format(terminal=terminal, seconds=seconds)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(lines), done.stderr


def test_it_costs_little() -> None:
    begin = time.process_time()
    for _ in range(20):
        with told.compiling():
            pass
    assert time.process_time() - begin < 0.1
