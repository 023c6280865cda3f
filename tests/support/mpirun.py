"""What tests under mpirun share: which mpirun, how to start ranks, and a skip that says what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.root import ROOT

SCRIPTS = Path(__file__).parent / "mpi"
BESIDE = Path(sys.executable).parent / "mpirun"
MPIRUN = str(BESIDE) if BESIDE.exists() else shutil.which("mpirun")

needs_mpi = pytest.mark.skipif(
    MPIRUN is None or find_spec("mpi4py") is None, reason="needs mpirun and mpi4py"
)

OPEN_MPI_VARIABLE = "TNPLAN_TESTS_OPENMPI"
"""Names the folder of an Open MPI to be tried beside the MPI that mpi4py takes by itself."""


def open_mpi() -> Path | None:
    """The folder of an Open MPI: the one that the variable names, or that of an `ompi_info` on the path."""
    found = shutil.which("ompi_info")
    prefix = os.environ.get(OPEN_MPI_VARIABLE) or (found and Path(found).resolve().parent.parent)
    return Path(prefix) if prefix and Path(prefix, "lib", "libmpi.so").exists() else None


STATUS_NOTICE = re.compile(
    r"^-{40,}\n(?:Primary job +terminated normally|mpirun detected that one or more processes exited)"
    r".*?^-{40,}\n",
    re.DOTALL | re.MULTILINE,
)
"""What an mpirun may say itself of ranks that end with another status than 0."""
TERMINAL_RESET = re.compile(r"(\x1b\[0m)+\Z")
"""What it may end its output with."""


def mpirun(n_ranks: int, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python on `n_ranks` ranks, with environment variables besides; its output and status.

    What the launcher itself adds is left out: the reset of a terminal, and its notice of the ranks' status.
    """
    command = [str(MPIRUN), "-n", str(n_ranks), sys.executable, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    done.stdout = TERMINAL_RESET.sub("", done.stdout)
    done.stderr = STATUS_NOTICE.sub("", done.stderr)
    return done
