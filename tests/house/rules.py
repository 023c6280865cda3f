"""The rules of the house as functions from a checkout's root to the places that break them.

Every rule takes the root, so that a test can hold it against a small tree that breaks it.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDERS = ("planner", "executor", "compress")
"""Packages of `tnplan` that have a link of the same name at the top of the repository."""
ENGINES = ("bond_limited", "contraction", "pauli", "peps", "sbd", "statevector")
LEAST_ENTRIES, MOST_ENTRIES = 4, 25
MOST_PARAMETERS = 8
LONGEST_ENTRY = 120
"""Characters of a line of the changelog."""
GPU_LIBRARIES = ("cupy", "cupy_backends", "cuda", "nvmath", "cuquantum", "cutensor")
FLOORS = (
    "common", "compress", "circuits", "planner", "executor", "reporting", "jobs", "questions", "calls", "cli",
)  # fmt: skip
"""The folders of tnplan. Each may import itself and those before it."""
NEVER = {
    "circuits": ("tnplan.compress",),
    "planner": ("tnplan.compress", "cupy", "mpi4py"),
    "executor": tuple(f"tnplan.planner.{name}" for name in ("search", "passes", "projection", "workloads")),
}
"""What a folder does not import besides: planning knows no device, and the executor knows no planning."""
EXECUTOR_MAY = tuple(f"tnplan.{name}" for name in (
    "common", "circuits", "planner.schedule", "planner.networks", "planner.hardware",
))  # fmt: skip
"""What the verifier may import as well: what schedules are made of, and nothing of how they are made."""
VERIFY = tuple(f"tnplan.planner.passes.{name}" for name in ("verify", "verifier", "chain_checks"))
STAGES = tuple(tuple(f"tnplan.planner.passes.{name}" for name in names) for names in (
    ("tree",), ("sharding",), ("fuse", "chains_in_place", "chunk_exchanges"), ("lowering",),
))  # fmt: skip
"""Each may import itself and those before it."""
DEVICE = "tnplan.executor.device"
DEVICE_LEVELS = (
    ("protocols",), ("cpu", "cuda.runtime"), ("cuda",), ("comm",), ("energy", "expected_gpu", "select"),
)  # fmt: skip
"""Each may import itself and those below; those of one level do not import each other."""


@dataclass(frozen=True)
class Import:
    """A module, the line of an import in it, and the full name of what is imported."""

    module: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.name}"


def within(name: str, *packages: str) -> bool:
    """Whether a dotted name is one of the packages, or is inside one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def sources(root: Path) -> list[Path]:
    """All Python files of the product."""
    return sorted((root / "tnplan").rglob("*.py"))


def module_name(path: Path, root: Path) -> str:
    """The dotted name under which a file is imported."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, root: Path) -> Iterator[Import]:
    """Everything that a file imports anywhere in it, relative imports resolved."""
    module = module_name(path, root)
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(module, node.lineno, f"{stem}.{alias.name}")
        elif isinstance(node, ast.Call) and last_name(node.func).endswith(("import_module", "__import__")):
            name = node.args[0] if node.args else None
            if isinstance(name, ast.Constant):
                yield Import(module, node.lineno, str(name.value))


def last_name(node: ast.expr) -> str:
    """Of `a.b.c` c, of a name itself; nothing of any other expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def at_import(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes of a file, but for those within functions."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.FunctionDef)]


@cache
def all_imports(root: Path) -> tuple[Import, ...]:
    """Those of all files of the product."""
    return tuple(one for path in sources(root) for one in imports(path, root))


def forbidden(
    root: Path, packages: Sequence[str], others: Sequence[str], but: Sequence[str] = ()
) -> list[str]:
    """Imports of `others` in `packages`, except of what `but` names."""
    return [
        str(one)
        for one in all_imports(root)
        if within(one.module, *packages) and within(one.name, *others) and not within(one.name, *but)
    ]


def bare_imports(root: Path, folders: Sequence[str] = ("tests", "benchmarks")) -> list[str]:
    """Imports of `planner`, `executor` or `compress` without `tnplan`, also in tests and benchmarks."""
    files = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    found = [*all_imports(root), *(one for path in files for one in imports(path, root))]
    return [str(one) for one in found if within(one.name, *FOLDERS)]


def floor_arrows(root: Path) -> list[str]:
    """Imports that go up in the house, or that `NEVER` names."""
    broken = []
    for number, floor in enumerate(FLOORS):
        above = [f"tnplan.{name}" for name in FLOORS[number + 1 :]]
        broken += forbidden(root, [f"tnplan.{floor}"], [*above, *NEVER.get(floor, ())])
    return broken


def circles(root: Path) -> list[str]:
    """Files that import each other in a circle while they are imported, or by their types.

    What a function imports when it is called is not counted: so libraries and kernels come late.
    """
    known = {module_name(path, root): path for path in sources(root)}
    arrows: dict[str, set[str]] = {}
    for module, path in known.items():
        names = {
            f"{node.module}.{alias.name}"
            for node in at_import(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }  # fmt: skip
        targets = {name if name in known else name.rpartition(".")[0] for name in names}
        arrows[module] = targets & known.keys() - {module}
    # Whoever imports nothing that is left is in no circle, and neither is who imports only such.
    while free := {module for module, targets in arrows.items() if not targets & arrows.keys()}:
        arrows = {module: targets for module, targets in arrows.items() if module not in free}
    # The same from the other side: whom nobody imports.
    while free := arrows.keys() - set().union(*arrows.values()):
        arrows = {module: targets for module, targets in arrows.items() if module not in free}
    return sorted(arrows)


def lost_names(root: Path) -> list[str]:
    """Modules that the rules of imports name and that are not there: such a rule checks nothing."""
    named = [
        *(f"tnplan.{floor}" for floor in FLOORS), *(name for names in NEVER.values() for name in names),
        *EXECUTOR_MAY, *VERIFY, *(name for stage in STAGES for name in stage),
        *(f"tnplan.executor.{engine}" for engine in ENGINES),
        *(f"{DEVICE}.{name}" for level in DEVICE_LEVELS for name in level),
    ]  # fmt: skip
    paths = {name: root / name.replace(".", "/") for name in named if within(name, "tnplan")}
    return [name for name, path in paths.items() if not (path.is_dir() or path.with_suffix(".py").is_file())]


def device_level(module: str) -> tuple[int, str] | None:
    """The level of a module of the device layer and its package there, or None for what has none."""
    found = None
    for level, packages in enumerate(DEVICE_LEVELS):
        for package in packages:
            # `cuda.runtime` is also within `cuda`: the longest name decides.
            if within(module, f"{DEVICE}.{package}") and (found is None or len(package) > len(found[1])):
                found = level, package
    return found


def device_arrows(root: Path) -> list[str]:
    """Imports in the device layer that go up, or across a level."""
    broken = []
    for one in all_imports(root):
        here, there = device_level(one.module), device_level(one.name)
        if here and there and (there[0] > here[0] or (there[0] == here[0] and there[1] != here[1])):
            broken.append(str(one))
    return broken


def engine_arrows(root: Path) -> list[str]:
    """Engines that import each other, and devices that import an engine."""
    engines = [f"tnplan.executor.{name}" for name in ENGINES]
    broken = forbidden(root, [DEVICE], engines)
    for engine in engines:
        broken += forbidden(root, [engine], [other for other in engines if other != engine])
    return broken


def stage_arrows(root: Path) -> list[str]:
    """Passes that import a later stage, or anything of `passes` that is no stage."""
    broken = []
    for number, stage in enumerate(STAGES):
        earlier = [name for names in STAGES[: number + 1] for name in names]
        broken += forbidden(root, stage, ["tnplan.planner.passes"], earlier)
    return broken


def gpu_imports(root: Path) -> list[str]:
    """Imports of GPU libraries outside of folders named cuda, gpu or comm."""
    return [
        str(one)
        for one in all_imports(root)
        if within(one.name, *GPU_LIBRARIES) and not {"cuda", "gpu", "comm"} & set(one.module.split("."))
    ]


def gpu_sources(root: Path) -> list[str]:
    """CUDA sources outside of such folders."""
    files = (root / "tnplan").rglob("*.cu*")
    return [str(path) for path in files if not {"cuda", "gpu", "comm"} & set(path.relative_to(root).parts)]


def entries(root: Path) -> dict[str, set[Path]]:
    """The folders of the product with their entries, files and folders."""
    files = [path for path in (root / "tnplan").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    folders = {parent for path in files for parent in path.parents} - {root, *root.parents}
    return {
        folder.relative_to(root).as_posix(): {path for path in (*files, *folders) if path.parent == folder}
        for folder in sorted(folders)
    }


def full_folders(root: Path) -> list[str]:
    """Folders with more entries than one can take in at a glance."""
    counts = {name: len(paths) for name, paths in entries(root).items()}
    return [f"{name} has {count} entries" for name, count in counts.items() if count > MOST_ENTRIES]


def small_folders(root: Path) -> list[str]:
    """Folders with fewer than four entries, which join their neighbours.

    A folder in it is an entry too. `__init__.py` is one only beside folders.
    """
    broken = []
    for name, paths in entries(root).items():
        has_folders = any(path.is_dir() for path in paths)
        count = sum(has_folders or path.name != "__init__.py" for path in paths)
        if count < LEAST_ENTRIES:
            broken.append(f"{name} has {count} entries")
    return broken


def repeated_classes(root: Path) -> list[str]:
    """Names that stand for two classes of planner, executor and compress."""
    places = defaultdict(list)
    for path in sources(root):
        module = module_name(path, root)
        if within(module, *(f"tnplan.{name}" for name in FOLDERS)):
            for name in re.findall(r"^class (\w+)[(:]", path.read_text(), re.MULTILINE):
                places[name].append(module)
    return [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]


@cache
def long_signatures(root: Path) -> list[str]:
    """Functions with more parameters than a reader keeps in mind.

    Those of commands and of numba kernels are not counted, nor are keyword-only options of public functions.
    """
    broken = []
    for path in sources(root):
        module = module_name(path, root)
        if within(module, "tnplan.cli") or module.endswith("_kernel"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            given = [*node.args.posonlyargs, *node.args.args]
            counted = len(given) - (bool(given) and given[0].arg in ("self", "cls"))
            if node.name.startswith("_"):
                counted += len(node.args.kwonlyargs)
            if counted > MOST_PARAMETERS:
                broken.append(f"{module}.{node.name} at line {node.lineno} has {counted} parameters")
    return broken


def unlike_twins(root: Path) -> list[str]:
    """Files that `protocols` and `cpu` have, where `cuda` has no file or folder of that name."""
    device = root / "tnplan" / "executor" / "device"
    stems = {name: {path.stem for path in (device / name).iterdir()} for name in ("protocols", "cpu")}
    of_a_gpu = {path.stem for path in (device / "cuda").rglob("*")}
    lonely = sorted((stems["protocols"] & stems["cpu"]) - of_a_gpu)
    return [f"tnplan/executor/device/cpu/{stem}.py has no twin in cuda" for stem in lonely]


def changelog_faults(root: Path) -> list[str]:
    """Long lines of the changelog, releases with two sections, and a first that is not Unreleased."""
    text = (root / "CHANGELOG.md").read_text()
    broken = [
        f"CHANGELOG.md:{number} has {len(line)} characters"
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > LONGEST_ENTRY
    ]
    releases = re.findall(r"^## (\S+)", text, re.MULTILINE)
    broken += [f"CHANGELOG.md: {name} twice" for name in dict.fromkeys(releases) if releases.count(name) > 1]
    return broken + (["CHANGELOG.md begins with no Unreleased"] if releases[:1] != ["Unreleased"] else [])


@cache
def reaching_tests(root: Path) -> list[str]:
    """Tests that import another test, or import, use or replace what is private to its module."""
    broken = []
    for path in sorted((root / "tests").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        tree = ast.parse(path.read_text())
        imported = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                stem = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                for alias in node.names:
                    full = f"{stem}{alias.name}"
                    imported[alias.asname or alias.name.split(".")[0]] = full
                    if any(is_private(part) for part in full.split(".")):
                        broken.append(f"{name}:{node.lineno} imports {full}")
                    if full.startswith("tests.") and ".test_" in full:
                        broken.append(f"{name}:{node.lineno} imports a test, {full}")
        broken += [
            f"{name}:{line} uses {imported[owner]}.{attribute}"
            for line, owner, attribute in named_attributes(tree)
            if is_private(attribute) and within(imported.get(owner, ""), "tnplan", "tests")
        ]
    return broken


def named_attributes(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Line, owner and name of every `owner.name` and `setattr(owner, "name", ...)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.lineno, node.value.id, node.attr
        elif isinstance(node, ast.Call) and last_name(node.func) == "setattr":
            owner, *others = node.args or [None]
            if isinstance(owner, ast.Name) and others and isinstance(others[0], ast.Constant):
                yield node.lineno, owner.id, str(others[0].value)


def is_private(name: str) -> bool:
    """Whether a name begins with one underscore."""
    return name.startswith("_") and not name.startswith("__")
