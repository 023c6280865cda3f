"""The CUDA device over an algebra: what the other adds or multiplies, this one does as the algebra.

Copies, loads, exchanges and the arena are those of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from tnplan.executor.device.cpu.algebra import Algebra, Modular
from tnplan.executor.device.cuda.algebra.kernels import AlgebraKernels, scratch_bytes
from tnplan.executor.device.cuda.contract import Product
from tnplan.executor.device.cuda.device import CupyDevice, CupyInputBlock
from tnplan.executor.device.protocols.copy import Copy
from tnplan.executor.device.protocols.device import Call, ContractShape, nothing

Array = Any
"""A flat cupy.ndarray over the arena."""


class AlgebraInputBlock(CupyInputBlock):
    """Inputs, with which the modulus of the algebra is sent: it may change between runs."""

    send_modulus: Call

    def send(self) -> None:
        """Copy what was set, and the modulus."""
        self.send_modulus()
        super().send()


class AlgebraCupyDevice(CupyDevice):
    """A GPU on which schedules without chains are carried out over an algebra."""

    runs_calls_together = False  # products share scratch memory

    def __init__(self, algebra: Algebra, device_id: int, has_neighbours: bool = False) -> None:
        super().__init__(device_id, has_neighbours)
        self._algebra = algebra
        self._modulus = cupy.ndarray(1, np.float64)
        self._sent: float | None = None
        self._kernels = AlgebraKernels(algebra.name, self._modulus.data.ptr, self.stream, self.scratch)
        self.send_modulus()

    def send_modulus(self) -> None:
        """Have the modulus of the algebra on the GPU for the work that follows."""
        value = float(self._algebra.modulus[0]) if isinstance(self._algebra, Modular) else 1.0
        if value == self._sent:
            return
        host = np.array([value])
        runtime.memcpyAsync(
            self._modulus.data.ptr, host.ctypes.data, host.nbytes, runtime.memcpyHostToDevice, self.stream.ptr
        )
        # The array lives until it is read.
        self.stream.synchronize()
        self._sent = value

    def input_block(self, counts: Sequence[int], dtype: str) -> CupyInputBlock:
        """A block of memory, and pinned memory of its size on the host."""
        block = AlgebraInputBlock(counts, dtype, self.device_id, self.stream)
        block.send_modulus = self.send_modulus
        self.peak_bytes += block.size_bytes
        return block

    def zero(self, target: Array) -> None:
        """Fill with what adds nothing."""
        self._kernels.fill(target)

    def bind_copy(
        self, target: Array, source: Array, copy: Copy, target_start: int = 0, source_start: int = 0,
        rows: tuple[int, int] | None = None, add: bool = False,
    ) -> Call:  # fmt: skip
        """Copy a box, or add it as the algebra does."""
        if add:
            return self._kernels.bind_add(target[target_start:], source[source_start:], copy, rows)
        return super().bind_copy(target, source, copy, target_start, source_start, rows)

    def bind_accumulate(self, target: Array, source: Array) -> Call:
        """Add the source to the target."""
        return self._kernels.bind_add(target, source, Copy((), (), target.size)) if target.size else nothing

    def bind_add_block(self, target: Array, source: Array, start: Callable[[], int]) -> Call:
        """Add the source to the block of its length that begins at element `start()` of the target."""
        bound: dict[int, Call] = {}

        def run() -> None:
            first = start()
            if first not in bound:
                bound[first] = self.bind_accumulate(target[first : first + source.size], source)
            bound[first]()

        return run if source.size else nothing

    def bind_sum(
        self, target: Array, source: Array, extents: tuple[int, ...], in_target: tuple[bool, ...]
    ) -> Call:
        """Sum over axes."""
        return self._kernels.bind_sum(target, source, extents, in_target)

    def bind_contract(
        self, shape: ContractShape, a: Array, b: Array, c: Array, workspace: Array | None,
        precision: str = "fp32", engine: str = "gemm",
    ) -> Call:  # fmt: skip
        """A batched product: there is one precision, and one engine."""
        return self._kernels.bind_contract(Product(shape, a, b, c, self.stream), workspace)

    def prepare_contract(self, products: Iterable[tuple[ContractShape, str, str]], dtype: str) -> None:
        """Take the scratch memory of the product that needs most, as far as it is known."""
        self.scratch(scratch_bytes(products, dtype))
