"""The kernels of chains that a GPU does not have yet, and when they are compiled."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from math import ceil

from tnplan.executor.device.cpu.host_memory import cores
from tnplan.executor.device.protocols.device import FusedShape

KERNEL_S = 0.33
"""Seconds that a core compiles a kernel of a chain, on the host of an H100."""


class MissingKernels:
    """The kernels of chains on a GPU that its cache does not have.

    Parameters
    ----------
    chains : iterable of tuple of FusedShape and str
        The chains, each with its precision.
    dtype : str
        Of their tensors.
    capacity_bytes : int
        Of a tile, as the profile has it.
    gpu : int
        The GPU of this process.
    """

    def __init__(
        self, chains: Iterable[tuple[FusedShape, str]], dtype: str, capacity_bytes: int, gpu: int
    ) -> None:
        from tnplan.executor.device.cuda.fused.chain import chain_kernels
        from tnplan.executor.device.cuda.runtime.kernel_cache import is_kept, may_compile

        self._gpu = gpu
        self._begun: list[Future[bytes]] | None = None
        kernels = {repr(kernel): kernel for kernel in chain_kernels(chains, dtype, capacity_bytes)}
        self._missing = [kernel for kernel in kernels.values() if not is_kept(*kernel, gpu)]
        self.may_compile = may_compile()

    def __len__(self) -> int:
        return len(self._missing)

    @property
    def wait_s(self) -> float:
        """Seconds until all are compiled, on the cores of this process."""
        return KERNEL_S * ceil(len(self) / cores())

    def are_ready(self) -> bool:
        """Whether all are compiled by now; the first call begins with them, in threads.

        Raises what ended the compilation of one.
        """
        if self._begun is None:
            from tnplan.executor.device.cuda.runtime.kernel_cache import compile_soon

            self._begun = compile_soon(self._missing, self._gpu)
        ended = [future for future in self._begun if future.done()]
        for future in ended:
            future.result()
        return len(ended) == len(self._begun)
