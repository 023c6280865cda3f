"""Tensor-network contractions for many devices, and engines for quantum circuits and molecules.

Everything that the command line does is one call away. Sizes are bytes, as numbers or as text such as
"128MiB"; times are seconds. Under mpirun `execute`, `propagate`, `diagonalize`, `simulate` and `calibrate`
are collective: every rank makes the same call. What cannot be done raises `InputError`, before any work.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tnplan import compress as compress
    from tnplan.api import workload as workload
    from tnplan.api.codecs.compare_codecs import CodecRow as CodecRow
    from tnplan.api.codecs.compare_codecs import compare_codecs as compare_codecs
    from tnplan.api.codecs.compress import compress_file as compress_file
    from tnplan.api.codecs.compress import decompress_file as decompress_file
    from tnplan.api.jobs.calibrate import calibrate as calibrate
    from tnplan.api.jobs.diagonalization_result import CarryOver as CarryOver
    from tnplan.api.jobs.diagonalization_result import Diagonalization as Diagonalization
    from tnplan.api.jobs.diagonalize import diagonalize as diagonalize
    from tnplan.api.jobs.execute import ExecutionResult as ExecutionResult
    from tnplan.api.jobs.execute import execute as execute
    from tnplan.api.jobs.propagate import Expectation as Expectation
    from tnplan.api.jobs.propagate import propagate as propagate
    from tnplan.api.jobs.simulate import Simulation as Simulation
    from tnplan.api.jobs.simulate import simulate as simulate
    from tnplan.api.jobs.sqd import sci_solver as sci_solver
    from tnplan.api.planning.load import load_path as load_path
    from tnplan.api.planning.load import load_schedule as load_schedule
    from tnplan.api.planning.network import network as network
    from tnplan.api.planning.plan import plan as plan
    from tnplan.api.planning.report import report as report
    from tnplan.api.planning.search import search as search
    from tnplan.api.planning.show import UseChain as UseChain
    from tnplan.api.planning.show import show as show
    from tnplan.api.planning.tensor_network import TensorNetwork as TensorNetwork
    from tnplan.api.progress import Progress as Progress
    from tnplan.executor.observables.pauli_sum import PauliSum as PauliSum
    from tnplan.executor.pauli.terms.truncation import Truncation as Truncation
    from tnplan.executor.sbd.basis.determinants import DeterminantList as DeterminantList
    from tnplan.executor.sbd.basis.integrals import Integrals as Integrals
    from tnplan.executor.sbd.basis.integrals import from_arrays as from_arrays
    from tnplan.executor.sbd.basis.strings import StringSet as StringSet
    from tnplan.executor.sbd.solver.davidson import Criteria as Criteria
    from tnplan.executor.sbd.solver.solve import SpinPenalty as SpinPenalty
    from tnplan.planner.common.errors import InputError as InputError
    from tnplan.planner.common.errors import WriteError as WriteError
    from tnplan.planner.hardware.profile import Profile as Profile
    from tnplan.planner.hardware.profile import load_profile as load_profile
    from tnplan.planner.networks.circuits.circuit import Circuit as Circuit
    from tnplan.planner.networks.circuits.circuit import Gate as Gate
    from tnplan.planner.networks.circuits.load import load_circuit as load_circuit
    from tnplan.planner.networks.circuits.load import load_program as load_program
    from tnplan.planner.networks.circuits.program import Channel as Channel
    from tnplan.planner.networks.circuits.program import CircuitProgram as CircuitProgram
    from tnplan.planner.networks.circuits.program import Conditional as Conditional
    from tnplan.planner.networks.circuits.program import Measurement as Measurement
    from tnplan.planner.networks.circuits.program import Reset as Reset
    from tnplan.planner.networks.contraction_path import ContractionPath as ContractionPath
    from tnplan.planner.networks.importers import from_cotengra as from_cotengra
    from tnplan.planner.networks.network import Network as Network
    from tnplan.planner.projection.projection import Projection as Projection
    from tnplan.planner.schedule.schedule import Schedule as Schedule

__version__ = version("tnplan")

_MODULES = {"compress": "tnplan.compress", "workload": "tnplan.api.workload"}
_NAMES = {
    "tnplan.api.codecs.compare_codecs": ("CodecRow", "compare_codecs"),
    "tnplan.api.codecs.compress": ("compress_file", "decompress_file"),
    "tnplan.api.jobs.calibrate": ("calibrate",),
    "tnplan.api.jobs.diagonalization_result": ("CarryOver", "Diagonalization"),
    "tnplan.api.jobs.diagonalize": ("diagonalize",),
    "tnplan.api.jobs.execute": ("ExecutionResult", "execute"),
    "tnplan.api.jobs.propagate": ("Expectation", "propagate"),
    "tnplan.api.jobs.simulate": ("Simulation", "simulate"),
    "tnplan.api.jobs.sqd": ("sci_solver",),
    "tnplan.api.planning.load": ("load_path", "load_schedule"),
    "tnplan.api.planning.network": ("network",),
    "tnplan.api.planning.plan": ("plan",),
    "tnplan.api.planning.report": ("report",),
    "tnplan.api.planning.search": ("search",),
    "tnplan.api.planning.show": ("UseChain", "show"),
    "tnplan.api.planning.tensor_network": ("TensorNetwork",),
    "tnplan.api.progress": ("Progress",),
    "tnplan.executor.observables.pauli_sum": ("PauliSum",),
    "tnplan.executor.pauli.terms.truncation": ("Truncation",),
    "tnplan.executor.sbd.basis.determinants": ("DeterminantList",),
    "tnplan.executor.sbd.basis.integrals": ("Integrals", "from_arrays"),
    "tnplan.executor.sbd.basis.strings": ("StringSet",),
    "tnplan.executor.sbd.solver.davidson": ("Criteria",),
    "tnplan.executor.sbd.solver.solve": ("SpinPenalty",),
    "tnplan.planner.common.errors": ("InputError", "WriteError"),
    "tnplan.planner.hardware.profile": ("Profile", "load_profile"),
    "tnplan.planner.networks.circuits.circuit": ("Circuit", "Gate"),
    "tnplan.planner.networks.circuits.load": ("load_circuit", "load_program"),
    "tnplan.planner.networks.circuits.program": (
        "Channel",
        "CircuitProgram",
        "Conditional",
        "Measurement",
        "Reset",
    ),
    "tnplan.planner.networks.contraction_path": ("ContractionPath",),
    "tnplan.planner.networks.importers": ("from_cotengra",),
    "tnplan.planner.networks.network": ("Network",),
    "tnplan.planner.projection.projection": ("Projection",),
    "tnplan.planner.schedule.schedule": ("Schedule",),
}  # fmt: skip
"""The public names of each module, which is imported when one of them is first asked for."""
_ELSEWHERE = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted([*_ELSEWHERE, *_MODULES])


def __getattr__(name: str) -> Any:
    """Import what is written elsewhere when it is first asked for, so that importing tnplan stays light."""
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ELSEWHERE[name]), name)


def __dir__() -> list[str]:
    """What users may use."""
    return sorted([*__all__, "__version__"])
