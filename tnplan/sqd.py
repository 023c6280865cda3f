"""Sample-based quantum diagonalization: the loop, and the solver that qiskit-addon-sqd takes of tnplan."""

from tnplan.calls.sci_solver import sci_solver
from tnplan.calls.sqd_loop import SqdResult, run

__all__ = ["SqdResult", "run", "sci_solver"]
