"""Numbers as people read and write them: bytes, seconds, rates and large figures."""

from __future__ import annotations

import re
from math import floor, inf, log10

from tnplan.common.errors import InputError

UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
"""Bytes of a unit."""
LARGEST = 2**100
"""No size or count that people write is larger."""
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def size_in_bytes(size: float | str, place: str, *, unlimited: bool = True) -> float:
    """Bytes: a number as it is, or text such as '1.5GiB' or, with `unlimited`, 'unlimited' (infinity).

    Raises InputError at `place` for text that is no size.
    """
    if not isinstance(size, str):
        return size
    text = size.strip()
    if unlimited and text.lower() == "unlimited":
        return inf
    # At most 30 digits each: the time of a match and the size of the number are bounded for any text.
    match = re.fullmatch(r"([0-9]{1,30}(?:\.[0-9]{1,30})?) ?([kmgt]i?b|b)?", text, re.IGNORECASE)
    if match is not None:
        size_bytes = round(float(match[1]) * UNITS[(match[2] or "").lower()])
        if 1 <= size_bytes <= LARGEST:
            return size_bytes
    more = ", or unlimited" if unlimited else ""
    raise InputError(
        place, f"{text!r} is not a size",
        f"write bytes, or a number with KiB, MiB, GiB, TiB, kB, MB, GB or TB{more}",
    )  # fmt: skip


def size_text(size_bytes: float) -> str:
    """Bytes with a binary unit: 1536 -> '1.50 KiB'."""
    if size_bytes == inf:
        return "unlimited"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if round(abs(size_bytes)) < 1024 or unit == "EiB":
            break
        size_bytes /= 1024
    if abs(size_bytes) >= 1e5:
        return f"{scientific(size_bytes)} {unit}"
    return f"{size_bytes:.0f} B" if unit == "B" else f"{_three_digits(size_bytes)} {unit}"


def time_text(time_s: float) -> str:
    """Seconds in the unit that suits them: 0.0032 -> '3.20 ms', 90000 -> '25.0 h'."""
    if time_s == 0:
        return "0 s"
    for limit, scale, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1, 1e3, "ms"), (600, 1, "s")):
        if time_s < limit:
            return f"{_three_digits(time_s * scale)} {unit}"
    for limit, scale, unit in ((7200, 60, "min"), (2 * 86400, 3600, "h"), (2 * 31557600, 86400, "days")):
        if time_s < limit:
            return f"{_three_digits(time_s / scale)} {unit}"
    years = time_s / 31557600
    return f"{figure_text(years)} years"


def figure_text(value: float) -> str:
    """A pure number in three digits, whole ones below 10⁵ in full: 0.987, 41.8, 5,320, 6.79 × 10⁴."""
    if isinstance(value, int) and abs(value) < 1e5:
        return f"{value:,}"
    if value and (abs(value) >= 1e5 or abs(value) < 1e-2):
        return scientific(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else _three_digits(value)


def count_text(count: int, singular: str, plural_form: str) -> str:
    """How many of something there are: '1 slice', '12 slices'."""
    return f"{figure_text(count)} {singular if count == 1 else plural_form}"


def plural(count: int, singular: str, plural_form: str) -> str:
    """How many of something there are, every digit: '1 term', '12345 terms'."""
    return f"{count} {singular if count == 1 else plural_form}"


def scientific(value: float) -> str:
    """A number as '6.79 × 10⁴'."""
    if value == 0:
        return "0"
    exponent = floor(log10(abs(value)))
    try:
        mantissa = f"{value / 10.0**exponent:.2f}"
    except OverflowError:  # an integer beyond floating point
        mantissa = f"{10.0 ** (log10(abs(value)) - exponent):.2f}"
    if mantissa.lstrip("-") == "10.00":
        mantissa, exponent = mantissa.replace("10.00", "1.00"), exponent + 1
    return f"{mantissa} \u00d7 {power_text(exponent)}"


def power_text(exponent: int) -> str:
    """A power of ten: 4 -> '10⁴'."""
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


def percent_text(share: float) -> str:
    """A share as a percentage: 0.0461 -> '4.6 %'."""
    return f"{100 * share:.1f} %"


def rate_text(per_second: float, unit: str) -> str:
    """A rate with the prefix that suits it: 3.2e9 and "B/s" -> '3.20 GB/s'."""
    for prefix in ("", "k", "M", "G", "T", "P", "E"):
        if abs(per_second) < 999.5 or prefix == "E":
            break
        per_second /= 1000
    return f"{_three_digits(per_second)} {prefix}{unit}"


def _three_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"
