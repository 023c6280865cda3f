"""A question about a circuit that is read once, and called with values of its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.derivatives.trigonometric_gate import trigonometric_gates
from tnplan.circuits.parametric import values_by_name
from tnplan.common.arrays import Array
from tnplan.common.checks import is_finite
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.launcher import launched_size
from tnplan.executor.statevector.gate_list import GateList
from tnplan.questions.answer import CircuitAnswer
from tnplan.questions.ask import answer_of
from tnplan.questions.chooser import chosen_method
from tnplan.questions.engines.task_list import EXACT, Outcome
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import CircuitQuery, ExpectationValues
from tnplan.questions.read_question import Reader, read_expectation

DIRECT_QUBITS = 16
"""The most qubits of a state that one core changes gate by gate: larger ones gain from fused passes."""
lists: WeakKeyDictionary[Any, GateList | None] = WeakKeyDictionary()
"""Of each file of OpenQASM in use, which was read once: its gates as functions of all its parameters."""


class AskableCircuit(Protocol):
    """What of a `Circuit` is needed here."""

    names: tuple[str, ...]
    place: str
    may_branch: bool
    qasm: Any

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that have no value yet."""

    def bind(self, parameters: Mapping[str, Any], /) -> AskableCircuit:
        """The circuit with values of parameters."""

    def query(self, read: Reader, options: QuestionOptions) -> CircuitQuery:
        """The circuit with its noise, and a question."""

    def answer_expectation(
        self, observables: Any, names: Sequence[str], options: QuestionOptions
    ) -> CircuitAnswer:  # fmt: skip
        """The expectation values, with derivatives by parameters of these names."""


class CompiledCircuit:
    """Expectation values of a circuit, called with parameters. `Circuit.compile` makes it.

    Up to 16 qubits a call is *direct*: one core applies the gates to a state vector in double precision, and
    nothing is read or planned again. This needs a circuit of unitary gates whose angles are linear in the
    parameters: OpenQASM without branches and comparisons, Qiskit, PennyLane's tapes, or no parameters. It
    needs `method` "auto" or "statevector", `device` "auto" or "cpu", and defaults for all other options but
    `state`, `seed` and `threads`. Every other call is the ordinary question, with the same options:
    `is_direct` says which it is. Direct calls may come from several threads at once.

    Parameters
    ----------
    circuit : Circuit
        The circuit.
    observables : str, PauliSum, SparsePauliOp, QubitOperator, sequence or Path
        As in `Circuit.expectation`.
    gradient : bool
        Calls give the derivatives too.
    parameters : sequence of str, optional
        The parameters of calls, in their order. Default: those without a value.
    options : QuestionOptions, optional
        Of every question.

    Attributes
    ----------
    names : tuple of str
        The parameters of calls, in their order.
    method : str
        "statevector" for direct calls, else the method that was asked for.
    is_direct : bool
        Whether calls are direct.

    Raises
    ------
    InputError
        For parameters that are not there or have no value, and a question that cannot be answered.

    Examples
    --------
    >>> turn = tnplan.Gate("x", (0,), np.array([[0, 1], [1, 0]]))
    >>> flipped = tnplan.Circuit(tnplan.GateSequence(2, (turn,)))
    >>> compiled = flipped.compile(expectation="Z0 - Z1")
    >>> compiled
    CompiledCircuit(0 parameters, direct)
    >>> compiled()
    -2.0
    """

    def __init__(
        self, circuit: AskableCircuit, observables: Any, *, gradient: bool = False,
        parameters: Sequence[str] | None = None, options: QuestionOptions | None = None,
    ) -> None:  # fmt: skip
        self._circuit, self._observables = circuit, observables
        self._options = options or QuestionOptions()
        self.names = _names(circuit, parameters)
        if gradient and not self.names:
            raise InputError(
                "--gradient",
                "is by the parameters of calls, and there are none",
                "name parameters in `parameters`",
            )
        self._differentiated = self.names if gradient else ()
        self._gates = _gate_list(circuit, self.names, self._options)
        if self._gates is not None:
            question = read_expectation(observables, self._differentiated)(self._gates.n_qubits)
            assert isinstance(question, ExpectationValues)
            self._words, self._is_single = self._gates.words(question.sums), question.is_single
            self._is_real = not any(np.iscomplexobj(observable.coefficients) for observable in question.sums)
        self.is_direct = self._gates is not None
        self.method = "statevector" if self.is_direct else self._options.method

    def __repr__(self) -> str:
        how = "direct" if self.is_direct else f"method={self.method!r}"
        return f"CompiledCircuit({len(self.names)} parameters, {how})"

    def __call__(self, parameters: Mapping[Any, Any] | Sequence[float] | Array = (), /) -> Any:
        """The values for these parameters.

        Parameters
        ----------
        parameters : mapping, sequence or array
            A value for each name, or numbers in the order of `names`.

        Returns
        -------
        number or array, or a pair
            A number for one observable, an array for a list. With `gradient` a pair: these, and the
            derivatives, float64 [parameter], or [observable, parameter] for a list.

        Raises
        ------
        InputError
            For values that are missing, too many, or no finite real numbers.
        """
        if self._gates is None:
            return self._asked_again(parameters)
        at = self._numbers(parameters)
        if self._differentiated:
            values, gradients = self._gates.gradients(at, self._words)
            return (values[0].real.item(), gradients[0]) if self._is_single else (values.real, gradients)
        values = self._gates.values(at, self._words)
        values = values.real if self._is_real else values
        return values[0].item() if self._is_single else values

    def _asked_again(self, parameters: Any) -> Any:
        """The answer to the ordinary question."""
        if isinstance(parameters, Mapping):
            bound = self._by_name(parameters)
        else:
            bound = dict(zip(self.names, self._numbers(parameters).tolist(), strict=True))
        answer = self._circuit.bind(bound).answer_expectation(
            self._observables, self._differentiated, self._options
        )
        if answer.gradient is None:
            return answer.value
        return answer.value, np.array(list(answer.gradient.values())).T

    def _by_name(self, parameters: Mapping[Any, Any]) -> dict[str, Any]:
        """A value for each name and no other."""
        by_name = values_by_name(parameters)
        for name in self.names:
            if name not in by_name:
                raise InputError(f"parameter {name}", "has no value", "give a value for each of `names`")
        for name in by_name:
            if name not in self.names:
                remedy = f"choose from {', '.join(self.names)}" if self.names else "leave it out"
                raise InputError(f"parameter {name}", "is not a parameter of the compiled circuit", remedy)
        return by_name

    def _numbers(self, parameters: Any) -> Array:
        """The values in the order of the names, float64."""
        if isinstance(parameters, Mapping):
            by_name = self._by_name(parameters)
            parameters = [by_name[name] for name in self.names]
        try:
            values = np.asarray(parameters)
        except ValueError:  # lists of several lengths
            values = np.empty(0, object)
        if values.shape != (len(self.names),) or values.dtype.kind not in "biuf":
            raise InputError(
                "parameters", f"are {values.dtype} of shape {values.shape}",
                f"give {len(self.names)} real numbers, in the order of `names`, or a value for each name",
            )  # fmt: skip
        values = values.astype(np.float64)
        if not np.isfinite(values).all():
            number = int(np.argmin(np.isfinite(values)))
            raise InputError(
                f"parameter {self.names[number]}", f"is {values[number]}", "give a finite real number"
            )
        return values


def gradient_by_list(
    circuit: AskableCircuit, values: Mapping[str, Any], observables: Any, names: Sequence[str],
    options: QuestionOptions,
) -> CircuitAnswer | None:  # fmt: skip
    """The values and derivatives of a file that is not read again; None where a direct call is none.

    Other circuits may be changed by who made them, and are read for each question.
    """
    begin, source = perf_counter(), circuit.qasm
    if source is None or options.state is not None or not _allows_direct(options):
        return None
    if source not in lists:
        lists[source] = _gate_list(circuit, circuit.names, QuestionOptions())
    gates = lists[source]
    angles = [values.get(name) for name in circuit.names]
    if gates is None or not all(isinstance(value, int | float) and is_finite(value) for value in angles):
        return None
    question = read_expectation(observables, names)(gates.n_qubits)
    assert isinstance(question, ExpectationValues)
    sums, rows = gates.gradients(np.array(angles, np.float64), gates.words(question.sums))
    columns = {name: number for number, name in enumerate(circuit.names)}
    outcome = Outcome(
        sums[0].real.item() if question.is_single else sums.real, 0.0, EXACT, {"device": "cpu", "ranks": 1},
        rows[:, [columns[name] for name in names]],
    )  # fmt: skip
    return answer_of(question, outcome, "statevector", perf_counter() - begin)


def _gate_list(circuit: AskableCircuit, names: Sequence[str], options: QuestionOptions) -> GateList | None:
    """The gates as functions of parameters; None where calls are ordinary questions."""
    if not _allows_direct(options) or (names and circuit.may_branch):
        return None
    n_qubits = 0

    def read(values: Mapping[str, Any]) -> Sequence[Gate]:
        nonlocal n_qubits
        query = (circuit.bind(values) if values else circuit).query(read_expectation("Z0"), options)
        n_qubits, is_few = query.n_qubits, query.n_qubits <= DIRECT_QUBITS
        if query.gates is None or not is_few or chosen_method(query, options) != "statevector":
            raise InputError(
                "circuit", "is too large, or has measurements, resets or channels", "ask without compile"
            )
        return query.gates.gates

    gates = trigonometric_gates(read, names)
    return None if gates is None else GateList(n_qubits, len(names), gates)


def _names(circuit: AskableCircuit, parameters: Sequence[str] | None) -> tuple[str, ...]:
    """The parameters of calls: all others have values."""
    if parameters is None:
        return circuit.parameters
    names = () if isinstance(parameters, str) else tuple(parameters)
    if not names or len(set(names)) < len(names):
        raise InputError("parameters", f"are {parameters!r}"[:80], "give a list of names, each once")
    for name in names:
        if name not in circuit.names:
            raise InputError(f"parameter {name}", f"is not a parameter of {circuit.place}", "leave it out")
    for name in circuit.parameters:
        if name not in names:
            raise InputError(f"parameter {name}", "has no value", "bind a value, or name it in `parameters`")
    return names


def _allows_direct(options: QuestionOptions) -> bool:
    """Whether all options are those of direct calls."""
    if options.method not in ("auto", "statevector") or options.device not in ("auto", "cpu"):
        return False
    free = {name: getattr(options, name) for name in ("method", "device", "state", "seed", "threads")}
    return launched_size() == 1 and options == QuestionOptions(**free)
