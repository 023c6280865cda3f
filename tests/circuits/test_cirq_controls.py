"""Cirq's classical controls: the distribution of samples is that of Cirq's simulator; the rest is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import tnplan
from tnplan.circuits.program import BitAssignment, Conditional
from tnplan.common.errors import InputError

cirq = pytest.importorskip("cirq")
sympy = pytest.importorskip("sympy")

SHOTS = 4000


def cirq_counts(circuit: Any, seed: int) -> Counter[str]:
    """How often Cirq has each string of the bits of all measurements, in their order."""
    # Deferred by Cirq: its simulator runs a circuit with controls anew for each shot, in 10 ms.
    deferred = cirq.defer_measurements(circuit)
    records = cirq.Simulator(seed=seed).run(deferred, repetitions=SHOTS).records
    order: list[Any] = [
        cirq.measurement_key_name(one) for one in circuit.all_operations() if cirq.is_measurement(one)
    ]
    columns, seen = [], Counter[str]()
    for key in order:
        columns.append(records[key][:, seen[key], :])
        seen[key] += 1
    rows = np.concatenate(columns, axis=1)
    return Counter("".join(map(str, row)) for row in rows.astype(int))


def check_same_distribution(circuit: Any, seed: int = 5) -> None:
    """Two samples of one size are of one distribution: Pearson's statistic lies within 5 deviations."""
    ours = tnplan.simulate(circuit, shots=SHOTS, seed=seed, device="cpu", threads=1).answer.counts
    theirs = cirq_counts(circuit, seed)
    words = {*ours, *theirs}
    # Rare strings are counted together: Pearson's statistic needs some of each.
    pairs = [(ours.get(word, 0), theirs.get(word, 0)) for word in words]
    common = [pair for pair in pairs if sum(pair) >= 10]
    rare = [pair for pair in pairs if sum(pair) < 10]
    common.append((sum(a for a, _ in rare), sum(b for _, b in rare)))
    statistic = sum((a - b) ** 2 / (a + b) for a, b in common if a + b)
    freedom = max(len(common) - 1, 1)
    assert statistic < freedom + 5 * np.sqrt(2 * freedom) + 5


def test_teleportation() -> None:
    a, b, c = cirq.LineQubit.range(3)
    circuit = cirq.Circuit(
        cirq.ry(0.7)(a), cirq.rz(0.3)(a), cirq.H(b), cirq.CNOT(b, c), cirq.CNOT(a, b), cirq.H(a),
        cirq.measure(a, key="m0"), cirq.measure(b, key="m1"), cirq.X(c).with_classical_controls("m1"),
        cirq.Z(c).with_classical_controls("m0"), cirq.rz(-0.3)(c), cirq.ry(-0.7)(c),
        cirq.measure(c, key="out"),
    )  # fmt: skip
    kinds = [one for one in tnplan.load_program(circuit).operations if isinstance(one, Conditional)]
    # Cirq puts the measurement of b into an earlier moment than that of a: m1 is bit 0.
    assert [(one.bits, one.value) for one in kinds] == [((0,), 1), ((1,), 1)]
    counts = tnplan.simulate(circuit, shots=500, device="cpu", threads=1).answer.counts
    assert {word[2] for word in counts} == {"0"}
    assert not cirq.Simulator(seed=1).run(circuit, repetitions=20).measurements["out"].any()
    check_same_distribution(circuit)


def conditions() -> list[tuple[str, Any]]:
    """Controls on a measurement m of three qubits and k of one."""
    m, k = sympy.symbols("m k")
    digits = sympy.IndexedBase("m")
    mask = cirq.BitMaskKeyCondition
    return [
        ("key", "m"), ("equal", sympy.Eq(m, 5)), ("less", m < 3), ("two", sympy.Eq(m, 2 * k + 1)),
        ("or", sympy.Or(sympy.Eq(m, 1), sympy.Eq(k, 1))), ("digits", sympy.Xor(digits[0], digits[2])),
        ("mask", mask("m", bitmask=6, target_value=4, equal_target=True)),
        ("first", cirq.KeyCondition(cirq.MeasurementKey("k"), 0)), ("always", m < 8),
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(len(conditions())), ids=[name for name, _ in conditions()])
def test_conditions_of_each_kind(number: int) -> None:
    condition = conditions()[number][1]
    a, b, c, d, e = cirq.LineQubit.range(5)
    circuit = cirq.Circuit(
        cirq.ry(1.1)(a), cirq.ry(2.0)(b), cirq.ry(0.6)(c), cirq.H(d), cirq.measure(a, b, c, key="m"),
        cirq.measure(d, key="k"), cirq.H(d), cirq.measure(d, key="k"),
        cirq.ry(2.2)(e).with_classical_controls(condition),
        cirq.CNOT(e, a).with_classical_controls(condition, "k"),
        cirq.measure(e, a, key="r", invert_mask=(True,)),
    )  # fmt: skip
    check_same_distribution(circuit)


@pytest.mark.parametrize("seed", range(6))
def test_random_circuits_with_controls(seed: int) -> None:
    random = np.random.default_rng(seed)
    qubits = cirq.LineQubit.range(4)
    circuit, keys = cirq.Circuit(), []
    for layer in range(5):
        circuit += cirq.testing.random_circuit(qubits, 2, 0.8, random_state=int(random.integers(1000)))
        on = [qubits[k] for k in random.permutation(4)[: random.integers(1, 3)]]
        key = f"m{layer % 3}" if len(on) == 1 else f"p{layer}"
        mask = tuple(bool(one) for one in random.integers(0, 2, len(on)))
        circuit += cirq.measure(*on, key=key, invert_mask=mask)
        keys.append(sympy.Symbol(key))
        one, other = (keys[k] for k in random.integers(0, len(keys), 2))
        control = [one, sympy.Eq(one, other), one + other > 1, sympy.Eq(other, 0)][random.integers(4)]
        gates = [cirq.X(qubits[0]), cirq.ISWAP(*qubits[1:3]), cirq.ry(0.8)(qubits[3]), cirq.H(qubits[2])]
        chosen = [gates[k] for k in random.permutation(4)[:2]]
        if random.random() < 0.5:
            inner = cirq.FrozenCircuit(chosen)
            chosen = [cirq.CircuitOperation(inner, repetitions=int(random.integers(1, 3)))]
        for gate in chosen:
            circuit += gate.with_classical_controls(str(control) if control.is_Symbol else control)
    circuit += cirq.measure(*qubits, key="end")
    check_same_distribution(circuit, seed)


def test_subcircuits_and_pauli_measurements_are_what_is_in_them() -> None:
    a, b = cirq.LineQubit.range(2)
    inner = cirq.FrozenCircuit(cirq.X(a), cirq.H(b), cirq.measure(a, key="m"))
    circuit = cirq.Circuit(cirq.CircuitOperation(inner), cirq.measure(b, key="n"))
    counts = tnplan.simulate(circuit, shots=200, device="cpu", threads=1).answer.counts
    assert {word[0] for word in counts} == {"1"}
    bell = cirq.Circuit(
        cirq.H(a), cirq.CNOT(a, b), cirq.measure_single_paulistring(cirq.X(a) * cirq.X(b), key="x"),
        cirq.measure_single_paulistring(-cirq.Z(a) * cirq.Z(b), key="z"),
    )  # fmt: skip
    assert tnplan.simulate(bell, shots=100, device="cpu", threads=1).answer.counts == {"01": 100}


def test_conditions_on_many_bits() -> None:
    qubits = cirq.LineQubit.range(14)
    measured = [cirq.X(qubits[3]), cirq.measure(*qubits[:13], key="m")]
    read = tnplan.load_program(cirq.Circuit(*measured, cirq.X(qubits[13]).with_classical_controls("m")))
    (last,) = read.operations[-1:]
    assert isinstance(last, Conditional)
    assert (last.bits, last.value, len(last.otherwise)) == (tuple(range(13)), 0, 1)
    control = sympy.Symbol("m") < 5
    with pytest.raises(InputError, match=r"^Cirq circuit: operation 14: depends on 13 measured bits; let"):
        tnplan.load_program(cirq.Circuit(*measured, cirq.X(qubits[13]).with_classical_controls(control)))


def test_a_condition_without_one_value_has_a_bit_of_its_own() -> None:
    a, b = cirq.LineQubit.range(2)
    control = sympy.Symbol("m") > 1
    circuit = cirq.Circuit(
        cirq.measure(a, b, key="m"), cirq.X(a).with_classical_controls(control), cirq.measure(a, key="n")
    )
    program = tnplan.load_program(circuit)
    assert (program.n_bits, program.n_scratch) == (4, 1)
    assert BitAssignment(3, (0, 1), (False, True, False, True)) in program.operations
    never = cirq.Circuit(
        cirq.measure(a, b, key="m"), cirq.X(a).with_classical_controls(sympy.Eq(sympy.Symbol("m"), 4))
    )
    assert len(tnplan.load_program(never).operations) == 2


def test_what_cannot_be_read_is_refused_in_one_line() -> None:
    a, b = cirq.LineQubit.range(2)
    flip = cirq.KrausChannel([np.eye(2) * np.sqrt(0.5), np.array([[0, 1], [1, 0]]) * np.sqrt(0.5)], key="f")
    loop = cirq.CircuitOperation(
        cirq.FrozenCircuit(cirq.H(a), cirq.measure(a, key="m")), use_repetition_ids=False,
        repeat_until=cirq.KeyCondition(cirq.MeasurementKey("m")),
    )  # fmt: skip
    wide = cirq.KrausChannel([np.eye(16)])
    for operations, message in (
        ([cirq.X(b).with_classical_controls("m")], "operation 0: depends on 'm', which is not measured"),
        ([cirq.measure(a, key="m", confusion_map={(0,): np.array([[0.9, 0.1], [0.1, 0.9]])})],
         "operation 0: has a confusion_map; measure without it"),
        ([flip(a)], r"operation 0: \(KrausChannel\) records which of its operators acts; leave its key out"),
        ([loop, cirq.measure(b)], "has a subcircuit without a number of repetitions; write a while loop of"),
        ([cirq.IdentityGate(1, (3,))(cirq.LineQid(0, 3))], "has qudits"),
        ([wide(*cirq.LineQubit.range(4))], r"operation 0: \(KrausChannel\) has no matrix; define it by"),
        ([cirq.measure(a, key="m"), cirq.X(b).with_classical_controls(sympy.IndexedBase("m")[3])],
         r"operation 1: has the condition .*; compare measurements with numbers"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=rf"^Cirq circuit: {message}") as refused:
            tnplan.load_program(cirq.Circuit(operations))
        assert "\n" not in str(refused.value)
