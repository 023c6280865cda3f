"""Times whole slices of real paths on 1, 2 and 4 GPUs, and keeps what was measured over several runs.

    python benchmarks/contraction/replay.py [--case TEXT]
    mpirun -n 4 python -m mpi4py benchmarks/contraction/replay.py [--engine cutensormp] [--case TEXT ...]

A case is a network with a limit on its tensors for each GPU: P GPUs may use paths whose largest tensor is P
times as large. The paths are planned for P GPUs (in groups of the size that the planner takes) and those of
least predicted time are replayed for a few slices; their time for all slices is once + slices x slice.
Every run adds its rows to one file. The summary compares with the least measured time of one GPU: S_P = T_1 /
T_P, E_P = S_P / P, R_P = C_1 / C_P (operations of the two paths), and cutensormp's time with ours.
Goals: the sum of the steps' floors at least 1 / 1.3 of the time at one GPU, prediction within 15 %, peak
within 2 %; E_P / R_P at least 0.95 where R_P is above 1.5; cutensormp at least 1.3 times as long at 4 GPUs.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofline import Roof, floors_s, measure_roof
from shared import (
    PATHS,
    RESULTS,
    ROOF_BYTES,
    ROOM_BYTES,
    launched,
    mean_slice_s,
    open_device,
    say,
    size_bytes,
    values,
)

from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.common.files import load_json, write_text
from tnplan.executor.contraction.run.slice_partition import slices_of_group
from tnplan.executor.device.comm.heartbeat import world_communicator
from tnplan.planner.hardware.profile import Profile, load_profile
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.schedule.schedule import Schedule
from tnplan.planner.search.path_cost import path_cost

GOALS = {"floor_share": 1 / 1.3, "captured": 0.95, "prediction": 0.15, "peak": 0.02, "over_native": 1.3}
MOST_ROUNDS = 8
ROOF_SECONDS = 0.2


@dataclass(frozen=True)
class Case:
    """Paths of one network, named `stem`_*; tensors of at most 2^`log2_limit` elements for each device."""

    stem: str
    log2_limit: int

    @property
    def name(self) -> str:
        """The network and the limit in bytes of complex64."""
        return f"{self.stem} {2 ** (self.log2_limit - 27)} GiB"


CASES = (
    *(Case(f"rectangular_{size}_l20", limit) for size in ("5x7", "6x6") for limit in (27, 30, 32)),
    Case("rectangular_6x7_l20", 32),
    Case("triangular_7x7_l24", 32),
    Case("zuchongzhi_n60_m24", 32),
    Case("zuchongzhi_n60_m24", 33),
    Case("sycamore_n53_m14", 30),
    Case("sycamore_n53_m20", 30),
    Case("sycamore_n53_m20", 32),
    Case("peps_7x8_D16", 32),
)


@dataclass(frozen=True)
class Setting:
    """What all replays of a run share."""

    profile: Profile
    devices: int
    device: str
    engine: str
    precision: str
    policy: str
    memory_bytes: float | None
    ranks_per_group: int | None
    seconds: float
    longest_s: float


def candidates(case: Case, devices: int) -> list[Path]:
    """The files of a case's paths whose largest tensor fits `devices` devices."""
    limit = case.log2_limit + math.log2(devices) + 1e-6
    files = sorted(PATHS.glob(f"{case.stem}_*.json"))
    return [file for file in files if path_cost(load_path(file)).log2_largest <= limit]


def by_network(files: Sequence[Path]) -> list[tuple[str, list[Path]]]:
    """The names of the networks of these paths, each with its paths."""
    found: dict[str, list[Path]] = {}
    for file in files:
        found.setdefault(re.sub(r"_(b[0-9]+|unsliced)_.*", "", file.stem), []).append(file)
    return list(found.items())


def planned(
    files: Sequence[Path], setting: Setting, most: int, left_out: dict[str, str]
) -> list[tuple[Path, Schedule]]:
    """The schedules of the paths with the least predicted times, best first; refusals go to `left_out`."""
    found = []
    for file in files:
        try:
            schedule = plan(
                load_path(file), setting.profile, devices=setting.devices, policy=setting.policy,
                precision=setting.precision, memory_bytes=setting.memory_bytes,
                ranks_per_group=setting.ranks_per_group,
            )  # fmt: skip
        except InputError as error:
            left_out[file.stem] = f"not planned: {error}"
            continue
        found.append((schedule.projected_s(setting.devices // schedule.ranks_per_group), file, schedule))
    found.sort(key=lambda entry: (entry[0], entry[1]))
    return [(file, schedule) for _, file, schedule in found[:most]]


def replay(file: Path, schedule: Schedule, setting: Setting, roof: Roof) -> dict[str, Any]:
    """Replay some slices (an unsliced path whole, twice) and give the row; collective under mpirun."""
    groups = setting.devices // schedule.ranks_per_group
    predicted = schedule.predicted
    rounds = 1
    if schedule.sliced:
        rounds = int(min(max(setting.seconds / predicted.slice_s, 2), MOST_ROUNDS))
    n_slices = min(rounds * groups, schedule.n_slices)
    arrays = values(file)
    for _ in range(1 if schedule.sliced else 2):
        report = execute(
            schedule, arrays, ranks=None if launched() else setting.devices, device=setting.device,
            slices=(0, n_slices), engine=setting.engine,
        ).report  # fmt: skip
    measured = report["measured"]
    of_group = slices_of_group(0, groups, 0, n_slices)
    slices_s = [measured["slices_s"].get(str(number), 0.0) for number in of_group]
    once_s = max(measured["run_s"] - sum(slices_s), 0.0)
    slice_s = 0.0
    if schedule.sliced:
        slice_s = mean_slice_s(schedule, measured)
    all_rounds = -(-schedule.n_slices // groups) if schedule.sliced else 0
    floor_once_s, floor_slice_s = floors_s(schedule, roof)
    unit_s, floor_s, unit_flops, expected_s = (
        (slice_s, floor_slice_s, predicted.slice_flops, predicted.slice_s)
        if schedule.sliced
        else (once_s, floor_once_s, predicted.once_flops, predicted.once_s)
    )
    return {
        "path": file.stem, "devices": setting.devices, "engine": setting.engine,
        "precision": setting.precision, "policy": setting.policy, "device": setting.device,
        "ranks_per_group": schedule.ranks_per_group, "slices": schedule.n_slices,
        "slices_timed": n_slices, "once_s": once_s, "slice_s": slice_s,
        "time_s": once_s + all_rounds * slice_s,
        "unit_s": unit_s, "flop_per_s_a_gpu": unit_flops / unit_s, "floor_s": floor_s,
        "floor_share": floor_s / unit_s, "predicted_s": expected_s,
        "predicted_over_measured": expected_s / unit_s,
        "moved_bytes": predicted.slice_moved_bytes if schedule.sliced else predicted.once_moved_bytes,
        "sent_bytes_of_run": measured["sent_bytes"], "kinds_s": measured["kinds_s"],
        "peak_bytes": measured["peak_bytes"],
        "peak_over_predicted": measured["peak_bytes"] / predicted.peak_bytes,
        "complexity": schedule.operations, "not_finite": report["not_finite"],
        "copy_bytes_per_s": roof.copy_bytes_per_s, "product_flop_per_s": roof.flop_per_s,
        "environment": report["environment"],
    }  # fmt: skip


HEADER = (
    f"{'case':28} {'path':36} {'P':>2} {'group':>5} {'slices':>7} {'s a slice':>9} "
    f"{'TFLOP/s':>8} {'floor':>6} {'GB moved':>8} {'pred.':>6} {'peak GiB':>8} {'/pred.':>6} {'all s':>10}"
)


def line(row: dict[str, Any]) -> str:
    """A row of the table: seconds of a slice, or of the whole where nothing is sliced."""
    return (
        f"{row['case']:28} {row['path']:36} {row['devices']:>2} {row['ranks_per_group']:>5} "
        f"{row['slices']:>7.3g} {row['unit_s']:>9.4f} {row['flop_per_s_a_gpu'] / 1e12:>8.2f} "
        f"{row['floor_share']:>6.2f} {row['moved_bytes'] / 1e9:>8.2f} {row['predicted_over_measured']:>6.2f} "
        f"{row['peak_bytes'] / 2**30:>8.2f} {row['peak_over_predicted']:>6.3f} {row['time_s']:>10.4g}"
    )


KEY = ("case", "path", "devices", "engine", "precision", "policy", "device", "ranks_per_group")


def kept(file: Path, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of earlier runs, those measured again replaced."""
    earlier = load_json(file)["rows"] if file.exists() else []
    new = {tuple(row[name] for name in KEY) for row in rows}
    return [row for row in earlier if tuple(row[name] for name in KEY) not in new] + list(rows)


def compared(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each case, precision and number of devices the best of ours, against one device and cutensormp."""
    found = []
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["case"], row["precision"], row["device"]), []).append(row)
    for (case, precision, device), members in sorted(groups.items()):
        own = [row for row in members if row["engine"] == "native"]
        alone = min((row for row in own if row["devices"] == 1), key=_time, default=None)
        for devices in sorted({row["devices"] for row in own}):
            best = min((row for row in own if row["devices"] == devices), key=_time)
            entry = {
                "case": case, "precision": precision, "device": device, "devices": devices,
                "path": best["path"], "time_s": best["time_s"], "flop_per_s_a_gpu": best["flop_per_s_a_gpu"],
                "floor_share": best["floor_share"],
            }  # fmt: skip
            if alone is not None:
                speedup = alone["time_s"] / best["time_s"]
                reduction = alone["complexity"] / best["complexity"]
                extra = speedup / devices
                entry |= {"S": speedup, "E": extra, "R": reduction, "captured": extra / reduction}
            peers = [
                row for row in members
                if row["engine"] != "native" and (row["devices"], row["path"]) == (devices, best["path"])
            ]  # fmt: skip
            if peers:
                entry["over_native"] = min(peers, key=_time)["time_s"] / best["time_s"]
            found.append(entry)
    return found


def store(
    file: Path, rows: Sequence[dict[str, Any]], left_out: Mapping[str, str]
) -> list[dict[str, Any]]:  # fmt: skip
    """Write this run's rows beside those of earlier runs, and what it left out; give the summary of all."""
    every = kept(file, rows)
    entries = compared(every)
    document = {"goals": GOALS, "summary": entries, "rows": every, "left_out": dict(left_out)}
    write_text(file, json.dumps(document, indent=1) + "\n")
    return entries


def _time(row: dict[str, Any]) -> float:
    return float(row["time_s"])


def show(entries: Sequence[dict[str, Any]]) -> None:
    """Print the summary."""
    names = ("S", "E", "R", "captured", "over_native")
    say(f"\n{'case':28} {'precision':9} {'P':>2} {'T_P s':>10} {'TFLOP/s':>8} {'floor':>6} "
        f"{'S_P':>6} {'E_P':>6} {'R_P':>6} {'E/R':>6} {'Mp/ours':>7}")  # fmt: skip
    for entry in entries:
        cells = " ".join(
            f"{entry[name]:>{7 if name == 'over_native' else 6}.3f}" if name in entry else f"{'-':>6}"
            for name in names
        )
        say(f"{entry['case']:28} {entry['precision']:9} {entry['devices']:>2} {entry['time_s']:>10.4g} "
            f"{entry['flop_per_s_a_gpu'] / 1e12:>8.2f} {entry['floor_share']:>6.2f} {cells}")  # fmt: skip


def missed(rows: Sequence[dict[str, Any]], entries: Sequence[dict[str, Any]]) -> list[str]:
    """The goals that this run's rows and the summary miss, in words."""
    lines = []
    for row in rows:
        if row["engine"] != "native":
            continue
        name = f"{row['path']} at {row['devices']}"
        if abs(row["predicted_over_measured"] - 1) > GOALS["prediction"]:
            lines.append(f"{name}: predicted {row['predicted_over_measured']:.2f} of the measured time")
        if abs(row["peak_over_predicted"] - 1) > GOALS["peak"]:
            lines.append(f"{name}: peak {row['peak_over_predicted']:.3f} of the predicted one")
        if row["devices"] == 1 and row["floor_share"] < GOALS["floor_share"]:
            lines.append(f"{name}: {row['floor_share']:.2f} of the time is floor")
        if row["not_finite"]:
            lines.append(f"{name}: the result is not finite")
    for entry in entries:
        name = f"{entry['case']} at {entry['devices']}"
        if entry.get("R", 0) > 1.5 and entry["captured"] < GOALS["captured"]:
            lines.append(f"{name}: captures {entry['captured']:.2f}")
        if entry["devices"] == 4 and entry.get("over_native", math.inf) < GOALS["over_native"]:
            lines.append(f"{name}: cutensormp takes {entry['over_native']:.2f} of our time")
    return lines


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path, help="only these paths, a case a network")
    parser.add_argument(
        "--case", action="append", default=[], help="only cases whose name has this text, or another given"
    )
    parser.add_argument("--engine", choices=("native", "cutensormp"), default="native")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--policy", choices=("ours", "paper"), default="ours")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--hardware", default="h200-nvlink")
    parser.add_argument("--memory", type=size_bytes, help="of a device; default: the profile's")
    parser.add_argument("--ranks", type=int, default=1, help="devices, where mpirun did not start this")
    parser.add_argument("--group", type=int, help="devices that share a slice; default: the planner's choice")
    parser.add_argument("--candidates", type=int, default=2, help="paths replayed for each case")
    parser.add_argument("--seconds", type=float, default=5.0, help="predicted, for a path's slices")
    parser.add_argument("--longest", type=float, default=60.0, help="predicted seconds; above: left out")
    parser.add_argument("--output", type=Path, default=RESULTS / "replay.json")
    return parser.parse_args()


def measured_roof(setting: Setting) -> Roof:
    """What the device of rank 0 does at best, known to all ranks."""
    world = world_communicator()
    roof = None
    if world is None or world.rank == 0:
        device = open_device(setting.device)
        size = ROOF_BYTES[device.name]
        device.allocate(size + ROOM_BYTES)
        roof = measure_roof(device, "complex64", setting.precision, size, ROOF_SECONDS)
        if hasattr(device, "close"):
            device.close()
    if world is not None:
        roof = world.broadcast_object(roof, 0)
    assert roof is not None
    return roof


def main() -> int:
    """Replay, print both tables and add to the file; 1 where a goal is missed on one process."""
    options = arguments()
    world = world_communicator()
    devices = options.ranks if world is None else world.size
    setting = Setting(
        load_profile(options.hardware), devices, options.device, options.engine, options.precision,
        options.policy, options.memory, options.group, options.seconds, options.longest,
    )  # fmt: skip
    wanted = options.case or [""]
    work = [
        (case.name, candidates(case, devices)) for case in CASES if any(text in case.name for text in wanted)
    ]
    if options.paths:
        work = by_network(options.paths)
    roof = measured_roof(setting)
    say(f"copy {roof.copy_bytes_per_s / 1e12:.3f} TB/s, product {roof.flop_per_s / 1e12:.2f} TFLOP/s")
    say(HEADER)
    first = world is None or world.rank == 0
    rows: list[dict[str, Any]] = []
    entries: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    measured: dict[str, dict[str, Any]] = {}
    for name, files in work:
        for file, schedule in planned(files, setting, options.candidates, left_out):
            expected_s = schedule.predicted.once_s + schedule.predicted.slice_s
            if expected_s > setting.longest_s:
                left_out[file.stem] = f"a slice takes {expected_s:.0f} s as predicted"
                continue
            if schedule.identity not in measured:
                try:
                    measured[schedule.identity] = replay(file, schedule, setting, roof)
                except InputError as error:
                    left_out[file.stem] = f"refused: {error}"
                    continue
            row = {"case": name, **measured[schedule.identity]}
            rows.append(row)
            say(line(row))
            if first:
                entries = store(options.output, rows, left_out)
    for path, reason in left_out.items():
        say(f"{path} is left out, {reason}")
    if first:
        entries = store(options.output, rows, left_out)
    if not first:
        return 0
    show(entries)
    lines = missed(rows, entries)
    say("\n".join(["", *(f"missed: {text}" for text in lines)]))
    # Under mpirun another status than 0 would end the other ranks.
    return 1 if lines and world is None else 0


if __name__ == "__main__":
    sys.exit(main())
