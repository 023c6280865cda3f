"""Inputs whose values change between runs: what a device gives for them. Knows no device."""

from __future__ import annotations

from typing import Any, Protocol


class InputBlock(Protocol):
    """Flat views of a device for the inputs of a program, outside its arena.

    Attributes
    ----------
    views : list of flat views
        Row-major values of one dtype, as many as each input has.
    """

    views: list[Any]

    def set(self, number: int, values: Any) -> None:
        """Give an input new values.

        Parameters
        ----------
        number : int
            The input.
        values : array or int
            Of the input's shape, on the host or on this device, with any strides; converted to the dtype. Or
            the address of contiguous values of the dtype on this device, which are read with `send`.
        """

    def send(self) -> None:
        """Have what was set on the device for the work that is given to it next."""
