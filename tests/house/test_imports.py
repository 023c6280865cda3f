"""Who imports whom, and what imports without optional libraries; every rule fails where it is broken."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.house import rules
from tests.support.root import ROOT

OPTIONAL = (
    "cupy", "mpi4py", "cotengra", "networkx", "msgspec", "numba", "matplotlib", "click", "rich", "qiskit",
    "threadpoolctl",
)  # fmt: skip
IMPORT_THEIR_LIBRARY = ("cuda", "gpu", "comm")
"""Folders whose modules import an optional library, and are imported on demand."""

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

ARROWS: dict[str, tuple[Callable[[Path], list[str]], str, str]] = {
    "floors": (
        rules.floor_arrows,
        "tnplan/planner/search/bad.py",
        "from tnplan.executor import device",
    ),
    "compress": (
        rules.floor_arrows,
        "tnplan/compress/bad.py",
        "from tnplan.planner.networks import network",
    ),
    "executor": (
        rules.floor_arrows,
        "tnplan/executor/bad.py",
        "import tnplan.planner.passes.pipeline",
    ),
    "verify": (
        lambda root: rules.forbidden(root, rules.VERIFY, ["tnplan"], [*rules.VERIFY, *rules.EXECUTOR_MAY]),
        "tnplan/planner/passes/verifier.py",
        "from .lowering import liveness",
    ),
    "bare": (rules.bare_imports, "tests/bad.py", "from planner import passes"),
    "devices": (
        rules.device_arrows,
        "tnplan/executor/device/cpu/bad.py",
        "from tnplan.executor.device.comm import mpi",
    ),
    "runtime": (
        rules.device_arrows,
        "tnplan/executor/device/cuda/runtime/bad.py",
        "import tnplan.executor.device.cuda.copy",
    ),
    "siblings": (
        rules.device_arrows,
        "tnplan/executor/device/cuda/runtime/bad.py",
        "import tnplan.executor.device.cpu.copy",
    ),
    "choice": (
        rules.device_arrows,
        "tnplan/executor/device/comm/bad.py",
        "from tnplan.executor.device.select import open_device",
    ),
    "device": (
        rules.engine_arrows,
        "tnplan/executor/device/cuda/bad.py",
        "from tnplan.executor.sbd import solver",
    ),
    "engines": (
        rules.engine_arrows,
        "tnplan/executor/pauli/bad.py",
        "import tnplan.executor.statevector.simulator",
    ),
    "stages": (
        rules.stage_arrows,
        "tnplan/planner/passes/tree/bad.py",
        "from tnplan.planner.passes.fuse import fuse",
    ),
    "pipeline": (
        rules.stage_arrows,
        "tnplan/planner/passes/chunk_exchanges.py",
        "from tnplan.planner.passes import pipeline",
    ),
    "gpu": (rules.gpu_imports, "tnplan/executor/statevector/bad.py", "def f():\n    import cupy"),
}
"""Each rule with a file that breaks it."""


@pytest.mark.parametrize("name", ARROWS)
def test_imports_go_one_way(name: str) -> None:
    assert ARROWS[name][0](ROOT) == []


@pytest.mark.parametrize("name", ARROWS)
def test_an_import_the_wrong_way_is_seen(name: str, tmp_path: Path) -> None:
    rule, file, text = ARROWS[name]
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(f"{text}\n")
    assert len(rule(tmp_path)) == 1


def test_the_rules_name_what_is_there(tmp_path: Path) -> None:
    assert rules.lost_names(ROOT) == []
    assert "tnplan.planner.passes.tree" in rules.lost_names(tmp_path)


def test_no_files_import_each_other_in_a_circle() -> None:
    assert rules.circles(ROOT) == []


def test_a_circle_of_files_is_seen(tmp_path: Path) -> None:
    folder = tmp_path / "tnplan" / "common"
    folder.mkdir(parents=True)
    texts = {
        "a": "from tnplan.common.b import B", "b": "from tnplan.common import c",
        "d": "from tnplan.common.a import A",
        "c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tnplan.common.a import A",
        "e": "def f():\n    from tnplan.common.g import G", "g": "from tnplan.common.e import f",
    }  # fmt: skip
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(f"{text}\n")
    assert rules.circles(tmp_path) == ["tnplan.common.a", "tnplan.common.b", "tnplan.common.c"]


def test_the_scan_of_imports_sees_every_form(tmp_path: Path) -> None:
    path = tmp_path / "tnplan" / "planner" / "passes" / "bad.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "import tnplan.cli\nfrom executor import device\ndef f():\n    from mpi4py import MPI\n"
        "from .. import errors\nfrom . import tree\nimport importlib\nimportlib.import_module('cupy')\n"
    )
    assert {one.name for one in rules.imports(path, tmp_path)} == {
        "tnplan.cli", "executor.device", "tnplan.planner.errors", "tnplan.planner.passes.tree", "importlib",
        "mpi4py.MPI", "cupy",
    }  # fmt: skip


def import_blocked(blocked: tuple[str, ...], modules: list[str]) -> subprocess.CompletedProcess[str]:
    code = BLOCKED_IMPORT.format(blocked=set(blocked), modules=modules)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)


def numpy_only_modules() -> list[str]:
    """What imports with NumPy alone: the executor, the codecs, and what the executor uses of the planner."""
    names = [rules.module_name(path, ROOT) for path in rules.sources(ROOT)]
    light = ("tnplan.executor", "tnplan.compress", *rules.EXECUTOR_MAY)
    return [
        name
        for name in names
        if rules.within(name, *light)
        and not name.endswith("_kernel")
        and (
            rules.within(name, "tnplan.compress") or not set(IMPORT_THEIR_LIBRARY) & set(name.split(".")[:-1])
        )
    ]


@pytest.mark.parametrize(
    "blocked", [OPTIONAL, *((name,) for name in ("cupy", "mpi4py", "cotengra", "networkx"))]
)
def test_light_modules_import_without_optional_libraries(blocked: tuple[str, ...]) -> None:
    done = import_blocked(blocked, numpy_only_modules())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("blocked", [("cupy",), ("mpi4py",), ("cupy", "mpi4py")])
def test_the_planner_imports_without_devices_and_mpi(blocked: tuple[str, ...]) -> None:
    names = [rules.module_name(path, ROOT) for path in rules.sources(ROOT)]
    done = import_blocked(blocked, [name for name in names if rules.within(name, "tnplan.planner")])
    assert done.returncode == 0, done.stderr


def test_blocking_an_import_works() -> None:
    done = import_blocked(("numpy",), ["tnplan.executor.device.cpu.device"])
    assert "numpy is blocked" in done.stderr


def test_help_of_the_group_imports_no_command() -> None:
    code = (
        "import sys\nfrom tnplan.cli.main import run\nrun(['--help'])\n"
        "heavy = {'numpy', 'cotengra', 'rich', 'matplotlib', 'numba', 'msgspec'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
