"""What qiskit-addon-sqd takes of tnplan: `from tnplan.sqd import sci_solver`."""

from tnplan.api.jobs.sqd import sci_solver as sci_solver
