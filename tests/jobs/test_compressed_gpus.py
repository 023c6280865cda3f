"""`simulate(fidelity=)` over ranks with a GPU each, connected by NCCL: on GPUs, or what stands for them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.circuits import state_vector
from tests.support.engines.compressed_states import infidelity
from tests.support.engines.unseen_circuits import KINDS, unseen_circuit
from tests.support.kernels.emulator import has_compiler
from tests.support.kernels.gpus import count_gpus
from tests.support.slow import slow_unless
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.statevector.distributed_state import DistributedPackedState
from tnplan.executor.statevector.packed_error import codes_bytes, departure
from tnplan.executor.statevector.prepared_program import prepare_program
from tnplan.executor.statevector.simulator import Simulator
from tnplan.jobs import compressed_state
from tnplan.jobs.compressed_state import planned_passes

NUMBER = 4
N = 12
STRINGS = [f"{value:0{N}b}" for value in range(1 << N)]
ASKED: dict[str, Any] = {"device": "gpu", "amplitudes": STRINGS, "seed": 5}

pytestmark = pytest.mark.skipif(
    find_spec("cupy") is None or (count_gpus() == 0 and not has_compiler()),
    reason="needs CuPy, and GPUs or g++",
)


@pytest.fixture(autouse=True)
def sent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each message, which are known where the GPUs are emulated."""
    if count_gpus():
        params = getattr(request.node, "callspec", None)
        needed = NUMBER if params is None else params.params.get("n_ranks", NUMBER)
        if count_gpus() < needed:
            pytest.skip(f"needs {needed} GPUs, or g++ and none")
        return []
    from tests.support.kernels.emulated_nccl import put_gpus_in_place

    return put_gpus_in_place(monkeypatch)


@pytest.mark.parametrize(
    ("asked", "n_ranks"),
    slow_unless(
        lambda asked, ranks: ranks == 2 * asked, [(0.99, 8, "fp32"), (0.999999, 16, "fp64")], [1, 2, 4]
    ),
)
def test_the_state_is_within_its_bound(asked: tuple[float, int, str], n_ranks: int, sent: list[int]) -> None:
    """Beside the exact state, and beside that of ranks of CPUs."""
    fidelity, bits, precision = asked
    dtype = {"fp32": "complex64", "fp64": "complex128"}[precision]
    for seed in range(71_000 + bits + n_ranks, 71_002 + bits + n_ranks):
        circuit = unseen_circuit(KINDS[seed % len(KINDS)], N, seed)
        exact = state_vector(circuit).reshape(-1)
        how = ASKED | {"fidelity": fidelity, "precision": precision, "ranks": n_ranks}
        how |= {"observable": "Z0 X3 - Y11"}
        sent.clear()
        done = tnplan.simulate(circuit, **how, shots=100)
        report: Any = done.report
        assert (report["device"], report["ranks"], report["bits"]) == ("gpu", n_ranks, bits)
        assert infidelity(done.answer.amplitudes, exact) <= 1 - report["fidelity_bound"] + 1e-15
        lost = 1 - report["fidelity_estimate"]
        assert 0.5 <= infidelity(done.answer.amplitudes, exact) / lost <= 2
        assert report["passes"] == planned_passes(circuit.gates, N, dtype, True, n_ranks=n_ranks)
        assert (report["exchanges"] > 0) == (n_ranks > 1)
        assert sum(done.answer.counts.values()) == 100
        # Blocks for exchanges and for two words at most: nothing is sent decoded.
        assert (sum(sent) > 0) == (n_ranks > 1 and count_gpus() == 0)
        assert sum(sent) <= (report["exchanges"] + 2) * codes_bytes(N, bits)
        host = tnplan.simulate(circuit, **how | {"device": "cpu"})
        # The trace distance from the exact state is sqrt(1 - F) at most.
        most = sum(np.sqrt(1 - each["fidelity_bound"]) for each in (report, host.report))
        assert done.answer.expectation == pytest.approx(host.answer.expectation, abs=4 * most)


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_the_way_of_messages_changes_no_bit(n_ranks: int) -> None:
    """NCCL between GPUs, and messages of the host's between parts on one GPU."""
    from tnplan.executor.statevector.cuda.packed_state import CodedState

    circuit = unseen_circuit("trotter", N, 71_100)  # exchanges the lowest bit outside of blocks
    done = tnplan.simulate(circuit, **ASKED, fidelity=0.99, precision="fp32", ranks=n_ranks)
    away = departure(item.matrix for item in circuit.gates)

    def work(ranks: Communicator) -> np.ndarray:
        n_bits = N - n_ranks.bit_length() + 1
        local = CodedState(n_bits, "complex64", 8, ASKED["seed"], away, rank=ranks.rank)
        simulator = Simulator(DistributedPackedState(local, ranks), N)
        simulator.run(prepare_program(circuit.gates), np.zeros(0, np.uint8))
        return simulator.amplitudes(STRINGS)

    for amplitudes in run_ranks(n_ranks, work):
        assert np.array_equal(amplitudes, done.answer.amplitudes)


def test_a_run_is_done_again_with_more_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tnplan.executor.statevector.packed_error.PEAK", 1e-6)
    circuit = unseen_circuit("random", N, 71_200)
    report = tnplan.simulate(circuit, **ASKED, fidelity=0.99999, precision="fp32", ranks=2).report
    assert (report["bits"], report["fidelity_estimate"] >= 0.99999) == (16, True)


def test_auto_takes_gpus_where_each_rank_has_one() -> None:
    circuit = unseen_circuit("qaoa", 14, 71_300)
    for ranks, device in ((NUMBER, "gpu"), (2 * count_gpus() or 2 * NUMBER, "cpu")):
        report = tnplan.simulate(circuit, fidelity=0.99, ranks=ranks, precision="fp32", seed=1).report
        assert (report["device"], report["ranks"]) == (device, ranks)


def test_too_many_ranks_are_refused() -> None:
    with pytest.raises(tnplan.InputError, match="each needs 10 qubits or more"):
        tnplan.simulate(unseen_circuit("qaoa", N, 71_400), **ASKED, fidelity=0.99, ranks=8)


@pytest.mark.parametrize(("fidelity", "precision", "n_ranks"), [(0.99, "fp32", 1), (0.999999, "fp64", 4)])
def test_an_interrupted_run_has_the_result_of_a_whole_one(
    fidelity: float, precision: str, n_ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """With a checkpoint after every step, in pieces; the last rank fails, while the others wait for it."""
    from tnplan.executor.statevector.cuda.packed_state import CodedState

    monkeypatch.setattr(compressed_state.StateCheckpoint, "LEAST_S", 0.0)
    monkeypatch.setattr(compressed_state.StateCheckpoint, "INTERVAL", 0)
    monkeypatch.setattr(compressed_state, "PIECE_BYTES", 1000)
    done, last, do = [0], [-1], CodedState.do

    def counted(state: CodedState, prepared: Any) -> Any:
        if state.rank == n_ranks - 1:
            if done[0] == last[0]:
                raise RuntimeError("interrupted")
            done[0] += 1
        return do(state, prepared)

    monkeypatch.setattr(CodedState, "do", counted)
    circuit = unseen_circuit("random", N, 71_500 + n_ranks)
    how = ASKED | {"fidelity": fidelity, "precision": precision, "ranks": n_ranks, "mode": "stages"}
    whole = tnplan.simulate(circuit, **how)
    total, how["output"] = done[0], tmp_path / "result.json"
    last[0] = done[0] + 2
    with pytest.raises(RuntimeError, match="interrupted"):
        tnplan.simulate(circuit, **how, checkpoint=True)
    last[0], before = -1, done[0]
    with pytest.raises(tnplan.InputError, match=r"is of a GPU with tiles of 2\^\d+ amplitudes, and this"):
        tnplan.simulate(circuit, **how | {"device": "cpu"}, resume=True)
    again = tnplan.simulate(circuit, **how, resume=True)
    assert 2 < total == done[0] - before + 2
    assert np.array_equal(again.answer.amplitudes, whole.answer.amplitudes)
    for name in ("fidelity_bound", "fidelity_estimate", "passes", "exchanges", "norm"):
        assert again.report[name] == whole.report[name]
