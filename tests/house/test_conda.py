"""The conda recipe says what pyproject.toml says: version, command, dependencies and their bounds."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from hashlib import sha256
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.support.root import ROOT

RECIPE = (ROOT / "packaging/conda/recipe.yaml").read_text(encoding="utf-8")
NAMES = {"msgspec": "msgspec-python"}
"""Packages that conda-forge has under another name."""


def listed(section: str) -> dict[str, str]:
    """The entries of a list of the recipe, by name, with their bounds."""
    block = re.search(rf"^( +){section}:\n((?:\1 +.*\n)+)", RECIPE, re.MULTILINE)
    assert block is not None
    entries = re.findall(r"^ +- (\S+) ?(\S*)$", block[2], re.MULTILINE)
    return dict(entries)


def test_the_recipe_agrees_with_the_project() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, build = document["project"], document["build-system"]["requires"]
    assert re.findall(r'^  version: "(.+)"$', RECIPE, re.MULTILINE) == [project["version"]]
    commands = [f"{name} = {target}" for name, target in project["scripts"].items()]
    assert re.findall(r"^      - (\S+ = \S+)$", RECIPE, re.MULTILINE) == commands
    assert f"license: {project['license']}\n" in RECIPE
    assert f"summary: {project['description']}\n" in RECIPE
    wanted = {}
    for requirement in project["dependencies"]:
        name, bounds = re.fullmatch(r"([\w.-]+?)([<>=].*?)?(?:;.*)?", requirement).groups()  # type: ignore[union-attr]
        wanted[NAMES.get(name, name)] = bounds or ""
    run, host = listed("run"), listed("host")
    assert run.pop("python").split(",")[0] == project["requires-python"]
    assert run == wanted
    assert host.pop("python") == project["requires-python"]
    assert {f"{name}{bounds}" for name, bounds in host.items()} == {*build, "pip"}


def test_a_recipe_that_lacks_a_dependency_is_seen() -> None:
    assert listed("run")["numba"] == ">=0.62,<0.69"
    assert listed("host")["pip"] == ""


def channel(folder: Path) -> str:
    """A channel with the Python that runs, its pip and its setuptools: what a build asks for."""
    import rattler_build

    version = ".".join(map(str, sys.version_info[:3]))
    site = f"lib/python{version.rpartition('.')[0]}/site-packages"
    records = {}
    for name in ("python", "pip", "setuptools"):
        files = folder / name
        if name == "python":
            # Starts the Python that runs, which takes the folder that it seems to be in for its own.
            (files / "bin").mkdir(parents=True)
            script = f'#!/bin/bash\nexec -a "$0" {Path(sys.executable).resolve()} "$@"\n'
            (files / "bin/python").write_text(script)
            (files / "bin/python").chmod(0o755)
            (files / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
        else:
            found = distribution(name)
            for path in found.files or ():
                if ".." not in path.parts:
                    (files / site / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(str(found.locate_file(path)), files / site / path)
        number = version if name == "python" else distribution(name).version
        place = folder / "linux-64"
        made = rattler_build.assemble_package(name, number, "linux-64", "0", place, files_dir=files)
        record = {"name": name, "version": number, "build": "0", "build_number": 0, "depends": []}
        content = Path(made.path).read_bytes()
        record |= {"size": len(content), "sha256": sha256(content).hexdigest(), "subdir": "linux-64"}
        records[Path(made.path).name] = record
    for platform, packages in (("linux-64", records), ("noarch", {})):
        (folder / platform).mkdir(exist_ok=True)
        document = {"info": {"subdir": platform}, "packages": {}, "packages.conda": packages}
        (folder / platform / "repodata.json").write_text(json.dumps(document))
    return folder.as_uri()


@pytest.mark.slow
def test_the_recipe_is_built(tmp_path: Path) -> None:
    """By rattler-build, without a network; dependencies are not there, and so the package's tests not run."""
    rattler_build = pytest.importorskip("rattler_build", reason="needs py-rattler-build")
    pytest.importorskip("setuptools", reason="needs setuptools")
    sources = tmp_path / "sources"
    sources.mkdir()
    names = ("pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "tnplan", "packaging")
    subprocess.run(["cp", "-a", *(str(ROOT / name) for name in names), str(sources)], check=True)
    recipe = rattler_build.Stage0Recipe.from_file(sources / "packaging/conda/recipe.yaml")
    results = recipe.run_build(
        output_dir=tmp_path / "output", channels=[channel(tmp_path / "channel")],
        tool_config=rattler_build.ToolConfiguration(test_strategy="skip", use_sharded=False),
    )  # fmt: skip
    (package,) = (Path(path) for result in results for path in result.packages)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert package.name.startswith(f"tnplan-{version}-")
    with zipfile.ZipFile(package) as parts:
        kinds = {name.partition("-")[0] for name in parts.namelist() if name.endswith(".zst")}
    assert kinds == {"pkg", "info"}
