"""Contractions on a GPU, by cuBLAS, cuTENSOR and our own kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

from tnplan.executor.device.protocols.device import ContractShape


class Product(NamedTuple):
    """c = the sum over k of a times b on a stream: flat arrays of one type, stored as `shape` says."""

    shape: ContractShape
    a: Any
    b: Any
    c: Any
    stream: Any
