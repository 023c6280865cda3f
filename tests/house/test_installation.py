"""What an installation holds: one top-level name, every package, and the files that are no Python."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

import tnplan
from tests.house import rules
from tests.support.root import ROOT


def checkout(folder: Path) -> None:
    """A copy of the sources as they are here."""
    names = ("pyproject.toml", "README.md", "LICENSE", "tnplan", *rules.FOLDERS)
    subprocess.run(["cp", "-a", *(str(ROOT / name) for name in names), str(folder)], check=True)


def git(*arguments: str) -> None:
    """Run git on the checkout; skip where this is none."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout, which this is not")
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True)


def archive(folder: Path) -> None:
    """The zip of a commit, unpacked by Python, which makes a file of each link."""
    git("archive", "--format=zip", f"--output={folder}/main.zip", "HEAD")
    with zipfile.ZipFile(folder / "main.zip") as file:
        file.extractall(folder)


def clone_without_links(folder: Path) -> None:
    """A clone as git for Windows makes it, where each link is a file."""
    git("-c", "core.symlinks=false", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(folder / "clone"))
    for entry in (folder / "clone").iterdir():
        entry.rename(folder / entry.name)


def python_files_of_commit() -> set[str]:
    """Those of the product in the commit that is checked out."""
    git("rev-parse", "HEAD")
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD", "tnplan"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {name for name in listed.stdout.splitlines() if name.endswith(".py")}


def built(folder: Path) -> set[str]:
    """The names in the wheel that the sources in a folder give, with the setuptools that is here."""
    code = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    if "No module named 'setuptools'" in done.stderr:
        pytest.skip("needs setuptools")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as file:
        return {name for name in file.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in a wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    checkout(folder)
    return built(folder)


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
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tnplan").rglob("*")
        if path.suffix in (".cu", ".cuh", ".toml")
    }
    assert wanted | {"tnplan/py.typed", "tnplan/__init__.pyi", "tnplan/reporting/page.css"} == {
        name for name in wheel if not name.endswith(".py")
    }


@pytest.mark.parametrize("get", [archive, clone_without_links])
def test_an_installation_is_whole_where_links_are_lost(get: Callable[[Path], None], tmp_path: Path) -> None:
    get(tmp_path)
    assert not (tmp_path / "executor").is_symlink()
    assert {name for name in built(tmp_path) if name.endswith(".py")} == python_files_of_commit()


@pytest.mark.parametrize("folder", rules.FOLDERS)
def test_the_packages_are_real_folders(folder: str) -> None:
    assert (ROOT / "tnplan" / folder).is_dir()
    assert not (ROOT / "tnplan" / folder).is_symlink()
    assert (ROOT / folder).readlink() == Path("tnplan") / folder


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
