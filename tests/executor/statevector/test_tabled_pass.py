"""Passes of small states on a GPU: read from tables until a kernel of their own pays; the same results."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.circuits import random_circuit, state_vector
from tests.support.kernels.gpus import needs_gpus
from tnplan.executor.statevector.prepared_program import Segment, prepare_program
from tnplan.executor.statevector.simulator import Simulator

N_BITS = 18


@needs_gpus(1)
def test_a_pass_that_is_done_often_gets_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tnplan.executor.device.cuda.runtime import kernel_cache
    from tnplan.executor.statevector.cuda import state
    from tnplan.executor.statevector.cuda.tabled_pass import ProgramLaunch, TabledPass

    monkeypatch.setenv(kernel_cache.CACHE_FOLDER, str(tmp_path))
    circuit = random_circuit(N_BITS, 60, 7)
    expected = state_vector(circuit).reshape(-1)
    (segment,) = prepare_program(circuit.gates)
    assert isinstance(segment, Segment)

    def prepared_now() -> Simulator:
        return Simulator(state.CupyState(N_BITS, "complex128"), N_BITS)

    def check(simulator: Simulator) -> None:
        simulator.restart()
        simulator.apply(segment)
        np.testing.assert_allclose(simulator.array(), expected, rtol=0, atol=1e-12)

    first = prepared_now()
    _, passes = first.prepare(segment)
    assert all(isinstance(item, TabledPass) for item in passes)
    check(first)
    n_files = len(list(tmp_path.iterdir()))
    monkeypatch.setattr(state, "PROGRAM_S", 0.0)
    monkeypatch.setattr(state, "COMPILING_S", 0.0)
    _, passes = prepared_now().prepare(segment)
    assert any(isinstance(item, ProgramLaunch) for item in passes)
    assert len(list(tmp_path.iterdir())) > n_files

    monkeypatch.setattr(state, "COMPILING_S", 1e9)
    kept = prepared_now()
    assert any(isinstance(item, ProgramLaunch) for item in kept.prepare(segment)[1])  # those in the cache
    check(kept)
    monkeypatch.setattr(state, "is_kept", lambda *_: False)
    monkeypatch.setattr(state, "RUNS", 0)
    monkeypatch.setattr(state, "COMPILING_S", 1e-4)
    for program_s in (0.0, 1e9):  # programs are made with the tables, and with the kernel
        monkeypatch.setattr(state, "PROGRAM_S", program_s)
        late = prepared_now()
        _, passes = late.prepare(segment)
        assert all(isinstance(item, TabledPass) for item in passes)
        for _ in range(40):  # the kernel takes the place of the tables on the way
            check(late)
        assert any(item.program is not None for item in passes)


@needs_gpus(1)
def test_ranks_have_kernels_for_all_passes() -> None:
    from tnplan.executor.statevector.cuda import state

    (segment,) = prepare_program(random_circuit(N_BITS, 60, 7).gates)
    assert isinstance(segment, Segment)
    among = state.open_state(0, N_BITS, "complex64", n_ranks=2)
    _, passes = Simulator(among, N_BITS).prepare(segment)
    assert any(among.is_divisible(item) for item in passes)


@needs_gpus(1)
def test_passes_go_from_quick_to_better_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tnplan.executor.device.cuda.runtime import kernel_cache
    from tnplan.executor.statevector.cuda import state, tabled_pass

    monkeypatch.setenv(kernel_cache.CACHE_FOLDER, str(tmp_path))
    monkeypatch.setattr(tabled_pass, "MOST_LOST_S", 0.0)
    kernels: dict[Any, Any] = {}

    def own(*key: Any) -> Any:  # not those of other tests
        return kernels.setdefault(key, tabled_pass.PassKernel(*key))

    monkeypatch.setattr(state, "pass_kernel", own)
    circuit = random_circuit(12, 60, 7)
    expected = state_vector(circuit).reshape(-1)
    (segment,) = prepare_program(circuit.gates)
    assert isinstance(segment, Segment)
    were_quick = []
    for _ in range(2):
        simulator = Simulator(state.CupyState(12, "complex128"), 12)
        simulator.apply(segment)
        np.testing.assert_allclose(simulator.array(), expected, rtol=0, atol=1e-12)
        (kernel,) = kernels.values()
        were_quick.append(kernel_cache.QUICK in kernel.code(True)[1])
        file, defines = kernel.code(False)
        kernel_cache.compile_ahead([(file, defines)])  # waits for what was begun
    assert were_quick == [kernel_cache.has_quick(), False]


Launches = list[bool]
"""Whether each launch was one of quick code."""


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Launches:
    """Kernels that note their launches, of which four blocks fit on the GPU; no cache."""
    pytest.importorskip("cupy")
    from tnplan.executor.device.cuda.runtime.kernel_cache import QUICK
    from tnplan.executor.statevector.cuda import tabled_pass

    found: Launches = []

    class Kernel:
        """A kernel of these definitions."""

        def __init__(self, defines: dict[str, Any]) -> None:
            self.defines, self.kernel = defines, SimpleNamespace(ptr=1)

        def __call__(self, grid: Any, block: Any, arguments: Any, shared_mem: int) -> None:
            assert grid == (4,)
            found.append(QUICK in self.defines)

    monkeypatch.setattr(tabled_pass, "load_kernel", lambda file, entry, defines: Kernel(defines))
    device = SimpleNamespace(attributes={"MultiProcessorCount": 2})
    monkeypatch.setattr(tabled_pass.cupy.cuda, "Device", lambda: device)
    monkeypatch.setattr(tabled_pass.driver, "occupancyMaxActiveBlocksPerMultiprocessor", lambda *_: 2)
    for name, value in (("has_quick", True), ("is_kept", False), ("may_compile", True)):
        monkeypatch.setattr(tabled_pass, name, lambda *_, value=value: value)
    # A launch of five tiles loses a second, since it copies them once a second.
    monkeypatch.setattr(tabled_pass, "COPIED_BYTES_PER_S", 2 * 5 * (16 << 12))
    monkeypatch.setattr(tabled_pass, "QUICK_COPIES", 1.0)
    monkeypatch.setattr(tabled_pass, "MOST_LOST_S", 2.5)
    return found


def test_better_code_is_begun_once_quick_code_has_lost_enough(
    launched: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tnplan.executor.statevector.cuda import tabled_pass

    begun: list[Any] = []
    monkeypatch.setattr(tabled_pass, "compile_soon", begun.extend)
    kernel = tabled_pass.PassKernel("complex128", 12, 1)
    launch = kernel.launcher(5, True)
    for number in range(5):
        launch(())
        assert len(begun) == (number >= 2)  # and not again
    assert begun == [kernel.code(False)]
    monkeypatch.setattr(tabled_pass, "is_kept", lambda *_: True)
    assert kernel.code(True) == kernel.code(False)
    kernel.launcher(5, True)(())
    launch(())  # a pass that was prepared goes on with its code
    assert launched == [True] * 5 + [False, True]


@pytest.mark.parametrize(
    ("name", "value"), [("has_quick", False), ("is_kept", True), ("may_be_quick", False)]
)
def test_code_is_not_quick_where_it_need_not_be(
    name: str, value: bool, launched: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tnplan.executor.statevector.cuda import tabled_pass

    if name != "may_be_quick":
        monkeypatch.setattr(tabled_pass, name, lambda *_: value)
    monkeypatch.delattr(tabled_pass, "compile_soon")
    kernel = tabled_pass.PassKernel("complex128", 12, 1)
    launch = kernel.launcher(5, name != "may_be_quick")
    for _ in range(9):
        launch(())
    assert launched == [False] * 9


def test_nothing_is_begun_where_kernels_are_not_compiled(
    launched: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tnplan.executor.statevector.cuda import tabled_pass

    monkeypatch.setattr(tabled_pass, "may_compile", lambda: False)
    monkeypatch.delattr(tabled_pass, "compile_soon")
    launch = tabled_pass.PassKernel("complex128", 12, 1).launcher(5, True)
    for _ in range(9):
        launch(())
    assert launched == [True] * 9
