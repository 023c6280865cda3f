"""Ratios and rates of the codecs on intermediates of MaxCut-QAOA networks, beside the seed's and others'.

Usage: python benchmarks/codecs/tensor_codecs.py [--case TEXT] [--bounds 1e-3,5e-3,1e-2] [-o results.json]
       python benchmarks/codecs/tensor_codecs.py --device gpu [--sizes 26,27,28,29] [--case TEXT] [--rivals]
Goals: `small` at least 3 times the seed's grouping pipeline (cuSZx, two-level bitmap) and at least SZ3's best
mode (where pysz is installed); `fast` at least cuSZp's fixed mode, of which only the size is computed; dense
random numbers never worse than raw by more than 1 %. Sizes are of whole streams, headers included.

Each case is the first results of bucket elimination of its rank, in complex64. Rates are bytes of the array a
second of one thread, the best of some runs. With --device gpu only rates are measured, on one GPU
(`codec_rates.py`): of made arrays of 2^size numbers, and of the largest result of the cases named by --case.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from bucket_elimination import eliminate, elimination_order
from numpy.typing import NDArray
from shah2023.base_coders import encode_integrated
from shah2023.pipelines import Pipeline, components, value_range

from tnplan.compress import compress, decompress
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.planner.workloads.qaoa import edge_network, maxcut_graph, random_angles

BOUNDS = (1e-3, 5e-3, 1e-2)
GROUPING = {name: Pipeline(name, "grouping", "2L") for name in ("cuSZx", "cuSZ")}
SZ3_MODES = ("LORENZO_REG", "INTERP_LORENZO", "INTERP", "NOPRED")
CUSZP_BLOCK = 32
INTEGRATED_BLOCKS = (64, 128, 256)
TRIES = 20
REPEATS = 3
LARGE = 1 << 25
FIXED_ANGLES = {
    4: ((0.409, 0.781, 0.988, 1.156), (0.600, 0.434, 0.297, 0.159)),
    5: ((0.360, 0.707, 0.823, 1.005, 1.154), (0.632, 0.523, 0.390, 0.275, 0.149)),
}
"""Gamma and beta for 3-regular graphs (Wurtz and Lykov, arXiv 2107.00677)."""

Array = NDArray[np.complex64]


@dataclass(frozen=True)
class Case:
    """A MaxCut-QAOA network on a random 3-regular graph, and the ranks of its results that are taken."""

    vertices: int
    layers: int
    seed: int
    angles: str
    ranks: tuple[int, ...]

    @property
    def name(self) -> str:
        """Such as 'N20 p5 seed 1 fixed'."""
        return f"N{self.vertices} p{self.layers} seed {self.seed} {self.angles}"


CASES = (
    Case(20, 4, 3, "fixed", (22, 24, 25)),
    Case(20, 5, 1, "fixed", (22, 23, 24)),
    Case(20, 5, 1, "random", (22, 24, 26)),
    Case(22, 4, 2, "random", (22, 23, 24)),
    Case(24, 4, 3, "fixed", (22,)),
    Case(24, 5, 2, "random", (22, 24)),
    Case(26, 4, 1, "random", (22, 24)),
    Case(28, 5, 1, "fixed", (23, 25)),
    Case(30, 4, 1, "random", (22,)),
    Case(32, 4, 1, "fixed", (22, 23)),
    Case(32, 5, 1, "fixed", (22, 24, 27)),
    Case(34, 5, 3, "random", (22, 24)),
)


def tensors(case: Case) -> Iterator[tuple[int, Array]]:
    """The first result of each wanted rank, in complex64."""
    edges = maxcut_graph(case.vertices, 3, case.seed)
    angles = FIXED_ANGLES[case.layers] if case.angles == "fixed" else random_angles(case.layers, case.seed)
    network, arrays = edge_network(edges, 0, *angles)
    order, _ = elimination_order(network, TRIES, 0)
    found: dict[int, Array] = {}

    def see(rank: int, values: NDArray[np.complex128]) -> NDArray[np.complex128] | None:
        if rank in case.ranks and rank not in found:
            found[rank] = values.astype(np.complex64)
        return None if rank > max(case.ranks) or len(found) == len(case.ranks) else values

    eliminate(network, arrays, order, see)
    yield from sorted(found.items())


def cuszp_bytes(array: Array, bound: float) -> int:
    """The size of cuSZp's fixed mode: a byte a block, and for blocks that are not zero 32 signs and planes of
    32 bits. The best of coding numbers, their differences in a block, and these with the first apart."""
    best = []
    for difference, apart in ((False, False), (True, False), (True, True)):
        total = 0
        for part in components(array):
            q = np.rint(part.astype(np.float64) / (2 * bound * value_range(part))).astype(np.int64)
            q = np.pad(q, (0, -q.size % CUSZP_BLOCK)).reshape(-1, CUSZP_BLOCK)
            first = np.zeros(q.shape[0], np.int64)
            if difference:
                q = np.diff(q, axis=1, prepend=0)
            if apart:
                first = -(-_bit_length(np.abs(q[:, 0])) // 8)
                q[:, 0] = 0
            planes = _bit_length(np.abs(q).max(axis=1))
            total += q.shape[0] + int(np.where((planes > 0) | (first > 0), 4 + 4 * planes + first, 0).sum())
        best.append(total)
    return min(best)


def _bit_length(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.ceil(np.log2(numbers + 1.0)).astype(np.int64)


def seed_bytes(array: Array, bound: float, base: str) -> int:
    """The seed's grouping with a two-level bitmap, threshold equal to the bound."""
    parts = [(part, bound * value_range(part)) for part in components(array)]
    return sum(len(GROUPING[base].encode(part, limit, limit)) for part, limit in parts)


def integrated(array: Array, bound: float) -> dict[str, dict[str, float]]:
    """The seed's integrated coder by its block size (its Fig. 10 in kind): ratio, and rate on one thread."""
    parts = [(part, bound * value_range(part)) for part in components(array)]
    rows = {}
    for block in INTEGRATED_BLOCKS:

        def coded(block: int = block) -> int:
            return sum(len(encode_integrated(part, limit, limit, block)) for part, limit in parts)

        encode_s, size = best_s(coded)
        rows[str(block)] = {"ratio": array.nbytes / size, "encode_gb_per_s": array.nbytes / encode_s / 1e9}
    return rows


def sz3_bytes(array: Array, bound: float) -> dict[str, int]:
    """The sizes of SZ3's modes; of large arrays that of the mode that is best on all others."""
    from pysz import sz, szAlgorithm, szConfig, szErrorBoundMode

    sizes = dict.fromkeys(SZ3_MODES if array.size < LARGE else SZ3_MODES[-1:], 0)
    for part in components(array):
        for mode in sizes:
            config = szConfig(part.shape)
            config.errorBoundMode = szErrorBoundMode.ABS
            config.absErrorBound = bound * value_range(part)
            config.cmprAlgo = getattr(szAlgorithm, mode)
            sizes[mode] += sz.compress(part, config)[0].nbytes
    return sizes


def lossless_ratios(array: Array) -> dict[str, float]:
    """Ratios without loss: ours, and zstandard's where it is installed."""
    ratios = {"ours": compress(array, 0.0).ratio}
    if find_spec("zstandard"):
        import zstandard

        ratios["zstd"] = array.nbytes / len(zstandard.ZstdCompressor(3).compress(array.tobytes()))
    return ratios


def best_s(work: Callable[[], Any]) -> tuple[float, Any]:
    """The least time of some runs, and the last result."""
    times = []
    for _ in range(REPEATS):
        start_s = perf_counter()
        result = work()
        times.append(perf_counter() - start_s)
    return min(times), result


def ours(array: Array, bound: float, setting: str) -> dict[str, float]:
    """Ratio, rates in GB/s and worst error over bound of one setting; the bound is checked."""
    encode_s, packed = best_s(lambda: compress(array, bound, setting=setting))
    decode_s, again = best_s(lambda: decompress(packed.data))
    worst = max(
        float(np.abs(part.astype(np.float64) - other).max()) / value_range(part)
        for part, other in zip(components(array), components(again), strict=True)
    )
    if worst > bound:
        raise ValueError(f"an error of {worst} is above the bound {bound}")
    return {
        "ratio": packed.ratio, "encode_gb_per_s": array.nbytes / encode_s / 1e9,
        "decode_gb_per_s": array.nbytes / decode_s / 1e9, "worst_over_bound": worst / bound,
    }  # fmt: skip


def measure(name: str, rank: int, array: Array, bound: float) -> dict[str, Any]:
    """Everything about one tensor at one bound."""
    row: dict[str, Any] = {"case": name, "rank": rank, "bound": bound, "fast": ours(array, bound, "fast")}
    row["small"] = ours(array, bound, "small")
    row["seed_cuszx"] = array.nbytes / seed_bytes(array, bound, "cuSZx")
    row["seed_cusz"] = array.nbytes / seed_bytes(array, bound, "cuSZ")
    row["seed_integrated"] = integrated(array, bound)
    row["cuszp"] = array.nbytes / cuszp_bytes(array, bound)
    if find_spec("pysz"):
        row["sz3"] = {mode: array.nbytes / size for mode, size in sz3_bytes(array, bound).items()}
    return row


def verdict(row: dict[str, Any]) -> dict[str, float]:
    """The goals as shares: 1 or more is reached."""
    shares = {
        "small / 3 seed": row["small"]["ratio"] / (3 * row["seed_cuszx"]),
        "fast / cuSZp": row["fast"]["ratio"] / row["cuszp"],
    }
    if "sz3" in row:
        shares["small / SZ3"] = row["small"]["ratio"] / max(row["sz3"].values())
    return shares


def random_rows() -> list[dict[str, Any]]:
    """Dense random numbers, also at bounds near the precision: the ratio must stay above 0.99."""
    generator = np.random.default_rng(1)
    rows = []
    for dtype in (np.float32, np.float64):
        values = generator.normal(size=1 << 22).astype(dtype)
        for bound in (0.0, 1e-12, 1e-7, 1e-3):
            for setting in ("fast", "small"):
                rows.append(
                    {"dtype": values.dtype.name, "bound": bound, "setting": setting}
                    | {"ratio": compress(values, bound, setting=setting).ratio}
                )
    return rows


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    sz3 = f"{max(row['sz3'].values()):8.2f}" if "sz3" in row else "       -"
    rates = " ".join(
        f"{row[setting][rate]:6.3f}" for setting in ("fast", "small")
        for rate in ("encode_gb_per_s", "decode_gb_per_s")
    )  # fmt: skip
    least = min(verdict(row).values())
    return (
        f"{row['case']:24} {row['rank']:4} {row['bound']:7g} {row['fast']['ratio']:8.2f} "
        f"{row['small']['ratio']:8.2f} {row['seed_cuszx']:8.2f} {row['seed_cusz']:8.2f} "
        f"{row['cuszp']:8.2f} {sz3} {rates} {'' if least >= 1 else 'MISSED'}"
    )


def gpu_rates(sizes: str, text: str, rivals: bool) -> dict[str, Any]:
    """Rates on a GPU of made arrays, and of the largest result of each case whose name has the text."""
    import codec_rates
    import nvcomp_rates

    if rivals and not nvcomp_rates.installed():
        raise SystemExit("--rivals: nvCOMP is not installed; pip install nvidia-nvcomp-cu13")

    cases = [case for case in CASES if text and text in case.name]
    largest = ((case.name, list(tensors(case))[-1][1]) for case in cases)
    return codec_rates.on_gpu([int(size) for size in sizes.split(",") if size], largest, rivals)


def write(path: Path | None, document: dict[str, Any]) -> None:
    """Keep the figures, with where they were measured, if a file is given."""
    if path:
        environment = {**host_facts(), "commit": commit()}
        path.write_text(json.dumps({"environment": environment, **document}, indent=1) + "\n")


def main() -> None:
    """Measure every case, print the table, keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--case", default="", help="only cases whose name has this text")
    parser.add_argument("--ranks", default="22:27", help="only ranks from:to")
    parser.add_argument("--bounds", default=",".join(map(str, BOUNDS)))
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--sizes", default="26,27,28,29", help="with --device gpu: logarithms of the sizes")
    parser.add_argument("--rivals", action="store_true", help="with --device gpu: nvCOMP's codecs too")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if options.device == "gpu":
        write(options.output, gpu_rates(options.sizes, options.case, options.rivals))
        return
    lowest, highest = map(int, options.ranks.split(":"))
    print(
        f"{'case':24} rank   bound     fast    small seed SZx  seed SZ    cuSZp      SZ3"
        "  GB/s: fast in and out, small in and out"
    )
    rows, lossless = [], []
    for case in CASES:
        if options.case not in case.name:
            continue
        for rank, array in tensors(case):
            if not lowest <= rank <= highest:
                continue
            lossless.append({"case": case.name, "rank": rank, **lossless_ratios(array)})
            for bound in map(float, options.bounds.split(",")):
                rows.append(measure(case.name, rank, array, bound))
                print(line(rows[-1]), flush=True)
    goals = {goal: min(verdict(row)[goal] for row in rows) for goal in verdict(rows[0])} if rows else {}
    dense = random_rows()
    goals["dense random / 0.99"] = min(row["ratio"] for row in dense) / 0.99
    for goal, share in goals.items():
        print(f"{goal}: at least {share:.3f} (goal 1)")
    write(options.output, {"goals": goals, "rows": rows, "lossless": lossless, "random": dense})


if __name__ == "__main__":
    main()
