"""The commands of the pages are run, a block at a time, in a folder with small files of the names in it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

from tests.docs.page_files import make
from tests.support.kernels.gpus import needs_gpus
from tests.support.mpirun import MPIRUN, needs_mpi
from tests.support.root import ROOT

PAGES = [
    path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "_build" not in path.parts and path.name not in ("cli.md", "changelog.md")
]  # fmt: skip
LINE = re.compile(r"^(?: {4}){1,2}(?=\S)((?:[^\\\n]|\\\n|\\.)+)", re.MULTILINE)
"""A line of a block of code; one that ends in a backslash goes on in the next one."""

RUN = ("tnplan", "mpirun", "python", "for")
"""The first words of the lines that are run."""
LISTED = {
    "pip": "installs packages; tests/house/test_installation.py does",
    "make": "runs the tests themselves, or the demonstration, which has tests of its own",
    "module": "is a command of clusters",
    "srun": "needs Slurm",
    "sbatch": "needs Slurm",
    "docker": "needs Docker",
    "apptainer": "needs Apptainer and an image",
    "enroot": "needs Enroot and an image",
    "mkdir": "makes a folder in the user's home, for Docker",
    "python3": "makes an environment; tests/house/test_installation.py installs",
    ".": "activates that environment",
    "eval": "changes the user's shell; test_completion_of_bash_is_defined runs bash's",
    "nsys": "is NVIDIA's profiler, and profiles a GPU",
    "ncu": "is NVIDIA's profiler, and profiles a GPU",
}
"""The first words of those that are not, and why."""
SHELL = {".", "source", "export", "eval", "cd", "git", "conda", "curl", "sudo"}
"""Words that begin a line of commands, also where no such program is installed."""
REPLACED = {
    r"--time \d{2,}\b": ("--time 1", "budgets of minutes"),
    r"tnplan search (?!.*--time)": ("tnplan search --time 1 ", "the budget of a minute where none is given"),
    r"for s in 0 1 2 3 4;": ("for s in 0 1;", "five seeds"),
    r"mpirun -n 8 ": ("mpirun -n 2 ", "eight ranks"),
    r"PATH\.json \.\.\.": ("path.json", "a synopsis: any number of paths"),
}
"""What is replaced in commands, by what, and what it is."""
OF_A_GPU = re.compile(r"--device gpu|--engine cutensormp|tnplan calibrate --base h200")
WRITTEN = re.compile(r"(?:(?:-o|--output|--html|--save|--plot)[ =]|> )(\S+)")
"""A file that a command says it writes."""
LONGEST_S = 400
"""Seconds of a command; measuring a GPU for all dtypes takes 200."""
APART = ("search.md",)
"""Pages whose commands are run each alone: none reads what only another writes, and all together are slow."""
FILE = re.compile(r"[A-Za-z][\w.-]*\.[a-z]\w+")
LIBRARIES = {
    r"\.qasm": "openqasm3.parser", r"--plot": "matplotlib", r"tnplan sqd ": "qiskit_addon_sqd",
    r"workload decoding": "stim",
}  # fmt: skip
"""What commands need beside tnplan."""

PROGRAMS = {
    "tnplan": f"{shlex.quote(sys.executable)} -m tnplan", "python": shlex.quote(sys.executable),
    "mpirun": shlex.quote(str(MPIRUN)),
}  # fmt: skip
"""What the commands call: this checkout, this Python and the tests' mpirun."""


SCRIPT = re.compile(r"^```bash\n(#!/bin/bash\n.*?)^```", re.MULTILINE | re.DOTALL)
"""A script of a page, between fences."""
CLUSTER = {
    "module": "#!/bin/sh\n",
    "srun": f'#!/bin/sh\n[ "$1" = --mpi=pmix ] && shift && exec {shlex.quote(str(MPIRUN))} -n 4 "$@"\n',
}
"""What stands for the commands of a cluster; a job has four ranks."""


@dataclass(frozen=True)
class Block:
    """Commands that a page shows together."""

    page: str
    line: int
    commands: tuple[str, ...]

    @property
    def for_a_gpu(self) -> list[str]:
        """Those that need a GPU."""
        return [command for command in self.commands if OF_A_GPU.search(command)]


def lines_of(page: Path) -> list[tuple[int, str]]:
    """The lines of indented blocks of a page and their numbers, without what is fenced."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(
        r"^```.*?^```", lambda match: "\n" * match[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL
    )
    return [(text.count("\n", 0, match.start()) + 1, match[1]) for match in LINE.finditer(text)]


def blocks_of(page: Path, words: tuple[str, ...]) -> list[Block]:
    """The blocks of lines that begin with one of some words."""
    lines = [
        (number, line) for number, line in lines_of(page) if re.match(rf"(?:{'|'.join(words)}) [\w-]", line)
    ]
    ends = [number + line.count("\n") + 1 for number, line in lines]
    starts = [0]
    for end, (number, _) in zip(ends, lines[1:], strict=False):
        starts.append(starts[-1] + (number != end))
    groups = groupby(zip(starts, lines, strict=False), key=lambda pair: pair[0])
    several = [[line for _, line in group] for _, group in groups]
    return [Block(page.name, group[0][0], tuple(line for _, line in group)) for group in several]


BLOCKS = [
    part for page in PAGES for block in blocks_of(page, RUN)
    for part in ([Block(block.page, block.line + n, (line,)) for n, line in enumerate(block.commands)]
                 if block.page in APART else [block])
]  # fmt: skip


def changed(command: str) -> str:
    """A command with small budgets."""
    for pattern, (replacement, _) in REPLACED.items():
        command = re.sub(pattern, replacement, command)
    return command


def environment_of(folder: Path, others: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of a shell that finds `PROGRAMS` and other scripts, which are written in a folder."""
    programs = folder / "programs"
    programs.mkdir()
    scripts = {name: f'#!/bin/sh\nexec {words} "$@"\n' for name, words in PROGRAMS.items()}
    for name, script in {**scripts, **(others or {})}.items():
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    searched = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": searched, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}


def run(block: Block, commands: list[str], folder: Path) -> None:
    """Run commands of a block in a folder; what they write must be there afterwards."""
    for pattern, library in LIBRARIES.items():
        if any(re.search(pattern, command) for command in commands):
            pytest.importorskip(library)
    environment = environment_of(folder)
    here = folder / "here"
    here.mkdir()
    for command in map(changed, commands):
        written = [name for name in WRITTEN.findall(command) if "$" not in name]
        for name in FILE.findall(re.sub(WRITTEN, " ", command.partition("#")[0])):
            if name not in written and not (here / name).exists() and "'" not in command:
                make(block.page, here / name)
        before = {name: (here / name).stat().st_mtime_ns for name in written if (here / name).exists()}
        done = subprocess.run(
            ["bash", "-c", command], cwd=here, env=environment, capture_output=True, text=True,
            timeout=LONGEST_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout[-800:]}\n{done.stderr[-2000:]}"
        for name in written:
            assert (here / name).exists(), f"{command}: {name} is not written"
            assert (here / name).stat().st_mtime_ns != before.get(name), f"{command}: {name} is as before"


def is_command(line: str) -> bool:
    """Whether a line begins with a program of this machine or a word of the shell."""
    word, _, rest = line.partition(" ")
    return bool(rest) and (word in SHELL or shutil.which(word) is not None)


def ranks(commands: list[str]) -> int:
    """The most ranks that one of some commands has."""
    return max(int(count) for line in commands for count in re.findall(r"-n (\d+)", line) or ["1"])


def cases(for_a_gpu: bool) -> list[object]:
    """The blocks, with the skips of those that need MPI or GPUs."""
    chosen = []
    for block in BLOCKS:
        others = [command for command in block.commands if command not in block.for_a_gpu]
        some = list(block.commands) if for_a_gpu else others
        if not some or (for_a_gpu and not block.for_a_gpu):
            continue
        marks = [pytest.mark.slow]
        if any("mpirun" in command for command in some):
            marks.append(needs_mpi)
        if for_a_gpu:
            marks.append(needs_gpus(ranks(block.for_a_gpu)))
        chosen.append(pytest.param(block, some, id=f"{block.page}:{block.line}", marks=marks))
    return chosen


@pytest.mark.parametrize(("block", "commands"), cases(for_a_gpu=False))
def test_commands_of_a_block_run(block: Block, commands: list[str], tmp_path: Path) -> None:
    run(block, commands, tmp_path)


@pytest.mark.parametrize(("block", "commands"), cases(for_a_gpu=True))
def test_commands_of_a_block_run_on_gpus(block: Block, commands: list[str], tmp_path: Path) -> None:
    run(block, commands, tmp_path)


SCRIPTS = [
    pytest.param(text, id=f"{page.name}-{number}")
    for page in PAGES for number, text in enumerate(SCRIPT.findall(page.read_text(encoding="utf-8")))
]  # fmt: skip


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("text", SCRIPTS)
def test_scripts_of_jobs_write_their_result(text: str, tmp_path: Path) -> None:
    """A job's script does its work on a CPU, with what stands for Slurm; its options are Slurm's words."""
    activate = tmp_path / "tnplan-venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.touch()
    make("slurm.md", tmp_path / "schedule.json")
    directives = re.findall(r"^#SBATCH (.*)$", text, re.MULTILINE)
    assert len(directives) == text.count("SBATCH")
    assert all(re.fullmatch(r"--[a-z-]+=[\w:]+", directive) for directive in directives)
    folders = {"HOME": str(tmp_path), "SCRATCH": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-euc", text.replace("--device gpu", "--device cpu")], cwd=tmp_path,
        env={**environment_of(tmp_path, CLUSTER), **folders}, capture_output=True, text=True,
        timeout=LONGEST_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-800:]}\n{done.stderr[-2000:]}"
    assert (tmp_path / "result.npy").exists()


def test_completion_of_bash_is_defined(tmp_path: Path) -> None:
    (line,) = (line for page in PAGES for _, line in lines_of(page) if "bash_source" in line)
    done = subprocess.run(
        ["bash", "-euc", f"{line}\ncomplete -p tnplan"], cwd=tmp_path, env=environment_of(tmp_path),
        capture_output=True, text=True, timeout=LONGEST_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("tnplan\n")


def test_every_line_of_commands_is_run_or_listed() -> None:
    """A line beside a command is one too, and one of a program is known; tables list what is in a page."""
    known = tuple(rf"{word} " for word in (*RUN, *LISTED))
    lines = [line for page in PAGES for _, line in lines_of(page)]
    assert [line for line in lines if is_command(line) and not line.startswith(known)] == []
    for page in PAGES:
        commands = dict(lines_of(page))
        shown = {number for number, line in commands.items() if line.startswith(known)}
        for number in shown:
            after = number + commands[number].count("\n") + 1
            if after in commands:
                assert after in shown, f"{page.name}:{after}: {commands[after]}"
    for word in LISTED:
        assert any(line.startswith(f"{word} ") for line in lines), f"{word} is in no page"
    for pattern in REPLACED:
        assert any(re.search(pattern, line) for line in lines), f"{pattern} is in no page"


def test_a_command_that_fails_or_writes_nothing_is_seen(tmp_path: Path) -> None:
    for number, (command, said) in enumerate((
        ("python -c 'raise SystemExit(3)'", "SystemExit"), ("python -c pass -o none.npy", "is not written"),
    )):  # fmt: skip
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(AssertionError, match=said):
            run(Block("a.md", 1, (command,)), [command], folder)
