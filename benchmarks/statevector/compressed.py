"""Compressed states beside exact ones: whether their bound and their estimate hold, their memory, their time.

Usage: python benchmarks/statevector/compressed.py [--qubits 8-16] [--circuits 100] [--seed 20261201]
       [--ranks 1] [--time 22,24] [--rounds 5] [--threads 1] [--gpu QFT:36,random:35] [--bits 8]
       [--tile-bits 13,14] [--plain-up-to 33] [--limit-s 240] [-o results.json]
Circuits are random, QFT, QAOA, Trotter and VQE in turn, each from a seed of its own, with 8 and 16 bits, in
passes of single and of double precision. Tiles have a random size, so that small states have several passes.
With `--ranks` the states are over so many ranks, threads of this process, of 10 qubits or more each.
The exact state is the plain engine's in double precision. Goals: the bound is never below the error, and the
estimate of 1 - F is within a factor of 2 in 90 % of runs. Times are seconds of the processor, the least of
`--rounds` by turns, of the passes alone.

With `--gpu` all is on one GPU, in single precision: a circuit (QFT of a product state, or `random`: of depth
12, a unitary on each qubit and CZ on random pairs a layer), its passes timed with a wait for each, the least
of two rounds (one from 35 qubits on). Then it runs again, and its inverse after it: 1 - F is what |0...0>
lacks of probability 1. `by bandwidth` is what the passes of a plain complex64 state take at the rate of a
copy. Goals: at most 3 times that, a fidelity of 0.99 for QFT and 0.9 for random, the bound never below the
error, and the estimate within a factor of 2. No circuit is begun after `--limit-s` seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.support.engines.unseen_circuits import KINDS, unseen_circuit
from tnplan.circuits.circuit import GateSequence
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.statevector.cpu.packed_state import PackedState, packed_bytes
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.distributed_state import DistributedPackedState
from tnplan.executor.statevector.packed_error import codes_bytes, predicted_fidelity
from tnplan.executor.statevector.prepared_program import Segment, prepare_program
from tnplan.executor.statevector.scheduling.tiled_passes import compile_gates
from tnplan.executor.statevector.simulator import Simulator

FACTOR, WITHIN_GOAL = 2.0, 0.9
NO_BITS = np.zeros(0, np.uint8)


def compressed(
    circuit: GateSequence, dtype: str, bits: int, seed: int, tile_bits: int, ranks: Communicator
) -> Simulator:
    """A compressed state after a circuit, over ranks where there are several."""
    n_bits = circuit.n_qubits - ranks.size.bit_length() + 1
    local = PackedState(n_bits, dtype, bits, seed=seed, rank=ranks.rank)
    local.tile = replace(local.tile, bits=min(local.tile.bits, tile_bits))
    state = local if ranks.size == 1 else DistributedPackedState(local, ranks)
    simulator = Simulator(state, circuit.n_qubits)
    simulator.run(prepare_program(circuit.gates), NO_BITS)
    return simulator


def infidelity(simulator: Simulator, exact: Any) -> float:
    """1 - F, from the part that is orthogonal to the exact state, so that small ones are not lost."""
    state = simulator.amplitudes_at(np.arange(len(exact))[:, None] >> np.arange(simulator.n_qubits)[::-1] & 1)
    overlap = np.vdot(exact, state)
    return float(np.linalg.norm(state - overlap * exact) ** 2 / np.linalg.norm(state) ** 2)


def coverage(
    qubits: tuple[int, int], n_circuits: int, seed: int, ranks: Communicator
) -> list[dict[str, Any]]:
    """A row for each circuit, number of bits and precision; collective."""
    random, rows = np.random.default_rng(seed), []
    for number in range(n_circuits):
        kind, n = KINDS[number % len(KINDS)], int(random.integers(qubits[0], qubits[1] + 1))
        circuit = unseen_circuit(kind, n, seed + number)
        simulator = Simulator(HostState(n, "complex128"), n)
        simulator.run(prepare_program(circuit.gates), NO_BITS)
        exact = simulator.array()
        for dtype in ("complex64", "complex128"):
            for bits in (8, 16):
                tile_bits = int(random.integers(9, 13))
                own = compressed(circuit, dtype, bits, seed + number, tile_bits, ranks)
                state: Any = own.state
                rows.append({
                    "kind": kind, "qubits": n, "dtype": dtype, "bits": bits, "passes": own.passes,
                    "error": infidelity(own, exact), "estimate": 1 - state.errors.fidelity_estimate,
                    "bound": 1 - state.errors.fidelity_bound,
                })  # fmt: skip
    return rows


def shares(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """The shares of runs whose bound holds, and whose estimate is within the factor."""
    ratios = np.array([row["error"] / row["estimate"] for row in rows])
    held = np.mean([row["error"] <= row["bound"] for row in rows])
    return float(held), float(np.mean((ratios <= FACTOR) & (ratios >= 1 / FACTOR)))


def summary(rows: list[dict[str, Any]]) -> None:
    """Print how many bounds and estimates hold."""
    print(f"{'':22}{'runs':>6}{'passes':>9}{'below bound':>12}{'within 2':>10}{'error/estimate':>24}")
    groups: dict[str, list[dict[str, Any]]] = {"all": rows}
    for name in ("kind", "bits", "dtype"):
        for row in rows:
            groups.setdefault(str(row[name]), []).append(row)
    for name, own in groups.items():
        ratios = np.array([row["error"] / row["estimate"] for row in own])
        held, within = shares(own)
        spread = f"{ratios.min():.3g} to {ratios.max():.3g}"
        passes = f"{min(row['passes'] for row in own)}-{max(row['passes'] for row in own)}"
        print(f"{name:22}{len(own):6}{passes:>9}{held:12.1%}{within:10.1%}{spread:>24}")


def times(n: int, rounds: int, threads: int) -> list[dict[str, Any]]:
    """Seconds of passes of each kind of state, by turns."""
    rows = []
    for kind in KINDS:
        (segment,) = prepare_program(unseen_circuit(kind, n, 1).gates)
        assert isinstance(segment, Segment)
        for dtype in ("complex64", "complex128"):
            states: dict[int, Any] = {0: HostState(n, dtype, threads)}
            states |= {bits: PackedState(n, dtype, bits, threads) for bits in (8, 16)}
            prepared = {bits: Simulator(state, n).prepare(segment)[1] for bits, state in states.items()}
            least = dict.fromkeys(states, float("inf"))
            for turn in range(rounds + 1):
                for bits, state in states.items():
                    state.restart()
                    begin = process_time()
                    for item in prepared[bits]:
                        state.apply(item)
                    least[bits] = min(least[bits], process_time() - begin) if turn else least[bits]
            for bits in states:
                size = packed_bytes(n, bits, dtype) if bits else np.dtype(dtype).itemsize << n
                rows.append({
                    "kind": kind, "qubits": n, "dtype": dtype, "bits": bits, "passes": len(prepared[bits]),
                    "seconds": least[bits], "of_plain": least[bits] / least[0], "bytes": size / 2**n,
                })  # fmt: skip
                row = rows[-1]
                print(
                    f"{kind:8} {n} {dtype:10} {bits or 'plain':>5} {row['passes']:3} passes "
                    f"{row['seconds']:8.3f} s {row['of_plain']:6.2f} {row['bytes']:7.3f} bytes an amplitude"
                )
    return rows


def on_gpu(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each circuit and width of tiles on one GPU."""
    import cupy
    from statevector_circuits import random_layers
    from statevector_gpu import copy_bytes_per_s

    from tnplan.executor.statevector.cuda.kernel_defines import coded_tile

    begin, copy = perf_counter(), copy_bytes_per_s(5)
    cupy.get_default_memory_pool().free_all_blocks()
    free = cupy.cuda.runtime.memGetInfo()[0] / 2**30
    print(f"copy {copy / 1e12:.3f} TB/s, {free:.2f} GiB free", flush=True)
    rows = []
    for asked in options.gpu.split(","):
        kind, n = asked.split(":")[0], int(asked.split(":")[1])
        gates = unseen_circuit("qft", n, 1).gates if kind == "QFT" else tuple(random_layers(n, 12))
        usual = str(coded_tile("complex64", n).bits)
        for width in map(int, (options.tile_bits or usual).split(",")):
            if perf_counter() - begin > options.limit_s:
                print(f"{kind} {n}: left out, {options.limit_s} s are over", flush=True)
                continue
            row = {"circuit": kind, "qubits": n, "tile_bits": width, "copy_bytes_per_s": copy}
            rows.append(row | of_gpu_state(gates, n, width, options))
            print_gpu_row(rows[-1], FIDELITIES[kind])
            cupy.get_default_memory_pool().free_all_blocks()
    return rows


FIDELITIES = {"QFT": 0.99, "random": 0.9}
MOST_TIMES = 3.0
NOISE = 1e-6
"""What 1 - F of a state in single precision is wrong by, as it is 1 less a probability near 1."""


def passes_s(simulator: Simulator, segment: Segment, rounds: int) -> tuple[list[float], float]:
    """Seconds of each pass, from |0...0>, the least of all rounds; seconds of planning and compiling."""
    import cupy

    def now() -> float:
        cupy.cuda.Device().synchronize()
        return perf_counter()

    begin = now()
    _, prepared = simulator.prepare(segment)
    prepare_s, each = now() - begin, [float("inf")] * len(prepared)
    for _ in range(rounds):
        simulator.restart()
        for number, item in enumerate(prepared):
            begin = now()
            simulator.state.apply(item)
            each[number] = min(each[number], now() - begin)
    simulator.restart()
    return each, prepare_s


def of_gpu_state(gates: Any, n: int, width: int, options: argparse.Namespace) -> dict[str, Any]:
    """What a compressed state on a GPU takes and says, and a plain one up to `--plain-up-to` qubits."""
    import cupy

    from tnplan.executor.statevector.cuda.kernel_defines import PROGRAM_TILES, PROGRAMS_FROM, coded_tile
    from tnplan.executor.statevector.cuda.packed_state import CodedState
    from tnplan.executor.statevector.cuda.state import CupyState

    (segment,) = prepare_program(gates)
    back = prepare_program([replace(one, matrix=one.matrix.conj().T) for one in gates[::-1]])
    assert isinstance(segment, Segment)
    plain = compile_gates(segment.gates, range(n)[::-1], PROGRAM_TILES["complex64"])
    row: dict[str, Any] = {"plain_passes": len(plain.passes), "plain_s": None, "bits": options.bits}
    rounds = 1 if n >= 35 else 2
    if n <= options.plain_up_to:
        other = Simulator(CupyState(n, "complex64", programs_from=PROGRAMS_FROM), n)
        row["plain_s"] = sum(passes_s(other, segment, rounds)[0])
        del other
        cupy.get_default_memory_pool().free_all_blocks()
    state = CodedState(n, "complex64", options.bits, 1, tile=replace(coded_tile("complex64", n), bits=width))
    simulator = Simulator(state, n)
    row["passes_s"], row["prepare_s"] = passes_s(simulator, segment, rounds)
    row |= {"time_s": sum(row["passes_s"]), "passes": len(row["passes_s"])}
    row |= {"bytes": codes_bytes(n, options.bits), "free_bytes": cupy.cuda.runtime.memGetInfo()[0]}
    simulator.run([segment], NO_BITS)
    begin = perf_counter()
    row["norm"], _ = simulator.norm(), simulator.sample(100)
    row["answers_s"], row["estimate_there"] = perf_counter() - begin, state.errors.fidelity_estimate
    simulator.run(back, NO_BITS)
    return row | {
        "error": 1 - abs(simulator.amplitudes(["0" * n])[0]) ** 2, "passes_both": simulator.passes,
        "estimate": 1 - state.errors.fidelity_estimate, "bound": 1 - state.errors.fidelity_bound,
        "predicted": 1 - predicted_fidelity(options.bits, simulator.passes),
        "predicted_there": predicted_fidelity(options.bits, row["passes"]),
    }  # fmt: skip


def print_gpu_row(row: dict[str, Any], fidelity: float) -> None:
    """Lines of figures, and what misses its goal, which the row keeps."""
    bandwidth_s = row["plain_passes"] * 16 * 2.0 ** row["qubits"] / row["copy_bytes_per_s"]
    times = row["by_bandwidth"] = row["time_s"] / bandwidth_s
    plain = "" if row["plain_s"] is None else f", which took {row['plain_s']:.3f} s"
    each = " ".join(f"{seconds:.4f}" for seconds in row["passes_s"])
    for line in (
        f"{row['circuit']} {row['qubits']}, tiles of {row['tile_bits']} bits: {row['time_s']:.4f} s in "
        f"{row['passes']} passes ({each})",
        f"  {times:.2f} times {row['plain_passes']} plain ones by bandwidth{plain}",
        f"  {row['bytes'] / 1e9:.1f} GB, {row['free_bytes'] / 2**30:.2f} GiB left; prepared in "
        f"{row['prepare_s']:.1f} s; norm ({row['norm']:.9f}) and samples in {row['answers_s']:.2f} s",
        f"  fidelity predicted {row['predicted_there']:.6f}, estimated {row['estimate_there']:.6f}",
        f"  there and back in {row['passes_both']} passes: 1 - F predicted {row['predicted']:.3e}, estimated "
        f"{row['estimate']:.3e}, at most {row['bound']:.3e}, measured {row['error']:.3e}",
    ):
        print(line)
    missed = [f"more than {MOST_TIMES} times"] if times > MOST_TIMES else []
    missed += [f"fidelity below {fidelity}"] if row["estimate_there"] < fidelity else []
    missed += ["error over its bound"] if row["error"] > row["bound"] + NOISE else []
    low, high = row["estimate"] / FACTOR - NOISE, row["estimate"] * FACTOR + NOISE
    missed += ["estimate not within 2"] if not low <= row["error"] <= high else []
    row["missed"] = missed
    print(f"  {'MISSED: ' + ', '.join(missed) if missed else 'goals met'}", flush=True)


def main() -> int:
    """Measure what is asked for; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--qubits", default="8-16")
    parser.add_argument("--circuits", type=int, default=100)
    parser.add_argument("--seed", type=int, default=20261201)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--time", default="")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--gpu", default="", help="Circuits and qubits on one GPU, none on a CPU.")
    parser.add_argument("--bits", type=int, default=8, choices=(8, 16))
    parser.add_argument("--tile-bits", default="", help="Of the GPU's passes, instead of the usual width.")
    parser.add_argument("--plain-up-to", type=int, default=33, help="Qubits of plain states beside them.")
    parser.add_argument("--limit-s", type=float, default=240.0)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    low, high = (int(part) for part in options.qubits.split("-"))
    result: dict[str, Any] = {"seed": options.seed, "commit": commit(), "environment": host_facts()}
    missed = False
    if options.gpu:
        result["gpu"] = on_gpu(options)
        missed = any(row["missed"] for row in result["gpu"])
    elif options.circuits:
        result["coverage"] = run_ranks(
            options.ranks, lambda ranks: coverage((low, high), options.circuits, options.seed, ranks)
        )[0]
        summary(result["coverage"])
        held, within = shares(result["coverage"])
        missed = held < 1 or within < WITHIN_GOAL
    for n in (int(part) for part in options.time.split(",") if part):
        result.setdefault("times", []).extend(times(n, options.rounds, options.threads))
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
