"""`sci_solver` for qiskit-addon-sqd: its configuration recovery with subspaces diagonalized by tnplan.

    from tnplan import sci_solver
    qiskit_addon_sqd.fermion.diagonalize_fermionic_hamiltonian(..., sci_solver=sci_solver)

Knows the interface of qiskit-addon-sqd (SCIState, SCIResult), which is imported when called.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.checks import is_number
from tnplan.common.errors import InputError

if TYPE_CHECKING:
    from tnplan.executor.sbd.solver.solve import SpinPenalty

TOPIC = "samples of a molecule"

Array = NDArray[Any]

SPIN_WEIGHT = 0.1
"""Hartree by which S^2 is held to `spin_sq`, as qiskit-addon-sqd's own solver does it."""
NEAR_LEAST = 0.1
"""Up to this above the least S^2 the penalty is linear in S^2, above that quadratic, as there."""


def sci_solver(
    ci_strings: Sequence[tuple[Array, Array]], one_body_tensor: Array, two_body_tensor: Array, norb: int,
    nelec: tuple[int, int], *, spin_sq: float | None = None, rdm: bool = False, **options: Any,
) -> list[Any]:  # fmt: skip
    """Diagonalize subspaces for qiskit-addon-sqd, as the `sci_solver` of its configuration recovery.

    Under mpirun the call is collective.

    Parameters
    ----------
    ci_strings : sequence of (array, array)
        The alpha and beta strings of each subspace; bit p is orbital p.
    one_body_tensor, two_body_tensor : array
        Integrals [p, q] and (pq|rs) [p, q, r, s] in Hartree, as PySCF keeps them.
    norb, nelec : int, (int, int)
        Orbitals, and alpha and beta electrons.
    spin_sq : float, optional
        Raises states of other S^2, by the same penalty as qiskit-addon-sqd's own solver.
    rdm : bool
        Give spin-summed density matrices.
    **options
        Those of `diagonalize`, such as `device`, `criteria` and `precision`; only one root.

    Returns
    -------
    list of SCIResult
        The ground state in each subspace; the energy is without the core's. Empty on ranks other than 0.

    Raises
    ------
    InputError
        For what cannot be used, where a solve does not converge, or without qiskit-addon-sqd.

    Examples
    --------
    >>> from qiskit_addon_sqd.fermion import diagonalize_fermionic_hamiltonian  # doctest: +SKIP
    >>> diagonalize_fermionic_hamiltonian(..., sci_solver=tnplan.sci_solver)  # doctest: +SKIP
    """
    try:
        package = import_module("qiskit_addon_sqd.fermion")
    except ImportError as error:
        raise InputError(
            "sci_solver",
            f"needs qiskit-addon-sqd ({error})",
            "install it with: pip install qiskit-addon-sqd",
            topic="installation",
        ) from None
    from tnplan.calls.diagonalize import diagonalize
    from tnplan.executor.sbd.basis.integrals import from_arrays

    if np.shape(one_body_tensor) != (norb, norb):
        raise InputError(
            "one_body_tensor", f"has the shape {np.shape(one_body_tensor)} for {norb} orbitals",
            f"give {norb} x {norb} integrals",
        )  # fmt: skip
    # qiskit-addon-sqd passes (pq|rs) in chemists' order, over real orbitals of both spins.
    integrals = from_arrays(one_body_tensor, two_body_tensor, *nelec)
    if options.get("roots", 1) != 1:
        raise InputError(
            "sci_solver: roots", f"are {options['roots']!r}, and a result of qiskit-addon-sqd has one state",
            "leave roots out, or call tnplan.diagonalize",
        )  # fmt: skip
    penalty = None if spin_sq is None else spin_penalty(spin_sq, nelec)
    results = []
    for alpha, beta in ci_strings:
        result = diagonalize(integrals, list(alpha), list(beta), penalty=penalty, rdm=rdm, **options)
        if not result.solution.converged:
            raise InputError(
                "sci_solver", f"did not converge in {result.solution.steps} steps",
                "allow more steps or a larger residual in `criteria`",
            )  # fmt: skip
        # Under mpirun rank 0 alone has the states.
        if not result.states:
            continue
        counts = result.report["occupations"]
        matrices = {}
        if rdm:
            matrices = {"rdm1": result.densities[0].one, "rdm2": result.densities[0].two}
        results.append(
            package.SCIResult(
                float(result.energies[0]),
                package.SCIState(result.states[0], np.asarray(alpha), np.asarray(beta), norb, nelec),
                (np.array(counts["alpha"][0]), np.array(counts["beta"][0])),
                **matrices,
            )
        )
    return results


def spin_penalty(spin_sq: float, nelec: tuple[int, int]) -> SpinPenalty:
    """What raises states of other S^2: linear in S^2 for the least one, else quadratic."""
    from tnplan.executor.sbd.solver.solve import SpinPenalty

    if not (is_number(spin_sq) and 0 <= spin_sq < np.inf):
        raise InputError("sci_solver: spin_sq", f"is {spin_sq!r}", "give s (s + 1), a number of 0 or more")
    sz = abs(nelec[0] - nelec[1]) / 2
    power = 1 if spin_sq < sz * (sz + 1) + NEAR_LEAST else 2
    return SpinPenalty(float(np.sqrt(0.25 + spin_sq) - 0.5), SPIN_WEIGHT, power, every_state=True)
