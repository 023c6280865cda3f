"""`Circuit`: a circuit of any kind, its parameters, and the questions that are asked of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Unpack

import tnplan
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.compose import composed, inverse
from tnplan.circuits.derivatives.varied_program import varied_program
from tnplan.circuits.load import load_circuit
from tnplan.circuits.noise import depolarized
from tnplan.circuits.parametric import NO_VALUES, ParametricCircuit, values_by_name
from tnplan.circuits.program import CircuitProgram, final_measurements, gates_of
from tnplan.circuits.qasm.gate_calls import LARGEST_OF_CIRCUIT
from tnplan.common.checks import is_number
from tnplan.common.errors import InputError
from tnplan.common.shown_text import html_table
from tnplan.common.units import plural
from tnplan.jobs.this_machine import this_machine
from tnplan.planner.hardware.profile import Profile, known_profile
from tnplan.questions.answer import CircuitAnswer
from tnplan.questions.ask import ask
from tnplan.questions.compiled import CompiledCircuit, gradient_by_list
from tnplan.questions.engines.mps import why_not_installed
from tnplan.questions.engines.quimb_peps import QuimbPeps, final_peps
from tnplan.questions.methods import check_method
from tnplan.questions.options import QuestionKeywords, QuestionOptions, options_of
from tnplan.questions.questions import CircuitQuery, ExpectationValues, prepared, read_state
from tnplan.questions.read_question import (
    Reader,
    read_after,
    read_amplitudes,
    read_density,
    read_expectation,
    read_named,
    read_overlap,
    read_probabilities,
    read_sample,
    read_trace,
)

NAMES_SHOWN = 8
LONGEST_SEARCH_S = 1e6


class Circuit(ParametricCircuit):
    """A circuit, and the questions that are asked of it.

    Each question is a method that gives a `CircuitAnswer`. All take the same options as keywords: `method`
    ("auto", "contraction", "statevector", "pauli", "mps", "stabilizer", "peps" or "mpo"), `state` (that the
    circuit begins with), `depolarizing`, `trajectories`, `truncation`, `monte_carlo`, `max_bond`, `cutoff`,
    `error`, `state_fidelity`, `seed`, `precision`, and `device`, `ranks`, `threads`, `memory`, `output` and
    `progress` as in `execute`. Under mpirun they are collective.
    docs/how-to/questions.md explains them.

    Parameters
    ----------
    source : path or object
        An OpenQASM or qsim file, a circuit of Qiskit, Cirq, PennyLane (a tape) or quimb, a `GateSequence`, a
        `CircuitProgram` or a `Circuit`.
    parameters : mapping, optional
        Values of parameters by their names, or by Qiskit's or Cirq's parameters. The others stay free: `bind`
        gives them values.

    Raises
    ------
    InputError
        For a file that cannot be read, an object of another kind, and parameters that are not there.

    Examples
    --------
    >>> h = tnplan.Gate("h", (0,), np.array([[1, 1], [1, -1]]) / np.sqrt(2) + 0j)
    >>> circuit = tnplan.Circuit(tnplan.GateSequence(2, (h,)))
    >>> circuit
    Circuit(2 qubits, 1 operation)
    >>> circuit.expectation(["X0", "Z1"], device="cpu").value
    array([1., 1.])
    >>> circuit.expectation(["Z0", "Z1"], state="-1", device="cpu").value
    array([-1., -1.])
    """

    def __init__(self, source: Any, parameters: Mapping[str, Any] | None = None) -> None:
        self._values: dict[str, Any] = {}
        if isinstance(source, Circuit):
            self.take(source)
            self._values.update(source._values)
        else:
            super().__init__(source)
            self._values.update(self.given)
        names = set(self.names)
        # Values given here come last, and so replace those that the source brings.
        for name, value in values_by_name(parameters).items():
            if name not in names:
                remedy = f"choose from {', '.join(self.names)}" if self.names else "leave it out"
                raise InputError(f"parameter {name}", f"is not a parameter of {self.place}", remedy)
            self._values[name] = value
        if self.given.keys() >= names:
            self.program()  # what is wrong with a circuit is said when it is read

    def __repr__(self) -> str:
        if self.parameters:
            more = ", ..." if len(self.parameters) > NAMES_SHOWN else ""
            return f"Circuit({Path(self.place).name}: {', '.join(self.parameters[:NAMES_SHOWN])}{more})"
        program = self._bound
        operations = plural(len(program.operations), "operation", "operations")
        return f"Circuit({plural(program.n_qubits, 'qubit', 'qubits')}, {operations})"

    def _repr_html_(self) -> str:
        facts = [("source", Path(self.place).name), ("free parameters", ", ".join(self.parameters) or "none")]
        if not self.parameters:
            program = self._bound
            facts += [("qubits", str(program.n_qubits)), ("operations", str(len(program.operations)))]
        return html_table("circuit", facts)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that have no value yet."""
        return tuple(name for name in self.names if name not in self._values)

    @property
    def n_qubits(self) -> int:
        """How many qubits there are, all parameters having values."""
        return self._bound.n_qubits

    def bind(self, parameters: Mapping[str, Any] | None = None, /, **values: Any) -> Circuit:
        """The circuit with values of parameters: by keyword, or a mapping where names are no keywords."""
        return Circuit(self, {**values_by_name(parameters), **values})

    def inverse(self) -> Circuit:
        """The circuit backwards: its gates conjugated and transposed, without measurements."""
        return Circuit(inverse(self.gate_sequence()))

    def compose(self, other: Any) -> Circuit:
        """The gates of this circuit, then those of another one, without measurements."""
        return Circuit(composed(self.gate_sequence(), load_circuit(other)))

    def gate_sequence(self, values: Mapping[str, Any] = NO_VALUES) -> GateSequence:
        """The gates, with values for the parameters that are free; refused where there is more than gates."""
        return super().gate_sequence({**self._values, **values})

    def program(self, values: Mapping[str, Any] = NO_VALUES) -> CircuitProgram:
        """All operations, with values for the parameters that are free."""
        return super().program({**self._values, **values}) if values else self._bound

    def amplitudes(
        self, bitstrings: Any = None, *, open_qubits: Sequence[int] | None = None,
        **options: Unpack[QuestionKeywords],
    ) -> CircuitAnswer:  # fmt: skip
        """The amplitudes of bit strings, or of all values of some open qubits.

        Parameters
        ----------
        bitstrings : str, sequence, array or Path, optional
            A bit string, whose character k is qubit k; a list of them; an array of 0 and 1 [string, qubit];
            or a file: a string a line, or .npy. With `open_qubits` one string, "." for open qubits; default:
            0 for the others.
        open_qubits : sequence of int, optional
            The m qubits of which all values are asked for: the value has shape [2] * m in this order.
        **options
            As for every question.
        """
        return self._ask("amplitudes", read_amplitudes(bitstrings, open_qubits), options, bitstrings)

    def sample(
        self, shots: int, *, sampling: str = "auto", open_qubits: int = 0, fidelity: float = 1.0,
        xeb: float | None = None, **options: Unpack[QuestionKeywords],
    ) -> CircuitAnswer:  # fmt: skip
        """How often each outcome comes in so many shots.

        An outcome is the string of the classical bits, or of the qubits where none of them is measured.

        Parameters
        ----------
        shots : int
            How many outcomes.
        sampling : {"auto", "chain", "gates", "rejection"}
            How a contraction draws. "chain": qubits in turn, exact and independent, with noise too.
            "gates": gate by gate, exact and independent, only of gates. "auto": the cheaper of these.
            "rejection": among random candidates, for random circuits.
        open_qubits : int
            For rejection: the number of qubits of each candidate that take all their values. Samples are then
            correlated.
        fidelity : float
            For rejection: the share of the slices that are summed, which is about the fidelity of the state.
        xeb : float, optional
            Take the cheapest way to samples of a deep random circuit whose linear cross-entropy is at least
            that, above 0 and at most 1: a share of the slices, and the likeliest string of each of many
            random bunches. They are independent, and do not follow the circuit's distribution. The answer's
            details have `predicted_xeb`, an estimate, and the precision, which is chosen unless it is "fp32".
        **options
            As for every question; `seed` makes the outcomes the same in every run.
        """
        return self._ask("sample", read_sample(shots, sampling, open_qubits, fidelity, xeb), options)

    def expectation(
        self, observables: Any, *, gradient: bool | Sequence[str] = False,
        after: Sequence[int] | str | None = None, **options: Unpack[QuestionKeywords],
    ) -> CircuitAnswer:  # fmt: skip
        """The expectation value of an observable, or those of a list of them, and their derivatives.

        Parameters
        ----------
        observables : str, PauliSum, SparsePauliOp, QubitOperator, sequence or Path
            A sum of Pauli words, such as "0.5*X0 X1 - Z3"; a list of sums; or a file: a sum a line, or a JSON
            list of sums and of objects {word: coefficient}.
        gradient : bool or sequence of str
            Ask for the derivatives by all parameters, or by those named. The answer's `gradient` has them by
            name: for a list of observables an array with one of each. A truncation stays what it is.
        after : sequence of int or "barriers", optional
            Ask for the values after so many operations, rising numbers from 0; or before each barrier and at
            the end. The answer's `value` has an axis for these in front.
        **options
            As for every question.

        Examples
        --------
        >>> circuit = tnplan.Circuit(tnplan.GateSequence(2, ()))
        >>> circuit.expectation("X0 Z1", state="+1", method="pauli", device="cpu").value
        -1.0
        >>> x = tnplan.Gate("x", (0,), np.array([[0, 1], [1, 0]]))
        >>> flips = tnplan.Circuit(tnplan.GateSequence(1, (x, x)))
        >>> flips.expectation("Z0", after=[0, 1, 2], device="cpu").value
        array([ 1., -1.,  1.])
        >>> limits, plan = tnplan.Truncation(max_terms=9), tnplan.MonteCarlo(repetitions=4)
        >>> circuit.expectation("X0", truncation=limits, monte_carlo=plan, device="cpu")
        CircuitAnswer(expectation 0.0, exact, by pauli)
        """
        question = options_of("expectation", options)
        names = self._gradient_names(gradient)
        return self.answer_expectation(observables, names, question, after)

    def answer_expectation(
        self, observables: Any, names: Sequence[str], options: QuestionOptions,
        after: Sequence[int] | str | None = None,
    ) -> CircuitAnswer:  # fmt: skip
        """The same with options that have been read, and derivatives by parameters of these names."""
        if names:
            answer = gradient_by_list(self, self._values, observables, names, options)
            if answer is not None:
                return answer
        read = read_expectation(observables, names)
        return ask(lambda: self.query(read, options, names, after), options, self.file, observables)

    def peps(
        self, *, start: Any = None, max_bond: int | None = None, cutoff: float | None = None,
        precision: str = "fp64", device: str = "auto", memory: float | str | None = None,
    ) -> QuimbPeps:  # fmt: skip
        """The final state as a PEPS of quimb with its gauges, as `method="peps"` has it.

        Parameters
        ----------
        start : PEPS, TensorNetworkGenVector or tuple, optional
            A state of quimb that the circuit begins with, site k of its `sites` being qubit k; or a pair of
            it and its gauges, such as what this call gives. Without gauges quimb finds them. Default: all 0.
        max_bond, cutoff, precision, device, memory
            As for every question.

        Returns
        -------
        QuimbPeps
            (network, gauges, fidelity_estimate): the state is the product of all tensors, and of the gauges
            on their bonds. Cuts by the simple update make it an estimate.

        Raises
        ------
        InputError
            Where the circuit has more than unitary gates on two qubits, or `start` is no such state.

        Examples
        --------
        >>> h = tnplan.Gate("h", (0,), np.array([[1, 1], [1, -1]]) / np.sqrt(2) + 0j)
        >>> network, gauges, _ = tnplan.Circuit(tnplan.GateSequence(2, (h,))).peps(device="cpu")
        >>> network.site_inds
        ('k0', 'k1')
        """
        options = QuestionOptions.of(
            method="peps", max_bond=max_bond, cutoff=cutoff, precision=precision, device=device,
            memory=memory,
        )  # fmt: skip
        if (missing := why_not_installed()) is not None:
            raise InputError("peps", missing, "install it, or ask for expectation values")
        query = self.query(read_expectation("Z0", ()), options)
        check_method("peps", query, options)
        assert query.gates is not None
        return final_peps(query.n_qubits, query.gates.gates, start, options)

    def compile(
        self, *, expectation: Any, gradient: bool = False, parameters: Sequence[str] | None = None,
        **options: Unpack[QuestionKeywords],
    ) -> CompiledCircuit:  # fmt: skip
        """The question for expectation values, read once and then called with parameters.

        Parameters
        ----------
        expectation : str, PauliSum, SparsePauliOp, QubitOperator, sequence or Path
            The observables, as in `expectation`.
        gradient : bool
            Each call gives the derivatives by its parameters too.
        parameters : sequence of str, optional
            The parameters that calls give values, in this order. Default: those without a value.
        **options
            As for every question.

        Examples
        --------
        >>> circuit = tnplan.Circuit(tnplan.GateSequence(2, ()))
        >>> circuit.compile(expectation=["Z0", "X1"], device="cpu")()
        array([1., 0.])
        """
        return CompiledCircuit(
            self, expectation, gradient=gradient, parameters=parameters,
            options=options_of("compile", options),
        )  # fmt: skip

    def probabilities(
        self, qubits: Sequence[int] | None = None, **options: Unpack[QuestionKeywords]
    ) -> CircuitAnswer:
        """The probability of every value of some qubits, of shape [2] * m in their order.

        Parameters
        ----------
        qubits : sequence of int, optional
            The m qubits. Default: all.
        **options
            As for every question.
        """
        return self._ask("probabilities", read_probabilities(qubits), options)

    def reduced_density_matrix(
        self, qubits: Sequence[int], **options: Unpack[QuestionKeywords]
    ) -> CircuitAnswer:
        """The density matrix of some qubits, complex [2^m, 2^m]; the first qubit is the most significant bit.

        Parameters
        ----------
        qubits : sequence of int
            The m qubits; all others are traced out.
        **options
            As for every question.
        """
        return self._ask("reduced_density_matrix", read_density(qubits), options)

    def overlap(self, other: Any, **options: Unpack[QuestionKeywords]) -> CircuitAnswer:
        """The overlap <other|circuit> of the final states of two circuits.

        Parameters
        ----------
        other : Circuit, path or object
            What `Circuit` takes, on as many qubits.
        **options
            As for every question.
        """
        return self._ask("overlap", read_overlap(other), options, _file_of(other))

    def trace(self, a: Any, b: Any, **options: Unpack[QuestionKeywords]) -> CircuitAnswer:
        """The normalised trace Tr(A U^dagger B U) / 2^n, U being the circuit; or its value in one input.

        With A = B it is an operator Loschmidt echo of U. That of two circuits V and W is the one of the
        circuit `V.inverse().compose(W)`. An out-of-time-order correlator is the one of the circuit U, then a
        word as gates, then U^dagger.

        Parameters
        ----------
        a, b : str, PauliSum or SparsePauliOp
            The sums of Pauli words A and B.
        **options
            As for every question. `state`: <state|A U^dagger B U|state> instead of the mean over all inputs.
        """
        return self._ask("trace", read_trace(a, b), options)

    def estimate(
        self,
        *,
        devices: int | Sequence[int] = 1,
        hardware: Profile | str | Path | None = None,
        search_time: float | None = None,
        **keywords: Any,
    ) -> tnplan.CircuitEstimate:
        """What each method would need for a question, and which one `method="auto"` takes. Nothing runs.

        Parameters
        ----------
        devices : int or sequence of int
            The number of devices, or several.
        hardware : Profile or path, optional
            A shipped profile by name, a TOML file, or a profile. `calibrate` measures one. Default: this
            machine, a GPU where there is one; the rates of a core are measured once.
        search_time : float, optional
            Seconds of the search for each contraction path; a pilot run takes at most as long. Default: a
            share of the predicted time of the contraction, as in the question itself, at most 10 s in all;
            pilot runs take at most 2 s. A remark says where a longer search is worth its time.
        **keywords
            The question, by its name and what is asked: `expectation="Z0"`, `sample=1000`, `overlap=other`,
            `amplitudes=`, `open_qubits=`, `probabilities=`, `reduced_density_matrix=` or `trace=(a, b)`. And
            the options of every question. With `expectation`, `gradient` and `after` as there; with `sample`,
            `sampling`, `open_qubits`, `fidelity` and `xeb`.
        """
        wanted = self._gradient_names(keywords.pop("gradient", False))
        after = keywords.pop("after", None)
        names = [name for name in keywords if name not in QuestionKeywords.__annotations__]
        for option, is_given in (("--gradient", wanted), ("--after", after is not None)):
            if is_given and names != ["expectation"]:
                raise InputError(
                    option, "is for expectation values only", "ask for expectation, or leave it out"
                )
        read = read_named({name: keywords.pop(name) for name in names}, wanted)
        options = QuestionOptions.of(**keywords)
        if options.error is not None:
            problem = "is given, but errors are known only after a run"
            raise InputError("--error", problem, "give --max-bond with --method peps, mpo or mps")
        is_time = search_time is None or (is_number(search_time) and 0 <= search_time <= LONGEST_SEARCH_S)
        if not is_time:
            raise InputError("--search-time", f"is {search_time!r}", "give seconds")
        from tnplan.questions.estimates.estimate import estimate_question

        profile = this_machine(options, measure=True) if hardware is None else known_profile(hardware)
        query = self.query(read, options, wanted, after)
        return estimate_question(query, options, profile, devices, search_time)

    @cached_property
    def _bound(self) -> CircuitProgram:
        return super().program(self._values)

    def _ask(
        self, question: str, read: Reader, keywords: QuestionKeywords, *inputs: object
    ) -> CircuitAnswer:  # fmt: skip
        options = options_of(question, keywords)
        return ask(lambda: self.query(read, options), options, self.file, *inputs)

    def query(
        self, read: Reader, options: QuestionOptions, names: Sequence[str] = (),
        after: Sequence[int] | str | None = None,
    ) -> CircuitQuery:  # fmt: skip
        """The circuit with its noise and with derivatives by parameters of these names, and the question that
        `read` makes for its number of qubits; `after` so many operations, where these are given."""
        bound = varied_program(super().program, self._values, names) if names else self._bound
        numbers = () if after is None else read_after(after, bound, names)
        if numbers:
            bound = replace(bound, operations=bound.operations[: numbers[-1]])
        program = depolarized(bound, options.depolarizing)
        # A program with more than gates and final measurements is no unitary: answers come from
        # channels or trajectories.
        if final_measurements(program) is None:
            gates = None
        else:
            gates = gates_of(program) if names or numbers else self._gates
        start = read_state(options.state, program.n_qubits)
        question, stops = read(program.n_qubits), tuple[int, ...]()
        if numbers:
            assert isinstance(question, ExpectationValues)
            question = replace(question, after=numbers)
            stops = _stops(bound, numbers, options.depolarizing if gates is None else None)
        query = CircuitQuery(program, gates, question, start, stops)
        return query if start is None else prepared(query, start)

    def _gradient_names(self, gradient: bool | Sequence[str]) -> tuple[str, ...]:
        """The parameters by which derivatives are asked for: each has a value."""
        if gradient is False:
            return ()
        is_list = isinstance(gradient, Sequence) and not isinstance(gradient, str)
        names = self.names if gradient is True else tuple(gradient) if is_list else ()
        if not names or len(set(names)) < len(names):
            text = (
                "the circuit has none"
                if gradient is True
                else f"{gradient!r} is not a list of names, each once"
            )
            raise InputError(
                "--gradient", f"is by named parameters, and {text}",
                "name some parameters; tnplan.simulate has derivatives by the angles of gates",
            )  # fmt: skip
        for name in names:
            if name not in self._values:
                known = ", ".join(self._values) or "the parameters that have values"
                problem = "has no value" if name in self.names else f"is not a parameter of {self.place}"
                remedy = "bind a value first" if name in self.names else f"choose from {known}"
                raise InputError(f"parameter {name}", problem, remedy)
        return names

    @cached_property
    def _gates(self) -> GateSequence:
        """The gates alone, each on so few qubits that every engine takes it."""
        gates = gates_of(self._bound)
        is_small = all(len(gate.qubits) <= LARGEST_OF_CIRCUIT for gate in gates.gates)
        return gates if is_small else self.gate_sequence()


def _stops(program: CircuitProgram, after: Sequence[int], depolarizing: float | None) -> tuple[int, ...]:
    """How many operations with their noise come before each stop; None: how many gates."""
    pieces = [
        replace(program, operations=program.operations[begin:end]) for begin, end in pairwise((0, *after))
    ]
    if depolarizing is None:
        return tuple(accumulate(len(gates_of(piece).gates) for piece in pieces))
    return tuple(accumulate(len(depolarized(piece, depolarizing).operations) for piece in pieces))


def _file_of(source: Any) -> Path | None:
    """The file that a circuit was read from, or is."""
    if isinstance(source, ParametricCircuit):
        return source.file
    return Path(source) if isinstance(source, str | Path) else None
