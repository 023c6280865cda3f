"""What `execute` gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tnplan.common.units import time_text


@dataclass(frozen=True, eq=False, repr=False)
class ExecutionResult:
    """What `execute` gives.

    Parameters
    ----------
    array : array or None
        The result, with the axes of the schedule's output. None on ranks other than 0, and where the result
        is sharded.
    report : dict
        The document of result.json (docs/reference/formats.md), on every rank.

    Examples
    --------
    >>> tnplan.ExecutionResult(np.ones((2, 2)), {"measured": {"run_s": 0.5}})
    ExecutionResult(float64 array of shape (2, 2), 500 ms)
    """

    array: NDArray[Any] | None
    report: dict[str, Any]

    def __repr__(self) -> str:
        array = "no array" if self.array is None else f"{self.array.dtype} array of shape {self.array.shape}"
        return f"ExecutionResult({array}, {time_text(self.report['measured']['run_s'])})"
