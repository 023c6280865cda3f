"""The errors that codecs raise."""

from __future__ import annotations


class CodecError(ValueError):
    """An array, a bound or an option that cannot be used: place, problem and remedy, as one line."""

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        super().__init__(f"{place}: {problem}; {remedy}")
        self.place = place
        self.problem = problem
        self.remedy = remedy


class StreamError(CodecError):
    """A compressed stream that is truncated, corrupted, foreign or of another version."""


class HostOnlyError(CodecError):
    """A stream with frames that only the host can read: those that a CPU stored without loss."""
