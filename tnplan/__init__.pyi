"""What users may use, and where it is written; `__init__.py` imports a name when it is first asked for."""

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

__version__: str
__all__: list[str]
