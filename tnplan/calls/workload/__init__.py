"""Benchmark networks, each from its geometry and a seed, with the values of its tensors.

One function for each command of `tnplan workload`. docs/how-to/workloads.md says where they come from.
"""

from tnplan.calls.workload.circuits import ansatz, ising, lattice, loschmidt, qaoa, sycamore, zuchongzhi
from tnplan.calls.workload.networks import decoding, kings, peps, regular

TOPIC = "workloads"
"""What the errors of these modules are about, where one says no topic of its own."""

__all__ = [
    "ansatz", "decoding", "ising", "kings", "lattice", "loschmidt", "peps", "qaoa", "regular", "sycamore",
    "zuchongzhi",
]  # fmt: skip


def __dir__() -> list[str]:
    return list(__all__)
