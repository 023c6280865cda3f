"""The errors that codecs raise."""

from __future__ import annotations

PAGE = "docs/explanation/compression.md#the-bound"
"""Explains bounds and settings. A traceback names it below the message."""


class CodecError(ValueError):
    """An array, a bound or an option that cannot be used.

    Parameters
    ----------
    place, problem, remedy : str
        Where, what is wrong, and what to do about it; the message is one line of them.

    Examples
    --------
    >>> print(CodecError("bound", "is -1", "give 0 or more"))
    bound: is -1; give 0 or more
    """

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        super().__init__(f"{place}: {problem}; {remedy}")
        self.place = place
        self.problem = problem
        self.remedy = remedy
        self.add_note(f"See {PAGE}")


class StreamError(CodecError):
    """A compressed stream that is truncated, corrupted, foreign or of another version.

    Examples
    --------
    >>> try:
    ...     tnplan.compress.decompress(b"no stream")
    ... except StreamError as error:
    ...     print(error.place)
    stream
    """


class HostOnlyError(CodecError):
    """A stream with frames that only the host can read: without loss, or in its adaptive coder."""
