"""What an installation holds: one top-level name, every package, and the files that are no Python."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import tnplan
from tests.house import rules
from tests.support.root import ROOT

COPIED = ("pyproject.toml", "README.md", "LICENSE", "tnplan", *rules.FOLDERS)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in a wheel that is built from a copy of the sources, with the setuptools that is here."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(["cp", "-a", *(str(ROOT / name) for name in COPIED), str(folder)], check=True)
    code = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    if "No module named 'setuptools'" in done.stderr:
        pytest.skip("needs setuptools")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as file:
        return {name for name in file.namelist() if ".dist-info/" not in name}


def test_only_tnplan_is_at_the_top(wheel: set[str]) -> None:
    assert {name.partition("/")[0] for name in wheel} == {"tnplan"}


def test_the_packages_that_are_installed_are_the_folders_that_exist(wheel: set[str]) -> None:
    wanted = {rules.module_name(path, ROOT) for path in rules.sources(ROOT)}
    found = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in wheel
        if name.endswith(".py")
    }
    assert found == wanted


def test_kernels_and_profiles_are_installed(wheel: set[str]) -> None:
    wanted = {
        f"tnplan/{path.relative_to(ROOT).as_posix()}"
        for folder in rules.FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".cu", ".cuh", ".toml")
    }
    assert wanted | {"tnplan/py.typed", "tnplan/__init__.pyi", "tnplan/reporting/page.css"} == {
        name for name in wheel if not name.endswith(".py")
    }


@pytest.mark.parametrize("folder", rules.FOLDERS)
def test_the_folders_of_the_root_are_packages_of_tnplan(folder: str) -> None:
    link = ROOT / "tnplan" / folder
    assert link.is_symlink()
    assert link.readlink() == Path("..") / folder


def test_files_of_a_user_do_not_hide_the_packages(tmp_path: Path) -> None:
    for folder in rules.FOLDERS:
        (tmp_path / f"{folder}.py").write_text("raise SystemExit('the wrong file')\n")
    code = "import tnplan, tnplan.planner.passes.pipeline, tnplan.executor.device, tnplan.compress"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert tnplan.__version__ == project["version"] == version("tnplan")
