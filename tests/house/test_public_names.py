"""`dir(tnplan)` is what users may use: names documented in NumPy style, objects shown in one line."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from html import unescape
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.house import rules
from tests.support.root import ROOT

MODULES = ("compress", "sqd", "workload")
HEAVY = ("numpy", "numba", "cupy", "matplotlib", "mpi4py", "cotengra", "rich", "click", "msgspec")
LONGEST_REPR = 200
PAGES = [
    path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*/*.md"))]
    if path.stem != "architecture"
]
"""What users read; architecture.md is for those who change the code."""


def public_objects() -> Iterator[tuple[str, Any]]:
    """Every public function and type by its name, also those of public modules."""
    for name in tnplan.__all__:
        value = getattr(tnplan, name)
        if isinstance(value, ModuleType):
            for below in value.__all__:
                yield f"{name}.{below}", getattr(value, below)
        else:
            yield name, value


OBJECTS = dict(public_objects())


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a type of ours defines."""
    for base in kind.__mro__:
        if base.__module__.startswith("tnplan"):
            for name, value in vars(base).items():
                is_ours = isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(
                    value
                )
                if is_ours and not name.startswith("_"):
                    yield name, value


def functions(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A public object, and where it is a type, its own functions, also those of properties and operators."""
    yield name, value
    for base in value.__mro__ if inspect.isclass(value) else ():
        if base.__module__.startswith("tnplan"):
            for part, item in vars(base).items():
                inside = getattr(item, "fget", None) or getattr(item, "func", None)
                function = inside or getattr(item, "__func__", item)
                if inspect.isfunction(function):
                    yield f"{name}.{part}", function


def parameters(value: Any) -> list[str]:
    """The names of the parameters of a function, or of the constructor of a type that has its own."""
    if inspect.isclass(value) and "__init__" not in vars(value):
        return []
    names = inspect.signature(value).parameters
    return [name for name in names if name not in ("self", "args", "kwargs")]


def faults(name: str, value: Any) -> list[str]:
    """What the docstring of a public object lacks."""
    text = inspect.getdoc(value) or ""
    if not text:
        return [f"{name} has no docstring"]
    wanted = ["Examples"]
    if names := parameters(value):
        wanted.insert(0, "Parameters")
    if not inspect.isclass(value):
        wanted += ["Returns", "Raises"]
    broken = [
        f"{name} has no section {title}" for title in wanted if f"\n{title}\n{'-' * len(title)}\n" not in text
    ]
    described = text.partition("\nParameters\n")[2].partition("\n\n")[0]
    entries = {
        entry.strip().lstrip("*")
        for line in described.splitlines() if not line.startswith(" ")
        for entry in line.partition(" : ")[0].split(",")
    }  # fmt: skip
    broken += [f"{name} does not describe {missing}" for missing in names if missing not in entries]
    if inspect.isclass(value):
        broken += [
            f"{name}.{member} has no docstring" for member, item in members(value) if not inspect.getdoc(item)
        ]
    return broken


def matrices() -> tnplan.ContractionPath:
    network = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 64, "b": 64, "c": 64})
    return tnplan.ContractionPath(network, ((0, 1),), name="a name")


def flip() -> tnplan.Gate:
    return tnplan.Gate("x", (0,), np.array([[0, 1], [1, 0]], np.complex128))


def circuit() -> tnplan.GateSequence:
    return tnplan.GateSequence(12, (flip(),) * 1000)


def integrals() -> tnplan.Integrals:
    return tnplan.from_arrays(np.diag(np.arange(8.0)), np.zeros((8,) * 4), 2, 2)


def simulated() -> tnplan.Simulation:
    return tnplan.simulate(circuit(), shots=1000, amplitudes=["0" * 12], marginal=range(8), device="cpu")


def diagonalized() -> tnplan.Diagonalization:
    strings = [0b11 << shift for shift in range(7)]
    return tnplan.diagonalize(integrals(), strings, roots=5, rdm=True, device="cpu")


BUILT: dict[str, Callable[[], Any]] = {
    "Algebra": lambda: tnplan.Algebra("max-min", "float64", -np.inf, np.inf, np.maximum, np.minimum),
    "Count": lambda: tnplan.count("independent-sets", "grid 8x8", by_size=True),
    "Optima": lambda: tnplan.Optima(),
    "Optimization": lambda: tnplan.optimize("independent-sets", "grid 8x8"),
    "Residues": lambda: tnplan.Residues(7),
    "BondLimitedContraction": lambda: tnplan.contract("ab,ab->", *[np.ones((9, 9))] * 2, max_bond=4),
    "BitAssignment": lambda: tnplan.BitAssignment(0, tuple(range(10)), (True,) * 1024),
    "JobScript": lambda: tnplan.slurm(tnplan.plan(matrices(), hardware="cpu")),
    "Warmup": lambda: tnplan.Warmup(67, 24.1, None),
    "CarryOver": lambda: tnplan.CarryOver("a/prefix", ratio=0.5),
    "Channel": lambda: tnplan.Channel((0,), (np.eye(2),)),
    "GateSequence": circuit,
    "Circuit": lambda: tnplan.Circuit(circuit()),
    "CircuitAnswer": lambda: tnplan.Circuit(circuit()).probabilities(device="cpu"),
    "CircuitEstimate": lambda: tnplan.Circuit(circuit()).estimate(sample=5),
    "CircuitProgram": lambda: tnplan.CircuitProgram(1, 1, (flip(),) * 1000),
    "CodecError": lambda: tnplan.compress.CodecError("place", "problem", "remedy"),
    "CompiledCircuit": lambda: tnplan.Circuit(circuit()).compile(expectation="Z0"),
    "CompiledContraction": lambda: tnplan.compile(matrices(), device="cpu"),
    "Compressed": lambda: tnplan.compress.compress(np.zeros((100, 100)), 1e-3),
    "Conditional": lambda: tnplan.Conditional((0,), 1, (flip(),) * 1000),
    "ContractionPath": matrices,
    "Criteria": lambda: tnplan.Criteria(),
    "DeterminantList": lambda: tnplan.DeterminantList(*(strings(),) * 2, *(np.arange(100),) * 3),
    "Diagonalization": diagonalized,
    "Estimate": lambda: tnplan.Estimate("unbiased", 0.5, 0.1, 0.3, 0.7, (0.5,) * 1000),
    "ExecutionResult": lambda: tnplan.execute(tnplan.plan(matrices()), [np.ones((64, 64))] * 2, device="cpu"),
    "Expectation": lambda: tnplan.propagate(circuit(), "Z0", device="cpu"),
    "Gate": flip,
    "Growth": lambda: tnplan.Growth(tuple(1 / k for k in range(1, 1000))),
    "InputError": lambda: tnplan.InputError("place", "problem", "remedy"),
    "Integrals": integrals,
    "Measurement": lambda: tnplan.Measurement(0, 0),
    "MethodChoice": lambda: tnplan.Circuit(circuit()).estimate(sample=5).choices[0],
    "MethodEstimate": lambda: tnplan.Circuit(circuit()).estimate(sample=5).rows[0],
    "MonteCarlo": lambda: tnplan.MonteCarlo(),
    "Network": lambda: matrices().network,
    "Optimizer": lambda: tnplan.Optimizer(10.0, max_tensor=2**30),
    "PauliSum": lambda: tnplan.PauliSum(1, np.zeros((1000, 2), np.uint64), np.ones(1000)),
    "NaturalOrbitals": lambda: tnplan.NaturalOrbitals(np.ones(100), np.eye(100)),
    "Profile": lambda: tnplan.load_profile("dgx-h100"),
    "Progress": lambda: tnplan.Progress(1, 2, "text", "x" * 1000),
    "ProgressBar": lambda: tnplan.ProgressBar(),
    "Projection": lambda: tnplan.report([matrices()], [1, 2, 4, 8], hardware="dgx-h100"),
    "QubitDiagonalization": lambda: tnplan.diagonalize_qubits(
        "Z0 Z1 + X0", ["000", "001", "111", "110", "010"], roots=5, device="cpu"
    ),
    "Reset": lambda: tnplan.Reset(0),
    "Schedule": lambda: tnplan.plan(matrices(), hardware="dgx-h100", devices=8),
    "Simulation": simulated,
    "SpinPenalty": lambda: tnplan.SpinPenalty(0.5),
    "StreamError": lambda: tnplan.compress.StreamError("place", "problem", "remedy"),
    "StringSet": lambda: strings(),
    "SqdResult": lambda: tnplan.sqd.SqdResult(-1.0, *[np.arange(1000)] * 4, True, {"iterations": []}),
    "TensorNetwork": lambda: tnplan.workload.peps(),
    "Truncation": lambda: tnplan.Truncation(1e-4, 1e-5, 8, 8, 8, 10**6, 10),
    "UseChain": lambda: tnplan.show(tnplan.plan(matrices())),
    "WriteError": lambda: tnplan.WriteError("a file"),
    "WhileLoop": lambda: tnplan.WhileLoop((0,), 1, (flip(),) * 1000),
}
"""How an object of every public type comes about."""


def strings() -> tnplan.StringSet:
    return tnplan.StringSet(np.ones((100, 64), bool), np.zeros((100, 1), np.uint64))


def test_dir_is_what_users_may_use() -> None:
    assert dir(tnplan) == sorted([*tnplan.__all__, "__version__"])
    assert {name for name in tnplan.__all__ if isinstance(getattr(tnplan, name), ModuleType)} == {*MODULES}
    for name in MODULES:
        module = getattr(tnplan, name)
        assert {*module.__all__} <= {*dir(module)}


def test_every_type_can_be_built() -> None:
    types = {name.rpartition(".")[2] for name, value in OBJECTS.items() if inspect.isclass(value)}
    assert types == set(BUILT)


@pytest.mark.parametrize("name", OBJECTS)
def test_every_name_is_documented(name: str) -> None:
    assert faults(name, OBJECTS[name]) == []


@pytest.mark.parametrize("name", OBJECTS)
def test_hints_of_every_name_are_found(name: str) -> None:
    """What tools read that check or convert arguments by their hints."""
    for place, value in functions(name, OBJECTS[name]):
        try:
            hints = typing.get_type_hints(value)
        except NameError as error:
            pytest.fail(f"{place}: {error}")
        assert not any(isinstance(hint, str) for hint in hints.values()), place


def test_a_docstring_that_lacks_something_is_found() -> None:
    def bare(path: str) -> None:
        """Do it."""

    assert faults("bare", bare) == [
        "bare has no section Parameters",
        "bare has no section Examples",
        "bare has no section Returns",
        "bare has no section Raises",
        "bare does not describe path",
    ]
    bare.__doc__ = None
    assert faults("bare", bare) == ["bare has no docstring"]


@pytest.mark.parametrize("name", BUILT)
def test_every_object_is_shown_in_a_line(name: str) -> None:
    text = repr(BUILT[name]())
    assert len(text) < LONGEST_REPR
    assert "\n" not in text
    assert " at 0x" not in text


def with_examples() -> dict[str, Any]:
    """The public objects, and those of their methods that have an example."""
    methods = {
        f"{name}.{part}": method
        for name, value in OBJECTS.items() if inspect.isclass(value)
        for part, method in vars(value).items()
        if inspect.isfunction(method) and ">>>" in (method.__doc__ or "")
    }  # fmt: skip
    return {**OBJECTS, **methods}


@pytest.mark.parametrize("name", with_examples())
def test_examples_work(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that an example writes are in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    run_examples(name, with_examples()[name])


def run_examples(name: str, value: Any) -> None:
    home = vars(sys.modules[value.__module__]) | {"tnplan": tnplan, "np": np}
    found = doctest.DocTestParser().get_doctest(inspect.getdoc(value) or "", home, name, None, None)
    lines: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(found, out=lines.append)
    assert not lines, "".join(lines)


def internal_examples() -> list[tuple[str, str]]:
    """The modules and names of internal classes and functions whose docstring has an example."""
    found = []
    for path in rules.sources(ROOT):
        module = rules.module_name(path, ROOT)
        if rules.within(module, *(f"tnplan.{name}" for name in ("calls", "cirq", "qiskit", "pennylane"))):
            continue
        text = path.read_text()
        for node in ast.parse(text).body if ">>>" in text else ():
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and ">>>" in (ast.get_docstring(node) or ""):
                found.append((module, node.name))
    public = {(value.__module__, value.__name__) for value in OBJECTS.values()}
    return [place for place in found if place not in public]


@pytest.mark.parametrize(("module", "name"), internal_examples())
def test_internal_examples_work(module: str, name: str) -> None:
    run_examples(name, getattr(import_module(module), name))


CIRCUITS = ("Circuit", "CircuitAnswer", "CircuitEstimate")
RESULTS = (
    "BondLimitedContraction", "Count", "Diagonalization", "Estimate", "ExecutionResult", "Expectation",
    "Optimization", "QubitDiagonalization", "Simulation",
)  # fmt: skip


@pytest.mark.parametrize(
    "name", ["Schedule", "Projection", "ContractionPath", "UseChain", *CIRCUITS, *RESULTS]
)
def test_notebooks_get_a_table(name: str) -> None:
    text = BUILT[name]()._repr_html_()
    assert text.startswith("<table>")
    assert text.endswith("</table>")


@pytest.mark.parametrize("name", RESULTS)
def test_a_table_has_every_word_that_is_printed(name: str) -> None:
    shown = BUILT[name]()
    cells = unescape(re.sub("<[^>]*>", " ", shown._repr_html_())).split()
    assert [word for word in cells if word != name] == [word for word in str(shown).split() if word != name]


def private_names(text: str) -> list[str]:
    """Modules that are no users' business."""
    return re.findall(r"tnplan\.(?:api|executor|planner|reporting)\b[\w.]*", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_public_things(page: Path) -> None:
    assert private_names(page.read_text()) == []


def test_a_private_name_is_seen() -> None:
    assert private_names("from tnplan.planner.schedule import x; tnplan.plan()") == [
        "tnplan.planner.schedule"
    ]


def test_importing_tnplan_imports_nothing_heavy() -> None:
    code = f"import sys, tnplan\nassert dir(tnplan)\nassert not {{*{HEAVY!r}}} & set(sys.modules)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_help_lists_every_name() -> None:
    code = "import pydoc, tnplan\nprint(pydoc.plain(pydoc.render_doc(tnplan)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    for name, value in OBJECTS.items():
        if "." not in name and not inspect.isclass(value):
            assert f"\n    {name}(" in done.stdout, name
