"""The commands of an installed wheel, with the lowest or the newest versions of all dependencies.

As a script: `python -m tests.support.robustness.versions lowest|newest FOLDER [PYTHON]` makes an environment
there with this Python, or another one, and runs the commands in it; it ends with status 0 where all do.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.support.robustness.good_files import make_files
from tests.support.root import ROOT

SOURCES = ("pyproject.toml", "README.md", "LICENSE", "tnplan", "planner", "executor", "compress")
WHICH = ("lowest", "newest")
COMMANDS = (
    "plan path.json --devices 4 -o o.json",
    "show o.json --plot o.svg",
    "search net.json --unlimited --time 0.1 -o searched.json",
    "report path.json --devices 1,2 --hardware cpu --html o.html",
    "execute four.json --device cpu -o result.npy",
    "pauli c.qsim --observable Z0 --device cpu",
    "statevector c.qsim --device cpu",
    "network c.qsim -o n.json",
    "sbd h.fcidump --alpha a.txt --device cpu -o o.npz",
    "compress a.npy -o o.tnz",
    "decompress o.tnz -o back.npy",
    "workload lattice --rows 3 --columns 3 --layers 4 -o w.json",
    "plan missing.json",
    "plan",
    "--version",
)
STATUSES = {"plan missing.json": 2, "plan": 2}


def lowest() -> list[str]:
    """Each dependency at its lower bound, as pip takes it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [one.replace(">=", "==") for one in project["dependencies"]]


def install(which: str, folder: Path, python: str = sys.executable) -> str:
    """Make the environment in the folder; what went wrong, empty where nothing did."""
    subprocess.run([python, "-m", "venv", str(folder / which)], check=True)
    sources = folder / f"{which}-sources"
    sources.mkdir()
    # A copy: building a wheel leaves files in the folder of the sources.
    subprocess.run(["cp", "-a", *(str(ROOT / name) for name in SOURCES), str(sources)], check=True)
    more = lowest() if which == "lowest" else []
    done = subprocess.run(
        [str(folder / which / "bin" / "python"), "-m", "pip", "install", "--quiet", str(sources), *more],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stderr[-2000:] if done.returncode else ""


def faults(which: str, folder: Path) -> list[str]:
    """The commands that do not end as they should in the environment, with the end of what they say."""
    work = folder / f"{which}-work"
    work.mkdir()
    make_files(work)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = []
    for line in COMMANDS:
        done = subprocess.run(
            [str(folder / which / "bin" / "python"), "-m", "tnplan", *line.split()], cwd=work, check=False,
            capture_output=True, text=True, env=variables,
        )  # fmt: skip
        if done.returncode != STATUSES.get(line, 0) or "Traceback" in done.stderr:
            found.append(f"{line}: status {done.returncode}: {done.stderr[-300:]}")
    return found


if __name__ == "__main__":
    kind, place = sys.argv[1], Path(sys.argv[2])
    assert kind in WHICH, kind
    place.mkdir(exist_ok=True)
    wrong = install(kind, place, *sys.argv[3:])
    said = [wrong] if wrong else faults(kind, place)
    print("\n".join(said))
    sys.exit(bool(said))
