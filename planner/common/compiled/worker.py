"""A process that compiles kernels: python -m tnplan.planner.common.compiled.worker MODULE FUNCTION ...

The function, called with the other arguments, gives the kernels with arguments of their types.
"""

from __future__ import annotations

import sys

from tnplan.planner.common.compiled.ahead import Samples, is_compiled


def compile_missing(samples: Samples) -> int:
    """Compile those kernels that are not in the cache; return how many."""
    missing = [sample for sample in samples.all() if not is_compiled(*sample)]
    for kernel, arguments in missing:
        from tnplan.planner.common.compiled.compile_kernel import compile_and_keep
        from tnplan.planner.common.compiled.kernel import argument_types

        compile_and_keep(kernel, argument_types(*arguments))
    return len(missing)


if __name__ == "__main__":
    compile_missing(Samples(sys.argv[1], sys.argv[2], tuple(sys.argv[3:])))
