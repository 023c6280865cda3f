"""Runs a schedule three times in a process; only rank 0 collects garbage.

Arguments: SCHEDULE TENSORS DEVICE.
"""

from __future__ import annotations

import gc
import sys

import numpy as np

from tnplan.calls.execute import execute
from tnplan.executor.device.comm.launcher import launched_rank

TIMES = 3


def main() -> None:
    schedule, tensors, device = sys.argv[1:]
    gc.disable()
    found = []
    for _ in range(TIMES):
        found.append(execute(schedule, tensors, device=device).array)
        if launched_rank() == 0:
            gc.collect()
    if launched_rank() == 0:
        assert all(np.array_equal(found[0], other) for other in found)
        print(f"equal {TIMES} times", flush=True)


if __name__ == "__main__":
    main()
