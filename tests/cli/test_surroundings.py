"""Files that are none, names that are orders to a terminal, and places where nothing can be written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.rules import module_name, sources
from tests.support.bad_input import make_folder, refused, swap
from tests.support.root import ROOT
from tnplan.cli.main import run

ORDER = "\x1b]0;owned\x07\x1b[31m[/]$\\frac{$ \u202e"
READERS = (
    "plan BAD -o out.json", "show BAD", "execute BAD -o r.npy", "execute four.json --tensors BAD -o r.npy",
    "network BAD -o n.json", "plan path.json --hardware BAD -o out.json", "compress BAD",
    "decompress BAD -o r.npy", "sbd BAD --alpha four.json -o r.npz", "statevector BAD",
    "pauli BAD --observable Z0",
)  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("line", READERS)
@pytest.mark.parametrize("kind", ["device", "pipe", "directory"])
def test_what_is_no_file_is_refused(capsys: pytest.CaptureFixture[str], line: str, kind: str) -> None:
    name = {"device": "/dev/zero", "pipe": "pipe", "directory": "folder"}[kind]
    os.mkfifo("pipe")
    status = run(line.replace("BAD", name).split())
    _, err = capsys.readouterr()
    assert status == 2
    assert len(err.splitlines()) == 1
    assert f"{name}: cannot be read (it is a d" in err


@pytest.mark.parametrize("name", ["path.json", "four.json"])
def test_json_that_is_deep_or_says_a_thing_twice(capsys: pytest.CaptureFixture[str], name: str) -> None:
    document = json.loads(Path(name).read_text())
    document["meta"] = eval("[" * 90 + "]" * 90)
    Path("deep.json").write_text(json.dumps(document).replace("[[[]]]", "[" * 900 + "]" * 900))
    Path("twice.json").write_text(Path(name).read_text().replace('"name":', '"name": "x", "name":', 1))
    command = "plan {} -o out.json" if name == "path.json" else "show {}"
    refused(capsys, command.format("deep.json"), "nested too deeply")
    refused(capsys, command.format("twice.json"), "twice.json: name: appears twice in one object")


@pytest.mark.parametrize("length", [1, pytest.param(100_000, marks=pytest.mark.slow)])
def test_names_give_the_terminal_no_orders(capsys: pytest.CaptureFixture[str], length: int) -> None:
    document = json.loads(Path("path.json").read_text())
    index = ORDER + "e" * length
    text = json.dumps({**document, "name": ORDER * length}).replace('"e"', json.dumps(index))
    Path("named.json").write_text(text)
    swap("h.toml", 'name = "cpu"', f"name = {json.dumps(ORDER)}")(Path())
    for line in (
        "plan named.json --devices 4 --ranks-per-group 4 --hardware h.toml -o s.json",
        "show s.json --plot s.svg",
        "report named.json --devices 1,2 --hardware h.toml --html r.html",
        "report named.json path.json --devices 1,2 --hardware h.toml --hardware cpu --html r.html",
    ):  # fmt: skip
        assert run(line.split()) == 0, capsys.readouterr().err
        out, err = capsys.readouterr()
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", out + err)
        assert len(out) < 50_000
    assert Path("r.html").stat().st_size < 2e6


@pytest.mark.usefixtures("folder")
def test_a_terminal_of_ascii_alone() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "tnplan", "plan", "path.json", "--devices", "4", "--ranks-per-group", "4"],
        capture_output=True, env=environment, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"process grid 2 x 2" in done.stdout


WITHOUT = """
import importlib.metadata, sys
found = importlib.metadata.version
def version(name):
    if name == "tnplan":
        raise importlib.metadata.PackageNotFoundError(name)
    return found(name)
importlib.metadata.version = version
import numba.core.caching as caching
class Nowhere(caching._CacheLocator):
    @classmethod
    def from_function(cls, function, file): return None
caching.CacheImpl._locator_classes = [Nowhere]
from tnplan.cli.main import run
assert run(["plan", "path.json", "-o", "s.json"]) == 0
import tnplan, importlib
for name in sys.argv[1:]:
    importlib.import_module(name)
assert tnplan.__version__[0].isdigit()
"""


@pytest.mark.usefixtures("folder")
def test_nothing_can_be_written_and_nothing_is_installed() -> None:
    """All kernels where numba finds no place for its files: installation, home and all else are read-only."""
    environment = {**os.environ, "TNPLAN_CACHE_DIR": "0", "HOME": "/nonexistent", "PYTHONPATH": str(ROOT)}
    kernels = [module_name(path, ROOT) for path in sources(ROOT) if path.stem.endswith("_kernel")]
    assert len(kernels) > 20
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *kernels],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
