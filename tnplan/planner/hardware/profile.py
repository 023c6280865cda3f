"""Hardware profiles: the figures of a machine that the cost model uses, read from TOML.

Changelog of the profile: the fields below are version 1 (2026-11-21); `algebras` (2026-11-30), `watts`
(2026-12-01) and `recorded` (2026-12-02) are optional.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field, fields, replace
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

from tnplan.common.errors import InputError
from tnplan.common.files import converted, file_path, plain, read_text
from tnplan.common.units import size_text

DEFAULT_PRECISION = {"float32": "fp32", "complex64": "fp32", "float64": "fp64", "complex128": "fp64"}
EXACTNESS = ("fp64", "fp32", "fp16x3", "tf32")
"""The precisions, the most exact first."""
WATTS = ("idle", "contract", "chain", "permute", "exchange")
"""What a device does: nothing, products, fused chains, copies and permutations, exchanges."""
NUMBERS = "numbers"
"""In `RecordedRates.products`: what adds and multiplies where it is no algebra."""


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

    def messages_s(self, messages: float, size_bytes: float) -> float:
        """The seconds of messages one after another: a latency each, and all bytes at the constant rate."""
        return messages * self.latency_s + size_bytes / self.bytes_per_s


@dataclass(frozen=True)
class GemmCurve:
    """Measured rate of a matrix product by its contracted extent k."""

    k: tuple[float, ...]
    flop_per_s: tuple[float, ...]


@dataclass(frozen=True)
class AlgebraRates:
    """Measured rates of products over an algebra, as curves: written as they come, and scattered."""

    k: tuple[float, ...]
    flop_per_s: tuple[float, ...]
    scattered_flop_per_s: tuple[float, ...]


@dataclass(frozen=True)
class SmallProductTimes:
    """Measured seconds of one of many small products in a recorded run: `time_s[i][j]` where the result has
    `sides[i]` rows and columns and a sum `k[j]` terms."""

    sides: tuple[float, ...]
    k: tuple[float, ...]
    time_s: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class RecordedRates:
    """What a run takes that is recorded as one graph: to start it, each call in it that copies little, and
    small products by the algebra's name, or `NUMBERS`, and dtype."""

    launch_s: float
    copy_s: float
    products: dict[str, dict[str, SmallProductTimes]] = field(default_factory=dict)


@dataclass(frozen=True)
class CodecRates:
    """What compressing costs on one device: array bytes a second in and out, seconds to begin with either,
    and the memory that it takes beside what it reads and writes."""

    encode_bytes_per_s: float
    decode_bytes_per_s: float
    launch_s: float = 0.0
    workspace_bytes: int = 0


@dataclass(frozen=True, repr=False)
class Profile:
    """The figures of one machine, which the cost model uses; rates and sizes are those of one device.

    `load_profile` reads a shipped one or a TOML file (docs/reference/hardware.md), `calibrate` measures one.

    Parameters
    ----------
    name : str
        The name.
    memory_bytes, reserved_bytes : int
        The memory of a device, and what driver and libraries take of it.
    memory_bytes_per_s, permute_bytes_per_s : float
        Bytes read and written by a copy, and by a transposition.
    launch_s : float
        Seconds to launch a kernel.
    tile_bytes : int
        The largest tile of a contraction that writes in another order than its product's.
    exchange_bytes : int
        The send and receive buffers of a redistribution.
    flop_per_s : dict
        Peak real operations a second, by dtype and precision.
    tiers : tuple of Tier
        The interconnect, from fastest to slowest (arXiv 2606.01852, Eq. 7).
    gemm_curves, scattered_curves : dict
        Measured rates of matrix products by dtype and precision; the second of those with a scattered result.
    fused_bytes : int
        What a tile of the large tensor of a fused chain may take on chip; 0: no kernel for chains.
    fused_tiles : int
        The tiles from which on the rates of chains hold.
    short_run_bytes : float
        Runs of this length are read and written at half the rate.
    fused_tile_bytes_per_s, fused_flop_per_s : dict
        Rates of the memory on chip and of the kernel for chains, by dtype and precision.
    codecs : dict
        Rates of the settings of `compress` that the device has figures for.
    algebras : dict
        Rates of products over algebras, by the algebra's name and its dtype.
    watts : dict
        What a device takes in each of `WATTS`, or nothing: then no energy is projected.
    recorded : RecordedRates, optional
        What calls take in a run that is recorded. None: what they take as single launches.

    Raises
    ------
    InputError
        For figures that cannot be.

    Examples
    --------
    >>> tnplan.load_profile("cpu")
    Profile(cpu: 3.73 GiB per device, tiers host memory)
    """

    name: str
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
    scattered_curves: dict[str, dict[str, GemmCurve]] = field(default_factory=dict)
    fused_bytes: int = 0
    fused_tiles: int = 1
    short_run_bytes: float = 0.0
    fused_tile_bytes_per_s: dict[str, dict[str, float]] = field(default_factory=dict)
    fused_flop_per_s: dict[str, dict[str, float]] = field(default_factory=dict)
    codecs: dict[str, CodecRates] = field(default_factory=dict)
    algebras: dict[str, dict[str, AlgebraRates]] = field(default_factory=dict)
    watts: dict[str, float] = field(default_factory=dict)
    recorded: RecordedRates | None = None

    def __post_init__(self) -> None:
        # Figures of a profile are divisors throughout the cost model: none but those marked `zero` may be
        # zero. A bad file is refused here, by the name of the figure, and not by a time that is infinite.
        place = f"profile {self.name}"
        for name in (
            "memory_bytes", "memory_bytes_per_s", "permute_bytes_per_s",
            "tile_bytes", "exchange_bytes", "fused_tiles",
        ):  # fmt: skip
            _check_figure(f"{place}: {name}", getattr(self, name))
        for name in ("reserved_bytes", "launch_s", "fused_bytes", "short_run_bytes"):
            _check_figure(f"{place}: {name}", getattr(self, name), zero=True)
        if self.reserved_bytes >= self.memory_bytes:
            raise InputError(
                f"{place}: reserved_bytes", f"is {self.reserved_bytes} of {self.memory_bytes}",
                "reserve less than the memory of the device",
                topic="memory",
            )  # fmt: skip
        for dtype, rates in self.flop_per_s.items():
            for precision, rate in rates.items():
                _check_figure(f"{place}: flop_per_s.{dtype}.{precision}", rate)
        for table in ("gemm_curves", "scattered_curves"):
            for dtype, curves in getattr(self, table).items():
                for precision, curve in curves.items():
                    _check_curve(f"{place}: {table}.{dtype}.{precision}", curve.k, curve.flop_per_s)
        for name, by_dtype in self.algebras.items():
            for dtype, algebra in by_dtype.items():
                for curve_rates in (algebra.flop_per_s, algebra.scattered_flop_per_s):
                    _check_curve(f"{place}: algebras.{name}.{dtype}", algebra.k, curve_rates)
        self._check_fused(place)
        self._check_tables(place)
        self._check_recorded(f"{place}: recorded")
        self._check_tiers(place)

    def __repr__(self) -> str:
        tiers = ", ".join(tier.name for tier in self.tiers)
        return f"Profile({self.name}: {size_text(self.memory_bytes)} per device, tiers {tiers})"

    def _check_tables(self, place: str) -> None:
        for name, codec in self.codecs.items():
            own = f"{place}: codecs.{name}"
            for figure_name, figure in plain(codec).items():
                is_rate = figure_name.endswith("_per_s")
                _check_figure(f"{own}.{figure_name}", figure, zero=not is_rate)
        if self.watts and self.watts.keys() != {*WATTS}:
            listed = ", ".join(self.watts)
            remedy = f"give {', '.join(WATTS)}, or none of them"
            raise InputError(f"{place}: watts", f"has the keys {listed}", remedy)
        for name, figure in self.watts.items():
            _check_figure(f"{place}: watts.{name}", figure)

    def _check_recorded(self, place: str) -> None:
        if self.recorded is None:
            return
        _check_figure(f"{place}.launch_s", self.recorded.launch_s, zero=True)
        _check_figure(f"{place}.copy_s", self.recorded.copy_s, zero=True)
        for name, by_dtype in self.recorded.products.items():
            for dtype, times in by_dtype.items():
                own = f"{place}.products.{name}.{dtype}"
                # A curve of seconds for every side; the sides rise too.
                _check_curve(own, times.sides, tuple(map(len, times.time_s)))
                for curve in times.time_s:
                    _check_curve(own, times.k, curve)

    def _check_tiers(self, place: str) -> None:
        if not self.tiers:
            raise InputError(f"{place}: tiers", "is empty", "describe one tier of interconnect or more")
        for tier in self.tiers:
            own = f"{place}: tier {tier.name}"
            _check_figure(f"{own}: bytes_per_s", tier.bytes_per_s)
            for name in ("devices", "latency_s", "granule_bytes"):
                _check_figure(f"{own}: {name}", getattr(tier, name), zero=True)
            if tier.curve_bytes or tier.curve_bytes_per_s:
                _check_curve(f"{own}: curve_bytes", tier.curve_bytes, tier.curve_bytes_per_s)

    def _check_fused(self, place: str) -> None:
        tables = {name: getattr(self, name) for name in ("fused_flop_per_s", "fused_tile_bytes_per_s")}
        for name, other in zip(tables, reversed(tables), strict=True):
            for dtype, rates in tables[name].items():
                for precision, rate in rates.items():
                    own = f"{name}.{dtype}.{precision}"
                    _check_figure(f"{place}: {own}", rate)
                    if precision not in tables[other].get(dtype, {}):
                        raise InputError(
                            f"{place}: {own}",
                            f"has no rate for the same dtype and precision in {other}",
                            "give both or neither",
                        )

    def rate(self, dtype: str, precision: str) -> float:
        """Peak real operations a second; raises where the profile has none for the pair."""
        rates = self.flop_per_s.get(dtype, {})
        if not isinstance(precision, str) or precision not in rates:
            known = ", ".join(sorted(rates)) or "none"
            raise InputError(
                f"profile {self.name}: flop_per_s.{dtype}",
                f"has no precision {precision!r}",
                f"choose another precision (it has: {known}) or profile",
            )
        return rates[precision]

    def link(self, devices: int) -> Tier:
        """The fastest tier that so many devices share, or the slowest of all."""
        reaching = [tier for tier in self.tiers if not tier.devices or tier.devices >= devices]
        return (reaching or self.tiers[-1:])[0]

    def codec(self, setting: str) -> CodecRates:
        """The figures of a codec; raises where the profile has none."""
        if setting not in self.codecs:
            known = ", ".join(sorted(self.codecs)) or "none"
            raise InputError(
                f"profile {self.name}: codecs", f"has no codec {setting!r}",
                f"add a table [codecs.{setting}], or choose another setting (it has: {known}) or profile",
            )  # fmt: skip
        return self.codecs[setting]

    def over(self, algebra: str, dtype: str, share: float) -> Profile:
        """The profile for contractions over an algebra in a dtype: without chains, which sum in numbers.

        Its products have the rates that the profile knows for them, else `share` of the dtype's.
        """
        rates, tables = self.flop_per_s.get(dtype, {}), (self.gemm_curves, self.scattered_curves)
        measured = self.algebras.get(algebra, {}).get(dtype)
        if measured is None:
            flop_per_s = {name: share * rate for name, rate in rates.items()}
            curves = [
                {name: replace(curve, flop_per_s=tuple(share * rate for rate in curve.flop_per_s))
                 for name, curve in table.get(dtype, {}).items()} for table in tables
            ]  # fmt: skip
        else:
            flop_per_s = dict.fromkeys(rates, max(measured.flop_per_s))
            both = measured.flop_per_s, measured.scattered_flop_per_s
            curves = [dict.fromkeys(rates, GemmCurve(measured.k, each)) for each in both]
        direct, scattered = ({**table, dtype: own} for table, own in zip(tables, curves, strict=True))
        return replace(
            self,
            fused_bytes=0,
            flop_per_s={**self.flop_per_s, dtype: flop_per_s},
            gemm_curves=direct,
            scattered_curves=scattered,
        )

    def document(self) -> dict[str, Any]:
        """The profile as it is embedded in a schedule."""
        document: dict[str, Any] = plain(self)
        # Invariant: a profile without these rates has the document, and so the identity, that it always had.
        if self.recorded is None:
            del document["recorded"]
        return document


def profile_text(profile: Profile) -> str:
    """The profile as TOML, which `load_profile` reads again; figures to six digits, whole numbers in full."""
    import tomli_w

    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: rounded(item) for key, item in value.items() if item not in ({}, [], ())}
        if isinstance(value, list | tuple):
            return [rounded(item) for item in value]
        if isinstance(value, float) and not value.is_integer():
            return float(f"{value:.6g}")
        return value

    return tomli_w.dumps(rounded(profile.document()))


@cache
def shipped_profiles() -> tuple[str, ...]:
    """The names of the profiles that come with the package."""
    names = [entry.name for entry in resources.files("tnplan.planner.hardware").iterdir()]
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


def load_profile(name: str | Path) -> Profile:
    """Read a hardware profile.

    Parameters
    ----------
    name : str or path
        A shipped profile, such as "cpu" or "dgx-h100", or a TOML file (docs/reference/hardware.md).

    Returns
    -------
    Profile
        The profile.

    Raises
    ------
    InputError
        For an unknown name, or a file that cannot be read or is no profile.

    Examples
    --------
    >>> tnplan.load_profile("dgx-h100")
    Profile(dgx-h100: 74.5 GiB per device, tiers nvlink, infiniband)
    """
    if str(name) in shipped_profiles():
        return _shipped_profile(str(name))
    try:
        os.stat(file_path(name))
    except OSError as error:
        known = ", ".join(shipped_profiles())
        raise InputError(
            "--hardware",
            f"{str(name)!r} is not a profile, and cannot be read as a file ({error.strerror})",
            f"choose from {known}, or a TOML file",
        ) from None
    return _parsed(read_text(name, "a TOML file"), str(name))


def known_profile(hardware: Profile | str | Path) -> Profile:
    """A profile as given, or a shipped one by name, or one from a TOML file."""
    return hardware if isinstance(hardware, Profile) else load_profile(hardware)


@lru_cache(32)
def _shipped_profile(name: str) -> Profile:
    """A profile of the package, parsed once: every plan of a contraction needs one."""
    text = (resources.files("tnplan.planner.hardware") / f"{name}.toml").read_text(encoding="utf-8")
    return _parsed(text, name)


def _parsed(text: str, place: str) -> Profile:
    """The profile that a TOML text is."""
    try:
        return profile_from_document(tomllib.loads(text), place)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(place, f"not TOML ({error})", "correct the file") from None
    except RecursionError:
        raise InputError(place, "is nested too deeply to be read", "give a flatter file") from None


def profile_from_document(document: dict[str, Any], place: str) -> Profile:
    """Build a profile from its document, naming `place` in errors."""
    import msgspec

    _check_fields(document, Profile, place)
    tiers = document.get("tiers")
    for number, tier in enumerate(tiers if isinstance(tiers, list | tuple) else ()):
        _check_fields(tier, Tier, f"{place}: tiers[{number}]")
    _check_fields(document.get("recorded"), RecordedRates, f"{place}: recorded")
    codecs = document.get("codecs")
    for name, codec in codecs.items() if isinstance(codecs, dict) else ():
        _check_fields(codec, CodecRates, f"{place}: codecs.{name}")
    try:
        profile: Profile = converted(document, Profile)
    except msgspec.ValidationError as error:
        wrong = error.__cause__
        if isinstance(wrong, InputError):
            raise InputError(f"{place}: {wrong.place}", wrong.problem, wrong.remedy) from None
        raise InputError(
            place, f"not a hardware profile: {error}", "see docs/reference/hardware.md for its fields"
        ) from None
    return profile


def _check_fields(table: Any, kind: type, place: str) -> None:
    """Refuse unknown fields; what is no table at all is refused later."""
    known = [item.name for item in fields(kind)]
    for name in table if isinstance(table, dict) else ():
        if name not in known:
            raise InputError(
                f"{place}: {name}", "is not a field of a profile", f"choose from {', '.join(known)}"
            )


def _check_figure(place: str, value: float, *, zero: bool = False) -> None:
    if not (value > 0 or (zero and value == 0)) or not isfinite(value):
        raise InputError(place, f"is {value}", f"give a finite figure{', 0 or more' if zero else ' above 0'}")


def _check_curve(place: str, points: tuple[float, ...], rates: tuple[float, ...]) -> None:
    """A curve has as many rates as points, and its points rise."""
    if not points or len(points) != len(rates):
        raise InputError(
            place, f"has {len(points)} points and {len(rates)} rates", "give a rate for every point"
        )
    for value in (*points, *rates):
        _check_figure(place, value)
    if any(second <= first for first, second in pairwise(points)):
        raise InputError(place, f"has the points {', '.join(map(str, points))}", "give rising points")
