"""Sample-based quantum diagonalization: the loop, and the solver that qiskit-addon-sqd takes of tnplan."""

from tnplan.api.jobs.sqd.run import SqdResult as SqdResult
from tnplan.api.jobs.sqd.run import run as run
from tnplan.api.jobs.sqd.sci_solver import sci_solver as sci_solver
