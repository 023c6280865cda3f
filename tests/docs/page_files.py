"""The files that the pages suppose, small: what a command of a page reads is made here by its name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

import tnplan
from tests.support.engines.sbd import every_string, fcidump_text, random_integrals
from tests.support.root import ROOT

Maker = Callable[[Path], object]

HEADER = 'OPENQASM 2.0;\ninclude "qelib1.inc";\n'
N_ORBITALS, N_ELECTRONS = 4, 2


def text(content: str) -> Maker:
    """A file of this text."""
    return lambda path: path.write_text(content, encoding="utf-8")


def rotations(n_qubits: int) -> list[str]:
    """A layer of rotations, controlled gates of neighbours, and rotations, as qelib1 writes them."""
    first = [f"ry({0.1 + 0.02 * q}) q[{q}];" for q in range(n_qubits)]
    last = [f"rx({0.3 - 0.01 * q}) q[{q}];" for q in range(n_qubits)]
    return [*first, *(f"cx q[{a}],q[{b}];" for a, b in pairwise(range(n_qubits))), *last]


def qasm(n_qubits: int, measured: bool = True) -> Maker:
    """An OpenQASM circuit."""
    lines = [f"qreg q[{n_qubits}];", f"creg c[{n_qubits}];", *rotations(n_qubits)]
    return text(HEADER + "\n".join([*lines, *["measure q -> c;"] * measured]) + "\n")


def qsim(n_qubits: int) -> Maker:
    """A circuit in qsim's text."""
    rows = [f"0 rx {q} 0.3" for q in range(n_qubits)] + [
        f"1 cz {q} {q + 1}" for q in range(0, n_qubits - 1, 2)
    ]
    return text("\n".join([str(n_qubits), *rows, *(f"2 rx {q} 0.2" for q in range(n_qubits))]) + "\n")


def ring() -> Maker:
    """Four qubits in a ring that a shift leaves as they are."""
    rows = [f"0 h {q}" for q in range(4)] + [f"{1 + q % 2} cp {q} {(q + 1) % 4} 0.2" for q in (0, 2, 1, 3)]
    return text("\n".join(["4", *rows, *(f"3 rx {q} 0.3" for q in range(4))]) + "\n")


def echo(n_qubits: int) -> Maker:
    """An OpenQASM circuit U^dagger V U: the last steps undo the first."""
    turns = [f"rx({{}}0.{1 + q % 5}) q[{q}];" for q in range(n_qubits)]
    pairs = [f"cz q[{q}],q[{q + 1}];" for q in range(n_qubits - 1)]
    forth, back = [turn.format("") for turn in turns], [turn.format("-") for turn in turns]
    lines = [f"qreg q[{n_qubits}];", *forth, *pairs, "x q[5];", *reversed(pairs), *reversed(back)]
    return text(HEADER + "\n".join(lines) + "\n")


def qasm_of_page(name: str) -> Maker:
    """The first OpenQASM block of a page."""
    (page,) = (ROOT / "docs").glob(f"*/{name}")
    blocks = re.findall(r"```qasm\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return text(blocks[0])


def lattice() -> tnplan.Network:
    """A closed network of matrices and larger tensors."""
    return tnplan.workload.peps(4, 4, bond=4, n_open=0, n_hyper=0, seed=3)


def path(file: Path, max_tensor: int = 2**6) -> None:
    """A path with slices, of a network that names a file of its tensors."""
    network = file.with_name("lattice.json")
    lattice().save(network)
    tnplan.search(network, max_tensor=max_tensor, time=0.3, seed=1).save(file)


def schedule(file: Path) -> None:
    """A schedule of a path with slices for four devices."""
    path(file.with_name("lattice.path.json"))
    tnplan.plan(
        file.with_name("lattice.path.json"), hardware="cpu", devices=4, ranks_per_group=4, output=file
    )


def profile(file: Path) -> None:
    """A profile of hardware, of several nodes."""
    source = ROOT / "tnplan" / "planner" / "hardware" / "dgx-h100.toml"
    file.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")


def rows_of_lattice(file: Path) -> None:
    """Integers for the tensors of `lattice`."""
    chance = np.random.default_rng(5)
    network = lattice().network
    shapes = [[network.size_dict[index] for index in term] for term in network.inputs]
    np.savez(file, **{f"t{n}": chance.integers(0, 9, shape) for n, shape in enumerate(shapes)})


def integrals(file: Path) -> None:
    """Integrals of a few orbitals."""
    made = random_integrals(N_ORBITALS, N_ELECTRONS, N_ELECTRONS, seed=11)
    file.write_text(fcidump_text(made), encoding="utf-8")


def optimized_orbitals(file: Path) -> None:
    """What a growth with optimized orbitals writes beside its result: the integrals, and the determinants."""
    integrals(file.with_name("n2.fcidump"))
    command = "sbd n2.fcidump --grow-to 20 --optimize-orbitals 10 -o n2.npz"
    subprocess.run([sys.executable, "-m", "tnplan", *command.split()], cwd=file.parent, check=True)


def strings() -> list[str]:
    """Bitstrings of one spin."""
    return [f"{bits:0{N_ORBITALS}b}" for bits in every_string(N_ORBITALS, N_ELECTRONS)]


def samples_of_both_spins() -> str:
    """Bitstrings of both spins and counts."""
    return json.dumps({a + b: 3 + n for n, (a, b) in enumerate(zip(strings(), strings()[::-1], strict=True))})


def spin_samples() -> str:
    """Bitstrings of qubits and counts."""
    return json.dumps({f"{bits:04b}": 1 + bits for bits in (3, 5, 6, 9, 10, 12)})


FILES: dict[str, Maker] = {
    "path.json": path, "a.json": path, "b.json": lambda file: path(file, 2**7),
    "p2.json": path, "p8.json": lambda file: path(file, 2**7),
    "net.json": lambda file: lattice().save(file), "changed.json": lambda file: lattice().save(file),
    "schedule.json": schedule,
    "my-cluster.toml": profile, "my-gpus.toml": profile,
    "tensor.npy": lambda file: np.save(file, np.random.default_rng(2).standard_normal((32, 32))),
    "rows.npz": rows_of_lattice,
    "circuit.qasm": qasm(4), "noisy.qasm": qasm(3), "large.qasm": qasm(9, measured=False),
    "circuit.qsim": qsim(7), "ring.qsim": ring(), "echo.qasm": echo(73),
    "observables.txt": text("Z0 Z1\n0.5*X0 - Z1\n"),
    "formula.cnf": text("p cnf 3 2\n1 -2 0\n2 3 0\n"),
    "weighted.cnf": text("p cnf 2 1\nc p weight 1 0.25 0\nc p weight -1 0.75 0\n1 2 0\n"),
    "formula.wcnf": text("h 1 -2 0\n3 2 3 0\n2 -1 0\n"),
    "n2.fcidump": integrals, "fe4s4.fcidump": integrals,
    "strings.txt": text("\n".join(strings()) + "\n"),
    "counts.json": text(samples_of_both_spins()),
    "hamiltonian.txt": text("Z0 Z1 + 0.5*X0 X1 + 0.5*Y0 Y1 + Z1 Z2 + 0.3*Z2 Z3\n"),
}  # fmt: skip
"""What a file of this name is in most pages."""

FILES_OF_PAGES: dict[tuple[str, str], Maker] = {
    ("selected-ci.md", "n2.orbitals.fcidump"): optimized_orbitals,
    ("pauli.md", "circuit.qsim"): qsim(63),
    ("pauli.md", "circuit.qasm"): qasm(63, measured=False),
    ("circuits.md", "ansatz.qasm"): qasm_of_page("circuits.md"),
    ("circuit-gradients.md", "ansatz.qasm"): qasm_of_page("circuit-gradients.md"),
    ("questions.md", "circuit.qasm"): qasm_of_page("questions.md"),
    ("methods.md", "circuit.qasm"): qasm(4, measured=False),
    ("large-circuits.md", "circuit.qasm"): qasm(4, measured=False),
    ("skqd.md", "counts.json"): text(spin_samples()),
}
"""What it is in a page that supposes more of it."""


def make(page: str, file: Path) -> bool:
    """Make a file that a page supposes; whether it is in a table."""
    maker = FILES_OF_PAGES.get((page, file.name)) or FILES.get(file.name)
    if maker is not None:
        maker(file)
    return maker is not None
