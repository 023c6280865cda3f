"""A PennyLane device: `qml.device("tnplan", wires=4)` answers the measurements of quantum functions.

It takes the options of every question (docs/how-to/questions.md) as keywords: method, noise, device of the
computer and others. Gradients of expectation values come from the engines ("device", which is the default).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import pennylane as qml
from pennylane.devices import Device, ExecutionConfig
from pennylane.devices.modifiers import simulator_tracking, single_tape_support
from pennylane.devices.preprocess import decompose, no_sampling, validate_device_wires, validate_measurements
from pennylane.exceptions import DeviceError
from pennylane.math import Interface
from pennylane.measurements import (
    ExpectationMP,
    ProbabilityMP,
    SampleMeasurement,
    StateMeasurement,
    StateMP,
    VarianceMP,
)
from pennylane.transforms.core import CompilePipeline

from tnplan.circuits.libraries.builder import LARGEST_MATRIX
from tnplan.circuits.libraries.pennylane_tape import IDLE
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.statevector.simulator import LARGEST_MARGINAL
from tnplan.questions.circuit import Circuit
from tnplan.questions.options import QuestionKeywords, QuestionOptions

__all__ = ["TnplanDevice"]

GRADIENTS = ("device", "adjoint", "best")
"""The names of `diff_method` by which an engine gives the derivatives."""
LARGEST_OBSERVABLE = 6
"""Wires of an observable that is given by its matrix and becomes a sum of Pauli words."""


def _is_taken(operation: Any) -> bool:
    """Whether an operation needs no decomposition."""
    if isinstance(operation, qml.operation.Channel) or operation.name in IDLE:
        return True
    return bool(operation.has_matrix) and len(operation.wires) <= LARGEST_MATRIX


def _is_differentiated(operation: Any) -> bool:
    """Whether an operation is known with its derivatives, where some are asked for."""
    trainable = any(qml.math.requires_grad(parameter) for parameter in operation.data)
    is_known = operation.num_params == 1 and operation.has_generator
    return _is_taken(operation) and (not trainable or is_known)


def _is_observed(observable: Any) -> bool:
    """Whether an observable is a sum of Pauli words, or small enough to become one."""
    is_small = bool(observable.has_matrix) and len(observable.wires) <= LARGEST_OBSERVABLE
    return observable.pauli_rep is not None or is_small


def _is_exact(measured: Any) -> bool:
    """Whether a measurement has a value without shots."""
    if measured.obs is not None and not isinstance(measured, ProbabilityMP):
        return isinstance(measured, ExpectationMP | VarianceMP) and _is_observed(measured.obs)
    return isinstance(measured, StateMeasurement)


@qml.transform
def _split(tape: Any) -> tuple[Any, Any]:
    """A tape with shots becomes tapes whose observables have a common eigenbasis of single wires."""
    if not tape.shots:
        return (tape,), lambda results: results[0]
    batch, finish = qml.transforms.split_non_commuting(tape)
    return batch, finish


def _order(value: Any) -> int:
    """How often autograd or JAX differentiates a parameter: each time by a tracer that holds the next one."""
    order = 0
    while type(value).__name__.endswith(("Box", "Tracer")):
        for name, adds in (("_value", 1), ("primal", 1), ("val", 0)):
            if hasattr(value, name):
                value, order = getattr(value, name), order + adds
                break
        else:
            break
    return order


@qml.transform
def _check_order(tape: Any, highest: int) -> tuple[Any, Any]:
    """Refuse derivatives of a higher order than is computed: PennyLane would take the rest for zero."""
    order = max((_order(parameter) for parameter in tape.get_parameters(trainable_only=False)), default=0)
    if order > highest:
        raise DeviceError(_too_high(order))
    return (tape,), lambda results: results[0]


def _too_high(order: int) -> str:
    return (
        f"a derivative of order {order} is asked for, but the QNode has only lower ones: "
        f"make it with diff_method='parameter-shift' and max_diff={order}"
    )


def _is_of_torch(config: Any) -> bool:
    """Whether torch's autograd calls the device."""
    return config is not None and config.interface is Interface.TORCH


@simulator_tracking
@single_tape_support
class TnplanDevice(Device):
    """A device of PennyLane that contracts, holds the state, or propagates Pauli words.

    Parameters
    ----------
    wires : int or sequence, optional
        The wires; None: those of each circuit.
    shots : int, optional
        Shots of a circuit that says nothing; None: exact values.
    **options
        Those of every question of `Circuit` but `output`; `seed` makes samples the same in every run.

    Raises
    ------
    InputError
        For options that no question has or that have wrong values.

    Examples
    --------
    >>> device = qml.device("tnplan", wires=2, method="statevector")  # doctest: +SKIP
    """

    name = "tnplan"

    def __init__(self, wires: Any = None, shots: Any = None, **options: Unpack[QuestionKeywords]) -> None:
        super().__init__(wires=wires, shots=shots)
        unknown = [key for key in options if key not in QuestionKeywords.__annotations__ or key == "output"]
        if unknown:
            known = [key for key in QuestionKeywords.__annotations__ if key != "output"]
            raise InputError(unknown[0], "is not an option of this device", f"choose from {', '.join(known)}")
        QuestionOptions.of(**options)
        self.options = options
        self._random = np.random.default_rng(options.get("seed"))

    def setup_execution_config(self, config: Any = None, circuit: Any = None) -> Any:
        """The configuration, with what the device decides: gradients, and measurements on the way."""
        config = config or ExecutionConfig()
        method = config.mcm_config.mcm_method or "deferred"
        if method != "deferred":
            raise DeviceError(f"mcm_method {method!r} is not of the device tnplan: use 'deferred'")
        is_ours = config.gradient_method in GRADIENTS and self.supports_derivatives(config, circuit)
        changes: dict[str, Any] = {"mcm_config": replace(config.mcm_config, mcm_method=method)}
        if is_ours:
            changes |= {
                "gradient_method": "device", "use_device_gradient": True,
                "use_device_jacobian_product": False,
                # In the forward pass of torch nothing says whether the backward pass is differentiated.
                "grad_on_execution": bool(config.grad_on_execution) and not _is_of_torch(config),
            }  # fmt: skip
        return replace(config, **changes)

    def preprocess_transforms(self, execution_config: Any = None) -> Any:
        """What makes circuits of those that this device takes."""
        config = execution_config or ExecutionConfig()
        has_gradient = config.gradient_method in GRADIENTS and config.use_device_gradient
        pipeline = CompilePipeline()
        pipeline.add_transform(_check_order, highest=config.derivative_order)
        pipeline.add_transform(qml.defer_measurements, allow_postselect=False)
        pipeline.add_transform(
            decompose, stopping_condition=_is_differentiated if has_gradient else _is_taken,
            skip_initial_state_prep=False, name=self.name,
        )  # fmt: skip
        pipeline.add_transform(validate_device_wires, wires=self.wires, name=self.name)
        pipeline.add_transform(
            validate_measurements, analytic_measurements=_is_exact,
            sample_measurements=lambda measured: isinstance(measured, SampleMeasurement), name=self.name,
        )  # fmt: skip
        if has_gradient:
            pipeline.add_transform(no_sampling, name=f"gradients of {self.name}")
        pipeline.add_transform(qml.transforms.broadcast_expand)
        pipeline.add_transform(_split)
        return pipeline

    def supports_derivatives(self, execution_config: Any = None, circuit: Any = None) -> bool:
        """Whether an engine gives the derivatives: first ones of exact expectation values, by angles of
        gates."""
        config = execution_config or ExecutionConfig(gradient_method="device")
        if config.gradient_method not in GRADIENTS or config.derivative_order > 1:
            return False
        if circuit is None:
            return True
        angles = {
            number for number, info in enumerate(circuit.par_info) if info["op_idx"] < len(circuit.operations)
        }
        return (
            not circuit.shots and set(circuit.trainable_params) <= angles
            and all(isinstance(m, ExpectationMP) and _is_exact(m) for m in circuit.measurements)
        )  # fmt: skip

    def execute(self, circuits: Any, execution_config: Any = None) -> Any:
        """The values of what each circuit measures."""
        return tuple(_TapeQuestions(tape, self.options, self._seed()).results() for tape in circuits)

    def compute_derivatives(self, circuits: Any, execution_config: Any = None) -> Any:
        """The derivatives of the expectation values of each circuit by its trainable parameters.

        Raises
        ------
        DeviceError
            In a backward pass of torch that is to be differentiated: these derivatives are constants to it.
        """
        if _is_of_torch(execution_config) and sys.modules["torch"].is_grad_enabled():
            raise DeviceError(_too_high(2))
        return self.execute_and_compute_derivatives(circuits, execution_config)[1]

    def execute_and_compute_derivatives(self, circuits: Any, execution_config: Any = None) -> Any:
        """Expectation values and their derivatives, of one sweep."""
        answers = [_TapeQuestions(tape, self.options, self._seed()).with_derivatives() for tape in circuits]
        return tuple(values for values, _ in answers), tuple(slopes for _, slopes in answers)

    def _seed(self) -> int:
        """A seed for a circuit."""
        return int(self._random.integers(2**63))


class _TapeQuestions:
    """A circuit on the qubits 0 to n - 1, and the questions that its measurements are."""

    def __init__(self, tape: Any, options: QuestionKeywords, seed: int) -> None:
        self.tape = tape.map_to_standard_wires()
        self.circuit = Circuit(self.tape)
        self.seed = seed
        self.options = options.copy()
        if options.get("monte_carlo") is None:  # repetitions have a seed of their own
            self.options["seed"] = seed

    def results(self) -> Any:
        """What PennyLane expects: a value for one measurement, a tuple for several."""
        if self.tape.shots:
            return self._samples()
        wanted = [measured for measured in self.tape.measurements if isinstance(measured, ExpectationMP)]
        values = iter(self._expectations([_sentence(measured.obs) for measured in wanted]))
        return _single([
            np.float64(next(values)) if isinstance(measured, ExpectationMP) else self._exact(measured)
            for measured in self.tape.measurements
        ])  # fmt: skip

    def with_derivatives(self) -> tuple[Any, Any]:
        """Expectation values, and for each its derivatives by the trainable parameters."""
        names = [f"p{number}" for number in self.tape.trainable_params]
        if not names:
            return self.results(), _single([() for _ in self.tape.measurements])
        sums = [_sentence(measured.obs) for measured in self.tape.measurements]
        answer = self.circuit.expectation(sums, gradient=names, **self.options)
        assert answer.gradient is not None
        columns = [answer.gradient[name] for name in names]
        slopes = [_single([np.float64(column[k]) for column in columns]) for k in range(len(sums))]
        return _single([np.float64(value) for value in answer.value]), _single(slopes)

    def _exact(self, measured: Any) -> Any:
        """The value of a measurement that is no expectation value."""
        if isinstance(measured, VarianceMP):
            sentence = _sentence(measured.obs)
            mean, square = self._expectations([sentence, sentence @ sentence])
            return np.float64(square - mean**2)
        wires = measured.wires or self.tape.wires
        qubits = [int(wire) for wire in wires]
        if isinstance(measured, ProbabilityMP):
            turned = self._turned(measured.diagonalizing_gates())
            return turned.probabilities(qubits, **self.options).value.reshape(-1)
        if type(measured) is StateMP:
            return self._state(qubits)
        density = self.circuit.reduced_density_matrix(qubits, **self.options).value
        places = {wire: place for place, wire in enumerate(wires)}
        return measured.map_wires(places).process_density_matrix(density, qml.wires.Wires(range(len(wires))))

    def _state(self, qubits: Sequence[int]) -> Array:
        """All amplitudes, the first wire most significant."""
        if len(qubits) > LARGEST_MARGINAL:
            raise DeviceError(f"qml.state() of {len(qubits)} wires: at most {LARGEST_MARGINAL} are returned")
        amplitudes: Array = self.circuit.amplitudes(open_qubits=qubits, **self.options).value
        return amplitudes.reshape(-1)

    def _turned(self, gates: Sequence[Any]) -> Circuit:
        """The circuit with further gates at its end."""
        if not gates:
            return self.circuit
        return Circuit(self.tape.copy(operations=[*self.tape.operations, *gates]))

    def _samples(self) -> Any:
        """What the measurements make of samples; for a list of shots that of each."""
        shots = self.tape.shots
        turned = self._turned(_eigenbasis(self.tape.measurements))
        counts = turned.sample(shots.total_shots, **self.options).value
        rows = np.repeat([[int(bit) for bit in text] for text in counts], [*counts.values()], axis=0)
        rows = np.random.default_rng(self.seed).permutation(rows)
        wires = qml.wires.Wires(range(turned.n_qubits))
        outcomes = [
            _single([m.process_samples(rows[first:last], wires) for m in self.tape.measurements])
            for first, last in shots.bins()
        ]
        return tuple(outcomes) if shots.has_partitioned_shots else outcomes[0]

    def _expectations(self, sentences: Sequence[Any]) -> Sequence[float]:
        if not sentences:
            return []
        values = self.circuit.expectation(list(sentences), **self.options).value
        return [float(value) for value in np.real(values)]


def _sentence(observable: Any) -> Any:
    """An observable as PennyLane's sum of Pauli words."""
    if observable.pauli_rep is not None:
        return observable.pauli_rep
    matrix = qml.matrix(observable, wire_order=observable.wires)
    return qml.pauli_decompose(matrix, wire_order=observable.wires, pauli=True, check_hermitian=False)


def _eigenbasis(measurements: Sequence[Any]) -> list[Any]:
    """The gates after which all observables are diagonal; on a wire that several share these agree."""
    gates, letters = [], {}
    for measured in measurements:
        sentence = None if measured.obs is None else measured.obs.pauli_rep
        if sentence is not None and len(sentence) == 1:
            letters.update(next(iter(sentence)))
        else:
            gates += measured.diagonalizing_gates()
    for wire, letter in letters.items():
        gates += getattr(qml, letter)(wire).diagonalizing_gates()
    return gates


def _single(values: Sequence[Any]) -> Any:
    """One value as it is, several as a tuple."""
    return values[0] if len(values) == 1 else tuple(values)
