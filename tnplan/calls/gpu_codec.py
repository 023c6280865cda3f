"""`gpu_codec`: CuPy's arrays in `tnplan.compress`."""

from __future__ import annotations

from tnplan.common.errors import InputError
from tnplan.compress.gpu.device import KernelDevice

TOPIC = "compression"
"""What the errors of this module are about, where one says no topic of its own."""


def gpu_codec() -> KernelDevice:
    """Let `tnplan.compress` work on GPUs, through CuPy.

    From then on `compress` and `decompress` take CuPy arrays, and leave the results on their GPU.

    Returns
    -------
    KernelDevice
        What `compress` and `decompress` take as `device`, for NumPy's arrays and bytes of the host.

    Raises
    ------
    InputError
        Where CuPy is not installed.

    Examples
    --------
    >>> packed = tnplan.compress.compress(array, 1e-3, device=tnplan.gpu_codec())  # doctest: +SKIP
    """
    try:
        from tnplan.executor.device.cuda.array_codec import CupyCodec
    except ImportError as error:
        raise InputError(
            "gpu_codec", f"needs CuPy ({error})", "install it with: pip install 'tnplan[gpu]'",
            topic="installation",
        ) from None
    return CupyCodec()
