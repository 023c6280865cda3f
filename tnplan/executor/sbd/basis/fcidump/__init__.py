"""FCIDUMP files: their header, the symmetry of their values, reading and writing."""

from tnplan.executor.sbd.basis.fcidump.read import read_fcidump as read_fcidump
from tnplan.executor.sbd.basis.fcidump.write import write_fcidump as write_fcidump
