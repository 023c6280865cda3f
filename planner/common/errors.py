"""The errors of every floor of the house: bad input, kinds of it that plans tell apart, and failed writes."""

from __future__ import annotations


class InputError(ValueError):
    """A file, an option or a value that cannot be used.

    The command line prints it as one line and exits with status 2.

    Parameters
    ----------
    place : str
        Where: a file and the field in it, an option, a step.
    problem : str
        What is wrong with which value.
    remedy : str
        What to do about it.

    Examples
    --------
    >>> try:
    ...     tnplan.load_profile("abacus")
    ... except tnplan.InputError as error:
    ...     print(error.place)
    --hardware
    """

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        super().__init__(f"{place}: {problem}; {remedy}")
        self.place = place
        self.problem = problem
        self.remedy = remedy


class OverLimitError(InputError):
    """A plan that needs more memory than a rank's limit, with which the problem ends."""


class NothingFitsError(InputError):
    """A projection none of whose paths fits on any of its numbers of devices."""


class WriteError(OSError):
    """A file that cannot be written once work is done: a failure while running, and not of the input.

    The command line prints it as one line and exits with status 1.

    Examples
    --------
    >>> issubclass(tnplan.WriteError, OSError)
    True
    """
