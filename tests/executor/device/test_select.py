"""Which rank gets which GPU, and what is said where there is none; nothing here needs a GPU."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from tests.support.contraction.executor import make_case
from tnplan.common.errors import InputError
from tnplan.executor.contraction.run.run_report import step_error
from tnplan.executor.device import expected_gpu, select
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu import device as numpy_device
from tnplan.executor.device.cpu import host_memory
from tnplan.executor.device.cpu import host_memory as host
from tnplan.executor.device.cuda.gpu_assignment import VisibleGpus, assign
from tnplan.executor.device.expected_gpu import check_device
from tnplan.executor.device.protocols.communicator import AgreedError
from tnplan.executor.device.select import PROFILES, open_device, profile_of
from tnplan.planner.hardware.profile import load_profile

NO_GPU = (select.PLACE, "here is no GPU", "go elsewhere")


def gpus(host: str, *identities: str, kind: str = "sm_90") -> VisibleGpus:
    return VisibleGpus(host, identities, (kind,) * len(identities))


def test_ranks_take_the_gpus_of_their_host_in_order() -> None:
    one, two = gpus("one", "a", "b"), gpus("two", "c", "d")
    assert [assign([one, one, two, two], rank) for rank in range(4)] == [0, 1, 0, 1]
    assert [assign([one, two, one, two], rank) for rank in range(4)] == [0, 0, 1, 1]


def test_a_launcher_may_show_every_rank_its_own_gpu() -> None:
    seen = [gpus("one", "a"), gpus("one", "b"), gpus("two", "c")]
    assert [assign(seen, rank) for rank in range(3)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        ([gpus("one", "a", "b")] * 3, "one has 2 GPUs for 3 ranks"),
        ([gpus("one", "a")] * 2, "one has 1 GPU for 2 ranks"),
        ([gpus("one", "a", "b"), gpus("one", "a")], "ranks 0 and 1 would share a GPU of one"),
        ([gpus("one", "a"), gpus("two", "b", kind="sm_80")], "sm_80 on two, sm_90 on one"),
    ],
)
def test_refusals_are_the_same_on_every_rank(seen: list[VisibleGpus], problem: str) -> None:
    errors = set()
    for rank in range(len(seen)):
        with pytest.raises(InputError, match=problem) as caught:
            assign(seen, rank)
        errors.add(str(caught.value))
    assert len(errors) == 1


def test_unknown_names_are_refused() -> None:
    for name in ("tpu", "", None, 3):
        with pytest.raises(InputError, match="device"):
            check_device(name)  # type: ignore[arg-type]


def test_gpus_have_the_profile_of_their_model() -> None:
    assert profile_of("NVIDIA H100 80GB HBM3") == "h100-nvlink"
    assert profile_of("NVIDIA H200") == "h200-nvlink"
    assert profile_of("NVIDIA A100-SXM4-80GB") == PROFILES[0][1]
    for _, profile in PROFILES:
        assert load_profile(profile).name == profile


def test_auto_takes_the_cpu_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "look", lambda: NO_GPU)
    for wanted, line in (("auto", "device: cpu (here is no GPU)"), ("cpu", "device: cpu")):
        chosen = run_ranks(2, lambda world, wanted=wanted: open_device(wanted, world, 1, 1))
        assert [(entry.device.name, entry.line) for entry in chosen] == [("cpu", line)] * 2


def test_gpu_is_refused_where_one_rank_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([NO_GPU, gpus("one", "a"), gpus("one", "b")])
    monkeypatch.setattr(select, "look", lambda: next(answers))
    with pytest.raises(InputError, match="here is no GPU; go elsewhere"):
        run_ranks(3, lambda world: open_device("gpu", world, 1, 1))


def test_cupy_missing_is_said_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"CuPy is not installed; .*pip install 'tnplan\[gpu\]'"):
        run_ranks(1, lambda world: open_device("gpu", world, 1, 1))


def test_the_error_of_a_step_is_that_of_its_precision(tmp_path: Path) -> None:
    for dtype, low, high in (("complex64", 1e-8, 1e-5), ("complex128", 1e-17, 1e-13)):
        schedule = make_case(tmp_path, 1, dtype=dtype).schedule
        assert low < step_error(schedule, on_gpu=False) <= step_error(schedule, on_gpu=True) < high


def test_cupy_that_cannot_be_imported_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "tnplan.executor.device.cuda.gpus", None)
    with pytest.raises(InputError, match=r"device gpu: CuPy cannot be imported \(.*\); repair its"):
        run_ranks(1, lambda world: open_device("gpu", world, 1, 1))
    (chosen,) = run_ranks(1, lambda world: open_device("auto", world, 1, 1))
    assert chosen.line.startswith("device: cpu (CuPy cannot be imported")


def test_the_ranks_of_a_host_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts: dict[str, str] = {}
    monkeypatch.setattr(numpy_device, "host_memory", lambda: (8 << 30, 3 << 30))
    for module in (host, host_memory):
        monkeypatch.setattr(module, "gethostname", lambda: hosts[threading.current_thread().name])
    monkeypatch.setattr(select, "look", lambda: NO_GPU)

    def choose(wanted: str, needed_bytes: int, *names: str) -> list[select.Chosen]:
        hosts.update({f"rank {rank}": name for rank, name in enumerate(names)})
        return run_ranks(len(names), lambda world: open_device(wanted, world, needed_bytes, 1))

    assert len(choose("cpu", 1 << 30, "one", "one", "one", "two")) == 4
    for wanted in ("cpu", "auto"):
        with pytest.raises(AgreedError, match=r"for 4 ranks, 1\.00 GiB each, two has 3\.00 GiB free; plan"):
            choose(wanted, 1 << 30, "one", "two", "two", "two", "two")
    with pytest.raises(AgreedError, match=r"4\.00 GiB are needed for a rank, two has 3\.00 GiB free"):
        choose("cpu", 4 << 30, "two")


def test_a_cpu_may_need_less_than_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_device, "host_memory", lambda: (8 << 30, 3 << 30))
    run_ranks(2, lambda world: open_device("cpu", world, 4 << 30, 1, 1 << 30))


@pytest.mark.parametrize(
    ("wanted", "ranks", "begun"), [("gpu", 1, [0]), ("auto", 1, [None]), ("cpu", 1, []), ("gpu", 2, [])]
)
def test_cuda_begins_early_where_the_gpu_is_known(
    wanted: str, ranks: int, begun: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No context for what may be another GPU, or none."""
    called: list[int | None] = []
    monkeypatch.setattr(expected_gpu, "find_spec", lambda name: object())
    monkeypatch.setattr(expected_gpu, "launched_size", lambda: ranks)
    monkeypatch.setattr(expected_gpu, "begin_cuda", called.append)
    expected_gpu.expect_gpu(wanted)
    assert called == begun


def test_a_host_without_a_driver_begins_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_gpu, "LIBRARY", "libno-such-driver.so")
    before = set(threading.enumerate())
    expected_gpu.begin_cuda.__wrapped__(0)
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()
