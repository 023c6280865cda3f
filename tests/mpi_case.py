"""What tests under mpirun share: which mpirun, how to start ranks, and a skip that says what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "mpi"
BESIDE = Path(sys.executable).parent / "mpirun"
MPIRUN = str(BESIDE) if BESIDE.exists() else shutil.which("mpirun")

needs_mpi = pytest.mark.skipif(
    MPIRUN is None or find_spec("mpi4py") is None, reason="needs mpirun and mpi4py"
)


def mpirun(n_ranks: int, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python on `n_ranks` ranks, with environment variables besides; its output and status."""
    command = [str(MPIRUN), "-n", str(n_ranks), sys.executable, *map(str, arguments)]
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
