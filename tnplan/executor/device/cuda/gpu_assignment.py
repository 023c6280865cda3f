"""Which GPU every rank takes, from what all ranks see. Pure: imports no GPU library and asks no device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tnplan.common.errors import InputError

PLACE = "--device gpu"


@dataclass(frozen=True)
class VisibleGpus:
    """The GPUs that a rank sees: identities that no two GPUs share, and architectures such as 'sm_90'."""

    host: str
    identities: tuple[str, ...]
    architectures: tuple[str, ...]


def assign(seen: Sequence[VisibleGpus], rank: int) -> int:
    """The number, among the GPUs that it sees, of the GPU for `rank`; raises InputError, for all ranks alike.

    Ranks that see the same GPUs take them in the order of their ranks, so that it does not matter whether a
    launcher shows every rank all GPUs of its host or one alone.
    """
    owner: dict[str, int] = {}
    numbers = []
    for own, gpus in enumerate(seen):
        number = sum(other.identities == gpus.identities for other in seen[:own])
        if number >= len(gpus.identities):
            beside = [other for other in seen if other.host == gpus.host]
            n_gpus = len({identity for other in beside for identity in other.identities})
            raise InputError(
                PLACE, f"{gpus.host} has {_count(n_gpus, 'GPU')} for {_count(len(beside), 'rank')}",
                "start one rank per GPU, or plan for fewer devices",
                topic="GPUs",
            )  # fmt: skip
        first = owner.setdefault(gpus.identities[number], own)
        if first != own:
            raise InputError(
                PLACE, f"ranks {first} and {own} would share a GPU of {gpus.host}",
                "let every rank of a host see the same GPUs, or each rank a different one",
                topic="GPUs",
            )  # fmt: skip
        numbers.append(number)
    kinds = {gpus.architectures[number]: gpus.host for gpus, number in zip(seen, numbers, strict=True)}
    if len(kinds) > 1:
        listed = ", ".join(f"{kind} on {host}" for kind, host in sorted(kinds.items()))
        raise InputError(
            PLACE, f"the ranks' GPUs are of different kinds ({listed})",
            "run on GPUs of one kind; CUDA_VISIBLE_DEVICES chooses them",
            topic="GPUs",
        )  # fmt: skip
    return numbers[rank]


def _count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"
