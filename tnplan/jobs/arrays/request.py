"""What a call of `contract` or `compile` names: equation, lists, network, tree, path or schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Number
from pathlib import Path
from typing import Any

from tnplan.common.errors import InputError
from tnplan.common.files import load_json
from tnplan.common.units import plural
from tnplan.jobs.arrays.arrays import host_array
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.importers import from_cotengra, read_any
from tnplan.planner.networks.importers.quimb_network import from_quimb, is_quimb_network
from tnplan.planner.networks.importers.subscripts import EinsumCall, parse_call
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.tensor_network import TensorNetwork
from tnplan.planner.schedule.file import load_schedule
from tnplan.planner.schedule.schedule import FORMAT, Schedule


@dataclass(frozen=True)
class ContractionRequest:
    """The network of a call with its operands, and what was given beyond it: a path or a schedule."""

    call: EinsumCall
    path: ContractionPath | None = None
    schedule: Schedule | None = None


def read_request(
    network: Any, operands: Sequence[Any], *, takes_shapes: bool = True
) -> ContractionRequest:  # fmt: skip
    """What the arguments of a call name; `operands` are arrays, or shapes, or none where they are known.

    Unless it takes shapes, numbers and lists of numbers are arrays, as for NumPy.
    """
    if not takes_shapes:
        network, operands = _with_arrays(network, operands)
    if isinstance(network, Path) or (isinstance(network, str) and network.endswith(".json")):
        network = _from_file(Path(network))
    if isinstance(network, TensorNetwork):
        network, operands = network.network, operands or network.tensors
    if isinstance(network, Schedule):
        request = Network(network.leaves, network.output, network.size_dict)
        return ContractionRequest(_call(request, operands), schedule=network)
    if hasattr(network, "get_ssa_path") and hasattr(network, "is_complete"):
        network = from_cotengra(network)
    if isinstance(network, ContractionPath):
        return ContractionRequest(_call(network.network, operands), path=network)
    if isinstance(network, Network):
        return ContractionRequest(_call(network, operands))
    if is_quimb_network(network):
        structure, own = from_quimb(network)
        return ContractionRequest(_call(structure, operands or own))
    return ContractionRequest(parse_call((network, *operands)))


def _with_arrays(network: Any, operands: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The arguments with an array for each number and each list of numbers."""
    is_operand = isinstance(network, list | tuple | Number)
    if not is_operand and not isinstance(getattr(network, "shape", None), tuple):
        return network, [_array(operand, number) for number, operand in enumerate(operands)]
    given = [network, *operands]
    for place in range(0, len(given) - 1, 2):  # a list of labels stands behind each operand
        given[place] = _array(given[place], place // 2)
    return given[0], given[1:]


def _array(operand: Any, number: int) -> Any:
    return operand if hasattr(operand, "shape") else host_array(operand, f"array {number}")


def _from_file(path: Path) -> ContractionPath | Schedule:
    document = load_json(path)
    if isinstance(document, dict) and document.get("format") == FORMAT:
        return load_schedule(path)
    return read_any(path)[0]


def _call(network: Network, operands: Sequence[Any]) -> EinsumCall:
    """The operands of a network, each with the shape that it must have; none stand for any."""
    if operands and len(operands) != len(network.inputs):
        problem = f"has {plural(len(operands), 'array', 'arrays')} for {len(network.inputs)} tensors"
        raise InputError("contraction", problem, "give one array a tensor, in the order of the network")
    for number, operand in enumerate(operands):
        shape = tuple(getattr(operand, "shape", operand))
        if shape != network.shape(number):
            problem = f"has shape {shape}, the network says {network.shape(number)}"
            raise InputError(f"array {number}", problem, "give the arrays in the order of the network")
    return EinsumCall(network.inputs, network.output, network.size_dict, tuple(operands))
