"""The Python API: everything that the command line does is one call away.

Sizes are bytes, times are seconds. Under mpirun, `execute` is collective: every rank makes the same call.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tnplan.api.codecs.compare_codecs import compare_codecs
    from tnplan.api.codecs.compress import compress_file, decompress_file
    from tnplan.api.jobs.calibrate import calibrate
    from tnplan.api.jobs.diagonalization_result import CarryOver, Diagonalization
    from tnplan.api.jobs.diagonalize import diagonalize
    from tnplan.api.jobs.execute import ExecutionResult, execute
    from tnplan.api.jobs.job import Progress
    from tnplan.api.jobs.propagate import Expectation, propagate
    from tnplan.api.jobs.simulate import Simulation, simulate
    from tnplan.executor.observables.pauli_sum import PauliSum
    from tnplan.executor.pauli.terms.truncation import Truncation
    from tnplan.executor.sbd.basis.determinants import DeterminantList
    from tnplan.executor.sbd.basis.integrals import Integrals, from_arrays
    from tnplan.executor.sbd.basis.strings import StringSet
    from tnplan.executor.sbd.solver.davidson import Criteria
    from tnplan.executor.sbd.solver.solve import SpinPenalty
    from tnplan.planner.common.errors import InputError, WriteError
    from tnplan.planner.hardware.profile import Profile, load_profile
    from tnplan.planner.networks.circuits.circuit import Circuit
    from tnplan.planner.networks.circuits.load import load_circuit, load_program
    from tnplan.planner.networks.circuits.program import CircuitProgram
    from tnplan.planner.networks.contraction_path import ContractionPath
    from tnplan.planner.networks.importers import from_cotengra
    from tnplan.planner.networks.network import Network
    from tnplan.planner.projection.projection import Projection
    from tnplan.planner.schedule.schedule import Schedule

__version__ = version("tnplan")

__all__ = [
    "CarryOver",
    "Circuit",
    "CircuitProgram",
    "ContractionPath",
    "Criteria",
    "DeterminantList",
    "Diagonalization",
    "ExecutionResult",
    "Expectation",
    "InputError",
    "Integrals",
    "Network",
    "PauliSum",
    "Profile",
    "Progress",
    "Projection",
    "Schedule",
    "Simulation",
    "SpinPenalty",
    "StringSet",
    "Truncation",
    "WriteError",
    "calibrate",
    "compare_codecs",
    "compress_file",
    "decompress_file",
    "diagonalize",
    "execute",
    "from_arrays",
    "from_cotengra",
    "load_circuit",
    "load_path",
    "load_profile",
    "load_program",
    "plan",
    "propagate",
    "report",
    "simulate",
]

_ELSEWHERE = {
    "CarryOver": "tnplan.api.jobs.diagonalization_result",
    "Circuit": "tnplan.planner.networks.circuits.circuit",
    "CircuitProgram": "tnplan.planner.networks.circuits.program",
    "ContractionPath": "tnplan.planner.networks.contraction_path",
    "Criteria": "tnplan.executor.sbd.solver.davidson",
    "DeterminantList": "tnplan.executor.sbd.basis.determinants",
    "Diagonalization": "tnplan.api.jobs.diagonalization_result",
    "ExecutionResult": "tnplan.api.jobs.execute",
    "Expectation": "tnplan.api.jobs.propagate",
    "InputError": "tnplan.planner.common.errors",
    "Integrals": "tnplan.executor.sbd.basis.integrals",
    "Network": "tnplan.planner.networks.network",
    "PauliSum": "tnplan.executor.observables.pauli_sum",
    "Profile": "tnplan.planner.hardware.profile",
    "Progress": "tnplan.api.jobs.job",
    "Projection": "tnplan.planner.projection.projection",
    "Schedule": "tnplan.planner.schedule.schedule",
    "Simulation": "tnplan.api.jobs.simulate",
    "SpinPenalty": "tnplan.executor.sbd.solver.solve",
    "StringSet": "tnplan.executor.sbd.basis.strings",
    "Truncation": "tnplan.executor.pauli.terms.truncation",
    "WriteError": "tnplan.planner.common.errors",
    "calibrate": "tnplan.api.jobs.calibrate",
    "compare_codecs": "tnplan.api.codecs.compare_codecs",
    "compress_file": "tnplan.api.codecs.compress",
    "decompress_file": "tnplan.api.codecs.compress",
    "diagonalize": "tnplan.api.jobs.diagonalize",
    "execute": "tnplan.api.jobs.execute",
    "from_arrays": "tnplan.executor.sbd.basis.integrals",
    "from_cotengra": "tnplan.planner.networks.importers",
    "load_circuit": "tnplan.planner.networks.circuits.load",
    "load_profile": "tnplan.planner.hardware.profile",
    "load_program": "tnplan.planner.networks.circuits.load",
    "propagate": "tnplan.api.jobs.propagate",
    "simulate": "tnplan.api.jobs.simulate",
}
"""The module of each name that is imported when it is first asked for."""


def __getattr__(name: str) -> Any:
    """Import what is written elsewhere when it is first asked for, so that importing tnplan stays light."""
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ELSEWHERE[name]), name)


def __dir__() -> list[str]:
    """What users may use."""
    return [*__all__, "__version__"]


def load_path(path: str | Path) -> ContractionPath:
    """Read a path.json, or another file that holds a network with a path (docs/formats.md lists them).

    The name of its file of tensors comes back as a full path, so that it is found from anywhere. Values that
    the file itself carries are left out: `networks.importers` has the readers that return them.
    """
    from dataclasses import replace

    from tnplan.planner.networks.importers import read_any
    from tnplan.planner.networks.path_file import tensors_file

    loaded, _ = read_any(path)
    tensors = tensors_file(path, loaded.tensors)
    return loaded if tensors is None else replace(loaded, tensors=str(tensors.resolve()))


def plan(
    path: ContractionPath | str | Path,
    *,
    hardware: Profile | str | Path = "cpu",
    devices: int = 1,
    ranks_per_group: int | None = None,
    memory_bytes: float | None = None,
    threshold_bytes: int | None = None,
    precision: str | None = None,
    policy: str = "ours",
    compress: str | None = None,
) -> Schedule:
    """Plan a path for `devices` devices of a machine: a shipped profile by name, a TOML file or a Profile.

    `ranks_per_group` ranks share a slice (default: the fastest number). `memory_bytes` limits a rank
    (default: the profile's; math.inf: unlimited). `compress` is the option of `tnplan plan`, such as
    "exchange=1e-3:4,store=1e-3:3". Raises InputError where nothing fits.
    """
    from tnplan.planner.hardware.compression_options import parse_request
    from tnplan.planner.passes import pipeline

    return pipeline.plan(
        _path(path),
        _profile(hardware),
        devices=devices,
        ranks_per_group=ranks_per_group,
        memory_bytes=memory_bytes,
        threshold_bytes=threshold_bytes,
        precision=precision,
        policy=policy,
        compression=None if compress is None else parse_request(compress).planned(),
    )


def report(
    paths: Sequence[ContractionPath | str | Path],
    devices: Sequence[int],
    *,
    hardware: Profile | str | Path,
    memory_bytes: float | None = None,
    threshold_bytes: int | None = None,
    precision: str | None = None,
    policy: str = "ours",
    html: str | Path | None = None,
) -> Projection:
    """Project time and speedup for each number of devices; write a page with the plots to `html` (.html).

    The paths are of one network; names of indices and the order of tensors do not matter.
    """
    from tnplan.planner.common.errors import InputError
    from tnplan.planner.common.files import check_suffix, check_writable, write_text
    from tnplan.planner.networks.canonical_form import structure_key
    from tnplan.planner.projection.projection import project

    if isinstance(paths, str) or not isinstance(paths, Sequence):
        raise InputError("paths", f"is {type(paths).__name__}", "give a list of paths")
    if html is not None:
        check_writable(html)
        check_suffix(html, ".html")
    read = [_path(path) for path in paths]
    n_networks = len({structure_key(path.network) for path in read})
    if n_networks > 1:
        raise InputError("paths", f"are of {n_networks} networks", "report one network at a time")
    projection = project(
        read,
        _profile(hardware),
        devices,
        memory_bytes=memory_bytes,
        threshold_bytes=threshold_bytes,
        precision=precision,
        policy=policy,
    )
    if html is not None:
        from tnplan.reporting.page import projection_page

        write_text(html, projection_page(projection))
    return projection


def _path(path: ContractionPath | str | Path) -> ContractionPath:
    from tnplan.planner.networks.contraction_path import ContractionPath

    return path if isinstance(path, ContractionPath) else load_path(path)


def _profile(hardware: Profile | str | Path) -> Profile:
    from tnplan.planner.hardware.profile import Profile, load_profile

    return hardware if isinstance(hardware, Profile) else load_profile(hardware)
