"""Arrays within compiled code that count no references. Imports numba late."""

from __future__ import annotations

from typing import Any


def unowned_views() -> Any:
    """A function for compiled code: an array to the same one, which holds no reference to its memory.

    Functions that take arrays count references to them, which costs as much as 32 numbers in the innermost
    loops. The memory must belong to an argument of the outermost compiled function.
    """
    from numba.core import cgutils
    from numba.extending import intrinsic

    @intrinsic
    def unowned(_: Any, array: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            given = context.make_array(array)(context, builder, arguments[0])
            made = context.make_array(array)(context, builder)
            for field in ("data", "shape", "strides", "itemsize", "nitems"):
                setattr(made, field, getattr(given, field))
            made.meminfo = cgutils.get_null_value(made.meminfo.type)
            made.parent = cgutils.get_null_value(made.parent.type)
            return made._getvalue()

        return array(array), generate

    return unowned
