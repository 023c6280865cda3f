"""A GPU that is asked for begins first: what the job needs is imported meanwhile."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from contextlib import suppress
import tnplan
from tnplan.executor.device import expected_gpu

def begin(number):
    jobs = ("tnplan.jobs.job", "tnplan.jobs.arrays.contracted", "tnplan.executor.statevector", "numpy")
    print(number, [name for name in jobs if name in sys.modules])
    raise SystemExit

expected_gpu.begin_cuda = begin
expected_gpu.find_spec = lambda name: name
device = "{device}"
with suppress(tnplan.InputError):
    {call}
"""
JOBS = (
    'tnplan.simulate("a.qsim", shots=1, device=device)',
    'tnplan.propagate("a.qsim", "Z0", tnplan.Truncation(branch_cut=0.1), device=device)',
    'tnplan.execute("a.json", device=device)',
)
CONTRACTIONS = (
    'tnplan.contract("a,a->", [1.0], [2.0], device=device)',
    'tnplan.compile("a,a->", (2,), (2,), dtype="float64", device=device)',
)


def said(call: str, device: str) -> str:
    """What is said where CUDA begins: the GPU, and which modules of jobs are there."""
    script = SCRIPT.replace("{call}", call).replace("{device}", device)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize("call", [*JOBS, *CONTRACTIONS])
def test_a_gpu_begins_before_the_job_is_imported(call: str) -> None:
    assert said(call, "gpu") == "0 []\n"


@pytest.mark.parametrize("call", JOBS)
def test_jobs_that_may_take_a_gpu_make_no_context_yet(call: str) -> None:
    assert said(call, "auto") == "None []\n"


@pytest.mark.parametrize(
    ("call", "device"),
    [(call, device) for call in JOBS for device in ("cpu", "GPU")]
    + [(call, device) for call in CONTRACTIONS for device in ("auto", "cpu", "GPU")]
    + [('tnplan.simulate("a.qsim", device=device, ranks=0)', "gpu")],
)
def test_no_gpu_begins_that_is_not_asked_for(call: str, device: str) -> None:
    assert said(call, device) == ""


def test_arrays_of_other_libraries_have_a_gpu_of_their_own() -> None:
    other = "type('Array', (), {'__module__': 'other', '__dlpack_device__': lambda self: (2, 1)})()"
    with_other = CONTRACTIONS[1].replace("(2,), (2,)", f"(2,), (2,), constants={{0: {other}}}")
    assert said(f"__import__('contextlib').suppress(Exception).__enter__(); {with_other}", "gpu") == ""
