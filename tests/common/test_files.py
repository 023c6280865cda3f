"""Files that are whole or not there, also where a thread writes while the process ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.root import ROOT
from tnplan.common.files import write_file

WRITES = """
import threading, time
from tnplan.common.files import write_file
begun = threading.Event()
def write(stream):
    stream.write(b"half")
    begun.set()
    time.sleep(60)
threading.Thread(target=write_file, args=("a.txt", write), daemon=True).start()
begun.wait()
raise KeyboardInterrupt
"""


def test_a_thread_that_writes_at_the_end_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", WRITES], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert "KeyboardInterrupt" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_is_not_written_whole_is_not_there(tmp_path: Path, error: type[BaseException]) -> None:
    def write(_stream: object) -> None:
        raise error

    with pytest.raises(error):
        write_file(tmp_path / "a.txt", write)
    assert list(tmp_path.iterdir()) == []
