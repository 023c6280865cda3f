"""The commands with the lowest versions of all dependencies that pyproject.toml allows.

As a script: `python -m tests.support.robustness.lowest_versions FOLDER` makes an environment there with the
running Python and runs the commands in it; it ends with status 0 where all do.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tests.support.robustness.good_files import make_files
from tests.support.root import ROOT

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
DRAWING = ("show o.json --plot o.svg", "report path.json --devices 1,2 --hardware cpu --html o.html")
"""What needs the extra `plot`, and says so in an environment without it."""


def lowest() -> list[str]:
    """Each dependency, and those of the extra `plot`, at its lower bound, as pip takes it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["plot"]]
    return [one.replace(">=", "==") for one in wanted]


def install(folder: Path, wanted: Sequence[str], python: str = sys.executable) -> str:
    """Make an environment that has these and what they need; what went wrong, empty where nothing did.

    Pip is that of `python`. Modules are compiled when the commands import them, which is few of all.
    """
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    done = subprocess.run(
        [python, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet",
         "--no-compile", *wanted],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stderr[-2000:] if done.returncode else ""


def faults(environment: Path, work: Path, sources: Path | None = ROOT) -> list[str]:
    """The commands that do not end as they should, with the end of what they say.

    They run from `sources`, or (None) from the tnplan that is installed in the environment, without extras.
    """
    refused = () if sources is not None else DRAWING
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if sources is not None:
        surroundings["PYTHONPATH"] = str(sources)
    work.mkdir()
    make_files(work)
    found = []
    for line in COMMANDS:
        done = subprocess.run(
            [str(environment / "bin" / "python"), "-m", "tnplan", *line.split()], cwd=work, check=False,
            capture_output=True, text=True, env=surroundings,
        )  # fmt: skip
        wanted = 2 if line in refused else STATUSES.get(line, 0)
        says = "tnplan[plot]" in done.stderr or line not in refused
        if done.returncode != wanted or not says or "Traceback" in done.stderr:
            found.append(f"{line}: status {done.returncode}: {done.stderr[-300:]}")
    return found


if __name__ == "__main__":
    place = Path(sys.argv[1])
    wrong = install(place / "lowest", lowest())
    said = [wrong] if wrong else faults(place / "lowest", place / "work")
    print("\n".join(said))
    sys.exit(bool(said))
