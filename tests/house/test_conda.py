"""The conda recipe says what pyproject.toml says: version, command, dependencies and their bounds."""

from __future__ import annotations

import re
import tomllib

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
