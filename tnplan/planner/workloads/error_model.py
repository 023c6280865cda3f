"""Independent errors of a quantum code and what each flips: detectors and logical observables.

Plain data, without geometry; where it comes from is the business of adapters. Knows no tensor network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tnplan.common.checks import check_count
from tnplan.common.errors import InputError

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
        for what, size in sizes:
            if not 0 <= size <= LARGEST_MODEL:
                raise InputError("error model", f"has {size} {what}", f"give at most {LARGEST_MODEL}")
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
            f"give one for each of {model.n_detectors} detectors",
        )
    wrong = sorted(set(syndrome) - set("01"))
    if wrong:
        raise InputError("--syndrome", f"has the character {wrong[0]!r}", "write 0 or 1 for each detector")
    flipped = {detector for error in model.errors for detector in error.detectors}
    for detector, bit in enumerate(syndrome):
        if bit == "1" and detector not in flipped:
            raise InputError("--syndrome", f"has a 1 for detector {detector}", "no error flips it: write 0")


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
    for what, numbers, size in (
        ("detector", error.detectors, n_detectors),
        ("observable", error.observables, n_observables),
    ):
        if list(numbers) != sorted(set(numbers)):
            raise InputError(place, f"names {what}s {numbers}", "name each once, in ascending order")
        outside = [number for number in numbers if not 0 <= number < size]
        if outside:
            raise InputError(place, f"names {what} {outside[0]}", f"the model has {size}, from 0 up")
