"""Where a benchmark network goes: its name and files, which are checked before any work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.calls.network import COMPLEX
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.qsim import save_qsim
from tnplan.common.checks import check_choice
from tnplan.common.files import check_writable
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.network_file import check_store
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.networks.tensor_network import TensorNetwork


@dataclass(frozen=True)
class Target:
    """The name of a network, the file to write, if any, and for a circuit its qsim file, if any."""

    name: str
    file: Path | None
    qsim: Path | None = None

    def store(
        self, network: Network, tensors: Sequence[np.ndarray], dtype: str, *notes: str, **meta: Any
    ) -> TensorNetwork:
        """The network with its tensors, written where that is asked for."""
        result = TensorNetwork(network, list(tensors), dtype, self.name, meta, notes)
        if self.file is not None:
            result.save(self.file)
        return result

    def store_circuit(
        self, circuit: GateSequence, amplitude: str | None, dtype: str, what: str
    ) -> TensorNetwork:
        """The simplified network of an amplitude of a circuit."""
        check_choice("--dtype", dtype, COMPLEX)
        network, arrays = simplify(*circuit_network(circuit, amplitude))
        bits = amplitude or "0" * circuit.n_qubits
        result = self.store(network, arrays, dtype, what=f"{what}, amplitude {bits}, rank-simplified")
        if self.qsim is not None:
            save_qsim(circuit, self.qsim)
        return result


def target_of(
    name: str, output: str | Path | None, *inputs: str | Path, qsim: str | Path | None = None
) -> Target:
    """The target, refused at once where its files could not be written, or are inputs."""
    file = None if output is None else Path(output)
    if file is not None:
        file = file / f"{name}.json" if file.is_dir() else file
        check_store(file, *inputs)
    if qsim is not None:
        check_writable(qsim)
    return Target(name, file, None if qsim is None else Path(qsim))
