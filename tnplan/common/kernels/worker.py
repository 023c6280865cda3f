"""A process that compiles kernels: python -m tnplan.common.kernels.worker 'MODULE FUNCTION ...' ...

Of each argument the function, called with the words behind it, gives the kernels with arguments of their
types.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

from tnplan.common.cache_folder import locked_entry
from tnplan.common.kernels.ahead import Sample, Samples, end_with_parent, is_compiled
from tnplan.common.kernels.object_cache import objects_folder


def compile_missing(samples: Samples) -> int:
    """Compile those kernels that are not in the cache; return how many."""
    missing = _missing(samples)
    for kernel, arguments in missing:
        from tnplan.common.kernels.compile_kernel import compile_and_keep
        from tnplan.common.kernels.kernel import argument_types

        compile_and_keep(kernel, argument_types(*arguments))
    return len(missing)


def _missing(samples: Samples) -> list[Sample]:
    return [sample for sample in samples.all() if not is_compiled(*sample)]


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Modules imported inside do not find one that is not imported yet."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


def _prepare_numba() -> None:
    """Import numba as a process needs it that lives for seconds and multiplies no matrices."""
    gc.disable()
    # Numba takes a quarter of a second to find the matrix products in it, unless it has another such module.
    with suppress(ImportError), _without("scipy"):
        import numba.np.arraymath  # noqa: F401


if __name__ == "__main__":
    end_with_parent()
    folder = objects_folder()
    for words in sys.argv[1:]:
        module, function, *arguments = words.split()
        samples = Samples(module, function, tuple(arguments))
        # Of several processes that start at once one compiles; the others need not import numba for that.
        with nullcontext() if folder is None else locked_entry(folder, f"{words.replace(' ', '-')}.lock"):
            if _missing(samples):
                _prepare_numba()
                compile_missing(samples)
