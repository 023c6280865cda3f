"""The documents: examples in Python run as they are printed, and versions of files are those written."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from itertools import pairwise
from math import cos, log10, sin
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from markdown_it import MarkdownIt

import tnplan
from tests.support.circuits import contract as contracted
from tests.support.engines.sbd import every_string, fcidump_text, random_integrals
from tests.support.engines.sbd_growth import chain
from tests.support.root import ROOT
from tnplan import diagonalize
from tnplan.circuits import pauli_sum
from tnplan.executor.contraction.run import result
from tnplan.executor.contraction.run import run_report as record
from tnplan.executor.sbd.basis.integrals import dense_two
from tnplan.planner.networks import path_file
from tnplan.planner.schedule import schedule
from tnplan.reporting import evaluation, tables

DOCS = ROOT / "docs"
QASM = 'OPENQASM 2.0;\ninclude "qelib1.inc";\nqreg q[2];\ncreg c[2];\nh q[0];\ncx q[0],q[1];\n'


def page_of(name: str) -> Path:
    """The page of this name in one of the parts."""
    (page,) = DOCS.glob(f"*/{name}")
    return page


def text_of(page: str, language: str, number: int) -> str:
    """A block of a page in another language than Python."""
    return re.findall(rf"```{language}\n(.*?)```", page_of(page).read_text(), re.DOTALL)[number]


def run_example(page: str, number: int, **names: Any) -> dict[str, Any]:
    """What a block of a page leaves behind; its last line is shown to the reader, and asked for."""
    block = re.findall(r"```python\n(.*?)```", page_of(page).read_text(), re.DOTALL)[number]
    exec(block, names)
    return names


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_formats_have_the_versions_that_are_written() -> None:
    stated = re.findall(r"\(`(tnplan\.\w+)`, version (\d+)\)", page_of("formats.md").read_text())
    modules = (path_file, schedule, record, result, pauli_sum)
    written = {module.FORMAT: module.VERSION for module in modules}
    assert {name: int(version) for name, version in stated} == written


def test_an_expectation_value() -> None:
    Path("circuit.qsim").write_text("63\n0 rx 62 0.3\n1 h 0\n2 cz 61 62\n")
    assert run_example("pauli.md", 0)["done"].value == pytest.approx(cos(0.3))


def test_a_symmetry() -> None:
    gates = [f"0 h {q}" for q in range(4)] + [f"{1 + q % 2} cp {q} {(q + 1) % 4} 0.2" for q in (0, 2, 1, 3)]
    Path("ring.qsim").write_text("\n".join(["4", *gates, *(f"3 rx {q} 0.3" for q in range(4))]) + "\n")
    done = run_example("pauli.md", 1)["done"]
    assert done.value == pytest.approx(tnplan.propagate("ring.qsim", "Z2").value)


def test_repetitions() -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    Path("circuit.qasm").write_text(QASM.partition("h q[0]")[0] + "rx(0.3) q[0];\nrx(0.5) q[1];\n")
    done = run_example("pauli.md", 2)["done"]
    assert (done.value, done.estimate.kind) == (pytest.approx(cos(0.3)), "exact")


def test_a_gradient() -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    Path("circuit.qasm").write_text(QASM.partition("h q[0]")[0] + "rx(0.3) q[0];\nrx(0.5) q[1];\n")
    done = run_example("pauli.md", 3)["done"]
    first, second = (entry["derivative"] for entry in done.report["gradient"])
    assert (first, second) == (pytest.approx(-sin(0.3)), 0)


def test_contractions() -> None:
    names: dict[str, Any] = {}
    for number in range(7):
        names |= run_example("contract.md", number, **names)
        wanted = np.trace(names["a"] @ names["b"] @ names["c"])
        if number == 0:
            assert names["trace"] == pytest.approx(wanted)
        elif number in (1, 2):
            assert names["traces"] == pytest.approx([wanted, 2 * wanted, 3 * wanted])
        elif number == 3:
            assert names["second"] == pytest.approx(2 * names["first"])
        elif number == 4:
            assert names["traces"].shape == (1000,)
        elif number == 6:
            assert names["trace"] == pytest.approx(wanted)
        else:
            assert log10(names["mantissa"]) + names["exponent"] == pytest.approx(978.8372333963)
    gradients = run_example("contract.md", 7, **names)
    np.testing.assert_allclose(gradients["db"], names["a"].T @ names["c"])
    np.testing.assert_allclose(gradients["dc"], (names["a"] @ names["b"]).T)
    product = run_example("contract.md", 8, **names)["product"]
    np.testing.assert_allclose(product, names["a"] @ names["b"] @ names["c"])


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torch_contracts_and_fits() -> None:
    pytest.importorskip("torch", reason="needs torch")
    names = run_example("torch-and-jax.md", 0)
    np.testing.assert_allclose(names["product"].numpy(), (names["a"] @ names["b"]).numpy(), rtol=1e-5)
    losses = run_example("torch-and-jax.md", 1)["losses"]
    assert losses[-1] < 0.1 * losses[0]
    names = run_example("torch-and-jax.md", 2)
    change = np.ones((3, 3))
    found = np.tensordot(names["hessian"].numpy(), change, 2)
    np.testing.assert_allclose(found, (change @ names["b"].numpy() + names["b"].numpy() @ change).T)
    names = run_example("torch-and-jax.md", 3)
    a, b = names["a"].detach().numpy(), names["b"].numpy()
    np.testing.assert_allclose(names["a"].grad, np.cos(a @ b) @ b.T, rtol=1e-4)


def test_jax_goes_back_through_a_contraction() -> None:
    jax = pytest.importorskip("jax", reason="needs jax")
    with jax.enable_x64(False):  # which other libraries change for the whole process
        names = run_example("torch-and-jax.md", 4)
    a, b, c = (np.asarray(names[name], np.float64) for name in "abc")
    assert float(names["value"]) == pytest.approx(np.trace(a @ b @ c) ** 2, rel=1e-4)
    expected = 2 * np.trace(a @ b @ c) * (b @ c).T
    np.testing.assert_allclose(names["by_a"], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["variational-peps.md", "force-matching.md"])
def test_tutorials_in_torch_and_jax(page: str) -> None:
    """The pages compare what they find themselves."""
    pytest.importorskip("torch", reason="needs torch")
    jax = pytest.importorskip("jax", reason="needs jax")
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="needs matplotlib")
    names: dict[str, Any] = {}
    try:
        for number in range(page_of(page).read_text().count("```python")):
            names |= run_example(page, number, **names)
    finally:
        jax.config.update("jax_enable_x64", False)
        pyplot.close("all")
    assert names["figure"].axes


def test_a_simulation() -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    Path("circuit.qasm").write_text(QASM + "measure q -> c;\n")
    done = run_example("statevector.md", 0)["done"]
    assert set(done.answer.counts) == {"00", "11"}
    assert done.answer.expectation == pytest.approx(1)


def test_a_compressed_simulation() -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    Path("circuit.qasm").write_text(QASM + "rx(0.3) q[0];\nry(0.2) q[1];\n")
    report = run_example("statevector.md", 1, tnplan=tnplan)["done"].report
    assert 0.99 <= report["fidelity_bound"] <= report["fidelity_estimate"]


def test_the_gradient_of_a_simulation(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    Path("circuit.qasm").write_text(QASM + "rx(0.3) q[0];\nry(0.2) q[1];\n")
    (first, second) = run_example("statevector.md", 2, tnplan=tnplan)["done"].answer.gradient
    assert (first.name, first.angle, second.name) == ("rx", 0.3, "ry")
    assert second.derivative == pytest.approx(-cos(0.3) * sin(0.2), abs=1e-12)
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_an_openqasm_file_with_inputs() -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    Path("ansatz.qasm").write_text(text_of("circuits.md", "qasm", 0))
    assert run_example("circuits.md", 0)["done"].answer.expectation == pytest.approx(cos(0.9) ** 2)
    found = run_example("circuits.md", 1)
    assert found["ansatz"].parameters == ("theta", "layers")
    assert found["layered"].parameters == ("theta",)
    assert found["values"] == pytest.approx([cos(k / 5) for k in range(4)])


@pytest.fixture
def question() -> dict[str, Any]:
    """What the first block of the page on questions leaves behind, with the files of the examples."""
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    Path("circuit.qasm").write_text(text_of("questions.md", "qasm", 0))
    Path("ansatz.qasm").write_text(text_of("circuit-gradients.md", "qasm", 0))
    return run_example("questions.md", 0)


def test_questions(question: dict[str, Any]) -> None:
    assert question["found"].value == pytest.approx([1, 0])
    assert (question["found"].error_kind, question["found"].method) == ("exact", "statevector")
    names = run_example("questions.md", 1, **question)
    assert names["some"] == pytest.approx([2**-0.5, 2**-0.5])
    assert names["all_values"].shape == (2, 2)
    assert sum(names["counts"].values()) == 1000
    assert names["table"] == pytest.approx(np.array([0.5, 0.5]))
    assert names["rho"] == pytest.approx(np.eye(2) / 2)
    assert abs(names["fidelity"]) == pytest.approx(1)
    assert names["echo"] == pytest.approx(1)
    states = run_example("questions.md", 2, **question)
    assert states["bits"] == pytest.approx(-1)
    assert states["letters"] == pytest.approx(-1)
    assert states["mixed"] == pytest.approx(0.8)
    assert states["stabilized"] == pytest.approx(1)
    assert set(states["counts"]) == {"00", "01"}
    steps = run_example("questions.md", 3, **question)["steps"]
    np.testing.assert_allclose(steps.value, [[0, 1], [1, 0]], atol=1e-12)
    noisy = run_example("questions.md", 4, **question)
    assert noisy["exact"].value == pytest.approx(noisy["mean"].value, abs=5 * noisy["mean"].error)
    assert len(noisy["counts"]) > 2


def test_methods(question: dict[str, Any]) -> None:
    assert run_example("methods.md", 0, **question)["near"].value == pytest.approx(1)
    if find_spec("quimb") is not None:
        chain = run_example("methods.md", 1, **question)["chain"]
        assert (chain.value, chain.error_kind) == (pytest.approx(1), "estimate")
        assert run_example("methods.md", 3, **question)["fidelity"] == pytest.approx(1)
    assert run_example("methods.md", 2, **question)["pairs"].value == pytest.approx(1)
    large = run_example("methods.md", 5, **question)["found"]
    assert (large.value, large.error_kind) == (pytest.approx(1), "exact")
    sampled = run_example("methods.md", 4, **question)["found"]
    assert sampled.value == pytest.approx([1, 0])
    assert (sampled.method, sampled.error_kind) == ("pauli", "exact")


def test_samples(question: dict[str, Any]) -> None:
    assert set(run_example("samples.md", 0, **question)["counts"]) == {"00", "01", "10", "11"}


def test_gradients_of_circuits(question: dict[str, Any]) -> None:
    varied = run_example("circuit-gradients.md", 0)["found"]
    assert varied.value == pytest.approx([cos(0.3) * cos(1.4), 0], abs=1e-12)
    assert varied.gradient["theta"] == pytest.approx([-sin(0.3) * cos(1.4), 0], abs=1e-12)
    assert varied.gradient["phi"] == pytest.approx([-2 * cos(0.3) * sin(1.4), 0], abs=1e-12)
    energy = run_example("circuit-gradients.md", 1, tnplan=tnplan)
    assert (energy["energy"].names, energy["energy"].is_direct) == (("theta", "phi"), True)
    assert energy["values"] == pytest.approx(varied.value, abs=1e-12)
    for name, row in zip(energy["energy"].names, energy["gradients"].T, strict=True):
        assert row == pytest.approx(varied.gradient[name], abs=1e-12)


def test_estimates(question: dict[str, Any]) -> None:
    plan = run_example("large-circuits.md", 0, **question)["plan"]
    assert (plan.method, len(plan.rows)) == ("statevector", 10)
    assert run_example("large-circuits.md", 1, **question)["rounds"].method == "contraction"


def test_primitives_of_qiskit() -> None:
    pytest.importorskip("qiskit")
    names = run_example("circuit-libraries.md", 0)
    assert names["values"] == pytest.approx([1, 1])
    assert set(names["outcomes"]) == set(names["counts"]) == {"00", "11"}


def test_the_simulator_of_cirq() -> None:
    pytest.importorskip("cirq")
    names = run_example("circuit-libraries.md", 2)
    assert names["amplitudes"] == pytest.approx([2**-0.5, 2**-0.5])
    assert names["values"] == pytest.approx([1, 1])
    assert set(names["counts"]) == {0, 3}


def test_sums_of_pauli_words() -> None:
    names = run_example("circuits.md", 2)
    assert names["rate"].to_dict() == {"Y1": -1}
    assert len(names["ising"].commutator(names["parity"])) == 0
    assert names["ising"].norm() == pytest.approx(2)


def test_a_list_of_determinants_grows() -> None:
    integrals = chain(6)
    Path("n2.fcidump").write_text(fcidump_text(integrals))
    result = run_example("selected-ci.md", 0)["result"]
    exact = diagonalize(integrals, every_string(6, 3)).energies[0]
    fit = result.report["growth"]["extrapolation"][0]
    assert exact < result.energies[0] < exact + 0.02
    assert abs(fit["energy_hartree"] - exact) <= fit["uncertainty_hartree"]
    assert len(result.determinants) == len(result.states[0])


def test_the_device_of_pennylane() -> None:
    pytest.importorskip("pennylane")
    assert run_example("circuit-libraries.md", 1)["value"] == pytest.approx(1)


def test_a_qubit_hamiltonian_among_samples() -> None:
    pytest.importorskip("qiskit")
    names: dict[str, Any] = {}
    for number in range(3):
        names |= run_example("skqd.md", number, **names)
    exact = np.linalg.eigvalsh(names["hamiltonian"].to_matrix())[0]
    sentence = f"{names['found'].energies[0]:.3f}. In the space of all strings it is {exact:.3f}."
    assert sentence in page_of("skqd.md").read_text()


@pytest.mark.slow
def test_the_loop_from_samples_to_a_ground_state() -> None:
    pytest.importorskip("qiskit_addon_sqd", reason="needs the extra sqd")
    pytest.importorskip("pyscf")
    names = run_example("sqd.md", 0)
    (exact,) = re.findall(r"exact energy, (-[\d.]+) Hartree", page_of("sqd.md").read_text())
    assert run_example("sqd.md", 1, **names)["found"].energy == pytest.approx(float(exact), abs=1e-6)


def test_the_examples_of_the_readme_are_right() -> None:
    first, steps = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(first, names)
    assert np.isclose(names["trace"], np.trace(names["a"] @ names["b"] @ names["c"]))
    exec(steps, names)
    tensors = [np.asarray(tensor, complex) for tensor in names["network"].tensors]
    np.testing.assert_allclose(names["result"], contracted(names["network"].network, tensors), rtol=1e-4)
    assert "<svg" in Path("report.html").read_text()


def test_calls_of_other_libraries_and_ours() -> None:
    """The examples of the page for people who come from another library, with that library where it is."""
    names = run_example("coming-from.md", 0)
    wanted = np.einsum("ab,bc,ca->", *names["arrays"])
    assert np.isclose(names["value"], wanted)
    product = run_example("coming-from.md", 2)
    np.testing.assert_allclose(product["second"], 2 * product["first"])
    if find_spec("quimb") is not None:
        found = run_example("coming-from.md", 1)
        assert np.isclose(found["value"], found["network"].contract())
    if find_spec("qiskit") is not None:
        assert run_example("coming-from.md", 3)["value"] == pytest.approx(1.0)
    if find_spec("pyscf") is not None:
        assert run_example("coming-from.md", 4)["energy"] == pytest.approx(-1.1373, abs=1e-3)


def test_the_glossary_has_the_letters_of_a_report() -> None:
    text = page_of("glossary.md").read_text()
    letters = {
        letter for cell in re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE) for letter in cell.split(", ")
    }
    texts = [*evaluation.SLICES_LEGEND.values(), *evaluation.MEMORY_LEGEND.values(), tables.LEGEND]
    legends = (*texts, *evaluation.COMPARED)
    used = set(re.findall(r"\b[A-Z]_(?:t,)?P|\bt_P\b", " ".join(legends)))
    assert {"T_P", "S_P", "E_P", "R_P", "C_t,P", "t_P"} <= used | {"C_t,P"} <= letters
    assert used <= letters


def test_a_diagonalization() -> None:
    integrals = random_integrals(6, 5, 5, 0)
    found = run_example(
        "sbd.md", 0, h1=integrals.one, eri=dense_two(integrals), alpha_integers=every_string(6, 5),
        mol=SimpleNamespace(energy_nuc=lambda: integrals.core),
    )["result"]  # fmt: skip
    assert found.energies[0] < found.energies[1]


def test_configuration_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    """With stand-ins for what the example takes from qiskit-addon-sqd, of the same parameters."""

    def recover(
        one: Any, two: Any, bit_array: Any, samples_per_batch: int, norb: int, nelec: tuple[int, int], *,
        sci_solver: Any,
    ) -> Any:  # fmt: skip
        strings = np.array(every_string(norb, nelec[0]))
        return sci_solver([(strings, strings)], one, two, norb, nelec)[0]

    fermion = SimpleNamespace(
        SCIState=lambda *fields: fields, SCIResult=lambda energy, *more: SimpleNamespace(energy=energy),
        diagonalize_fermionic_hamiltonian=recover,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "qiskit_addon_sqd", fermion)
    monkeypatch.setitem(sys.modules, "qiskit_addon_sqd.fermion", fermion)
    integrals = random_integrals(6, 5, 5, 0)
    names = {"h1": integrals.one, "eri": dense_two(integrals), "samples": np.ones((1, 12), bool)}
    found = run_example("sbd.md", 1, **names)["found"]
    expected = diagonalize(integrals, every_string(6, 5)).energies[0] - integrals.core
    assert found.energy == pytest.approx(expected)


def test_the_newest_release_of_the_changelog_is_the_version() -> None:
    _, newest, *_ = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_help_equals_the_document(tmp_path: Path) -> None:
    """In a process of its own: a command that was called without its group keeps other options of help."""
    new = tmp_path / "cli.md"
    subprocess.run([sys.executable, "-m", "tnplan.cli.document", str(new)], cwd=ROOT, check=True)
    golden = page_of("cli.md")
    assert new.read_text() == golden.read_text(), "run 'python -m tnplan.cli.document'"


def sentences(markdown: str) -> list[str]:
    """Those of paragraphs and lists, as `docs/extensions/prose.py` splits them; code is a word."""
    text = re.sub(r"\$[^$\n]+\$", "`x`", markdown)
    blocks, found = MarkdownIt("commonmark").enable("table").parse(text), []
    for before, block in pairwise(blocks):
        if before.type == "paragraph_open":
            items = block.children or []
            words = "".join("x" if item.type == "code_inline" else item.content or " " for item in items)
            paragraph = " ".join(words.split())
            found += re.split(r"(?<=[!?])\s+|(?<=[.:;])\s+(?=[A-Z0-9\"'(])", paragraph)
    return found


def test_sentences_are_not_too_long() -> None:
    pages = [page for page in (ROOT / "README.md", *DOCS.rglob("*.md")) if "_build" not in page.parts]
    for page in pages:
        assert [each for each in sentences(page.read_text()) if len(each) > 200] == [], page.name


def test_links_of_the_documents_exist() -> None:
    broken = []
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md"), *DOCS.glob("*/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
            place = path.parent / target
            # The pages of the API are made when the site is built, which checks its links.
            if "://" not in target and not place.exists() and place.parent != DOCS / "reference" / "api":
                broken.append(f"{path.name}: {target}")
    assert broken == []


def test_files_that_documents_name_exist() -> None:
    """A file of code may be named by the end of its path."""
    folders = ("tnplan", "tests", "benchmarks")
    paths = [str(path) for folder in folders for path in (ROOT / folder).rglob("*.*")]
    for page in sorted(DOCS.rglob("*.md")):
        for name in re.findall(r"`(\w[\w/]*\.(?:py|cu|cuh))`", page.read_text(encoding="utf-8")):
            assert any(path.endswith(f"/{name}") for path in paths), f"{page.name}: {name}"


def test_written_versions_equal_the_constants(tmp_path: Path) -> None:
    from tnplan.calls.execute import execute
    from tnplan.executor.contraction.run import run_report as record
    from tnplan.planner.hardware.profile import load_profile
    from tnplan.planner.networks import path_file
    from tnplan.planner.networks.contraction_path import ContractionPath
    from tnplan.planner.networks.network import Network
    from tnplan.planner.passes.pipeline import plan
    from tnplan.planner.schedule import file as schedule_file
    from tnplan.planner.schedule import schedule as schedule_module

    network = Network((("a", "b"), ("b", "c")), ("a",), {"a": 4, "b": 6, "c": 2})
    path = ContractionPath(network, ((0, 1),), ("b",), "float64", "small")
    path_file.save_path(path, tmp_path / "path.json")
    schedule = plan(path, load_profile("cpu"), devices=2, ranks_per_group=2, threshold_bytes=8)
    schedule_file.save_schedule(schedule, tmp_path / "schedule.json")
    execute(schedule, [np.ones(network.shape(i)) for i in range(2)], output=tmp_path / "result.npy")
    written = ((path_file, "path.json"), (schedule_module, "schedule.json"), (record, "result.json"))
    for module, name in written:
        document = json.loads((tmp_path / name).read_text())
        assert (document["format"], document["version"]) == (module.FORMAT, module.VERSION)
        latest = max(
            int(number) for number in re.findall(r"^(\d+) \(\d{4}-\d\d-\d\d\):", module.__doc__ or "", re.M)
        )
        assert latest == module.VERSION
    assert path_file.load_path(tmp_path / "path.json") == path
    read = schedule_file.load_schedule(tmp_path / "schedule.json")
    assert read == schedule
    assert schedule_file.with_identity(read).identity == schedule.identity


def test_the_examples_of_the_documents_are_read(tmp_path: Path) -> None:
    from tnplan.planner.hardware.profile import load_profile
    from tnplan.planner.networks.path_file import load_path

    for document, language, load in (
        ("formats.md", "json", load_path),
        ("hardware.md", "toml", load_profile),
    ):
        blocks = re.findall(rf"```{language}\n(.*?)```", page_of(document).read_text(), re.DOTALL)
        assert blocks
        for number, block in enumerate(blocks):
            path = tmp_path / f"{number}.{language}"
            path.write_text(block)
            load(path)


def test_the_rates_of_products_in_the_documents_are_those_of_the_profile() -> None:
    from tnplan.planner.hardware.profile import load_profile

    profile = load_profile("h200-nvlink")
    curves = [
        (profile.gemm_curves[dtype][precision], profile.scattered_curves[dtype][precision])
        for dtype, precision in (
            ("complex64", "fp32"), ("complex64", "tf32"), ("complex64", "fp16x3"), ("complex128", "fp64"),
        )
    ]  # fmt: skip
    text = page_of("gpu.md").read_text()
    rows = re.findall(r"^\| (\d+) \|((?: \d+ / \d+ \|){4})$", text, re.MULTILINE)
    assert len(rows) > 5
    for k, cells in rows:
        rates = [[curve.flop_per_s[curve.k.index(int(k))] / 1e12 for curve in pair] for pair in curves]
        assert cells == "".join(f" {direct:.0f} / {apart:.0f} |" for direct, apart in rates), k
    tier = profile.tiers[0]
    listed = [f"{rate / 1e9:.0f}" for rate in tier.curve_bytes_per_s]
    assert f"{', '.join(listed[:-1])} and {listed[-1]} GB/s" in text


def test_the_page_on_architecture_names_every_folder() -> None:
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    package = ROOT / "tnplan"
    names = [path.parent.name for depth in ("*", "*/*") for path in package.glob(f"{depth}/__init__.py")]
    assert len(names) > 20
    missing = [name for name in names if not re.search(rf"\b{name}\b", text)]
    assert not missing


def names_in_files(text: str) -> list[tuple[str, str]]:
    """The pairs of a name and the file of code that a page says has it: "`A` and `B` of `c.py`"."""
    listed = re.findall(r"((?:`\w+`(?:, | and |, and )?)+) (?:of|in) `([\w/]+\.py)`", " ".join(text.split()))
    return [(name, file) for names, file in listed for name in re.findall(r"`(\w+)`", names)]


def defined_in(path: Path) -> set[str]:
    """The classes, functions and names that a file binds."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return bound | {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def test_the_page_on_architecture_says_where_names_are() -> None:
    pairs = names_in_files((ROOT / "docs" / "explanation" / "architecture.md").read_text())
    assert len(pairs) > 30
    files = [path for folder in ("tnplan", "tests") for path in (ROOT / folder).rglob("*.py")]
    for name, file in pairs:
        assert any(name in defined_in(path) for path in files if str(path).endswith(f"/{file}")), (name, file)


def test_a_name_and_its_file_are_read_from_a_page() -> None:
    pairs = names_in_files("its row of `A` and\n`B` in `a/b.py`, `C` of `d`")
    assert pairs == [("A", "a/b.py"), ("B", "a/b.py")]
