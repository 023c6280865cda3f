"""Qiskit's `SamplerV2`, `EstimatorV2` and `BackendV2` on tnplan: a program changes one import.

    from tnplan.qiskit import Backend, Estimator, Sampler

All take the options of every question (docs/how-to/questions.md) as keywords: method, device,
depolarizing and others.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from math import ceil
from typing import Any, Unpack
from uuid import uuid4

import numpy as np
from qiskit.circuit import Barrier, Delay, ForLoopOp, IfElseOp, QuantumCircuit, SwitchCaseOp, WhileLoopOp
from qiskit.circuit.library import UnitaryGate, get_standard_gate_name_mapping
from qiskit.primitives import (
    BaseEstimatorV2,
    BaseSamplerV2,
    BitArray,
    DataBin,
    PrimitiveJob,
    PrimitiveResult,
    PubResult,
    SamplerPubResult,
)
from qiskit.primitives.containers.estimator_pub import EstimatorPub
from qiskit.primitives.containers.sampler_pub import SamplerPub
from qiskit.providers import BackendV2, JobStatus, JobV1, Options
from qiskit.quantum_info import SparsePauliOp
from qiskit.result import Result
from qiskit.transpiler import Target

from tnplan.circuits.program import final_measurements, measures
from tnplan.common.arrays import Array
from tnplan.common.checks import check_count
from tnplan.common.errors import InputError
from tnplan.common.release import release
from tnplan.questions.circuit import Circuit
from tnplan.questions.options import QuestionKeywords, options_of

__all__ = ["Backend", "Estimator", "Sampler"]

TOPIC = "questions about circuits"
WIDE = {"barrier": Barrier, "delay": Delay, "unitary": UnitaryGate, "if_else": IfElseOp,
        "switch_case": SwitchCaseOp, "for_loop": ForLoopOp, "while_loop": WhileLoopOp}  # fmt: skip
"""Instructions on any number of qubits that circuits may have besides Qiskit's standard gates."""


class Sampler(BaseSamplerV2):
    """Counts of outcomes, with the interface of Qiskit's `SamplerV2`.

    Parameters
    ----------
    default_shots : int
        Shots of a PUB that says nothing.
    **options
        Those of every question of `Circuit`; `seed` makes outcomes the same in every run.

    Examples
    --------
    >>> from tnplan.qiskit import Sampler
    >>> Sampler(seed=1).run([circuit]).result()[0].data.meas.get_counts()  # doctest: +SKIP
    """

    def __init__(self, *, default_shots: int = 1024, **options: Unpack[QuestionKeywords]) -> None:
        options_of("Sampler", options)
        self.default_shots, self.options = default_shots, options

    def run(self, pubs: Iterable[Any], *, shots: int | None = None) -> Any:
        """A job for PUBs: circuits, alone or with arrays of parameter values and shots."""
        coerced = [SamplerPub.coerce(pub, self.default_shots if shots is None else shots) for pub in pubs]
        for number, pub in enumerate(coerced):
            if not pub.circuit.cregs:
                problem = f"circuit {number} has no classical registers, so that its result is empty"
                warnings.warn(f"{problem}; add measurements, such as by measure_all()", stacklevel=2)
        return _submitted(lambda: PrimitiveResult([self._result(pub) for pub in coerced], {"version": 2}))

    def _result(self, pub: Any) -> Any:
        random = np.random.default_rng(self.options.get("seed"))
        bound = _bound(pub)
        n_bits = pub.circuit.num_clbits
        bits = np.zeros((bound.size, pub.shots, n_bits), bool)
        for number, circuit in enumerate(bound.ravel()):
            if measures(circuit.program().operations):
                bits[number] = random.permutation(_rows(circuit.sample(pub.shots, **self.options).value))
        bits = bits.reshape(*bound.shape, pub.shots, n_bits)
        registers = {
            register.name: BitArray.from_bool_array(
                bits[..., [pub.circuit.find_bit(bit).index for bit in register]], order="little"
            )
            for register in pub.circuit.cregs
        }
        metadata = {"shots": pub.shots, "circuit_metadata": pub.circuit.metadata}
        return SamplerPubResult(DataBin(**registers, shape=pub.shape), metadata)


class Estimator(BaseEstimatorV2):
    """Expectation values, with the interface of Qiskit's `EstimatorV2`.

    Values are exact where the method gives exact ones, whatever the precision asked for. A circuit that
    branches by measured bits runs 1 / precision^2 times.

    Parameters
    ----------
    default_precision : float
        The standard deviation that is aimed at where a PUB says nothing.
    **options
        Those of every question of `Circuit`.

    Examples
    --------
    >>> from tnplan.qiskit import Estimator
    >>> Estimator(method="pauli").run([(circuit, "ZZ")]).result()[0].data.evs  # doctest: +SKIP
    """

    def __init__(self, *, default_precision: float = 0.0, **options: Unpack[QuestionKeywords]) -> None:
        options_of("Estimator", options)
        self.default_precision, self.options = default_precision, options

    def run(self, pubs: Iterable[Any], *, precision: float | None = None) -> Any:
        """A job for PUBs: circuits with arrays of observables, of parameter values, and a precision."""
        aim = self.default_precision if precision is None else precision
        coerced = [EstimatorPub.coerce(pub, aim) for pub in pubs]
        return _submitted(lambda: PrimitiveResult([self._result(pub) for pub in coerced], {"version": 2}))

    def _result(self, pub: Any) -> Any:
        bound = _bound(pub)
        observables = np.empty(pub.observables.shape, object)
        for index in np.ndindex(observables.shape):
            words, coefficients = zip(*pub.observables[index].items(), strict=True)
            observables[index] = SparsePauliOp(words, coefficients)  # Hermitian: the PUB refuses others
        numbers, wanted = np.broadcast_arrays(np.arange(bound.size).reshape(bound.shape), observables)
        values, errors = np.zeros(numbers.shape), np.zeros(numbers.shape)
        for number, circuit in enumerate(bound.ravel()):
            here = numbers == number
            answer = circuit.expectation(list(wanted[here]), **self._options(circuit, pub.precision))
            values[here] = np.real(answer.value)
            errors[here] = answer.error
        metadata = {"target_precision": pub.precision, "circuit_metadata": pub.circuit.metadata}
        return PubResult(DataBin(evs=values, stds=errors, shape=values.shape), metadata)

    def _options(self, circuit: Circuit, precision: float) -> QuestionKeywords:
        """The options, with as many trajectories as a precision takes where the circuit needs some."""
        options = self.options.copy()
        is_random = final_measurements(circuit.program()) is None
        if is_random and precision and options.get("method", "auto") in ("auto", "statevector"):
            options.setdefault("trajectories", max(2, ceil(precision**-2)))
        return options


class Backend(BackendV2):
    """Counts of outcomes, with the interface of Qiskit's `BackendV2`.

    It has all standard gates, on any qubits, so that `transpile(circuit, backend)` changes little. `run` ends
    when the counts are there.

    Parameters
    ----------
    shots : int
        Shots of a run that says nothing.
    **options
        Those of every question of `Circuit`; `seed` makes outcomes the same in every run.

    Examples
    --------
    >>> from tnplan.qiskit import Backend
    >>> backend = Backend(seed=1)
    >>> backend.run(transpile(circuit, backend), shots=100).result().get_counts()  # doctest: +SKIP
    """

    def __init__(self, *, shots: int = 1024, **options: Unpack[QuestionKeywords]) -> None:
        options_of("Backend", options)
        super().__init__(name="tnplan", backend_version=release(), shots=shots)
        self.keywords = options
        self._target = Target(description="tnplan", num_qubits=None)
        for name, gate in get_standard_gate_name_mapping().items():
            if name not in WIDE:
                self._target.add_instruction(gate, name=name)
        for name, kind in WIDE.items():
            self._target.add_instruction(kind, name=name)

    @property
    def target(self) -> Any:
        """The gates that circuits may have, on any number of qubits."""
        return self._target

    @property
    def max_circuits(self) -> None:
        """A run may have any number of circuits."""
        return None

    @classmethod
    def _default_options(cls) -> Any:
        return Options(shots=1024)

    def run(self, run_input: Any, **options: Any) -> Any:
        """A finished job for one circuit or a list of them, all with measurements.

        Options are `shots`, `memory` (the outcome of every shot) and `seed_simulator`, as of Aer.

        Raises
        ------
        InputError
            For other options, and for circuits without measurements or with parameters that have no value.
        """
        known = {"shots": self.options.shots, "memory": False, "seed_simulator": None}
        if unknown := [name for name in options if name not in known]:
            raise InputError(
                f"Backend.run: {unknown[0]}", "is not an option of a run",
                f"use {', '.join(known)} here, and other options in Backend()",
            )  # fmt: skip
        known |= options
        keywords = self.keywords.copy()
        if known["seed_simulator"] is not None:
            keywords["seed"] = known["seed_simulator"]
        shots = check_count("--shots", known["shots"])
        circuits = run_input if isinstance(run_input, list | tuple) else [run_input]
        # Every circuit is read before the first one runs.
        programs = [_measured(circuit) for circuit in circuits]
        results = [
            _outcomes(circuit, program.sample(shots, **keywords).value, known["memory"], keywords.get("seed"))
            for circuit, program in zip(circuits, programs, strict=True)
        ]
        names = {"backend_name": self.name, "backend_version": self.backend_version}
        job_id = str(uuid4())
        ids = {"job_id": job_id, "qobj_id": job_id}
        return _Job(self, job_id, Result.from_dict({**names, **ids, "success": True, "results": results}))


class _Job(JobV1):
    """A job that has ended."""

    def __init__(self, backend: Backend, job_id: str, result: Any) -> None:
        super().__init__(backend, job_id)
        self._result = result

    def submit(self) -> None:
        """Nothing: the run is over."""

    def result(self) -> Any:
        """Qiskit's `Result`, with counts."""
        return self._result

    def status(self) -> Any:
        """That the job has ended."""
        return JobStatus.DONE


def _measured(circuit: Any) -> Circuit:
    """A circuit of a run, which has outcomes."""
    if not isinstance(circuit, QuantumCircuit):
        raise InputError("Backend.run", f"takes no {type(circuit).__name__}", "give a QuantumCircuit")
    program = Circuit(circuit)
    if not measures(program.program().operations):
        raise InputError(
            f"circuit {circuit.name}", "has no measurements", "add measurements, as by measure_all()"
        )
    return program


def _outcomes(circuit: Any, outcomes: dict[str, int], has_memory: bool, seed: int | None) -> dict[str, Any]:
    """The entry of a circuit in a `Result`."""
    # Bit k is character k of an outcome, and the digit of 2^k in Qiskit's numbers.
    counts = {hex(int(text[::-1], 2)): count for text, count in outcomes.items()}
    data: dict[str, Any] = {"counts": counts}
    if has_memory:
        shots = np.repeat([*counts], [*counts.values()])
        data["memory"] = np.random.default_rng(seed).permutation(shots).tolist()
    # Registers divide the bits where these are theirs in order, each once.
    in_registers = [bit for register in circuit.cregs for bit in register]
    registers = circuit.cregs if in_registers == list(circuit.clbits) else []
    header = {
        "name": circuit.name, "memory_slots": circuit.num_clbits, "metadata": circuit.metadata,
        "creg_sizes": [[register.name, register.size] for register in registers],
    }  # fmt: skip
    return {"shots": sum(counts.values()), "success": True, "data": data, "header": header}


def _bound(pub: Any) -> Array:
    """The circuits for all values of the parameters of a PUB, as an array of objects."""
    circuit, values = Circuit(pub.circuit), pub.parameter_values
    names = [parameter.name for parameter in pub.circuit.parameters]
    table = values.as_array(names) if names else np.zeros((*values.shape, 0))
    bound = np.empty(values.shape, object)
    for index in np.ndindex(values.shape):
        bound[index] = circuit.bind(dict(zip(names, table[index].tolist(), strict=True)))
    return bound


def _rows(counts: dict[str, int]) -> Array:
    """A row of bits for each shot."""
    rows = [[bit == "1" for bit in text] for text in counts]
    return np.repeat(np.array(rows, bool), [*counts.values()], axis=0)


def _submitted(work: Any) -> Any:
    """A job that has begun."""
    job = PrimitiveJob(work)
    job._submit()
    return job
