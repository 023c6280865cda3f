"""Checkpoints with random damage, and what the job does that is to go on from one.

As a script: `python -m tests.support.robustness.damaged_checkpoints SEED COUNT [KIND ...]` prints how many of
so many damaged checkpoints of each kind were refused, and how many gave the right result all the same.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np

from tests.support.bad_input import snapshot
from tests.support.robustness.checkpoint_files import sealed
from tests.support.robustness.interrupted_jobs import HAS_ADDON, KINDS, REFUSED, Ended, Workshop

REFUSALS, SAME, ACCEPTED, UNCLEAR = "refused", "the same result", "accepted", "unclear"
REFUSAL = re.compile(r"^(?:tnplan: error: )?\S*\.ckpt.*: .*; .*delete .* to start again.*$", re.MULTILINE)
ROUNDING = 1e-5
"""How far results of complex64 may be apart that are equal to rounding."""


@dataclass(frozen=True)
class Trial:
    """What was done to a checkpoint, and what came of it."""

    damage: str
    outcome: str
    error: str


def trials(kind: str, seed: int, count: int) -> Iterator[Trial]:
    """Damaged checkpoints of a kind, each resumed."""
    with TemporaryDirectory() as made:
        workshop = Workshop(KINDS[kind], Path(made))
        whole = {}
        for late in (False, True):
            _place(workshop, workshop.left_by(0, late))
            whole[late] = workshop.resumed()
            assert whole[late].status in (0, 1), whole[late]
        number = 0
        while count:
            number += 1
            random = Random(f"{kind} {seed} {number}")
            late = random.random() < 0.7
            _place(workshop, workshop.left_by(0, late))
            good = snapshot(workshop.checkpoint)
            content = None if workshop.checkpoint.is_dir() else workshop.checkpoint.read_bytes()
            what, is_same = _damaged(workshop, random, late)
            if (snapshot(workshop.checkpoint), _content(workshop.checkpoint)) == (good, content):
                continue
            count -= 1
            yield _trial(workshop, what, whole[late], is_same)


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _place(workshop: Workshop, checkpoint: Path) -> None:
    workshop.clear()
    if checkpoint.is_dir():
        shutil.copytree(checkpoint, workshop.checkpoint)
    else:
        shutil.copy(checkpoint, workshop.checkpoint)


def _trial(workshop: Workshop, what: str, whole: Ended, is_same: bool) -> Trial:
    before = snapshot(workshop.checkpoint), _content(workshop.checkpoint)
    ended = workshop.resumed()
    after = snapshot(workshop.checkpoint), _content(workshop.checkpoint)
    if ended.status == REFUSED:
        is_clear = len(REFUSAL.findall(ended.error)) == 1 and "Traceback" not in ended.error
        return Trial(what, REFUSALS if is_clear and after == before else UNCLEAR, ended.error)
    if ended.status != whole.status:
        return Trial(what, UNCLEAR, f"status {ended.status} {ended.error}")
    if not _is_equal(ended, whole, is_same):
        return Trial(what, ACCEPTED, ended.error)
    # A file that is missing looks as where a job is killed before it is written, and needs no note.
    is_missing = " removed" in what or " named " in what
    is_said = is_same or is_missing or ended.resumed >= whole.resumed or ended.error
    return Trial(what, SAME if is_said else UNCLEAR, ended.error)


def _is_equal(ended: Ended, whole: Ended, to_rounding: bool) -> bool:
    pairs = list(zip(ended.values, whole.values, strict=True))
    if to_rounding:
        return all(np.abs(a - b).max() <= ROUNDING * np.abs(b).max() for a, b in pairs)
    return all(a.tobytes() == b.tobytes() for a, b in pairs)


def _damaged(workshop: Workshop, random: Random, late: bool) -> tuple[str, bool]:
    """Damage the checkpoint that is there: what was done, and whether it is one of the same job still."""
    checkpoint = workshop.checkpoint
    if random.random() < 0.3:
        other = random.randrange(1, len(workshop.kind.variants))
        variant, left = workshop.kind.variants[other], workshop.left_by(other, random.random() < 0.5)
        if random.random() < 0.5:
            _place(workshop, left)
            return f"that of job {other}", variant.is_same
        if left.is_dir():
            return _mixed(workshop, left, other, random)
        size = random.randrange(1, checkpoint.stat().st_size)
        checkpoint.write_bytes(checkpoint.read_bytes()[:size] + left.read_bytes()[size:])
        return f"{size} bytes, then those of job {other}", False
    if checkpoint.is_dir() and random.random() < 0.5:
        return random.choice((_renamed, _exchanged, _replayed, _removed))(workshop, random, late), False
    path = random.choice(sorted(checkpoint.iterdir())) if checkpoint.is_dir() else checkpoint
    how = random.choice(CHANGES)
    path.write_bytes(how(path.read_bytes(), random))
    return f"{path.name}: {how.__name__}", False


def _flipped(content: bytes, random: Random) -> bytes:
    data, region = bytearray(content), random.choice(((0, 1), (0, 0.1), (0.9, 1)))
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        first, last = (int(end * len(data)) for end in region)
        data[random.randrange(first, max(last, first + 1))] ^= 1 << random.randrange(8)
    return bytes(data)


def _shortened(content: bytes, random: Random) -> bytes:
    return content[: random.choice((0, len(content) - 1, len(content) - 65, random.randrange(len(content))))]


def _lengthened(content: bytes, random: Random) -> bytes:
    size = random.choice((1, 8, 500))
    more = random.choice((random.randbytes(size), bytes(size), content[-size:], content, b"\n"))
    return random.choice((content + more, more + content))


def _cut(content: bytes, random: Random) -> bytes:
    first, last = sorted(random.randrange(len(content) + 1) for _ in range(2))
    return content[:first] + content[last:]


def _zeroed(content: bytes, random: Random) -> bytes:
    first, last = sorted(random.randrange(len(content) + 1) for _ in range(2))
    return content[:first] + bytes(last - first) + content[last:]


def _moved(content: bytes, random: Random) -> bytes:
    a, b, c = sorted(random.randrange(len(content) + 1) for _ in range(3))
    return content[:a] + content[b:c] + content[a:b] + content[c:]


def _foreign(content: bytes, random: Random) -> bytes:
    header = {"format": "tnplan.other", "version": 1, "identity": "0", "place": {}, "document": {}}
    text = json.dumps({"format": "tnplan.checkpoint", "version": 4}).encode()
    return random.choice((b"", b"{}", text, sealed(b"", header), content[::-1], np.float64(1).tobytes()))


CHANGES: tuple[Callable[[bytes, Random], bytes], ...] = (
    _flipped, _flipped, _flipped, _shortened, _lengthened, _cut, _zeroed, _moved, _foreign,
)  # fmt: skip


def _sums(folder: Path) -> list[Path]:
    return sorted(folder.glob("rank*"))


def _renamed(workshop: Workshop, random: Random, late: bool) -> str:
    """A partial sum by another name, or copied to it."""
    path = random.choice(_sums(workshop.checkpoint))
    rank, division, count, form = path.name.removeprefix("rank").split(".")
    place = random.randrange(4)
    if place == 0:
        rank = str(random.randrange(4))
    elif place == 1:
        division = str(random.randrange(3))
    elif place == 2:
        count = str(max(0, int(count) + random.choice((-2, -1, 1, 2, 5000))))
    else:
        form = {"npy": "tnz", "tnz": "npy"}[form]
    target = path.with_name(f"rank{rank}.{division}.{count}.{form}")
    name = f"{path.name} named {target.name}"
    if random.random() < 0.5:
        path.replace(target)
        return name
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(target)
    return f"{name} too"


def _exchanged(workshop: Workshop, random: Random, late: bool) -> str:
    """Two files by each other's name."""
    a, b = random.sample(sorted(workshop.checkpoint.iterdir()), 2)
    content = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(content)
    return f"{a.name} and {b.name} exchanged"


def _replayed(workshop: Workshop, random: Random, late: bool) -> str:
    """A partial sum of another stage beside that of this one, by its own name or by this one's."""
    path = random.choice(_sums(workshop.checkpoint))
    rank = path.name.split(".")[0]
    others = [one for one in _sums(workshop.left_by(0, not late)) if one.name.split(".")[0] == rank]
    older = random.choice(others)
    name = random.choice((path.name, older.name))
    shutil.copy(older, workshop.checkpoint / name)
    if random.random() < 0.5 and name != path.name:
        path.unlink()
    return f"{older.name} of another stage as {name}"


def _removed(workshop: Workshop, random: Random, late: bool) -> str:
    """A file less."""
    path = random.choice(sorted(workshop.checkpoint.iterdir()))
    path.unlink()
    return f"{path.name} removed"


def _mixed(workshop: Workshop, left: Path, other: int, random: Random) -> tuple[str, bool]:
    """Some files of a folder from another job, by their own names or by those of this one's."""
    taken = []
    for path in sorted(left.iterdir()):
        if random.random() < 0.5:
            target = random.choice([path.name, *(one.name for one in workshop.checkpoint.iterdir())])
            shutil.copy(path, workshop.checkpoint / target)
            taken.append(f"{path.name} as {target}")
    return f"of job {other}: {', '.join(taken)}", False


def _main(seed: str, count: str, *kinds: str) -> None:
    total: Counter[str] = Counter()
    for kind in kinds or KINDS:
        if kind == "sqd" and not HAS_ADDON:
            print(f"{kind}: needs qiskit-addon-sqd")
            continue
        found = list(trials(kind, int(seed), int(count)))
        outcomes = Counter(trial.outcome for trial in found)
        total += outcomes
        print(f"{kind}: {dict(outcomes)}", flush=True)
        for trial in found:
            if trial.outcome in (ACCEPTED, UNCLEAR):
                print(f"    {trial.outcome}: {trial.damage}: {trial.error}", flush=True)
    print(f"all: {dict(total)}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
