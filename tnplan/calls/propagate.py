"""Pauli propagation from a circuit to a value: `tnplan pauli` and `tnplan.propagate`.

This module has only the call. Its job is in jobs/pauli.py, which is imported while a GPU begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import tnplan
from tnplan.executor.device.expected_gpu import expect_gpu
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.jobs.job_options import JobOptions, ResumableKeywords, takes_job

TOPIC = "Pauli propagation"


class PropagationKeywords(ResumableKeywords, total=False):
    """The keywords of a propagation's job; `PropagationOptions` says what they mean."""

    precision: str
    keep: str
    stop_above: int | None
    when_full: str
    record: str | Path | None


@dataclass(frozen=True)
class PropagationOptions(JobOptions):
    """How a propagation runs, and what it keeps.

    Parameters
    ----------
    precision : {"fp64", "fp32"}
        Precision of the coefficients.
    keep : {"all", "own", "none"}
        Which terms the result has on every rank. The Schroedinger picture keeps all.
    stop_above : int, optional
        Stop where more terms than this are left.
    when_full : {"stop", "truncate"}
        Where the memory is full: stop, or keep the terms of largest magnitude and go on.
    record : path, optional
        A file for the number of terms at every step: .json, or a plot, .svg.
    """

    precision: str = "fp64"
    keep: str = "all"
    stop_above: int | None = None
    when_full: str = "stop"
    record: str | Path | None = None


@takes_job(PropagationKeywords, PropagationOptions)
def propagate(
    circuit: Any,
    observable: Any,
    truncation: Truncation | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    state: Any = None,
    overlap: Any = None,
    symmetry: Any = None,
    depolarize: float = 0.0,
    picture: str = "heisenberg",
    gradient: bool = False,
    each_term: bool = False,
    monte_carlo: tnplan.MonteCarlo | None = None,
    **job: Unpack[PropagationKeywords],
) -> tnplan.Expectation:
    """The expectation value <state| U^dagger O U |state> of a circuit U, by propagation of Pauli words.

    Without a truncation the value is exact but for rounding. With one, `report["error_bound"]` bounds its
    error. With `monte_carlo` it is an estimate with a standard error, and an interval where that is earned.
    Under mpirun the call is collective.

    Parameters
    ----------
    circuit : GateSequence, path or object
        A circuit, a qsim or OpenQASM file, or what else `load_circuit` reads.
    observable : str, PauliSum or SparsePauliOp
        A sum of Pauli words O, such as "0.5*X0 X1 - Z3", or Qiskit's object for one. With `each_term` also a
        list of them, which are propagated together.
    truncation : Truncation, optional
        Which terms are dropped. Default: none.
    parameters : mapping, optional
        Values of the parameters of a file or of another library's circuit, by their names.
    state : str, array or list of str, optional
        A letter for each qubit: 0, 1, + and - (of X), r and l (of Y); Bloch vectors, float64 [qubit, 3]; or
        stabilizers, such as ["X0 X1", "-Z0 Z1"]: fewer than the qubits give the mean of all such states.
        Default: all 0.
    overlap : str, PauliSum or SparsePauliOp, optional
        Another sum B, instead of a state: the value is tr(B^dagger U^dagger O U) / 2^n. With O itself it is
        the mean over inputs of a Loschmidt echo.
    symmetry : list of permutations, optional
        Such as the translations of a ring, [[1, 2, 3, 0]]: the qubits to which qubits 0, 1, ... go. Words
        that they take to each other are merged after every layer of gates that commute. Refused where they
        change a layer or the state. The result has one word for all of these. On CPUs, on one rank.
    depolarize : float
        The probability that, after a gate, one of the Pauli words other than I acts on its qubits.
    picture : {"heisenberg", "schroedinger"}
        Propagate the observable backwards through the circuit, or the state forwards. The state has words of
        at most the truncation's `max_weight`; the others count as dropped.
    gradient : bool
        Add the derivatives by the angles of all rotations. In the Heisenberg picture; on one GPU or
        on CPUs. Terms take a quarter of the memory; the record of what was done to them (the tape) takes the
        rest.
    each_term : bool
        Add the value of every word of the observable, from one sweep back. Takes what `gradient` takes.
    monte_carlo : MonteCarlo, optional
        Resample the terms where they would pass the truncation's `max_terms`, in repetitions. With "auto" a
        GPU is taken only for many terms.
    ranks : int, optional
        Number of ranks, as threads of this process; mpirun starts its own. They share the terms, and are a
        power of two, or they share the repetitions. Default: 1.
    output : path, optional
        A JSON file for the result. Repetitions keep a checkpoint beside it.
    **job
        How the propagation uses the machine: `PropagationOptions`.

    Returns
    -------
    Expectation
        The value, the propagated sum, and what the JSON file says.

    Raises
    ------
    InputError
        For what cannot be done, or where terms outgrow the memory.

    Examples
    --------
    >>> flip = tnplan.Gate("x", (0,), np.array([[0, 1], [1, 0]], np.complex128))
    >>> circuit = tnplan.GateSequence(1, (flip,))
    >>> tnplan.propagate(circuit, "Z0", tnplan.Truncation(branch_cut=1e-4), device="cpu")
    Expectation(-1.0, error at most 0, 1 terms)
    """
    # docs/explanation/architecture.md#calls-and-commands
    options = PropagationOptions.given(propagate, job)
    expect_gpu(options.device)
    from tnplan.jobs.pauli import run_propagation
    from tnplan.jobs.pauli_problem import PauliRequest

    limits = Truncation() if truncation is None else truncation
    request = PauliRequest(
        limits, parameters, state, overlap, symmetry, depolarize, picture, gradient, each_term, monte_carlo,
        options.keep, options.stop_above, options.precision, options.when_full, options.record,
    )  # fmt: skip
    return run_propagation(circuit, observable, request, options)
