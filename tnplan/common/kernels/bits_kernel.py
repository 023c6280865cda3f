"""The count of set bits of a word, for kernels."""

from __future__ import annotations

from typing import Any

from tnplan.common.kernels.kernel import Late


def _count_bits() -> Any:
    """How many bits of a 64-bit word are set."""
    from numba import types
    from numba.extending import intrinsic

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    def count_bits(typing_context: Any, word: Any) -> tuple[Any, Any]:
        return types.int64(types.uint64), generate

    return intrinsic(count_bits)


count_bits: Any = Late(_count_bits)
