"""Sample-based quantum diagonalization: the loop, and the solver that qiskit-addon-sqd takes of tnplan."""

from tnplan.calls.sqd.run import SqdResult, run
from tnplan.calls.sqd.sci_solver import sci_solver

__all__ = ["SqdResult", "run", "sci_solver"]
