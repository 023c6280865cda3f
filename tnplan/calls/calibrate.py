"""`calibrate`: measures the machine at hand and makes its hardware profile.

Rank 0 measures what a device does alone while the others wait; then all measure changes of layout together:
those of one host, which is the first tier, and those of several hosts, which is the second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from socket import gethostname
from time import perf_counter, sleep
from typing import Any, Unpack

from tnplan.common.arrays import ALIGNMENT_BYTES, ITEM_BYTES
from tnplan.common.checks import check_choice, check_count
from tnplan.common.errors import InputError
from tnplan.common.files import check_writable, write_text
from tnplan.common.shown_text import shown_text
from tnplan.common.units import rate_text, size_in_bytes, size_text
from tnplan.executor.device.cpu.algebra import MODULAR, NAMED, Algebra, Tropical, algebra_of
from tnplan.executor.device.cpu.algebra_device import AlgebraDevice
from tnplan.executor.device.protocols.communicator import AgreedError, Communicator, agree
from tnplan.executor.device.protocols.device import Device
from tnplan.executor.device.protocols.precision import supported
from tnplan.jobs.calibration import (
    CHAINS,
    LocalBench,
    chip_rates,
    redistribution_rate,
    redistribution_time,
)
from tnplan.jobs.job import Job, Needs, Rank, run_job
from tnplan.jobs.job_options import JobOptions, RankKeywords, takes_job
from tnplan.planner.hardware.profile import (
    DEFAULT_PRECISION,
    NUMBERS,
    AlgebraRates,
    GemmCurve,
    Profile,
    RecordedRates,
    Tier,
    load_profile,
    profile_text,
)

GPU_BYTES = 1 << 31
CPU_BYTES = 1 << 26
WORKSPACE_SHARE = 8
"""A product's tile is this part of a buffer, but at most what the base profile says."""
SMALL_BYTES = 1 << 24
"""The bytes of a tensor of small products over algebras."""
ALGEBRA_BYTES, ALGEBRA_K = {"cpu": 1 << 23, "gpu": 1 << 28}, 512
"""The bytes of a tensor, and the largest extent, that products over algebras are measured at."""
SWAP_STEP = 4
LEAST_SWAP_BYTES = 1 << 20
LATENCY_BYTES = 1 << 12
WATTS_S = 2.0
"""Each kind of work goes on for so long: the driver's counter is renewed some ten times a second."""
NETWORK = "network"
"""The tier between hosts, where the base profile has none."""


@takes_job(RankKeywords, JobOptions)
def calibrate(
    base: str | Path,
    *,
    name: str | None = None,
    size: int | str | None = None,
    dtypes: Sequence[str] = tuple(ITEM_BYTES),
    **job: Unpack[RankKeywords],
) -> Profile:
    """Measure this machine and make its hardware profile.

    Rank 0 measures what a device does alone; all ranks measure changes of layout. A CPU works with one thread
    a rank. Under mpirun the call is collective.

    Parameters
    ----------
    base : str or path
        A shipped profile or a TOML file. What is not measured comes from it. Exchanges are measured with
        several ranks; those between hosts with the same number of ranks on each of several hosts.
    name : str, optional
        The name of the profile. Default: that of `base`.
    size : int or str, optional
        The bytes of each of the two tensors that a device works on, rounded down to a multiple of 256.
        Default: 2 GiB on a GPU, 64 MiB on a CPU.
    dtypes : sequence of str
        The dtypes that are measured.
    output : path, optional
        A TOML file for the profile.
    progress : bool or callable, optional
        True: a bar (`ProgressBar`). Or a function that is called on rank 0 with a `Progress` for every
        figure.
    **job
        How the job uses the machine: `JobOptions`.

    Returns
    -------
    Profile
        The profile, on every rank.

    Raises
    ------
    InputError
        Before anything is measured.

    Examples
    --------
    >>> profile = tnplan.calibrate("cpu", output="my.toml")  # doctest: +SKIP
    """
    options = replace(JobOptions.given(calibrate, job), threads=1, checkpoint=False)
    size_bytes = None
    if size is not None:
        size_bytes = check_count("--size", size_in_bytes(size, "--size", unlimited=False), LEAST_SWAP_BYTES)
    if name == "":
        raise InputError("--name", "is empty", "name the profile, or leave it out for the base's name")
    for dtype in dtypes:
        check_choice("--dtype", dtype, ITEM_BYTES)

    def prepare() -> Profile:
        if options.output is not None:
            check_writable(options.output)
        try:
            return load_profile(base)
        except InputError as error:
            place = "--base" if error.place == "--hardware" else error.place
            raise InputError(place, error.problem, error.remedy, error.page) from None

    def work(rank: Rank, known: Profile) -> Profile:
        if options.device != "auto":
            rank.say(0, 0, rank.chosen.line)
        elif known.fused_bytes and rank.device.name != "gpu":
            raise AgreedError(
                "--base", f"{known.name!r} is the profile of a GPU, but here the CPU would be measured",
                "use --base cpu, or --device gpu, which says why no GPU can be used",
            )  # fmt: skip
        profile = _Calibration(rank, known, size_bytes, dtypes).profile(name)
        if options.output is not None and rank.is_first:
            write_text(options.output, profile_text(profile))
        return profile

    # A swap has a source and a destination.
    needs = Needs(2 * (size_bytes or GPU_BYTES), 2 * (size_bytes or CPU_BYTES), "give a smaller --size")
    return run_job(Job(prepare, work, needs=lambda known, n, threads: needs), options)


class _Calibration:
    def __init__(self, rank: Rank, base: Profile, size_bytes: int | None, dtypes: Sequence[str]) -> None:
        self.base, self.dtypes, self.device, self.meter = base, dtypes, rank.device, rank.meter
        self.say: Callable[[str], None] = lambda line: rank.say(0, 0, line)
        self.ranks = rank.chosen.ranks.split(0, rank.world.rank)
        most_bytes = size_bytes or (GPU_BYTES if self.device.name == "gpu" else CPU_BYTES)
        self.size_bytes, workspace, self.exchange_bytes = (
            size // ALIGNMENT_BYTES * ALIGNMENT_BYTES
            for size in (most_bytes, min(base.tile_bytes, most_bytes // WORKSPACE_SHARE),
                         min(base.exchange_bytes, most_bytes // 2))
        )  # fmt: skip
        self.bench = LocalBench(self.device, self.size_bytes, max(workspace, self.exchange_bytes), workspace)

    def profile(self, name: str | None) -> Profile:
        """All figures; collective."""
        ranks = self.ranks
        # Rank 0 alone: others on the same host would take its bandwidth. The profile is of one device.
        local = agree(ranks, lambda: self._local() if ranks.rank == 0 else {})
        figures: dict[str, Any] = ranks.broadcast_object(local, 0)
        tiers = self._tiers(figures["permute_bytes_per_s"])
        total_bytes, free_bytes = self.device.memory()
        arena_bytes = self.device.peak_bytes
        figures["memory_bytes"] = total_bytes
        # What others, and the driver, have of the device: all that is neither free nor our own arena.
        figures["reserved_bytes"] = max(0, total_bytes - free_bytes - arena_bytes)
        self.say(
            f"memory {size_text(total_bytes)}, of which {size_text(figures['reserved_bytes'])} are taken"
        )
        return replace(self.base, name=name or self.base.name, tiers=tiers, **figures)

    def _local(self) -> dict[str, Any]:
        """What one device does alone."""
        bench, say = self.bench, self.say
        memory, permute = bench.copy_bytes_per_s(), bench.permute_bytes_per_s("complex64")
        say(f"copy {rate_text(memory, 'B/s')}, permutation {rate_text(permute, 'B/s')}")
        launch_s = bench.launch_s()
        say(f"launch {launch_s * 1e6:.2f} us")
        direct: dict[str, dict[str, GemmCurve]] = {}
        scattered: dict[str, dict[str, GemmCurve]] = {}
        for dtype in self.dtypes:
            for precision in supported(dtype):
                if precision not in self.base.flop_per_s.get(dtype, {}):
                    continue
                for table, is_scattered in ((direct, False), (scattered, True)):
                    extents = bench.product_extents(dtype)
                    rates = [bench.product_flop_per_s(dtype, precision, k, is_scattered) for k in extents]
                    table.setdefault(dtype, {})[precision] = GemmCurve(extents, tuple(rates))
                    kind = "scattered" if is_scattered else "direct"
                    listed = ", ".join(f"{rate / 1e12:.3g}" for rate in rates)
                    say(
                        f"{dtype} {precision} {kind}, TFLOP/s at k = n = "
                        f"{extents[0]}..{extents[-1]}: {listed}"
                    )
        # The rate of a precision is the best of its curve; rates that were not measured stay those
        # of the base.
        flop_per_s = {
            dtype: {
                precision: max(direct[dtype][precision].flop_per_s) if dtype in direct else rate
                for precision, rate in rates.items()
            }
            for dtype, rates in self.base.flop_per_s.items()
        }
        return {
            "memory_bytes_per_s": memory, "permute_bytes_per_s": permute, "launch_s": launch_s,
            "gemm_curves": {**self.base.gemm_curves, **direct},
            "scattered_curves": {**self.base.scattered_curves, **scattered},
            "flop_per_s": flop_per_s, "algebras": self._algebras(), "recorded": self._recorded(),
            "watts": self._watts(), **self._fused(permute),
        }  # fmt: skip

    def _recorded(self) -> RecordedRates | None:
        """What calls take in a recorded run of a GPU; the base's on a CPU, which records none."""
        if self.device.name != "gpu":
            return self.base.recorded
        rates = self.bench.recorded_rates()
        self.say(f"recorded: start {rates.launch_s * 1e6:.2f} us, copy {rates.copy_s * 1e6:.2f} us")
        products = {} if self.base.recorded is None else {**self.base.recorded.products}
        of_numbers = [(NUMBERS, dtype, self.bench) for dtype in self.dtypes if self._has_own_precision(dtype)]
        of_algebras = (
            (algebra.name, algebra.dtype, LocalBench(_device_over(algebra, self.device), SMALL_BYTES, 0, 0))
            for algebra in self._measured_algebras()
        )
        for name, dtype, bench in chain(of_numbers, of_algebras):
            times = bench.small_product_times(dtype, DEFAULT_PRECISION[dtype], rates.launch_s)
            products[name] = {**products.get(name, {}), dtype: times}
            for side, curve in zip(times.sides, times.time_s, strict=True):
                listed = ", ".join(f"{time_s * 1e6:.3g}" for time_s in curve)
                extents = f"m = n = {side}, k = {times.k[0]}..{times.k[-1]}"
                self.say(f"recorded {name} in {dtype}, us at {extents}: {listed}")
        return replace(rates, products=products)

    def _measured_algebras(self) -> Iterator[Algebra]:
        """The algebras of the dtypes that are measured."""
        tropical = (Tropical(is_least, "float32") for is_least in (False, True))
        for algebra in filter(None, (*map(algebra_of, (*NAMED, *MODULAR)), *tropical)):
            if algebra.dtype in self.dtypes and self._has_own_precision(algebra.dtype):
                yield algebra

    def _has_own_precision(self, dtype: str) -> bool:
        return DEFAULT_PRECISION[dtype] in self.base.flop_per_s.get(dtype, {})

    def _algebras(self) -> dict[str, dict[str, AlgebraRates]]:
        """Rates of products over algebras."""
        curves = {name: dict(by_dtype) for name, by_dtype in self.base.algebras.items()}
        for algebra in self._measured_algebras():
            name, dtype, precision = algebra.name, algebra.dtype, DEFAULT_PRECISION[algebra.dtype]
            size_bytes = min(self.size_bytes, ALGEBRA_BYTES[self.device.name])
            workspace = min(self.base.tile_bytes, size_bytes // WORKSPACE_SHARE)
            bench = LocalBench(_device_over(algebra, self.device), size_bytes, workspace, workspace)
            extents = tuple(k for k in bench.product_extents(dtype) if k <= ALGEBRA_K)
            direct, scattered = (
                tuple(bench.product_flop_per_s(dtype, precision, k, is_scattered) for k in extents)
                for is_scattered in (False, True)
            )
            curves.setdefault(name, {})[dtype] = AlgebraRates(extents, direct, scattered)
            listed = ", ".join(f"{rate / 1e12:.3g}" for rate in direct)
            self.say(f"{name} in {dtype}, TFLOP/s at k = n = {extents[0]}..{extents[-1]}: {listed}")
        return curves

    def _watts(self) -> dict[str, float]:
        """What the GPU takes by kind of work; the base's on a CPU, and where the driver has no counter."""
        first = self.meter.read()
        if first.gpu_j is None:
            return self.base.watts
        work = {"idle": lambda: sleep(WATTS_S), **self.bench.calls_by_kind(self.base.fused_bytes)}
        watts: dict[str, float] = {}
        for kind, call in work.items():
            end_s = perf_counter() + WATTS_S
            # The counter is read at the end alone: that takes longer than many a call.
            while perf_counter() < end_s:
                call()
                self.device.synchronize()
            last = self.meter.read()
            if first.gpu_j is None or last.gpu_j is None:
                return self.base.watts
            watts[kind] = (last.gpu_j - first.gpu_j) / (last.seconds - first.seconds)
            first = last
        # Exchanges need a second device: the base's, else those of copies, which move the same bytes.
        watts["exchange"] = self.base.watts.get("exchange", watts["permute"])
        self.say(", ".join(f"{kind} {value:.0f} W" for kind, value in watts.items()))
        return watts

    def _fused(self, permute_bytes_per_s: float) -> dict[str, Any]:
        """Rates of fused chains, for a base profile that has them."""
        if not self.base.fused_bytes:
            return {}
        names = ("fused_tile_bytes_per_s", "fused_flop_per_s")
        tables = {
            name: {key: dict(rates) for key, rates in getattr(self.base, name).items()} for name in names
        }
        for dtype in self.dtypes:
            for precision in self.base.fused_flop_per_s.get(dtype, {}):
                # Chains of different shapes are bound by the chip's memory or by its arithmetic:
                # from their times both rates are fitted.
                chains = [
                    self.bench.chain_time(dtype, precision, logs, self.base.fused_bytes) for logs in CHAINS
                ]
                measured = [chain for chain in chains if chain is not None]
                rates = chip_rates(measured, permute_bytes_per_s, self.base.short_run_bytes)
                for name, rate in zip(names, rates, strict=True):
                    tables[name][dtype][precision] = rate
                listed = ", ".join(f"{chain.time_s * 1e3:.3g}" for chain in measured)
                self.say(f"{dtype} {precision} chains {listed} ms: {rate_text(rates[1], 'FLOP/s')}, "
                         f"{rate_text(rates[0], 'B/s')} on chip")  # fmt: skip
        return tables

    def _tiers(self, permute_bytes_per_s: float) -> tuple[Tier, ...]:
        """The tiers of the base with what can be measured: within a host, then between hosts; collective."""
        ranks, tiers = self.ranks, list(self.base.tiers)
        hosts = ranks.gather_objects(gethostname())
        counts = Counter(hosts)
        # Ranks with the same place on their hosts would make groups of different sizes.
        if len({*counts.values()}) > 1:
            listed = ", ".join(f"{count} on {host}" for host, count in counts.items())
            raise AgreedError("mpirun", f"started {listed}", "start the same number of ranks on every host")
        here = [rank for rank, host in enumerate(hosts) if host == hosts[ranks.rank]]
        # Ranks with the same place on their hosts use the network all at once, as in an exchange.
        near, far = ranks.split(here[0], ranks.rank), ranks.split(here.index(ranks.rank), ranks.rank)
        first = tiers[0] if near.size == 1 else self._tier(near, tiers[0], permute_bytes_per_s)
        joins_all = not first.devices and far.size == 1
        tiers[0] = replace(first, devices=0 if joins_all else max(first.devices, near.size))
        if far.size > 1:
            second = tiers[1] if len(tiers) > 1 else replace(first, name=NETWORK, devices=0)
            tiers[1:2] = [self._tier(far, second, permute_bytes_per_s)]
        measured_tiers: tuple[Tier, ...] = ranks.broadcast_object(tuple(tiers), 0)
        return measured_tiers

    def _tier(self, ranks: Communicator, base: Tier, permute_bytes_per_s: float) -> Tier:
        """A tier as exchanges of these ranks have it; collective."""
        latency = redistribution_time(
            self.device, ranks, LATENCY_BYTES * ranks.size, self.size_bytes, self.exchange_bytes
        )
        points: list[float] = []
        rates: list[float] = []
        shard_bytes = LEAST_SWAP_BYTES
        # A curve over sizes: small messages are bound by latency, large ones by bandwidth, and
        # planners interpolate.
        while shard_bytes <= self.size_bytes:
            swap = redistribution_time(self.device, ranks, shard_bytes, self.size_bytes, self.exchange_bytes)
            points.append(swap.received_bytes)
            rates.append(redistribution_rate(swap, permute_bytes_per_s))
            self.say(
                f"swap of {size_text(shard_bytes)} over {ranks.size} ranks by {shown_text(base.name, 40)}: "
                f"{rate_text(rates[-1], 'B/s')}"
            )
            shard_bytes *= SWAP_STEP
        return replace(
            base, bytes_per_s=rates[-1], latency_s=latency.time_s,
            curve_bytes=tuple(points), curve_bytes_per_s=tuple(rates),
        )  # fmt: skip


def _device_over(algebra: Algebra, device: Any) -> Device:
    """The same CPU or GPU, over an algebra."""
    if device.name == "cpu":
        return AlgebraDevice(algebra)
    from tnplan.executor.device.cuda.algebra.device import AlgebraCupyDevice

    return AlgebraCupyDevice(algebra, device.device_id)
