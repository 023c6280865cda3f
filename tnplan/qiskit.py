"""Qiskit's primitives `SamplerV2` and `EstimatorV2` on tnplan: a program changes one import.

    from tnplan.qiskit import Estimator, Sampler

Both take the options of every question (docs/how-to/questions.md) as keywords: method, device,
noise and others.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from math import ceil
from typing import Any, Unpack

import numpy as np
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
from qiskit.quantum_info import SparsePauliOp

from tnplan.circuits.program import final_measurements, measures
from tnplan.common.arrays import Array
from tnplan.questions.circuit import Circuit
from tnplan.questions.options import QuestionKeywords, options_of

__all__ = ["Estimator", "Sampler"]


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
        asked = [SamplerPub.coerce(pub, self.default_shots if shots is None else shots) for pub in pubs]
        for number, pub in enumerate(asked):
            if not pub.circuit.cregs:
                problem = f"circuit {number} has no classical registers, so that its result is empty"
                warnings.warn(f"{problem}; add measurements, such as by measure_all()", stacklevel=2)
        return _submitted(lambda: PrimitiveResult([self._result(one) for one in asked], {"version": 2}))

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
        asked = [EstimatorPub.coerce(pub, aim) for pub in pubs]
        return _submitted(lambda: PrimitiveResult([self._result(one) for one in asked], {"version": 2}))

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
