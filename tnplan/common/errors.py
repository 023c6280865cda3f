"""The errors of every floor of the house: bad input, kinds of it that plans tell apart, and failed writes.

Also the one place that turns the topic of a message into the address of the page that explains it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

Built = TypeVar("Built")
DOCS = "docs/"
"""Where the pages are: in the repository, and with .html for .md in the site that `make docs` builds."""
PAGES = {
    "installation": "reference/support.md#extras",
    "checkpoints": "how-to/resuming.md#what-is-refused",
    "compiled kernels": "how-to/cluster.md#kernels",
    "equal builds": "how-to/cluster.md#mpi",
    "files that cannot be written": "how-to/running.md#exit-statuses",
    "cuTENSOR": "how-to/cutensor.md#limits",
    "compression": "explanation/compression.md#the-bound",
    "compressed exchanges": "explanation/compression.md#in-the-executor",
    "precision": "how-to/memory-and-precision.md#which-precision",
    "memory": "how-to/memory-and-precision.md#what-to-do-when-it-does-not-fit",
    "GPUs": "how-to/running.md#on-gpus",
    "ranks": "how-to/running.md#under-mpi",
    "hardware profiles": "reference/hardware.md#fields",
    "reports": "reference/report.md#what-is-compared",
    "searches": "explanation/search.md#how-to-use-it",
    "workloads": "how-to/workloads.md",
    "circuits": "how-to/circuits.md",
    "questions about circuits": "how-to/questions.md#what-is-given",
    "state vectors": "explanation/statevector.md#what-you-can-ask",
    "Pauli propagation": "explanation/pauli.md#how-to-use-it",
    "molecules": "explanation/sbd.md#files",
    "selected determinants": "how-to/selected-ci.md",
    "qubit Hamiltonians": "how-to/skqd.md#inputs",
    "samples of a molecule": "how-to/sqd.md",
    "algebras": "how-to/count.md#algebras",
    "counting and optimization": "how-to/count.md#what-is-asked",
    "contractions in Python": "how-to/contract.md#what-contract-takes",
    "bond limits": "how-to/bond-limit.md",
    "files of networks and schedules": "reference/formats.md",
    "other messages": "reference/troubleshooting.md",
}
"""The page of each topic, and its heading. `make docs` fails where the site lacks one."""

OPTIONS = {
    "--base": "hardware profiles", "--compress": "compressed exchanges", "--device": "GPUs",
    "--engine": "cuTENSOR", "--hardware": "hardware profiles", "--memory": "memory",
    "--precision": "precision", "--resume": "checkpoints", "--timeout": "ranks",
}  # fmt: skip
"""The topics of options, whichever module refuses their values."""


def page_of(topic: str | None) -> str:
    """The address of the page on a topic; without one, that of the module that raises, or of its package.

    Such a topic is a constant `TOPIC` of a module or a package: what its errors are about where they state
    none. Where the raising function has none, as in `tnplan.common`, its callers' counts.
    """
    frame: FrameType | None = sys._getframe(1)
    while topic is None and frame is not None:
        name = frame.f_globals.get("__name__", "")
        while topic is None and name.startswith("tnplan"):
            topic = getattr(sys.modules.get(name), "TOPIC", None)
            name = name.rpartition(".")[0]
        frame = frame.f_back
    return DOCS + PAGES[topic or "other messages"]


KEYWORDS = {
    "beta": "betas", "carryover": "carry", "carryover-missing": "missing", "carryover-ratio": "ratio",
    "epsilon": "epsilons", "from": "start", "gamma": "gammas", "grow-to": "determinants",
    "min-coefficient": "merged_cut", "no-checkpoint": "checkpoint=False", "no-flips": "flips=False",
    "no-spin-orbitals": "spin_orbitals=False", "open": "open_qubits", "resample-by": "by",
    "set": "parameters", "spin-weight": "weight", "stabilizers": "state",
}  # fmt: skip
"""Options of commands whose keyword in Python has another name; those of others differ in dashes alone."""
_COMMAND_OR_OPTION = re.compile(r"'tnplan [^']*'|\bsrun --\S+|(?<![\w-])--([a-z][a-z0-9-]*)")


def in_python(message: str) -> str:
    """A message, written with the options of commands, with the keywords of Python's calls instead.

    Commands in quotation marks stay as they are.

    Examples
    --------
    >>> in_python("--max-terms: is 0; see 'tnplan pauli --help'")
    "max_terms: is 0; see 'tnplan pauli --help'"
    """
    return _COMMAND_OR_OPTION.sub(
        lambda match: KEYWORDS.get(match[1], match[1].replace("-", "_")) if match[1] else match[0], message
    )


LONGEST = 600
"""Characters of a problem; of a longer one the middle is left out."""


class InputError(ValueError):
    """A file, an option or a value that cannot be used.

    Python shows it with the keywords of its calls. The command line prints `line`, with its own options and
    the page of the documents that explains it, and exits with status 2. A traceback names the page below the
    message.

    Parameters
    ----------
    place : str
        Where: a file and the field in it, a step, or an option, named as on the command line.
    problem : str
        What is wrong with which value.
    remedy : str
        What to do about it.
    page : str, optional
        The address of the page that explains it; by default that of its topic.
    topic : str, optional
        A key of `PAGES`; by default that of the option `place`, or else of the module that raises it.

    Examples
    --------
    >>> try:
    ...     tnplan.load_profile("abacus")
    ... except tnplan.InputError as error:
    ...     print(error.place, "is explained at", error.page)
    --hardware is explained at docs/reference/hardware.md#fields
    """

    def __init__(
        self, place: str, problem: str, remedy: str, page: str | None = None, topic: str | None = None
    ) -> None:
        # Arrays show as several lines.
        place, problem = (" ".join(text.split()) if "\n" in text else text for text in (place, problem))
        if len(problem) > LONGEST:  # a list or an array of a user
            problem = f"{problem[: LONGEST // 2]} ... {problem[-LONGEST // 2 :]}"
        super().__init__(in_python(f"{place}: {problem}; {remedy}"))
        self.place = place
        self.problem = problem
        self.remedy = remedy
        self.page = page or page_of(topic or OPTIONS.get(place.partition(" ")[0]))
        self.add_note(f"See {self.page}")

    @property
    def text(self) -> str:
        """The message with the options of the command line."""
        return f"{self.place}: {self.problem}; {self.remedy}"

    @property
    def line(self) -> str:
        """What the command line prints: its message and the page, unless the remedy names one."""
        return self.text if DOCS in self.remedy else f"{self.text} (see {self.page})"


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


def failure_text(error: BaseException) -> str:
    """What to say of a failure that nothing has foreseen: of a call of the system its file and a remedy."""
    if not isinstance(error, OSError) or isinstance(error, WriteError) or not error.strerror:
        return f"{type(error).__name__}: {error}"
    place = "a file or a connection" if error.filename is None else error.filename
    return f"{place}: cannot be used ({error.strerror}); check its permissions and the disk, and start again"


def located(place: str, build: Callable[[], Built]) -> Built:
    """Call `build`; its input errors come out with `place`, usually a file, in front of their place."""
    try:
        return build()
    except InputError as error:
        raise InputError(f"{place}: {error.place}", error.problem, error.remedy, error.page) from None
