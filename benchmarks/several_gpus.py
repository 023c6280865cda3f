"""All that several GPUs of one machine are measured for, in one call of a few minutes.

    python benchmarks/several_gpus.py [--seconds 500] [--only TEXT ...] [-o results.json]
    python benchmarks/several_gpus.py --device cpu --ranks 2     tries it: the same stages with small cases

A stage is one of the benchmarks beside this file, on all GPUs by mpirun or on one GPU, as many of these at a
time as there are GPUs: slices of the paths of `PATHS` (of those, the ones that the planner expects to be the
fastest in the memory of these GPUs), changes of layout, Pauli propagation, diagonalization, state vectors,
compressed exchanges, and a test that groups of 1, 2 and 4 give equal bits in one process, by mpirun and after
a kill. Stages go by their importance, each with an expected time; one for which less than half of it is left,
or whose input is absent, is left out, and one that takes three times as long is ended. The file is written
whenever a stage has measured something: it has each stage's command, status, results and last lines, and for
slices S_P, E_P and R_P against the best of one GPU of the same call.
Goals are those of the stages. The status is 1 where a stage misses its goal or does not end in time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tnplan.common.errors import InputError
from tnplan.common.files import write_text
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.executor.device.select import profile_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results" / "several_gpus.json"
SBD_INPUT = ROOT.parent / "shared" / "data" / "sbd" / "fe4s4_alpha_36o_6000.txt"
BESIDE = Path(sys.executable).parent / "mpirun"
MPIRUN = str(BESIDE) if BESIDE.exists() else shutil.which("mpirun")
RESERVED_GIB = 4
"""What driver, libraries and scratch memory take of a GPU; the rest is planned for."""
LONGEST = 3.0
"""A stage is ended after so many times its expected seconds."""
POLL_S, GRACE_S = 0.5, 8.0
LAST_BYTES = 6000
PRECISIONS = ("fp32", "fp16x3")

PATHS: dict[str, dict[int, tuple[str, ...]]] = {
    "zuchongzhi_n60_m24": {
        1: ("b32_schedule_s41", "b34_schedule_s402"),
        4: ("b35_schedule_d8", "b35_schedule_p4"),
        8: ("b35_schedule_d8", "b35_schedule_p4", "b35_schedule_p8"),
    },
    "rectangular_5x7_l20": {1: ("b32_fused",), 4: ("b32_fused", "b34_fused")},
    "rectangular_6x6_l20": {1: ("b32_fused",)},
    "triangular_7x7_l24": {1: ("b32_schedule",)},
    "sycamore_n53_m20": {1: ("b32_fused_s1",)},
    "peps_7x8_D16": {1: ("b32_time",)},
}
"""For each network, and the number of GPUs from which on they are tried, the paths that the planner expects
to be the fastest in the memory of H100s or of H200s. The most important network is first."""
SHARED = ("rectangular_6x6_l20_b34_fused", "triangular_7x7_l24_b34_schedule", "sycamore_n53_m20_b34_fused")
"""Paths of which no GPU holds a slice, beside the faster ones whose slices need no exchanges."""
SMALL = "sycamore_n53_m10_b22_flops"
"""What --device cpu replays."""


@dataclass(frozen=True)
class Machine:
    """What stages run on: the names of its GPUs, the ranks, and what slices are planned for."""

    gpus: tuple[str, ...]
    ranks: int
    hardware: str
    memory: str

    @property
    def small(self) -> bool:
        """Whether this is the CPU, on which small cases try the script."""
        return not self.gpus


@dataclass(frozen=True)
class Stage:
    """A benchmark, or a test, as one command.

    `words` follow the interpreter. `ranks`: by mpirun, or None without it. `gpu`: the only one that it sees.
    `refusal`: why it is not run. `result`: whether it takes `--output` for a file of its own.
    """

    name: str
    words: tuple[str, ...]
    expected_s: float
    ranks: int | None = None
    gpu: int | None = None
    refusal: str = ""
    result: bool = True

    def command(self, file: Path) -> list[str]:
        """The whole command; its results go to `file`."""
        words = [*self.words, "--output", str(file)] if self.result else list(self.words)
        if self.ranks is None:
            return [sys.executable, *words]
        return [str(MPIRUN), "-n", str(self.ranks), sys.executable, "-m", "mpi4py", *words]


@dataclass
class Entry:
    """What became of a stage."""

    stage: Stage
    file: Path
    log: Path
    status: str = "waits"
    seconds: float = 0.0
    begin: float = field(default=0.0, repr=False)

    def document(self, folder: Path) -> dict[str, Any]:
        """The stage as the file has it."""
        results = None
        if self.file.exists():
            try:
                results = json.loads(self.file.read_text())
            except json.JSONDecodeError:
                results = None
        command = [word.replace(str(folder), "") for word in self.stage.command(self.file)]
        last = self.log.read_bytes()[-LAST_BYTES:].decode(errors="replace") if self.log.exists() else ""
        return {
            "stage": self.stage.name, "command": " ".join(map(short, command)), "gpu": self.stage.gpu,
            "status": self.status, "expected_s": self.stage.expected_s, "seconds": round(self.seconds, 1),
            "results": results, "last_lines": last.splitlines(),
        }  # fmt: skip


def short(word: str) -> str:
    """A word of a command without the folders of this machine."""
    for folder in (f"{ROOT}/", f"{Path(sys.executable).parent}/"):
        word = word.removeprefix(folder)
    return Path(word).name if word in (sys.executable, MPIRUN) else word


def script(folder: str, *words: object) -> tuple[str, ...]:
    """A benchmark beside this file, with its options."""
    return (str(HERE / folder), *map(str, words))


def replay(machine: Machine, count: int, precision: str, networks: Sequence[str]) -> tuple[str, ...]:
    """Slices of the paths of some networks for `count` GPUs."""
    stems = []
    for name in networks:
        paths = PATHS[name][max(least for least in PATHS[name] if least <= count)]
        stems += [f"{name}_{path}" for path in paths]
    return replay_paths(machine, precision, stems)


def replay_paths(machine: Machine, precision: str, stems: Sequence[str]) -> tuple[str, ...]:
    """Slices of the fastest of these paths for each network."""
    if machine.small:
        options = ("--device", "cpu", "--seconds", "0.001", "--precision", precision)
        return script("contraction/replay.py", path_file(SMALL), *options)
    options = ("--precision", precision, "--hardware", machine.hardware, "--memory", machine.memory)
    files = map(path_file, stems)
    return script("contraction/replay.py", *files, *options, "--candidates", 1, "--seconds", 4)


def path_file(stem: str) -> Path:
    """The file of a path."""
    return ROOT / "paths" / f"{stem}.json"


def batches(machine: Machine) -> Iterator[list[Stage]]:
    """All stages, the most important first; those of a batch run at the same time, on a GPU each."""
    networks = list(PATHS)
    first, *others = networks
    halves = (networks[:3], networks[3:])
    alone = [
        Stage(
            f"slices, one GPU, {precision}, {', '.join(half)}", replay(machine, 1, precision, half),
            45, gpu=number % max(len(machine.gpus), 1),
        )
        for number, (half, precision) in enumerate((h, p) for h in halves for p in PRECISIONS)
    ]  # fmt: skip
    count = max(len(machine.gpus), 1)
    yield from (alone[start : start + count] for start in range(0, len(alone), count))
    few = "" if machine.ranks > 1 else "it needs several ranks"
    group = () if machine.small else ("--group", str(machine.ranks))
    for precision in PRECISIONS:
        words = (*replay(machine, machine.ranks, precision, [first]), *group)
        yield [Stage(f"slices, {precision}, {first}", words, 35, machine.ranks, refusal=few)]
    for precision in PRECISIONS:
        words = replay(machine, machine.ranks, precision, others)
        yield [Stage(f"slices, {precision}, other networks", words, 55, machine.ranks, refusal=few)]
    gpus_alone = "it has no form for CPUs" if machine.small else few
    words = script("system/exchange.py", "--shard-gib", 4)
    yield [Stage("changes of layout", words, 20, machine.ranks, refusal=gpus_alone)]
    yield [pauli(machine, machine.ranks, few)]
    yield [diagonalization(machine, machine.ranks, few)]
    words = script("statevector/statevector_ranks.py", "--qubits", "33,34", "--rounds", 2)
    yield [Stage("state vectors", words, 75, machine.ranks, refusal=gpus_alone)]
    test = ROOT / "tests" / "cli" / "test_execute_groups.py"
    without = ("-p", "no:cacheprovider", "-p", "no:benchmark")
    words = ("-m", "pytest", "-q", "-rs", "-n", "3", *without, str(test))
    chosen = ("-k", "cpu" if machine.small else "gpu")
    four = "" if machine.small or machine.ranks >= 4 else "it needs four GPUs"
    yield [Stage("groups of 1, 2 and 4, a kill", (*words, *chosen), 45, refusal=four, result=False)]
    size = ("--device", "cpu", "--log2", 14) if machine.small else ("--device", "gpu", "--log2", 26)
    words = script("codecs/compressed_exchange.py", *size)
    yield [Stage("compressed exchanges", words, 30, machine.ranks, refusal=few)]
    lone = [pauli(machine, 1, ""), diagonalization(machine, 1, "")]
    yield from [lone] if count > 1 else [[stage] for stage in lone]
    words = replay_paths(machine, "fp32", SHARED)
    yield [Stage("slices, fp32, that GPUs share", words, 45, machine.ranks, refusal=gpus_alone)]
    absent = "" if find_spec("cutensor") else "cuTENSORMp is not installed"
    words = replay(machine, machine.ranks, "fp32", networks[1:2])
    words = (*words, "--engine", "cutensormp")
    yield [Stage("slices, cuTENSORMp", words, 40, machine.ranks, refusal=gpus_alone or absent)]


def pauli(machine: Machine, ranks: int, refusal: str) -> Stage:
    """The 127-qubit circuit to above 1e8 terms, on several GPUs to above 4e8."""
    words = script("pauli/pauli.py", "--device", "gpu", "--only", "ranks")
    words = (*words, "--terms", "1e8" if ranks == 1 else "4e8")
    refusal = "its least case takes minutes on CPUs" if machine.small else refusal
    return Stage(f"Pauli propagation, {ranks} ranks", words, 30, ranks, one_gpu(machine, ranks, 0), refusal)


def diagonalization(machine: Machine, ranks: int, refusal: str) -> Stage:
    """A multiplication of fe4s4."""
    words = script("sbd/sbd.py", "--device", "gpu", "--case", "fe4s4")
    missing = "" if SBD_INPUT.exists() else f"{SBD_INPUT.name} is not in ../shared/data/sbd"
    refusal = "it has no form for CPUs" if machine.small else refusal or missing
    return Stage(f"diagonalization, {ranks} ranks", words, 40, ranks, one_gpu(machine, ranks, 1), refusal)


def one_gpu(machine: Machine, ranks: int, number: int) -> int | None:
    """The GPU of a stage with one rank."""
    return number % len(machine.gpus) if ranks == 1 and machine.gpus else None


class Run:
    """The stages as they run, and their file."""

    def __init__(self, machine: Machine, output: Path, seconds: float, note: str) -> None:
        self._machine, self._output, self._note = machine, output, note
        self._begin, self._end = time.monotonic(), time.monotonic() + seconds
        self._folder = Path(tempfile.mkdtemp(prefix="several_gpus"))
        self._entries: list[Entry] = []
        self._environment = {**host_facts(), "commit": commit()}

    def batch(self, stages: Sequence[Stage]) -> None:
        """Run stages at the same time, each to its end or its limit, and write what they measure."""
        left_s = self._end - time.monotonic()
        running: list[tuple[Entry, subprocess.Popen[bytes], float]] = []
        for stage in stages:
            name = re.sub("[^a-z0-9]+", "-", stage.name.lower())
            entry = Entry(stage, self._folder / f"{name}.json", self._folder / f"{name}.log")
            self._entries.append(entry)
            if stage.refusal:
                entry.status = f"left out: {stage.refusal}"
            elif stage.ranks is not None and MPIRUN is None:
                entry.status = "left out: there is no mpirun"
            elif left_s < stage.expected_s / 2:
                entry.status = f"left out: it takes {stage.expected_s:.0f} s, and {left_s:.0f} were left"
            else:
                limit_s = min(left_s, LONGEST * stage.expected_s)
                running.append((entry, self._start(entry), limit_s))
            if not running or running[-1][0] is not entry:
                print(f"{stage.name}: {entry.status}", flush=True)
        self.write()
        seen: dict[str, float] = {}
        while running:
            time.sleep(POLL_S)
            running = [one for one in running if not self._ended(*one)]
            now = {str(e.file): e.file.stat().st_mtime for e in self._entries if e.file.exists()}
            if now != seen:
                seen = now
                self.write()
        self.write()

    def _start(self, entry: Entry) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if entry.stage.gpu is not None and self._machine.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = str(entry.stage.gpu)
        entry.status, entry.begin = "runs", time.monotonic()
        with entry.log.open("wb") as log:
            return subprocess.Popen(
                entry.stage.command(entry.file), stdout=log, stderr=subprocess.STDOUT, cwd=ROOT,
                env=environment, start_new_session=True,
            )  # fmt: skip

    def _ended(self, entry: Entry, process: subprocess.Popen[bytes], limit_s: float) -> bool:
        """Whether a stage is at its end; one at its limit is ended."""
        entry.seconds = time.monotonic() - entry.begin
        status = process.poll()
        if status is None and entry.seconds < limit_s:
            return False
        if status is None:
            end(process)
            entry.status = f"ended at its limit of {limit_s:.0f} s"
        else:
            entry.status = "done" if status == 0 else f"ended with status {status}"
        print(f"{entry.stage.name}: {entry.status}, {entry.seconds:.1f} s", flush=True)
        return True

    def write(self) -> None:
        """Write the file: every stage so far, and slices compared with those of one GPU."""
        stages = [entry.document(self._folder) for entry in self._entries]
        rows = [
            row for stage in stages if stage["stage"].startswith("slices") and stage["results"]
            for row in stage["results"]["rows"]
        ]  # fmt: skip
        document = {
            "gpus": self._machine.gpus, "ranks": self._machine.ranks, "hardware": self._machine.hardware,
            "memory": self._machine.memory, "note": self._note,
            "seconds": round(time.monotonic() - self._begin, 1), "environment": self._environment,
            "slices": compared(rows), "stages": stages,
        }  # fmt: skip
        write_text(self._output, json.dumps(document, indent=1) + "\n")

    def close(self) -> list[Entry]:
        """Put the logs of all stages in one file beside the results; the stages."""
        with self._output.with_suffix(".log").open("wb") as whole:
            for entry in self._entries:
                whole.write(f"== {entry.stage.name}: {entry.status}\n".encode())
                if entry.log.exists():
                    whole.write(entry.log.read_bytes())
        shutil.rmtree(self._folder)
        return self._entries


def compared(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The summary of replay.py over the rows of all stages."""
    sys.path.insert(0, str(HERE / "contraction"))
    from replay import compared

    return compared(rows)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a command and the processes that it started."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, kind)
            process.wait(GRACE_S)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def gpus() -> list[tuple[str, int]]:
    """Names of the GPUs and their MiB, as the driver says them, without a context on any."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    found = [line.rsplit(",", 1) for line in done.stdout.splitlines() if "," in line]
    return [(name.strip(), int(size)) for name, size in found]


def machine_of(options: argparse.Namespace) -> Machine:
    """What there is to run on."""
    if options.device == "cpu":
        return Machine((), options.ranks or 2, "cpu", "")
    found = gpus()
    if not found:
        raise InputError("--device gpu", "nvidia-smi finds no GPU", "give --device cpu to try the script")
    names = [name for name, _ in found]
    memory_gib = min(size for _, size in found) // 1024 - RESERVED_GIB
    ranks = options.ranks or 1 << (len(names).bit_length() - 1)
    return Machine(tuple(names), ranks, options.hardware or profile_of(names[0]), f"{memory_gib}GiB")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=500.0, help="for all stages together")
    parser.add_argument("--only", action="append", default=[], help="only stages whose name has this text")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--ranks", type=int, help="GPUs of a run; default: all, as far as a power of two")
    parser.add_argument("--hardware", help="the profile of slices; default: that of the GPUs")
    parser.add_argument("--note", default="", help="text that the file shall have")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    return parser.parse_args()


def main() -> int:
    """Run all stages; 1 where one failed or did not come to its end."""
    options = arguments()
    run = Run(machine := machine_of(options), options.output.resolve(), options.seconds, options.note)
    for stages in batches(machine):
        wanted = [
            stage for stage in stages if not options.only or any(text in stage.name for text in options.only)
        ]
        run.batch(wanted)
    return int(any(entry.status.startswith("ended") for entry in run.close()))


if __name__ == "__main__":
    sys.exit(main())
