"""A process that compiles kernels: python -m ... .compiled.worker MODULE FUNCTION ARGUMENTS.

The function, called with the other arguments, gives the kernels with arguments of their types.
"""

from __future__ import annotations

import sys
from importlib import import_module

from tnplan.executor.device.cpu.compiled.ahead import Sample
from tnplan.executor.device.cpu.compiled.kernel import argument_types
from tnplan.executor.device.cpu.compiled.object_cache import find_object


def compile_missing(samples: list[Sample]) -> int:
    """Compile those kernels that are not in the cache; return how many."""
    count = 0
    for kernel, arguments in samples:
        types = argument_types(*arguments)
        if find_object(kernel, types) is None:
            from tnplan.executor.device.cpu.compiled.compile_kernel import compile_and_keep

            compile_and_keep(kernel, types)
            count += 1
    return count


def main() -> None:
    """Compile what the command line names."""
    module, function, *arguments = sys.argv[1:]
    compile_missing(getattr(import_module(module), function)(*arguments))


if __name__ == "__main__":
    main()
