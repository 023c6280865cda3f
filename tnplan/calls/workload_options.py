"""The options of every workload besides its geometry: the name of its network, its dtype, its files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, getdoc, signature
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

import numpy as np

from tnplan.calls.network import COMPLEX
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.qsim import save_qsim
from tnplan.common.checks import check_choice
from tnplan.common.files import check_writable
from tnplan.common.signatures import parameter_texts, texts_of
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.networks.tensors import TensorNetwork, check_store

Make = TypeVar("Make", bound=Callable[..., TensorNetwork])


class FileOptions(TypedDict, total=False):
    """Of every workload."""

    output: str | Path | None


class TensorOptions(FileOptions, total=False):
    """Of a workload whose dtype may be chosen."""

    dtype: str


class AmplitudeOptions(TensorOptions, total=False):
    """Of a workload that is an amplitude of a circuit."""

    amplitude: str | None


class CircuitOptions(AmplitudeOptions, total=False):
    """Of such a workload whose circuit can be written in qsim's format."""

    qsim: str | Path | None


@dataclass(frozen=True)
class Target:
    """The name of a network and the options of its workload.

    Parameters
    ----------
    seed : int
        Seed of all random numbers.
    amplitude : str, optional
        0, 1 or . (open) for each qubit. Default: all 0.
    dtype : {"complex64", "complex128"}
        The dtype in which the network is to be contracted.
    qsim : path, optional
        A file for the circuit, in qsim's format.
    output : path, optional
        A network file to write, or a folder for one; its tensors go beside it, as .npz.
    """

    name: str
    amplitude: str | None = None
    dtype: str = "complex64"
    qsim: str | Path | None = None
    output: str | Path | None = None

    def store(
        self, network: Network, tensors: Sequence[np.ndarray], *notes: str, **meta: Any
    ) -> TensorNetwork:
        """The network with its tensors, written where there is an output."""
        result = TensorNetwork(network, list(tensors), self.dtype, self.name, meta, notes)
        if self.output is not None:
            result.save(self.output)
        return result

    def store_circuit(self, circuit: GateSequence, description: str) -> TensorNetwork:
        """The simplified network of an amplitude of a circuit."""
        check_choice("--dtype", self.dtype, COMPLEX)
        network, arrays = simplify(*circuit_network(circuit, self.amplitude))
        bits = self.amplitude or "0" * circuit.n_qubits
        result = self.store(network, arrays, what=f"{description}, amplitude {bits}, rank-simplified")
        if self.qsim is not None:
            save_qsim(circuit, self.qsim)
        return result


def target_of(name: str, *inputs: str | Path, **options: Any) -> Target:
    """The target, refused at once where its files could not be written, or are inputs."""
    if options.get("output") is not None:
        file = Path(options["output"])
        options["output"] = file / f"{name}.json" if file.is_dir() else file
        check_store(options["output"], *inputs)
    if options.get("qsim") is not None:
        check_writable(options["qsim"])
    return Target(name, **options)


def workload(
    *options: str,
    returns: str = "The rank-simplified network of an amplitude.",
    refuses: str = "For values that cannot be, or files that cannot be written.",
) -> Callable[[Make], Make]:
    """Give a function that takes `**options` the named ones, in its signature and in its docstring.

    Parameters that the docstring does not describe have the texts of `Target`.
    """
    known = {field.name: field for field in fields(Target)}
    added = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=known[name].default, annotation=known[name].type)
        for name in options
    ]

    def decorate(make: Make) -> Make:
        own = signature(make)
        *before, _ = own.parameters.values()
        whole = own.replace(parameters=[*before, *added])

        @wraps(make)
        def call(*args: Any, **options: Any) -> TensorNetwork:
            try:
                # Arguments are checked against the whole signature, since `make` itself takes any keyword.
                whole.bind(*args, **options)
            except TypeError as error:
                raise TypeError(f"{make.__name__}() {error}") from None
            return make(*args, **options)

        head, title, examples = (getdoc(make) or "").partition("\n\nExamples\n")
        own_texts, texts = parameter_texts(make.__doc__), texts_of(Target)
        shared = [name for name in whole.parameters if name in texts and name not in own_texts]
        parameters = "\n".join([head, *(line for name in shared for line in texts[name].entry(name))])
        call.__doc__ = (
            f"{parameters}\n\nReturns\n-------\nTensorNetwork\n    {returns}"
            f"\n\nRaises\n------\nInputError\n    {refuses}{title}{examples}"
        )
        call.__signature__ = whole  # type: ignore[attr-defined]
        return cast("Make", call)

    return decorate
