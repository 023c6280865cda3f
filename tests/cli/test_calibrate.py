"""`tnplan calibrate` on the CPU: profiles that plan, refusals in one line, and the fits of known figures."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from itertools import product
from math import hypot, inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.contraction.fused import fused_rates
from tests.support.kernels.gpus import count_gpus
from tests.support.mpirun import SCRIPTS, mpirun, needs_mpi
from tests.support.networks import agrees, random_arrays, random_path
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.calls.calibrate import ALGEBRA_BYTES, calibrate
from tnplan.calls.execute import execute
from tnplan.cli.main import run
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.threads import ThreadCommunicator, run_ranks
from tnplan.executor.device.cpu.device import HostMark, NumpyDevice
from tnplan.executor.device.protocols.device import Call, ContractShape
from tnplan.jobs import calibration
from tnplan.jobs.calibration import (
    CHAINS,
    FREE,
    ChainTime,
    LocalBench,
    RedistributionTime,
    chain_shape,
    chip_rates,
    fill,
    redistribution_rate,
    redistribution_time,
    seconds,
)
from tnplan.planner.hardware.profile import (
    GemmCurve,
    Profile,
    RecordedRates,
    SmallProductTimes,
    load_profile,
    profile_text,
)
from tnplan.planner.passes.pipeline import plan

OPTIONS = ("--base", "cpu", "--device", "cpu", "--size", "4MiB")


def figures(document: Any) -> list[float]:
    """All figures of a document, in no order."""
    if isinstance(document, dict):
        document = list(document.values())
    if isinstance(document, list | tuple):
        return [figure for entry in document for figure in figures(entry)]
    return [document] if isinstance(document, int | float) else []


def check_profile(profile: Profile, base: Profile) -> None:
    """Assert that everything measured is there, that figures are positive, and that the profile plans."""
    for name in ("memory_bytes_per_s", "permute_bytes_per_s", "launch_s"):
        assert getattr(profile, name) != getattr(base, name)
    assert set(profile.gemm_curves) == set(profile.scattered_curves) == set(base.flop_per_s)
    unknown = {"devices", "fused_bytes", "short_run_bytes"}
    document = asdict(profile)
    document["tiers"] = [
        {name: value for name, value in tier.items() if name not in unknown} for tier in document["tiers"]
    ]
    measured = {name: value for name, value in document.items() if name not in unknown}
    assert min(figures(measured)) > 0
    for dtype, rates in profile.flop_per_s.items():
        for precision, rate in rates.items():
            assert rate == pytest.approx(max(profile.gemm_curves[dtype][precision].flop_per_s), rel=1e-5)
    path = random_path(2)
    schedule = plan(path, profile, devices=2, ranks_per_group=2, memory_bytes=1 << 30, threshold_bytes=1)
    agrees(
        execute(schedule, random_arrays(path, 2), device="cpu", threads=1).array, path, random_arrays(path, 2)
    )


@pytest.mark.slow
def test_the_profile_of_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "own.toml"
    assert run(["calibrate", *OPTIONS, "--name", "own", "-o", str(output)]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"written: {output}\n"
    assert shown.err.startswith("device: cpu\ncopy ")
    profile, base = load_profile(output), load_profile("cpu")
    assert profile.name == "own"
    assert profile.tiers == base.tiers
    check_profile(profile, base)


def test_without_an_output_the_profile_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By measurements that are too short to tell much."""
    monkeypatch.setattr(calibration, "SUSTAINED_S", 0.01)
    assert run(["calibrate", *OPTIONS, "--dtype", "float64"]) == 0
    (tmp_path / "own.toml").write_text(capsys.readouterr().out)
    profile, base = load_profile(tmp_path / "own.toml"), load_profile("cpu")
    assert set(profile.gemm_curves) == {"float64"}
    assert set(profile.algebras) == {"max-plus", "min-plus", "residues"}
    measured, estimated = (profile.over(name, "float64", 0.01) for name in ("residues", "optima"))
    rates, plain = profile.algebras["residues"]["float64"], profile.gemm_curves["float64"]["fp64"]
    assert measured.gemm_curves["float64"] == {"fp64": GemmCurve(rates.k, rates.flop_per_s)}
    assert measured.scattered_curves["float64"]["fp64"].flop_per_s == rates.scattered_flop_per_s
    assert estimated.gemm_curves["float64"]["fp64"].flop_per_s == tuple(0.01 * x for x in plain.flop_per_s)
    assert estimated.rate("float64", "fp64") == 0.01 * profile.rate("float64", "fp64")
    assert profile.flop_per_s["complex64"] == base.flop_per_s["complex64"]


class ClockedDevice(NumpyDevice):
    """A GPU on which time is counted: 30 us for a recorded run, and in it 2 us a copy, and for products 1 us,
    and 10 ns a term."""

    name = "gpu"
    seconds_s = 0.0

    def taking(self, time_s: float, call: Call) -> Call:
        def run() -> None:
            self.seconds_s += time_s
            call()

        return run

    def bind_copy(self, *given: Any, **named: Any) -> Call:
        return self.taking(2e-6, super().bind_copy(*given, **named))

    def bind_contract(self, shape: ContractShape, *given: Any) -> Call:
        return self.taking(1e-6 + 1e-8 * shape.k, super().bind_contract(shape, *given))

    def recorded(self, calls: Sequence[Call], waits: Any = None) -> Call:
        return self.taking(3e-5, super().recorded(calls, waits))

    def mark(self, point: HostMark) -> None:
        point.time_s = self.seconds_s


def check_recorded(rates: RecordedRates, names: set[str], extents: tuple[int, ...]) -> None:
    """The figures of that clock."""
    assert rates.launch_s == pytest.approx(3e-5)
    assert rates.copy_s == pytest.approx(2e-6)
    assert rates.products.keys() == names
    for by_dtype in rates.products.values():
        times = by_dtype["float64"]
        assert times.k == extents
        assert times.time_s == tuple(pytest.approx([1e-6 + 1e-8 * k for k in extents]) for _ in times.sides)


def test_recorded_runs_are_measured_apart_from_their_start() -> None:
    bench = LocalBench(ClockedDevice(), 1 << 20, 0, 0)
    rates = bench.recorded_rates()
    times = bench.small_product_times("float64", "fp64", rates.launch_s)
    products = {"numbers": {"float64": times}}
    check_recorded(replace(rates, products=products), {"numbers"}, (2, 8, 32, 128, 512))


def test_a_gpu_has_recorded_runs_in_its_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a GPU that is a CPU: of numbers and of the algebras in a dtype; those of other dtypes stay."""
    module = "tnplan.calls.calibrate"
    other = SmallProductTimes((8,), (2,), ((1e-6,),))
    known = RecordedRates(1.0, 1.0, {"numbers": {"complex64": other}})
    monkeypatch.setattr(f"{module}._device_over", lambda algebra, device: ClockedDevice())
    monkeypatch.setattr(f"{module}.SMALL_BYTES", 1 << 20)
    monkeypatch.setitem(ALGEBRA_BYTES, "gpu", 1 << 20)
    monkeypatch.setattr("tnplan.jobs.calibration.sustained_seconds", lambda *_: 1.0)
    (tmp_path / "base.toml").write_text(profile_text(replace(load_profile("cpu"), recorded=known)))
    options: dict[str, Any] = {"device": "cpu", "size": 1 << 20, "dtypes": ("float64",)}
    assert calibrate(tmp_path / "base.toml", **options).recorded == known
    monkeypatch.setattr("tnplan.executor.device.cpu.device.NumpyDevice", ClockedDevice)
    rates = calibrate(tmp_path / "base.toml", **options).recorded
    assert rates is not None
    numbers = rates.products["numbers"]
    assert numbers.pop("complex64") == other
    check_recorded(rates, {"numbers", "max-plus", "min-plus", "residues"}, (2, 8, 32, 128, 512))


def test_a_size_need_not_be_aligned() -> None:
    profile = calibrate("cpu", device="cpu", size=(1 << 20) + 1, dtypes=("complex128",))
    assert profile.memory_bytes_per_s > 0


@pytest.mark.slow
def test_chains_are_measured_where_the_base_has_them(tmp_path: Path) -> None:
    base = replace(
        load_profile("cpu"), fused_bytes=32768,
        fused_tile_bytes_per_s=fused_rates(1e12, ("complex64", "float64")),
        fused_flop_per_s=fused_rates(1e10, ("complex64", "float64")),
    )  # fmt: skip
    file, heard = tmp_path / "base.toml", list[str]()
    file.write_text(profile_text(base))
    profile = calibrate(
        file, device="cpu", size=1 << 20, dtypes=("complex64",), progress=lambda at: heard.append(at.text)
    )
    for name, rate in (("fused_flop_per_s", 1e10), ("fused_tile_bytes_per_s", 1e12)):
        rates = getattr(profile, name)
        assert rates["float64"] == {"fp64": rate}
        assert rates["complex64"]["fp32"] > 0
        assert rates["complex64"]["fp32"] != rate
    assert any(line.startswith("complex64 fp32 chains ") for line in heard)


@needs_mpi
@pytest.mark.mpi
@pytest.mark.slow
def test_two_ranks_measure_their_exchanges(tmp_path: Path) -> None:
    output = tmp_path / "own.toml"
    done = mpirun(2, "-m", "tnplan", "calibrate", *OPTIONS, "-o", output)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"written: {output}\n"
    assert done.stderr.count("copy ") == 1
    assert "swap of 4.00 MiB over 2 ranks by host memory: " in done.stderr
    profile, base = load_profile(output), load_profile("cpu")
    (tier,) = profile.tiers
    assert tier.curve_bytes == (1 << 19, 1 << 21)
    assert tier.bytes_per_s == tier.curve_bytes_per_s[-1]
    assert (tier.name, tier.devices, tier.granule_bytes) == ("host memory", 0, base.tiers[0].granule_bytes)
    check_profile(profile, base)


def on_hosts(monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    """Have the next ranks run on hosts with these names, a letter each."""
    found = iter(names)
    monkeypatch.setattr("tnplan.calls.calibrate.gethostname", lambda: next(found))


@pytest.mark.parametrize("hosts", ["aabb", "abcd"])
def test_ranks_on_several_hosts_measure_two_tiers(monkeypatch: pytest.MonkeyPatch, hosts: str) -> None:
    on_hosts(monkeypatch, hosts)
    profile = calibrate("cpu", device="cpu", ranks=4, size=1 << 20, dtypes=("complex64",))
    near, far = profile.tiers
    base = load_profile("cpu").tiers[0]
    assert (near.name, near.devices) == ("host memory", 4 // len({*hosts}))
    assert (far.name, far.devices) == ("network", 0)
    assert len(far.curve_bytes) == 1
    assert far.bytes_per_s == far.curve_bytes_per_s[-1] > 0
    assert (near.bytes_per_s == base.bytes_per_s) == (hosts == "abcd")


def test_a_base_with_two_tiers_keeps_their_names_and_sizes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    base = load_profile("cpu")
    tiers = tuple(replace(base.tiers[0], name=name, devices=count) for name, count in (("x", 4), ("y", 16)))
    (tmp_path / "base.toml").write_text(profile_text(replace(base, tiers=tiers)))
    on_hosts(monkeypatch, "aabb")
    heard = list[str]()
    options: dict[str, Any] = {"device": "cpu", "size": 1 << 20, "dtypes": ("complex64",)}
    profile = calibrate(tmp_path / "base.toml", ranks=4, progress=lambda at: heard.append(at.text), **options)
    assert [(tier.name, tier.devices) for tier in profile.tiers] == [("x", 4), ("y", 16)]
    assert [line[: line.index(":")] for line in heard if "swap" in line] == [
        f"swap of 1.00 MiB over 2 ranks by {name}" for name in "xy"
    ]


def test_hosts_with_different_numbers_of_ranks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    on_hosts(monkeypatch, "aab")
    with pytest.raises(
        InputError, match=r"mpirun: started [12] on ., [12] on .; start the same number of ranks on"
    ):
        calibrate("cpu", device="cpu", ranks=3, size=1 << 20, dtypes=("complex64",))


# fmt: off
REFUSED: list[Row] = [
    ("--dtype int8", "--dtype", "'int8' is unknown", "choose from float32,"),
    ("--size 1000", "--size", "is 1000", "give an integer from 1048576 up"),
    ("--size some", "--size", "'some' is not a size", "write bytes, or a"),
    ("--name ''", "--name", "is empty", "name the profile, or leave it out for the base's name"),
    ("--base nowhere", "--base", "'nowhere' is not a profile", "choose from a100, cpu"),
    ("--device tpu", "Invalid value for '--device'", "'tpu'", "see 'tnplan calibrate"),
    ("-o nowhere/own.toml", "nowhere/own.toml", "its folder does not exist", "choose a folder that"),
    ("-o .", ".", "is a folder", "give the name of a file"),
]
# fmt: on


@table(REFUSED)
def test_an_option_is_refused(
    refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    refusal.ends(f"calibrate {shlex.join(OPTIONS)} {refusal.given}", capsys)


@pytest.mark.skipif(count_gpus() > 0, reason="needs a machine without GPUs")
def test_a_gpu_is_not_taken_from_a_cpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = tmp_path / "own.toml"
    assert run(["calibrate", "--base", "h200-nvlink", "--size", "4MiB", "-o", str(output)]) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert (
        "--base: 'h200-nvlink' is the profile of a GPU, but here the CPU would be measured; use --base "
        "cpu, or" in line
    )
    assert not list(tmp_path.iterdir())


@needs_mpi
@pytest.mark.mpi
@table([REFUSED[0], REFUSED[3], REFUSED[5]])
def test_ranks_refuse_in_one_line(refusal: Refusal) -> None:
    done = mpirun(2, "-m", "tnplan", "calibrate", *OPTIONS, *shlex.split(refusal.given))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    refusal.is_said_by(line)


Ended = tuple[subprocess.CompletedProcess[str], float, Path]
"""A job, the seconds that it took, and the file that it was to write."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> list[Ended]:
    """Jobs of two ranks of which one fails, by that rank; both at once, as each waits for the other rank."""

    folder = tmp_path_factory.mktemp("ended")

    def job(rank: int) -> Ended:
        output = folder / f"{rank}.toml"
        start = time.monotonic()
        script = SCRIPTS / "fail_in_calibrate.py"
        done = mpirun(2, script, rank, "calibrate", *OPTIONS, "--dtype", "float32", "-o", output)
        return done, time.monotonic() - start, output

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(job, range(2)))


@needs_mpi
@pytest.mark.mpi
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_fails_ends_the_job(ended: list[Ended], rank: int) -> None:
    done, time_s, output = ended[rank]
    assert time_s < 30
    assert done.returncode != 0
    assert f"rank {rank}: RuntimeError: struck by a test" in done.stderr
    assert not output.exists()


RUNS, SHORT_RUN = (4096.0, 64.0), 32.0


def times_of(tile_bytes_per_s: float, flop_per_s: float, memory_bytes_per_s: float) -> list[ChainTime]:
    """Chains of two tensors of 1 GiB, the second in short runs, as the cost model has them."""
    chains = []
    for logs in CHAINS:
        side_bytes, tile_bytes = 2.0**30, 2.0**31 * (len(logs) + 1)
        flops = sum(8 * 2.0**27 * 2**log for log in logs)
        chip_s = tile_bytes / tile_bytes_per_s + flops / flop_per_s
        slower = 2 + (SHORT_RUN / RUNS[0]) ** 2 + 0.25
        time_s = hypot(side_bytes * slower / memory_bytes_per_s, chip_s)
        chains.append(ChainTime(side_bytes, RUNS, tile_bytes, flops, time_s))
    return chains


@pytest.mark.parametrize(("tile", "flop"), [*product((5e12, 20e12), (1e13, 4e13))])
def test_rates_of_known_chains_are_found(tile: float, flop: float) -> None:
    chains = times_of(tile, flop, 4e12)
    assert chip_rates(chains, 4e12, SHORT_RUN) == pytest.approx((tile, flop), rel=1e-6)
    chance = np.random.default_rng(0)
    noisy = [replace(chain, time_s=chain.time_s * chance.uniform(0.98, 1.02)) for chain in chains]
    assert chip_rates(noisy, 4e12, SHORT_RUN) == pytest.approx((tile, flop), rel=0.3)


def test_a_rate_that_cannot_be_told_counts_for_nothing() -> None:
    chains = times_of(float("inf"), 1e13, 4e12)
    quick = [replace(chain, time_s=chain.time_s * (1 - 0.01 * len(CHAINS[place])))
             for place, chain in enumerate(chains)]  # fmt: skip
    tile, flop = chip_rates(quick, 4e12, SHORT_RUN)
    assert tile == pytest.approx(FREE)
    assert flop == pytest.approx(1e13, rel=0.2)


@pytest.mark.parametrize("power", [3, 4])
def test_rates_hold_for_long_chains_where_the_memory_hides_short_ones(power: int) -> None:
    memory_s = 2.0**31 / 3e12

    def chain(logs: tuple[int, ...]) -> ChainTime:
        """Memory and chip work at once but for a rest, as on an H100: less adds up than the model has it."""
        flops = sum(8 * 2.0**27 * 2**log for log in logs)
        time_s = (memory_s**power + (flops / 4e13) ** power) ** (1 / power)
        return ChainTime(2.0**30, (inf, inf), 2.0**31 * (len(logs) + 1), flops, time_s)

    tile, flop = chip_rates([chain(logs) for logs in CHAINS], 3e12, SHORT_RUN)
    for logs in ((3,) * 3, (3,) * 4, (4, 3, 3, 3), (3,) * 6, (4, *(3,) * 7), (5, 5), (6,)):
        one = chain(logs)
        predicted_s = hypot(memory_s, one.tile_bytes / tile + one.flops / flop)
        assert predicted_s == pytest.approx(one.time_s, rel=0.15)


def test_chains_that_tell_nothing_are_refused() -> None:
    chains = times_of(1e12, 1e13, 4e12)
    with pytest.raises(ValueError, match="no longer than the memory"):
        chip_rates(chains, 1e9, SHORT_RUN)
    with pytest.raises(ValueError, match="no longer than the memory"):
        chip_rates([], 4e12, SHORT_RUN)


def test_the_rate_of_a_swap_leaves_out_what_is_kept() -> None:
    assert redistribution_rate(RedistributionTime(3 << 20, 1 << 20, 1.0), (2 << 20) / 0.25) == pytest.approx(
        (3 << 20) / 0.75
    )
    assert redistribution_rate(RedistributionTime(3 << 20, 1 << 20, 1.0), 1.0) == pytest.approx(
        (3 << 20) / 0.5
    )


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_swap_moves_every_digit(size: int) -> None:
    buffer_bytes, workspace_bytes = 1 << 16, 1 << 14

    def work(communicator: ThreadCommunicator) -> tuple[RedistributionTime, np.ndarray]:
        device = NumpyDevice()
        device.allocate(2 * buffer_bytes + workspace_bytes)
        source = device.view(0, buffer_bytes // 8, "complex64")
        source[:] = np.arange(len(source)) + 1j * communicator.rank
        swap = redistribution_time(device, communicator, 1 << 15, buffer_bytes, workspace_bytes)
        return swap, device.view(buffer_bytes, buffer_bytes // 8, "complex64").copy()

    results = run_ranks(size, work)
    inner = (1 << 15) // (8 * size)
    for rank, (swap, out) in enumerate(results):
        assert swap.time_s > 0
        assert (swap.kept_bytes, swap.received_bytes) == (8 * inner, 8 * inner * (size - 1))
        for peer in range(size):
            arrived = out[peer * inner : (peer + 1) * inner]
            assert np.array_equal(arrived, np.arange(rank * inner, (rank + 1) * inner) + 1j * peer)


def test_a_chain_sums_the_innermost_modes_and_ends_with_others_inside() -> None:
    shape = chain_shape(12, (2, 3))
    assert [len(branch) for branch in shape.branches] == [4, 6]
    assert {mode for mode, _ in shape.branches[0]} == {12, 13, 10, 11}
    assert len(shape.out) == 12
    assert len({mode for mode, _ in shape.out}) == 12


def test_products_are_bounded_by_their_buffers() -> None:
    bench = LocalBench(NumpyDevice(), 1 << 16, 1 << 13, 1 << 13)
    for dtype, precision, longest in (("float32", "fp32", 32), ("complex128", "fp64", 16)):
        extents = bench.product_extents(dtype)
        assert extents[-1] == longest
        for scattered in (False, True):
            assert bench.product_flop_per_s(dtype, precision, longest, scattered) > 0


def test_what_is_filled_is_never_zero_and_times_are_medians() -> None:
    device = NumpyDevice()
    device.allocate(1 << 16)
    view = device.view(0, 1 << 13, "complex64")
    fill(device, view, "complex64", 1)
    assert np.all(view != 0)
    assert view.real.std() == pytest.approx(1, rel=0.1)
    waits = iter([0.0, 0.0, 0.4, 0.001, 0.001])  # their mean is 0.134, and a busy machine adds to each
    assert 0.0005 < seconds(device, lambda: time.sleep(next(waits)), 3) < 0.1
