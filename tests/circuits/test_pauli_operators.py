"""Sums of Pauli words to and from other libraries, dictionaries and files; fermions against Fock space."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tnplan import InputError, PauliSum
from tnplan.circuits.libraries.pauli_operators import jordan_wigner

SIZES = [1, 3, 6, 64, 70]


def random_sum(seed: int, n_qubits: int, *, is_complex: bool = False) -> PauliSum:
    """12 words or fewer of any letters; the first and the last qubit are used."""
    random = np.random.default_rng(seed)
    words = {"".join(random.choice(list("IXYZ"), n_qubits)) for _ in range(10)}
    words |= {"X" + "I" * (n_qubits - 1), "I" * (n_qubits - 1) + "Y"}
    values = random.normal(size=(len(words), 2)) @ [1, 1j if is_complex else 0]
    return PauliSum.of(dict(zip(sorted(words), values.tolist(), strict=True)))


def reordered(matrix: np.ndarray) -> np.ndarray:
    """A matrix whose first qubit is the least significant bit as one whose first qubit is the most."""
    n = len(matrix).bit_length() - 1
    axes = [*range(n)][::-1]
    return matrix.reshape([2] * (2 * n)).transpose([*axes, *(n + q for q in axes)]).reshape(matrix.shape)


@pytest.mark.parametrize("n_qubits", SIZES)
@pytest.mark.parametrize("is_complex", [False, True])
def test_qiskit(n_qubits: int, is_complex: bool) -> None:
    pytest.importorskip("qiskit")
    from qiskit.quantum_info import Pauli, SparsePauliOp

    ours = random_sum(1, n_qubits, is_complex=is_complex)
    theirs = ours.to_qiskit()
    assert isinstance(theirs, SparsePauliOp)
    assert theirs.num_qubits == n_qubits
    assert PauliSum.of(theirs) == ours
    assert PauliSum.of(theirs @ theirs) == PauliSum.of(theirs @ theirs, n_qubits)
    assert (PauliSum.of((theirs @ theirs).simplify()) - ours @ ours).norm() < 1e-12
    if n_qubits <= 6:
        np.testing.assert_allclose(reordered(theirs.to_matrix()), ours.to_matrix(), rtol=0, atol=1e-13)
    assert PauliSum.of(Pauli("-iXYZ")).to_dict() == {"Z0 Y1 X2": -1j}
    nothing = (ours - ours).to_qiskit()
    assert nothing.num_qubits == n_qubits
    assert PauliSum.of(nothing) == ours - ours


@pytest.mark.parametrize("n_qubits", SIZES)
def test_pennylane(n_qubits: int) -> None:
    qml = pytest.importorskip("pennylane")
    ours = random_sum(2, n_qubits)
    theirs = ours.to_pennylane()
    assert PauliSum.of(theirs) == PauliSum.of(theirs.pauli_rep) == ours
    if n_qubits <= 6:
        np.testing.assert_allclose(qml.matrix(theirs, range(n_qubits)), ours.to_matrix(), rtol=0, atol=1e-13)
    wires = [f"w{q}" for q in range(n_qubits)]
    named = ours.to_pennylane(wires)
    assert set(named.wires) <= set(wires)
    assert PauliSum.of(named, qubits=wires) == ours
    assert PauliSum.of((ours - ours).to_pennylane(), n_qubits) == ours - ours
    assert PauliSum.of(2 * qml.X(0) @ qml.Z(2) - qml.Y(1)) == PauliSum.of("2 X0 Z2 - Y1")
    assert PauliSum.of(qml.pauli.PauliWord({0: "X"}), 2) == PauliSum.of("X0", 2)
    with pytest.raises(InputError, match="'w0'; list all its qubits in"):
        PauliSum.of(named)
    with pytest.raises(InputError, match="RX is not a sum of Pauli words"):
        PauliSum.of(qml.RX(0.1, 0))


@pytest.mark.parametrize("n_qubits", SIZES)
@pytest.mark.parametrize("is_complex", [False, True])
def test_cirq(n_qubits: int, is_complex: bool) -> None:
    cirq = pytest.importorskip("cirq")
    ours = random_sum(3, n_qubits, is_complex=is_complex)
    theirs = ours.to_cirq()
    assert PauliSum.of(theirs) == ours
    if n_qubits <= 6:
        matrix = theirs.matrix(cirq.LineQubit.range(n_qubits))
        np.testing.assert_allclose(matrix, ours.to_matrix(), rtol=0, atol=1e-13)
    grid = [cirq.GridQubit(q, 0) for q in range(n_qubits)][::-1]
    assert PauliSum.of(ours.to_cirq(grid), qubits=grid) == ours
    assert PauliSum.of((ours - ours).to_cirq(), n_qubits) == ours - ours
    a, b = cirq.LineQubit.range(2)
    assert PauliSum.of(-2 * cirq.X(a) * cirq.Y(b)) == PauliSum.of("-2 X0 Y1")
    assert PauliSum.of(cirq.Z(b)) == PauliSum.of("Z1")
    with pytest.raises(InputError, match="list all its qubits in"):
        PauliSum.of(cirq.X(grid[0]))
    with pytest.raises(InputError, match="give a text such as"):
        PauliSum.of(cirq.H(a))
    with pytest.raises(InputError, match="are 1, and the sum has 2; name 2 qubits, each once"):
        PauliSum.of("X0 X1").to_cirq([a, a])


@pytest.mark.parametrize("n_qubits", SIZES)
@pytest.mark.parametrize("is_complex", [False, True])
def test_qubits_of_openfermion(n_qubits: int, is_complex: bool) -> None:
    openfermion = pytest.importorskip("openfermion")
    ours = random_sum(4, n_qubits, is_complex=is_complex)
    theirs = ours.to_openfermion()
    assert PauliSum.of(theirs) == ours
    if n_qubits <= 6:
        matrix = openfermion.get_sparse_operator(theirs, n_qubits).toarray()
        np.testing.assert_allclose(matrix, ours.to_matrix(), rtol=0, atol=1e-13)
        back = openfermion.reverse_jordan_wigner(theirs, n_qubits)
        assert (PauliSum.of(back, n_qubits) - ours).norm() < 1e-12
    assert PauliSum.of((ours - ours).to_openfermion(), n_qubits) == ours - ours


def test_fermions_of_openfermion() -> None:
    openfermion = pytest.importorskip("openfermion")
    chain = openfermion.fermi_hubbard(2, 2, 1.0, 4.0, chemical_potential=0.5)
    theirs = PauliSum.of(openfermion.jordan_wigner(chain))
    ours = PauliSum.of(chain)
    assert (ours.n_qubits, theirs.n_qubits) == (8, 8)
    assert (ours - theirs).norm() < 1e-12
    majorana = openfermion.get_majorana_operator(chain)
    assert (PauliSum.of(majorana) - theirs).norm() < 1e-12
    with pytest.raises(InputError, match="get_fermion_operator"):
        PauliSum.of(openfermion.InteractionOperator(0, np.zeros((2, 2)), np.zeros((2,) * 4)))


Ladders = dict[tuple[tuple[int, int], ...], complex]


def fock_matrix(terms: Ladders, n_modes: int) -> np.ndarray:
    """The matrix in Fock space, from how ladder operators act on occupations; mode 0 is the largest bit."""
    matrix = np.zeros((2**n_modes, 2**n_modes), complex)
    for word, value in terms.items():
        for number, occupied in enumerate(product((0, 1), repeat=n_modes)):
            state, sign = list(occupied), 1
            for mode, creates in reversed(word):
                sign *= 0 if state[mode] == creates else (-1) ** sum(state[:mode])
                state[mode] = creates
            matrix[int("".join(map(str, state)), 2), number] += sign * value
    return matrix


def hubbard(n_sites: int, hopping: float, repulsion: float) -> Ladders:
    """An open chain; mode 2 k + s is site k with spin s."""
    terms: Ladders = {}
    for k in range(n_sites - 1):
        for p, q in ((2 * k + s, 2 * k + 2 + s) for s in (0, 1)):
            terms |= {((p, 1), (q, 0)): -hopping, ((q, 1), (p, 0)): -hopping}
    for k in range(0, 2 * n_sites, 2):
        terms[(k, 1), (k, 0), (k + 1, 1), (k + 1, 0)] = repulsion
    return terms


def molecule(one: np.ndarray, two: np.ndarray, core: float) -> Ladders:
    """The Hamiltonian of orbitals with integrals h_pq and (pq|rs); mode 2 p + s is orbital p with spin s."""
    terms: Ladders = {(): core}
    n = range(len(one))
    for p, q, s in product(n, n, (0, 1)):
        terms[(2 * p + s, 1), (2 * q + s, 0)] = one[p, q]
    for p, q, r, t, s, u in product(n, n, n, n, (0, 1), (0, 1)):
        terms[(2 * p + s, 1), (2 * r + u, 1), (2 * t + u, 0), (2 * q + s, 0)] = two[p, q, r, t] / 2
    return terms


def hydrogen() -> Ladders:
    """H2 in STO-3G at 1.401 Bohr: Whitfield, Biamonte, Aspuru-Guzik, Mol. Phys. 109, 735 (2011), table 2."""
    two = np.zeros((2, 2, 2, 2))
    two[0, 0, 0, 0], two[1, 1, 1, 1] = 0.674493, 0.697397
    two[0, 0, 1, 1] = two[1, 1, 0, 0] = 0.663472
    for p, q, r, t in product((0, 1), repeat=4):
        if p != q and r != t:
            two[p, q, r, t] = 0.181287
    return molecule(np.diag([-1.252477, -0.475934]), two, 1 / 1.401)


def test_modes_anticommute_exactly() -> None:
    for n, modes in ((4, range(4)), (70, (0, 1, 63, 64, 69))):
        empty = {p: jordan_wigner({((p, 0),): 1.0}, n, is_majorana=False) for p in modes}
        fill = {p: jordan_wigner({((p, 1),): 1.0}, n, is_majorana=False) for p in modes}
        indices = [2 * p + one for p in modes for one in (0, 1)]
        whole = {k: jordan_wigner({(k,): 1.0}, n, is_majorana=True) for k in indices}
        for p, q in product(modes, modes):
            assert empty[p].anticommutator(fill[q]) == PauliSum.of("I", n) * (p == q)
            assert len(empty[p].anticommutator(empty[q])) == 0
            assert fill[p] == empty[p].adjoint()
            assert jordan_wigner({((p, 1), (q, 0)): 2.5}, n, is_majorana=False) == 2.5 * fill[p] @ empty[q]
        for j, k in product(whole, whole):
            assert whole[j].anticommutator(whole[k]) == 2 * PauliSum.of("I", n) * (j == k)
            assert jordan_wigner({(j, k): 2.5}, n, is_majorana=True) == 2.5 * whole[j] @ whole[k]
        for p in modes:
            assert whole[2 * p] == empty[p] + fill[p]
            assert whole[2 * p + 1] == -1j * (empty[p] - fill[p])


@pytest.mark.parametrize("seed", range(30))
def test_sums_of_ladder_operators_equal_those_of_fock_space(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 6))
    terms: Ladders = {}
    for _ in range(10):
        length = int(random.integers(0, 6))
        modes, creates = (random.integers(0, most, length).tolist() for most in (n, 2))
        terms[tuple(zip(modes, creates, strict=True))] = complex(*random.normal(size=2))
    found = jordan_wigner(terms, n, is_majorana=False)
    np.testing.assert_allclose(found.to_matrix(), fock_matrix(terms, n), rtol=0, atol=1e-13)


@pytest.mark.parametrize("terms", [hubbard(3, 1.0, 4.0), hydrogen()], ids=["Hubbard", "H2"])
def test_spectra_of_fermions(terms: Ladders) -> None:
    sum_of_words = jordan_wigner(terms, None, is_majorana=False).simplify(1e-12)
    assert sum_of_words.is_hermitian
    assert sum_of_words.coefficients.dtype == np.float64
    wanted = fock_matrix(terms, sum_of_words.n_qubits)
    found = np.linalg.eigvalsh(sum_of_words.to_matrix())
    np.testing.assert_allclose(found, np.linalg.eigvalsh(wanted), rtol=0, atol=1e-12)


def test_known_ground_states() -> None:
    energies = np.linalg.eigvalsh(jordan_wigner(hydrogen(), 4, is_majorana=False).to_matrix())
    assert energies[0] == pytest.approx(-1.851046 + 1 / 1.401, abs=2e-6)  # the paper's value
    half = jordan_wigner(hubbard(2, 1.0, 4.0), 4, is_majorana=False)
    # The number of particles commutes; this chemical potential, U / 2, makes half filling the ground state.
    for p in range(4):
        half = half - 2 * jordan_wigner({((p, 1), (p, 0)): 1.0}, 4, is_majorana=False)
    lowest = np.linalg.eigvalsh(half.to_matrix())[0] + 2 * 2
    assert lowest == pytest.approx((4 - np.sqrt(4**2 + 16)) / 2, abs=1e-12)


def test_dictionaries_and_text() -> None:
    ours = PauliSum.of({"X0 Z3": 0.5, "Y2": 1j, "I": np.float32(2)})
    assert ours.n_qubits == 4
    assert ours.to_dict() == {"X0 Z3": 0.5, "Y2": 1j, "I": 2}
    assert PauliSum.of(ours.to_dict()) == ours
    assert PauliSum.of({"X0": [0, 1]}, 2) == 1j * PauliSum.of("XI")
    assert PauliSum.of("2 ZZIX - X1") == PauliSum.of("2 Z0 Z1 X3 - X1")
    assert PauliSum.of(ours) is ours
    assert {**ours.to_dict()} == dict(iter(ours))


@pytest.mark.parametrize("n_qubits", [3, 70])
@pytest.mark.parametrize("is_complex", [False, True])
def test_files_come_back(n_qubits: int, is_complex: bool, tmp_path: Path) -> None:
    ours, path = random_sum(5, n_qubits, is_complex=is_complex), tmp_path / "sum.json"
    ours.to_file(path)
    assert PauliSum.of(path) == ours
    assert PauliSum.of(path).coefficients.dtype == ours.coefficients.dtype
    (ours - ours).to_file(path)
    assert PauliSum.of(path) == ours - ours
    with pytest.raises(InputError, match=f"is a sum on {n_qubits} qubits; give a sum on 2"):
        PauliSum.of(path, 2)
    with pytest.raises(InputError, match=r"does not end in \.json"):
        ours.to_file(tmp_path / "sum.txt")


def test_files_are_observables_and_hamiltonians(tmp_path: Path) -> None:
    path = tmp_path / "sum.json"
    PauliSum.of("Z0 Z1 + 0.5 X0").to_file(path)
    circuit = tnplan.Circuit(tnplan.GateSequence(2, ()))
    np.testing.assert_allclose(circuit.expectation(path, device="cpu").value, [1.0])
    found = tnplan.diagonalize_qubits(path, ["00", "01", "10", "11"], device="cpu")
    assert found.energies[0] == pytest.approx(-np.sqrt(1.25))
    lines = tmp_path / "sum.txt"
    lines.write_text("Z0 Z1  # a term a line\n0.5 X0\n")
    assert PauliSum.of(lines) == PauliSum.of(path)
    words = tmp_path / "words.json"
    words.write_text(json.dumps({"Z0 Z1": 1, "X0": 0.5}))
    assert PauliSum.of(words) == PauliSum.of(path)


def damaged(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        PauliSum.of("Z0 Z1 + 0.5 X0").to_file(path)
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))

    return write


DAMAGE = {
    "coefficient": (damaged(lambda file: file["terms"].update(X0=0.6)), "is not that of the contents"),
    "identity": (damaged(lambda file: file.pop("identity")), "identity: None"),
    "version": (damaged(lambda file: file.update(version=2)), "version: is 2"),
    "format": (damaged(lambda file: file.update(format="tnplan.path")), "format: is 'tnplan.path'"),
    "infinite": (damaged(lambda file: file["terms"].update(X0=float("inf"))), "not finite"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files_are_refused(name: str, tmp_path: Path) -> None:
    write, message = DAMAGE[name]
    write(tmp_path / "sum.json")
    with pytest.raises(InputError, match=message):
        PauliSum.of(tmp_path / "sum.json")


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "nothing": (lambda: PauliSum.of(""), "is empty"),
    "no words": (lambda: PauliSum.of({}), "is empty"),
    "another object": (lambda: PauliSum.of(3), "operator: is of type int; give a text"),
    "letters": (lambda: PauliSum.of("Q0"), "is not a Pauli word"),
    "words of two lengths": (lambda: PauliSum.of("XX + ZZZ"), "has a word of 2 letters"),
    "outside": (lambda: PauliSum.of("X3", 3), "names qubit 3; use qubits 0 to 2"),
    "far": (lambda: PauliSum.of("X100000"), "is 100001; give an integer from 1 to 100000"),
    "qubits": (lambda: PauliSum.of("X0", 0), "is 0; give an integer from 1"),
    "coefficient": (lambda: PauliSum.of({"X0": "1"}), 'has the coefficient "1"'),
    "infinite": (lambda: PauliSum.of({"X0": complex("infj")}), "has the coefficient"),
    "key": (lambda: PauliSum.of({3: 1.0}), "3 is not a Pauli word"),
    "empty key": (lambda: PauliSum.of({" ": 1.0}), '" " is not a Pauli word'),
    "sum as a key": (lambda: PauliSum.of({"X0 - Z1": 1.0}), "'X0 - Z1' is not a Pauli word"),
    "mode": (lambda: jordan_wigner({((2, 1),): 1.0}, 2, is_majorana=False), "names mode 2; use modes 0 to 1"),
    "long": (lambda: jordan_wigner({((0, 1),) * 21: 1.0}, 2, is_majorana=False), "at most 20"),
    "symbol": (lambda: jordan_wigner({(): "t"}, 2, is_majorana=False), "bind its parameters"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_sum_is_refused_in_one_line(name: str) -> None:
    call, message = BAD[name]
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["qiskit", "pennylane", "openfermion", "cirq"])
def test_a_package_that_is_missing_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name, *(module for module in sys.modules if module.startswith(f"{name}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=f"needs {name} .*install it with: pip install {name}"):
        getattr(PauliSum.of("X0 Z1", 3), f"to_{name}")()
