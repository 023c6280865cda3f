"""Every input format with a command that reads it, and trials of the command on mutated files.

As a script: `python -m tests.support.robustness.mutated_files FORMAT SEED FIRST STOP FOLDER` makes trials
with these numbers in this process, on files that `make_files` left in the folder; each prints a line of JSON.
"""

from __future__ import annotations

import io
import json
import os
import resource
import shlex
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.bad_input import snapshot
from tests.support.robustness import checkpoint_files, mutations
from tests.support.robustness.good_files import ANSWER, CPU, GROWTH, QUBITS, SAMPLED, SEARCH, good_files
from tests.support.robustness.mutations import Mutation
from tnplan.cli.main import run
from tnplan.common.files import identity_of
from tnplan.compress.format.stream import checksum

LIMIT_S, LIMIT_BYTES = 10.0, 500e6


@dataclass(frozen=True)
class Format:
    """A file of `make_files`, the command that reads it, and how it may be damaged."""

    file: str
    command: str
    mutations: tuple[Mutation, ...]


def signed(document: Any) -> Any:
    """A schedule with the identity of its contents, as somebody who means it would write it."""
    if isinstance(document, dict):
        document.pop("identity", None)
        with suppress(ValueError):
            document["identity"] = identity_of({k: v for k, v in document.items() if k != "devices"})
    return document


def mutated_stream(content: bytes, random: Random) -> bytes:
    """A stream with a changed header whose checksum is right all the same."""
    (size,) = struct.unpack_from("<I", content, 12)
    head = bytearray(content[: size - 8])
    for _ in range(random.choice((1, 1, 2))):
        head[random.randrange(16, len(head))] = random.choice((0, 1, 2, 7, 30, 255, random.randrange(256)))
    return bytes(head) + struct.pack("<Q", checksum(bytes(head))) + content[size:]


BYTES, TEXT = mutations.mutated_bytes, mutations.mutated_words
JSON, SIGNED = mutations.mutated_json, partial(mutations.mutated_json, sign=signed)
ARRAY, ARCHIVE = mutations.mutated_array, mutations.mutated_archive
DOCUMENT, VALUES = checkpoint_files.mutated_document, checkpoint_files.mutated_values
SBD = f"sbd h.fcidump {CPU} -o out.npz"
RESUME = "execute one.json --device cpu --threads 1 --resume -o kept.npy"
FORMATS = {
    "path": Format("path.json", "plan path.json --devices 2 -o out.json", (BYTES, TEXT, JSON, JSON)),
    "network": Format("net.json", "search net.json --unlimited --time 0.01 -o out.json", (JSON,)),
    "schedule": Format(
        "four.json", "execute four.json --device cpu --threads 1 -o out.npy", (BYTES, SIGNED, SIGNED, SIGNED)
    ),
    "npz": Format("t.npz", "execute one.json --device cpu --threads 1 -o out.npy", (BYTES, ARCHIVE, ARCHIVE)),
    "npy": Format("a.npy", "compress a.npy -o out.tnz", (BYTES, ARRAY, ARRAY)),
    "profile": Format(
        "h.toml", "plan path.json --hardware h.toml --devices 2 -o out.json", (BYTES, TEXT, TEXT)
    ),
    "fcidump": Format("h.fcidump", f"{SBD} --alpha a.txt", (BYTES, TEXT, TEXT)),
    "strings": Format("a.txt", f"{SBD} --alpha a.txt", (BYTES, TEXT)),
    "qsim": Format("c.qsim", "network c.qsim -o out.json", (BYTES, TEXT, TEXT)),
    "qasm": Format(
        "c.qasm", "statevector c.qasm --shots 2 --device cpu --threads 1 -o out.json", (BYTES, TEXT, TEXT)
    ),
    "checkpoint": Format("kept.npy.ckpt/rank0.0.1.npy", RESUME, (BYTES, VALUES)),
    "manifest": Format("kept.npy.ckpt/manifest.json", RESUME, (BYTES,)),
    "solve": Format(
        "s.npz.ckpt", f"sbd h.fcidump --alpha a.txt {CPU} --resume -o s.npz", (BYTES, VALUES, VALUES)
    ),
    "state": Format(
        "v.json", "statevector c.qasm --start v.json --device cpu --threads 1 -o out.json", (SIGNED, BYTES)
    ),
    "search": Format("p.json.ckpt", SEARCH, (BYTES, DOCUMENT, DOCUMENT)),
    "answer": Format("e.json.ckpt", f"{ANSWER} --resume", (BYTES, DOCUMENT, DOCUMENT)),
    "repetitions": Format("m.json.ckpt", f"{SAMPLED} --resume", (BYTES, DOCUMENT, DOCUMENT)),
    "growth": Format("g.npz.ckpt", f"{GROWTH} --resume", (BYTES, VALUES, DOCUMENT)),
    "qubits": Format("k.npz.ckpt", f"{QUBITS} --resume", (BYTES, VALUES)),
    "counts": Format("counts.json", f"{SBD} --alpha counts.json", (BYTES, JSON, JSON)),
    "weights": Format("weights.npz", f"{SBD} --alpha weights.npz", (BYTES, ARCHIVE)),
    "determinants": Format("d.txt", f"{SBD} --determinants d.txt", (BYTES, TEXT)),
    "rotation": Format("turn.npy", f"{SBD} --alpha a.txt --rotation turn.npy", (ARRAY,)),
    "words": Format("w.txt", f"sbd-qubits w.txt b.txt {CPU} -o out.npz", (BYTES, TEXT)),
    "terms": Format("w.json", f"sbd-qubits w.json b.txt {CPU} -o out.npz", (BYTES, JSON, JSON)),
    "samples": Format("b.txt", f"sbd-qubits w.txt b.txt {CPU} -o out.npz", (BYTES, TEXT)),
    "observables": Format("o.txt", f"expectation c.qsim --file o.txt {CPU} -o out.json", (BYTES, TEXT)),
    "values": Format("o.json", f"expectation c.qsim --file o.json {CPU} -o out.json", (BYTES, JSON, JSON)),
    "bits": Format("x.txt", f"amplitudes c.qsim --file x.txt {CPU} -o out.json", (BYTES, TEXT)),
    "bit array": Format("x.npy", f"amplitudes c.qsim --file x.npy {CPU} -o out.json", (BYTES, ARRAY)),
    "stream": Format("a.tnz", "decompress a.tnz -o out.npy", (BYTES, mutated_stream, mutated_stream)),
}  # fmt: skip


SAYS_NOTHING = ("error: residuals are above", "error: every repetition gave 0")
"""Solves of strange integrals and strange repetitions may end so, with status 1."""


@dataclass(frozen=True)
class Trial:
    """What a command did with a mutated file."""

    number: int
    status: int
    error: str
    cpu_s: float
    grown_bytes: int

    @property
    def fault(self) -> str:
        """What is wrong with it; empty where nothing is."""
        lines = [line for line in self.error.splitlines() if line.strip()]
        refusals = [line for line in lines if line.startswith("tnplan: error: ")]
        if self.status == 1 and any(one in self.error for one in SAYS_NOTHING):
            return ""
        if self.status not in (0, 2):
            return f"status {self.status}"
        if self.status == 2 and len(refusals) != 1:
            return f"{len(refusals)} lines of refusal"
        if "Traceback" in self.error or "\x1b" in self.error:
            return "a traceback or an order to the terminal"
        if self.cpu_s > LIMIT_S:
            return f"{self.cpu_s:.1f} s"
        return f"{self.grown_bytes / 1e6:.0f} MB" if self.grown_bytes > LIMIT_BYTES else ""


def trials(name: str, seed: int, numbers: range, good: Path | None = None) -> Iterator[Trial]:
    """Trials of a format, on good files made before or now; each number makes the same file again."""
    form, good, before = FORMATS[name], good or good_files(), Path.cwd()
    content, untouched = (good / form.file).read_bytes(), snapshot(good)
    with TemporaryDirectory() as made:
        folder = Path(made)
        for number in numbers:
            _restore(folder, good)
            random = Random(f"{name} {seed} {number}")
            changed = random.choice(form.mutations)(content, random)
            (folder / form.file).unlink()
            (folder / form.file).write_bytes(changed)
            os.chdir(folder)
            try:
                yield _trial(number, form.command)
            finally:
                os.chdir(before)
    if snapshot(good) != untouched:
        raise RuntimeError(f"{form.command}: wrote into a file instead of replacing it")


def _restore(folder: Path, good: Path) -> None:
    """Make a folder a copy of the good one, or one again: of links, as commands write no file in place.

    Copying and removing all files takes ten times as long as most commands.
    """
    for place, folders, files in os.walk(folder, topdown=False):
        twin = good / Path(place).relative_to(folder)
        for name in files:
            if not ((twin / name).is_file() and (twin / name).samefile(Path(place, name))):
                Path(place, name).unlink()
        for name in folders:
            if not (twin / name).is_dir():
                Path(place, name).rmdir()
    for place, folders, files in os.walk(good):
        twin = folder / Path(place).relative_to(good)
        for name in folders:
            (twin / name).mkdir(exist_ok=True)
        for name in files:
            if not (twin / name).exists():
                (twin / name).hardlink_to(Path(place, name))


def _trial(number: int, command: str) -> Trial:
    error, begin_s = io.StringIO(), time.process_time()
    begin_bytes = _peak_bytes()
    with redirect_stdout(io.StringIO()), redirect_stderr(error):
        status = run(shlex.split(command))
    return Trial(number, status, error.getvalue(), time.process_time() - begin_s, _peak_bytes() - begin_bytes)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _main(name: str, seed: str, first: str, stop: str, good: str) -> None:
    def too_long(*_: Any) -> None:
        raise TimeoutError(f"more than {LIMIT_S} s")

    signal.signal(signal.SIGVTALRM, too_long)
    handler: Callable[[int, float], Any] = signal.setitimer
    print("-1", flush=True)
    numbers = range(int(first), int(stop))
    made = trials(name, int(seed), numbers, Path(good))
    for number in numbers:
        print(number, flush=True)
        handler(signal.ITIMER_VIRTUAL, LIMIT_S + 2)
        trial = next(made)
        handler(signal.ITIMER_VIRTUAL, 0)
        if trial.fault:
            print(json.dumps([name, trial.number, trial.fault, trial.error]), flush=True)
        else:
            print(json.dumps([name, trial.number, trial.status]), flush=True)
    assert next(made, None) is None


if __name__ == "__main__":
    _main(*sys.argv[1:])
