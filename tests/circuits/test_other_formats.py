"""Files of circuits in other formats are refused with the name of their format."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tnplan.circuits.load import load_circuit
from tnplan.circuits.parametric import other_format
from tnplan.cli.main import run
from tnplan.common.errors import InputError

STIM = "# a\nR 0 1\nH 0\nCX 0 1\nDEPOLARIZE2(0.01) 0 1\nM(0.1) !0 1\nDETECTOR(0, 1) rec[-1]\n"
QUIL = "DECLARE ro BIT[2]\nRX(pi/2) 0\nCNOT 0 1\nMEASURE 0 ro[0]\n"
CQASM_1 = "version 1.0\nqubits 2\nprep_z q[0]\nh q[0]\n"
CQASM_3 = "// a\nversion 3.0\n\nqubit[2] q\nH q[0]\nCNOT q[0], q[1]\n"
CIRQ = json.dumps({"cirq_type": "Circuit", "moments": []})
QOBJ = json.dumps({"qobj_id": "a", "type": "QASM", "experiments": []})


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("c.stim", STIM, "a circuit of Stim"), ("c.txt", STIM, "a circuit of Stim"),
        ("c.stim", "", "a circuit of Stim"),
        ("c.txt", "QUBIT_COORDS(1, 2) 0\nREPEAT 5 {\n    H 0\n}\n", "a circuit of Stim"),
        ("c.quil", QUIL, "a program in Quil"), ("c", QUIL, "a program in Quil"),
        ("c.quil", "H 0\n", "a program in Quil"),
        ("c.txt", "H 0\nCNOT 0 1\n", "a circuit of Stim or Quil"),
        ("c.qasm", CQASM_1, "cQASM"), ("c.cq", CQASM_3, "cQASM"), ("c.qasm", CQASM_3, "cQASM"),
        ("c.json", CIRQ, "Cirq's JSON"), ("c.txt", CIRQ, "Cirq's JSON"), ("c.json", QOBJ, "Qiskit's Qobj"),
        ("c.json", '{"a": [1, 2]}', "JSON"), ("c.json", "[1, 2]", "JSON"),
    ],
)  # fmt: skip
def test_other_formats_are_refused_by_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, text: str, kind: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(InputError) as refused:
        load_circuit(file)
    assert str(refused.value).startswith(f"{file}: is {kind}, which is not supported; ")
    assert run(["statevector", str(file)]) == 2
    error = capfd.readouterr().err
    assert error.startswith(f"tnplan: error: {file}: is {kind}, which is not supported; ")
    assert error.count("\n") == 1
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(InputError, match=f"is {kind}, which is not supported; "):
        load_circuit(packed)


def test_qpy_is_refused_by_name(tmp_path: Path) -> None:
    qpy = pytest.importorskip("qiskit.qpy")
    from qiskit import QuantumCircuit

    circuit = QuantumCircuit(2)
    circuit.h(0)
    for name in ("c.qpy", "c.txt"):
        with (tmp_path / name).open("wb") as stream:
            qpy.dump(circuit, stream)
        with pytest.raises(InputError, match=r"QPY, which is not supported; give the circuit itself"):
            load_circuit(tmp_path / name)


def test_what_stim_writes_is_known() -> None:
    stim = pytest.importorskip("stim")
    circuit = stim.Circuit.generated("surface_code:rotated_memory_x", distance=3, rounds=2)
    assert other_format("c.txt", str(circuit)) == "a circuit of Stim"


@pytest.mark.parametrize(
    "text",
    ["2\n0 h 0\n", "OPENQASM 2.0;\nqreg q[1];", "U(0, 0, 0)\n$0;", "H q;", "{ h q; }", "[", "",
     "# H 0\n1\n0 x 0", 'include "stdgates.inc"; qubit q;', "CX $0, $1;", "R 0\n;",
     "version q;"],
)  # fmt: skip
def test_openqasm_and_qsim_are_no_other_format(text: str) -> None:
    assert other_format("c.txt", text) is None
