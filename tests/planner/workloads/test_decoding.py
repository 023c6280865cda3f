"""Maximum-likelihood decoding: probabilities against enumeration, models read from stim, what is refused."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import cotengra
import numpy as np
import pytest
from click.testing import CliRunner

from tests.support.networks import eager_profile
from tests.support.robustness.refusals import Refusal, Row, table
from tests.support.workloads import greedy_ssa_path
from tnplan.calls.execute import execute
from tnplan.cli.main import cli
from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import load_network
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.networks.tensors import load_tensors
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.workloads.decoding import Error, ErrorModel, check_syndrome, decoding_network, sample


def surface_code(kind: str, distance: int, rounds: int, noise: float) -> ErrorModel:
    pytest.importorskip("stim", reason="needs the extra qec")
    from tnplan.planner.workloads.decoding import surface_code_model

    return surface_code_model(kind, distance, rounds, noise)


def parsed(text: str) -> ErrorModel:
    pytest.importorskip("stim", reason="needs the extra qec")
    from tnplan.planner.workloads.decoding import parse_model

    return parse_model(text, "m.dem")


def flips(model: ErrorModel, error: Error) -> int:
    """What an error flips, a bit for each: observables above detectors."""
    bits = [*error.detectors, *(model.n_detectors + number for number in error.observables)]
    return sum(1 << bit for bit in bits)


def by_enumeration(model: ErrorModel) -> np.ndarray:
    """P[l, s] over all sets of errors, one after another; detector 0 is the lowest bit of s."""
    weights, what = np.ones(1), np.zeros(1, int)
    for error in model.errors:
        weights = np.concatenate((weights * (1 - error.probability), weights * error.probability))
        what = np.concatenate((what, what ^ flips(model, error)))
    size = 1 << model.n_detectors + model.n_observables
    return np.bincount(what, weights, size).reshape(-1, 1 << model.n_detectors)


def by_adding_errors(model: ErrorModel) -> np.ndarray:
    """The same, where sets of errors that flip the same are taken together after each error."""
    table = np.zeros(1 << model.n_detectors + model.n_observables)
    table[0], places = 1, np.arange(table.size)
    for error in model.errors:
        table = (1 - error.probability) * table + error.probability * table[places ^ flips(model, error)]
    return table.reshape(-1, 1 << model.n_detectors)


def bits_of(number: int, size: int) -> str:
    return "".join(str(number >> bit & 1) for bit in range(size))


def decoded(model: ErrorModel, syndrome: str) -> np.ndarray:
    """The result of the network, its axes merged: observable 0 is the lowest bit."""
    network, arrays = simplify(*decoding_network(model, syndrome))
    if len(arrays) > 1:
        value = cotengra.array_contract(arrays, network.inputs, network.output, optimize="greedy")
    else:
        value = np.einsum(
            arrays[0], [*map(network.output.index, network.inputs[0])], [*range(arrays[0].ndim)]
        )
    return np.asarray(value).T.reshape(-1)


def without_silent_detectors(model: ErrorModel) -> ErrorModel:
    """The same model, its detectors that nothing flips left out and the others numbered anew."""
    used = sorted({detector for error in model.errors for detector in error.detectors})
    errors = (
        Error(error.probability, tuple(used.index(number) for number in error.detectors), error.observables)
        for error in model.errors
    )
    return ErrorModel(len(used), model.n_observables, tuple(errors))


@cache
def circuit_table(rounds: int, noise: float) -> tuple[ErrorModel, np.ndarray]:
    model = surface_code("circuit", 3, rounds, noise)
    return model, by_adding_errors(model)


@cache
def capacity_table(noise: float) -> tuple[ErrorModel, np.ndarray]:
    model = without_silent_detectors(surface_code("capacity", 5, 1, noise))
    return model, by_enumeration(model)


def random_model(seed: int) -> ErrorModel:
    """5 detectors, 2 observables, 14 errors of any size, some of them flipping the same."""
    generator = np.random.default_rng(seed)
    errors = []
    for _ in range(14):
        what = generator.random(7) < 0.4
        if what.any():
            detectors, observables = np.flatnonzero(what[:5]).tolist(), np.flatnonzero(what[5:]).tolist()
            errors.append(Error(float(generator.uniform(0.01, 0.99)), tuple(detectors), tuple(observables)))
    return ErrorModel(5, 2, (*errors, errors[0], Error(0.3, (4,), ())))


@pytest.mark.parametrize("seed", range(8))
def test_every_syndrome_of_random_models(seed: int) -> None:
    model = random_model(seed)
    table = by_enumeration(model)
    assert np.allclose(table, by_adding_errors(model), rtol=1e-12, atol=0)
    flipped = {detector for error in model.errors for detector in error.detectors}
    for number in range(2**5):
        syndrome = bits_of(number, 5)
        if all(bit == "0" or detector in flipped for detector, bit in enumerate(syndrome)):
            assert np.allclose(decoded(model, syndrome), table[:, number], rtol=0, atol=1e-15)


@pytest.mark.parametrize(("rounds", "noise"), [(1, 0.01), (2, 0.01), (2, 0.001)])
def test_distance_3_with_circuit_noise(rounds: int, noise: float) -> None:
    """The likeliest and the unlikeliest syndromes and some between, of 2^8 or 2^16: to nine digits."""
    model, table = circuit_table(rounds, noise)
    assert model.n_detectors == {1: 8, 2: 16}[rounds]
    order = np.argsort(table.sum(0))
    picked = [*order[:4], *order[-4:], *np.random.default_rng(0).choice(order, 24)]
    for number in map(int, picked):
        got = decoded(model, bits_of(number, model.n_detectors))
        assert np.abs(got - table[:, number]).max() < 1e-9 * table[:, number].sum()


@pytest.mark.parametrize("noise", [0.1, 0.001])
def test_distance_5_with_code_capacity_noise(noise: float) -> None:
    """Against all 2^21 sets of errors, for the same choice of the 2^12 syndromes: to seven digits."""
    model, table = capacity_table(noise)
    assert (model.n_detectors, len(model.errors)) == (12, 21)
    order = np.argsort(table.sum(0))
    picked = [*order[:4], *order[-4:], *np.random.default_rng(0).choice(order, 24)]
    for number in map(int, picked):
        got = decoded(model, bits_of(number, model.n_detectors))
        assert np.abs(got - table[:, number]).max() < 1e-7 * table[:, number].sum()


def test_code_capacity_is_that_of_the_code_drawn_by_hand() -> None:
    """Distance 3, data qubits row by row; depolarizing noise flips the X part with probability 2/3 p."""
    checks = [(0, 1, 3, 4), (4, 5, 7, 8), (2, 5), (3, 6)]
    logical = (0, 1, 2)
    qubits = [
        (tuple(n for n, c in enumerate(checks) if q in c), (0,) if q in logical else ()) for q in range(9)
    ]
    noise = 0.06
    drawn = ErrorModel(4, 1, tuple(Error(2 / 3 * noise, *flipped) for flipped in qubits))
    model = without_silent_detectors(surface_code("capacity", 3, 1, noise))
    mine, other = by_enumeration(drawn), by_enumeration(model)
    assert np.allclose(np.sort(mine.max(0)), np.sort(other.max(0)), rtol=1e-9, atol=0)
    assert np.allclose(np.sort(mine.min(0)), np.sort(other.min(0)), rtol=1e-9, atol=0)
    assert np.allclose(decoded(drawn, "1010"), mine[:, 0b0101], rtol=1e-9, atol=0)


def test_the_model_is_that_of_stim_s_circuit() -> None:
    """How often each detector and the observable flip in 100000 shots that stim samples itself."""
    stim = pytest.importorskip("stim", reason="needs the extra qec")
    model, noise, shots = surface_code("circuit", 3, 3, 0.01), 0.01, 100_000
    circuit = stim.Circuit.generated(
        "surface_code:rotated_memory_z", distance=3, rounds=3, before_round_data_depolarization=noise,
        after_clifford_depolarization=noise, after_reset_flip_probability=noise,
        before_measure_flip_probability=noise,
    )  # fmt: skip
    sampled = circuit.compile_detector_sampler(seed=5).sample(shots, append_observables=True).mean(0)
    unflipped = np.ones(model.n_detectors + model.n_observables)
    for error in model.errors:
        places = [*error.detectors, *(model.n_detectors + number for number in error.observables)]
        unflipped[places] *= 1 - 2 * error.probability
    assert np.abs(sampled - (1 - unflipped) / 2).max() < 5 * np.sqrt(0.25 / shots)


def test_replay_on_ranks_with_sliced_detectors() -> None:
    model, table = circuit_table(2, 0.01)
    for number in (0, 0b10000010001, 0b1011):
        network, arrays = simplify(*decoding_network(model, bits_of(number, model.n_detectors)))
        detectors = sorted(index for index in network.size_dict if index.startswith("d"))
        path = ContractionPath(network, greedy_ssa_path(network), tuple(detectors[:3]), "float64")
        schedule = plan(path, eager_profile(), devices=2, ranks_per_group=2, threshold_bytes=8)
        assert schedule.n_slices * schedule.repeats(len(schedule.summed)) == 8
        result = execute(schedule, arrays, device="cpu").array
        assert result is not None
        assert np.abs(result - table[:, number]).max() < 1e-9 * table[:, number].sum()


def test_distance_7_is_one_index_a_detector() -> None:
    """Seven rounds of circuit noise: 24 checks of Z in 8 layers of detectors, and 24 of X in 6."""
    model = surface_code("circuit", 7, 7, 0.001)
    assert (model.n_detectors, model.n_observables) == (24 * 8 + 24 * 6, 1)
    syndrome, _ = sample(model, 0)
    network, arrays = simplify(*decoding_network(model, syndrome))
    assert set(network.size_dict) <= {*(f"d{number}" for number in range(336)), "y0", "l0"}
    assert network.output == ("l0",)
    assert [array.shape for array in arrays] == [network.shape(number) for number in range(len(arrays))]
    assert max(map(len, network.inputs)) <= 6


@cache
def sliced_path() -> ContractionPath:
    """Of five rounds at distance 5."""
    model = surface_code("circuit", 5, 5, 0.001)
    network, _ = simplify(*decoding_network(model, sample(model, 0)[0]))
    return ContractionPath(network, greedy_ssa_path(network), tuple(sorted(network.size_dict)[:3]), "float64")


@pytest.mark.parametrize(("devices", "group"), [(1, 1), (8, 8), (64, 16)])
def test_five_rounds_at_distance_5_plan(devices: int, group: int) -> None:
    schedule = plan(
        sliced_path(), eager_profile(), devices=devices, ranks_per_group=group, memory_bytes=float("inf")
    )
    assert schedule.n_slices * schedule.repeats(len(schedule.summed)) == 8


def test_parts_of_an_error_act_together() -> None:
    model = parsed(
        "error(0.1) D0 D1 ^ D1 L0\nerror(0.2) D2 ^ D2\nrepeat 2 {\nerror(0.3) D1\nshift_detectors 1\n}"
    )
    assert model.errors == (Error(0.1, (0,), (0,)), Error(0.3, (1,), ()), Error(0.3, (2,), ()))
    assert (model.n_detectors, model.n_observables) == (3, 1)


def test_samples_follow_the_probabilities_and_the_seed() -> None:
    model = ErrorModel(2, 1, (Error(0.25, (0, 1), ()), Error(0.125, (1,), (0,))))
    drawn = [sample(model, seed) for seed in range(4000)]
    assert drawn == [sample(model, seed) for seed in range(4000)]
    table = by_enumeration(model)
    for number in range(4):
        for flip in range(2):
            share = drawn.count((bits_of(number, 2), str(flip))) / len(drawn)
            assert abs(share - table[flip, number]) < 0.03


def test_what_nothing_flips_stays() -> None:
    model = ErrorModel(3, 2, (Error(0.2, (1,), (1,)), Error(0.1, (), ())))
    assert np.allclose(decoded(model, "010"), [0, 0, 0.2, 0], rtol=0, atol=1e-16)
    assert np.allclose(decoded(model, "000"), [0.8, 0, 0, 0], rtol=0, atol=1e-16)


# fmt: off
BAD_MODELS: list[Row] = [
    ((), "error model", "has no errors", "give noise above 0"),
    ((Error(0, (0,), ()),), "error 0", "has probability 0", "leave out what never happens"),
    ((Error(1, (0,), ()),), "error 0", "has probability 1", "leave it out, and flip"),
    ((Error(1.5, (0,), ()),), "error 0", "has probability 1.5", "give a probability above 0 and below 1"),
    ((Error(float("nan"), (0,), ()),), "error 0", "has probability nan", "give a probability"),
    ((Error(0.1, (0,), ()), Error(0.1, (2,), ())), "error 1", "names detector 2", "use numbers from 0 to 1"),
    ((Error(0.1, (), (1,)),), "error 0", "names observable 1", "use numbers from 0 to 0"),
    ((Error(0.1, (1, 1), ()),), "error 0", "names detectors", "name each once, in"),
]
# fmt: on


@table(BAD_MODELS)
def test_bad_models_are_named(refusal: Refusal) -> None:
    refusal.raised_by(lambda: ErrorModel(2, 1, refusal.given))


# fmt: off
BAD_SYNDROMES: list[Row] = [
    ("01", "--syndrome", "has 2 characters", "give one character for each of 3 detectors"),
    ("01x", "--syndrome", "has the character 'x'", "write 0 or 1 for each"),
    ("001", "--syndrome", "has a 1 for detector 2, which no error flips", "write 0"),
]
# fmt: on


@table(BAD_SYNDROMES)
def test_bad_syndromes_are_named(refusal: Refusal) -> None:
    refusal.raised_by(lambda: check_syndrome(ErrorModel(3, 1, (Error(0.1, (0, 1), ()),)), refusal.given))


def test_large_errors_and_results_are_refused() -> None:
    with pytest.raises(InputError, match="error 0: flips 17 detectors and observables"):
        decoding_network(ErrorModel(17, 0, (Error(0.1, tuple(range(17)), ()),)), "0" * 17)
    with pytest.raises(InputError, match="error model: has 21 observables"):
        decoding_network(ErrorModel(1, 21, (Error(0.1, (0,), ()),)), "0")


def test_command_writes_network_and_tensors(tmp_path: Path) -> None:
    pytest.importorskip("stim", reason="needs the extra qec")
    target = tmp_path / "net.json"
    line = f"workload decoding --distance 3 --rounds 2 --noise 0.01 --seed 4 -o {target}"
    done = CliRunner().invoke(cli, line.split())
    assert done.exit_code == 0, done.output
    assert "16 detectors" in done.output
    network, dtype, tensors = load_network(target)
    assert (dtype, tensors) == ("float64", "net.npz")
    meta = json.loads(target.read_text())["meta"]
    model, table = circuit_table(2, 0.01)
    assert (meta["syndrome"], meta["logical_flips"]) == sample(model, 4)
    arrays = load_tensors(tmp_path / "net.npz", network, dtype)
    value = cotengra.array_contract(arrays, network.inputs, network.output, optimize="greedy")
    number = int(meta["syndrome"][::-1], 2)
    assert np.allclose(value, table[:, number], rtol=0, atol=1e-9 * table[:, number].sum())
    (tmp_path / "m.dem").write_text("error(0.1) D0 L0\n")
    line = f"workload decoding --model {tmp_path / 'm.dem'} --syndrome 1 -o {tmp_path / 'm.json'}"
    done = CliRunner().invoke(cli, line.split())
    assert done.exit_code == 0, done.output
    assert "1 detectors, 1 fire; 1 possible errors" in done.output
