"""What result.json says of a run: where it ran, what it measured, and what the planner had predicted.

Changelog of `tnplan.result`:
1 (2026-11-21): first version.
2 (2026-11-21): `engine`, `step_error`, `direct_bytes_all_ranks`; the GPU and its libraries in `environment`.
3 (2026-11-21): `beside_s` and `hidden_s` of `measured`, `hidden_s` of `predicted`.
4 (2026-11-21): `compression`; `codec_s` of `predicted`.
5 (2026-11-23): `parts` of `measured`.
6 (2026-11-23): `repeats` of these.
7 (2026-11-26): `divisions` of `slices`.
8 (2026-11-30): `algebra`; over one `step_error` is null.
"""

from __future__ import annotations

import socket
import subprocess
from typing import Any

from tnplan.common.release import PACKAGE, release
from tnplan.executor.contraction.redistribute.compressed import Tally, summary
from tnplan.executor.contraction.run.rank_run import ContractionRun, RunOutcome
from tnplan.executor.contraction.run.slice_partition import Share, SliceRanges, starts
from tnplan.executor.device.cpu.algebra import modulus_text
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.executor.device.energy import sum_joules
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.device.protocols.device import Device
from tnplan.executor.device.protocols.precision import check_precision, expected_error, supported
from tnplan.planner.schedule.schedule import Contract, Fused, Schedule, TimeSplit

FORMAT = "tnplan.result"
VERSION = 8
KINDS = {
    "contract": "contract_s",
    "fused": "contract_s",
    "redistribute": "exchange_s",
    "gather": "exchange_s",
    "reduce_scatter": "exchange_s",
    "encode": "codec_s",
    "decode": "codec_s",
}


def result_document(
    job: ContractionRun, outcome: RunOutcome, device: Device, world: Communicator, threads: int,
    not_finite: int,
) -> dict[str, Any]:  # fmt: skip
    """The document of result.json, equal on every rank; collective over the world.

    Times are those of the slowest rank; of what contractions hid of exchanges, the least. Contractions are
    measured together with the permutation of their results, so that the measured `contract_s` is to be held
    against the sum of the predicted ones.
    """
    # One collective call for all figures of a rank. Ranks wait for each other at every exchange, so that the
    # slowest is the time of all; hidden time is the least, as only that was hidden for everyone.
    figures = {
        "kinds": outcome.timings.by_kind(outcome.program),
        "steps": outcome.timings.by_step(outcome.program),
        "parts": [sum(seconds) for seconds in outcome.timings.parts_s],
        "slices": outcome.timings.slice_s,
        "beside_s": outcome.timings.overlapped_s,
        "hidden_s": outcome.timings.hidden_s,
        "peak_bytes": device.peak_bytes,
        "sent_bytes": outcome.sent_bytes,
        "direct_bytes": outcome.direct_bytes,
        "host": socket.gethostname(),
        "not_finite": not_finite,
        "tallies": [tally.read() for _, tally in outcome.program.tallies],
        **{name: getattr(outcome, name)
           for name in ("bind_s", "run_s", "run_j", "checkpoint_s", "sum_groups_s")},
    }
    ranks = world.gather_objects(figures)
    # Slices of this division's checkpoints, one rank a group, and those of earlier divisions.
    resumed = sum(world.gather_objects(outcome.resumed_slices if outcome.share.rank_in_group == 0 else 0))
    resumed += job.slices[1] - job.slices[0] - outcome.division.left.count
    computed = outcome.share.slices.part(outcome.resumed_slices, outcome.share.n_slices)
    schedule = job.schedule
    slice_s: dict[int, float] = {}
    for entry in ranks:
        for number, time_s in entry["slices"].items():
            slice_s[number] = max(slice_s.get(number, 0.0), time_s)
    return {
        "format": FORMAT,
        "version": VERSION,
        "schedule": schedule.identity,
        "path": schedule.path_identity,
        "name": schedule.name,
        "dtype": schedule.dtype,
        "algebra": None if schedule.algebra is None else schedule.algebra + modulus_text(job.algebra),
        "precision": schedule.precision,
        "engine": job.engine,
        "step_error": None if schedule.algebra else step_error(schedule, device.name == "gpu"),
        "shape": list(schedule.output_shape),
        "ranks": world.size,
        "ranks_per_group": schedule.ranks_per_group,
        "groups": outcome.share.n_groups,
        "threads_per_rank": threads,
        "slices": {
            "first": job.slices[0], "stop": job.slices[1], "of": schedule.n_slices, "resumed": resumed,
            "divisions": list(outcome.division.groups),
        },
        "not_finite": sum(entry["not_finite"] for entry in ranks),
        "environment": environment(world, device, outcome.group.name,
                                   sorted({entry["host"] for entry in ranks})),
        "measured": {
            **{name: max(entry[name] for entry in ranks)
               for name in ("bind_s", "run_s", "checkpoint_s", "sum_groups_s", "peak_bytes")},
            "beside_s": max(entry["beside_s"] for entry in ranks),
            "hidden_s": min(entry["hidden_s"] for entry in ranks),
            "sent_bytes": max(entry["sent_bytes"] for entry in ranks),
            "sent_bytes_all_ranks": sum(entry["sent_bytes"] for entry in ranks),
            "direct_bytes_all_ranks": sum(entry["direct_bytes"] for entry in ranks),
            "kinds_s": _slowest([entry["kinds"] for entry in ranks]),
            "steps_s": [max(times) for times in zip(*(entry["steps"] for entry in ranks), strict=True)],
            "parts": _parts(schedule, computed, [entry["parts"] for entry in ranks]),
            "slices_s": {str(number): slice_s[number] for number in sorted(slice_s)},
            "energy": {"run_j": sum_joules([entry["run_j"] for entry in ranks])},
        },
        "compression": _compression(outcome, [entry["tallies"] for entry in ranks], resumed > 0),
        "predicted": _predicted(schedule, outcome.share),
    }  # fmt: skip


def _compression(outcome: RunOutcome, ranks: list[list[Tally]], resumed: bool) -> dict[str, Any] | None:
    """The bounds of the schedule and the measured ones; None where the schedule has none."""
    options = outcome.program.schedule.compression
    if options is None:
        return None
    measured = summary([kind for kind, _ in outcome.program.tallies], ranks)
    if resumed:
        # What was compressed before the checkpoint was not counted in this run.
        measured |= {"bound": None, "fidelity": None}
    return {
        "setting": options.setting,
        **{f"{name}_bound": None if lossy is None else lossy.bound
           for name, lossy in (("exchange", options.exchange), ("store", options.store))},
        **measured,
    }  # fmt: skip


def step_error(schedule: Schedule, on_gpu: bool) -> float:
    """The largest error that a step is expected to have, relative to the contraction of absolute values.

    A CPU multiplies in the type of the values, whatever precision the schedule asks for.
    """
    exact = supported(schedule.dtype)[0]
    errors = [0.0]
    for instruction in schedule.instructions:
        if isinstance(instruction, Contract | Fused):
            steps = instruction.steps if isinstance(instruction, Fused) else (instruction.step,)
            precision = check_precision(instruction.precision, schedule.dtype) if on_gpu else exact
            errors += [expected_error(precision, schedule.steps[step].k) for step in steps]
    return max(errors)


def environment(world: Communicator, device: Device, communicator: str, hosts: list[str]) -> dict[str, Any]:
    """Hosts, versions and commit; `communicator` carried the device's buffers."""
    facts = {
        "hosts": hosts, **host_facts(), "tnplan": release(), "commit": commit(),
        "communicator": communicator, **device.facts(),
    }  # fmt: skip
    if world.name == "mpi":
        from tnplan.executor.device.comm.mpi import library

        facts["mpi"] = library()
    if communicator == "nccl":
        from tnplan.executor.device.comm.nccl import nccl_version

        facts["nccl"] = nccl_version()
    return facts


def commit() -> str | None:
    """The git commit of the checkout that the package runs from, with a + if its files differ, else None."""
    root = PACKAGE.parent
    if not (root / ".git").exists():
        return None
    try:
        described = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty=+"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return described.stdout.strip() or None


def _predicted(schedule: Schedule, share: Share) -> dict[str, Any]:
    """What is expected of the slices of a share."""

    def total(name: str) -> float:
        return float(
            sum(
                getattr(step, name) * (1 if step.once else starts(share.slices, step.serves) * step.repeats)
                for step in schedule.steps
            )
        )

    prediction, watts = schedule.predicted, schedule.profile.get("watts")
    split = TimeSplit(*map(total, ("contract_s", "permute_s", "exchange_s", "codec_s", "chain_s")))
    devices = share.n_groups * schedule.ranks_per_group
    return {
        "total_s": total("predicted_s"),
        "total_j": devices * split.joules(watts) if watts else None,
        "once_s": prediction.once_s,
        "slice_s": prediction.slice_s,
        "all_slices_s": schedule.projected_s(share.n_groups),
        "contract_s": total("contract_s"),
        "permute_s": total("permute_s"),
        "exchange_s": total("exchange_s"),
        "hidden_s": total("hidden_s"),
        "codec_s": total("codec_s"),
        "moved_bytes": total("moved_bytes"),
        "peak_bytes": prediction.peak_bytes,
        "steps_s": [step.predicted_s for step in schedule.steps],
    }


def _parts(schedule: Schedule, slices: SliceRanges, ranks: list[list[float]]) -> list[dict[str, Any]]:
    """Of each part that is replayed: how many slices in a row it serves, how often it is repeated for them,
    how often it ran in the group of this rank, and its seconds in all on the slowest rank."""
    parts = []
    for number, level in enumerate(schedule.parts[1:], 1):
        serves, repeats = schedule.serves(level.depth), schedule.repeats(level.inner)
        time_s = max(seconds[number] for seconds in ranks)
        runs = starts(slices, serves) * repeats
        parts.append({"serves": serves, "repeats": repeats, "runs": runs, "time_s": time_s})
    return parts


def _slowest(kinds: list[dict[str, float]]) -> dict[str, float]:
    """Seconds of the slowest rank by kind: contractions, exchanges, and every other opcode."""
    totals = []
    for entry in kinds:
        merged: dict[str, float] = {"contract_s": 0.0, "exchange_s": 0.0}
        for op, time_s in entry.items():
            name = KINDS.get(op, f"{op}_s")
            merged[name] = merged.get(name, 0.0) + time_s
        totals.append(merged)
    names = sorted({name for entry in totals for name in entry})
    return {name: max(entry.get(name, 0.0) for entry in totals) for name in names}
