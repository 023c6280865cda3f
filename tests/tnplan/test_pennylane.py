"""The PennyLane device against `default.qubit` and `default.mixed`: every measurement, gradients, samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

qml = pytest.importorskip("pennylane")

from pennylane import numpy as pnp  # noqa: E402

import tnplan  # noqa: E402
from tnplan.common.errors import InputError  # noqa: E402
from tnplan.pennylane import TnplanDevice  # noqa: E402

CPU: Any = {"device": "cpu", "threads": 1}
pytestmark = pytest.mark.filterwarnings(
    "ignore::numpy.exceptions.ComplexWarning", "ignore:jax.core.concrete_or_error:DeprecationWarning"
)
"""Backpropagation in PennyLane casts complex numbers, and PennyLane uses old names of JAX."""
METHODS = ("statevector", "contraction", "pauli")
ANGLES = pnp.array([0.3, -0.7, 1.1, 2.3, 0.9, -1.9], requires_grad=True)


def layers(angles: Any) -> None:
    """Four wires, with rotations, a gate of several angles, and gates with other generators."""
    qml.Hadamard(0)
    qml.RX(angles[0], wires=1)
    qml.CNOT(wires=[0, 1])
    qml.Rot(angles[1], angles[2] ** 2, angles[0], wires=2)
    qml.IsingXY(angles[3], wires=[1, 2])
    qml.ControlledPhaseShift(angles[4], wires=[2, 3])
    qml.DoubleExcitation(2 * angles[5], wires=[0, 1, 2, 3])
    qml.RY(angles[4], wires=3)
    qml.GlobalPhase(angles[1])


def observables() -> list[Any]:
    """A word, sums, and observables that are matrices."""
    hermitian = np.array([[1.0, 0.5 - 0.2j], [0.5 + 0.2j, -0.3]])
    with qml.QueuingManager.stop_recording():
        return [
            qml.Z(0) @ qml.Y(2), 0.5 * qml.X(1) - 1.5 * qml.Z(3) @ qml.Z(2) + qml.I(0),
            qml.Hermitian(hermitian, wires=3), qml.Projector([1, 0], wires=[0, 2]), qml.Hadamard(1),
        ]  # fmt: skip


def node(device: Any, measure: Callable[[], Any], **options: Any) -> Any:
    """A quantum function of `layers` on a device."""

    def function(angles: Any) -> Any:
        layers(angles)
        return measure()

    return qml.QNode(function, device, **options)


def both(measure: Callable[[], Any], **options: Any) -> tuple[Any, Any]:
    """The values on `default.qubit` and here."""
    devices = qml.device("default.qubit", wires=4), TnplanDevice(wires=4, **options, **CPU)
    expected, found = (node(device, measure)(ANGLES) for device in devices)
    return expected, found


def flat(values: Any) -> np.ndarray:
    """All numbers of a result in one row."""
    return np.concatenate([np.ravel(one) for one in (values if isinstance(values, tuple) else (values,))])


@pytest.mark.parametrize("method", METHODS)
def test_expectation_values_and_variances_equal_those_of_pennylane(method: str) -> None:
    exact, ours = both(lambda: tuple(qml.expval(one) for one in observables()), method=method)
    np.testing.assert_allclose(flat(ours), flat(exact), rtol=0, atol=1e-10)
    exact, ours = both(lambda: tuple(qml.var(one) for one in observables()), method=method)
    np.testing.assert_allclose(flat(ours), flat(exact), rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_tables_and_states_equal_those_of_pennylane(method: str) -> None:
    measures: list[Callable[[], Any]] = [
        lambda: qml.probs(wires=[2, 0]), lambda: qml.probs(op=qml.X(0) @ qml.Y(3)), qml.probs,
        lambda: qml.density_matrix([3, 1]), lambda: qml.purity([0, 2]), lambda: qml.vn_entropy([1]),
        lambda: qml.mutual_info([0], [2]),
    ]  # fmt: skip
    for measure in measures:
        exact, ours = both(measure, method=method)
        assert np.shape(ours) == np.shape(exact)
        np.testing.assert_allclose(flat(ours), flat(exact), rtol=0, atol=1e-10)
    if method != "pauli":
        exact, ours = both(qml.state, method=method)
        np.testing.assert_allclose(ours, exact, rtol=0, atol=1e-10)


@pytest.mark.parametrize("diff_method", ["best", "device", "adjoint", "parameter-shift"])
@pytest.mark.parametrize("count", [1, 3])
def test_gradients_equal_those_of_backpropagation(diff_method: str, count: int) -> None:
    def measure() -> Any:
        return [qml.expval(one) for one in observables()[:count]]

    def vector(given: Any) -> Callable[[Any], Any]:
        return lambda angles: pnp.stack(given(angles)) if count > 1 else given(angles)[0]

    exact = node(qml.device("default.qubit", wires=4), measure, diff_method="backprop")
    expected = qml.jacobian(vector(exact))(ANGLES)
    device = TnplanDevice(wires=4, **CPU)
    ours = node(device, measure, diff_method=diff_method)
    with qml.Tracker(device) as tracker:
        found = qml.jacobian(vector(ours))(ANGLES)
    assert ("derivatives" in tracker.totals or "execute_and_derivative_batches" in tracker.totals) is (
        diff_method != "parameter-shift"
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_gradients(method: str) -> None:
    def energy(angles: Any) -> Any:
        for wire, angle in enumerate(angles):
            qml.RY(angle, wires=wire)
            qml.IsingZZ(angle / 2, wires=[wire, (wire + 1) % 3])
            qml.PhaseShift(angles[0], wires=wire)
        return qml.expval(qml.X(0) @ qml.X(1) - qml.Z(2))

    at = pnp.array([0.2, 1.3, -0.8], requires_grad=True)
    expected = qml.grad(qml.QNode(energy, qml.device("default.qubit")))(at)
    found = qml.grad(qml.QNode(energy, TnplanDevice(method=method, **CPU)))(at)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


def test_trainable_coefficients_are_left_to_parameter_shifts() -> None:
    def energy(angle: Any, factor: Any) -> Any:
        qml.RY(angle, wires=0)
        return qml.expval(qml.Hamiltonian([factor, 0.5], [qml.X(0), qml.Z(0)]))

    at = pnp.array(0.4, requires_grad=True), pnp.array(1.7, requires_grad=True)
    expected = qml.grad(qml.QNode(energy, qml.device("default.qubit", wires=1)))(*at)
    found = qml.grad(qml.QNode(energy, TnplanDevice(wires=1, **CPU)))(*at)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("interface", ["torch", "jax"])
def test_other_interfaces_differentiate(interface: str) -> None:
    ours = node(TnplanDevice(wires=4, **CPU), lambda: qml.expval(observables()[1]), interface=interface)
    exact = node(qml.device("default.qubit", wires=4), lambda: qml.expval(observables()[1]))
    expected = qml.grad(exact)(ANGLES)
    if interface == "torch":
        torch = pytest.importorskip("torch")
        angles = torch.tensor(np.array(ANGLES), requires_grad=True)
        ours(angles).backward()
        np.testing.assert_allclose(angles.grad.numpy(), expected, rtol=0, atol=1e-10)
    else:
        jax = pytest.importorskip("jax")
        with jax.enable_x64(True):
            found = jax.grad(ours)(jax.numpy.array(ANGLES))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def angles_and_hessian() -> tuple[np.ndarray, np.ndarray]:
    """Two angles, and the second derivatives of `squares` at these by backpropagation."""
    at = pnp.array([0.3, 0.7], requires_grad=True)
    exact = qml.QNode(squares, qml.device("default.qubit", wires=2), diff_method="backprop")
    return at, qml.jacobian(qml.grad(exact))(at)


def squares(angles: Any) -> Any:
    """A value with second derivatives that come from angles and from what is computed of these."""
    qml.RX(angles[0], wires=0)
    qml.RY(angles[1] * angles[0], wires=1)
    qml.CNOT(wires=[0, 1])
    qml.RX(angles[1] ** 2, wires=1)
    return qml.expval(qml.Z(0) @ qml.Z(1))


@pytest.mark.parametrize("diff_method", ["best", "parameter-shift"])
def test_second_derivatives_come_with_max_diff(diff_method: str) -> None:
    at, expected = angles_and_hessian()
    ours = qml.QNode(squares, TnplanDevice(wires=2, **CPU), diff_method=diff_method, max_diff=2)
    np.testing.assert_allclose(qml.jacobian(qml.grad(ours))(at), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("diff_method", ["best", "device", "adjoint", "parameter-shift"])
def test_second_derivatives_are_refused_without_max_diff(diff_method: str) -> None:
    at, _ = angles_and_hessian()
    ours = qml.QNode(squares, TnplanDevice(wires=2, **CPU), diff_method=diff_method)
    with pytest.raises(qml.exceptions.DeviceError, match="a derivative of order 2 is asked for"):
        qml.jacobian(qml.grad(ours))(at)


@pytest.mark.parametrize("diff_method", ["device", "adjoint"])
def test_an_engine_has_first_derivatives_alone(diff_method: str) -> None:
    at, _ = angles_and_hessian()
    ours = qml.QNode(squares, TnplanDevice(wires=2, **CPU), diff_method=diff_method, max_diff=2)
    with pytest.raises(qml.exceptions.QuantumFunctionError, match="does not support"):
        qml.grad(ours)(at)


@pytest.mark.parametrize("interface", ["torch", "jax"])
@pytest.mark.parametrize("grad_on_execution", [False, True])
def test_second_derivatives_in_other_interfaces(interface: str, grad_on_execution: bool) -> None:
    at, expected = angles_and_hessian()

    def ours(max_diff: int) -> Any:
        device = TnplanDevice(wires=2, **CPU)
        return qml.QNode(
            squares, device, interface=interface, grad_on_execution=grad_on_execution, max_diff=max_diff
        )

    if interface == "torch":
        torch = pytest.importorskip("torch")
        hessian, angles = torch.autograd.functional.hessian, torch.tensor(np.array(at))
        if not grad_on_execution:  # PennyLane has no parameter shifts then
            found = hessian(ours(2), angles)
            np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-10)
        with pytest.raises(qml.exceptions.DeviceError, match="order 2"):
            hessian(ours(1), angles)
    else:
        jax = pytest.importorskip("jax")
        with jax.enable_x64(True):
            for second in (jax.hessian, lambda f: jax.jacrev(jax.jacrev(f))):
                with pytest.raises(qml.exceptions.DeviceError, match="order 2"):
                    second(ours(1))(jax.numpy.array(at))


def test_samples_follow_the_probabilities() -> None:
    from scipy.stats import chisquare

    shots = 20_000
    device = TnplanDevice(wires=4, seed=3, **CPU)
    exact = node(qml.device("default.qubit", wires=4), lambda: qml.probs(wires=[3, 1]))(ANGLES)
    rows = qml.set_shots(node(device, lambda: qml.sample(wires=[3, 1])), shots)(ANGLES)
    assert rows.shape == (shots, 2)
    counted = np.bincount(rows @ [2, 1], minlength=4)
    assert chisquare(counted, exact * shots).pvalue > 1e-3
    counts = qml.set_shots(node(device, lambda: qml.counts(wires=[3, 1])), shots)(ANGLES)
    assert chisquare([counts[f"{k:02b}"] for k in range(4)], exact * shots).pvalue > 1e-3

    def values() -> Any:
        words = [qml.X(0), qml.X(0) @ qml.X(1), qml.X(1) @ qml.X(2)]
        means = [qml.expval(one) for one in [*observables(), *words]]
        return [*means, qml.var(qml.X(2)), qml.probs(wires=[0])]

    expected = flat(tuple(node(qml.device("default.qubit", wires=4), values)(ANGLES)))
    found = flat(tuple(qml.set_shots(node(device, values), shots)(ANGLES)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=5 * 2.5 / np.sqrt(shots))
    one, two = qml.set_shots(node(device, lambda: qml.expval(qml.Z(0))), (7, 5))(ANGLES)
    assert (7 * one - 7) % 2 == pytest.approx(0)
    assert (5 * two - 5) % 2 == pytest.approx(0)
    again = [TnplanDevice(wires=4, seed=8, **CPU) for _ in range(2)]
    first, second = (qml.set_shots(node(each, qml.sample), 30)(ANGLES) for each in again)
    np.testing.assert_array_equal(first, second)


def test_a_seed_gives_new_samples_in_every_call() -> None:
    drawn = qml.set_shots(node(TnplanDevice(wires=4, seed=8, **CPU), qml.sample), 30)
    assert not np.array_equal(drawn(ANGLES), drawn(ANGLES))


def test_wires_have_any_labels_in_the_order_of_the_device() -> None:
    def function() -> Any:
        qml.RY(0.3, wires="b")
        qml.CNOT(wires=["b", "a"])
        qml.RX(0.4, wires=7)
        return qml.state(), qml.probs(wires=[7, "b"]), qml.expval(qml.Z("a") @ qml.Z(7))

    for wires in (["a", 7, "b", "idle"], [7, "b", "a"]):
        expected = qml.QNode(function, qml.device("default.qubit", wires=wires))()
        found = qml.QNode(function, TnplanDevice(wires=wires, **CPU))()
        np.testing.assert_allclose(flat(tuple(found)), flat(tuple(expected)), rtol=0, atol=1e-12)


def test_lists_of_angles_measurements_on_the_way_and_prepared_states() -> None:
    def function(angles: Any) -> Any:
        qml.StatePrep(np.array([0.6, 0, 0, 0.8j]), wires=[0, 1])
        qml.RY(angles, wires=0)
        bit = qml.measure(0)
        qml.cond(bit, qml.RX)(0.4, wires=1)
        return qml.expval(qml.Y(1)), qml.probs(wires=[1])

    at = np.array([0.1, 0.7, 2.0])
    expected = qml.QNode(function, qml.device("default.qubit"))(at)
    found = qml.QNode(function, TnplanDevice(**CPU))(at)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)


def test_noise_equals_that_of_density_matrices() -> None:
    def function() -> Any:
        qml.RY(0.7, wires=0)
        qml.CNOT(wires=[0, 1])
        qml.AmplitudeDamping(0.2, wires=0)
        qml.DepolarizingChannel(0.1, wires=1)
        return qml.expval(qml.Z(0) @ qml.Z(1)), qml.probs(wires=[1, 0])

    expected = qml.QNode(function, qml.device("default.mixed", wires=2))()
    for method in ("contraction", "pauli"):
        found = qml.QNode(function, TnplanDevice(wires=2, method=method, **CPU))()
        np.testing.assert_allclose(flat(tuple(found)), flat(tuple(expected)), rtol=0, atol=1e-10)


def test_the_plugin_is_known_by_its_name() -> None:
    device = qml.device("tnplan", wires=2, method="contraction")
    assert isinstance(device, TnplanDevice)
    assert device.options == {"method": "contraction"}


def test_an_input_state_and_repetitions_are_options_of_the_device() -> None:
    def value(**options: Any) -> float:
        return float(node(TnplanDevice(4, **options, **CPU), lambda: qml.expval(qml.Z(0) @ qml.Y(2)))(ANGLES))

    def prepared(angles: Any) -> Any:
        qml.Hadamard(0)
        qml.X(1)
        layers(angles)
        return qml.expval(qml.Z(0) @ qml.Y(2))

    expected = float(qml.QNode(prepared, qml.device("default.qubit", wires=4))(ANGLES))
    for method in METHODS:
        assert value(state="+100", method=method) == pytest.approx(expected, abs=1e-9)
    limits = tnplan.Truncation(max_terms=500)
    plan = tnplan.MonteCarlo(repetitions=4)
    assert value(state="+100", truncation=limits, monte_carlo=plan) == pytest.approx(expected, abs=1e-9)


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(InputError, match="bond: is not an option of this device"):
        TnplanDevice(wires=1, bond=4)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="method"):
        TnplanDevice(wires=1, method="guess")
    with pytest.raises(qml.exceptions.DeviceError, match=r"shadow.* not accepted"):
        qml.set_shots(node(TnplanDevice(wires=4), lambda: qml.classical_shadow(wires=[0])), 10)(ANGLES)
    with pytest.raises(qml.exceptions.DeviceError, match="not accepted"):
        node(TnplanDevice(wires=7), lambda: qml.var(qml.Hermitian(np.eye(128), wires=range(7))))(ANGLES)
    with pytest.raises(qml.exceptions.WireError, match="not found on the device"):
        node(TnplanDevice(wires=2), qml.state)(ANGLES)
    with pytest.raises(InputError, match="does not answer amplitudes"):
        node(TnplanDevice(wires=4, method="pauli", **CPU), qml.state)(ANGLES)


def test_tapes_have_gradients_and_values_of_their_parameters() -> None:
    def tape(first: float, second: float) -> Any:
        operations = [qml.RX(first, 0), qml.CNOT([0, 1]), qml.IsingXY(second, [0, 1]), qml.Rot(1, 2, 3, 1)]
        found = qml.tape.QuantumScript(operations, [qml.expval(qml.Z(0))])
        found.trainable_params = [0, 1]
        return found

    circuit = tnplan.Circuit(tape(0.3, 0.9))
    assert (circuit.names, circuit.parameters) == (("p0", "p1"), ())
    moved = circuit.bind(p1=0.2).expectation("Z0", **CPU).value
    assert moved == pytest.approx(tnplan.Circuit(tape(0.3, 0.2)).expectation("Z0", **CPU).value, abs=1e-12)
    found = circuit.expectation("Z0", gradient=True, **CPU).gradient
    step = 1e-5
    for name, angles in (("p0", (step, 0)), ("p1", (0, step))):
        up, down = (
            tnplan.Circuit(tape(0.3 + sign * angles[0], 0.9 + sign * angles[1])).expectation("Z0", **CPU)
            for sign in (1, -1)
        )
        assert found is not None
        assert found[name] == pytest.approx((up.value - down.value) / (2 * step), abs=1e-9)
    rot = tape(0.3, 0.9)
    rot.trainable_params = [3]
    with pytest.raises(InputError, match=r"\(Rot\) has parameters by which derivatives are not known"):
        tnplan.Circuit(rot).expectation("Z0", gradient=True, **CPU)
