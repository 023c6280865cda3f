"""Passes of small states on a GPU: read from tables until a kernel of their own pays; the same results."""

from __future__ import annotations

from concurrent.futures import Future
from importlib.util import find_spec
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
    from tnplan.executor.statevector.cuda.program_launch import ProgramLaunch
    from tnplan.executor.statevector.cuda.tabled_pass import TabledPass

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


@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy")
@pytest.mark.parametrize("is_kept", [False, True])
def test_quick_code_is_replaced_once_it_has_cost_as_much(
    is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    from tnplan.executor.device.cuda.runtime.kernel_cache import QUICK
    from tnplan.executor.statevector.cuda import tabled_pass

    begun: list[Any] = []
    launched: list[bool] = []
    better: Future[Path] = Future()

    def load(file: Path, entry: str, defines: dict[str, Any]) -> Any:
        kernel = SimpleNamespace(ptr=1)

        class Kernel:
            def __call__(self, grid: Any, block: Any, arguments: Any, shared_mem: int) -> None:
                launched.append(QUICK in defines)
                assert grid == (4,)

        made = Kernel()
        made.__dict__["kernel"] = kernel
        return made

    device = SimpleNamespace(attributes={"MultiProcessorCount": 2})
    monkeypatch.setattr(tabled_pass, "load_kernel", load)
    monkeypatch.setattr(tabled_pass, "is_kept", lambda *_: is_kept)
    monkeypatch.setattr(tabled_pass, "compile_soon", lambda files: begun.extend(files) or [better])
    monkeypatch.setattr(tabled_pass.cupy.cuda, "Device", lambda: device)
    monkeypatch.setattr(tabled_pass.driver, "occupancyMaxActiveBlocksPerMultiprocessor", lambda *_: 2)
    monkeypatch.setattr(
        tabled_pass, "COPIED_BYTES_PER_S", 2 * 4 * (16 << 12)
    )  # a copy of four tiles a second
    monkeypatch.setattr(tabled_pass, "QUICK_COPIES", 1.0)
    monkeypatch.setattr(tabled_pass, "MOST_LOST_S", 2.5)
    kernel = tabled_pass.PassKernel("complex128", 12, 1)
    assert (QUICK in kernel.source[1]) == (not is_kept)
    for _ in range(2):
        kernel.launch(4, ())
    assert not begun
    for _ in range(3):  # longer than compiling takes, which goes on
        kernel.launch(4, ())
    assert len(begun) == (0 if is_kept else 1)
    better.set_result(Path())
    kernel.launch(4, ())
    assert launched == [not is_kept] * 5 + [False]
    assert QUICK not in kernel.source[1]
    if begun:
        assert begun == [kernel.source]
