"""The command line: its frame, and the commands plan, show and report from file to file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import tnplan
from tests.conftest import SharedData
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.cli import from_signature, main
from tnplan.cli.main import run
from tnplan.cli.option_types import DEVICES
from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import save_path
from tnplan.planner.networks.tensors import random_tensors, save_tensors
from tnplan.planner.schedule.file import load_schedule
from tnplan.planner.schedule.schedule import VERSION

Capture = pytest.CaptureFixture[str]


def only_line(capsys: Capture) -> str:
    """The one line that stands on standard error; nothing may stand on standard output."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tnplan: error: ")
    assert err.count("\n") == 1
    return err


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Make `tnplan broken` a command that raises."""

    def install(error: BaseException) -> None:
        @click.command()
        def broken() -> None:
            raise error

        monkeypatch.setitem(main.COMMANDS, "broken", "Raises.")
        monkeypatch.setitem(from_signature.commands, "broken", lambda summary: broken)

    return install


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (
            InputError("x: version", "is 9", "this reads\nversion 1"),
            2,
            "x: version: is 9; this reads version 1",
        ),
        (
            RuntimeError("rank 3\nfell"),
            1,
            "RuntimeError: rank 3 fell (tnplan --debug COMMAND ... shows where)",
        ),
        (
            OSError(28, "is full"),
            1,
            "a file or a connection: cannot be used (is full); check its permissions",
        ),
        (
            OSError(13, "is secret", "f"),
            1,
            "f: cannot be used (is secret); check its permissions and the disk",
        ),
        (OSError("3 requested and 1 written"), 1, "OSError: 3 requested and 1 written (tnplan --debug"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.BadParameter("is odd", param_hint="--devices"), 2, "Invalid value for --devices: is odd"),
    ],
)
def test_an_error_is_one_line_and_a_status(
    broken: Callable[[BaseException], None], capsys: Capture, error: BaseException, status: int, line: str
) -> None:
    broken(error)
    assert run(["broken"]) == status
    found = capsys.readouterr().err.strip()
    assert found.startswith(f"tnplan: error: {line}")
    assert "\n" not in found


@pytest.mark.parametrize("error", [RuntimeError("boom"), InputError("here", "boom", "mend it")])
def test_debug_shows_the_traceback(
    broken: Callable[[BaseException], None], capsys: Capture, error: Exception
) -> None:
    broken(error)
    run(["broken"])
    assert "Traceback" not in capsys.readouterr().err
    run(["--debug", "broken"])
    assert "Traceback" in capsys.readouterr().err


# fmt: off
WRONG_USAGE: list[Row] = [
    ("nonsense", "No such command 'nonsense'", "", "see 'tnplan --help'"),
    ("plan", "Missing argument 'PATH'", "", "see 'tnplan plan --help'"),
    ("plan x.json --devices 0", "Invalid value for '--devices'",
     "0 is not in the range x>=1", "see 'tnplan plan --help'"),
    ("plan x.json --policy theirs", "Invalid value for '--policy'",
     "'theirs' is not one of", "see 'tnplan plan --help'"),
    ("plan x.json --memory lots", "--memory", "'lots", "write bytes, or a"),
    ("show x.json --colour", "No such option '--colour'", "", "see 'tnplan show --help'"),
    ("report x.json --hardware cpu", "Missing option '--devices'", "", "see 'tnplan report"),
    ("report x.json --hardware cpu --devices 1,2,x", "Invalid value for '--devices'",
     "'x' in '1,2,x' is not a number of devices", "write 1,2,4 or"),
]
# fmt: on


@table(WRONG_USAGE)
def test_wrong_usage_is_one_line(
    refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    refusal.ends(refusal.given, capsys)


def commands(
    group: click.Group, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does work, with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


def path_arguments_before(command: click.Command, parameter: click.Parameter) -> int:
    """How many arguments stand before an argument; none before an option."""
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    return arguments.index(parameter) if isinstance(parameter, click.Argument) else 0


PATHS = [
    (words, parameter, path_arguments_before(command, parameter))
    for words, command in commands(main.cli)
    for parameter in command.params
    if isinstance(parameter.type, click.Path)
]


@pytest.mark.parametrize(
    ("words", "parameter", "before"), PATHS, ids=[f"{'_'.join(words)}-{one.name}" for words, one, _ in PATHS]
)
def test_an_empty_path_is_refused(
    words: tuple[str, ...], parameter: click.Parameter, before: int, capsys: Capture
) -> None:
    is_option = isinstance(parameter, click.Option)
    assert run([*words, *["a.file"] * before, *([parameter.opts[-1]] if is_option else []), ""]) == 2
    line = only_line(capsys)
    names = parameter.opts if is_option else [parameter.metavar]
    place = " / ".join(f"'{name}'" for name in names)
    assert f"Invalid value for {place}: the path is empty; give the name of a file" in line


def test_every_command_has_its_paths() -> None:
    named = {"tensors", "model", "hardware", "base", "plot", "html", "record", "start", "save"}
    found = [parameter for _, command in commands(main.cli) for parameter in command.params]
    assert {parameter.name for _, parameter, _ in PATHS} >= named
    assert [
        parameter.name
        for parameter in found
        if parameter.name in named | {"output", "checkpoint"}
        and not isinstance(parameter.type, click.Path)
        and not getattr(parameter, "is_flag", False)
    ] == []


def test_help_and_version(capsys: Capture) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in main.COMMANDS)
    assert run(["--version"]) == 0
    assert tnplan.__version__ in capsys.readouterr().out
    assert run([]) == 2
    assert "Usage: tnplan" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("4", (4,)),
        ("8,1,2,2", (1, 2, 8)),
        ("1,2,4,...,64", (1, 2, 4, 8, 16, 32, 64)),
        ("1,...,1024", tuple(2**i for i in range(11))),
        ("3, ..., 20", (3, 6, 12, 20)),
    ],
)
def test_device_counts(text: str, counts: tuple[int, ...]) -> None:
    assert DEVICES.convert(text, None, None) == counts


@pytest.mark.parametrize("text", ["", "0", "1,,2", "...,4", "1,...", "1,...,...,8", "1-4", "-2"])
def test_device_counts_that_make_no_sense(text: str) -> None:
    with pytest.raises(click.BadParameter):
        DEVICES.convert(text, None, None)


def matrices(sliced: tuple[str, ...] = (), tensors: str | None = None) -> ContractionPath:
    network = Network((("a", "b"), ("b", "c"), ("c", "d")), ("a", "d"), dict.fromkeys("abcd", 32))
    return ContractionPath(network, ((0, 1), (3, 2)), sliced, "complex64", "three", tensors)


@pytest.fixture
def path_json(tmp_path: Path) -> Path:
    """A path.json and its tensors, in a folder of their own."""
    folder = tmp_path / "in"
    folder.mkdir()
    path = matrices(("b",), "values.npz")
    save_tensors(random_tensors(path.network, path.dtype, 1), folder / "values.npz")
    save_path(path, folder / "three.json")
    return folder / "three.json"


PLAN = ["--devices", "4", "--ranks-per-group", "4", "--memory", "30000", "--threshold", "1KiB"]


def test_plan_show_report(
    path_json: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["plan", str(path_json), *PLAN]) == 0
    out = capsys.readouterr().out
    assert "1 group of 4, process grid 2 \u00d7 2" in out
    assert "wrote three.schedule.json" in out
    schedule = load_schedule(tmp_path / "three.schedule.json")
    assert (schedule.ranks_per_group, schedule.memory_bytes, schedule.threshold_bytes) == (4, 30000, 1024)
    assert schedule.tensors == "in/values.npz"
    assert schedule.predicted.peak_bytes <= 30000

    assert run(["show", "three.schedule.json", "--plot", "chain.svg"]) == 0
    assert "Large steps: 2" in capsys.readouterr().out
    assert "<svg" in (tmp_path / "chain.svg").read_text()
    assert run(["show", "three.schedule.json", "--plot", "chain.png"]) == 2
    assert "chain.png: does not end in .svg" in capsys.readouterr().err
    assert run(["show", "three.schedule.json", "--json", "--top", "1"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["identity"] == schedule.identity
    assert len(shown["steps"]) == 1

    far = tmp_path / ("a" * 90) / ("b" * 90)
    far.mkdir(parents=True)
    assert run(["plan", str(path_json), *PLAN, "-o", str(far / "s.json")]) == 0
    assert f"wrote {far / 's.json'}\n" in capsys.readouterr().out
    report = ["report", str(path_json), "--devices", "1,...,8", "--hardware", "cpu", "--baseline-time", "0"]
    assert run([*report, "--html", "r.html"]) == 0
    assert "wrote r.html" in capsys.readouterr().out
    assert "<svg" in (tmp_path / "r.html").read_text()
    assert run([*report, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["reports"][0]["rows"]
    assert [row["devices"] for row in rows] == [1, 2, 4, 8]
    assert rows[0]["S_P"] == 1


def test_plan_speaks_json_and_takes_no_limit(path_json: Path, tmp_path: Path, capsys: Capture) -> None:
    target = tmp_path / "s.json"
    assert (
        run(
            [
                "plan",
                str(path_json),
                "--memory",
                "unlimited",
                "--policy",
                "paper",
                "--json",
                "-o",
                str(target),
            ]
        )
        == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert printed["memory_bytes"] is None
    assert printed["policy"] == "paper"
    assert printed["schedule"] == str(target)
    assert printed["identity"] == load_schedule(target).identity


def edit_schedule(path: Path, **changes: Any) -> None:
    document = json.loads(path.read_text())
    document.update(changes)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ranks_per_group": 2}, "identity: "),
        ({"identity": "0" * 64}, "they were changed"),
        ({"version": 1}, f"version: is 1; this tnplan reads version {VERSION} of tnplan.schedule"),
        ({"format": "tnplan.path"}, "format: is 'tnplan.path'"),
    ],
)
def test_a_schedule_edited_by_hand_is_refused(
    path_json: Path, tmp_path: Path, capsys: Capture, changes: dict[str, Any], message: str
) -> None:
    target = tmp_path / "s.json"
    assert run(["plan", str(path_json), *PLAN, "-o", str(target)]) == 0
    capsys.readouterr()
    edit_schedule(target, **changes)
    assert run(["show", str(target)]) == 2
    line = only_line(capsys)
    assert str(target) in line
    assert message in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1 column 2: not JSON"),
        ('{"format": "tnplan.path", "version": 7}', "version: is 7"),
        ('{"format": "tnplan.schedule", "version": 1}', "tnplan.schedule"),
        (None, "cannot be read"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "report"])
def test_a_path_that_is_none_is_refused(
    tmp_path: Path, capsys: Capture, command: str, text: str | None, message: str
) -> None:
    path = tmp_path / "bad.json"
    if text is not None:
        path.write_text(text)
    target = tmp_path / "out.html"
    target.write_text("old")
    more = (
        ["-o", str(target)]
        if command == "plan"
        else ["--html", str(target), "--devices", "1", "--hardware", "cpu"]
    )
    assert run([command, str(path), *more]) == 2
    line = only_line(capsys)
    assert str(path) in line
    assert message in line
    assert target.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        [target.name] + (["bad.json"] if text is not None else [])
    )


def test_a_limit_that_nothing_meets_is_refused(path_json: Path, tmp_path: Path, capsys: Capture) -> None:
    target = tmp_path / "s.json"
    target.write_text("old")
    assert run(["plan", str(path_json), "--devices", "2", "--memory", "1000", "-o", str(target)]) == 2
    assert "limit" in only_line(capsys)
    assert target.read_text() == "old"
    report = ["report", str(path_json), "--devices", "2", "--hardware", "cpu", "--hardware", "dgx-h100"]
    assert run([*report, "--memory", "1000"]) == 2
    assert "no path fits on 1, 2 devices of cpu" in only_line(capsys)


@pytest.mark.parametrize("target", ["missing/s.json", "."])
def test_an_output_that_cannot_be_written_is_refused_before_reading(
    tmp_path: Path, capsys: Capture, target: str
) -> None:
    place = str(tmp_path / target)
    for arguments in (
        ["plan", "absent.json", "-o", place],
        ["show", "absent.json", "--plot", place],
        ["report", "absent.json", "--devices", "1", "--hardware", "cpu", "--html", place],
    ):
        assert run(arguments) == 2
        line = only_line(capsys)
        assert "absent.json" not in line
        assert place in line


def test_a_reader_that_leaves_early_hears_no_complaint(path_json: Path, tmp_path: Path) -> None:
    target = tmp_path / "s.json"
    assert run(["plan", str(path_json), *PLAN, "-o", str(target)]) == 0
    with subprocess.Popen(
        [sys.executable, "-m", "tnplan", "show", str(target), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_jet_files_bring_their_tensors(shared: SharedData, tmp_path: Path, capsys: Capture) -> None:
    jet = shared / "paths/jet_sycamore_m10.json"
    target = tmp_path / "jet.schedule.json"
    assert run(["plan", str(jet), "--devices", "4", "-o", str(target)]) == 0
    schedule = load_schedule(target)
    assert schedule.tensors == "jet.npz"
    with np.load(tmp_path / "jet.npz") as values:
        assert len(values) == len(schedule.leaves)


def test_python_calls_do_what_the_commands_do(path_json: Path, tmp_path: Path) -> None:
    import tnplan

    target = tmp_path / "s.json"
    assert run(["plan", str(path_json), *PLAN, "-o", str(target)]) == 0
    path = tnplan.load_path(path_json)
    assert path.tensors is not None
    assert np.load(path.tensors)["t0"].shape == (32, 32)
    schedule = tnplan.plan(path, devices=4, ranks_per_group=4, memory="30kB", threshold=1024)
    assert schedule.steps == load_schedule(target).steps
    html = tmp_path / "r.html"
    projection = tnplan.report([path, path_json], [1, 2], hardware="cpu", baseline_time=0, html=html)
    assert [row.devices for row in projection.rows] == [1, 2]
    assert "<svg" in html.read_text()
    assert all(hasattr(tnplan, name) for name in tnplan.__all__)
    with pytest.raises(AttributeError, match="no attribute 'elsewhere'"):
        tnplan.elsewhere  # noqa: B018
