"""Exponents of two on a device: what it gives to keep tensors within the range of their type.

Knows flat views and slots; not what a tensor stands for. Nothing here makes the host wait but `total` of
`bind_total`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tnplan.executor.device.protocols.device import Call, View

ZERO = -0x7F7F7F80
"""The exponent of a tensor of zeros. All its bytes are equal, and no sum with it comes above half of it."""
ZERO_BYTE = 0x80


class Exponents(Protocol):
    """Slots with an integer each, all ZERO at first, and calls that scale tensors and write how much there.

    Tensors stand for their values times 2 to the sum of some slots. Scaling by a power of two rounds nothing
    but what leaves the range at its lower end. A tensor with values that are not finite stays as it is. Calls
    are made one after the other, and while this object lives.

    Examples
    --------
    >>> import numpy as np
    >>> from tnplan.executor.device.cpu.device import NumpyDevice
    >>> device = NumpyDevice()
    >>> device.allocate(16)
    >>> values = device.view(0, 2, "float64")
    >>> device.from_host(values, np.array([3.0, -6.0]))
    >>> exponents = device.exponents(1, "float64")
    >>> exponents.bind_normalize([values], [0])()
    >>> send, total = exponents.bind_total([0])
    >>> send()
    >>> device.to_host(values).tolist(), total()
    ([0.375, -0.75], 3)
    """

    def bind_normalize(self, views: Sequence[View], slots: Sequence[int], tolerated_bits: int = 0) -> Call:
        """Bind the scaling of tensors until their largest part, of real and imaginary ones, is from 0.5 to 1.

        Parameters
        ----------
        views
            Flat views, each with its own slot.
        slots
            Get p where the values were multiplied by 2^-p, ZERO where all of them are zero.
        tolerated_bits
            Tensors with a p of this size at most stay as they are, and their slots get 0.
        """

    def bind_clear(self, slot: int) -> Call:
        """Bind the writing of ZERO to a slot: a sum begins, whose tensor is zero."""

    def bind_accumulate(self, target: View, source: View, slot: int, terms: Sequence[int]) -> Call:
        """Bind the sum target += source, where both stand for multiples.

        Parameters
        ----------
        target, source
            Flat views of one length. The source is not changed.
        slot
            The exponent of the target, which becomes that of the sum.
        terms
            The slots whose sum is the exponent of the source.
        """

    def bind_aligned(self, target: View, factor: View, slot: int, terms: Sequence[int], call: Call) -> Call:
        """Bind a call that adds to the target a product of tensors.

        Parameters
        ----------
        target
            A flat view.
        factor
            One of the tensors, which is scaled for the call, and is as before afterwards.
        slot
            The exponent of the target, which becomes that of the sum.
        terms
            The slots whose sum is the exponent of the product.
        call
            Adds the product.
        """

    def bind_total(self, slots: Sequence[int]) -> tuple[Call, Callable[[], int]]:
        """Bind the sending of slots to the host.

        Parameters
        ----------
        slots
            Those of which a tensor's exponent is the sum.

        Returns
        -------
        send : callable
            Sends what they hold by then.
        total : callable
            The sum of what was sent last, 0 for a tensor of zeros; waits for the work before.
        """
