"""State-vector simulation from a circuit to its answers: `tnplan statevector` and `tnplan.simulate`.

This module has only the call. Its job is in jobs/statevector.py, which is imported while a GPU begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import tnplan
from tnplan.common.signatures import LaterModule
from tnplan.executor.device.expected_gpu import expect_gpu
from tnplan.jobs.job_options import JobOptions, ResumableKeywords, takes_job

if TYPE_CHECKING:
    from tnplan.jobs import statevector as simulation
else:
    simulation = LaterModule("tnplan.jobs.statevector")

TOPIC = "state vectors"


class SimulationKeywords(ResumableKeywords, total=False):
    """The keywords of a simulation's job; `SimulationOptions` says what they mean."""

    precision: str
    fidelity: float | None


@dataclass(frozen=True)
class SimulationOptions(JobOptions):
    """How a simulation runs.

    Parameters
    ----------
    precision : {"fp64", "fp32"}
        Precision of the amplitudes: complex128 or complex64.
    fidelity : float, optional
        Store amplitudes compressed, with 8 or 16 bits for each real and imaginary part: the fewest with which
        the final state is estimated to have this fidelity. `precision` is then the precision within a pass.
        Only for circuits of gates.
    checkpoint : bool
        Keep OUTPUT.ckpt while the passes over a state with a `fidelity` run: a file as large as the state.
    resume : bool
        Keep a checkpoint, and continue an interrupted run from it, if any.
    """

    precision: str = "fp64"
    fidelity: float | None = None
    checkpoint: bool = False


@takes_job(SimulationKeywords, SimulationOptions)
def simulate(
    circuit: Any,
    *,
    shots: int | None = None,
    observable: Any = None,
    amplitudes: Sequence[str] = (),
    marginal: Sequence[int] = (),
    gradient: bool = False,
    parameters: Mapping[str, Any] | None = None,
    depolarize: float = 0.0,
    mode: str = "compiled",
    seed: int | None = None,
    start: simulation.Start | None = None,
    save: str | Path | None = None,
    **job: Unpack[SimulationKeywords],
) -> tnplan.Simulation:
    """Simulate a circuit or a program with all its amplitudes, and answer what is asked.

    A program that measures before its end, resets or is noisy runs once per shot, and values are means. What
    does not fit into memory is refused before anything is allocated. Under mpirun the call is collective.

    Parameters
    ----------
    circuit : CircuitProgram, GateSequence, path or object
        A program, a circuit, a qsim or OpenQASM file, or what else `load_program` reads.
    shots : int, optional
        Count the outcomes of this many runs.
    observable : str, PauliSum or SparsePauliOp, optional
        A sum of Pauli words, or Qiskit's object for one, whose expectation value is asked for.
    amplitudes : sequence of str
        Bit strings whose amplitudes are asked for; character k is qubit k.
    marginal : sequence of int
        Qubits the probabilities of whose values are asked for.
    gradient : bool
        Ask for the derivatives of the expectation value by all angles of the circuit. Takes the memory of
        three states.
    parameters : mapping, optional
        Values of the parameters of a file or of another library's circuit, by their names.
    depolarize : float
        The probability that, after a gate, one of the Pauli words other than I acts on its qubits.
    mode : {"compiled", "stages", "gates"}
        How gates are grouped into passes over the state.
    seed : int, optional
        Makes outcomes the same in every run.
    start : path or array, optional
        A saved state to begin with, or its 2^n amplitudes: qubit q is bit q of the index.
    save : path, optional
        Where to save the final state (.json, and an .npy a rank).
    ranks : int, optional
        Number of ranks, as threads of this process; mpirun starts its own. They share the state; their number
        is a power of two. Default: 1.
    output : path, optional
        A JSON file for the result.
    progress : bool or callable, optional
        True: a bar (`ProgressBar`). Or a function that is called on rank 0 with a `Progress` for every shot.
    **job
        How the simulation uses the machine: `SimulationOptions`.

    Returns
    -------
    Simulation
        The answer, the final state (of the last run), and what the JSON file says.

    Raises
    ------
    InputError
        For what cannot be done, or does not fit.

    Examples
    --------
    >>> flip = tnplan.Gate("x", (0,), np.array([[0, 1], [1, 0]], np.complex128))
    >>> tnplan.simulate(tnplan.GateSequence(2, (flip,)), shots=3, device="cpu").answer.counts
    {'10': 3}
    """
    # docs/explanation/architecture.md#calls-and-commands
    if job.get("resume"):
        job["checkpoint"] = True
    options = SimulationOptions.given(simulate, job)
    expect_gpu(options.device)
    from tnplan.jobs.statevector import SimulationRequest, run_simulation

    request = SimulationRequest(
        shots, observable, amplitudes, marginal, gradient, parameters, depolarize, mode, seed, start, save,
        options.precision, options.fidelity,
    )  # fmt: skip
    return run_simulation(circuit, request, options)
