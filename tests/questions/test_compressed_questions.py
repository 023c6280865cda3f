"""Questions whose state does not fit as it is: answers from compressed states, bounds and predictions."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.circuits import random_circuit, state_vector
from tests.support.engines.compressed_states import infidelity
from tests.support.engines.unseen_circuits import KINDS, unseen_circuit
from tests.support.kernels.emulator import has_compiler
from tests.support.kernels.gpus import count_gpus
from tests.support.mpirun import mpirun, needs_mpi
from tests.support.slow import slow_after
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.pauli_sum import parse
from tnplan.circuits.program import circuit_program
from tnplan.circuits.qsim import save_qsim
from tnplan.cli.main import run
from tnplan.executor.statevector.cpu import packed_state
from tnplan.executor.statevector.cpu.packed_state import PackedState
from tnplan.jobs.compressed_state import compressed_needs
from tnplan.jobs.job_options import JobOptions
from tnplan.jobs.statevector import state_needs
from tnplan.planner.hardware.profile import Profile, load_profile
from tnplan.questions import chooser
from tnplan.questions.engines.compressed import as_rounded
from tnplan.questions.engines.task_list import EXACT, Outcome, TaskCheckpoint
from tnplan.questions.estimates import quick
from tnplan.questions.estimates.cost import Cost
from tnplan.questions.estimates.estimate import MethodEstimate
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import Amplitudes, CircuitQuery, ExpectationValues, Probabilities

PEAK = "tnplan.executor.statevector.packed_error.PEAK"


def with_bits(
    n_qubits: int, bits: int, precision: str = "fp64", n_ranks: int = 1, device: str = "cpu"
) -> dict[str, Any]:  # fmt: skip
    """Options with nearly the memory of a larger state than that of so many bits a part, on one thread a
    rank."""
    dtype = {"fp64": "complex128", "fp32": "complex64"}[precision]
    plain, wide, narrow = needed(n_qubits, dtype, n_ranks, device)
    memory = {8: wide, 16: plain}[bits] - 1
    assert {8: narrow, 16: wide}[bits] <= memory
    return {
        "method": "statevector", "device": device, "threads": 1, "precision": precision, "memory": memory,
        "seed": 1, "ranks": n_ranks,
    }  # fmt: skip


def needed(
    n_qubits: int, dtype: str = "complex128", n_ranks: int = 1, device: str = "cpu"
) -> tuple[int, int, int]:  # fmt: skip
    """The bytes of a rank of a plain state, and of states of 16 and 8 bits, on one thread."""
    both = [compressed_needs(n_qubits, bits, dtype, 1, n_ranks) for bits in (16, 8)]
    wide, narrow = (needs.gpu_bytes if device == "gpu" else needs.cpu_bytes for needs in both)
    return state_needs(n_qubits, dtype, n_ranks, 1).cpu_bytes, wide, narrow


def estimated(circuit: tnplan.Circuit, memory: int, **asked: Any) -> MethodEstimate:
    """The estimate of the value of Z0 on cores with so much memory each, one if not said."""
    profile = replace(load_profile("cpu"), memory_bytes=memory, reserved_bytes=0)
    asked |= {"method": "statevector", "threads": 1, "hardware": profile}
    (row,) = circuit.estimate(expectation="Z0", **asked).rows
    return row


def random_words(n: int, random: np.random.Generator) -> list[str]:
    return [
        " ".join(f"{random.choice(list('XYZ'))}{q}" for q in random.choice(n, 3, replace=False))
        for _ in range(4)
    ]


def value_of(word: str, exact: np.ndarray, n: int) -> float:
    """<psi|P|psi> from matrices, qubit by qubit."""
    turned = exact.reshape((2,) * n)
    matrices = {"X": [[0, 1], [1, 0]], "Y": [[0, -1j], [1j, 0]], "Z": [[1, 0], [0, -1]]}
    for letter in word.split():
        q = int(letter[1:])
        turned = np.moveaxis(np.tensordot(np.array(matrices[letter[0]]), turned, (1, q)), 0, q)
    return float(np.vdot(exact, turned.reshape(-1)).real)


def check_answers(seeds: range, qubits: range, n_ranks: int = 1, device: str = "cpu") -> list[float]:
    """Every bound covers the difference from the exact state; estimates are within 2 in 90 % of all runs.

    Returns the errors of all amplitudes in times of their bounds.
    """
    near, tight = [], []
    for seed in seeds:
        random = np.random.default_rng(seed)
        kind, n = KINDS[seed % len(KINDS)], int(random.choice(qubits))
        source = unseen_circuit(kind, n, seed)
        circuit, exact = tnplan.Circuit(source), state_vector(source).reshape(-1)
        for bits in (8, 16):
            precision = str(random.choice(["fp32", "fp64"]))
            options = with_bits(n, bits, precision, n_ranks, device) | {"seed": seed}
            strings = np.arange(1 << n)[:, None] >> np.arange(n)[::-1] & 1
            whole = circuit.amplitudes(strings, **options)
            told, state = whole.details, whole.value
            assert (told["bits"], whole.error_kind) == (bits, "rounding")
            assert (told["device"], told["ranks"]) == (device, n_ranks)
            # The bound of single amplitudes is one of their norm too.
            assert np.linalg.norm(state - exact) <= whole.error + 1e-12, (kind, n, seed, bits)
            lost = infidelity(state / np.linalg.norm(state), exact)
            assert lost <= 1 - told["fidelity_bound"] + 1e-15, (kind, n, seed, bits)
            near.append(0.5 <= lost / (1 - told["fidelity_estimate"]) <= 2)
            tight.append(np.linalg.norm(state - exact) / whole.error)
            table = circuit.probabilities([0, 1], **options)
            chances = (np.abs(exact) ** 2).reshape(4, -1).sum(axis=1)
            assert np.abs(table.value.reshape(-1) - chances).sum() / 2 <= table.error + 1e-12
            words = random_words(n, random)
            values = circuit.expectation([f"-2*{word}" for word in words], **options)
            off = np.abs(values.value + 2 * np.array([value_of(word, exact, n) for word in words]))
            assert (off <= values.error + 1e-12).all()
            assert values.error == pytest.approx(4 * np.sqrt(1 - values.details["fidelity_bound"]))
            two = circuit.amplitudes("." * 2 + "0" * (n - 2), open_qubits=[0, 1], **options)
            assert np.linalg.norm(two.value.reshape(-1) - exact.reshape(4, -1)[:, 0]) <= two.error + 1e-12
    assert np.mean(near) >= 0.9
    return tight


def small_tiles(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    """Tiles of so many bits: more passes."""
    tiles = {dtype: replace(tile, bits=bits) for dtype, tile in packed_state.TILES.items()}
    monkeypatch.setattr(packed_state, "TILES", tiles)


def test_bounds_cover_the_differences() -> None:
    ratios = check_answers(range(41_000, 41_005), range(10, 12))
    assert max(ratios) > 0.5  # a bound that is far too large would hide errors


def test_bounds_cover_the_differences_after_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    small_tiles(monkeypatch, 9)
    check_answers(range(41_100, 41_104), range(11, 12))


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_bounds_cover_the_differences_over_ranks(n_ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    small_tiles(monkeypatch, 9)
    check_answers(range(41_200 + n_ranks, 41_202 + n_ranks), range(12, 13), n_ranks)


@pytest.mark.skipif(find_spec("cupy") is None or not has_compiler(), reason="needs CuPy and g++")
@pytest.mark.skipif(count_gpus() > 0, reason="an emulated GPU stands beside no other")
@pytest.mark.parametrize("n_ranks", slow_after(1, [2, 1, 4]))
def test_bounds_cover_the_differences_over_ranks_of_gpus(
    n_ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.kernels.emulated_nccl import put_gpus_in_place

    put_gpus_in_place(monkeypatch)
    check_answers(range(41_300 + n_ranks, 41_301 + n_ranks), range(12, 13), n_ranks, "gpu")


@pytest.mark.slow
def test_bounds_cover_the_differences_of_more_circuits(monkeypatch: pytest.MonkeyPatch) -> None:
    check_answers(range(42_000, 42_008), range(10, 14))
    small_tiles(monkeypatch, 10)
    check_answers(range(42_100, 42_110), range(12, 14))


@pytest.mark.slow
@pytest.mark.parametrize("n_ranks", [2, 4])
def test_bounds_cover_the_differences_of_more_circuits_over_ranks(
    n_ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_tiles(monkeypatch, 10)
    check_answers(range(42_200, 42_210), range(12, 15), n_ranks)


@pytest.mark.parametrize("n_ranks", [1, 4])
def test_samples_follow_a_distribution_within_the_bound(n_ranks: int) -> None:
    n, shots = 18, 1500 // n_ranks  # samples take memory of each rank
    source = unseen_circuit("random", n, 43_000)
    answer = tnplan.Circuit(source).sample(shots, **with_bits(n, 8, n_ranks=n_ranks))
    assert (answer.error_kind, answer.details["bits"]) == ("rounding", 8)
    assert answer.error == pytest.approx(np.sqrt(1 - answer.details["fidelity_bound"]))
    assert "linear_xeb" not in answer.details  # the exact probabilities are not known
    assert sum(answer.value.values()) == shots
    texts = "".join(text * count for text, count in answer.value.items())
    ones = np.frombuffer(texts.encode(), np.uint8).reshape(shots, n) - ord("0")
    exact = (np.abs(state_vector(source).reshape(-1)) ** 2).reshape((2,) * n)
    for qubit in range(n):
        chance = np.take(exact, 1, axis=qubit).sum()
        assert abs(ones[:, qubit].mean() - chance) < answer.error + 5 * 0.5 / np.sqrt(shots)


@pytest.mark.parametrize("n_ranks", [1, 2, 4])
def test_a_plain_state_is_taken_where_it_fits_and_then_as_many_bits_as_do(n_ranks: int) -> None:
    n = 12
    circuit = tnplan.Circuit(random_circuit(n, 80, 44_000))
    plain, wide, narrow = needed(n, n_ranks=n_ranks)
    options = with_bits(n, 8, n_ranks=n_ranks)
    for memory, bits in ((plain, None), (plain - 1, 16), (wide, 16), (wide - 1, 8), (narrow, 8)):
        asked = options | {"memory": memory}
        answer = circuit.expectation("Z0 X3", **asked)
        row = estimated(circuit, memory, devices=n_ranks)
        assert answer.details.get("bits") == bits
        assert row.cost is not None
        if bits is None:
            assert (answer.error_kind, row.cost.fidelity, row.error_kind) == ("exact", None, "exact")
            continue
        assert answer.error_kind == row.error_kind == "rounding"
        assert row.cost.memory_bytes == (wide if bits == 16 else narrow)
        assert row.devices == row.cost.devices == n_ranks
        assert row.cost.fidelity is not None
        lost = 1 - answer.details["fidelity_estimate"]
        assert 0.5 < (1 - row.cost.fidelity) / lost < 2
        assert f"compressed to {bits} bits a part, fidelity about 0.99" in str(row.cells)
        assert f"amplitudes of {bits} bits a part: fidelity 0.99" in repr(answer)
        assert "(estimate), at least 0.9" in answer._repr_html_()
        assert "exact" not in repr(answer)
    for more in ({"memory": narrow - 1}, {"memory": wide, "state_fidelity": 1}):
        with pytest.raises(tnplan.InputError, match="memory: allows a rank"):
            circuit.expectation("Z0 X3", **options | more)


def test_the_largest_state_of_ranks_is_named() -> None:
    memory = needed(18)[2]
    for n_ranks, most in ((1, 18), (2, 19), (8, 21)):
        for n in (most, most + 1):
            row = estimated(tnplan.Circuit(random_circuit(n, 40, 1)), memory, devices=n_ranks)
            assert (row.cost is None) == (n > most)
            assert row.reason.endswith(f"compressed, {most} qubits fit") == (n > most)
            assert row.needs_devices == (n_ranks if n == most else row.needs_devices)


def test_estimates_of_several_gpus() -> None:
    """A part of 20 qubits fits on a GPU: so do 21 on two, and 22 on four."""
    memory = needed(20, device="gpu")[2]
    profile = replace(load_profile("h200-nvlink"), memory_bytes=memory, reserved_bytes=0)
    circuit = tnplan.Circuit(random_circuit(22, 40, 1))
    asked: dict[str, Any] = {"expectation": "Z0", "method": "statevector", "threads": 1}
    two, four = circuit.estimate(**asked, devices=[2, 4], hardware=profile).rows
    assert two.cost is None
    assert two.reason.endswith("compressed, 21 qubits fit")
    assert four.cost is not None
    assert four.cost.fidelity is not None
    assert (four.needs_devices, four.cost.memory_bytes, four.error_kind) == (4, memory, "rounding")
    assert 0.99 < four.cost.fidelity < 1


def test_ranks_that_cannot_share_a_compressed_state_have_none() -> None:
    """Numbers that are no powers of two, and parts of fewer than ten qubits."""
    small = tnplan.Circuit(random_circuit(12, 40, 1))
    for n_ranks in (3, 8):
        options = with_bits(12, 8) | {"ranks": n_ranks, "memory": 1000}
        with pytest.raises(tnplan.InputError, match=r"power of two|allows a rank"):
            small.expectation("Z0", **options)
        assert estimated(small, 1000, devices=n_ranks).cost is None


@needs_mpi
def test_mpirun_answers_as_threads_do(tmp_path: Path) -> None:
    save_qsim(unseen_circuit("vqe", 12, 50_000), tmp_path / "vqe.qsim")
    options = with_bits(12, 8, n_ranks=2)
    line = ["expectation", tmp_path / "vqe.qsim", "--observable", "Z0 X3", "--observable", "Y11", "--json"]
    line += ["--method", "statevector", "--device", "cpu", "--threads", 1, "--seed", 1]
    done = mpirun(2, "-m", "tnplan", *line, "--memory", options["memory"])
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    answer = tnplan.Circuit(tmp_path / "vqe.qsim").expectation(["Z0 X3", "Y11"], **options)
    assert (report["bits"], report["ranks"], report["error_kind"]) == (8, 2, "rounding")
    assert report["value"] == [*answer.value]
    assert report["error"] == [*answer.error]


def test_memory_is_that_of_the_estimate() -> None:
    """What the answer allocates stays below the prediction, but for tables of the plan."""
    n = 20
    source = unseen_circuit("vqe", n, 45_000)
    for bits in (8, 16):
        options = with_bits(n, bits, "fp32")
        tnplan.Circuit(unseen_circuit("vqe", 10, 1)).probabilities([0], **with_bits(10, bits, "fp32"))
        tracemalloc.start()
        answer = tnplan.Circuit(source).probabilities([0, 5], **options)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert answer.details["bits"] == bits
        assert peak <= compressed_needs(n, bits, "complex64", 1).cpu_bytes + (1 << 20)


def test_values_by_layer_have_growing_errors() -> None:
    n = 10
    source = unseen_circuit("trotter", n, 46_000)
    stops = [0, len(source.gates) // 2, len(source.gates)]
    answer = tnplan.Circuit(source).expectation(["Z0", "X1 X2"], after=stops, **with_bits(n, 8))
    assert answer.error_kind == "rounding"
    assert (np.diff(answer.error, axis=0) > 0).all()
    for row, stop in enumerate(stops):
        exact = state_vector(GateSequence(n, source.gates[:stop])).reshape(-1)
        for column, word in enumerate(("Z0", "X1 X2")):
            assert (
                abs(answer.value[row, column] - value_of(word, exact, n)) <= answer.error[row, column] + 1e-9
            )


def test_a_fidelity_that_is_not_reached_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 10
    circuit = tnplan.Circuit(random_circuit(n, 60, 47_000))
    options = with_bits(n, 8)
    assert circuit.expectation("Z0", **options).details["fidelity_estimate"] > 0.99
    with pytest.raises(tnplan.InputError, match=r"state_fidelity: is 0\.9999999, .* is predicted to have"):
        circuit.expectation("Z0", **options, state_fidelity=0.9999999)
    row = estimated(circuit, options["memory"], state_fidelity=0.9999999)
    assert row.cost is None
    assert "compressed to 8 bits a part, fidelity about 0.99" in row.reason
    monkeypatch.setattr(PEAK, 1e-9)
    with pytest.raises(tnplan.InputError, match=r"a state of 8 bits a part has about 0\.99"):
        circuit.expectation("Z0", **options, state_fidelity=0.9999999)


def test_a_checkpoint_is_not_mixed_with_a_compressed_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = with_bits(10, 8) | {"output": tmp_path / "answer.json"}
    circuit = tnplan.Circuit(random_circuit(10, 60, 48_000))
    monkeypatch.setattr(TaskCheckpoint, "write", lambda *_: pytest.fail("values are written"))
    monkeypatch.setattr("tnplan.questions.engines.task_list.MEETING_S", -1.0)
    circuit.expectation(["Z0", "Z1"], **options)
    written = json.loads((tmp_path / "answer.json").read_text())
    assert (written["version"], written["error_kind"], written["bits"]) == (4, "rounding", 8)
    kept = QuestionOptions.of(output=options["output"]).checkpoint_file
    assert kept is not None
    kept.write_text("left by a plain state")
    for resume in (False, True):
        with pytest.raises(tnplan.InputError, match="is the checkpoint of an interrupted job"):
            circuit.expectation(["Z0"], **options, resume=resume)


@pytest.mark.parametrize(
    ("times", "fidelity", "method"),
    [
        ({"statevector": 1.0}, None, "statevector"),  # nothing exact fits
        ({"statevector": 1.0, "contraction": 5.0}, None, "contraction"),
        ({"statevector": 1.0, "contraction": 5.0}, 0.99, "statevector"),
        ({"statevector": 9.0, "contraction": 5.0}, 0.99, "contraction"),
        ({"statevector": 9.0, "contraction": 1e12}, None, "statevector"),  # three years: no answer
        ({"statevector": 1e13, "contraction": 1e12}, None, "contraction"),
    ],
)  # fmt: skip
def test_auto_takes_a_compressed_state_where_nothing_exact_answers_or_it_is_asked_for(
    times: dict[str, float], fidelity: float | None, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cost(name: str, *rest: Any) -> Cost | None:
        if name not in times:
            return None
        return Cost(1, 1.0, times[name], fidelity=0.995 if name == "statevector" else None)

    monkeypatch.setattr(quick, "quick_cost", cost)
    chooser.choices.clear()
    gates = random_circuit(24, 60, 1)
    query = CircuitQuery(circuit_program(gates), gates, ExpectationValues((parse("Z0", 24),), True))
    options = QuestionOptions.of(device="cpu", state_fidelity=fidelity)
    assert chooser.chosen_method(query, options) == method
    chooser.choices.clear()


def test_auto_says_that_an_answer_is_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other methods are taken not to fit; the state of 16 qubits is predicted and run as it is."""
    original = quick.quick_cost
    monkeypatch.setattr(
        quick, "quick_cost", lambda name, *rest: original(name, *rest) if name == "statevector" else None
    )
    chooser.choices.clear()
    source = random_circuit(16, 200, 49_000)
    circuit, options = tnplan.Circuit(source), with_bits(16, 8) | {"method": "auto"}
    answer = circuit.expectation("Z3", **options)
    assert (answer.method, answer.error_kind, answer.details["bits"]) == ("statevector", "rounding", 8)
    exact = state_vector(source).reshape(-1)
    assert abs(answer.value - value_of("Z3", exact, 16)) <= answer.error
    chooser.choices.clear()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_qsim(unseen_circuit("qaoa", 10, 2), tmp_path / "qaoa.qsim")
    memory = str(int(with_bits(10, 8)["memory"]))
    options = ["--method", "statevector", "--memory", memory, "--threads", "1", "--state-fidelity"]
    line = ["expectation", str(tmp_path / "qaoa.qsim"), "--observable", "Z0 Z1", *options]
    assert run([*line, "0.9"]) == 0
    printed = capsys.readouterr().out
    assert "amplitudes of 8 bits a part: fidelity 0.99" in printed
    assert "rounding, by statevector" in printed
    assert run([*line, "1"]) == 2
    assert "--memory: allows a rank" in capsys.readouterr().err


@pytest.mark.parametrize(("gpu_bytes", "device"), [(1 << 16, "cpu"), (1 << 18, "auto")])
def test_a_gpu_that_is_too_small_leaves_the_compressed_state_to_the_host(
    gpu_bytes: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain state of 16 qubits fits neither; compressed it takes 140 KB on a GPU."""
    gpu = replace(load_profile("h200-nvlink"), name="this machine", memory_bytes=gpu_bytes, reserved_bytes=0)
    host = replace(load_profile("cpu"), name="this machine", memory_bytes=needed(16)[1], reserved_bytes=0)

    def this_machine(options: JobOptions, measure: bool = False) -> Profile:
        return host if options.device == "cpu" else gpu

    for module in ("circuit", "chooser", "estimates.state_cost", "engines.compressed"):
        monkeypatch.setattr(f"tnplan.questions.{module}.this_machine", this_machine)
    circuit = tnplan.Circuit(random_circuit(16, 200, 1))
    (row,) = circuit.estimate(expectation="Z0", method="statevector", threads=1).rows
    assert row.error_kind == "rounding"
    assert ("on the host, whose memory suffices" in row.remark) == (device == "cpu")
    many = GateSequence(16, random_circuit(16, 200, 1).gates * 20)
    query = CircuitQuery(circuit_program(many), many, ExpectationValues((parse("Z0", 16),), True))
    options = QuestionOptions.of(method="statevector", threads=1)
    assert chooser.device_of(query, "statevector", options) == device
    answer = circuit.expectation("Z0", method="statevector", threads=1)
    assert (answer.details["device"], answer.error_kind) == ("cpu", "rounding")


def test_a_bound_of_nothing_is_vacuous() -> None:
    """Where the errors sum to 1, a state may be the exact one with another sign."""
    state = PackedState(5, "complex64", 8)
    state.errors.total = 1.0
    gates = random_circuit(5, 9, 1)
    options = QuestionOptions.of(state_fidelity=0.5)
    asked: list[tuple[Any, float]] = [
        (Amplitudes(np.zeros((1, 5), np.uint8), True), 2.0),
        (ExpectationValues((parse("3*Z0", 5),), True), 6.0),
        (Probabilities((0,)), 1.0),
    ]
    for question, most in asked:
        query = CircuitQuery(circuit_program(gates), gates, question)
        outcome = as_rounded(Outcome(0.0, 0.0, EXACT), query, options, state)
        assert (outcome.error, outcome.error_kind) == (most, "rounding")
        assert outcome.details["error_bound_is_vacuous"]
