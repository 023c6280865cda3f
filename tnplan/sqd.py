"""Sample-based quantum diagonalization: the loop, and the solver that qiskit-addon-sqd takes of tnplan."""

from tnplan.api.jobs.sqd.run import SqdResult, run
from tnplan.api.jobs.sqd.sci_solver import sci_solver

__all__ = ["SqdResult", "run", "sci_solver"]
