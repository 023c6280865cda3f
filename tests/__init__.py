"""What holds for all tests and the processes that they start, before any library is loaded."""

import os
import sys

os.environ.setdefault("MPLBACKEND", "Agg")
os.environ["TNPLAN_PATH_CACHE"] = "0"  # no test reads or writes the paths of its user

# Two workers share the cores already: threads of BLAS and OpenMP would wait for each other in loops.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

# Hundreds of processes are started: without bytecode on disk each compiles the whole package again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
