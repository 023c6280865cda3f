"""The house: who imports whom, what imports without optional libraries, lengths, formats, help."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("planner", "executor", "compress", "tnplan")
OPTIONAL = (
    "cupy", "mpi4py", "cotengra", "networkx", "msgspec", "numba", "matplotlib", "click", "rich", "qiskit",
    "threadpoolctl",
)  # fmt: skip
EXECUTOR_MAY = (
    "tnplan.planner.schedule.schedule", "tnplan.planner.schedule.file", "tnplan.planner.schedule.overlap_rows", "tnplan.planner.networks",
    "tnplan.planner.hardware", "tnplan.planner.common.errors", "tnplan.planner.common.checks", "tnplan.planner.common.files", "tnplan.planner.common.units",
)  # fmt: skip
ADAPTERS = re.compile(r"executor\.device\.(mpi|cuda_memory|cupy_\w+|gpus|kernel_cache|launch|nccl)|.*_kernel")
"""Modules that import their library, and are imported on demand."""
LINES_LIMIT = 450

BLOCKED_IMPORT = """
import importlib, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)

sys.meta_path.insert(0, Blocker())
for module in {modules!r}:
    importlib.import_module(module)
present = {blocked!r} & set(sys.modules)
assert not present, present
"""


def sources(*packages: str) -> list[Path]:
    return [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a file imports anywhere in it, relative imports resolved."""
    package = list(path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            for name in node.names:
                yield node.lineno, f"{stem}.{name.name}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            name = node.args[0] if node.args else None
            if isinstance(name, ast.Constant):
                yield node.lineno, str(name.value)


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def arrows_broken(path: Path, forbidden: tuple[str, ...], allowed: tuple[str, ...] = ()) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for line, name in imports(path)
        if within(name, forbidden) and not within(name, allowed)
    ]


@pytest.mark.parametrize(
    ("package", "forbidden", "allowed"),
    [
        ("planner", ("executor", "tnplan", "cupy", "mpi4py"), ()),
        ("compress", ("executor", "tnplan", "planner"), ()),
        ("executor", ("tnplan",), ()),
        ("executor", ("planner",), EXECUTOR_MAY),
    ],
)
def test_imports_go_one_way(package: str, forbidden: tuple[str, ...], allowed: tuple[str, ...]) -> None:
    files = sources(package)
    assert files
    assert [broken for path in files for broken in arrows_broken(path, forbidden, allowed)] == []


def test_the_scan_of_imports_sees_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "planner" / "passes").mkdir(parents=True)
    path = tmp_path / "planner" / "passes" / "bad.py"
    path.write_text(
        "import tnplan.cli\nfrom executor import device\ndef f():\n    from mpi4py import MPI\n"
        "from .. import errors\nfrom . import tree\nimport importlib\nimportlib.import_module('cupy')\n"
    )
    assert {name for _, name in imports(path)} == {
        "tnplan.cli", "tnplan.executor.device", "tnplan.planner.common.errors", "tnplan.planner.passes.tree.build", "importlib", "mpi4py.MPI",
        "cupy",
    }  # fmt: skip
    assert len(arrows_broken(path, ("executor", "tnplan", "cupy", "mpi4py"))) == 4


def import_blocked(blocked: tuple[str, ...], modules: list[str]) -> subprocess.CompletedProcess[str]:
    code = BLOCKED_IMPORT.format(blocked=set(blocked), modules=modules)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)


def numpy_only_modules() -> list[str]:
    light = [path for path in sources("planner") if within(module_name(path), EXECUTOR_MAY)]
    names = ["planner", *(module_name(path) for path in [*light, *sources("executor", "compress")])]
    return [name for name in names if not ADAPTERS.fullmatch(name)]


@pytest.mark.parametrize(
    "blocked", [OPTIONAL, *((name,) for name in ("cupy", "mpi4py", "cotengra", "networkx"))]
)
def test_light_modules_import_without_optional_libraries(blocked: tuple[str, ...]) -> None:
    done = import_blocked(blocked, numpy_only_modules())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("blocked", [("cupy",), ("mpi4py",), ("cupy", "mpi4py")])
def test_the_planner_imports_without_devices_and_mpi(blocked: tuple[str, ...]) -> None:
    done = import_blocked(blocked, [module_name(path) for path in sources("planner")])
    assert done.returncode == 0, done.stderr


def test_blocking_an_import_works() -> None:
    assert "numpy is blocked" in import_blocked(("numpy",), ["tnplan.executor.device.cpu.device"]).stderr


def test_help_of_the_group_imports_no_command() -> None:
    code = (
        "import sys\nfrom tnplan.cli.main import run\nrun(['--help'])\n"
        "heavy = {'numpy', 'cotengra', 'rich', 'matplotlib', 'numba', 'msgspec'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_files_are_short() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in sources(*PACKAGES, "tests", "benchmarks")}
    assert {str(path): lines for path, lines in lengths.items() if lines > LINES_LIMIT} == {}


def test_files_say_what_they_do() -> None:
    silent = [str(path) for path in sources(*PACKAGES) if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def test_no_path_of_a_machine_stands_in_the_repository() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("needs a git checkout, which this is not")
    machine = re.compile(r"(?<![\w.])/(work|tmp|root|home)/\w")
    found = []
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in {".npz", ".npy", ".png"} or not path.is_file() or path == Path(__file__).resolve():
            continue
        found += [f"{name}: {match.group()}" for match in machine.finditer(path.read_text(errors="replace"))]
    assert found == []


def test_no_rank_waits_for_a_whole_device() -> None:
    """CUDA's wait for a device waits for its neighbours in the process, which may wait for this rank."""
    wait = re.compile(r"deviceSynchronize|Device\([^)]*\)\.synchronize|cuCtxSynchronize")
    files = (ROOT / "executor").rglob("*.py")
    assert [str(path.relative_to(ROOT)) for path in files if wait.search(path.read_text())] == []


def test_help_equals_the_document(tmp_path: Path) -> None:
    """In a process of its own: a command that was called without its group keeps other options of help."""
    new = tmp_path / "cli.md"
    subprocess.run([sys.executable, "-m", "tnplan.cli.document", str(new)], cwd=ROOT, check=True)
    golden = ROOT / "docs" / "cli.md"
    assert new.read_text() == golden.read_text(), "run 'python -m tnplan.cli.document'"


def test_links_of_the_documents_exist() -> None:
    broken = []
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
            if "://" not in target and not (path.parent / target).exists():
                broken.append(f"{path.name}: {target}")
    assert broken == []


def test_written_versions_equal_the_constants(tmp_path: Path) -> None:
    from tnplan.api.execute import execute
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
        blocks = re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / document).read_text(), re.DOTALL)
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
    text = (ROOT / "docs" / "gpu.md").read_text()
    rows = re.findall(r"^\| (\d+) \|((?: \d+ / \d+ \|){4})$", text, re.MULTILINE)
    assert len(rows) > 5
    for k, cells in rows:
        rates = [[curve.flop_per_s[curve.k.index(int(k))] / 1e12 for curve in pair] for pair in curves]
        assert cells == "".join(f" {direct:.0f} / {apart:.0f} |" for direct, apart in rates), k
    tier = profile.tiers[0]
    listed = [f"{rate / 1e9:.0f}" for rate in tier.curve_bytes_per_s]
    assert f"{', '.join(listed[:-1])} and {listed[-1]} GB/s" in text
