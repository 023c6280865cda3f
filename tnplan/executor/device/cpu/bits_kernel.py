"""What kernels over packed bits share: how they are compiled, and the count of set bits."""

from __future__ import annotations

import numpy as np

from tnplan.common.kernels.bits_kernel import count_bits as count_bits
from tnplan.common.kernels.kernel import kernel

ONE = np.uint64(1)

jit = kernel(nogil=True, error_model="numpy")
inline = kernel(nogil=True, error_model="numpy", inline="always")
