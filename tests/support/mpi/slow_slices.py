"""Carries out a schedule with a pause a slice: `slow_slices.py SCHEDULE OUTPUT PAUSE_S TIMEOUT_S`."""

import sys
import time
from pathlib import Path

from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.jobs.progress import Progress

schedule, output, pause, timeout, *options = sys.argv[1:]


def progress(at: Progress) -> None:
    if at.total:
        Path(f"{output}.slices").write_text(str(at.done))
        time.sleep(float(pause))


try:
    execute(
        schedule, output=output, device="cpu", threads=1, timeout=float(timeout), progress=progress,
        resume="resume" in options,
    )  # fmt: skip
except InputError as error:
    sys.exit(f"tnplan: error: {error}")
