"""`tnplan execute --device`: refusals without a GPU, and runs on GPUs, in this process and under mpirun."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.support.contraction.executor import Case, check_values, make_case
from tests.support.kernels.gpus import count_gpus, needs_gpus
from tests.support.mpirun import SCRIPTS, mpirun, needs_mpi
from tnplan.cli.main import run
from tnplan.common.errors import InputError
from tnplan.executor.device import select
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.jobs.job_options import TIMEOUT_S
from tnplan.jobs.progress import Progress


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(tmp_path_factory.mktemp("single"), 1)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(tmp_path_factory.mktemp("pair"), 2)


def arguments(case: Case, *more: object) -> list[str]:
    return ["execute", str(case.schedule_file), "--tensors", str(case.tensors_file), *map(str, more)]


def tnplan(n_ranks: int, case: Case, *more: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return mpirun(n_ranks, "-m", "tnplan", *arguments(case, *more), **variables)


def one_line(stderr: str) -> str:
    (line,) = [line for line in stderr.splitlines() if line.startswith("tnplan: error: ")]
    return line


def test_a_missing_library_is_one_line(
    single: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(select, "find_spec", lambda name: None)
    assert run(arguments(single, "--device", "gpu")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "tnplan: error: --device gpu: CuPy is not installed; install it with: pip install 'tnplan[gpu]' "
        "(see docs/reference/support.md#extras)"
    )


def test_an_engine_without_its_gpus_is_named(
    single: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(world: Communicator, needed_bytes: int, remedy: str) -> int:
        raise InputError("--device gpu", "there is none", "run elsewhere, or choose --device cpu")

    monkeypatch.setattr(select, "find_gpu", none)
    assert run(arguments(single, "--engine", "cutensormp")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "tnplan: error: --engine cutensormp: there is none; run elsewhere, or choose --engine native "
        "(see docs/how-to/cutensor.md#limits)"
    )


def test_auto_says_why_it_takes_the_cpu(
    single: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(select, "find_spec", lambda name: None)
    assert run(arguments(single)) == 0
    assert "device: cpu (CuPy is not installed)" in capsys.readouterr().err.splitlines()


@needs_mpi
@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy")
def test_ranks_without_a_gpu_are_refused_in_one_line(pair: Case) -> None:
    done = tnplan(2, pair, "--device", "gpu", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert "--device gpu: " in one_line(done.stderr)
    assert "GPU" in one_line(done.stderr)


@needs_mpi
@pytest.mark.slow
@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy")
def test_ranks_without_a_gpu_take_the_cpu(pair: Case) -> None:
    chosen = tnplan(2, pair, CUDA_VISIBLE_DEVICES="")
    assert chosen.returncode == 0
    assert "device: cpu (" in chosen.stderr


@needs_gpus(1)
def test_auto_takes_the_gpu(single: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "result.npy"
    assert run(arguments(single, "-o", output)) == 0
    check_values(single, np.load(output))
    assert "device: gpu (1 x " in capsys.readouterr().err
    report = json.loads(output.with_suffix(".json").read_text())
    assert report["environment"]["gpu"]
    assert 0 < report["step_error"] < 1e-5


@needs_gpus(1)
def test_an_interrupted_run_goes_on_with_the_same_bits(single: Case, tmp_path: Path) -> None:
    from tnplan.calls.execute import execute

    class StruckError(Exception):
        pass

    def strike(at: Progress) -> None:
        if at.done == 3:
            raise StruckError

    whole, output = tmp_path / "whole.npy", tmp_path / "result.npy"
    execute(single.schedule_file, single.tensors_file, device="gpu", output=whole)
    with pytest.raises(StruckError):
        execute(single.schedule_file, single.tensors_file, device="gpu", output=output, progress=strike)
    resumed = execute(single.schedule_file, single.tensors_file, device="gpu", output=output, resume=True)
    assert resumed.report["slices"]["resumed"] >= 1
    assert np.array_equal(np.load(output), np.load(whole))


@needs_mpi
@needs_gpus(1)
def test_more_ranks_than_gpus_are_refused(pair: Case) -> None:
    n_ranks = 2 * (count_gpus() // 2 + 1)
    done = tnplan(n_ranks, pair, "--device", "gpu")
    assert done.returncode == 2
    assert f"GPU{'s' * (count_gpus() > 1)} for {n_ranks} ranks" in one_line(done.stderr)


@needs_mpi
@needs_gpus(1)
@pytest.mark.parametrize("n_ranks", [2, 4])
def test_ranks_reach_each_others_memory(n_ranks: int) -> None:
    done = mpirun(n_ranks, "-m", "mpi4py", SCRIPTS / "peer_memory.py")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 0


@needs_mpi
@needs_gpus(2)
def test_random_networks_agree_with_einsum_on_two_gpus() -> None:
    done = mpirun(2, "-m", "mpi4py", SCRIPTS / "random_networks.py", "gpu")
    assert done.returncode == 0, done.stderr
    assert "40 networks agree on 2 ranks" in done.stdout


@needs_mpi
@needs_gpus(2)
@pytest.mark.parametrize("result", ["gathered", "sharded"])
def test_two_gpus_under_mpirun(pair: Case, tmp_path: Path, result: str) -> None:
    from tests.support.contraction.shards import load_shards

    output = tmp_path / "result.npy"
    done = tnplan(2, pair, "--device", "gpu", "-o", output, "--result", result)
    assert done.returncode == 0, done.stderr
    array = np.load(output) if result == "gathered" else load_shards(tmp_path / "result.shards.json")
    check_values(pair, array)
    report = json.loads(output.with_suffix(".json").read_text())
    assert report["environment"]["communicator"] == "nccl"
    assert report["measured"]["sent_bytes"] > 0


@needs_mpi
@needs_gpus(2)
def test_nccl_that_cannot_start_ends_the_job(pair: Case) -> None:
    start = time.monotonic()
    done = tnplan(2, pair, "--device", "gpu", NCCL_SOCKET_IFNAME="=absent0")
    assert time.monotonic() - start < TIMEOUT_S  # after which a silent rank would end it
    assert done.returncode != 0
    assert "NCCL: cannot connect 2 ranks" in done.stderr


@needs_mpi
@needs_gpus(2)
def test_a_killed_rank_ends_the_job_on_gpus(pair: Case, tmp_path: Path) -> None:
    output = tmp_path / "result.npy"
    start = time.monotonic()
    done = mpirun(2, SCRIPTS / "kill_at_slice.py", 1, 3, pair.schedule_file, pair.tensors_file, output)
    assert time.monotonic() - start < TIMEOUT_S  # after which a silent rank would end it
    assert done.returncode != 0
    assert list(Path(f"{output}.ckpt").glob("rank*.npy"))
    resumed = tnplan(2, pair, "--device", "gpu", "-o", output, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    check_values(pair, np.load(output))


@needs_mpi
@needs_gpus(2)
def test_a_rank_that_fails_ends_the_job_on_gpus(pair: Case, tmp_path: Path) -> None:
    start = time.monotonic()
    files = pair.schedule_file, pair.tensors_file, tmp_path / "r.npy"
    done = mpirun(2, SCRIPTS / "kill_at_slice.py", 1, 1, *files, "raise")
    assert time.monotonic() - start < TIMEOUT_S  # after which a silent rank would end it
    assert done.returncode != 0
    assert "rank 1: RuntimeError: struck by a test" in done.stderr


@needs_gpus(2)
def test_a_rank_that_fails_ends_this_process_on_gpus(pair: Case) -> None:
    code = (
        "import sys; from tnplan.calls.execute import execute\n"
        "def strike(at): raise RuntimeError('struck by a test')\n"
        "execute(sys.argv[1], sys.argv[2], ranks=2, device='gpu', progress=strike)"
    )
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, str(pair.schedule_file), str(pair.tensors_file)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert time.monotonic() - start < 40
    assert done.returncode == 1
    assert "struck by a test" in done.stderr


CALIBRATE = (
    "calibrate",
    "--base",
    "h200-nvlink",
    "--size",
    "64MiB",
    "--dtype",
    "complex64",
    "--device",
    "gpu",
)


@needs_gpus(1)
def test_a_gpu_is_calibrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tnplan.planner.hardware.profile import load_profile

    output = tmp_path / "own.toml"
    assert run([*CALIBRATE, "-o", str(output)]) == 0
    assert "device: gpu (1 x " in capsys.readouterr().err
    profile, base = load_profile(output), load_profile("h200-nvlink")
    assert set(profile.gemm_curves["complex64"]) == {"fp32", "tf32", "fp16x3"}
    assert profile.fused_flop_per_s["complex64"] != base.fused_flop_per_s["complex64"]
    assert profile.tiers == base.tiers


@needs_mpi
@needs_gpus(2)
def test_two_gpus_are_calibrated_together(tmp_path: Path) -> None:
    from tnplan.planner.hardware.profile import load_profile

    output = tmp_path / "own.toml"
    done = mpirun(2, "-m", "tnplan", *CALIBRATE, "-o", output)
    assert done.returncode == 0, done.stderr
    assert len(load_profile(output).tiers[0].curve_bytes) == 4
    failed = mpirun(2, SCRIPTS / "fail_in_calibrate.py", 1, *CALIBRATE)
    assert failed.returncode != 0
    assert "rank 1: RuntimeError: struck by a test" in failed.stderr
