"""Exact maximum-likelihood decoding: the network of how likely each logical class is, given a syndrome.

With independent errors e of probability p_e that flip the detectors D_e and the observables L_e, the
probability of syndrome s together with the logical flips l is a Walsh-Hadamard transform,

    P(s, l) = 2^-(n_D + n_L) sum_{x, y} (-1)^(x.s + y.l) prod_e f_e,   f_e = 1 - 2 p_e [x.D_e + y.L_e is odd],

for the expected value of (-1)^(x.D + y.L) over the flips D, L of random errors factorises. The most likely
class is the l of the largest P. Every detector is one hyper-index x, every observable one y; an error has a
tensor over what it flips and no index of its own. Knows no code, no path and no device.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tnplan.common.checks import check_count
from tnplan.common.errors import InputError, located
from tnplan.common.files import read_text
from tnplan.planner.networks.network import Network

LARGEST_MODEL = 1_000_000
"""The most errors, detectors or observables."""


@dataclass(frozen=True)
class Error:
    """An event of probability `probability`; both lists ascend and name each detector or observable once."""

    probability: float
    detectors: tuple[int, ...]
    observables: tuple[int, ...]


@dataclass(frozen=True)
class ErrorModel:
    """Errors that happen independently of each other, each flipping its detectors and observables."""

    n_detectors: int
    n_observables: int
    errors: tuple[Error, ...]

    def __post_init__(self) -> None:
        sizes = (
            ("detectors", self.n_detectors),
            ("observables", self.n_observables),
            ("errors", len(self.errors)),
        )
        for name, size in sizes:
            if not 0 <= size <= LARGEST_MODEL:
                raise InputError("error model", f"has {size} {name}", f"give at most {LARGEST_MODEL} of them")
        if not self.errors:
            raise InputError("error model", "has no errors", "give noise above 0")
        for number, error in enumerate(self.errors):
            _check(f"error {number}", error, self.n_detectors, self.n_observables)


def check_syndrome(model: ErrorModel, syndrome: str) -> None:
    """Refuse a syndrome that has not 0 or 1 for each detector, or a 1 where no error flips the detector."""
    if len(syndrome) != model.n_detectors:
        raise InputError(
            "--syndrome",
            f"has {len(syndrome)} characters",
            f"give one character for each of {model.n_detectors} detectors",
        )
    wrong = sorted(set(syndrome) - set("01"))
    if wrong:
        raise InputError("--syndrome", f"has the character {wrong[0]!r}", "write 0 or 1 for each detector")
    flipped = {detector for error in model.errors for detector in error.detectors}
    for detector, bit in enumerate(syndrome):
        if bit == "1" and detector not in flipped:
            problem = f"has a 1 for detector {detector}, which no error flips"
            raise InputError("--syndrome", problem, "write 0")


def sample(model: ErrorModel, seed: int) -> tuple[str, str]:
    """What a random set of errors flips: the syndrome and the observables, 0 or 1 for each of them."""
    check_count("--seed", seed, 0)
    generator = np.random.default_rng(seed)
    happens = generator.random(len(model.errors)) < [error.probability for error in model.errors]
    detectors, observables = np.zeros(model.n_detectors, bool), np.zeros(model.n_observables, bool)
    for number in np.flatnonzero(happens):
        detectors[list(model.errors[number].detectors)] ^= True
        observables[list(model.errors[number].observables)] ^= True
    return _bits(detectors), _bits(observables)


def _bits(values: np.ndarray) -> str:
    return "".join("1" if value else "0" for value in values)


def _check(place: str, error: Error, n_detectors: int, n_observables: int) -> None:
    if not 0 < error.probability < 1:
        remedy = "give a probability above 0 and below 1"
        if error.probability == 0:
            remedy = "leave out what never happens"
        elif error.probability == 1:
            remedy = "leave it out, and flip what it flips in the syndrome"
        raise InputError(place, f"has probability {error.probability:g}", remedy)
    for name, numbers, size in (
        ("detector", error.detectors, n_detectors),
        ("observable", error.observables, n_observables),
    ):
        if list(numbers) != sorted(set(numbers)):
            raise InputError(place, f"names {name}s {numbers}", "name each once, in ascending order")
        outside = [number for number in numbers if not 0 <= number < size]
        if outside:
            raise InputError(place, f"names {name} {outside[0]}", f"use numbers from 0 to {size - 1}")


Factors = dict[tuple[str, ...], np.ndarray]
"""Tensors by their indices; none has an index twice, and all have theirs in the same order."""

LARGEST_ERROR = 16
"""An error that flips n detectors and observables has a tensor of 2^n elements."""
MOST_OBSERVABLES = 20
"""The result has 2^n elements for n observables."""


def decoding_network(model: ErrorModel, syndrome: str) -> tuple[Network, list[np.ndarray]]:
    """The network of P(syndrome, l), one open index of extent 2 for each observable, in float64.

    `syndrome` is 0 or 1 for each detector. The sum of the result is the probability of the syndrome. No value
    on the way is above 1. Where a detector fires, its sum is a difference of nearly equal values and loses
    digits; sums that are formed last, as those of sliced detectors are, lose most.
    """
    check_syndrome(model, syndrome)
    if model.n_observables > MOST_OBSERVABLES:
        raise InputError(
            "error model",
            f"has {model.n_observables} observables",
            f"give at most {MOST_OBSERVABLES} observables",
        )
    factors = _factors(model)
    present = {index for term in factors for index in term}
    for detector, bit in enumerate(syndrome):
        if f"d{detector}" in present:
            _multiply(factors, (f"d{detector}",), np.array([0.5, -0.5 if bit == "1" else 0.5]))
    factors = _absorb(factors)
    inputs, arrays = list(factors), list(factors.values())
    output = tuple(f"l{observable}" for observable in range(model.n_observables))
    for observable, index in enumerate(output):
        inputs.append((f"y{observable}", index))
        arrays.append(np.array([[0.5, 0.5], [0.5, -0.5]]))
    return Network(tuple(inputs), output, {index: 2 for term in inputs for index in term}), arrays


def _factors(model: ErrorModel) -> Factors:
    """The tensors f_e; errors that flip the same are one tensor, the product of theirs."""
    factors: Factors = {}
    for number, error in enumerate(model.errors):
        term = (*(f"d{i}" for i in error.detectors), *(f"y{i}" for i in error.observables))
        if not term:
            continue
        if len(term) > LARGEST_ERROR:
            problem = f"flips {len(term)} detectors and observables"
            raise InputError(f"error {number}", problem, f"give errors that flip at most {LARGEST_ERROR}")
        odd = np.indices((2,) * len(term)).sum(axis=0) % 2
        _multiply(factors, term, 1 - 2 * error.probability * odd)
    return factors


def _multiply(factors: Factors, term: tuple[str, ...], tensor: np.ndarray) -> None:
    factors[term] = factors[term] * tensor if term in factors else tensor


def _absorb(factors: Factors) -> Factors:
    """The same product of fewer tensors: one whose indices another has too is multiplied into that."""
    absorbed: Factors = {}
    holders: dict[str, dict[tuple[str, ...], None]] = {}
    for term in sorted(factors, key=len, reverse=True):
        rarest = min((holders.get(index, {}) for index in term), key=len)
        host = next((other for other in rarest if set(term) <= set(other)), None)
        if host is not None:
            shape = tuple(2 if index in term else 1 for index in host)
            absorbed[host] = absorbed[host] * factors[term].reshape(shape)
            continue
        absorbed[term] = factors[term]
        for index in term:
            holders.setdefault(index, {})[term] = None
    return absorbed


# Error models from stim (extra `qec`): detector error models in its format, and rotated surface codes.
#
KINDS = ("circuit", "capacity")
LARGEST_DISTANCE = 51
LARGEST_ROUNDS = 1000


def surface_code_model(kind: str, distance: int, rounds: int, noise: float) -> ErrorModel:
    """The errors of a rotated surface code that keeps a Z state over `rounds` rounds of measurement.

    `circuit`: with probability `noise` each, every Clifford gate is followed by a depolarizing channel on its
    qubits, every reset and every measurement flips, and every data qubit depolarizes at the start of a round.
    `capacity`: only the last of these, so that measurements are perfect.
    """
    stim = _stim("--distance")
    if kind not in KINDS:
        raise InputError("--kind", f"{kind!r} is unknown", f"choose from {', '.join(KINDS)}")
    check_count("--distance", distance, 2, LARGEST_DISTANCE)
    check_count("--rounds", rounds, 1, LARGEST_ROUNDS)
    if not 0 < noise < 0.5:
        raise InputError("--noise", f"is {noise}", "give a probability above 0 and below 0.5")
    rest = 0 if kind == "capacity" else noise
    circuit = stim.Circuit.generated(
        "surface_code:rotated_memory_z",
        distance=distance,
        rounds=rounds,
        before_round_data_depolarization=noise,
        after_clifford_depolarization=rest,
        after_reset_flip_probability=rest,
        before_measure_flip_probability=rest,
    )
    return _model(circuit.detector_error_model())


def load_model(path: str | Path) -> ErrorModel:
    """Read a detector error model in stim's format."""
    return parse_model(read_text(path, "a detector error model"), str(path))


def parse_model(text: str, place: str) -> ErrorModel:
    """Parse a detector error model; `place` names it in errors.

    Parts of an error that ^ separates act together: what two of them flip is not flipped. An error that flips
    nothing is left out.
    """
    stim = _stim(place)
    if "\0" in text:
        raise InputError(place, "has a character of value 0, where stim stops reading", "give plain text")
    try:
        model = stim.DetectorErrorModel(text)
    except (ValueError, IndexError) as error:
        raise InputError(place, f"is not a model that stim reads ({error})", "correct the file") from None
    return located(place, lambda: _model(model))


def _stim(place: str) -> ModuleType:
    try:
        import stim
    except ImportError:
        raise InputError(
            place,
            "needs stim",
            "install it with: pip install 'tnplan[qec]'",
            topic="installation",
        ) from None
    module: ModuleType = stim
    return module


def _model(model: Any) -> ErrorModel:
    """Ours, from a stim.DetectorErrorModel."""
    largest = max(model.num_errors, model.num_detectors, model.num_observables)
    if largest > LARGEST_MODEL:
        problem = f"has {largest} errors, detectors or observables"
        raise InputError("error model", problem, f"give at most {LARGEST_MODEL} of each")
    errors = []
    for instruction in model.flattened():
        if instruction.type != "error":
            continue
        detectors: set[int] = set()
        observables: set[int] = set()
        for target in instruction.targets_copy():
            if not target.is_separator():
                (detectors if target.is_relative_detector_id() else observables).symmetric_difference_update(
                    {target.val}
                )
        if detectors or observables:
            (probability,) = instruction.args_copy()
            errors.append(Error(probability, tuple(sorted(detectors)), tuple(sorted(observables))))
    return ErrorModel(model.num_detectors, model.num_observables, tuple(errors))
