"""What commands print fits a terminal of 80 columns, and they agree on the time of a schedule."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.cells import cell_len

import tnplan
from tests.support.root import ROOT
from tnplan.cli.main import run
from tnplan.common.units import time_text
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.projection.projection import project
from tnplan.reporting.page import report_page

PATHS = [ROOT / "paths" / f"sycamore_n53_m10_{name}_flops.json" for name in ("b22", "b24")]
ORDERS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def printed(columns: int, *arguments: object) -> list[str]:
    """The lines that a command prints on a terminal of so many columns; its bar goes elsewhere."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    surroundings = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-m", "tnplan", *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=its, stdout=its, stderr=subprocess.DEVNULL, env={**surroundings, "TERM": "xterm"}
    ) as process:
        os.close(its)
        text = b""
        while piece := _read(ours):
            text += piece
    os.close(ours)
    assert process.returncode == 0
    return ORDERS.sub("", text.decode()).splitlines()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how Linux tells the end
        return b""


def test_commands_fit_80_columns(tmp_path: Path) -> None:
    schedule = tmp_path / "schedule.json"
    options = ("--hardware", "cpu", "--memory", "128MiB")
    commands = (
        ("plan", PATHS[1], "--devices", 4, *options, "-o", schedule),
        ("show", schedule, "--top", 3),
        ("report", *PATHS, "--devices", "1,4", "--baseline-time", "0.2", *options),
    )
    for command in commands:
        lines = printed(80, *command)
        assert len(lines) > 10
        shown = [line for line in lines if str(tmp_path) not in line]
        assert [line for line in shown if cell_len(line) > 80] == []


@pytest.mark.parametrize("devices", [1, 4])
def test_plan_show_and_report_agree_on_the_time(
    devices: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile, schedule = load_profile("cpu"), tmp_path / "schedule.json"
    *_, row = project([load_path(PATHS[0])], profile, [devices], memory_bytes=128 << 20).rows
    options = ["--hardware", "cpu", "--memory", "128MiB", "-o", str(schedule)]
    groups = ["--devices", str(devices), "--ranks-per-group", str(row.ranks_per_group)]
    assert run(["plan", str(PATHS[0]), *groups, *options]) == 0
    planned = capsys.readouterr().out
    assert run(["show", str(schedule), "--top", "1"]) == 0
    for text in (planned, capsys.readouterr().out):
        (time, on) = re.findall(r"^predicted time +(.+?) on (\d+) device", text, re.MULTILINE)[0]
        assert time == time_text(row.schedule.projected_s(int(on) // row.ranks_per_group))
    assert f"{time_text(row.time_s)} on " in planned


def test_show_explains_only_what_its_steps_have() -> None:
    words = {"once": "once: before the first slice", "1 in": "1 in N slices:", "chain": "chain: steps that"}
    for hardware in ("cpu", "dgx-h100"):
        for path in PATHS:
            text = str(tnplan.show(tnplan.plan(path, hardware=hardware)))
            for word, meaning in words.items():
                assert (meaning in " ".join(text.split())) == (f"({word}" in text)
    assert "(chain" in text


def test_the_page_has_a_short_title_and_opens_with_the_picture() -> None:
    page = report_page([project([load_path(path) for path in PATHS], load_profile("dgx-h100"), [1, 2])])
    assert "<title>sycamore_n53_m10: projected contraction</title>" in page
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings[:3] == ["Projected speedup", "Figures", "Slices"]
    assert page.index("<svg") < page.index("<table")
    for column in ("t<sub>P</sub>: mean time", "saved by reuse:", "R<sub>P</sub> = C<sub>t,1</sub>"):
        assert column in page
