"""The lock of an output: held by one run alone, and gone with the process that held it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.root import ROOT
from tnplan.api.jobs.outputs.output_checks import Writes, check_outputs
from tnplan.api.jobs.outputs.output_lock import lock_file, locked
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.planner.common.errors import InputError

HOLD = """
import sys, time
from pathlib import Path
from tnplan.api.jobs.outputs.output_lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_run_is_refused_and_a_killed_one_forgotten(tmp_path: Path) -> None:
    output = tmp_path / "r.npy"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(output)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(InputError, match=f"is held by another run .process {holder.pid} on"), locked(output):
        pass
    holder.kill()
    holder.communicate()
    assert lock_file(output).exists()
    with locked(output):
        time.sleep(0)
    assert list(tmp_path.iterdir()) == []


def test_a_run_in_this_process_is_another_one(tmp_path: Path) -> None:
    with locked(tmp_path / "r"), pytest.raises(InputError, match="held by another"), locked(tmp_path / "r"):
        pass
    with locked(tmp_path / "r"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_outputs_without_room_are_refused_by_all_ranks(tmp_path: Path) -> None:
    writes = Writes(tmp_path / "r.npy", by_all=True, room_bytes=1 << 60)
    for asked, fits in ((writes, False), (Writes(tmp_path / "r.npy", by_all=True, room_bytes=1), True)):

        def refusal(world, asked=asked):  # type: ignore[no-untyped-def]
            try:
                check_outputs(world, asked)
            except InputError as error:
                return str(error)
            return ""

        said = run_ranks(3, refusal)
        assert len({*said}) == 1
        assert fits == (said[0] == ""), said
        assert fits or "are to be written" in said[0]
        assert list(tmp_path.iterdir()) == []
