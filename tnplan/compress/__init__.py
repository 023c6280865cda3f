"""Error-bounded codecs for arrays. Imports neither the planner nor the executor.

    packed = tnplan.compress.compress(array, 1e-3)
    again = tnplan.compress.decompress(packed.data)

The names below are the interface; docs/explanation/compression.md says what they promise.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tnplan.compress.cpu.codec import Compressed, compress_into, decompress_into, worst_size_bytes
    from tnplan.compress.format.errors import CodecError, StreamError
    from tnplan.compress.interface import compress, decompress

__all__ = [
    "CodecError",
    "Compressed",
    "StreamError",
    "compress",
    "compress_into",
    "decompress",
    "decompress_into",
    "worst_size_bytes",
]

_MODULES = {
    **dict.fromkeys(("Compressed", "compress_into", "decompress_into", "worst_size_bytes"), "cpu.codec"),
    **dict.fromkeys(("CodecError", "StreamError"), "format.errors"),
    **dict.fromkeys(("compress", "decompress"), "interface"),
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: contractions need the format alone."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    """The interface."""
    return __all__
