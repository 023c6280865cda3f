"""What may be stored with errors, and how much smaller the planner counts it: the options of `--compress`.

Knows bounds and ratios; never a codec.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite

from tnplan.common.errors import InputError

PLACE = "--compress"
SETTINGS = ("fast", "small")
DEFAULT_RATIO = 2.0
"""Random numbers of single precision are stored in a third of their bytes at a bound of 1e-3."""
LARGEST_RATIO = 1e6
LEAST_MESSAGE_BYTES = 1 << 16
"""Shorter messages and tensors are not compressed: headers and launches would cost what it saves."""
GRAMMAR = "give exchange=BOUND[:RATIO], store=BOUND[:RATIO], setting=fast or small, checkpoints; with commas"


@dataclass(frozen=True)
class Lossy:
    """Real and imaginary parts keep within `bound` times their range; `ratio` is the least counted on."""

    bound: float
    ratio: float = DEFAULT_RATIO

    def __post_init__(self) -> None:
        if not 0 <= self.bound < 1:
            raise InputError(PLACE, f"the bound is {self.bound}", "give a bound from 0 (lossless) to below 1")
        if not 1 < self.ratio <= LARGEST_RATIO:
            raise InputError(
                PLACE, f"the ratio is {self.ratio}", f"give a ratio above 1, {LARGEST_RATIO:.0f} at most"
            )


@dataclass(frozen=True)
class Compression:
    """What a schedule compresses: tensors that are exchanged, tensors that wait for later steps."""

    exchange: Lossy | None = None
    store: Lossy | None = None
    setting: str = "fast"

    def __post_init__(self) -> None:
        if self.setting not in SETTINGS:
            raise InputError(PLACE, f"setting {self.setting!r} is unknown", f"choose {' or '.join(SETTINGS)}")


def is_lossless(compression: Compression | None) -> bool:
    """Whether all that is compressed is restored to the bit."""
    both = () if compression is None else (compression.exchange, compression.store)
    return all(each is None or each.bound == 0 for each in both)


def check_lossless(compression: Compression | None, algebra: str) -> None:
    """Refuse bounds of errors where values are those of an algebra."""
    if not is_lossless(compression):
        problem = f"has a bound of errors, but values of {algebra} have to stay exact"
        raise InputError(PLACE, problem, "give bounds of 0, which lose nothing")


@dataclass(frozen=True)
class Request:
    """`--compress` as it was given: bounds, and ratios where they are named; None for what is not named."""

    exchange: tuple[float, float | None] | None = None
    store: tuple[float, float | None] | None = None
    setting: str | None = None
    checkpoints: bool = False

    def planned(self) -> Compression:
        """What a plan makes of it: a ratio that is not named is `DEFAULT_RATIO`."""
        if self.checkpoints:
            raise InputError(
                PLACE,
                "checkpoints do not belong to a plan",
                "give the word checkpoints to 'tnplan execute', or leave it out",
                topic="checkpoints",
            )
        return Compression(lossy(self.exchange), lossy(self.store), self.setting or SETTINGS[0])


def lossy(pair: tuple[float, float | None] | None) -> Lossy | None:
    """A bound and its ratio, or `DEFAULT_RATIO` where it has none."""
    return None if pair is None else Lossy(pair[0], DEFAULT_RATIO if pair[1] is None else pair[1])


def parse_request(text: str) -> Request:
    """Read `exchange=1e-3,store=1e-3:4,setting=fast,checkpoints`; raises InputError."""
    if not isinstance(text, str):
        raise InputError(PLACE, f"is of type {type(text).__name__}", GRAMMAR)
    values: dict[str, str] = {}
    for item in text.split(","):
        name, equals, value = item.strip().partition("=")
        if name in values:
            raise InputError(PLACE, f"{name} is named twice in {text!r}", f"name {name} once")
        if (name == "checkpoints") == bool(equals) or name not in (
            "exchange", "store", "setting", "checkpoints"
        ):  # fmt: skip
            raise InputError(PLACE, f"{item.strip()!r} is unknown", GRAMMAR)
        values[name] = value
    exchange, store = (_bound(name, values.get(name)) for name in ("exchange", "store"))
    request = Request(exchange, store, values.get("setting"), "checkpoints" in values)
    for name, pair in (("exchange", exchange), ("store", store)):
        try:
            lossy(pair)
        except InputError as error:
            raise InputError(PLACE, f"{name}: {error.problem}", error.remedy, error.page) from None
    Compression(setting=request.setting or SETTINGS[0])
    if request.setting is not None and request.exchange is None and request.store is None:
        raise InputError(PLACE, "has a setting and no bound", "add exchange=BOUND or store=BOUND")
    return request


def _bound(name: str, text: str | None) -> tuple[float, float | None] | None:
    if text is None:
        return None
    number = r"[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,3})?|[0-9]+\."
    match = re.fullmatch(rf"({number})(?::({number}))?", text)
    texts = () if match is None else match.groups()
    values = tuple(None if value is None else float(value) for value in texts)
    if not values or values[0] is None or not all(value is None or isfinite(value) for value in values):
        raise InputError(
            PLACE, f"{name}={text} is not a bound", "give a bound such as 1e-3, or bound:ratio, 1e-3:4"
        )
    return values[0], values[1]
