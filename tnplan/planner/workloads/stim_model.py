"""Error models from stim (extra `qec`): detector error models in its format, and rotated surface codes.

The only file that imports stim. Turns its models into ours, nothing more.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from tnplan.common.checks import check_count
from tnplan.common.errors import InputError, located
from tnplan.common.files import read_text
from tnplan.planner.workloads.error_model import LARGEST_MODEL, Error, ErrorModel

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
        raise InputError("--kind", f"{kind!r} is unknown", f"use one of {', '.join(KINDS)}")
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
        raise InputError(place, f"is no model that stim reads ({error})", "mend the file") from None
    return located(place, lambda: _model(model))


def _stim(place: str) -> ModuleType:
    try:
        import stim
    except ImportError:
        raise InputError(
            place, "needs stim", "install it with: pip install 'tnplan[qec]'", topic="installation",
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
