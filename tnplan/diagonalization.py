"""Selected-basis diagonalization from files or arrays to a result: `tnplan sbd` and `tnplan.diagonalize`.

Reads inputs, chooses the space, solves, measures and writes; the arithmetic is in executor/sbd.

Changelog of `tnplan.sbd`, the JSON beside a result:
1 (2026-11-21): first version.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from executor.sbd.carryover import carry_over
from executor.sbd.davidson import Criteria, Solution, Step
from executor.sbd.density import Densities, densities, occupations, string_weights
from executor.sbd.determinants import DeterminantList, ListHamiltonian, read_determinants
from executor.sbd.fcidump import read_fcidump
from executor.sbd.integrals import Integrals
from executor.sbd.product import ProductHamiltonian
from executor.sbd.solve import (
    Hamiltonian,
    SpinPenalty,
    as_product,
    fit_memory,
    predicted_bytes,
    solve,
)
from executor.sbd.spin import spin_square
from executor.sbd.strings import StringSet, from_integers, read_strings
from planner.errors import InputError
from planner.files import check_writable, write_file, write_text

if TYPE_CHECKING:
    Strings = StringSet | Sequence[int] | str | Path

Array = NDArray[Any]

FORMAT = "tnplan.sbd"
VERSION = 1
CONSISTENT = 1e-7
"""How far the energy that density matrices give may be from that of the state, in Hartree."""


@dataclass(frozen=True)
class CarryOver:
    """Strings to write for the next basis: to PREFIX.alpha.txt and PREFIX.beta.txt."""

    prefix: Path
    ratio: float | None = None
    missing: float | None = None

    @property
    def files(self) -> tuple[Path, Path]:
        """The files of the alpha and of the beta strings."""
        return tuple(self.prefix.with_name(f"{self.prefix.name}.{spin}.txt") for spin in ("alpha", "beta"))  # type: ignore[return-value]


@dataclass(frozen=True)
class Diagonalization:
    """What a solve gave: energies in Hartree, states [alpha string, beta string] or [determinant].

    `order` are the numbers, among the determinants given, of those of a list. `report` is what the JSON file
    says.
    """

    solution: Solution
    order: Array | None
    densities: tuple[Densities, ...]
    report: dict[str, Any]

    @property
    def energies(self) -> Array:
        """The energies of the states, in Hartree, rising."""
        return self.solution.energies

    @property
    def states(self) -> list[Array]:
        """The normalized states."""
        return self.solution.states


def diagonalize(
    integrals: Integrals | str | Path, alpha: Strings | None = None, beta: Strings | None = None, *,
    determinants: DeterminantList | str | Path | None = None, roots: int = 1,
    criteria: Criteria | None = None, penalty: SpinPenalty | None = None,
    start: Sequence[Array] | str | Path = (), rdm: bool = False,
    carry: CarryOver | None = None, output: str | Path | None = None, checkpoint: bool = True,
    resume: bool = False, memory_bytes: float = np.inf, threads: int | None = None,
    progress: Callable[[Step], None] | None = None, announce: Callable[[str], None] | None = None,
) -> Diagonalization:  # fmt: skip
    """The lowest states of a Hamiltonian among the products of half-strings, or among a list of determinants.

    `integrals` is an FCIDUMP file or `executor.sbd.integrals.from_arrays(...)`; `alpha` and `beta` (default:
    those of alpha) are files, integers whose bit p is orbital p, or string sets. `start` are states, or the
    file of an earlier result. The result goes to `output` (.npz, and a .json beside it), which also keeps a
    checkpoint while the solve runs. Raises planner.errors.InputError for input that cannot be used.
    """
    begin = perf_counter()
    criteria = criteria or Criteria()
    target = None if output is None else Path(output)
    _check_outputs(target, carry, integrals, alpha, beta, determinants)
    if not isinstance(integrals, Integrals):
        integrals = read_fcidump(integrals)
    hamiltonian, order = _hamiltonian(integrals, alpha, beta, determinants, memory_bytes, threads)
    criteria = fit_memory(int(np.prod(hamiltonian.shape)), roots, criteria, memory_bytes)
    predicted = None
    if isinstance(hamiltonian, ProductHamiltonian):
        predicted = predicted_bytes(hamiltonian, roots, criteria)
        if predicted > memory_bytes:
            raise InputError(
                "memory", f"holds {memory_bytes:.4g} bytes of the {predicted:.4g} that the solve needs",
                "give fewer strings, fewer threads or more memory",
            )  # fmt: skip
    if announce is not None:
        announce(_described(hamiltonian, predicted))
    setup_s = perf_counter() - begin
    held = target.with_name(f"{target.name}.ckpt") if target is not None and checkpoint else None
    found = solve(
        hamiltonian, integrals, roots, criteria=criteria, penalty=penalty, start=_states(start, hamiltonian),
        checkpoint=held, resume=resume, progress=progress,
    )  # fmt: skip
    solve_s = perf_counter() - begin - setup_s
    space, wholes = _in_product(hamiltonian, integrals, found.states)
    made = _densities(space, integrals, wholes, found) if rdm else ()
    counts = [occupations(space, whole) for whole in wholes]
    report = {
        "format": FORMAT, "version": VERSION, "converged": found.converged,
        "energies_hartree": found.energies.tolist(), "residuals": found.residuals.tolist(),
        "spin_square": [spin_square(space, whole) for whole in wholes],
        "occupations": {
            "alpha": [pair[0].tolist() for pair in counts], "beta": [pair[1].tolist() for pair in counts],
        },
        "space": {
            "shape": list(hamiltonian.shape), "orbitals": integrals.n_orbitals,
            "electrons": [integrals.n_alpha, integrals.n_beta],
            "pairs_contributing": hamiltonian.pairs_contributing,
        },
        "measured": {
            "steps": found.steps, "multiplications": found.multiplications, "setup_s": setup_s,
            "solve_s": solve_s, "orthogonality": found.orthogonality,
        },
        "predicted_bytes": predicted, "threads": hamiltonian.threads,
        "environment": {
            "tnplan": version("tnplan"), "numpy": np.__version__, "python": platform.python_version(),
            "machine": platform.machine(), "cores": os.cpu_count(),
        },
    }  # fmt: skip
    result = Diagonalization(found, order, made, report)
    if carry is not None:
        _write_carry_over(carry, space, wholes)
    if target is not None:
        _write(target, result)
        if held is not None and found.converged:
            held.unlink(missing_ok=True)
    return result


def _check_outputs(target: Path | None, carry: CarryOver | None, *inputs: Any) -> None:
    files = [source for source in inputs if isinstance(source, str | Path)]
    if target is not None:
        if target.suffix != ".npz":
            raise InputError(str(target), "is no .npz", "give the output a name that ends in .npz")
        check_writable(target, *files)
        check_writable(target.with_suffix(".json"), *files)
    for file in carry.files if carry is not None else ():
        check_writable(file, *files)


def _hamiltonian(
    integrals: Integrals, alpha: Strings | None, beta: Strings | None,
    determinants: DeterminantList | str | Path | None, memory_bytes: float, threads: int | None,
) -> tuple[Hamiltonian, Array | None]:  # fmt: skip
    if (alpha is None) == (determinants is None) or (beta is not None and determinants is not None):
        raise InputError(
            "space", "is given twice or not at all", "give alpha strings, or a list of determinants"
        )
    room_bytes = memory_bytes / 2
    if determinants is not None:
        if not isinstance(determinants, DeterminantList):
            determinants = read_determinants(determinants, integrals)
        return ListHamiltonian(
            integrals, determinants, threads=threads, room_bytes=room_bytes
        ), determinants.given
    assert alpha is not None
    first = _strings(alpha, integrals, integrals.n_alpha, "alpha")
    if beta is None and integrals.n_alpha != integrals.n_beta:
        raise InputError(
            "beta", f"has {integrals.n_beta} electrons where alpha has {integrals.n_alpha}",
            "give beta strings of their own",
        )  # fmt: skip
    second = None if beta is None else _strings(beta, integrals, integrals.n_beta, "beta")
    return ProductHamiltonian(integrals, first, second, threads=threads, room_bytes=room_bytes), None


def _strings(given: Strings, integrals: Integrals, n_electrons: int, spin: str) -> StringSet:
    if isinstance(given, str | Path):
        return read_strings(given, integrals.n_orbitals, n_electrons)
    if not isinstance(given, StringSet):
        return from_integers(given, integrals.n_orbitals, n_electrons)
    if (given.n_orbitals, given.n_electrons) != (integrals.n_orbitals, n_electrons):
        raise InputError(
            f"{spin} strings", f"have {given.n_electrons} electrons in {given.n_orbitals} orbitals",
            f"give {n_electrons} electrons in {integrals.n_orbitals} orbitals",
        )  # fmt: skip
    return given


def _described(hamiltonian: Hamiltonian, predicted: int | None) -> str:
    size = " x ".join(map(str, hamiltonian.shape))
    memory = "" if predicted is None else f", {predicted / 2**20:.0f} MiB"
    return f"{size} determinants, {hamiltonian.pairs_contributing:.4g} contributing pairs{memory}"


def _states(start: Sequence[Array] | str | Path, hamiltonian: Hamiltonian) -> list[Array]:
    if not isinstance(start, str | Path):
        return [np.asarray(state, np.float64) for state in start]
    try:
        with np.load(start, allow_pickle=False) as file:
            states = np.asarray(file["states"], np.float64)
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise InputError(
            str(start), f"holds no states ({error})", "give the .npz of an earlier result"
        ) from None
    if states.shape[1:] != hamiltonian.shape:
        raise InputError(
            str(start), f"holds states of shape {states.shape[1:]}, this space has {hamiltonian.shape}",
            "give the result of a solve over the same strings",
        )  # fmt: skip
    return list(states)


def _in_product(
    hamiltonian: Hamiltonian, integrals: Integrals, states: list[Array]
) -> tuple[ProductHamiltonian, list[Array]]:
    """The space of products that holds the states, and the states in it."""
    space, first = as_product(hamiltonian, integrals, states[0])
    if isinstance(hamiltonian, ListHamiltonian):
        return space, [first, *(hamiltonian.basis.embed(state) for state in states[1:])]
    return space, states


def _densities(
    space: ProductHamiltonian, integrals: Integrals, states: list[Array], found: Solution
) -> tuple[Densities, ...]:
    made = tuple(densities(space, state) for state in states)
    for energy, density in zip(found.energies, made, strict=True):
        apart = abs(density.energy(integrals) - energy)
        if not apart <= CONSISTENT and found.converged:
            raise RuntimeError(
                f"density matrices give an energy that is {apart:.2g} Hartree from the state's"
            )
    return made


def _write_carry_over(carry: CarryOver, space: ProductHamiltonian, states: list[Array]) -> None:
    """The strings of most weight in the mean over the states."""
    means = [np.mean(sums, axis=0) for sums in zip(*map(string_weights, states), strict=True)]
    for file, weights, spin in zip(carry.files, means, (space.alpha, space.beta), strict=True):
        chosen = carry_over(weights, ratio=carry.ratio, missing=carry.missing)
        write_text(file, spin.strings.take(chosen).lines())


def _write(target: Path, result: Diagonalization) -> None:
    content: dict[str, Array] = {"energies": result.energies, "states": np.array(result.states)}
    if result.order is not None:
        content["order"] = result.order
    for name in ("alpha", "beta", "two_alpha", "two_beta", "mixed", "one", "two") if result.densities else ():
        content[f"rdm_{name}"] = np.array([getattr(density, name) for density in result.densities])
    write_file(target, lambda stream: np.savez(stream, **content))  # type: ignore[arg-type]
    write_text(target.with_suffix(".json"), json.dumps(result.report, indent=1) + "\n")
