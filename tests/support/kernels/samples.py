"""What is compiled ahead, compared with what is called."""

from __future__ import annotations

from tnplan.common.kernels.ahead import Sample
from tnplan.common.kernels.kernel import argument_types


def check_called(samples: list[Sample]) -> None:
    """Each kernel has been called with the types of its sample and no others of this precision."""
    wanted: dict[object, set[tuple[object, ...]]] = {}
    for kernel, arguments in samples:
        wanted.setdefault(kernel, set()).add(argument_types(*arguments))
    for kernel, types in wanted.items():
        assert types == set(kernel.loaded), kernel.function.__name__  # type: ignore[attr-defined]


def forget(samples: list[Sample]) -> None:
    """As though none had been called."""
    for kernel, _ in samples:
        kernel.loaded.clear()
