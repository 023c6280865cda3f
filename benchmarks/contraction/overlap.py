"""How much of the exchanges contractions hide: whole slices with exchanges alone and beside contractions.

    mpirun -n P python -m mpi4py benchmarks/contraction/overlap.py [PATH.json] [--slices 3] [--ways TEXT,...]
        [-o results.json]

The same schedule is replayed with every exchange made whole ("alone"), in parts by copy engines ("engines",
what the executor does on one machine), in parts by kernels for which the chains beside leave some blocks in a
hundred free ("kernels 6", "kernels 12", "kernels 25"), and by messages of NCCL, as between machines: whole
("packed"), in parts ("messages 0", what the executor does there), and in parts beside chains that leave some
blocks free. Results must be equal bit for bit, where no chain that closes goes in parts: those round its sum
anew. Hidden is the share of the seconds of the exchanges in parts that nothing waited for, on the rank where
it is least; the first slice, to which ranks come at different times, does not count. Goal: at least 0.7 of
the shorter of exchange and contraction. `waited_s` of a row is what all exchanges took on the stream of
calls, whole ones too. Rows of other paths and device counts in the output file stay.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import gcd
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import cupy
import numpy as np
from shared import PATHS, launched, say, values

from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.executor.contraction.bind import binder as bind
from tnplan.executor.contraction.run import rank_run as run
from tnplan.executor.contraction.run.run_report import KINDS
from tnplan.executor.device.comm.heartbeat import world_communicator
from tnplan.executor.device.cuda.copy import permute as cupy_copy
from tnplan.executor.device.cuda.fused import chain as cupy_fused
from tnplan.executor.device.cuda.peer_memory import LINK_SHARE, CudaMemory
from tnplan.executor.device.protocols.communicator import OverlappedExchange
from tnplan.executor.device.protocols.copy import Copy
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.schedule.schedule import Fused, Redistribute

DEFAULT = {2: "zuchongzhi_n60_m24_b33_fused.json", 4: "zuchongzhi_n60_m24_b34_fused_s4.json"}
WAYS = (
    "alone", "engines", "kernels 6", "kernels 12", "kernels 25",
    "packed", "messages 0", "messages 6", "messages 12", "messages 25",
)  # fmt: skip
USED, GOAL = ("engines", "messages 0"), 0.7
"""What the executor does within a machine and between machines, and the share that is to be hidden."""
RUN_ELEMENTS = 1 << 12


def main() -> int:
    """Replay some slices in every way and print a table; 1 where a goal is missed."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("path", nargs="?", type=Path, help="default: n60 m24 for 2 or 4 GPUs")
    options.add_argument("--slices", type=int, default=4, help="two or more (default 4)")
    options.add_argument("--ways", default=",".join(WAYS))
    options.add_argument("--hardware", default="h200-nvlink")
    options.add_argument("-o", "--output", type=Path)
    given = options.parse_args()
    if given.slices < 2:
        raise InputError("--slices", f"is {given.slices}", "take 2 or more: the first one does not count")
    world = world_communicator()
    if world is None or not launched():
        raise InputError("overlap.py", "runs on several ranks", "start it with mpirun -n 2 or 4")
    file = given.path or PATHS / DEFAULT[world.size]
    schedule = plan(
        load_path(file), load_profile(given.hardware), devices=world.size, ranks_per_group=world.size
    )
    parts = [item for item in schedule.instructions if isinstance(item, Redistribute) and item.parts > 1]
    hidden_s = sum(step.hidden_s for step in schedule.steps)
    say(
        f"{file.stem} on {world.size}: {len(parts)} exchanges in parts, predicted "
        f"{schedule.predicted.slice_s:.4f} s a slice with {hidden_s:.4f} s hidden"
    )
    say(f"{'way':12} {'s a slice':>10} {'contract':>9} {'waited':>8} {'beside':>8} {'hidden':>7}  same bits")
    arrays = values(file)
    first: Any = None
    rows: list[dict[str, Any]] = []
    for way in given.ways.split(","):
        with ways(way), timed_slices() as timed:
            done = execute(schedule, arrays, device="gpu", slices=(0, given.slices))
        measured = done.report["measured"]
        slices_s = [measured["slices_s"][str(number)] for number in range(given.slices)]
        if world.rank == 0 and first is None:
            first = done.array
        same = world.rank != 0 or np.array_equal(done.array, first)
        own = [(end - start) / (given.slices - 1) for start, end in zip(timed[0], timed[-1], strict=True)]
        ranks = world.gather_objects(own)
        contract_s, exchange_s, _, beside_s = (max(seconds) for seconds in zip(*ranks, strict=True))
        share = min((beside - waited) / beside if beside else 0.0 for *_, waited, beside in ranks)
        say(
            f"{way:12} {median(slices_s[1:]):>10.4f} {contract_s:>9.4f} {exchange_s:>8.4f} "
            f"{beside_s:>8.4f} {share:>7.2f}  {same}"
        )
        rows.append(
            {
                "path": file.stem, "devices": world.size, "way": way,
                "slice_s": median(slices_s[1:]), "contract_s": contract_s, "waited_s": exchange_s,
                "beside_s": beside_s, "hidden": share, "same_bits": bool(same),
                "environment": done.report["environment"],
            }
        )  # fmt: skip
    say(f"goal: hidden {GOAL} or more")
    if given.output and world.rank == 0:
        keep(given.output, rows)
    hidden = [row["hidden"] for row in rows if row["way"] in USED and row["beside_s"]]
    missed = world.rank == 0 and any(share < GOAL for share in hidden)
    if missed:
        print("MISSED")
    return int(missed)


@contextmanager
def timed_slices() -> Iterator[list[tuple[float, ...]]]:
    """Seconds up to the end of every slice of this rank: of contractions, of exchanges on their stream, of
    waits for those in parts, and of parts themselves."""
    seen: list[tuple[float, ...]] = []
    run_slices = run.run_slices

    def timed(program: Any, device: Any, timings: Any, slices: Any, after_slice: Callable[[], None]) -> None:
        def after() -> None:
            kinds = dict.fromkeys(KINDS.values(), 0.0)
            for op, time_s in timings.by_kind(program).items():
                if op in KINDS:
                    kinds[KINDS[op]] += time_s
            parts_s = timings.waited_s, timings.beside_s
            seen.append((kinds["contract_s"], kinds["exchange_s"], *parts_s))
            after_slice()

        run_slices(program, device, timings, slices, after)

    with patch.object(run, "run_slices", timed):
        yield seen


def keep(output: Path, rows: list[dict[str, Any]]) -> None:
    """Put the rows into the file, in place of earlier ones of the same path, device count and way."""

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["path"], row["devices"], row["way"]

    document = json.loads(output.read_text()) if output.exists() else {"rows": []}
    new = {key(row) for row in rows}
    document["rows"] = [row for row in document["rows"] if key(row) not in new] + rows
    output.write_text(json.dumps(document, indent=1) + "\n")


@contextmanager
def ways(way: str) -> Iterator[None]:
    """The executor with its exchanges alone, by engines, or by kernels or messages beside shorter chains."""
    if way not in WAYS:
        raise InputError("--ways", f"{way!r} is unknown", f"choose from {', '.join(WAYS)}")
    kind, *percent = way.split()
    with ExitStack() as stack:
        if kind in ("alone", "packed"):
            stack.enter_context(patch.object(bind, "bind_chunks", lambda *_: None))
        if kind in ("packed", "messages"):
            from tnplan.executor.device.comm import nccl

            stack.enter_context(patch.object(nccl.NcclCommunicator, "open_memory", lambda *_: None))
            stack.enter_context(patch.object(nccl, "machine", lambda: world_communicator().rank))
        if kind == "kernels":
            stack.enter_context(patch.object(CudaMemory, "bind_overlapped", by_kernels))
        if percent:
            stack.enter_context(patch.object(bind.Binder, "_fused", leaving(int(*percent))))
        yield


def leaving(percent: int) -> Callable[..., Any]:
    """Chains of which parts leave some blocks in a hundred free."""
    whole, kernel_of = bind.Binder._fused, cupy_fused.find_kernel

    def fused(self: Any, instruction: Fused, part: tuple[int, int] = (0, 1), first: bool = True) -> Any:
        if part[1] == 1:
            return whole(self, instruction, part, first)

        def shorter(*arguments: Any) -> tuple[Any, int]:
            kernel, blocks = kernel_of(*arguments)
            return kernel, max(1, blocks * (100 - percent) // 100)

        with patch.object(cupy_fused, "find_kernel", shorter):
            return whole(self, instruction, part, first)

    return fused


def by_kernels(
    self: Any, moved: Sequence[tuple[Any, Any]], kept: Sequence[tuple[Any, Any]], peers: Sequence[int],
    sent_bytes: int,
) -> OverlappedExchange:  # fmt: skip
    """Like `CudaMemory.bind_overlapped`, by kernels and messages."""
    copies = []
    for target, source in (*moved, *kept):
        run = gcd(len(target), RUN_ELEMENTS)
        copy = Copy((), ((len(target) // run, run, run),), run)
        addresses = target.data.ptr, source.data.ptr
        ends = (*addresses, run, False, self.copy_stream, LINK_SHARE)
        copies.append(cupy_copy.bind_box(copy, target.dtype, *ends))
    meet = self.bind_meeting(peers)
    ready, done = (cupy.cuda.Event(disable_timing=True) for _ in range(2))
    first, last = cupy.cuda.Event(), cupy.cuda.Event()
    stream, own = self._stream, self.copy_stream

    def begin() -> None:
        ready.record(stream)
        own.wait_event(ready)
        meet()
        first.record(own)
        for call in (*copies, meet):
            call()
        last.record(own)
        done.record(own)

    return OverlappedExchange(
        begin, lambda: stream.wait_event(done), lambda: float(cupy.cuda.get_elapsed_time(first, last)) / 1000
    )


if __name__ == "__main__":
    sys.exit(main())
