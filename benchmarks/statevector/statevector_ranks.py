"""The state-vector engine over several GPUs, a rank each: passes, exchanges, and both together.

Usage: mpirun -n 2 python -m mpi4py benchmarks/statevector/statevector_ranks.py [--qubits 31,32] [--rounds 3]
       [--circuits H,QFT,random] [-o results.json]
H on all qubits, QFT, and random unitaries with CZ of depth 20, complex64. Seconds of the slowest rank, least
of all rounds: all steps, exchanges beside passes; all in turn; the passes alone; the exchanges alone; each
exchange with its bits, and those in parts, with as little of the GPU as beside passes, by themselves. States
with and without overlap have to be equal bit for bit.
`rate` is what a rank sends over the time of its exchanges; NCCL's is that of sends and receives of equal
shares between all ranks. Goals: with overlap at most 1.15 times the larger of passes and exchanges, in turn
at most 1.1 times their sum, exchanges at 0.8 of NCCL's rate.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import cupy
import numpy as np
from statevector_circuits import CIRCUITS
from statevector_rows import write_rows

from tnplan.common.errors import InputError
from tnplan.executor.device.comm.heartbeat import world_communicator
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.statevector.cuda.bit_swap import StateSwap
from tnplan.executor.statevector.cuda.state import CupyState
from tnplan.executor.statevector.distributed_state import DistributedState, PreparedExchange, PreparedOverlap
from tnplan.executor.statevector.gates.multiplexed_gate import from_gate
from tnplan.executor.statevector.prepared_program import Segment
from tnplan.executor.statevector.simulator import Simulator

GOAL_LARGER, GOAL_SUM, GOAL_RATE = 1.15, 1.1, 0.8
NEVER = 64
"""Tiles are fewer than 2^64, so that no exchange is beside passes."""
PIECES = 8
NORM = 1e-3


def seconds(ranks: Communicator, work: Callable[[], Any], rounds: int) -> float:
    """The least seconds in which all ranks did some work."""
    times = []
    for _ in range(rounds + 1):
        cupy.cuda.Device().synchronize()
        ranks.barrier()
        begin = perf_counter()
        work()
        cupy.cuda.Device().synchronize()
        times.append(max(ranks.gather_objects(perf_counter() - begin)))
    return min(times[1:])


def nccl_rate(ranks: Communicator, state: Any, rounds: int) -> float:
    """Bytes a second that every rank sends when all send equal shares of their state to all others."""
    count = len(state) // ranks.size // PIECES
    room = cupy.empty((ranks.size, count), state.dtype)
    others = [rank for rank in range(ranks.size) if rank != ranks.rank]

    def work() -> None:
        for piece in range(PIECES):
            sends = [(k, state[(k * PIECES + piece) * count :][:count]) for k in others]
            ranks.exchange(sends, [(k, room[k]) for k in others])

    return (len(state) - PIECES * count) * state.itemsize / seconds(ranks, work, rounds)


def measured(name: str, n: int, ranks: Communicator, rounds: int, nccl: float) -> dict[str, Any]:
    """The row of one circuit."""
    own = CupyState(n - ranks.size.bit_length() + 1, "complex64", ranks.rank)
    swap = StateSwap(own.amplitudes, ranks)
    alone, beside = DistributedState(own, ranks, swap, NEVER), DistributedState(own, ranks, swap)
    simulator = Simulator(alone, n)
    segment = Segment(tuple(from_gate(item) for item in CIRCUITS[name](n)))
    plan, steps = simulator.prepare(segment)
    together = beside.prepare(plan.steps)
    simulator.apply(segment)
    norm = simulator.norm()
    if abs(norm - 1) > NORM:
        raise RuntimeError(f"{name} at {n} qubits: the norm is {norm}")
    passes = [step for step in steps if not isinstance(step, PreparedExchange)]
    exchanges = [step for step in steps if isinstance(step, PreparedExchange)]
    overlaps = [step for step in together if isinstance(step, PreparedOverlap)]

    def run(chosen: list[Any]) -> None:
        for step in chosen:
            beside.apply(step)

    expected = own.amplitudes.copy()
    alone.restart()
    run(together)
    equal = all(ranks.gather_objects(bool((own.amplitudes == expected).all())))
    del expected
    cupy.get_default_memory_pool().free_all_blocks()
    overlapped_s = seconds(ranks, lambda: run(together), rounds)
    total_s = seconds(ranks, lambda: run(steps), rounds)
    passes_s = seconds(ranks, lambda: run(passes), rounds)
    beside.sent_bytes = 0
    run(exchanges)
    sent = beside.sent_bytes
    exchanges_s = seconds(ranks, lambda: run(exchanges), rounds) if exchanges else 0.0
    rate = sent / exchanges_s if exchanges else None
    each = [
        {"inside": [pair[0] for pair in step.exchange.pairs],
         "time_s": seconds(ranks, lambda step=step: beside.apply(step), rounds)}
        for step in exchanges
    ]  # fmt: skip
    in_parts = [
        {"inside": [pair[0] for pair in step.exchange.pairs], "n_parts": n_pieces(step),
         "time_s": seconds(ranks, lambda step=step: exchange_parts(step), rounds)}
        for step in overlaps
    ]  # fmt: skip
    return {
        "circuit": name, "qubits": n, "ranks": ranks.size, "n_passes": len(passes),
        "n_exchanges": len(exchanges), "n_overlaps": len(overlaps),
        "equal": equal,
        "overlapped_s": overlapped_s, "total_s": total_s, "passes_s": passes_s, "exchanges_s": exchanges_s,
        "exchanges": each, "in_parts": in_parts, "sent_bytes": sent, "rate_bytes_per_s": rate,
        "nccl_share": rate / nccl if rate else None, "over_sum": total_s / (passes_s + exchanges_s),
        "over_larger": overlapped_s / max(passes_s, exchanges_s), "norm": norm,
    }  # fmt: skip


def n_pieces(step: PreparedOverlap) -> int:
    """How many pieces an exchange has."""
    return sum(map(len, step.begins))


def exchange_parts(step: PreparedOverlap) -> None:
    """An exchange in pieces without the passes."""
    for piece in range(n_pieces(step)):
        step.swap.begin(piece)
    for piece in range(n_pieces(step)):
        step.swap.end(piece)


def main() -> int:
    """Print a table; rank 0 writes the results; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qubits", default="31,32")
    parser.add_argument("--circuits", default="H,QFT,random")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    world = world_communicator()
    if world is None:
        raise InputError("statevector_ranks.py", "runs on several ranks", "start it with mpirun -n 2 or 4")
    cupy.cuda.runtime.setDevice(world.rank % cupy.cuda.runtime.getDeviceCount())
    from tnplan.executor.device.comm.nccl import NcclCommunicator  # loads NCCL's library

    ranks = NcclCommunicator(world, cupy.cuda.get_current_stream())
    nccl = nccl_rate(ranks, cupy.zeros(1 << 30, np.complex64), options.rounds)
    if world.rank == 0:
        print(f"NCCL sends {nccl / 1e9:.1f} GB/s a rank", flush=True)
    rows, all_missed = [], list[str]()
    for n in map(int, options.qubits.split(",")):
        for name in options.circuits.split(","):
            row = measured(name, n, ranks, options.rounds, nccl)
            cupy.get_default_memory_pool().free_all_blocks()
            rows.append(row)
            if world.rank:
                continue
            share = row["nccl_share"]
            each = [f"{one['inside']} {one['time_s'] * 1e3:.1f}" for one in row["exchanges"]]
            parts = [f"{one['n_parts']}: {one['time_s'] * 1e3:.1f}" for one in row["in_parts"]]
            missed = ["the larger"] if row["over_larger"] > GOAL_LARGER else []
            missed += ["sum"] if row["over_sum"] > GOAL_SUM else []
            missed += ["rate"] if share is not None and share < GOAL_RATE else []
            missed += [] if row["equal"] else ["equal bits"]
            all_missed += missed
            print(
                f"{name:>7s}{n:>4d} {row['n_passes']:>3d} passes {row['passes_s'] * 1e3:9.2f} ms, "
                f"{row['n_exchanges']:>2d} exchanges {row['exchanges_s'] * 1e3:8.2f} ms, "
                f"({', '.join(each)}; in parts {', '.join(parts)}) "
                f"{share or 0:.2f} of NCCL, total {row['total_s'] * 1e3:9.2f} ms, "
                f"{row['over_sum']:.3f} of the sum, beside passes {row['overlapped_s'] * 1e3:9.2f} ms, "
                f"{row['over_larger']:.3f} of the larger{'  MISSED: ' + ', '.join(missed) if missed else ''}",
                flush=True,
            )
            write_rows(options.output, rounds=options.rounds, nccl_bytes_per_s=nccl, rows=rows)
    missed = bool(all_missed)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
