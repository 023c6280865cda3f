"""Error-bounded codecs for arrays. Imports neither the planner nor the executor.

    packed = tnplan.compress.compress(array, 1e-3)
    again = tnplan.compress.decompress(packed.data)

The names below are the interface; docs/compression.md says what they promise.
"""

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
