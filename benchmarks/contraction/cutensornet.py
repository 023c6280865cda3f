"""Times slices of real paths on one GPU, ours and cuTensorNet's: the same order, slices and tensors.

    python benchmarks/contraction/cutensornet.py [PATH.json ...] [--case TEXT] [--precision fp32]

The cases are those of replay.py on one GPU, each with the path of the least predicted time. cuTensorNet
contracts it plainly, then with its cache for what slices share, then with its autotuner on the faster of the
two; each may take all of the GPU's free memory, and the fastest counts. Our time for all slices is once +
slices x slice, cuTensorNet's is slices x slice. The first and the last slice are the same whatever the order
of sliced indices: their values are compared. What the library refuses stands in its row, in its own words.
Goals: cuTensorNet takes at least our time; the values differ by at most 1e-4 of the largest.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cutensornet_calls as peer
import numpy as np
from numpy.typing import NDArray
from replay import CASES, MOST_ROUNDS, Setting, candidates, kept, planned
from shared import RESULTS, mean_slice_s, size_bytes, values

from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.common.files import write_text
from tnplan.executor.device.cuda.contract import cutensor
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.schedule.schedule import Schedule

GOALS = {"peer_over_ours": 1.0, "difference": 1e-4}
ROOM_BYTES = 1 << 30
"""Device memory that is left to the library's own allocations."""
TUNING_SLICES = 30
"""Slices that the autotuner is taken to contract; where they would take too long it is left out."""
Ends = tuple[NDArray[Any], NDArray[Any]]
"""The values of the first and of the last slice."""


def ours(file: Path, schedule: Schedule, setting: Setting) -> tuple[dict[str, Any], Ends]:
    """Replay some slices (an unsliced path whole, twice); their row and the values of both ends."""
    arrays = values(file)

    def replayed(first: int, stop: int) -> tuple[NDArray[Any], dict[str, Any]]:
        done = execute(schedule, arrays, ranks=1, device=setting.device, slices=(first, stop))
        assert done.array is not None
        return done.array, done.report

    number = schedule.n_slices
    ends = replayed(0, 1)[0], replayed(number - 1, number)[0]
    rounds = min(max(setting.seconds / schedule.predicted.slice_s, 2), MOST_ROUNDS) if schedule.sliced else 1
    n_slices = min(int(rounds), number)
    report = replayed(0, n_slices)[1]
    measured = report["measured"]
    slices_s = [measured["slices_s"].get(str(slice_), 0.0) for slice_ in range(n_slices)]
    slice_s = mean_slice_s(schedule, measured) if schedule.sliced else 0.0
    once_s = max(measured["run_s"] - sum(slices_s), 0.0)
    row = {
        "ours_once_s": once_s, "ours_slice_s": slice_s, "ours_slices_timed": n_slices,
        "ours_time_s": once_s + number * slice_s if schedule.sliced else once_s,
        "ours_peak_bytes": measured["peak_bytes"], "environment": report["environment"],
    }  # fmt: skip
    return row, ends


class Rival:
    """One network in cuTensorNet on this GPU, with its tensors and its memory."""

    def __init__(self, path: ContractionPath, arrays: Sequence[NDArray[Any]], precision: str, shares: bool):
        import cupy

        self._cupy = cupy
        self._network = peer.SlicedNetwork(path, precision, constant=shares)
        if self._network.n_slices != path.n_slices:
            raise peer.CutensornetError(
                f"counts {self._network.n_slices} slices, the path has {path.n_slices}"
            )
        self.n_slices = path.n_slices
        self._stream = cupy.cuda.Stream(non_blocking=True)
        inputs = [cupy.asarray(np.ascontiguousarray(array)) for array in arrays]
        self._output = cupy.zeros(path.network.output_shape, path.dtype)
        needs = self._network.needs()
        room_bytes = cupy.cuda.runtime.memGetInfo()[0] - ROOM_BYTES
        if needs.least_bytes > room_bytes:
            raise peer.CutensornetError(
                f"needs at least {needs.least_bytes / 2**30:.1f} GiB of workspace, "
                f"{room_bytes / 2**30:.1f} GiB are free"
            )
        self.scratch_bytes = min(max(needs.least_bytes, needs.wished_bytes), room_bytes)
        self.shared_bytes = min(needs.cache_bytes, room_bytes - self.scratch_bytes) if shares else 0
        cupy.cuda.Device().synchronize()
        begin = time.perf_counter()
        self._network.prepare(
            inputs, self._output, self._memory(self.scratch_bytes), self._memory(self.shared_bytes)
        )
        self.prepare_s = time.perf_counter() - begin

    def _memory(self, size: int) -> Any | None:
        """A flat array of so many bytes of its own, given back with the object."""
        cupy = self._cupy
        if size <= 0:
            return None
        return cupy.ndarray(size, np.uint8, cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0))

    def tune(self) -> float:
        """Let the library tune kernels and orders of modes, as often as it likes; the seconds taken."""
        begin = time.perf_counter()
        self._network.tune(self._stream)
        self._stream.synchronize()
        return time.perf_counter() - begin

    def timed_s(self, first: int, stop: int) -> float:
        """The seconds on the GPU of contracting the slices first .. stop-1 in one call."""
        begin, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        begin.record(self._stream)
        self._network.contract(first, stop, self._stream)
        end.record(self._stream)
        end.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(begin, end)) / 1e3

    def value(self, number: int) -> NDArray[Any]:
        """The value of one slice, on the host."""
        self.timed_s(number, number + 1)
        array: NDArray[Any] = self._cupy.asnumpy(self._output)
        return array


def measured(rival: Rival, seconds: float) -> tuple[float, int, Ends]:
    """Seconds of a slice, how many were timed, and the values of both ends."""
    first = rival.value(0)
    last = rival.n_slices - 1
    if last < 2:
        return rival.timed_s(last, last + 1), 1, (first, rival.value(last))
    expected_s = rival.timed_s(1, 2)
    count = int(min(max(seconds / expected_s, 1), MOST_ROUNDS, last - 1))
    slice_s = rival.timed_s(2, 2 + count) / count
    return slice_s, count, (first, rival.value(last))


def theirs(
    file: Path, setting: Setting, most_tuning_s: float
) -> tuple[list[dict[str, Any]], dict[str, Ends]]:
    """One entry for each way that cuTensorNet can take, refusals too, and the values of each way."""
    path = load_path(file)
    arrays = values(file)
    entries: list[dict[str, Any]] = []
    ends: dict[str, Ends] = {}

    def tried(way: str, shares: bool, tunes: bool) -> None:
        entry: dict[str, Any] = {"way": way}
        entries.append(entry)
        with told(entry):
            rival = Rival(path, arrays, setting.precision, shares)
            entry |= {
                "scratch_bytes": rival.scratch_bytes, "shared_bytes": rival.shared_bytes,
                "prepare_s": rival.prepare_s,
            }  # fmt: skip
            if tunes:
                entry["tune_s"] = rival.tune()
            slice_s, count, ends[way] = measured(rival, setting.seconds)
            entry |= {"slice_s": slice_s, "slices_timed": count, "time_s": slice_s * path.n_slices}

    tried("plain", False, False)
    if path.n_slices > 1:
        tried("cached", True, False)
    done = [entry for entry in entries if "slice_s" in entry]
    if done:
        best = min(done, key=lambda entry: float(entry["slice_s"]))
        expected_s = best["slice_s"] * TUNING_SLICES
        if expected_s <= most_tuning_s:
            tried("tuned", best["way"] == "cached", True)
        else:
            entries.append({"way": "tuned", "error": f"left out, may take {expected_s:.0f} s"})
    return entries, ends


@contextmanager
def told(entry: dict[str, Any]) -> Iterator[None]:
    """Note in the entry why the library, or the GPU under it, refused."""
    from cupy.cuda.runtime import CUDARuntimeError

    try:
        yield
    except (peer.CutensornetError, CUDARuntimeError) as error:
        entry["error"] = str(error)


def difference(own: Ends, other: Ends) -> float:
    """How far the values of the two ends are apart at most, relative to our largest of each."""
    return max(
        float(np.max(np.abs(np.ravel(b) - np.ravel(a))) / np.max(np.abs(a)))
        for a, b in zip(own, other, strict=True)
    )


def compared(
    name: str, file: Path, schedule: Schedule, setting: Setting, most_tuning_s: float
) -> dict[str, Any]:
    """The row of one path: our replay, then cuTensorNet's ways."""
    row, own = ours(file, schedule, setting)
    entries, ends = theirs(file, setting, most_tuning_s)
    for entry in entries:
        if entry["way"] in ends:
            entry["difference"] = difference(own, ends[entry["way"]])
    row = {
        "case": name, "path": file.stem, "devices": 1, "engine": "cutensornet",
        "precision": setting.precision, "policy": setting.policy, "device": setting.device,
        "ranks_per_group": 1, "slices": schedule.n_slices, **row, "ways": entries,
    }  # fmt: skip
    done = [entry for entry in entries if "time_s" in entry]
    if done:
        best = min(done, key=lambda entry: float(entry["time_s"]))
        row |= {
            "peer_way": best["way"], "peer_slice_s": best["slice_s"], "peer_time_s": best["time_s"],
            "peer_over_ours": best["time_s"] / row["ours_time_s"],
            "difference": max(entry["difference"] for entry in done),
        }  # fmt: skip
    row["environment"] |= {
        "cutensornet": peer.version(),
        "cutensor": ".".join(map(str, cutensor.version(cutensor.bindings()))),
    }
    return row


WAYS = ("plain", "cached", "tuned")
HEADER = (
    f"{'case':28} {'path':36} {'slices':>9} {'ours s':>9} {'plain s':>9} {'cached s':>9} {'tuned s':>9} "
    f"{'ratio':>6} {'differ':>8} {'ours all':>10} {'theirs':>10}"
)


def lines(row: dict[str, Any]) -> Iterator[str]:
    """A row of the table, seconds a slice, and beneath it what was refused."""
    unit_s = row["ours_slice_s"] or row["ours_once_s"]
    slices = {entry["way"]: entry["slice_s"] for entry in row["ways"] if "slice_s" in entry}
    cells = " ".join(f"{slices[way]:>9.4f}" if way in slices else f"{'-':>9}" for way in WAYS)
    text = f"{row['case']:28} {row['path']:36} {row['slices']:>9.3g} {unit_s:>9.4f} {cells}"
    if "peer_over_ours" in row:
        text += (
            f" {row['peer_over_ours']:>6.2f} {row['difference']:>8.1e}"
            f" {row['ours_time_s']:>10.4g} {row['peer_time_s']:>10.4g}"
        )
    yield text
    for entry in row["ways"]:
        if "error" in entry:
            yield f"  {entry['way']}: {entry['error']}"


def missed(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The goals that rows miss, in words."""
    for row in rows:
        if row.get("peer_over_ours", math.inf) < GOALS["peer_over_ours"]:
            yield f"{row['path']}: cuTensorNet takes {row['peer_over_ours']:.2f} of our time"
        if not row.get("difference", 0.0) <= GOALS["difference"]:
            yield f"{row['path']}: the values differ by {row['difference']:.1e}"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path, help="paths, instead of the cases of replay.py")
    parser.add_argument("--case", default="", help="only cases whose name has this text")
    parser.add_argument("--precision", choices=tuple(peer.COMPUTE), default="fp32")
    parser.add_argument("--hardware", default="h200-nvlink")
    parser.add_argument("--memory", type=size_bytes, help="of the GPU, for us; default: the profile's")
    parser.add_argument("--seconds", type=float, default=5.0, help="for the timed slices of each way")
    parser.add_argument(
        "--longest", type=float, default=20.0, help="predicted seconds a slice; above: left out"
    )
    parser.add_argument(
        "--tuning", type=float, default=60.0, help="seconds expected of the autotuner at most"
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "cutensornet.json")
    return parser.parse_args()


def main() -> int:
    """Measure, print the table and add to the file; 1 where a goal is missed."""
    options = arguments()
    setting = Setting(
        load_profile(options.hardware), 1, "gpu", "native", options.precision, "ours", options.memory, 1,
        options.seconds, options.longest,
    )  # fmt: skip
    try:
        peer.library()
    except InputError as error:
        print(error)
        return 1
    work = [(case.name, candidates(case, 1)) for case in CASES if options.case in case.name]
    if options.paths:
        work = [(re.sub(r"_(b[0-9]+|unsliced)_.*", "", file.stem), [file]) for file in options.paths]
    print(HEADER, flush=True)
    rows: list[dict[str, Any]] = []
    measured_files: set[Path] = set()
    refused: dict[str, str] = {}
    for name, files in work:
        for file, schedule in planned(files, setting, 1, refused):
            expected_s = schedule.predicted.once_s + schedule.predicted.slice_s
            if file in measured_files:
                continue
            if expected_s > setting.longest_s:
                print(f"{name}: {file.stem}: left out, a slice takes {expected_s:.0f} s as predicted")
                continue
            measured_files.add(file)
            try:
                row = compared(name, file, schedule, setting, options.tuning)
            except InputError as error:
                print(f"{name}: {file.stem}: refused: {error}", flush=True)
                continue
            rows.append(row)
            print("\n".join(lines(row)), flush=True)
            every = kept(options.output, rows)
            write_text(options.output, json.dumps({"goals": GOALS, "rows": every}, indent=1) + "\n")
    texts = list(missed(rows))
    print("".join(f"{path} is left out, {reason}\n" for path, reason in refused.items()), end="")
    print("\n".join(f"missed: {text}" for text in texts))
    return 1 if texts else 0


if __name__ == "__main__":
    sys.exit(main())
