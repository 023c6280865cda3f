"""Hardware profiles: the figures of a machine that the cost model uses, read from TOML.

Changelog of the profile: the fields below are version 1 (2026-11-21).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.files import plain

DEFAULT_PRECISION = {"float32": "fp32", "complex64": "fp32", "float64": "fp64", "complex128": "fp64"}


@dataclass(frozen=True)
class Tier:
    """One tier of interconnect: `devices` (0: without limit) that exchange `bytes_per_s` each, one way.

    `latency_s` and `granule_bytes` are lambda and s_blk of the paper's Eq. 7. Where `curve_bytes` and
    `curve_bytes_per_s` are given, they replace the constant rate (bytes that a device receives -> rate).
    """

    name: str
    devices: int
    bytes_per_s: float
    latency_s: float
    granule_bytes: int
    curve_bytes: tuple[float, ...] = ()
    curve_bytes_per_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class GemmCurve:
    """Measured rate of a matrix product by its contracted extent k."""

    k: tuple[float, ...]
    flop_per_s: tuple[float, ...]


@dataclass(frozen=True)
class Profile:
    """The figures of one machine. Rates are a device; `flop_per_s[dtype][precision]` counts real operations.

    `memory_bytes` is a device's, `reserved_bytes` what driver and libraries take of it. `tile_bytes` bounds
    the tile of a contraction that writes in another order than its product's, `exchange_bytes` the send and
    receive buffers of a redistribution. `tiers` run from fastest to slowest.
    """

    name: str
    devices_per_node: int
    memory_bytes: int
    reserved_bytes: int
    memory_bytes_per_s: float
    permute_bytes_per_s: float
    launch_s: float
    tile_bytes: int
    exchange_bytes: int
    flop_per_s: dict[str, dict[str, float]]
    tiers: tuple[Tier, ...]
    gemm_curves: dict[str, dict[str, GemmCurve]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        positive = (
            "devices_per_node", "memory_bytes", "memory_bytes_per_s", "permute_bytes_per_s",
            "tile_bytes", "exchange_bytes",
        )  # fmt: skip
        for name in positive:
            if getattr(self, name) <= 0:
                raise InputError(
                    f"profile {self.name}: {name}", f"is {getattr(self, name)}", "give a positive figure"
                )
        if not self.tiers:
            raise InputError(
                f"profile {self.name}: tiers", "is empty", "describe one tier of interconnect or more"
            )
        for tier in self.tiers:
            if tier.bytes_per_s <= 0:
                raise InputError(
                    f"profile {self.name}: tier {tier.name}", f"moves {tier.bytes_per_s} bytes a second",
                    "give a positive rate",
                )  # fmt: skip

    def rate(self, dtype: str, precision: str) -> float:
        """Peak real operations a second; raises where the profile has none for the pair."""
        rates = self.flop_per_s.get(dtype, {})
        if precision not in rates:
            known = ", ".join(sorted(rates)) or "none"
            raise InputError(
                f"profile {self.name}: flop_per_s.{dtype}",
                f"has no precision {precision!r}",
                f"choose another precision (it has: {known}) or profile",
            )
        return rates[precision]

    def document(self) -> dict[str, Any]:
        """The profile as it is embedded in a schedule."""
        document: dict[str, Any] = plain(self)
        return document


def shipped_profiles() -> list[str]:
    """The names of the profiles that come with the package."""
    names = [entry.name for entry in resources.files("planner.hardware").iterdir()]
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def load_profile(name: str | Path) -> Profile:
    """A shipped profile by its name, or one from a TOML file."""
    if str(name) in shipped_profiles():
        text = (resources.files("planner.hardware") / f"{name}.toml").read_text()
    else:
        try:
            text = Path(name).read_text()
        except (OSError, UnicodeDecodeError):
            known = ", ".join(shipped_profiles())
            raise InputError(
                "--hardware",
                f"{str(name)!r} is neither a profile nor a file",
                f"choose from {known}, or a TOML file",
            ) from None
    try:
        return profile_from_document(tomllib.loads(text), str(name))
    except tomllib.TOMLDecodeError as error:
        raise InputError(str(name), f"not TOML ({error})", "mend the file") from None


def profile_from_document(document: dict[str, Any], place: str) -> Profile:
    """Build a profile from its document, naming `place` in errors."""
    import msgspec

    try:
        return msgspec.convert(document, Profile)
    except msgspec.ValidationError as error:
        raise InputError(
            place, f"not a hardware profile: {error}", "see docs/hardware.md for its fields"
        ) from None
