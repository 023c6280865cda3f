"""The wheel and the sdist: built, installed into empty environments, and tried by the commands.

As a script: `python -m tests.support.robustness.packages FOLDER [PYTHON ...]` does so with each Python
(default: the running one). It ends with status 0 where all commands end as they should.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from tests.support.robustness.lowest_versions import faults, install
from tests.support.root import ROOT

SOURCES = (
    "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CITATION.cff", "CHANGELOG.md",
    "CONTRIBUTING.md", "Containerfile", "Makefile", "tnplan", "compress", "executor", "planner", "tests",
    "docs", "packaging", "paths",
)  # fmt: skip
"""What a build needs; it runs in a copy, so that nothing is left in the checkout."""


def build(folder: Path) -> list[Path]:
    """The wheel and the sdist, made from a copy of the sources: `python -m build`."""
    copy = folder / "sources"
    copy.mkdir(parents=True)
    names = [str(ROOT / name) for name in SOURCES]
    subprocess.run(["cp", "-a", *names, str(copy)], check=True)
    command = [sys.executable, "-m", "build", "--outdir", str(folder / "dist"), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:] or done.stdout[-2000:])
    shutil.rmtree(copy)
    return sorted((folder / "dist").iterdir())


def faults_of_contents(wheel: Path, sdist: Path) -> list[str]:
    """What the packages should not have, and what the sdist lacks: tests, documents and the changelog."""
    with zipfile.ZipFile(wheel) as file:
        tops = {name.partition("/")[0] for name in file.namelist()}
    wrong = [f"the wheel has {name}" for name in tops if not name.startswith("tnplan")]
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        "CHANGELOG.md", "CITATION.cff", "LICENSE", "tests/conftest.py", "docs/index.md", "tnplan/cli/main.py",
    }  # fmt: skip
    made = {name for name in names if "__pycache__" in name or name.startswith("docs/_build")}
    wrong += [f"the sdist lacks {name}" for name in wanted - names]
    return wrong + [f"the sdist has {name}" for name in made]


def faults_of(package: Path, python: str, folder: Path) -> list[str]:
    """What goes wrong when a package is installed into an empty environment, and its commands run there."""
    environment = folder / "environment"
    wrong = install(environment, [str(package)], python)
    if wrong:
        return [f"{package.name}: {wrong}"]
    return [f"{package.name}: {fault}" for fault in faults(environment, folder / "work", sources=None)]


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve()
    packages = build(place)
    said = faults_of_contents(*sorted(packages, key=lambda package: package.suffix, reverse=True))
    for package in packages:
        for number, python in enumerate(sys.argv[2:] or [sys.executable]):
            found = faults_of(package, python, place / f"{number}-{package.name}")
            print(f"{package.name} with {python}: {'; '.join(found) or 'all commands end as they should'}")
            said += found
    sys.exit(bool(said))
