"""Times single steps and fused chains of real trees against the roofline, cuTENSOR beside them.

    python benchmarks/contraction/steps.py [PATH.json ...] [--seconds 300] [--case TEXT] [--precision fp32]
        [--device gpu]

The steps are those with a tensor of 1 GiB or more, as the planner orders their modes for one GPU of unlimited
memory; leading modes are dropped where they would need more than 100 GiB or 10^13 operations. Floor: the
larger of the bytes read and written once over the copy bandwidth, and the operations over the best rate of a
product at that precision, both measured in the run. A step is timed as a matrix product and as a fused
kernel; ours is the faster, and cuTENSOR's time stands beside it. A chain is timed as planned, against its own
floor, the sum of its steps' floors and the sum of cuTENSOR's times.
Goals: time over floor at most 1.25 in the median and 2 at worst; at most 1.05 of cuTENSOR's time.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from roofline import Layouter, Roof, aligned_bytes, fill, measure_roof, timed_s
from shared import PATHS, RESULTS, ROOF_BYTES, ROOM_BYTES, open_device, size_bytes
from units import Single, Unit, chain_elements, count, large_units

from tnplan.common.arrays import ITEM_BYTES
from tnplan.common.errors import InputError
from tnplan.common.files import write_text
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.executor.device.cuda.contract.cutensor import CutensorError
from tnplan.executor.device.protocols.device import Call, ContractShape, Device, View
from tnplan.planner.hardware.cost import FLOPS_PER_PRODUCT
from tnplan.planner.hardware.profile import Profile, load_profile
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.passes.pipeline import Planner

PATTERNS = (
    "zuchongzhi_*_b3[25]*",
    "sycamore_*_b30_*",
    "rectangular_*_b3[24]*",
    "triangular_*",
    "hexagonal_*",
)
GIB = 2**30
GOAL_MEDIAN, GOAL_WORST, GOAL_PEER = 1.25, 2.0, 1.05
PEER = "cutensor"
MOST_FLOPS = 1e13


class Bench:
    """One device with one arena, on which units are timed one after the other."""

    def __init__(self, device: Device, profile: Profile, precision: str, seconds_each: float) -> None:
        self.device, self.profile = device, profile
        self.precision, self.seconds_each = precision, seconds_each
        self.no_peer = "" if device.name == "gpu" else "needs a GPU"

    def singles(self, unit: Unit, dtype: str) -> Iterator[dict[str, Any]]:
        """One row for every step of a unit."""
        for one in unit.singles:
            times = {"gemm": self._product(one, dtype, "gemm"), "fused": self._fused_step(one, dtype)}
            ours = {name: time_s for name, time_s in times.items() if time_s is not None}
            engine = min(ours, key=ours.__getitem__)
            batch, m, n, k = (count(part) for part in one.parts)
            yield {
                "path": unit.path, "kind": "step", "steps": [one.number], "dropped": unit.dropped,
                "batch": batch, "m": max(m, n), "n": min(m, n), "k": k, "rank": len(one.c),
                "direct": one.contract.direct is not None,
                "bytes": sum(one.elements) * ITEM_BYTES[dtype],
                "flops": FLOPS_PER_PRODUCT[dtype] * one.products,
                **{f"{name}_s": time_s for name, time_s in times.items()},
                "peer_s": self._product(one, dtype, PEER), "engine": engine, "ours_s": ours[engine],
            }  # fmt: skip

    def chain(self, unit: Unit, dtype: str, steps: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The row of a chain whose steps have the given rows."""
        shape = unit.chain
        assert shape is not None
        layouter = Layouter(self.device, dtype)
        operand, *branches, out = layouter.views(*map(count, (shape.operand, *shape.branches, shape.out)))
        for view in (operand, *branches):
            fill(self.device, view)
        closing = None
        if shape.closes:
            fill(self.device, out)
            closing, out = out, layouter.views(1)[0]
        call = self.device.bind_fused(
            shape, operand, branches, out, self.profile.fused_bytes, closing=closing
        )  # fmt: skip
        peers = [row["peer_s"] for row in steps]
        return {
            "path": unit.path, "kind": "chain", "steps": [one.number for one in unit.singles],
            "dropped": unit.dropped, "n": [row["n"] for row in steps], "k": [row["k"] for row in steps],
            "rank": len(shape.operand), "bytes": chain_elements(shape) * ITEM_BYTES[dtype],
            "flops": sum(row["flops"] for row in steps), "ours_s": self._time(call), "engine": "fused",
            "steps_s": sum(row["ours_s"] for row in steps),
            "peer_s": None if None in peers else sum(peers),
        }  # fmt: skip

    def _product(self, one: Single, dtype: str, engine: str) -> float | None:
        """Seconds as a matrix product or through cuTENSOR; None where that cannot do it."""
        if engine == PEER and self.no_peer:
            return None
        layouter = Layouter(self.device, dtype)
        a, b, c = layouter.views(*one.elements)
        fill(self.device, a)
        fill(self.device, b)
        shape = one.contract
        if engine == PEER:
            return self._peer(shape, a, b, c)
        workspace = None
        if shape.direct is None:
            workspace = layouter.views(self.profile.tile_bytes // ITEM_BYTES[dtype])[0]
        return self._time(self.device.bind_contract(shape, a, b, c, workspace, self.precision))

    def _peer(self, shape: ContractShape, a: View, b: View, c: View) -> float | None:
        try:
            return self._time(self.device.bind_contract(shape, a, b, c, None, self.precision, PEER))
        except InputError as error:
            self.no_peer = str(error)
        except CutensorError as error:
            print(f"cuTENSOR: {error}", flush=True)
        return None

    def _fused_step(self, one: Single, dtype: str) -> float | None:
        shape = one.fused(self.profile.fused_bytes // ITEM_BYTES[dtype])
        if shape is None:
            return None
        operand, branch, out = Layouter(self.device, dtype).views(
            count(shape.operand), count(shape.branches[0]), count(shape.out)
        )
        fill(self.device, operand)
        fill(self.device, branch)
        return self._time(self.device.bind_fused(shape, operand, [branch], out, self.profile.fused_bytes))

    def _time(self, call: Call) -> float:
        return timed_s(self.device, call, self.seconds_each)


def gather(
    files: Sequence[Path], profile: Profile, precision: str | None, least: int, most: int
) -> tuple[list[list[Unit]], str]:
    """The units of every path, and the dtype that all paths share."""
    found, dtypes = [], set()
    for file in files:
        path = load_path(file)
        schedule = Planner(path, profile, math.inf, None, precision).plan(1)
        units, misfits = large_units(schedule, least, most, MOST_FLOPS)
        named = [Unit(file.stem, unit.singles, unit.chain, unit.predicted_s, unit.dropped) for unit in units]
        left_out = f", {misfits} do not fit" if misfits else ""
        print(f"{file.stem}: {len(named)} kinds of large steps and chains{left_out}", flush=True)
        found.append(named)
        dtypes.add(path.dtype)
    if len(dtypes) != 1:
        raise SystemExit(f"the paths are of {len(dtypes)} dtypes: give those of one")
    return found, dtypes.pop()


def in_turn(found: Sequence[Sequence[Unit]]) -> Iterator[Unit]:
    """The costliest unit of every path, then the next of every path, and so on; no work twice."""
    seen = set()
    for place in range(max(map(len, found), default=0)):
        for units in found:
            if place < len(units) and units[place].key not in seen:
                seen.add(units[place].key)
                yield units[place]


def with_floors(rows: Sequence[dict[str, Any]], roof: Roof) -> list[dict[str, Any]]:
    """The rows with their floors, and the ratios that the goals speak of."""
    floors = {
        (row["path"], row["steps"][0], row["dropped"]): roof.floor_s(row["bytes"], row["flops"])
        for row in rows
        if row["kind"] == "step"
    }
    done = []
    for row in rows:
        floor_s = roof.floor_s(row["bytes"], row["flops"])
        more = {"floor_s": floor_s, "over_floor": row["ours_s"] / floor_s}
        if row["kind"] == "chain":
            sum_s = sum(floors[row["path"], number, row["dropped"]] for number in row["steps"])
            more |= {"steps_floor_s": sum_s, "over_steps_floor": row["ours_s"] / sum_s}
        if row["peer_s"] is not None:
            more["over_peer"] = row["ours_s"] / row["peer_s"]
        done.append({**row, **more})
    return done


HEADER = (
    f"{'path':32} {'steps':>9} {'rank':>4} {'n':>13} {'k':>13} {'GiB':>6} {'engine':>6} {'ms':>8} "
    f"{'floor ms':>8} {'ratio':>6} {'cuTENSOR ms':>11} {'ratio':>6}"
)


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    first, last = row["steps"][0], row["steps"][-1]
    numbers = str(first) if first == last else f"{first}..{last}"
    n, k = (",".join(map(str, row[name])) if row["kind"] == "chain" else row[name] for name in "nk")
    peer = ("-", "-") if row["peer_s"] is None else (f"{row['peer_s'] * 1e3:.3f}", f"{row['over_peer']:.2f}")
    return (
        f"{row['path']:32} {numbers:>9} {row['rank']:>4} {n:>13} {k:>13} {row['bytes'] / GIB:>6.2f} "
        f"{row['engine']:>6} {row['ours_s'] * 1e3:>8.3f} {row['floor_s'] * 1e3:>8.3f} "
        f"{row['over_floor']:>6.2f} {peer[0]:>11} {peer[1]:>6}"
    )


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians and worst of the ratios, of steps and of chains."""
    figures: dict[str, Any] = {}
    for kind in ("step", "chain"):
        for name in ("over_floor", "over_steps_floor", "over_peer"):
            values = [row[name] for row in rows if row["kind"] == kind and name in row]
            if values:
                figures[f"{kind}_{name}"] = {
                    "count": len(values), "median": median(values), "worst": max(values),
                }  # fmt: skip
    return figures


def store(
    options: argparse.Namespace, bench: Bench, dtype: str, roof: Roof, rows: Sequence[dict[str, Any]],
    counts: dict[str, int],
) -> dict[str, Any]:  # fmt: skip
    """Write what was measured, the floors by the best rate of any product so far; gives the summary."""
    best = max([roof.flop_per_s, *(row["flops"] / row["gemm_s"] for row in rows if row.get("gemm_s"))])
    done = with_floors(rows, Roof(roof.copy_bytes_per_s, best))
    figures = summary(done)
    document = {
        "goals": {"median": GOAL_MEDIAN, "worst": GOAL_WORST, "over_peer": GOAL_PEER},
        "precision": options.precision, "dtype": dtype, **counts,
        "copy_bytes_per_s": roof.copy_bytes_per_s, "flop_per_s": best,
        "environment": {**host_facts(), "commit": commit(), **bench.device.facts()},
        "cutensor": bench.no_peer or "timed", "summary": figures, "rows": done,
    }  # fmt: skip
    write_text(options.output, json.dumps(document, indent=1) + "\n")
    return figures


def reached(figures: dict[str, Any]) -> bool:
    """Whether steps and chains reach the goals."""
    good = True
    for kind in ("step", "chain"):
        floor, peer = figures.get(f"{kind}_over_floor"), figures.get(f"{kind}_over_peer")
        good &= floor is None or (floor["median"] <= GOAL_MEDIAN and floor["worst"] <= GOAL_WORST)
        good &= peer is None or peer["worst"] <= GOAL_PEER
    return good


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--case", default="", help="only paths whose name has this text")
    parser.add_argument("--seconds", type=float, default=300.0, help="no unit is begun after so many")
    parser.add_argument("--seconds-each", type=float, default=0.05, help="about so long a measurement")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--hardware", default="h200-nvlink", help="the profile that the planner uses")
    parser.add_argument("--least", type=size_bytes, default=size_bytes("1GiB"), help="of the largest tensor")
    parser.add_argument(
        "--memory", type=size_bytes, default=size_bytes("100GiB"), help="that a unit may need"
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "steps.json")
    return parser.parse_args()


def main() -> int:
    """Time units until the time is used up, print the table, write the file; 1 where a goal is missed."""
    options = arguments()
    files = options.paths or sorted(file for name in PATTERNS for file in PATHS.glob(f"{name}.json"))
    files = [file for file in files if options.case in file.stem]
    if not files:
        raise SystemExit(f"no path has {options.case!r} in its name")
    profile = load_profile(options.hardware)
    found, dtype = gather(files, profile, options.precision, options.least, options.memory)
    device = open_device(options.device)
    most = max((unit.held for units in found for unit in units), default=0)
    roof_bytes = ROOF_BYTES[device.name]
    device.allocate(max(aligned_bytes(most, dtype), roof_bytes) + profile.tile_bytes + ROOM_BYTES)
    roof = measure_roof(device, dtype, options.precision, roof_bytes, options.seconds_each)
    print(f"copy {roof.copy_bytes_per_s / 1e12:.3f} TB/s, product {roof.flop_per_s / 1e12:.2f} TFLOP/s")
    print(HEADER, flush=True)
    bench = Bench(device, profile, options.precision, options.seconds_each)
    rows: list[dict[str, Any]] = []
    figures: dict[str, Any] = {}
    total = len({unit.key for units in found for unit in units})
    started, n_units = time.monotonic(), 0
    for unit in in_turn(found):
        if time.monotonic() - started > options.seconds:
            break
        steps = list(bench.singles(unit, dtype))
        own = [*steps, bench.chain(unit, dtype, steps)] if unit.chain is not None else steps
        for row in with_floors(own, roof):
            print(line(row), flush=True)
        rows += own
        n_units += 1
        # Written after every unit: a run that is cut off leaves what it measured.
        figures = store(options, bench, dtype, roof, rows, {"units": n_units, "units_found": total})
    for name, values in figures.items():
        print(f"{name:22} {values['count']:4d}  median {values['median']:.3f}  worst {values['worst']:.3f}")
    print(f"{n_units} of {total} kinds")
    print(f"goals: {GOAL_MEDIAN} (median) and {GOAL_WORST} (worst) of the floor, {GOAL_PEER} of cuTENSOR")
    return 0 if reached(figures) else 1


if __name__ == "__main__":
    sys.exit(main())
