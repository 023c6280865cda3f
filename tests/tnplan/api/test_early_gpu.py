"""A GPU that is asked for begins first: what the job needs is imported meanwhile."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import tnplan
from tnplan.executor.device.selection import expected_gpu

def begin(number):
    jobs = ("tnplan.api.jobs.job", "tnplan.api.contraction.request", "tnplan.executor.statevector", "numpy")
    print(number, [name for name in jobs if name in sys.modules])
    raise SystemExit

expected_gpu.begin_cuda = begin
expected_gpu.find_spec = lambda name: name
{call}
"""


@pytest.mark.parametrize(
    "call",
    [
        'tnplan.simulate("a.qsim", shots=1, device="gpu")',
        'tnplan.propagate("a.qsim", "Z0", tnplan.Truncation(branch_cut=0.1), device="gpu")',
        'tnplan.execute("a.json", device="gpu")',
        'tnplan.contract("a,a->", [1.0], [2.0], device="gpu")',
        'tnplan.compile("a,a->", (2,), (2,), dtype="float64", device="gpu")',
    ],
)
def test_a_gpu_begins_before_the_job_is_imported(call: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("{call}", call)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "0 []\n"
